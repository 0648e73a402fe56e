"""Binary metrics: one score per prediction, targets 0 or 1, -100 for what is left out.

*Thresholded* metrics take ``threshold``, on the scale of the raw scores: predicted positive is ``score > threshold``.
They are a formula of :mod:`lossmith.metrics.counts`. *Rank* metrics only look at the order of the scores; they are in
:mod:`lossmith.metrics.curves`. To add a metric: a formula there, a function here that makes the :class:`Metric`, and
a line in :data:`TABLE`.

A ratio of 0 to 0 is 0 unless the metric says otherwise; a set in which everything is left out is NaN.

>>> import torch
>>> outputs, targets = torch.tensor([2.0, 0.5, -1.0, -3.0]), torch.tensor([1, 0, 1, 0])
>>> f1()(outputs, targets), f1(threshold=1.0)(outputs, targets), auc()(outputs, targets)
(tensor(0.5000), tensor(0.6667), tensor(0.7500))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from lossmith.kinds import Kind
from lossmith.metrics import counts, curves
from lossmith.metrics.counts import Formula, OfCounts
from lossmith.vocabulary import Metric

# ---------------------------------------------------------------------------------------------- thresholded metrics


def binary_accuracy(*, threshold: float = 0.0) -> Metric:
    """Share of right decisions."""
    return _thresholded("binary_accuracy", counts.accuracy, threshold)


def binary_error(*, threshold: float = 0.0) -> Metric:
    """Share of wrong decisions, the misclassification rate; lower is better."""
    return _thresholded("binary_error", counts.error, threshold, higher_is_better=False)


def f1(*, threshold: float = 0.0) -> Metric:
    """Harmonic mean of precision and recall; 0 without a true positive."""
    return _thresholded("f1", counts.f_beta, threshold)


def fbeta(*, beta: float = 2.0, threshold: float = 0.0) -> Metric:
    """F1 in which recall counts ``beta`` times as much as precision: 2, the default, is customary beside 1."""
    counts.check_beta(beta)
    return _thresholded("fbeta", partial(counts.f_beta, beta=beta), threshold)


def mcc(*, threshold: float = 0.0) -> Metric:
    """Matthews' correlation of decisions and targets; 0 where either has one class only, as in scikit-learn."""
    return _thresholded("mcc", counts.mcc, threshold)


def jaccard(*, threshold: float = 0.0) -> Metric:
    """Intersection over union of the predicted and the true positives; 0 without either."""
    return _thresholded("jaccard", counts.jaccard, threshold)


def balanced_accuracy(*, threshold: float = 0.0) -> Metric:
    """Mean recall of the classes that occur in the targets, as in scikit-learn."""
    return _thresholded("balanced_accuracy", counts.balanced_accuracy, threshold)


def kappa(*, threshold: float = 0.0) -> Metric:
    """Cohen's kappa, agreement beyond chance; NaN where decisions and targets are all of one and the same class."""
    return _thresholded("kappa", counts.kappa, threshold)


# ----------------------------------------------------------------------------------------------------- rank metrics


def auc() -> Metric:
    """Area under the ROC curve: share of (positive, negative) pairs in the right order, ties half.

    NaN with one class.
    """
    return _ranked("auc", curves.auc)


def ap() -> Metric:
    """Average precision without interpolation, equal scores taken together; NaN without positives."""
    return _ranked("ap", curves.average_precision)


def eer() -> Metric:
    """Equal error rate: mean of both error rates where they are closest; lower is better; NaN with one class."""
    return _ranked("eer", curves.equal_error_rate, higher_is_better=False)


def precision_at_recall(*, recall: float = 0.9) -> Metric:
    """Highest precision at any threshold with at least this recall; NaN without positives."""
    _check_share("recall", recall)
    return _ranked("precision_at_recall", partial(curves.precision_at_recall, recall=recall))


def recall_at_precision(*, precision: float = 0.9) -> Metric:
    """Highest recall at any threshold with at least this precision, 0 if there is none; NaN without positives."""
    _check_share("precision", precision)
    return _ranked("recall_at_precision", partial(curves.recall_at_precision, precision=precision))


def partial_auc(*, max_false_positive_rate: float = 0.1) -> Metric:
    """Area under the ROC curve up to this false positive rate, scaled (McClish) so that 1/2 is chance and 1 perfect.

    NaN with one class.
    """
    _check_share("max_false_positive_rate", max_false_positive_rate)
    return _ranked("partial_auc", partial(curves.partial_auc, max_false_positive_rate=max_false_positive_rate))


def _thresholded(name: str, formula: Formula, threshold: float, *, higher_is_better: bool = True) -> Metric:
    counts.check_threshold(threshold)
    value = OfCounts(formula, threshold)
    return Metric(name, Kind.BINARY, value, higher_is_better, reads_probabilities=threshold != 0)


def _ranked(name: str, value: Callable[[Tensor, Tensor], Tensor], *, higher_is_better: bool = True) -> Metric:
    return Metric(name, Kind.BINARY, value, higher_is_better, reads_probabilities=True)


def _check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"{name}={share:g}; a share above 0 and up to 1 works.")


TABLE: dict[str, Metric] = {
    "binary_accuracy": binary_accuracy(),
    "binary_error": binary_error(),
    "f1": f1(),
    "fbeta": fbeta(),
    "mcc": mcc(),
    "jaccard": jaccard(),
    "balanced_accuracy": balanced_accuracy(),
    "kappa": kappa(),
    "auc": auc(),
    "ap": ap(),
    "eer": eer(),
    "precision_at_recall": precision_at_recall(),
    "recall_at_precision": recall_at_precision(),
    "partial_auc": partial_auc(),
}
