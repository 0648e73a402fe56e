"""Metrics of decisions are formulas over four counts: true and false positives, false and true negatives.

Formulas take counts of any floating shape and also *soft* ones, so the hand-made losses (soft F1, soft MCC) and the
search for a threshold use the same lines. A ratio of 0 to 0 is 0, as in scikit-learn and torchmetrics.

>>> import torch
>>> f_beta(Counts(*torch.tensor([2.0, 1.0, 1.0, 6.0])))
tensor(0.6667)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class Counts(NamedTuple):
    """Four tensors of one shape."""

    true_positives: Tensor
    false_positives: Tensor
    false_negatives: Tensor
    true_negatives: Tensor


Formula = Callable[[Counts], Tensor]


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """``numerator / denominator``, and 0 (with a zero gradient) where the denominator is 0."""
    is_empty = denominator == 0
    return (numerator / denominator.masked_fill(is_empty, 1)).masked_fill(is_empty, 0)


def f_beta(counts: Counts, beta: float = 1.0) -> Tensor:
    tp, fp, fn, _ = counts
    weight = beta * beta
    return ratio((1 + weight) * tp, (1 + weight) * tp + weight * fn + fp)
