"""The threshold with the best value, on predictions that were not trained on.

Metrics over counts take one sort, O(n log n) for n scores. Any other metric that cuts its scores at 0, a wrapped one
for instance, is called on a stack with the decisions of every threshold, O(n²).

>>> import torch
>>> from lossmith.metrics.binary import f1
>>> outputs, targets = torch.tensor([2.0, -1.0, -2.0, -4.0]), torch.tensor([1, 1, 0, 0])
>>> threshold = tune_threshold(f1(), outputs, targets)
>>> threshold, f1(threshold=threshold)(outputs, targets)
(-1.5, tensor(1.))
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from lossmith.kinds import IGNORE_INDEX, Kind, check_predictions
from lossmith.metrics.counts import Counts, OfCounts, value_dtype
from lossmith.metrics.multilabel import OfLabelCounts
from lossmith.metrics.stacking import MAX_NUMBERS
from lossmith.metrics.wrap import OfFunction
from lossmith.vocabulary import Metric


def tune_threshold(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    """The threshold at which ``metric`` is best on ONE set; predicted positive is ``score > threshold``.

    It lies in the middle between two neighbouring scores. Of several best gaps it is the widest, and an end of the
    scores only where no gap between them is as good; there it lies half of ``max(1, abs(score))`` outside. A threshold
    that the metric has already plays no part.

    Multilabel metrics get one threshold for all labels. For one per label, tune a binary metric on each column and
    hand on ``outputs - thresholds``.
    """
    if not isinstance(metric, Metric):
        raise ValueError(f"the metric came as {type(metric).__name__}; a Metric works: f1(), or wrap(your_function).")
    if metric.kind not in (Kind.BINARY, Kind.MULTILABEL):
        raise ValueError(f"{metric.name} is a {metric.kind} metric; binary and multilabel ones have a threshold.")
    check_predictions(metric.kind, outputs, targets, want_scores=False)
    is_kept = targets != IGNORE_INDEX
    if not bool(is_kept.any()):
        raise ValueError(f"{metric.name}: every target is {IGNORE_INDEX}; there is nothing to tune a threshold on.")

    # K different scores have K + 1 gaps: below, between and above them
    outputs = outputs.detach()
    scores = outputs[is_kept].unique()
    lowest, highest = scores[:1], scores[-1:]
    lower = torch.cat([lowest - lowest.abs().clamp(min=1), scores])
    upper = torch.cat([scores, highest + highest.abs().clamp(min=1)])
    middle = lower / 2 + upper / 2
    # between neighbouring numbers there is no other: the lower one tells them apart as well
    thresholds = torch.where(middle < upper, middle, lower)
    widths = upper - lower
    widths[[0, -1]] = 0

    value = metric.value
    if isinstance(value, OfCounts):
        values = value.formula(_count_above(thresholds, outputs[:, None], targets[:, None]))[:, 0]
    elif isinstance(value, OfLabelCounts) and not value.is_per_row:
        values = value.formula(_count_above(thresholds, outputs, targets))
    else:
        if isinstance(value, OfLabelCounts):
            metric = replace(metric, value=replace(value, threshold=0.0))
        elif isinstance(value, OfFunction):
            metric = replace(metric, value=value.at_threshold_zero())
        _check_cuts_at_zero(metric, outputs, targets, thresholds[widths.topk(min(16, len(widths))).indices])
        values = _values_of_decisions(metric, outputs, targets, thresholds)
    if bool(values.isnan().all()):
        raise ValueError(f"{metric.name} is not defined on this set, at whatever threshold.")
    values = (values if metric.higher_is_better else -values).nan_to_num(nan=-torch.inf)
    is_best = values == values.max()
    return float(thresholds[widths.where(is_best, -1).argmax()])


def _count_above(thresholds: Tensor, outputs: Tensor, targets: Tensor) -> Counts:
    """Counts ``[K, L]`` of ``score > threshold`` for K thresholds; outputs and targets are ``[N, L]``."""
    scores, order = outputs.mT.contiguous().sort(-1)
    targets = targets.mT.gather(-1, order)
    num_up_to = torch.searchsorted(scores, thresholds.expand(len(scores), -1).contiguous(), right=True)

    def split(is_counted: Tensor) -> tuple[Tensor, Tensor]:
        num_below = pad(is_counted.cumsum(-1), (1, 0))
        below = num_below.gather(-1, num_up_to)
        return (num_below[:, -1:] - below).mT, below.mT

    (tp, fn), (fp, tn) = split(targets == 1), split(targets == 0)
    return Counts(tp, fp, fn, tn).to(value_dtype(outputs))


def _decide(outputs: Tensor, targets: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """A set for each threshold, its scores 1 above and -1 below: differences of close scores would be rounded away."""
    above = outputs > thresholds.view(-1, *[1] * outputs.dim())
    return above.to(outputs.dtype) * 2 - 1, targets.expand(len(thresholds), *targets.shape)


def _values_of_decisions(metric: Metric, outputs: Tensor, targets: Tensor, thresholds: Tensor) -> Tensor:
    chunks = thresholds.split(max(1, MAX_NUMBERS // outputs.numel()))
    return torch.cat([metric.value(*_decide(outputs, targets, chunk)) for chunk in chunks])


def _check_cuts_at_zero(metric: Metric, outputs: Tensor, targets: Tensor, thresholds: Tensor) -> None:
    """With the threshold moved to 0, does the metric see more in the scores than their sign?"""
    shifted = outputs - thresholds.view(-1, *[1] * outputs.dim())
    decided, targets = _decide(outputs, targets, thresholds)
    of_shifted, of_decided = metric.value(shifted, targets), metric.value(decided, targets)
    if not torch.allclose(of_shifted, of_decided, atol=1e-4, equal_nan=True):
        raise ValueError(
            f"{metric.name} reads more than which scores are above 0, so it has no threshold to tune; "
            "f1 and other metrics of decisions have one, auc and other metrics of a ranking have none."
        )
