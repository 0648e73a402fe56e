"""One loss, all its learning rates and seeds, trained as one stack and looked at a few times on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lossmith.kinds import Kind
from lossmith.lab.comparing.recipes import LossRecipe, Making
from lossmith.lab.comparing.records import CONTROL
from lossmith.lab.comparing.stack_losses import OfStack, any_of, sweep_thresholds
from lossmith.lab.comparing.stacks import StackedAdam, StackedDescent, StackedMlp, new_stack
from lossmith.lab.datasets.splitting import Parts
from lossmith.metrics.counts import OfCounts
from lossmith.metrics.thresholds import tune_threshold
from lossmith.vocabulary import Metric, StackLoss

OptimizerName = Literal["adam", "descent"]

NUM_CHECKPOINTS = 7
# so often may a caller show progress, or stop
STEPS_BETWEEN_YIELDS = 50
# numbers of one pass of an evaluation
MAX_OUTPUTS = 4_000_000


@dataclass(frozen=True)
class Plan:
    """How models are trained, the same for every loss."""

    model: str
    num_steps: int = 700
    batch_size: int = 256
    is_balanced: bool = False
    is_cosine: bool = True
    num_checkpoints: int = NUM_CHECKPOINTS
    optimizer: OptimizerName = "adam"


@dataclass(frozen=True)
class Look:
    """The runs ``[S]`` after so many steps, by one metric."""

    step: int
    validation: Tensor
    thresholds: Tensor | None
    test: Tensor


@dataclass(frozen=True)
class StackResult:
    """``looks[metric]`` in the order of steps; runs seed by seed, then variant by variant, then rate by rate."""

    looks: dict[str, list[Look]]
    seconds_per_step: float
    """Of the whole stack."""
    num_runs: int


@runtime_checkable
class FollowsModels(Protocol):
    """A loss that learns from the outputs of the models while they train; it has no variants."""

    def follow(self, draw: Callable[[int], tuple[Tensor, Tensor]], /) -> None: ...


def stack_steps(
    parts: Parts,
    plan: Plan,
    recipe: LossRecipe,
    *,
    seeds: Sequence[int],
    rates: Sequence[float],
    metrics: Sequence[Metric],
) -> Generator[float, None, StackResult]:
    """Yields the share that is done. The first metric is the one that the loss is made for."""
    num_variants = len(recipe.variants)
    per_seed = num_variants * len(rates)
    num_runs = len(seeds) * per_seed
    # the control has other first weights and other batches, on the same split
    own_seeds = [seed + 1_000_003 * (recipe.name == CONTROL) for seed in seeds]
    model = new_stack(
        plan.model, parts.pool.inputs.shape[1], parts.pool.num_outputs, seeds=own_seeds, num_runs=per_seed
    )
    losses = [
        recipe.make(Making(metrics[0], parts.pool.kind, num_runs // num_variants, plan.num_steps), variant)
        for variant in recipe.variants
    ]
    parameters = [
        *model.parameters(),
        *(p for loss in losses if isinstance(loss, nn.Module) for p in loss.parameters()),
    ]
    rate_of_run = torch.tensor(list(rates) * (len(seeds) * num_variants))
    optimizer = (StackedAdam if plan.optimizer == "adam" else StackedDescent)(parameters, rate_of_run)
    of_stack = _joined(losses, per_seed=per_seed, num_seeds=len(seeds))
    batches = batch_steps(parts, own_seeds, batch_size=plan.batch_size, is_balanced=plan.is_balanced)
    shares = [k / plan.num_checkpoints for k in range(1, plan.num_checkpoints + 1)]
    marks = {max(round(plan.num_steps * share), 1) for share in shares}
    looks: dict[str, list[Look]] = {metric.name: [] for metric in metrics}
    seconds = 0.0
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(own_seeds[0])  # dropout
    dropout_state = torch.random.get_rng_state()
    torch.random.set_rng_state(generator_state)
    # what a learning loss looks at comes from batches of its own: those of the models are the same for every loss
    others = batch_steps(
        parts, [seed + 31 for seed in own_seeds], batch_size=plan.batch_size, is_balanced=plan.is_balanced
    )

    def draw(num_batches: int) -> tuple[Tensor, Tensor]:
        """Of fresh rows: outputs and targets ``[S, num_batches, B]``."""
        nonlocal dropout_state
        index = torch.cat([next(others) for _ in range(num_batches)], 1)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(dropout_state)
            outputs = model(parts.train_rows(index))
            dropout_state = torch.random.get_rng_state()
        targets = parts.train_targets(index).repeat_interleave(per_seed, 0)
        return outputs.unflatten(1, (num_batches, -1)), targets.unflatten(1, (num_batches, -1))

    for step in range(1, plan.num_steps + 1):
        start = time.process_time()
        for loss in losses:
            if isinstance(loss, FollowsModels):
                loss.follow(draw)
        index = next(batches)
        inputs, targets = parts.train_rows(index), parts.train_targets(index).repeat_interleave(per_seed, 0)
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(dropout_state)
            outputs = model(inputs)
            dropout_state = torch.random.get_rng_state()
        optimizer.clear()
        of_stack(outputs, targets).sum().backward()
        optimizer.step(0.5 * (1 + math.cos(math.pi * (step - 1) / plan.num_steps)) if plan.is_cosine else 1.0)
        seconds += time.process_time() - start
        if step in marks:
            for metric, look in zip(metrics, look_at(model, parts, metrics, step)):
                looks[metric.name].append(look)
        if step in marks or step % STEPS_BETWEEN_YIELDS == 0:
            yield step / plan.num_steps
    return StackResult(looks, seconds / plan.num_steps, num_runs)


def _joined(losses: Sequence[StackLoss | OfStack], *, per_seed: int, num_seeds: int) -> OfStack:
    calls: list[OfStack] = [loss.of_stack if isinstance(loss, StackLoss) else loss for loss in losses]
    if len(calls) == 1:
        return calls[0]
    num_rates = per_seed // len(calls)
    return any_of(calls, [which for _ in range(num_seeds) for which in range(len(calls)) for _ in range(num_rates)])


def batch_steps(parts: Parts, seeds: Sequence[int], *, batch_size: int, is_balanced: bool) -> Iterator[Tensor]:
    """``[G, B]`` places in the training part, for ever: each seed in an order of its own, every row once an epoch; or
    half of them positives, drawn at random (paper 003, section 4.1).
    """
    generators = [torch.Generator().manual_seed(seed + 17) for seed in seeds]
    size = min(batch_size, parts.train.shape[1])
    if is_balanced:
        pools = [[(labels == k).nonzero().squeeze(1) for k in (0, 1)] for labels in parts.targets(parts.train)]
        while True:
            yield torch.stack(
                [
                    torch.cat([rows[torch.randint(len(rows), (size // 2,), generator=each)] for rows in pair])
                    for pair, each in zip(pools, generators)
                ]
            )
    num_rows = parts.train.shape[1]
    while True:
        order = torch.stack([torch.randperm(num_rows, generator=each) for each in generators])
        yield from order[:, : num_rows // size * size].split(size, 1)


def look_at(model: StackedMlp, parts: Parts, metrics: Sequence[Metric], step: int) -> list[Look]:
    """Thresholds are tuned on the validation rows, for every loss alike."""
    validation, validation_targets = _outputs(model, parts.validation_rows), _targets(model, parts, parts.validation)
    test, test_targets = _outputs(model, parts.test_rows), _targets(model, parts, parts.test)
    found = []
    for metric in metrics:
        values, thresholds = _tuned(metric, validation, validation_targets)
        shifted = test if thresholds is None else test - thresholds.view(-1, 1)
        found.append(Look(step, values, thresholds, metric.value(shifted, test_targets)))
    return found


def _tuned(metric: Metric, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
    if metric.kind is not Kind.BINARY or metric.reads_probabilities:
        return metric.value(outputs, targets), None
    if isinstance(metric.value, OfCounts):
        return sweep_thresholds(metric.value.formula, outputs, targets, higher_is_better=metric.higher_is_better)
    try:
        found = torch.tensor([tune_threshold(metric, *each) for each in zip(outputs, targets)])
    except ValueError:  # it reads more than signs: a ranking, or probabilities
        return metric.value(outputs, targets), None
    return metric.value(outputs - found.unsqueeze(-1), targets), found


@torch.no_grad()
def _outputs(model: StackedMlp, rows: Tensor) -> Tensor:
    """``[S, n, ...]`` of rows ``[G, n, F]``."""
    model.eval()
    chunks = rows.split(max(MAX_OUTPUTS // (len(rows) * model.num_runs * _width(model)), 1), 1)
    outputs = torch.cat([model(chunk) for chunk in chunks], 1)
    model.train()
    return outputs


def _targets(model: StackedMlp, parts: Parts, index: Tensor) -> Tensor:
    return parts.targets(index).repeat_interleave(model.num_runs, 0)


def _width(model: StackedMlp) -> int:
    return max(*model.shape.widths, model.num_outputs, 1) if model.shape.widths else max(model.num_outputs, 1)
