"""Soft F1, Jaccard, MCC and balanced accuracy: the metric's own formula on probabilities in place of decisions.

>>> import torch
>>> loss = soft_f1(Kind.BINARY)
>>> loss(torch.tensor([100.0, 0.0, -100.0]), torch.tensor([1, 1, 0]))  # 1 - 2 * 1.5 / (2 * 1.5 + 0.5)
tensor(0.1429)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lossmith.baselines.decisions import as_decisions, as_probabilities, check_decided, mean_over
from lossmith.metrics import counts
from lossmith.metrics.counts import Formula
from lossmith.vocabulary import Kind, Loss


@dataclass(frozen=True)
class SoftCounts:
    """A loss: ``1 - formula`` of soft counts, the mean over the classes or labels that the set has positives of."""

    kind: Kind
    formula: Formula

    def __post_init__(self) -> None:
        check_decided(self.kind, "a loss of soft counts")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, labels = as_decisions(self.kind, outputs, targets)
        soft = counts.count(as_probabilities(self.kind, scores), labels, dim=0)
        return mean_over(1 - self.formula(soft), soft.positives > 0).to(outputs.dtype)


def soft_f1(kind: Kind) -> Loss:
    """``1 - F1`` of soft counts (also known as Dice loss), the mean over classes."""
    return SoftCounts(kind, counts.f_beta)


def soft_jaccard(kind: Kind) -> Loss:
    """``1 - `` intersection over union of soft counts, the mean over classes."""
    return SoftCounts(kind, counts.jaccard)


def soft_mcc(kind: Kind) -> Loss:
    """``1 - `` Matthews' correlation of soft counts, the mean over classes."""
    return SoftCounts(kind, counts.mcc)


def soft_balanced_accuracy(kind: Kind) -> Loss:
    """``1 - `` balanced accuracy of soft counts, the mean over classes."""
    return SoftCounts(kind, counts.balanced_accuracy)
