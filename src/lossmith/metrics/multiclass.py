"""Multiclass metrics: a score for each class, the class as target, -100 for what is left out.

The predicted class is the one with the highest score, of equal ones the first. Everything but accuracy and one-vs-rest
is a formula over counts per class ``[S, C]``: each class against the rest. To add a metric: a formula over such
counts, a function that makes the :class:`Metric`, and a line in :data:`TABLE`.

A class that does not occur is left out of a mean over classes; each metric says what "occur" means there. A set in
which everything is left out is NaN.

>>> import torch
>>> outputs, targets = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 3.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 1, 1])
>>> accuracy()(outputs, targets), f1_macro()(outputs, targets), top_k_accuracy(k=2)(outputs, targets)
(tensor(0.6667), tensor(0.5556), tensor(1.))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import torch
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics import curves
from lossmith.metrics.counts import (
    Average,
    Counts,
    Formula,
    average_over_classes,
    check_average,
    check_beta,
    f_beta,
    ratio,
    recall,
    square_root,
    value_dtype,
)
from lossmith.vocabulary import Metric


def accuracy() -> Metric:
    """Share of the predictions that are the target."""
    return Metric("accuracy", Kind.MULTICLASS, _accuracy)


def top_k_accuracy(*, k: int = 5) -> Metric:
    """Share of the predictions with the target among the ``k`` highest scores.

    Of equal scores the first classes win, as for the predicted class; with ``k`` classes or fewer the value is 1.
    """
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k={k!r}; a whole number from 1 on works.")
    return Metric(f"top{k}_accuracy", Kind.MULTICLASS, partial(_top_k_accuracy, k=k))


def multiclass_fbeta(*, beta: float = 2.0, average: Average = "macro") -> Metric:
    """F-beta over classes; ``macro`` is the mean over the classes that occur in targets or predictions.

    ``weighted`` weighs a class with its share of the targets, ``micro`` is the same as accuracy. As in scikit-learn
    and torchmetrics.
    """
    check_average(average)
    check_beta(beta)
    return _of_classes("multiclass_fbeta", _mean(partial(f_beta, beta=beta), average))


def f1_macro() -> Metric:
    """Mean F1 of the classes that occur in targets or predictions."""
    return _of_classes("f1_macro", _mean(f_beta, "macro"))


def f1_micro() -> Metric:
    """F1 of the counts of all classes together, which is accuracy."""
    return _of_classes("f1_micro", _mean(f_beta, "micro"))


def f1_weighted() -> Metric:
    """Mean F1 of the classes, weighted with their share of the targets."""
    return _of_classes("f1_weighted", _mean(f_beta, "weighted"))


def multiclass_mcc() -> Metric:
    """Matthews' correlation (Gorodkin's R_K); 0 where predictions or targets have one class only."""
    return _of_classes("multiclass_mcc", mcc)


def multiclass_kappa() -> Metric:
    """Cohen's kappa, unweighted; NaN where predictions and targets are all of one and the same class."""
    return _of_classes("multiclass_kappa", kappa)


def multiclass_balanced_accuracy() -> Metric:
    """Mean recall of the classes that occur in the targets, as in scikit-learn."""
    return _of_classes("multiclass_balanced_accuracy", balanced_accuracy)


def auc_ovr() -> Metric:
    """Mean over classes of the AUC of the class's probability (softmax) against the rest.

    A class that has no targets, or all of them, has no AUC and is left out (scikit-learn refuses such sets,
    torchmetrics counts them as 0).
    """
    return Metric("auc_ovr", Kind.MULTICLASS, partial(_one_vs_rest, curves.auc))


def ap_ovr() -> Metric:
    """Mean over classes of the AP of the class's probability (softmax) against the rest.

    A class without targets has no AP and is left out, as in torchmetrics (scikit-learn counts it as 0).
    """
    return Metric("ap_ovr", Kind.MULTICLASS, partial(_one_vs_rest, curves.average_precision))


# ------------------------------------------------------------------------- formulas over counts per class: [..., C]


