"""Embeddings: every item of a set asks the others who is like it, or every pair asks whether it is the same identity.

Retrieval leaves the item itself out of its own gallery. An item whose identity has no other item (a singleton) asks
nothing but stays in the galleries of the others; a set without any partners is NaN. Verification looks at each of the
N (N - 1) / 2 pairs once; a set whose pairs are all of one identity, or all of two, is NaN. A target of -100 is left out
of everything. Equally near items have no order: retrieval is the expected value when they are shuffled, as in
:mod:`lossmith.metrics.ranking`.

All pairs are in memory at once: O(S N²), for 64 sets of 256 embeddings 0.1 GB (recall) to 0.4 GB (mean AP).

>>> import torch
>>> embeddings, identities = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]]), torch.tensor([7, 7, 9])
>>> retrieval_recall_at_k()(embeddings, identities), verification_accuracy()(embeddings, identities)
(tensor(1.), tensor(1.))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics import counts, ranking
from lossmith.metrics.counts import Counts, Formula, value_dtype
from lossmith.metrics.curves import equal_error_rate, sweep
from lossmith.vocabulary import Metric

Distance = Literal["cosine", "euclidean"]

# similarity and relation of all items with all items [S, N, N] -> [S]
OfComparisons = Callable[[Tensor, Tensor], Tensor]


def retrieval_recall_at_k(*, k: int = 1, distance: Distance = "cosine") -> Metric:
    """Share of the items that have one of their own among the ``k`` nearest (recall@k of metric learning)."""
    ranking.check_k(k)
    return _metric("retrieval_recall_at_k", partial(_recall, k=k), distance)


def retrieval_map(*, distance: Distance = "cosine") -> Metric:
    """Mean average precision of the whole gallery, ordered by similarity to the item."""
    return _metric("retrieval_map", ranking.map().value, distance)


def verification_accuracy(*, distance: Distance = "cosine", balanced: bool = False) -> Metric:
    """Accuracy of "same identity" over all pairs at the best threshold, which the set itself chooses.

    Most pairs of a set are strangers, so that saying "never the same" scores high; ``balanced=True`` gives pairs of one
    identity and pairs of two the same total weight, as in benchmarks with as many of either (LFW).
    """
    formula = counts.balanced_accuracy if balanced else counts.accuracy
    return _metric("verification_accuracy", partial(_best_over_pairs, formula=formula), distance)


def verification_eer(*, distance: Distance = "cosine") -> Metric:
    """Equal error rate of "same identity" over all pairs: lower is better, chance is 1/2."""
    return _metric("verification_eer", _equal_error_rate_over_pairs, distance, higher_is_better=False)


def _metric(name: str, value: OfComparisons, distance: Distance, *, higher_is_better: bool = True) -> Metric:
    if distance not in ("cosine", "euclidean"):
        raise ValueError(f"distance={distance!r} is unknown; 'cosine' and 'euclidean' work.")
    value_of_set = partial(_compare_then, value=value, distance=distance)
    return Metric(name, Kind.EMBEDDING, value_of_set, higher_is_better)


def _recall(similarity: Tensor, relation: Tensor, *, k: int) -> Tensor:
    is_same = relation == 1
    nearest = similarity.masked_fill(~is_same, -torch.inf).amax(-1, keepdim=True)
    num_ahead = (similarity > nearest).sum(-1, keepdim=True)
    is_tied = similarity == nearest
    num_tied, num_right = is_tied.sum(-1, keepdim=True), (is_tied & is_same).sum(-1, keepdim=True)
    # whoever is as near as the nearest of its own may stand before it: chance that each draw from the tied is wrong
    draw = torch.arange(min(k, similarity.shape[-1]), device=similarity.device)
    wrong = (num_tied - num_right - draw).clamp(min=0) / (num_tied - draw).clamp(min=1).to(similarity.dtype)
    chance_of_hit = 1 - wrong.where(num_ahead + draw < k, 1).prod(-1)
    return chance_of_hit.where(is_same.any(-1), torch.nan).nanmean(-1)


def _best_over_pairs(similarity: Tensor, relation: Tensor, *, formula: Formula) -> Tensor:
    curve = sweep(*_pairs(similarity, relation))
    # one more threshold than there are scores: the one that lets nothing in
    tp, fp = (pad(each, (0, 1)) for each in (curve.true_positives, curve.false_positives))
    num_same, num_other = tp[:, :1], fp[:, :1]
    counts_of_pairs = Counts(tp, fp, num_same - tp, num_other - fp).to(similarity.dtype)
    has_both = (num_same * num_other > 0).squeeze(-1)
    return formula(counts_of_pairs).amax(-1).where(has_both, torch.nan)


def _equal_error_rate_over_pairs(similarity: Tensor, relation: Tensor) -> Tensor:
    return equal_error_rate(*_pairs(similarity, relation))


def _pairs(*matrices: Tensor) -> Iterator[Tensor]:
    """Each pair once: ``[S, N, N]`` to ``[S, N (N + 1) / 2]``, every item with itself among them, as left out."""
    for matrix in matrices:
        first, second = torch.triu_indices(*matrix.shape[1:], device=matrix.device)
        yield matrix[:, first, second]


def _compare_then(outputs: Tensor, targets: Tensor, *, value: OfComparisons, distance: Distance) -> Tensor:
    return value(*_compare(outputs, targets, distance))


def _compare(outputs: Tensor, targets: Tensor, distance: Distance) -> tuple[Tensor, Tensor]:
    """Similarity of each item to each, higher is nearer, and their relation, both ``[S, N, N]``.

    The relation is 1 for the same identity, 0 for another, and -100 for what is left out, whose similarity is ``-inf``.
    """
    # Equal embeddings must be equally similar, or a collapsed network is judged by rounding errors: float64, then
    # rounded to float32, where the errors of a matrix product vanish. Apple's GPUs have no float64.
    embeddings = outputs.to(torch.float32 if outputs.device.type == "mps" else torch.float64)
    if distance == "cosine":
        embeddings = normalize(embeddings, dim=-1)
        similarity = embeddings @ embeddings.mT
    else:
        similarity = -torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist")
    similarity = similarity.to(torch.float32).to(value_dtype(outputs))
    is_kept = targets != IGNORE_INDEX
    is_left_out = ~(is_kept.unsqueeze(-1) & is_kept.unsqueeze(-2))
    is_left_out = is_left_out | torch.eye(targets.shape[1], dtype=torch.bool, device=targets.device)
    relation = (targets.unsqueeze(-1) == targets.unsqueeze(-2)).to(torch.int8).masked_fill(is_left_out, IGNORE_INDEX)
    return similarity.masked_fill(is_left_out, -torch.inf), relation


TABLE: dict[str, Metric] = {
    "retrieval_recall_at_k": retrieval_recall_at_k(),
    "retrieval_map": retrieval_map(),
    "verification_accuracy": verification_accuracy(),
    "verification_eer": verification_eer(),
}
