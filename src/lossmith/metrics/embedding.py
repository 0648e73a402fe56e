"""Embeddings: every item of a set asks the others who is like it, or every pair asks whether it is the same identity.

Retrieval leaves the item itself out of its own gallery. An item whose identity has no other item (a singleton) asks
nothing but stays in the galleries of the others; a set without any partners is NaN. Verification looks at each of the
N (N - 1) / 2 pairs once; a set whose pairs are all of one identity, or all of two, is NaN. A target of -100 is left out
of everything. Equally near items have no order: retrieval is the expected value when they are shuffled, as in
:mod:`lossmith.metrics.ranking`.

All pairs are in memory at once: O(S N²), for 64 sets of 256 embeddings some tens of MB.

>>> import torch
>>> embeddings, identities = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]]), torch.tensor([7, 7, 9])
>>> retrieval_recall_at_k()(embeddings, identities), verification_accuracy()(embeddings, identities)
(tensor(1.), tensor(1.))
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lossmith.metrics import ranking
from lossmith.metrics.counts import Counts, accuracy, balanced_accuracy, value_dtype
from lossmith.metrics.curves import equal_error_rate, sweep
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric

Distance = Literal["cosine", "euclidean"]


def retrieval_recall_at_k(*, k: int = 1, distance: Distance = "cosine") -> Metric:
    """Share of the items that have one of their own among the ``k`` nearest (recall@k of metric learning)."""
    ranking.check_k(k)
    _check_distance(distance)

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        similarity, relation = _compare(outputs, targets, distance)
        is_same = relation == 1
        nearest = similarity.masked_fill(~is_same, -torch.inf).amax(-1, keepdim=True)
        num_ahead = (similarity > nearest).sum(-1, keepdim=True)
        is_tied = similarity == nearest
        num_tied, num_right = is_tied.sum(-1, keepdim=True), (is_tied & is_same).sum(-1, keepdim=True)
        # whoever is as near as the nearest of its own may stand before it: chance that each draw from the tied is wrong
        draw = torch.arange(min(k, outputs.shape[1]), device=outputs.device)
        wrong = (num_tied - num_right - draw).clamp(min=0) / (num_tied - draw).clamp(min=1).to(value_dtype(outputs))
        chance_of_hit = 1 - wrong.where(num_ahead + draw < k, 1).prod(-1)
        return chance_of_hit.where(is_same.any(-1), torch.nan).nanmean(-1)

    return Metric("retrieval_recall_at_k", Kind.EMBEDDING, value)


def retrieval_map(*, distance: Distance = "cosine") -> Metric:
    """Mean average precision of the whole gallery, ordered by similarity to the item."""
    _check_distance(distance)
    mean_average_precision = ranking.map().value

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        return mean_average_precision(*_compare(outputs, targets, distance))

    return Metric("retrieval_map", Kind.EMBEDDING, value)


def verification_accuracy(*, distance: Distance = "cosine", balanced: bool = False) -> Metric:
    """Accuracy of "same identity" over all pairs at the best threshold, which the set itself chooses.

    Most pairs of a set are strangers, so that saying "never the same" scores high; ``balanced=True`` gives pairs of one
    identity and pairs of two the same total weight, as in benchmarks with as many of either (LFW).
    """
    _check_distance(distance)
    formula = balanced_accuracy if balanced else accuracy

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        curve = sweep(*_pairs(outputs, targets, distance))
        # one more threshold than there are scores: the one that lets nothing in
        tp, fp = (F.pad(each, (0, 1)) for each in (curve.true_positives, curve.false_positives))
        num_same, num_other = tp[:, :1], fp[:, :1]
        counts = Counts(tp, fp, num_same - tp, num_other - fp).to(value_dtype(outputs))
        has_both = (num_same * num_other > 0).squeeze(-1)
        return formula(counts).amax(-1).where(has_both, torch.nan)

    return Metric("verification_accuracy", Kind.EMBEDDING, value)


def verification_eer(*, distance: Distance = "cosine") -> Metric:
    """Equal error rate of "same identity" over all pairs: lower is better, chance is 1/2."""
    _check_distance(distance)

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        return equal_error_rate(*_pairs(outputs, targets, distance))

    return Metric("verification_eer", Kind.EMBEDDING, value, higher_is_better=False)


def _compare(outputs: Tensor, targets: Tensor, distance: Distance) -> tuple[Tensor, Tensor]:
    """Similarity of each item to each, higher is nearer, and their relation, both ``[S, N, N]``.

    The relation is 1 for the same identity, 0 for another, and -100 for what is left out, whose similarity is ``-inf``.
    """
    # Equal embeddings must be equally similar, or a collapsed network is judged by rounding errors: float64, then
    # rounded to float32, where the errors of a matrix product vanish. Apple's GPUs have no float64.
    embeddings = outputs.to(torch.float32 if outputs.device.type == "mps" else torch.float64)
    if distance == "cosine":
        embeddings = F.normalize(embeddings, dim=-1)
        similarity = embeddings @ embeddings.mT
    else:
        similarity = -torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist")
    similarity = similarity.to(torch.float32).to(value_dtype(outputs))
    is_kept = targets != IGNORE_INDEX
    is_left_out = ~(is_kept.unsqueeze(-1) & is_kept.unsqueeze(-2))
    is_left_out = is_left_out | torch.eye(targets.shape[1], dtype=torch.bool, device=targets.device)
    relation = (targets.unsqueeze(-1) == targets.unsqueeze(-2)).long().masked_fill(is_left_out, IGNORE_INDEX)
    return similarity.masked_fill(is_left_out, -torch.inf), relation


def _pairs(outputs: Tensor, targets: Tensor, distance: Distance) -> tuple[Tensor, Tensor]:
    """Similarity and relation of each pair once ``[S, N (N + 1) / 2]``, an item with itself left out."""
    similarity, relation = _compare(outputs, targets, distance)
    first, second = torch.triu_indices(*similarity.shape[1:], device=similarity.device)
    return similarity[:, first, second], relation[:, first, second]


def _check_distance(distance: str) -> None:
    if distance not in ("cosine", "euclidean"):
        raise ValueError(f"distance={distance!r} is unknown; 'cosine' and 'euclidean' work.")


TABLE: dict[str, Metric] = {
    "retrieval_recall_at_k": retrieval_recall_at_k(),
    "retrieval_map": retrieval_map(),
    "verification_accuracy": verification_accuracy(),
    "verification_eer": verification_eer(),
}
