"""Multilabel metrics: a score and a 0/1 target for each label of each prediction, -100 for what is left out.

Predicted is every label with ``score > threshold``, on the scale of the raw scores. Metrics of decisions are formulas
over counts per label ``[S, L]``, or per row ``[S, N]`` for ``average="samples"``. To add a metric: a formula of
:mod:`lossmith.metrics.counts`, a function that makes the :class:`Metric`, and a line in :data:`TABLE`.

A label (or row) of which every target is left out is not part of a mean; a set in which everything is left out is NaN.

>>> import torch
>>> outputs, targets = torch.tensor([[2.0, -1.0], [1.0, 3.0]]), torch.tensor([[1, 0], [0, 1]])
>>> multilabel_f1()(outputs, targets), multilabel_f1(average="micro")(outputs, targets)
(tensor(0.8333), tensor(0.8000))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from torch import Tensor

from lossmith.kinds import Kind
from lossmith.metrics import curves
from lossmith.metrics.counts import (
    Counts,
    Formula,
    average_over_classes,
    check_average,
    check_beta,
    check_threshold,
    count,
    error,
    f_beta,
    jaccard,
    value_dtype,
)
from lossmith.vocabulary import Metric

LabelAverage = Literal["macro", "micro", "weighted", "samples"]


def multilabel_f1(*, average: LabelAverage = "macro", threshold: float = 0.0) -> Metric:
    """F1 over labels (``macro``, ``weighted``), over rows (``samples``) or of all decisions together (``micro``).

    A label that is never a target and never predicted has F1 0 and counts, as in scikit-learn and torchmetrics.
    """
    return _thresholded("multilabel_f1", f_beta, average, threshold)


def multilabel_fbeta(*, beta: float = 2.0, average: LabelAverage = "macro", threshold: float = 0.0) -> Metric:
    """:func:`multilabel_f1` in which recall counts ``beta`` times as much as precision."""
    check_beta(beta)
    return _thresholded("multilabel_fbeta", partial(f_beta, beta=beta), average, threshold)


def multilabel_jaccard(*, average: LabelAverage = "macro", threshold: float = 0.0) -> Metric:
    """Intersection over union, averaged as :func:`multilabel_f1`; 0 for a label without either."""
    return _thresholded("multilabel_jaccard", jaccard, average, threshold)


def multilabel_hamming(*, threshold: float = 0.0) -> Metric:
    """Hamming loss: share of wrong decisions over all labels and rows; lower is better."""
    return _thresholded("multilabel_hamming", error, "micro", threshold, higher_is_better=False)


def multilabel_map() -> Metric:
    """Mean over labels of the average precision.

    A label without positives has none and is left out, as in torchmetrics (scikit-learn counts it as 0).
    """
    value = partial(_mean_over_labels, curves.average_precision)
    return Metric("multilabel_map", Kind.MULTILABEL, value, reads_probabilities=True)


def multilabel_auc() -> Metric:
    """Mean over labels of the AUC.

    A label with one class has none and is left out (scikit-learn refuses such sets, torchmetrics counts them as 0).
    """
    value = partial(_mean_over_labels, curves.auc)
    return Metric("multilabel_auc", Kind.MULTILABEL, value, reads_probabilities=True)


@dataclass(frozen=True)
class OfLabelCounts:
    """The value of a metric that is a formula over counts per label, ``[S, L]`` to ``[S]``; or per row, ``[S, N]``."""

    formula: Formula
    threshold: float = 0.0
    is_per_row: bool = False

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        counts = count(outputs > self.threshold, targets, dim=-1 if self.is_per_row else -2)
        counts = counts.to(value_dtype(outputs))
        return self.formula(counts).masked_fill(counts.total.sum(-1) == 0, math.nan)


def _thresholded(
    name: str, formula: Formula, average: LabelAverage, threshold: float, *, higher_is_better: bool = True
) -> Metric:
    check_average(average, get_args(LabelAverage))
    check_threshold(threshold)
    over_labels = partial(
        average_over_classes,
        formula=formula,
        average="macro" if average == "samples" else average,
        is_member=_has_targets,
    )
    value = OfLabelCounts(over_labels, threshold, is_per_row=average == "samples")
    return Metric(name, Kind.MULTILABEL, value, higher_is_better, reads_probabilities=threshold != 0)


def _has_targets(counts: Counts) -> Tensor:
    return counts.total > 0


def _mean_over_labels(value: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
    return value(outputs.mT, targets.mT).nanmean(-1)


TABLE: dict[str, Metric] = {
    "multilabel_f1": multilabel_f1(),
    "multilabel_jaccard": multilabel_jaccard(),
    "multilabel_hamming": multilabel_hamming(),
    "multilabel_map": multilabel_map(),
    "multilabel_auc": multilabel_auc(),
}
