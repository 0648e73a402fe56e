"""Metrics of a ranking: every score is tried as the threshold, in one sort for the whole stack.

Equal scores pass a threshold together, as in scikit-learn: a tie is one point of the curve and not a matter of luck.
All functions take ``[..., N]`` and give ``[...]``. Ignored predictions are sorted along and counted nowhere.

>>> import torch
>>> scores, targets = torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([1, 1, 0, 0])
>>> auc(scores, targets), average_precision(scores, targets)
(tensor(0.8750), tensor(0.8333))
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from lossmith.metrics import counts as of
from lossmith.metrics.counts import Counts, value_dtype
from lossmith.metrics.sorting import ascending


class Sweep(NamedTuple):
    """``[..., N]``: predictions from the lowest score up, and what ``score >= own score`` lets in.

    The first one lets everything in.
    """

    scores: Tensor
    targets: Tensor
    true_positives: Tensor
    false_positives: Tensor

    @property
    def num_positives(self) -> Tensor:
        return self.true_positives[..., 0]

    @property
    def num_negatives(self) -> Tensor:
        return self.false_positives[..., 0]

    @property
    def counts(self) -> Counts:
        tp, fp = (each.to(value_dtype(self.scores)) for each in (self.true_positives, self.false_positives))
        return Counts(tp, fp, tp[..., :1] - tp, fp[..., :1] - fp)


def sweep(outputs: Tensor, targets: Tensor) -> Sweep:
    """Sort once; integer counts, exact at any size."""
    scores, order = ascending(outputs)
    targets = targets.gather(-1, order)
    is_new = scores[..., 1:] != scores[..., :-1]

    def num_let_in(is_counted: Tensor) -> Tensor:
        num_up_to = is_counted.cumsum(-1)
        # counts never fall, so their maximum so far is the one at which the own group of equal scores begins
        num_below = pad(num_up_to[..., :-1] * is_new, (1, 0)).cummax(-1).values
        return num_up_to[..., -1:] - num_below

    return Sweep(scores, targets, num_let_in(targets == 1), num_let_in(targets == 0))


def auc(outputs: Tensor, targets: Tensor) -> Tensor:
    """Area under the ROC curve = share of (positive, negative) pairs in the right order, ties half; NaN without one."""
    curve = sweep(outputs, targets)
    fp, tp = curve.false_positives, curve.true_positives
    # trapezoids between neighbouring points, in whole numbers; the last one leads to (0, 0)
    twice_area = ((fp[..., :-1] - fp[..., 1:]) * (tp[..., :-1] + tp[..., 1:])).sum(-1) + fp[..., -1] * tp[..., -1]
    num_pairs = curve.num_positives * curve.num_negatives
    return twice_area.to(value_dtype(outputs)) / (2 * num_pairs)


def average_precision(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the positives of the precision at their score, not interpolated; NaN without positives."""
    curve = sweep(outputs, targets)
    tp = curve.true_positives.to(value_dtype(outputs))
    precision = tp / (tp + curve.false_positives).clamp(min=1)
    return (precision * (curve.targets == 1)).sum(-1) / curve.num_positives


def equal_error_rate(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean of false positive and false negative rate at the threshold where they are closest; NaN with one class.

    Of two thresholds that are equally close it is the higher one, as in torchmetrics. The ends of the curve need no
    care: they are the farthest points, and their mean rate is 1/2 whichever end it is.
    """
    curve = sweep(outputs, targets)
    num_positives, num_negatives = curve.num_positives[..., None], curve.num_negatives[..., None]
    # rates over a common denominator: whole numbers compare exactly
    false_positives = curve.false_positives * num_positives
    false_negatives = (num_positives - curve.true_positives) * num_negatives
    closest = (false_positives - false_negatives).abs().flip(-1).min(-1, keepdim=True).indices
    at_closest = (false_positives + false_negatives).flip(-1).gather(-1, closest).squeeze(-1)
    return at_closest.to(value_dtype(outputs)) / (2 * curve.num_positives * curve.num_negatives)


def precision_at_recall(outputs: Tensor, targets: Tensor, *, recall: float) -> Tensor:
    """Highest precision among the thresholds with at least this recall; NaN without positives."""
    curve = sweep(outputs, targets)
    is_allowed = of.recall(curve.counts) >= recall
    best = (of.precision(curve.counts) * is_allowed).amax(-1)
    return best.masked_fill(curve.num_positives == 0, math.nan)


def recall_at_precision(outputs: Tensor, targets: Tensor, *, precision: float) -> Tensor:
    """Highest recall among the thresholds with at least this precision, 0 if there is none; NaN without positives."""
    curve = sweep(outputs, targets)
    is_allowed = of.precision(curve.counts) >= precision
    best = (of.recall(curve.counts) * is_allowed).amax(-1)
    return best.masked_fill(curve.num_positives == 0, math.nan)


def partial_auc(outputs: Tensor, targets: Tensor, *, max_false_positive_rate: float) -> Tensor:
    """Area under the ROC curve up to a false positive rate, on McClish's scale: 1/2 is chance, 1 perfect.

    NaN with one class.
    """
    curve = sweep(outputs, targets)
    tp, fp, _, _ = curve.counts
    num_positives, num_negatives = tp[..., :1], fp[..., :1]
    limit = max_false_positive_rate * num_negatives
    next_tp, next_fp = pad(tp[..., 1:], (0, 1)), pad(fp[..., 1:], (0, 1))
    width = torch.minimum(fp, limit) - torch.minimum(next_fp, limit)
    # the curve is straight between two points: cut short, a trapezoid keeps its slope
    height_at_cut = next_tp + (tp - next_tp) * of.ratio(width, fp - next_fp)
    area = (width * (next_tp + height_at_cut) / 2).sum(-1, keepdim=True) / (num_positives * num_negatives)
    chance = max_false_positive_rate**2 / 2
    return ((1 + (area - chance) / (max_false_positive_rate - chance)) / 2).squeeze(-1)
