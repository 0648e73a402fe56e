"""Metrics beside the losses that their code makes, written down by hand; docs/explanation/tracing.md is their table.

Worth of a decision: what the metric changes by when it alone is taken otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.tracing import unmodified as own

COSTS = torch.tensor([[0.0, 5.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 3.0], [2.0, 1.0, 1.0, 0.0]])


@dataclass(frozen=True)
class Piece:
    metric: str
    link: float
    loss: str
    """What comes out, in words."""
    code: Callable[[Tensor, Tensor], Tensor]
    by_hand: Callable[[Tensor, Tensor], Tensor]
    kind: str
    higher_is_better: bool = True

    @property
    def row(self) -> str:
        return f"| {self.metric} | {self.link:g} | {self.loss} |"


# ---- code, as people write it


def thresholded_accuracy(outputs, targets):
    return ((outputs > 0) == (targets == 1)).float().mean()


def accuracy_from_30_percent_on(outputs, targets):
    return ((torch.sigmoid(outputs) > 0.3) == (targets == 1)).float().mean()


def balanced_accuracy(outputs, targets):
    is_right = (outputs > 0) == (targets == 1)
    return (is_right[targets == 1].float().mean() + is_right[targets == 0].float().mean()) / 2


def business_cost(outputs, targets):
    return COSTS[targets, outputs.argmax(-1)].mean()


def profit(outputs, targets):
    is_called = (outputs > 0).float()
    return (10 * targets * is_called - is_called).mean()


def jaccard(outputs, targets):
    predicted = outputs > 0
    return (predicted & (targets == 1)).sum() / (predicted | (targets == 1)).sum()


def reciprocal_rank(outputs, targets):
    return 1 / (1 + targets[outputs.argsort(descending=True)].argmax())


def within_a_half(outputs, targets):
    return ((outputs - targets).abs() < 0.5).float().mean()


def absolute_error(outputs, targets):
    return (outputs - targets).abs().mean()


# ---- losses, worked out by hand


def binary_cross_entropy(scores: Tensor, targets: Tensor, worth: Tensor | float = 1.0) -> Tensor:
    return (worth * F.binary_cross_entropy_with_logits(scores, targets.float(), reduction="none")).mean()


def of_costs(outputs: Tensor, targets: Tensor) -> Tensor:
    saved = COSTS.amax(1, keepdim=True) - COSTS
    share = (outputs.softmax(-1) * (saved / saved.amax(1, keepdim=True))[targets]).sum(-1)
    return -(saved.amax(1)[targets] * share.log()).mean()


def of_swaps(metric: Callable[[Tensor], float]) -> Callable[[Tensor, Tensor], Tensor]:
    """LambdaRank: every pair of places, what changing them is worth, the logistic loss of the better order."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        order = outputs.argsort(descending=True)
        in_order, scores, total = targets[order], outputs[order], outputs.sum() * 0
        for upper in range(len(order)):
            for lower in range(upper + 1, len(order)):
                swapped = in_order.clone()
                swapped[upper], swapped[lower] = in_order[lower], in_order[upper]
                worth = metric(swapped) - metric(in_order)
                better = scores[lower] - scores[upper] if worth > 0 else scores[upper] - scores[lower]
                total = total + abs(worth) * F.softplus(-better)
        return total / len(order)

    return loss


def of_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.softplus(outputs[targets == 0] - outputs[targets == 1][:, None]).mean()


def of_ordered_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
    is_above = torch.sign(targets[:, None] - targets)
    return (2 * is_above.abs() * F.softplus(-is_above * (outputs[:, None] - outputs))).mean()


