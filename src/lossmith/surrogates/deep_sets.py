"""A network of any set: for metrics that fit no pattern, and for the surrogate of a bilevel run.

``h(mean over rows of g(scores, target))`` can be any function that does not see the order of the rows (paper 003,
section 4: g has 30 and 30 units, h has 10 and 10). Nothing gives it the right sign, so the penalty pulls it there and
its slope is checked before anybody trains with it. It knows the number of classes that it was made for.

>>> import torch
>>> surrogate = DeepSets("binary")
>>> outputs, targets = torch.randn(2, 50), torch.randint(2, (2, 50))
>>> bool(torch.allclose(surrogate(outputs, targets), surrogate(outputs.flip(1), targets.flip(1)), atol=1e-6))
True
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossmith.surrogates.rows import BINARY_KINDS, ROW_KINDS, kept, scale_of_set, to_rows
from lossmith.surrogates.surrogate import Setting, Surrogate
from lossmith.vocabulary import Kind, parse_kind


@final
class DeepSets(Surrogate):
    """Rows are their scores, in units of the set's mean size, beside their target as a one-hot vector.

    ``num_classes`` is 1 for yes-or-no kinds. ``is_scaled=False`` feeds raw scores.
    """

    def __init__(
        self,
        kind: Kind | str,
        *,
        num_classes: int = 1,
        row_widths: list[int] | None = None,
        set_widths: list[int] | None = None,
        is_scaled: bool = True,
    ) -> None:
        super().__init__()
        self.kind = parse_kind(kind)
        if self.kind not in ROW_KINDS:
            raise ValueError(f"{kind} predictions are not judged row by row; {', '.join(ROW_KINDS)} predictions are.")
        if (num_classes == 1) != (self.kind in BINARY_KINDS):
            raise ValueError(f"num_classes={num_classes} does not go with {self.kind} predictions.")
        self.num_classes = num_classes
        self.row_widths = [30, 30] if row_widths is None else row_widths
        self.set_widths = [10, 10] if set_widths is None else set_widths
        self.is_scaled = is_scaled
        self.of_row = _smooth_layers([2 * num_classes, *self.row_widths])
        self.of_set = nn.Sequential(
            *_smooth_layers([self.row_widths[-1], *self.set_widths]), nn.Linear(self.set_widths[-1], 1)
        )

    @property
    def has_sign_by_construction(self) -> bool:
        return False

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {
            "kind": str(self.kind),
            "num_classes": self.num_classes,
            "row_widths": self.row_widths,
            "set_widths": self.set_widths,
            "is_scaled": self.is_scaled,
        }

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.losses(*self.summarize(outputs, targets))

    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """Scores ``[S, M, C]``, one-hot targets of the same shape (in yes-or-no rows: -1 and 1), weights ``[S, M]``."""
        scores, targets = to_rows(self.kind, outputs, targets)
        if self.kind in BINARY_KINDS:
            scores = scores.unsqueeze(-1)
            truth = torch.where(targets == 1, 1.0, -1.0).unsqueeze(-1)
        else:
            if scores.shape[-1] != self.num_classes:
                raise ValueError(f"this loss was made for {self.num_classes} classes; {scores.shape[-1]} came.")
            truth = F.one_hot(targets.clamp_min(0).long(), self.num_classes)
        weight = kept(targets, scores)
        if self.is_scaled:
            size = scores - scores.mean(-1, keepdim=True) if self.num_classes > 1 else scores
            scale = scale_of_set(size.flatten(1), weight.repeat_interleave(self.num_classes, 1))
            # a network has no use for a score of 10,000, and its gradient none for infinity
            scores = (scores / scale.unsqueeze(-1)).clamp(-16, 16)
        return scores, truth.to(scores.dtype), weight

    def losses(self, *summary: Tensor) -> Tensor:
        scores, truth, weight = summary
        rows = self.of_row(torch.cat([scores, truth], -1)) * weight.unsqueeze(-1)
        count = weight.sum(-1, keepdim=True)
        judged: Tensor = self.of_set(rows.sum(-2) / count.clamp_min(1)).squeeze(-1)
        # a set of which everything is left out says nothing: zero, with a graph
        return torch.where(count.squeeze(-1) > 0, judged, judged * 0)

    def penalty(self, *summary: Tensor) -> Tensor:
        scores, truth, weight = summary
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.losses(scores, truth, weight).sum(), scores, create_graph=True)
        # of the true score, or in the right direction; of one row's own loss, not of its share in the mean
        slope = (gradient * truth).sum(-1) * weight.sum(-1, keepdim=True)
        return ((slope + 1).square() * weight).sum(-1) / weight.sum(-1).clamp_min(1)


def _smooth_layers(sizes: list[int]) -> nn.Sequential:
    layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.Softplus())]
    return nn.Sequential(*layers)
