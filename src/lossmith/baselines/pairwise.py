"""Losses of order: every positive against every negative (AUC), and average precision with soft ranks.

Memory grows with the square of the set.

>>> import torch
>>> scores, targets = torch.tensor([2.0, 0.0]), torch.tensor([1, 0])
>>> pairwise_logistic(Kind.BINARY)(scores, targets)  # log(1 + e^-2)
tensor(0.1269)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from lossmith.baselines.decisions import as_decisions, check_decided, mean_over
from lossmith.vocabulary import Kind, Loss

Judge = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Pairwise:
    """A loss: ``judge(scores, is_positive, is_negative)``, all ``[K, M]``, gives ``[K]``; the mean over the classes or
    labels of which the set has both positives and negatives.
    """

    kind: Kind
    judge: Judge

    def __post_init__(self) -> None:
        check_decided(self.kind, "a loss of pairs")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, labels = as_decisions(self.kind, outputs, targets)
        is_positive, is_negative = (labels == 1).T, (labels == 0).T
        has_both = is_positive.any(-1) & is_negative.any(-1)
        values = self.judge(scores.T, is_positive.to(scores.dtype), is_negative.to(scores.dtype))
        return mean_over(values, has_both).to(outputs.dtype)


def pairwise_logistic(kind: Kind) -> Loss:
    """Mean of ``log(1 + e^-(positive - negative))`` over all pairs: AUC with a smooth step (RankNet)."""
    return Pairwise(kind, _logistic)


def smooth_ap(kind: Kind, *, temperature: float = 1.0) -> Loss:
    """``1 - `` average precision with each rank a sum of sigmoids (Brown et al. 2020).

    ``temperature`` is in units of the raw scores. The paper's 0.01 is for cosines; on logits 1 trains better.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} came; more than 0 works.")
    return Pairwise(kind, partial(_smooth_ap, temperature=temperature))


def _logistic(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    terms = F.softplus(scores.unsqueeze(-2) - scores.unsqueeze(-1))  # [K, i, j]: j, a negative, above i
    per_positive = (terms * negative.unsqueeze(-2)).sum(-1)
    return (per_positive * positive).sum(-1) / (positive.sum(-1) * negative.sum(-1)).clamp(min=1)


def _smooth_ap(scores: Tensor, positive: Tensor, negative: Tensor, *, temperature: float) -> Tensor:
    above = ((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature).sigmoid()  # [K, i, j]: j above i
    # a positive is above itself by 1, not by the 1/2 of the sigmoid
    positives_above = (above * positive.unsqueeze(-2)).sum(-1) + 0.5
    negatives_above = (above * negative.unsqueeze(-2)).sum(-1)
    precision = positives_above / (positives_above + negatives_above)
    return 1 - (precision * positive).sum(-1) / positive.sum(-1).clamp(min=1)