def of_counts(value: Callable[[float, float, float], float]) -> Callable[[Tensor, Tensor], Tensor]:
    """Binary cross-entropy; a unit is worth what the metric of true positives, called and positives changes by."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        is_called, is_true = outputs > 0, targets == 1
        hits, called, positives = (float(each.sum()) for each in (is_called & is_true, is_called, is_true))
        worth = torch.zeros_like(outputs)
        for each in range(len(outputs)):
            step = -1 if is_called[each] else 1
            changed = value(hits + step * float(is_true[each]), called + step, positives)
            worth[each] = abs(changed - value(hits, called, positives))
        return binary_cross_entropy(outputs, targets, worth * len(outputs))

    return loss


def of_top2(outputs: Tensor, targets: Tensor) -> Tensor:
    total = outputs.sum() * 0
    for row, target in zip(outputs, targets):
        best, behind = row.sort(descending=True).indices.tensor_split([2])
        if target in best:  # must not change places with anyone behind
            total = total + F.softplus(row[behind] - row[target]).sum()
        else:
            total = total + F.softplus(row[best] - row[target]).sum()
    return total / outputs.numel()


def of_whole_answers(outputs: Tensor, targets: Tensor) -> Tensor:
    is_wrong = outputs.argmax(-1) != targets
    counts = is_wrong.sum(-1, keepdim=True) - is_wrong.long() == 0  # all other tokens are right
    losses = F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    return (losses * counts).sum() / len(outputs)


def of_distance(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.softplus((outputs - targets).abs() - 0.5).mean()


# ---- values of targets in the order of their scores


def average_precision_of(in_order: Tensor) -> float:
    hits = in_order.float()
    return float((hits.cumsum(0) / torch.arange(1, len(hits) + 1) * hits).sum() / hits.sum())


def ndcg_of(in_order: Tensor) -> float:
    gains, discounts = 2.0**in_order - 1, 1 / torch.log2(torch.arange(len(in_order)) + 2.0)
    return float((gains * discounts).sum() / (gains.sort(descending=True).values * discounts).sum())


def auc_of(in_order: Tensor) -> float:
    is_positive = in_order == 1
    num_behind = (~is_positive).flip(0).cumsum(0).flip(0)
    return float(num_behind[is_positive].sum() / (is_positive.sum() * (~is_positive).sum()))


def spearman_of(in_order: Tensor) -> float:
    ranks = torch.stack((-torch.arange(len(in_order)), in_order.argsort().argsort())).float()
    return float(torch.corrcoef(ranks)[0, 1])


def first_hit_of(in_order: Tensor) -> float:
    return 1 / (1 + int((in_order == 1).nonzero()[0]))


GALLERY = [
    Piece("accuracy", 0, "cross-entropy", own.accuracy, F.cross_entropy, "multiclass"),
    Piece("accuracy", 0.5, "generalised cross-entropy (Zhang and Sabuncu 2018)", own.accuracy,
          lambda o, t: ((1 - o.softmax(-1).gather(1, t[:, None]) ** 0.5) / 0.5).mean(), "multiclass"),
    Piece("accuracy", 1, "expected error of a draw from the softmax", own.accuracy,
          lambda o, t: 1 - o.softmax(-1).gather(1, t[:, None]).mean(), "multiclass"),
    Piece("top-2 accuracy", 0, "logistic loss: the target against all behind the first two, or against those two",
          own.top2_accuracy, of_top2, "multiclass"),
    Piece("costs of mistakes", 0, "minus the log of the expected share of what can be saved, times what can be saved",
          business_cost, of_costs, "multiclass", higher_is_better=False),
    Piece("pixel accuracy", 0, "cross-entropy of pixels", own.pixel_accuracy, F.cross_entropy, "images"),
    Piece("exact match of tokens", 0, "cross-entropy of the tokens on which it depends: all others are right",
          own.exact_match, of_whole_answers, "sequences"),
    Piece("thresholded accuracy", 0, "binary cross-entropy", thresholded_accuracy, binary_cross_entropy, "binary"),
    Piece("accuracy from 30 % on", 0, "binary cross-entropy of the scores less the logit of 30 %",
          accuracy_from_30_percent_on, lambda o, t: binary_cross_entropy(o - torch.tensor(0.3).logit(), t), "binary"),
    Piece("balanced accuracy", 0, "binary cross-entropy, each class weighted by its rarity", balanced_accuracy,
          lambda o, t: binary_cross_entropy(o, t, len(t) / 2 / torch.bincount(t)[t]), "binary"),
    Piece("profit of calls", 0, "binary cross-entropy, weight 9 for who buys, 1 for who does not", profit,
          lambda o, t: binary_cross_entropy(o, t, 1.0 + 8 * t), "binary"),
    Piece("F1", 0, "binary cross-entropy, weighted by what F1 changes by", own.f1,
          of_counts(lambda hits, called, positives: 2 * hits / (called + positives)), "binary"),
    Piece("Jaccard", 0, "binary cross-entropy, weighted by what Jaccard changes by", jaccard,
          of_counts(lambda hits, called, positives: hits / (called + positives - hits)), "binary"),
    Piece("AUC, by pairs", 0, "RankNet: logistic loss of each positive against each negative", own.auc_of_pairs,
          of_pairs, "binary"),
    Piece("AUC, by ranks", 0, "LambdaRank with the AUC of swapped places", own.auc_of_ranks,
          of_swaps(auc_of), "binary"),
    Piece("average precision", 0, "LambdaRank with the average precision of swapped places", own.average_precision,
          of_swaps(average_precision_of), "binary"),
    Piece("precision at 5", 0, "logistic loss of the first five against all behind them, where targets differ",
          own.precision_at_5, of_swaps(lambda in_order: float(in_order[:5].float().mean())), "binary"),
    Piece("reciprocal rank", 0, "LambdaRank with the reciprocal rank of swapped places", reciprocal_rank,
          of_swaps(first_hit_of), "binary"),
    Piece("NDCG", 0, "LambdaRank (Burges 2010)", own.ndcg, of_swaps(ndcg_of), "graded"),
    Piece("Spearman", 0, "LambdaRank with the distance of the places times that of the targets' ranks",
          own.spearman_of_ranks, of_swaps(spearman_of), "continuous"),
    Piece("Kendall", 0, "logistic loss of all pairs", own.kendall, of_ordered_pairs, "continuous"),
    Piece("share within a half", 0, "logistic loss of the distance, less the half that is allowed", within_a_half,
          of_distance, "continuous"),
    Piece("absolute error", 0, "itself: it has a gradient of its own", absolute_error, absolute_error, "continuous",
          higher_is_better=False),
]  # fmt: skip
