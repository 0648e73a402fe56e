"""Many models at once: every learning rate and every seed of a loss is one slice of the same tensors.

On one core, forty small models trained one by one spend their time in calls, not in numbers; in a stack they cost
little more than one. Nothing is shared but the calls: a run has its own weights, batches and learning rate.

Shape legend: ``G`` seeds, ``R`` runs of each seed (learning rates, variants), ``S = G * R`` runs, seed by seed;
``B`` rows of a batch, ``F`` columns.

>>> model = new_stack("tiny4", 3, 1, seeds=[0, 1], num_runs=2)
>>> model(torch.zeros(2, 5, 3)).shape
torch.Size([4, 5])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["relu", "leaky_relu"]


@dataclass(frozen=True)
class Shape:
    """Of a plain network; no widths: a linear model."""

    widths: tuple[int, ...]
    activation: Activation = "relu"
    dropout: float = 0.0
    is_normalised: bool = False
    """Batch norm before every activation."""
    learning_rates: tuple[float, float] = (1e-3, 3e-2)
    """Where the grid of learning rates begins and ends; it widens where the best lies at its edge."""


STACKED_MODELS: dict[str, Shape] = {
    "linear": Shape((), learning_rates=(1e-2, 3e-1)),
    "tiny2": Shape((2,), learning_rates=(1e-2, 3e-1)),
    "tiny4": Shape((4,), learning_rates=(1e-2, 3e-1)),
    "tiny8": Shape((8,), learning_rates=(1e-2, 3e-1)),
    "mlp32": Shape((32, 32)),
    "mlp256": Shape((256, 256), learning_rates=(3e-4, 1e-2)),
    # paper 003, section 4.1
    "paper": Shape((100, 30, 10), "leaky_relu", dropout=0.2, is_normalised=True),
}


class StackedMlp(nn.Module):
    """``[G, B, F] -> [S, B]`` for one output, else ``[S, B, num_outputs]``; every run of a seed begins the same."""

    def __init__(
        self, shape: Shape, num_inputs: int, num_outputs: int, *, generators: Sequence[torch.Generator], num_runs: int
    ) -> None:
        super().__init__()
        sizes = [num_inputs, *shape.widths, num_outputs]
        self.shape, self.num_runs, self.num_outputs = shape, num_runs, num_outputs
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for size, next_size in pairwise(sizes):
            # the bounds of torch.nn.Linear
            drawn = [(torch.rand(size + 1, next_size, generator=each) * 2 - 1) / math.sqrt(size) for each in generators]
            both = torch.stack(drawn).repeat_interleave(num_runs, 0)
            self.weights.append(nn.Parameter(both[:, :-1].contiguous()))
            self.biases.append(nn.Parameter(both[:, -1:].contiguous()))
        self.norms = nn.ModuleList(
            StackedNorm(len(generators) * num_runs, width) for width in (shape.widths if shape.is_normalised else ())
        )

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self._first(inputs)
        for number in range(1, len(self.weights)):
            if self.norms:
                hidden = self.norms[number - 1](hidden)
            hidden = F.relu(hidden) if self.shape.activation == "relu" else F.leaky_relu(hidden)
            hidden = F.dropout(hidden, self.shape.dropout, self.training)
            hidden = torch.baddbmm(self.biases[number], hidden, self.weights[number])
        return hidden.squeeze(-1) if self.num_outputs == 1 else hidden

    def _first(self, inputs: Tensor) -> Tensor:
        # runs of a seed read the same rows: one product, as wide as all of them
        num_seeds, num_rows, num_inputs = inputs.shape
        width = self.weights[0].shape[-1]
        weights = self.weights[0].view(num_seeds, self.num_runs, num_inputs, width).transpose(1, 2)
        product = inputs @ weights.reshape(num_seeds, num_inputs, self.num_runs * width)
        product = product.view(num_seeds, num_rows, self.num_runs, width).transpose(1, 2)
        first: Tensor = product.reshape(-1, num_rows, width) + self.biases[0]
        return first


class StackedNorm(nn.Module):
    """Batch norm for a stack ``[S, B, width]``: each run by the mean and the variance of its own batch."""

    mean: Tensor
    variance: Tensor

    def __init__(self, num_runs: int, width: int, *, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.scale = nn.Parameter(torch.ones(num_runs, 1, width))
        self.shift = nn.Parameter(torch.zeros(num_runs, 1, width))
        self.register_buffer("mean", torch.zeros(num_runs, 1, width))
        self.register_buffer("variance", torch.ones(num_runs, 1, width))

    def forward(self, hidden: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            variance, mean = torch.var_mean(hidden, 1, correction=0, keepdim=True)
            num_rows = hidden.shape[1]
            self.mean.lerp_(mean.detach(), self.momentum)
            self.variance.lerp_(variance.detach() * (num_rows / max(num_rows - 1, 1)), self.momentum)
        return (hidden - mean) * ((variance + self.eps).rsqrt() * self.scale) + self.shift


def new_stack(name: str, num_inputs: int, num_outputs: int, *, seeds: Sequence[int], num_runs: int) -> StackedMlp:
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return StackedMlp(STACKED_MODELS[name], num_inputs, num_outputs, generators=generators, num_runs=num_runs)


class StackedAdam:
    """Adam (Kingma and Ba 2015) with a learning rate for every run: ``rates [S]``."""

    def __init__(self, parameters: Sequence[nn.Parameter], rates: Tensor, *, betas: tuple[float, float] = (0.9, 0.999)):
        self.parameters, self.rates, self.betas = list(parameters), rates, betas
        self.first = [torch.zeros_like(each) for each in self.parameters]
        self.second = [torch.zeros_like(each) for each in self.parameters]
        self.num_steps = 0

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """``factor`` is where the schedule is: a share of the learning rates."""
        self.num_steps += 1
        slow, fast = self.betas
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in self.parameters]
        torch._foreach_lerp_(self.first, gradients, 1 - slow)
        torch._foreach_mul_(self.second, fast)
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - fast)
        steps = torch._foreach_div(self.second, 1 - fast**self.num_steps)
        torch._foreach_sqrt_(steps)
        torch._foreach_add_(steps, 1e-8)
        moves = torch._foreach_div(self.first, steps)
        size = self.rates * (-factor / (1 - slow**self.num_steps))
        for each, move in zip(self.parameters, moves):
            each.addcmul_(move, size.view(-1, *(1 for _ in each.shape[1:])))

    def clear(self) -> None:
        for each in self.parameters:
            each.grad = None


class StackedDescent:
    """Plain gradient descent with a learning rate for every run: ``rates [S]``."""

    def __init__(self, parameters: Sequence[nn.Parameter], rates: Tensor) -> None:
        self.parameters, self.rates = list(parameters), rates

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """``factor`` is where the schedule is: a share of the learning rates."""
        size = self.rates * -factor
        for each in self.parameters:
            if each.grad is not None:
                each.addcmul_(each.grad, size.view(-1, *(1 for _ in each.shape[1:])))

    def clear(self) -> None:
        for each in self.parameters:
            each.grad = None
