"""Rankings of documents: a set is a batch of queries, its value is the mean over the queries that have an answer.

Tied scores have no order. Every metric here is its *expected* value when tied documents are shuffled (McSherry and
Najork 2008), in closed form: no luck of the sort, the same in every order of the documents, and what scikit-learn does
for NDCG. A document counts as relevant where its relevance is above 0.

A target of -100 pads a short query. A query without a relevant document is left out of the mean
(``empty_query="skip"``) or counts as 0 (``"zero"``, as in scikit-learn and torchmetrics); a set without any query to
count is NaN.

>>> import torch
>>> ndcg(k=2)(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[2, 1, 0]]))  # 3 / (3 + 1 / log2(3))
tensor(0.8262)
>>> mrr()(torch.zeros(1, 3), torch.tensor([[0, 1, -100]]))  # either order of two tied documents: 1 or 1/2
tensor(0.7500)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lossmith.metrics.counts import ratio
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric

EmptyQuery = Literal["skip", "zero"]
Gain = Literal["exponential", "linear"]

# scores and relevance [..., D], both without padding -> [...], 0 for a query without a relevant document
QueryScore = Callable[[Tensor, Tensor], Tensor]


def ndcg(*, k: int = 10, gain: Gain = "exponential", empty_query: EmptyQuery = "skip") -> Metric:
    """Normalised discounted cumulative gain of the first ``k``: sum of ``gain / log2(1 + position)``, over the best.

    The gain is ``2 ** relevance - 1`` (Burges et al. 2005) or the relevance itself (``"linear"``, Järvelin and
    Kekäläinen 2002, the gain of scikit-learn and torchmetrics). Both agree on relevance 0 and 1.
    """
    check_k(k)
    if gain not in ("exponential", "linear"):
        raise ValueError(f"gain={gain!r} is unknown; 'exponential' and 'linear' work.")

    def score(scores: Tensor, relevance: Tensor) -> Tensor:
        gains = relevance.exp2() - 1 if gain == "exponential" else relevance
        discounts = 1 / torch.arange(2, min(k, gains.shape[-1]) + 2, dtype=gains.dtype, device=gains.device).log2()
        best_gains = gains.topk(len(discounts)).values
        return ratio(_shuffle_ties(scores, gains, k).expected @ discounts, best_gains @ discounts)

    return _mean_over_queries("ndcg", score, empty_query)


def map(*, empty_query: EmptyQuery = "skip") -> Metric:
    """Mean average precision: the precision at every relevant document, averaged per query, then over queries."""
    return _mean_over_queries("map", average_precision, empty_query)


def mrr(*, empty_query: EmptyQuery = "skip") -> Metric:
    """Mean reciprocal rank: one over the position of the first relevant document."""
    return _mean_over_queries("mrr", _reciprocal_rank, empty_query)


def precision_at_k(*, k: int = 10, empty_query: EmptyQuery = "skip") -> Metric:
    """Share of relevant documents in the first ``k`` positions; positions that a short query leaves empty count."""
    check_k(k)

    def score(scores: Tensor, relevance: Tensor) -> Tensor:
        return _shuffle_ties(scores, _is_relevant(relevance), k).expected.sum(-1) / k

    return _mean_over_queries("precision_at_k", score, empty_query)


def recall_at_k(*, k: int = 10, empty_query: EmptyQuery = "skip") -> Metric:
    """Share of the relevant documents that stand in the first ``k`` positions."""
    check_k(k)

    def score(scores: Tensor, relevance: Tensor) -> Tensor:
        is_relevant = _is_relevant(relevance)
        return ratio(_shuffle_ties(scores, is_relevant, k).expected.sum(-1), is_relevant.sum(-1))

    return _mean_over_queries("recall_at_k", score, empty_query)


def average_precision(scores: Tensor, relevance: Tensor) -> Tensor:
    """``[..., D]`` to ``[...]``: expected average precision, 0 without a relevant document."""
    is_relevant = _is_relevant(relevance)
    expected, group_size, place = _shuffle_ties(scores, is_relevant, scores.shape[-1])
    # a relevant document here has before it those of higher groups and, of its own group, its share of the others
    higher = expected.cumsum(-1) - expected * (place + 1)
    tied = place * ratio(expected * group_size - 1, group_size - 1)
    return ratio((expected * (1 + higher + tied) / _positions(scores, expected)).sum(-1), is_relevant.sum(-1))


def _reciprocal_rank(scores: Tensor, relevance: Tensor) -> Tensor:
    expected, group_size, place = _shuffle_ties(scores, _is_relevant(relevance), scores.shape[-1])
    # chance that the first relevant document stands here if none stood before: drawing without putting back
    chance_here = (expected * group_size / (group_size - place)).clamp(max=1)
    chance_none_yet = F.pad((1 - chance_here).cumprod(-1)[..., :-1], (1, 0), value=1)
    return (chance_none_yet * chance_here / _positions(scores, expected)).sum(-1)


class _ShuffledTies(NamedTuple):
    """What is at the first positions, from the highest score on ``[..., k]``, over all orders of tied documents."""

    expected: Tensor
    """Mean of the values in the group of tied documents that the position belongs to."""
    group_size: Tensor
    place: Tensor
    """Position within the group, from 0."""


def _shuffle_ties(scores: Tensor, values: Tensor, k: int) -> _ShuffledTies:
    # the first k alone: a full sort takes 8 times as long as the first 10 of 128
    first_scores, order = scores.topk(min(k, scores.shape[-1]))
    opens_group = F.pad(first_scores[..., 1:] != first_scores[..., :-1], (1, 0), value=True)
    group = opens_group.cumsum(-1) - 1
    # the last group may go on behind position k
    is_in_last, belongs_to_last = (each == first_scores[..., -1:] for each in (first_scores, scores))

    def total_of_group(summands: Tensor) -> Tensor:
        firsts = summands.gather(-1, order)
        totals = torch.zeros_like(firsts).scatter_add(-1, group, firsts).gather(-1, group)
        return totals.where(~is_in_last, summands.where(belongs_to_last, 0).sum(-1, keepdim=True))

    group_size = total_of_group(torch.ones_like(values))
    positions = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    place = positions - positions.where(opens_group, 0).cummax(-1).values
    return _ShuffledTies(total_of_group(values) / group_size, group_size, place)


def _positions(scores: Tensor, like: Tensor) -> Tensor:
    return torch.arange(1, scores.shape[-1] + 1, dtype=like.dtype, device=like.device)


def _is_relevant(relevance: Tensor) -> Tensor:
    return (relevance > 0).to(relevance.dtype)


def _mean_over_queries(name: str, score: QueryScore, empty_query: EmptyQuery) -> Metric:
    if empty_query not in ("skip", "zero"):
        raise ValueError(f"empty_query={empty_query!r} is unknown; 'skip' and 'zero' work.")

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        is_kept = targets != IGNORE_INDEX
        relevance = targets.masked_fill(~is_kept, 0).to(torch.promote_types(outputs.dtype, torch.float32))
        # padding goes behind every document and is worth nothing there
        scores = score(outputs.masked_fill(~is_kept, -torch.inf), relevance)
        is_counted = (relevance > 0 if empty_query == "skip" else is_kept).any(-1)
        return mean_where(is_counted, scores)

    return Metric(name, Kind.RANKING, value, reads_probabilities=True)


def mean_where(is_counted: Tensor, values: Tensor) -> Tensor:
    """``[..., N]`` to ``[...]``: the mean of the counted values, NaN without any."""
    return values.where(is_counted, 0).sum(-1) / is_counted.sum(-1)


def check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k={k}; the number of first positions is 1 or more.")


TABLE: dict[str, Metric] = {
    "ndcg": ndcg(),
    "map": map(),
    "mrr": mrr(),
    "precision_at_k": precision_at_k(),
    "recall_at_k": recall_at_k(),
}
