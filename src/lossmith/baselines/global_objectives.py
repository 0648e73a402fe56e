"""Precision at a recall, recall at a precision, area under the precision-recall curve (Eban et al. 2017).

False positives and false negatives are bounded by hinges, and the constraint is a Lagrangian: a threshold for each
anchor descends with the model, its multiplier ascends. Both are weights of the loss, so the optimizer must have them::

    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()])

>>> import torch
>>> loss = recall_at_precision_loss(Kind.BINARY)
>>> loss(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).detach()  # all right: what is left is -multiplier / 2
tensor(-0.5000)
"""

from __future__ import annotations

import math
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossmith.vocabulary import Kind, Loss

Constraint = Literal["precision", "recall"]


@final
class GlobalObjective(nn.Module):
    """For binary predictions; the mean over anchors, each a precision or a recall that must be reached."""

    anchors: Tensor

    def __init__(self, kind: Kind, *, constraint: Constraint, anchors: list[float]) -> None:
        super().__init__()
        if kind is not Kind.BINARY:
            raise ValueError(f"a global objective cannot read {kind} predictions; binary works.")
        if not all(0 < anchor < 1 for anchor in anchors):
            raise ValueError(f"the {constraint} to reach is {anchors}; between 0 and 1 works.")
        self.constraint: Constraint = constraint
        self.register_buffer("anchors", torch.tensor(anchors))
        self.thresholds = nn.Parameter(torch.zeros(len(anchors)))
        self.raw_multipliers = nn.Parameter(torch.full((len(anchors),), math.log(math.e - 1)))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores = outputs.to(torch.promote_types(outputs.dtype, torch.float32)).unsqueeze(-1) - self.thresholds
        is_positive = (targets == 1).unsqueeze(-1).to(scores.dtype)
        is_negative = (targets == 0).unsqueeze(-1).to(scores.dtype)
        num_positives, num_kept = is_positive.sum(0), (is_positive + is_negative).sum(0).clamp(min=1)
        missed = ((1 - scores).relu() * is_positive).sum(0)  # at least the false negatives
        alarms = ((1 + scores).relu() * is_negative).sum(0)  # at least the false positives
        multipliers = F.softplus(self.raw_multipliers)  # never negative, and 1 at first
        # value of the multiplier, gradient of its negative: what descends for the model ascends for it
        multipliers = 2 * multipliers.detach() - multipliers
        if self.constraint == "precision":  # eq. 8: most recall, given the precision
            odds = self.anchors / (1 - self.anchors)
            terms = (1 + multipliers) * missed + multipliers * odds * alarms - multipliers * num_positives
        else:  # eq. 11: fewest false positives, given the recall
            terms = alarms + multipliers * (missed - (1 - self.anchors) * num_positives)
        value = (terms / num_kept).mean() * (num_positives[0] > 0)
        return value.to(outputs.dtype)


def recall_at_precision_loss(kind: Kind, *, precision: float = 0.9) -> Loss:
    """Highest recall at this precision, as a Lagrangian with a threshold and a multiplier to learn."""
    return GlobalObjective(kind, constraint="precision", anchors=[precision])


def precision_at_recall_loss(kind: Kind, *, recall: float = 0.9) -> Loss:
    """Highest precision at this recall, as a Lagrangian with a threshold and a multiplier to learn."""
    return GlobalObjective(kind, constraint="recall", anchors=[recall])


def aucpr_loss(kind: Kind, *, num_anchors: int = 10) -> Loss:
    """Area under the precision-recall curve: recall at several precisions, with their thresholds to learn."""
    if num_anchors < 1:
        raise ValueError(f"num_anchors={num_anchors} came; 1 or more works.")
    anchors = [(index + 1) / (num_anchors + 1) for index in range(num_anchors)]
    return GlobalObjective(kind, constraint="precision", anchors=anchors)
