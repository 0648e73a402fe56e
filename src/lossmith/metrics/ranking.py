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
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics.counts import ratio, value_dtype
from lossmith.metrics.sorting import highest
from lossmith.vocabulary import Metric

EmptyQuery = Literal["skip", "zero"]
Gain = Literal["exponential", "linear"]

# scores and relevance [..., D], padding at the end of the order and irrelevant -> [...], 0 without a relevant document
QueryScore = Callable[[Tensor, Tensor], Tensor]


def ndcg(*, k: int = 10, gain: Gain = "exponential", empty_query: EmptyQuery = "skip") -> Metric:
    """Normalised discounted cumulative gain of the first ``k``: sum of ``gain / log2(1 + position)``, over the best.

    The gain is ``2 ** relevance - 1`` (Burges et al. 2005) or the relevance itself (``"linear"``, Järvelin and
    Kekäläinen 2002, the gain of scikit-learn and torchmetrics). Both agree on relevance 0 and 1.
    """
    check_k(k)
    if gain not in ("exponential", "linear"):
        raise ValueError(f"gain={gain!r} is unknown; 'exponential' and 'linear' work.")
    return _of_queries("ndcg", partial(_ndcg, k=k, gain=gain), empty_query)


def map(*, empty_query: EmptyQuery = "skip") -> Metric:
    """Mean average precision: the precision at every relevant document, averaged per query, then over queries."""
    return _of_queries("map", _average_precision, empty_query)


def mrr(*, empty_query: EmptyQuery = "skip") -> Metric:
    """Mean reciprocal rank: one over the position of the first relevant document."""
    return _of_queries("mrr", _reciprocal_rank, empty_query)


def precision_at_k(*, k: int = 10, empty_query: EmptyQuery = "skip") -> Metric:
    """Share of relevant documents in the first ``k`` positions; positions that a short query leaves empty count."""
    check_k(k)
    return _of_queries("precision_at_k", partial(_precision, k=k), empty_query)


def recall_at_k(*, k: int = 10, empty_query: EmptyQuery = "skip") -> Metric:
    """Share of the relevant documents that stand in the first ``k`` positions."""
    check_k(k)
    return _of_queries("recall_at_k", partial(_recall, k=k), empty_query)


def check_k(k: int) -> None:
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k={k!r}; a whole number from 1 on works.")


def _of_queries(name: str, score: QueryScore, empty_query: EmptyQuery) -> Metric:
    if empty_query not in ("skip", "zero"):
        raise ValueError(f"empty_query={empty_query!r} is unknown; 'skip' and 'zero' work.")
    value = partial(_mean_over_queries, score=score, empty_query=empty_query)
    return Metric(name, Kind.RANKING, value, reads_probabilities=True)


def _mean_over_queries(outputs: Tensor, targets: Tensor, *, score: QueryScore, empty_query: EmptyQuery) -> Tensor:
    is_kept = targets != IGNORE_INDEX
    relevance = targets.where(is_kept, 0).to(value_dtype(outputs))
    scores = score(outputs.where(is_kept, -torch.inf), relevance)
    is_counted = relevance.amax(-1) > 0 if empty_query == "skip" else is_kept.any(-1)
    return scores.where(is_counted, torch.nan).nanmean(-1)


# ------------------------------------------------------------------------------------------------- one query's score


def _ndcg(scores: Tensor, relevance: Tensor, *, k: int, gain: Gain) -> Tensor:
    gains = relevance
    if gain == "exponential":
        # as a share of the query's best, which cancels out: 2 ** relevance overflows where relevance counts clicks
        best = relevance.amax(-1, keepdim=True)
        gains = (relevance - best).exp2() - (-best).exp2()
    expected = _tied_groups(scores, k).expected(gains)
    discounts = 1 / (1 + _positions(expected)).log2()
    best_gains, _ = highest(gains, k)
    return ratio(expected @ discounts, best_gains @ discounts)


def _precision(scores: Tensor, relevance: Tensor, *, k: int) -> Tensor:
    return _tied_groups(scores, k).expected(_is_relevant(relevance)).sum(-1) / k


