"""Surrogates for metrics that count right rows: the mean over rows of one function of one number.

The default (:func:`margin_loss`) is a falling function of each row's margin, measured in units of the set's mean
margin, because accuracy does not see the scale of the scores. The paper's (A.1, eq. 10, as released) is a free network
of the true class's probability (:func:`probability_network`).

>>> import torch
>>> surrogate = margin_loss("multiclass")
>>> outputs, targets = torch.randn(4, 16, 10), torch.randint(10, (4, 16))
>>> tuple(surrogate(outputs, targets).shape)
(4,)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

import torch
from torch import Tensor, nn

from lossmith.surrogates.falling import FallingMixture
from lossmith.surrogates.rows import (
    BINARY_KINDS,
    ROW_KINDS,
    kept,
    margins,
    mean_of_kept,
    root_mean_square,
    scale_of_set,
    to_rows,
)
from lossmith.surrogates.surrogate import Setting, Surrogate
from lossmith.surrogates.tables import asinh_grid, histograms
from lossmith.vocabulary import Kind, parse_kind

Feature = Literal["margin", "probability"]


@final
class PointwiseSurrogate(Surrogate):
    """Mean over rows of ``curve(feature)``; built by the functions below.

    ``hidden=[]`` is a curve that falls by construction, no sharper than ``floor``; otherwise it is a free network with
    these layers and ELU, which needs the penalty to keep its sign. ``top`` counts a row as right when the true class is
    among the best ``top``. Without ``is_penalty_signed`` the penalty is the paper's, with which losses invert.
    """

    grid: Tensor

    def __init__(
        self,
        kind: Kind | str,
        *,
        feature: Feature = "margin",
        hidden: list[int] | None = None,
        floor: float = 0.04,
        top: int = 1,
        num_nodes: int = 257,
        is_penalty_signed: bool = True,
    ) -> None:
        super().__init__()
        self.kind = parse_kind(kind)
        if self.kind not in ROW_KINDS:
            raise ValueError(f"{kind} predictions are not judged row by row; {', '.join(ROW_KINDS)} predictions are.")
        if top > 1 and (self.kind in BINARY_KINDS or feature == "probability"):
            raise ValueError(f"top-{top} needs margins between classes; this is {self.kind} with {feature}.")
        self.feature: Feature = feature
        self.hidden = hidden or []
        self.floor = floor
        self.top = top
        self.is_penalty_signed = is_penalty_signed
        self.curve: nn.Module = FreeCurve(self.hidden) if self.hidden else FallingMixture(floor=floor)
        grid = asinh_grid(num_nodes, reach=16.0) if feature == "margin" else torch.linspace(0, 1, num_nodes)
        self.register_buffer("grid", grid, persistent=False)

    @property
    def has_sign_by_construction(self) -> bool:
        return not self.hidden

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {
            "kind": str(self.kind),
            "feature": self.feature,
            "hidden": self.hidden,
            "floor": self.floor,
            "top": self.top,
            "num_nodes": len(self.grid),
            "is_penalty_signed": self.is_penalty_signed,
        }

    def features(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``[S, M]``: the number that each row is judged by, and the row's weight (0: left out)."""
        scores, targets = to_rows(self.kind, outputs, targets)
        weight = kept(targets, scores)
        if self.feature == "margin":
            margin = margins(scores, targets, top=self.top)
            return margin / scale_of_set(margin, weight), weight
        if self.kind in BINARY_KINDS:
            return margins(scores, targets).sigmoid(), weight
        index = targets.clamp_min(0).long().unsqueeze(-1)
        return scores.softmax(-1).gather(-1, index).squeeze(-1), weight

    def size(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        if self.feature != "margin":
            return None
        scores, targets = to_rows(self.kind, outputs, targets)
        return root_mean_square(margins(scores, targets, top=self.top), kept(targets, scores))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        feature, weight = self.features(outputs, targets)
        return mean_of_kept(self.curve(feature), weight)

    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return (histograms(*self.features(outputs, targets), self.grid),)

    def losses(self, *summary: Tensor) -> Tensor:
        (histogram,) = summary
        curve: Tensor = self.curve(self.grid)
        return histogram @ curve

    def penalty(self, *summary: Tensor) -> Tensor:
        (histogram,) = summary
        values: Tensor = self.curve(self.grid)
        slopes = values.diff() / self.grid.diff()
        rows_between = (histogram[..., 1:] + histogram[..., :-1]) / 2
        return rows_between @ ((slopes if self.is_penalty_signed else -slopes.abs()) + 1).square()


def margin_loss(kind: Kind | str, *, floor: float = 0.04, top: int = 1) -> PointwiseSurrogate:
    """The default: 17 weights that cannot rise. ``floor`` is the one number of smoothness to choose (0.03 to 1)."""
    return PointwiseSurrogate(kind, feature="margin", floor=floor, top=top)


def probability_network(kind: Kind | str, *, width: int = 128, num_hidden: int = 3) -> PointwiseSurrogate:
    """The paper's network: 33,409 weights, input = probability of the true class.

    The released one ends in an absolute value, which lets the loss turn upwards near probability 1; this one does not.
    """
    return PointwiseSurrogate(kind, feature="probability", hidden=[width] * num_hidden)


class FreeCurve(nn.Module):
    """A network of one number, elementwise."""

    def __init__(self, hidden: list[int]) -> None:
        super().__init__()
        sizes = [1, *hidden]
        layers = [part for pair in zip(sizes, hidden) for part in (nn.Linear(*pair), nn.ELU())]
        self.network = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.network(x.unsqueeze(-1))
        return values.squeeze(-1)