def mcc(counts: Counts) -> Tensor:
    spread_of_predictions = square_root((counts.predicted * counts.rejected).sum(-1))
    spread_of_targets = square_root((counts.positives * counts.negatives).sum(-1))
    return ratio(counts.covariance.sum(-1), spread_of_predictions * spread_of_targets)


def kappa(counts: Counts) -> Tensor:
    return ratio(counts.covariance.sum(-1), (counts.positives * counts.rejected).sum(-1), undefined=math.nan)


def balanced_accuracy(counts: Counts) -> Tensor:
    return average_over_classes(counts, formula=recall, average="macro", is_member=lambda each: each.positives > 0)


def _mean(formula: Formula, average: Average) -> Formula:
    return partial(average_over_classes, formula=formula, average=average, is_member=_occurs)


def _occurs(counts: Counts) -> Tensor:
    return counts.positives + counts.predicted > 0


# ------------------------------------------------------------------------------------------- values: [S, N, C] -> [S]


@dataclass(frozen=True)
class OfClassCounts:
    """The value of a metric that is a formula over counts per class, ``[S, C]`` to ``[S]``."""

    formula: Formula

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        predicted = outputs.max(-1).indices
        counts = count_classes(predicted, targets, outputs.shape[-1]).to(value_dtype(outputs))
        return self.formula(counts).masked_fill(counts.total[..., 0] == 0, math.nan)


def count_classes(predicted: Tensor, targets: Tensor, num_classes: int) -> Counts:
    """``[S, N]`` to ``[S, C]``: memory grows with the number of classes, not with its square."""
    is_kept = targets != IGNORE_INDEX
    actual = targets.long().clamp(min=0)
    empty = torch.zeros(len(targets), num_classes, dtype=torch.long, device=targets.device)
    true_positives = empty.scatter_add(-1, actual, (predicted == targets).long())
    false_positives = empty.scatter_add(-1, predicted, is_kept.long()) - true_positives
    false_negatives = empty.scatter_add(-1, actual, is_kept.long()) - true_positives
    num_other = is_kept.sum(-1, keepdim=True) - true_positives - false_positives - false_negatives
    return Counts(true_positives, false_positives, false_negatives, num_other)


def _accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    # max and not argmax: the same index, faster on a CPU; -100 is never predicted
    is_right = outputs.max(-1).indices == targets
    return is_right.sum(-1).to(value_dtype(outputs)) / (targets != IGNORE_INDEX).sum(-1)


def _top_k_accuracy(outputs: Tensor, targets: Tensor, *, k: int) -> Tensor:
    is_kept = targets != IGNORE_INDEX
    actual = targets.long().clamp(min=0)[..., None]
    own_score = outputs.gather(-1, actual)
    is_earlier = torch.arange(outputs.shape[-1], device=outputs.device) < actual
    num_ahead = ((outputs > own_score) | ((outputs == own_score) & is_earlier)).sum(-1)
    return ((num_ahead < k) & is_kept).sum(-1).to(value_dtype(outputs)) / is_kept.sum(-1)


def _one_vs_rest(value: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
    probabilities = outputs.to(value_dtype(outputs)).softmax(-1).mT
    classes = torch.arange(outputs.shape[-1], device=outputs.device)[:, None]
    of_class = (targets[..., None, :] == classes).long()
    return value(probabilities, of_class.masked_fill(targets[..., None, :] == IGNORE_INDEX, IGNORE_INDEX)).nanmean(-1)


def _of_classes(name: str, formula: Formula) -> Metric:
    return Metric(name, Kind.MULTICLASS, OfClassCounts(formula))


TABLE: dict[str, Metric] = {
    "accuracy": accuracy(),
    "top5_accuracy": top_k_accuracy(k=5),
    "f1_macro": f1_macro(),
    "f1_micro": f1_micro(),
    "f1_weighted": f1_weighted(),
    "multiclass_mcc": multiclass_mcc(),
    "multiclass_kappa": multiclass_kappa(),
    "multiclass_balanced_accuracy": multiclass_balanced_accuracy(),
    "auc_ovr": auc_ovr(),
    "ap_ovr": ap_ovr(),
}