def _recall(scores: Tensor, relevance: Tensor, *, k: int) -> Tensor:
    is_relevant = _is_relevant(relevance)
    return ratio(_tied_groups(scores, k).expected(is_relevant).sum(-1), is_relevant.sum(-1))


def _average_precision(scores: Tensor, relevance: Tensor) -> Tensor:
    is_relevant = _is_relevant(relevance)
    groups = _tied_groups(scores, scores.shape[-1])
    chance = groups.expected(is_relevant)
    size, place = groups.size_and_place()
    # a relevant document here has before it those of higher groups and, of its own group, its share of the others
    higher = chance.cumsum(-1) - chance * (place + 1)
    tied = place * ratio(chance * size - 1, size - 1)
    return ratio((chance * (higher + tied + 1) / _positions(chance)).sum(-1), is_relevant.sum(-1))


def _reciprocal_rank(scores: Tensor, relevance: Tensor) -> Tensor:
    groups = _tied_groups(scores, scores.shape[-1])
    size, place = groups.size_and_place()
    # tied documents take their places like draws without putting back; the chance of a relevant one if none came yet
    chance = (groups.expected(_is_relevant(relevance)) * size / (size - place)).clamp(max=1)
    chance_none_yet = pad((1 - chance).cumprod(-1)[..., :-1], (1, 0), value=1)
    return (chance_none_yet * chance / _positions(chance)).sum(-1)


def _is_relevant(relevance: Tensor) -> Tensor:
    return (relevance > 0).to(relevance.dtype)


def _positions(like: Tensor) -> Tensor:
    return torch.arange(1, like.shape[-1] + 1, dtype=like.dtype, device=like.device)


# ------------------------------------------------------------------------------------------------------------- ties


@dataclass(frozen=True)
class _TiedGroups:
    """The first positions of a ranking, from the highest score on, in groups of equal scores."""

    order: Tensor
    """Document at each position ``[..., k]``, in one of the possible orders."""
    group: Tensor
    """Number of the group at each position ``[..., k]``, from 0."""
    sizes: Tensor
    """Number of documents in each group, padded with 0 to ``[..., k]``."""
    in_last_group: Tensor | None
    """Documents ``[..., D]`` of the last group, which may go on behind position ``k``; None if no position follows."""

    def expected(self, values: Tensor) -> Tensor:
        """What is at each position on average over all orders of tied documents: ``[..., D]`` to ``[..., k]``."""
        firsts = values.gather(-1, self.order)
        totals = torch.zeros_like(firsts).scatter_add(-1, self.group, firsts)
        if self.in_last_group is not None:
            total_of_last = values.where(self.in_last_group, 0).sum(-1, keepdim=True)
            totals = totals.scatter(-1, self.group[..., -1:], total_of_last)
        return (totals / self.sizes).gather(-1, self.group)

    def size_and_place(self) -> tuple[Tensor, Tensor]:
        """Of each position ``[..., k]``: the size of its group, and its place in there, from 0."""
        starts = self.sizes.cumsum(-1) - self.sizes
        positions = torch.arange(self.group.shape[-1], device=self.group.device)
        return self.sizes.gather(-1, self.group), positions - starts.gather(-1, self.group)


def _tied_groups(scores: Tensor, k: int) -> _TiedGroups:
    first_scores, order = highest(scores, k)
    group = pad(first_scores[..., 1:] != first_scores[..., :-1], (1, 0)).cumsum(-1)
    sizes = torch.zeros_like(group).scatter_add(-1, group, torch.ones_like(group))
    in_last_group = None
    if k < scores.shape[-1]:
        in_last_group = scores == first_scores[..., -1:]
        sizes = sizes.scatter(-1, group[..., -1:], in_last_group.sum(-1, keepdim=True))
    return _TiedGroups(order, group, sizes, in_last_group)


TABLE: dict[str, Metric] = {
    "ndcg": ndcg(),
    "map": map(),
    "mrr": mrr(),
    "precision_at_k": precision_at_k(),
    "recall_at_k": recall_at_k(),
}
