"""Surrogates for metrics of decisions over a set: F1, Jaccard, MCC, balanced accuracy, or a user's own.

Such a metric is a function of four counts. Softened at several widths they are error rates between 0 and 1; a small
network that can only rise with each of them stands for the metric's formula. The loss has the right sign by
construction: a better score never costs more.

>>> import torch
>>> surrogate = CountsNetwork("binary")
>>> scores, targets = torch.randn(4, 64), torch.randint(2, (4, 64))
>>> better = scores + targets - 0.5
>>> bool((surrogate(better, targets) < surrogate(scores, targets)).all())
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossmith.surrogates.onevsrest import to_decisions
from lossmith.surrogates.rows import mean_of_kept, root_mean_square, scale_of_set
from lossmith.surrogates.surrogate import Setting, Surrogate
from lossmith.surrogates.tables import asinh_grid, histograms
from lossmith.vocabulary import Kind, parse_kind

COUNTED_KINDS = (Kind.BINARY, Kind.MULTILABEL, Kind.MULTICLASS, Kind.SEGMENTATION, Kind.TOKENS)


@final
class CountsNetwork(Surrogate):
    """Soft error rates of each class or label against the rest, a monotone head, the mean over the classes.

    ``floor`` bounds the sharpness of the soft decisions, in units of the set's mean absolute score.
    """

    grid: Tensor

    def __init__(
        self, kind: Kind | str, *, num_widths: int = 6, hidden: int = 16, floor: float = 0.01, num_nodes: int = 129
    ) -> None:
        super().__init__()
        self.kind = parse_kind(kind)
        if self.kind not in COUNTED_KINDS:
            raise ValueError(f"{kind} predictions are not decisions; {', '.join(COUNTED_KINDS)} predictions are.")
        self.floor = floor
        self.hidden = hidden
        self.raw_widths = nn.Parameter(torch.linspace(math.log(0.05), math.log(2.0), num_widths))
        self.head = RisingNetwork(num_rising=4 * num_widths, num_free=1, hidden=hidden)
        self.register_buffer("grid", asinh_grid(num_nodes, reach=16.0), persistent=False)

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {
            "kind": str(self.kind),
            "num_widths": len(self.raw_widths),
            "hidden": self.hidden,
            "floor": self.floor,
            "num_nodes": len(self.grid),
        }

    def size(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        scores, positives, negatives = to_decisions(self.kind, outputs, targets)
        return root_mean_square(scores, positives + negatives)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, positives, negatives = to_decisions(self.kind, outputs, targets)
        scaled = (scores / scale_of_set(scores, positives + negatives)).unsqueeze(-2)
        widths = self._widths().unsqueeze(-1)
        missed = mean_of_kept(torch.sigmoid(-scaled / widths), positives.unsqueeze(-2))
        alarms = mean_of_kept(torch.sigmoid(scaled / widths), negatives.unsqueeze(-2))
        return self._judge(missed, alarms, positives.sum(-1), negatives.sum(-1))

    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        scores, positives, negatives = to_decisions(self.kind, outputs, targets)
        scaled = scores / scale_of_set(scores, positives + negatives)
        return (
            histograms(scaled, positives, self.grid),
            histograms(scaled, negatives, self.grid),
            positives.sum(-1),
            negatives.sum(-1),
        )

    def losses(self, *summary: Tensor) -> Tensor:
        of_positives, of_negatives, num_positives, num_negatives = summary
        steps = torch.sigmoid(self.grid.unsqueeze(-1) / self._widths())
        return self._judge(of_positives @ (1 - steps), of_negatives @ steps, num_positives, num_negatives)

    def penalty(self, *summary: Tensor) -> Tensor:
        """0: the sign is right and the sharpness bounded by construction."""
        return torch.zeros_like(summary[2][:, 0])

    def _widths(self) -> Tensor:
        return self.floor + self.raw_widths.exp()

    def _judge(self, missed: Tensor, alarms: Tensor, num_positives: Tensor, num_negatives: Tensor) -> Tensor:
        """``[S, K, W]`` error rates and ``[S, K]`` counts to ``[S]``."""
        odds = ((num_negatives + 1) / (num_positives + 1)).unsqueeze(-1)
        # what the metrics see of the false alarms is their number beside the positives, over orders of magnitude
        per_positive, per_negative = torch.log1p(alarms * odds), torch.log1p(missed / odds)
        rates = torch.cat([missed, alarms, per_positive, per_negative], dim=-1)
        costs = self.head(rates, odds.log())
        is_present = num_positives > 0
        # a class that the set does not have says something only where no class is there at all
        is_counted = is_present | (~is_present.any(-1, keepdim=True) & (num_negatives > 0))
        return mean_of_kept(costs, is_counted.to(costs.dtype))


# of the mean of the rising inputs, beside what is learned of them
SMALLEST_SLOPE = 0.02


@final
class RisingNetwork(nn.Module):
    """Rises with each of its first inputs whatever the weights; free in the others."""

    def __init__(self, *, num_rising: int, num_free: int, hidden: int) -> None:
        super().__init__()
        sizes = [num_rising, hidden, hidden, 1]
        # softplus(-2) = .13: small enough that the sum over the inputs starts at order 1
        self.raw_weights = nn.ParameterList(nn.Parameter(0.5 * torch.randn(b, a) - 2.0) for a, b in pairwise(sizes))
        self.free = nn.Linear(num_free, hidden)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for b in sizes[2:])

    def forward(self, rising: Tensor, free: Tensor) -> Tensor:
        first, second, last = (F.softplus(weight) for weight in self.raw_weights)
        x = torch.tanh(F.linear(rising, first) + self.free(free))
        # tanh - 1: what is left of a saturated unit would be lost beside the 1, and with it the order of bad sets
        x = -2 * torch.sigmoid(-2 * F.linear(x, second, self.biases[0]))
        # where every unit of the first layer is saturated the slope alone tells one set from another
        return F.linear(x, last, self.biases[1]).squeeze(-1) + SMALLEST_SLOPE * rising.mean(-1)
