"""Surrogates for metrics of order: AUC by pairs, average precision by soft ranks.

Both see only differences of scores, in units of the set's spread. :class:`PairLoss` is a falling function of the
difference between a positive and a negative, averaged over all such pairs (AUC is the same with a step in its place).
:class:`RankLoss` is average precision with each rank softened: one learned number, how soft.

>>> import torch
>>> scores, targets = torch.tensor([[3.0, 1.0, 2.0, 0.0]]), torch.tensor([[1, 1, 0, 0]])
>>> surrogate = RankLoss("binary", floor=1e-3)
>>> surrogate.place.data.zero_()  # as sharp as it may be: average precision itself
tensor(0.)
>>> bool(surrogate(scores, targets).sub(1 - (1 + 2 / 3) / 2).abs() < 1e-4)
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from lossmith.surrogates.falling import FallingMixture
from lossmith.surrogates.onevsrest import Decisions, to_decisions
from lossmith.surrogates.rows import SMALLEST_SCALE, mean_of_kept, root_mean_square
from lossmith.surrogates.surrogate import Setting, Surrogate
from lossmith.surrogates.tables import asinh_grid, histograms
from lossmith.vocabulary import Kind, parse_kind

LARGEST_WIDTH = 1.0
# share of a loss of ranks that the correlation of scores and targets moves, at a width of 1
SLOPE_OF_RANKS = 0.1
FIRST_WIDTH = 0.05
ORDERED_KINDS = (Kind.BINARY, Kind.MULTILABEL, Kind.MULTICLASS)


def _check_ordered_kind(kind: Kind | str) -> Kind:
    kind = parse_kind(kind)
    if kind not in ORDERED_KINDS:
        raise ValueError(f"{kind} predictions have no order of positives; {', '.join(ORDERED_KINDS)} predictions do.")
    return kind


def _standardised(decisions: Decisions) -> Tensor:
    """Scores in units of their set's standard deviation, which is a constant to the gradient."""
    scores, positives, negatives = decisions
    weight = positives + negatives
    fixed = scores.detach()
    centre = mean_of_kept(fixed, weight).unsqueeze(-1)
    spread = mean_of_kept((fixed - centre).square(), weight).sqrt().unsqueeze(-1)
    return (scores - centre) / spread.clamp_min(SMALLEST_SCALE)


