"""The same small network trained from many seeds at once: one product of stacks in place of a loop over models.

A seed draws its own rows, its own wrong labels, its own weights and its own order, so the spread over seeds is that
of the whole procedure. Two losses with the same seed share all of it: their difference is paired.

M models, N rows, C classes.

>>> from lossmith.baselines import find_loss
>>> task = Task("digits", num_rows=200, num_epochs=4, batch_size=16)
>>> ce = find_loss("ce", "multiclass")
>>> accuracy = train_seeds(task, one_for_each(lambda num_steps: ce), learning_rate=0.1, seeds=range(3))
>>> accuracy.test.shape, bool(accuracy.test.mean() > 0.6)
(torch.Size([3]), True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from lossmith.lab.comparing.stack_losses import OfStack
from lossmith.lab.datasets import Dataset, find_dataset
from lossmith.lab.recipes import new_scheduler
from lossmith.training import train_steps
from lossmith.vocabulary import Loss

NUM_TEST_ROWS = 10_000


@dataclass(frozen=True)
class Task:
    """Plain values: they are kept beside the results."""

    dataset: str
    num_rows: int
    """That a model trains on; half as many more choose the learning rate."""
    num_epochs: int
    label_noise: float = 0.0
    """Share of the training and validation rows whose label is drawn at random."""
    widths: tuple[int, ...] = (64, 64)
    batch_size: int = 128
    is_test_drawn: bool = False
    """The test is on rows that the seed drew for nothing else, from both official parts: no choice has seen just them.
    Else on the official test rows."""

    @property
    def num_steps(self) -> int:
        return self.num_rows // self.batch_size * self.num_epochs


class Accuracies(NamedTuple):
    """``[M]`` each."""

    validation: Tensor
    test: Tensor


MakeOfStack = Callable[[int, int], OfStack]
"""Given the number of steps and the number of models, makes what gives ``[M]`` losses."""


def one_for_each(make_loss: Callable[[int], Loss]) -> MakeOfStack:
    """A loss for each model, made with the number of steps: for those that remember what they have seen."""

    def make(num_steps: int, num_models: int) -> OfStack:
        losses = [make_loss(num_steps) for _ in range(num_models)]
        return lambda outputs, targets: torch.stack([loss(*each) for loss, *each in zip(losses, outputs, targets)])

    return make


def train_seeds(task: Task, make_losses: MakeOfStack, *, learning_rate: float, seeds: Sequence[int]) -> Accuracies:
    """SGD with momentum .9, warm-up and half a cosine."""
    dataset = _load(task.dataset)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    rows, targets = (torch.stack(parts) for parts in zip(*(_draw_rows(task, dataset, each) for each in generators)))
    model = MlpStack([dataset.input_shape.numel(), *task.widths, dataset.num_classes], generators)
    optimizer = torch.optim.SGD(
        [{"params": list(model.parameters()), "initial_lr": learning_rate}],
        lr=learning_rate,
        momentum=0.9,
        weight_decay=1e-4,
    )
    of_stack = make_losses(task.num_steps, len(seeds))

    def sum_of_losses(outputs: Tensor, targets: Tensor) -> Tensor:
        # each model's weights see the gradient of its own loss alone
        return of_stack(outputs, targets).sum()

    inputs = dataset.train_inputs.flatten(1)
    batches = _batches(task, inputs, rows[:, : task.num_rows], targets[:, : task.num_rows], generators)
    for _ in train_steps(
        model, sum_of_losses, batches, optimizer, scheduler=new_scheduler(optimizer, num_steps=task.num_steps)
    ):
        pass
    return Accuracies(
        _accuracy(model, inputs[rows[:, task.num_rows :]], targets[:, task.num_rows :]),
        _accuracy(model, *_test_rows(task, dataset, rows, seeds)),
    )


def _test_rows(task: Task, dataset: Dataset, rows: Tensor, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """``[M, N, D]`` and ``[M, N]``; ``rows [M, N]`` are those that were drawn to train and to validate."""
    if not task.is_test_drawn:
        inputs = dataset.test_inputs[:NUM_TEST_ROWS].flatten(1).expand(len(seeds), -1, -1)
        return inputs, dataset.test_targets[:NUM_TEST_ROWS].expand(len(seeds), -1)
    inputs = torch.cat([dataset.train_inputs, dataset.test_inputs]).flatten(1)
    targets = torch.cat([dataset.train_targets, dataset.test_targets])
    num_left = min(len(targets) - rows.shape[1], NUM_TEST_ROWS)
    orders = [torch.randperm(len(targets), generator=torch.Generator().manual_seed(~seed)) for seed in seeds]
    picked = torch.stack([order[~torch.isin(order, drawn)][:num_left] for order, drawn in zip(orders, rows)])
    return inputs[picked], targets[picked]


class MlpStack(nn.Module):
    """``[M, N, D] -> [M, N, C]``: dense layers and ReLU, drawn as those of torch, model by model."""

    def __init__(self, sizes: Sequence[int], generators: Sequence[Generator]) -> None:
        super().__init__()

        def drawn(*shape: int, fan_in: int) -> nn.Parameter:
            reach = 1 / math.sqrt(fan_in)
            return nn.Parameter(
                torch.stack([reach * (2 * torch.rand(*shape, generator=each) - 1) for each in generators])
            )

        self.weights = nn.ParameterList(drawn(a, b, fan_in=a) for a, b in pairwise(sizes))
        self.biases = nn.ParameterList(drawn(1, b, fan_in=a) for a, b in pairwise(sizes))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            hidden = torch.baddbmm(bias, hidden if number == 0 else hidden.relu(), weight)
        return hidden


def _draw_rows(task: Task, dataset: Dataset, generator: Generator) -> tuple[Tensor, Tensor]:
    """Row numbers, for training and then for validation, and their labels."""
    num_needed = task.num_rows + task.num_rows // 2
    num_there = len(dataset.train_targets)
    if num_needed > num_there:
        raise ValueError(f"{task} needs {num_needed} rows for training and validation; {num_there} are there.")
    rows = torch.randperm(num_there, generator=generator)[:num_needed]
    targets = dataset.train_targets[rows]
    is_wrong = torch.rand(num_needed, generator=generator) < task.label_noise
    return rows, torch.where(is_wrong, torch.randint(dataset.num_classes, (num_needed,), generator=generator), targets)


def _batches(
    task: Task, inputs: Tensor, rows: Tensor, targets: Tensor, generators: Sequence[Generator]
) -> Iterator[tuple[Tensor, Tensor]]:
    """``[M, B, D]`` and ``[M, B]``, each model in an order of its own; an epoch leaves out the remainder."""
    num_kept = task.num_rows // task.batch_size * task.batch_size
    for _ in range(task.num_epochs):
        order = torch.stack([torch.randperm(task.num_rows, generator=each)[:num_kept] for each in generators])
        for index in order.split(task.batch_size, 1):
            yield inputs[rows.gather(1, index)], targets.gather(1, index)


@torch.no_grad()
def _accuracy(model: MlpStack, inputs: Tensor, targets: Tensor) -> Tensor:
    predicted = torch.cat([model(part).argmax(-1) for part in inputs.split(1000, 1)], 1)
    return (predicted == targets).double().mean(1)


@lru_cache(maxsize=2)
def _load(name: str) -> Dataset:
    return find_dataset(name).load(None)
