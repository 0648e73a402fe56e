"""Metrics of decisions are formulas over four counts: true and false positives, false and true negatives.

A formula takes counts of any shape and also *soft* ones, so the hand-made losses (soft F1, soft MCC) and the search for
a threshold use the same lines; its gradient is finite everywhere. A ratio of 0 to 0 is 0, as in scikit-learn and
torchmetrics, unless a formula says otherwise.

>>> import torch
>>> f_beta(Counts(*torch.tensor([2.0, 1.0, 1.0, 6.0])))
tensor(0.6667)
>>> f1 = OfCounts(f_beta)
>>> f1(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1, 1, 0]]))
tensor([0.5000])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor


class Counts(NamedTuple):
    """Four tensors of one shape."""

    true_positives: Tensor
    false_positives: Tensor
    false_negatives: Tensor
    true_negatives: Tensor

    @property
    def positives(self) -> Tensor:
        """Targets that are 1."""
        return self.true_positives + self.false_negatives

    @property
    def negatives(self) -> Tensor:
        """Targets that are 0."""
        return self.false_positives + self.true_negatives

    @property
    def predicted(self) -> Tensor:
        """Predictions of 1."""
        return self.true_positives + self.false_positives

    @property
    def rejected(self) -> Tensor:
        """Predictions of 0."""
        return self.false_negatives + self.true_negatives

    @property
    def total(self) -> Tensor:
        return self.positives + self.negatives

    @property
    def covariance(self) -> Tensor:
        """Of predictions and targets, times ``total ** 2``; the two products never exceed what MCC divides by."""
        tp, fp, fn, tn = self
        return tp * tn - fp * fn

    def to(self, dtype: torch.dtype) -> Counts:
        return Counts(*(count.to(dtype) for count in self))


def count(predicted: Tensor, targets: Tensor, *, dim: int = -1) -> Counts:
    """Counts along ``dim``; targets other than 0 and 1 are left out.

    ``predicted`` is boolean (exact integer counts), or soft in [0, 1] and at least float32: bfloat16 counts to 256.
    """
    is_positive, is_negative = targets == 1, targets == 0
    true_positives = (predicted * is_positive).sum(dim)
    false_positives = (predicted * is_negative).sum(dim)
    return Counts(
        true_positives,
        false_positives,
        is_positive.sum(dim) - true_positives,
        is_negative.sum(dim) - false_positives,
    )


def value_dtype(outputs: Tensor) -> torch.dtype:
    """Half-precision scores still get a value in float32."""
    return torch.promote_types(outputs.dtype, torch.float32)


# ------------------------------------------------------------------------------------------------------- formulas

Formula = Callable[[Counts], Tensor]


def ratio(numerator: Tensor, denominator: Tensor, *, undefined: float = 0.0) -> Tensor:
    """``numerator / denominator``; where the denominator is 0, ``undefined`` with a zero gradient."""
    is_empty = denominator == 0
    return (numerator / denominator.masked_fill(is_empty, 1)).masked_fill(is_empty, undefined)


def square_root(x: Tensor) -> Tensor:
    """The root whose gradient at 0 is 0, not infinite."""
    is_zero = x == 0
    return x.masked_fill(is_zero, 1).sqrt().masked_fill(is_zero, 0)


def accuracy(counts: Counts) -> Tensor:
    return ratio(counts.true_positives + counts.true_negatives, counts.total)


def error(counts: Counts) -> Tensor:
    return ratio(counts.false_positives + counts.false_negatives, counts.total)


def precision(counts: Counts) -> Tensor:
    return ratio(counts.true_positives, counts.predicted)


def recall(counts: Counts) -> Tensor:
    return ratio(counts.true_positives, counts.positives)


def f_beta(counts: Counts, beta: float = 1.0) -> Tensor:
    tp, fp, fn, _ = counts
    weight = beta * beta
    return ratio((1 + weight) * tp, (1 + weight) * tp + weight * fn + fp)


def jaccard(counts: Counts) -> Tensor:
    tp, fp, fn, _ = counts
    return ratio(tp, tp + fp + fn)


def balanced_accuracy(counts: Counts) -> Tensor:
    """Mean recall of the classes that occur in the targets."""
    recalls = ratio(counts.true_positives, counts.positives) + ratio(counts.true_negatives, counts.negatives)
    return recalls / ((counts.positives > 0).to(recalls.dtype) + (counts.negatives > 0)).clamp(min=1)


def mcc(counts: Counts) -> Tensor:
    # two roots: the product of all four would overflow float32 from a few billion predictions on
    spread_of_predictions = square_root(counts.predicted * counts.rejected)
    return ratio(counts.covariance, spread_of_predictions * square_root(counts.positives * counts.negatives))


def kappa(counts: Counts) -> Tensor:
    """NaN where one class is all there is, in predictions and targets alike: chance agrees as well.

    Written without ``1 - expected agreement``, which cancels on imbalanced sets.
    """
    disagreement_by_chance = counts.predicted * counts.negatives + counts.positives * counts.rejected
    return ratio(2 * counts.covariance, disagreement_by_chance, undefined=math.nan)


# ------------------------------------------------------------------------------------------- formulas on predictions


@dataclass(frozen=True)
class OfCounts:
    """The value of a binary metric that is a formula over counts: predicted positive is ``score > threshold``.

    A set in which everything is ignored has the value NaN.
    """

    formula: Formula
    threshold: float = 0.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        counts = count(outputs > self.threshold, targets).to(value_dtype(outputs))
        return self.formula(counts).masked_fill(counts.total == 0, math.nan)


Average = Literal["macro", "micro", "weighted"]


def average_over_classes(
    counts: Counts, *, formula: Formula, average: Average, is_member: Callable[[Counts], Tensor]
) -> Tensor:
    """From counts per class, ``[..., C]``, one value ``[...]``.

    ``macro`` is the mean over the classes that are a member, ``weighted`` the mean weighted with the number of
    positives, ``micro`` the formula on the counts of all classes together.
    """
    if average == "micro":
        return formula(Counts(*(each.sum(-1) for each in counts)))
    values = formula(counts)
    weights = counts.positives if average == "weighted" else is_member(counts).to(values.dtype)
    return ratio((weights * values).sum(-1), weights.sum(-1))


def check_average(average: str, known: tuple[str, ...] = get_args(Average)) -> None:
    if average not in known:
        raise ValueError(f"average={average!r} is unknown; {', '.join(map(repr, known))} work.")


def check_beta(beta: float) -> None:
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta={beta}; 0 (precision alone) or more works.")


def check_threshold(threshold: float) -> None:
    if math.isnan(threshold):
        raise ValueError("threshold=nan, which no score is above; a number works.")