@final
class PairLoss(Surrogate):
    """Mean over pairs of a positive and a negative of a falling function of their difference: for AUC."""

    sees_pairs = True
    grid: Tensor

    def __init__(self, kind: Kind | str, *, floor: float = 0.005, num_nodes: int = 513) -> None:
        super().__init__()
        self.kind = _check_ordered_kind(kind)
        self.floor = floor
        # AUC is one step at 0: a slope would weigh how far a pair is from it
        self.curve = FallingMixture(floor=floor, num_steps=1, first_width=FIRST_WIDTH)
        self.register_buffer("grid", asinh_grid(num_nodes, reach=16.0), persistent=False)

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"kind": str(self.kind), "floor": self.floor, "num_nodes": len(self.grid)}

    def differences(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``[S, K, M * M]``: positive minus negative, and 1 for the pairs that count."""
        decisions = to_decisions(self.kind, outputs, targets)
        scores = _standardised(decisions)
        return (
            (scores.unsqueeze(-1) - scores.unsqueeze(-2)).flatten(-2),
            (decisions.positives.unsqueeze(-1) * decisions.negatives.unsqueeze(-2)).flatten(-2),
        )

    def size(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """How far scores lie from the middle of their class or label."""
        scores, positives, negatives = to_decisions(self.kind, outputs, targets)
        weight = positives + negatives
        return root_mean_square(scores - mean_of_kept(scores, weight).unsqueeze(-1), weight)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        difference, weight = self.differences(outputs, targets)
        losses = mean_of_kept(self.curve(difference), weight)
        return mean_of_kept(losses, (weight.sum(-1) > 0).to(losses.dtype))

    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        # a set has M * M pairs: set by set in chunks, or the pairs of a stored pool would not fit
        chunk = max(1, 4_000_000 // max(1, outputs[0].numel() * outputs.shape[1]))
        parts = [
            histograms(*self.differences(some_outputs, some_targets), self.grid)
            for some_outputs, some_targets in zip(outputs.split(chunk), targets.split(chunk))
        ]
        return (torch.cat(parts),)

    def losses(self, *summary: Tensor) -> Tensor:
        (histogram,) = summary
        losses = histogram @ self.curve(self.grid)
        return mean_of_kept(losses, (histogram.sum(-1) > 0).to(losses.dtype))

    def penalty(self, *summary: Tensor) -> Tensor:
        """0: the curve falls and its sharpness is bounded by construction."""
        return torch.zeros_like(summary[0][:, 0, 0])


@final
class RankLoss(Surrogate):
    """1 - average precision with soft ranks, the softness learned, but never below ``floor``."""

    sees_pairs = True
    log_widths: Tensor

    def __init__(self, kind: Kind | str, *, floor: float = 0.01, num_nodes: int = 13) -> None:
        super().__init__()
        self.kind = _check_ordered_kind(kind)
        if not 0 < floor < LARGEST_WIDTH:
            raise ValueError(f"floor is {floor}; more than 0 and less than {LARGEST_WIDTH:g} works.")
        self.floor = floor
        # the place between the smallest width (0) and the largest (1), on a logarithmic scale
        self.place = nn.Parameter(torch.tensor(0.5))
        self.register_buffer(
            "log_widths", torch.linspace(math.log(floor), math.log(LARGEST_WIDTH), num_nodes), persistent=False
        )

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {"kind": str(self.kind), "floor": self.floor, "num_nodes": len(self.log_widths)}

    @property
    def width(self) -> Tensor:
        low, high = self.log_widths[0], self.log_widths[-1]
        return (low + self.place.clamp(0, 1) * (high - low)).exp()

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _soft_average_precision_loss(to_decisions(self.kind, outputs, targets), self.width)

    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """``[S, W]``: the loss at each width of a table, between which learning interpolates."""
        chunk = max(1, 2_000_000 // max(1, outputs[0].numel() * outputs.shape[1]))
        parts = []
        for some_outputs, some_targets in zip(outputs.split(chunk), targets.split(chunk)):
            decisions = to_decisions(self.kind, some_outputs, some_targets)
            losses = [_soft_average_precision_loss(decisions, width) for width in self.log_widths.exp()]
            parts.append(torch.stack(losses, -1))
        return (torch.cat(parts),)

    def losses(self, *summary: Tensor) -> Tensor:
        (table,) = summary
        node = self.place.clamp(0, 1) * (len(self.log_widths) - 1)
        nodes = torch.arange(len(self.log_widths), device=table.device)
        return table @ (1 - (node - nodes).abs()).clamp_min(0)

    def penalty(self, *summary: Tensor) -> Tensor:
        """0: the sign is that of average precision itself."""
        return torch.zeros_like(summary[0][:, 0])


def _soft_average_precision_loss(decisions: Decisions, width: Tensor) -> Tensor:
    """``[S]``; 0 where a set has positives alone, or none."""
    _, positives, negatives = decisions
    scores = _standardised(decisions)
    is_above = torch.sigmoid((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / width)  # [.., i, j]: j above i
    # each positive is above itself by 1, not by the 1/2 of the sigmoid at 0
    positives_above = (is_above @ positives.unsqueeze(-1)).squeeze(-1) + 0.5
    negatives_above = (is_above @ negatives.unsqueeze(-1)).squeeze(-1)
    precision = positives_above / (positives_above + negatives_above)
    # soft ranks are flat where classes are far apart, and there the scores' changing unit would make the loss rise;
    # a factor, because sets of perfect order are equal to the metric and must stay equal to the loss
    weight = positives + negatives
    share = (positives.sum(-1) / weight.sum(-1).clamp_min(1)).unsqueeze(-1)
    deviation = (share * (1 - share)).clamp_min(1e-6).sqrt().squeeze(-1)
    correlation = (mean_of_kept(scores, positives) - mean_of_kept(scores, negatives)) * deviation
    losses = mean_of_kept(1 - precision, positives) * (1 + SLOPE_OF_RANKS * width * (1 - correlation))
    is_defined = (positives.sum(-1) > 0) & (negatives.sum(-1) > 0)
    return mean_of_kept(losses, is_defined.to(losses.dtype))
