"""The bilevel surrogate for a stack of runs: every model has a surrogate of its own, and all of them learn at once.

The same steps as :func:`lossmith.methods.bilevel.bilevel_steps` takes for one model; a test holds the two together.

Shape legend: ``S`` runs, ``K`` batches, ``C`` sets of one batch (itself and its jittered copies), ``B`` rows.
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

Start = Literal["universal", "universal_paper", "universal_raw", "scratch", "refined"]
# rates of the surrogate: what starts from nothing learns faster
SURROGATE_RATES: dict[Start, float] = {"scratch": 3e-3, "refined": 1e-3}
# as bilevel_steps has them
NUM_MODEL_STEPS, NUM_SURROGATE_STEPS, NUM_FIRST_STEPS = 3, 10, 1000
NUM_COPIES, JITTER = 3, 1.0


class StackedBilevel:
    """SL-U (of our random sets, of the paper's, or of these with the network's own gradient), SL-S or SL-R.

    ``follow`` is called before every step of the models, and learns when it is time to.
    """

    def __init__(
        self, metric: Metric, start: Start, num_runs: int, *, seed: int = 0, num_first_steps: int | None = None
    ) -> None:
        self.metric, self.start = metric, start
        self._num_first_steps = NUM_FIRST_STEPS if num_first_steps is None else num_first_steps
        self.generator = torch.Generator().manual_seed(seed)
        self.surrogate = BilevelSurrogate(Kind.BINARY, generator=self.generator)
        network = self.surrogate.network
        if start == "scratch":
            first = network.weights.detach()
        else:
            first = _universal_weights(metric.name, is_paper=start in ("universal_paper", "universal_raw"))
        self.weights = nn.Parameter(first.expand(num_runs, -1).clone())
        self._sizes = [2, *network.row_widths, *network.set_widths, 1]
        self._lengths = [length for size, width in pairwise(self._sizes) for length in (size * width, width)]
        self._num_row_layers = len(network.row_widths)
        rate = SURROGATE_RATES.get(start, 0.0)
        self._optimizer = StackedAdam([self.weights], torch.full((num_runs,), rate)) if rate else None
        self._num_steps = 0

    def follow(self, draw: Callable[[int], tuple[Tensor, Tensor]]) -> None:
        """``draw(K)`` gives outputs ``[S, K, B]`` of the models as they are, without gradients, and targets."""
        if self._optimizer is None:
            return
        if self._num_steps == 0:
            for _ in range(0, self._num_first_steps, NUM_SURROGATE_STEPS):
                self._fit(*draw(NUM_SURROGATE_STEPS))
        elif self._num_steps % NUM_MODEL_STEPS == 0:
            self._fit(*draw(NUM_SURROGATE_STEPS))
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
        if self.start == "universal_raw":
            raw: Tensor = values.detach().squeeze(1) + ((outputs - outputs.detach()) * gradient).sum(1)
            return raw
        gradient = gradient.masked_fill((gradient > 0) == (targets == 1), 0)  # is_monotone
        length = gradient.norm(dim=1, keepdim=True).clamp_min(torch.finfo(gradient.dtype).tiny)
        num_rows = outputs.shape[1]
        gradient = gradient / (length * num_rows**0.5) + 2 * self.surrogate.score_penalty / num_rows * scores.detach()
        loss: Tensor = values.detach().squeeze(1) + ((outputs - outputs.detach()) * gradient).sum(1)
        return loss

    def _fit(self, outputs: Tensor, targets: Tensor) -> None:
        """One step for each of ``K`` batches. Models do not change in between: what is asked of them is asked once."""
        assert self._optimizer is not None
        num_runs, num_steps = outputs.shape[:2]
        sets = jittered(
            Kind.BINARY,
            outputs.flatten(0, 1),
            targets.flatten(0, 1),
            NUM_COPIES,
            JITTER,
            generator=self.generator,
        )
        costs = self.metric.cost(sets.outputs, sets.targets).to(outputs.dtype)
        rows, share = self.surrogate.network.summarize(sets.outputs, sets.targets)
        costs, rows, share = (each.view(num_runs, num_steps, -1, *each.shape[1:]) for each in (costs, rows, share))
        for number in range(num_steps):
            errors = self._judge(self.weights, rows[:, number], share[:, number]) - costs[:, number]
            self._optimizer.clear()
            errors.masked_fill(costs[:, number].isnan(), 0).abs().mean(1).sum().backward()
            self._optimizer.step(1.0)

    def _judge(self, weights: Tensor, rows: Tensor, share: Tensor) -> Tensor:
        """``[S, C]`` from ``[S, C, B, 2]`` and ``[S, C, B]``."""
        hidden = rows.flatten(1, 2)
        num_layers = len(self._sizes) - 1
        parts = iter(weights.split(self._lengths, 1))
        for number, (size, width) in enumerate(pairwise(self._sizes), start=1):
            matrix, bias = next(parts).view(-1, width, size), next(parts).unsqueeze(1)
            hidden = torch.baddbmm(bias, hidden, matrix.mT)
            if number < num_layers:
                hidden = F.softplus(hidden)
            if number == self._num_row_layers:
                hidden = (hidden.view(*share.shape, width) * share.unsqueeze(-1)).sum(2)
        return hidden.squeeze(-1)


@lru_cache(maxsize=16)
def _universal_weights(metric_name: str, *, is_paper: bool = False) -> Tensor:
    from lossmith.metrics import METRICS

    generator = torch.Generator().manual_seed(0)
    surrogate = BilevelSurrogate(Kind.BINARY, generator=generator)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=1e-2)
    for _ in universal_steps(surrogate, METRICS[metric_name], optimizer, generator=generator, is_paper=is_paper):
        pass
    return surrogate.network.weights.detach()
