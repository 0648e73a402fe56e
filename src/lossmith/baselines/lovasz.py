"""Lovász hinge and Lovász softmax: the convex extension of the Jaccard loss (Berman, Triki and Blaschko 2018).

>>> import torch
>>> loss = lovasz(Kind.BINARY)
>>> loss(torch.tensor([2.0, -3.0, 0.5]), torch.tensor([1, 0, 0]))  # one error of 1.5: union 2, intersection 1
tensor(0.7500)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.baselines.decisions import as_decisions, check_decided, mean_over
from lossmith.metrics.counts import ratio
from lossmith.vocabulary import CLASS_DIM, Kind, Loss


@dataclass(frozen=True)
class Lovasz:
    """A loss: hinge errors of scores where labels stand alone, errors of the softmax where classes compete.

    The mean over the classes or labels that the set has positives of.
    """

    kind: Kind

    def __post_init__(self) -> None:
        check_decided(self.kind, "the Lovász loss")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, labels = as_decisions(self.kind, outputs, targets)
        is_positive, is_kept = (labels == 1).to(scores.dtype), (labels == 0) | (labels == 1)
        if CLASS_DIM[self.kind] is None:
            errors = (1 - (2 * is_positive - 1) * scores).relu()
        else:
            errors = (is_positive - scores.softmax(-1)).abs()
        # what is left out has no error, and so no place among those that count
        errors = errors.masked_fill(~is_kept, 0).T
        ordered, order = errors.sort(-1, descending=True)
        slopes = _jaccard_steps(is_positive.T.gather(-1, order), is_kept.T.to(scores.dtype).gather(-1, order))
        return mean_over((ordered * slopes).sum(-1), is_positive.sum(0) > 0).to(outputs.dtype)


def lovasz(kind: Kind) -> Loss:
    """Lovász extension of the Jaccard loss: hinge for scores that stand alone, softmax for classes."""
    return Lovasz(kind)


def _jaccard_steps(is_positive: Tensor, is_kept: Tensor) -> Tensor:
    """How much the Jaccard loss grows with each further error, largest error first: ``[K, M]``."""
    num_positives = is_positive.sum(-1, keepdim=True)
    intersection = num_positives - is_positive.cumsum(-1)
    union = num_positives + (is_kept - is_positive).cumsum(-1)
    loss = 1 - ratio(intersection, union)
    return torch.cat([loss[..., :1], loss.diff()], dim=-1).detach()
