"""Which surrogates suit a metric: it tells by what it does not see.

A metric that another threshold does not change is one of order: pairs and ranks stand for it. Any other on rows may be
one of decisions: rows and counts. One that sees the scale of the scores fits no pattern, and gets a network of any set,
too. Which of them fits best, held-out sets can tell.

>>> from lossmith.metrics import METRICS
>>> from lossmith.predictions import random_predictions
>>> sets = random_predictions("binary", num_sets=64, set_size=32, generator=torch.Generator().manual_seed(0))
>>> [type(surrogate).__name__ for surrogate in suiting_surrogates(METRICS["ap"], [sets])]
['PairLoss', 'RankLoss']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lossmith.surrogates.counts import CountsNetwork
from lossmith.surrogates.deep_sets import DeepSets
from lossmith.surrogates.pairs import ORDERED_KINDS, PairLoss, RankLoss
from lossmith.surrogates.pointwise import margin_loss
from lossmith.surrogates.rows import BINARY_KINDS, ROW_KINDS, kept, margins, mean_of_kept
from lossmith.surrogates.surrogate import Surrogate
from lossmith.vocabulary import CLASS_DIM, Kind, Metric, Predictions

LARGEST_TOP = 10


def suiting_surrogates(metric: Metric, stacks: Sequence[Predictions], *, seed: int = 0) -> list[Surrogate]:
    """What suits the metric: for one of order, pairs and ranks; for one of decisions, rows and counts.

    Which of them fits, the held-out sets can tell.
    """
    kind = metric.kind
    makers: list[Callable[[], Surrogate]] = []
    top = _best_counted(metric, stacks)
    if top > 1:
        makers.append(lambda: margin_loss(kind, top=top))
    if kind in ORDERED_KINDS and _is_blind(metric, stacks, _shifted):
        makers += [lambda: PairLoss(kind), lambda: RankLoss(kind)]
    elif kind in ROW_KINDS:
        makers += [lambda: margin_loss(kind), lambda: CountsNetwork(kind)]
        counts = {count_classes(kind, stack) for stack in stacks}
        if not _is_blind(metric, stacks, _scaled) and len(counts) == 1:
            # it sees more than decisions, so it fits no pattern
            makers.append(lambda: DeepSets(kind, num_classes=1 if kind in BINARY_KINDS else max(counts)))
    if not makers:
        raise ValueError(f"no surrogate is made for {kind} predictions; {', '.join(ROW_KINDS)} work, or give one.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [make() for make in makers]


def _shifted(kind: Kind, outputs: Tensor) -> Tensor:
    """Another threshold for each class or label."""
    if kind is Kind.BINARY:
        return outputs + outputs.std()
    return outputs + outputs.std() * torch.linspace(-1, 1, outputs.shape[-1])


def _scaled(kind: Kind, outputs: Tensor) -> Tensor:
    return outputs * 3


def _is_blind(metric: Metric, stacks: Sequence[Predictions], change: Callable[[Kind, Tensor], Tensor]) -> bool:
    for stack in stacks:
        few = stack[:64]
        before, after = (
            metric.cost(outputs, few.targets) for outputs in (few.outputs, change(metric.kind, few.outputs))
        )
        if not torch.allclose(before, after, atol=1e-5, equal_nan=True):
            return False
    return True


def _best_counted(metric: Metric, stacks: Sequence[Predictions]) -> int:
    """k, where the metric is the share of rows with the true class among the best k (or of the others); else 0."""
    if metric.kind is not Kind.MULTICLASS:
        return 0
    fewest = min(count_classes(metric.kind, stack) for stack in stacks)
    for top in range(2, min(fewest, LARGEST_TOP + 1)):
        if all(_is_share_of_best(metric, stack[:64], top) for stack in stacks):
            return top
    return 0


def _is_share_of_best(metric: Metric, sets: Predictions, top: int) -> bool:
    is_right = (margins(sets.outputs, sets.targets, top=top) > 0).float()
    share, cost = mean_of_kept(is_right, kept(sets.targets, is_right)), metric.cost(sets.outputs, sets.targets)
    return bool(share.std() > 0) and torch.allclose(cost - cost.mean(), share.mean() - share, atol=1e-5)


def count_classes(kind: Kind, predictions: Predictions) -> int:
    if kind is Kind.MULTILABEL:
        return predictions.outputs.shape[-1]
    class_dim = CLASS_DIM.get(kind)
    return 1 if class_dim is None else predictions.outputs.shape[class_dim]
