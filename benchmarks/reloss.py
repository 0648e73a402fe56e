"""Learning a loss, beside the paper's pseudo-code set by set, and what a learned loss adds to a training step.

python benchmarks/reloss.py [--json]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from diffsort import DiffSortNet
from timing import Row, best_seconds, report
from torch import Tensor

from lossmith.lab.models import MODELS
from lossmith.learning import rank_objective, surrogate_steps
from lossmith.methods.reloss import learn
from lossmith.metrics import find_metric
from lossmith.predictions import random_predictions
from lossmith.surrogates import Surrogate, margin_loss, probability_network
from lossmith.vocabulary import Predictions
from lossmith.weights import load

NUM_SETS, SET_SIZE, NUM_CLASSES = 256, 128, 10


def our_step(surrogate: Surrogate, stack: Predictions) -> Callable[[], object]:
    steps = surrogate_steps(
        surrogate,
        find_metric("accuracy"),
        [stack],
        rank_objective(),
        torch.optim.Adam(surrogate.parameters(), lr=0.01),
        num_steps=1_000_000,
        generator=torch.Generator().manual_seed(0),
        sets_per_step=NUM_SETS,
        gradient_penalty=10.0,
    )
    return lambda: next(steps)


def pseudo_code_step(surrogate: Surrogate, stack: Predictions) -> Callable[[], object]:
    """Algorithm 1 line by line: one set after the other, eq. 8 by autograd, diffsort's bitonic sort of steepness 5."""
    sort = DiffSortNet("bitonic", NUM_SETS, steepness=5)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=0.01)
    position = torch.arange(NUM_SETS, dtype=torch.float32)

    def soft_rank(values: Tensor) -> Tensor:
        _, permutation = sort(values[None])
        ranks: Tensor = (permutation[0] * position).sum(-1)
        return ranks

    def step() -> None:
        losses, values, penalties = [], [], []
        for outputs, targets in zip(stack.outputs, stack.targets):
            scores = outputs.clone().requires_grad_()
            loss = surrogate(scores[None], targets[None])[0]
            (gradient,) = torch.autograd.grad(loss, scores, create_graph=True)
            penalties.append((gradient.norm() - 1).square())
            losses.append(loss)
            values.append((outputs.argmax(-1) == targets).float().mean())
        of_losses, of_values = soft_rank(-torch.stack(losses)), torch.stack(values).argsort().argsort().float()
        centred = [ranks - ranks.mean() for ranks in (of_losses, of_values)]
        correlation = (centred[0] * centred[1]).sum() / (centred[0].norm() * centred[1].norm() + 1e-10)
        optimizer.zero_grad()
        (-correlation + 10 * torch.stack(penalties).mean()).backward()
        optimizer.step()

    return step


def added_share() -> float:
    """Of a training step of ResNet-20 on 128 images: how much longer the learned loss and cross-entropy take."""
    model = MODELS["resnet20"](torch.Size([3, 32, 32]), NUM_CLASSES)
    images, targets = torch.randn(SET_SIZE, 3, 32, 32), torch.randint(NUM_CLASSES, (SET_SIZE,))
    outputs = torch.randn(SET_SIZE, NUM_CLASSES, requires_grad=True)
    learned = load("accuracy")
    of_step = best_seconds(lambda: torch.nn.functional.cross_entropy(model(images), targets).backward(), budget=6)
    # the step alone swings by more than the loss costs, so what is added is timed by itself
    of_loss = best_seconds(lambda: learned(outputs, targets).backward())
    return of_loss / of_step


def seconds_to_learn() -> float:
    """Of this process: neighbours do not count."""
    stored = random_predictions("multiclass", num_sets=64, set_size=1000, generator=torch.Generator().manual_seed(1))
    start = time.process_time()
    learn("accuracy", stored, surrogate=margin_loss("multiclass"), progress=False)
    return time.process_time() - start


def measure() -> list[Row]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    stack = random_predictions("multiclass", num_sets=NUM_SETS, set_size=SET_SIZE, generator=generator)
    network = probability_network("multiclass")
    theirs = best_seconds(pseudo_code_step(network, stack), budget=4)
    ours = best_seconds(our_step(network, stack))
    default = best_seconds(our_step(margin_loss("multiclass"), stack))
    size = f"{NUM_SETS} sets of {SET_SIZE}"
    return [
        Row(f"pseudo-code set by set, the paper's network, {size}", 1e3 * theirs, "ms a step"),
        Row(f"ours, the same network, {size}", 1e3 * ours, "ms a step"),
        Row(f"ours, the default surrogate, {size}", 1e3 * default, "ms a step"),
        Row("steps per second against the pseudo-code", theirs / ours, "times", 100),
        Row("learning from stored predictions, 400 steps", seconds_to_learn(), "s of processor time", 5, False),
        Row("added to a training step, ResNet-20", 100 * added_share(), "%", 3, False),
    ]


if __name__ == "__main__":
    report(measure, __doc__)
