"""The bilevel surrogate for a stack of runs: every model has a surrogate of its own, and all of them learn at once.

The same steps as :func:`lossmith.methods.bilevel.bilevel_steps` takes for one model; a test holds the two together.

Shape legend: ``S`` runs, ``C`` sets of one run (a batch and its jittered copies), ``B`` rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossmith.kinds import Kind
from lossmith.lab.comparing.stacks import StackedAdam
from lossmith.methods.bilevel import BilevelSurrogate, jittered, universal_steps
from lossmith.vocabulary import Metric

Start = Literal["universal", "scratch", "refined"]
# rates of the surrogate: what starts from nothing learns faster
SURROGATE_RATES: dict[Start, float] = {"universal": 0.0, "scratch": 3e-3, "refined": 1e-3}
# as bilevel_steps has them
NUM_MODEL_STEPS, NUM_SURROGATE_STEPS, NUM_FIRST_STEPS = 3, 10, 1000
NUM_COPIES, JITTER = 3, 1.0


class StackedBilevel:
    """SL-U, SL-S or SL-R. ``follow`` is called before every step of the models, and learns when it is time to."""

    def __init__(self, metric: Metric, start: Start, num_runs: int, *, seed: int = 0) -> None:
        self.metric, self.start = metric, start
        self.generator = torch.Generator().manual_seed(seed)
        self.surrogate = BilevelSurrogate(Kind.BINARY, generator=self.generator)
        network = self.surrogate.network
        first = network.weights.detach() if start == "scratch" else _universal_weights(metric.name)
        self.weights = nn.Parameter(first.expand(num_runs, -1).clone())
        self._sizes = [2, *network.row_widths, *network.set_widths, 1]
        self._num_row_layers = len(network.row_widths)
        rate = SURROGATE_RATES[start]
        self._optimizer = StackedAdam([self.weights], torch.full((num_runs,), rate)) if rate else None
        self._num_steps = 0

    def follow(self, draw: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """``draw()`` gives outputs ``[S, B]`` of the models as they are, without gradients, and targets."""
        if self._optimizer is None:
            return
        if self._num_steps == 0:
            self._fit(draw, NUM_FIRST_STEPS)
        elif self._num_steps % NUM_MODEL_STEPS == 0:
            self._fit(draw, NUM_SURROGATE_STEPS)
        self._num_steps += 1

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The surrogate's value, and the gradient as :meth:`BilevelSurrogate.slopes` makes it."""
        rows, share = self.surrogate.network.summarize(outputs.detach(), targets)
        scores = rows[..., 0].clone().requires_grad_()
        with torch.enable_grad():
            values = self._judge(
                self.weights.detach(), torch.stack([scores, rows[..., 1]], -1)[:, None], share[:, None]
            )
            (gradient,) = torch.autograd.grad(values.sum(), scores)
        gradient = gradient.masked_fill((gradient > 0) == (targets == 1), 0)  # is_monotone
        length = gradient.norm(dim=1, keepdim=True).clamp_min(torch.finfo(gradient.dtype).tiny)
        num_rows = outputs.shape[1]
        gradient = gradient / (length * num_rows**0.5) + 2 * self.surrogate.score_penalty / num_rows * scores.detach()
        loss: Tensor = values.detach().squeeze(1) + ((outputs - outputs.detach()) * gradient).sum(1)
        return loss

    def _fit(self, draw: Callable[[], tuple[Tensor, Tensor]], num_steps: int) -> None:
        assert self._optimizer is not None
        for _ in range(num_steps):
            outputs, targets = draw()
            sets = jittered(Kind.BINARY, outputs, targets, NUM_COPIES, JITTER, generator=self.generator)
            costs = self.metric.cost(sets.outputs, sets.targets).view(len(outputs), -1)
            rows, share = self.surrogate.network.summarize(sets.outputs, sets.targets)
            rows, share = (each.unflatten(0, costs.shape) for each in (rows, share))
            errors = self._judge(self.weights, rows, share) - costs
            self._optimizer.clear()
            errors.masked_fill(costs.isnan(), 0).abs().mean(1).sum().backward()
            self._optimizer.step(1.0)

    def _judge(self, weights: Tensor, rows: Tensor, share: Tensor) -> Tensor:
        """``[S, C]`` from ``[S, C, B, 2]`` and ``[S, C, B]``."""
        hidden = rows.flatten(1, 2)
        begin = 0
        num_layers = len(self._sizes) - 1
        for number, (size, width) in enumerate(pairwise(self._sizes), start=1):
            matrix = weights[:, begin : begin + size * width].view(-1, width, size)
            begin += size * width
            bias = weights[:, begin : begin + width].unsqueeze(1)
            begin += width
            hidden = torch.baddbmm(bias, hidden, matrix.mT)
            if number < num_layers:
                hidden = F.softplus(hidden)
            if number == self._num_row_layers:
                hidden = (hidden.view(*share.shape, width) * share.unsqueeze(-1)).sum(2)
        return hidden.squeeze(-1)


@lru_cache(maxsize=16)
def _universal_weights(metric_name: str) -> Tensor:
    from lossmith.metrics import METRICS

    generator = torch.Generator().manual_seed(0)
    surrogate = BilevelSurrogate(Kind.BINARY, generator=generator)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=1e-2)
    for _ in universal_steps(surrogate, METRICS[metric_name], optimizer, generator=generator):
        pass
    return surrogate.network.weights.detach()
