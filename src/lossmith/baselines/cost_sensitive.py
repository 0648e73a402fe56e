"""Cross-entropy in which classes have weights: the oldest answer to a metric that cares more for one of them.

With the right weight of the positives, the classifier of least weighted error is the one of highest F1 (Parambath et
al. 2014). Which weight that is nobody knows beforehand: try :data:`POSITIVE_WEIGHTS` and choose on validation rows.

>>> import torch
>>> loss = cost_sensitive(Kind.BINARY, positive_weight=3)
>>> loss(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))  # (3 log 2 + log 2) / 2
tensor(1.3863)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lossmith.baselines.decisions import as_decisions
from lossmith.baselines.pointwise import Pointwise
from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, Kind, Loss, parse_kind

# paper 003, section 4.3
POSITIVE_WEIGHTS = (0.3, 0.9, 2.7, 8.1, 24.3, 72.9)


def cost_sensitive(kind: Kind | str, *, positive_weight: float = 2.7) -> Loss:
    """Cross-entropy of yes-or-no predictions; that of a positive counts ``positive_weight`` times."""
    kind = parse_kind(kind)
    if kind not in (Kind.BINARY, Kind.MULTILABEL):
        raise ValueError(
            f"{kind} predictions have no positive class to give a weight; binary and multilabel ones have."
        )
    if positive_weight <= 0:
        raise ValueError(f"positive_weight={positive_weight} came; more than 0 works.")
    term = partial(_score_term, positive_weight=positive_weight)
    return Pointwise(kind, term, term)


def _score_term(scores: Tensor, targets: Tensor, *, positive_weight: float) -> Tensor:
    weights = 1 + (positive_weight - 1) * targets
    return F.binary_cross_entropy_with_logits(scores, targets, weight=weights, reduction="none")


@dataclass(frozen=True)
class BalancedCrossEntropy:
    """A loss: the mean over classes of the mean cross-entropy of each class that the set has.

    Of multilabel predictions, the classes are the presence and the absence of each label.
    """

    kind: Kind

    def __post_init__(self) -> None:
        if self.kind not in CLASS_DIM or self.kind is Kind.SPAN:
            raise ValueError(f"{self.kind} predictions have no classes to balance.")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, labels = as_decisions(self.kind, outputs, targets)
        if CLASS_DIM[self.kind] is None:
            known = labels.masked_fill(labels == IGNORE_INDEX, 0).to(scores.dtype)
            terms = F.binary_cross_entropy_with_logits(scores, known, reduction="none")
            terms, members = torch.cat([terms, terms], 1), torch.cat([labels == 0, labels == 1], 1)
        else:
            terms, members = -scores.log_softmax(-1), labels == 1
        num_members = members.sum(0)
        means = terms.masked_fill(~members, 0).sum(0) / num_members.clamp(min=1)
        return (means.sum() / (num_members > 0).sum().clamp(min=1)).to(outputs.dtype)


def balanced_cross_entropy(kind: Kind) -> Loss:
    """Cross-entropy in which every class of the set has the same weight, however rare (class-weighted)."""
    return BalancedCrossEntropy(kind)
