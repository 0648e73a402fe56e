"""Predictions as yes-or-no decisions: each class or label against the rest.

``K`` decisions a prediction: 1 for binary, one for each label or class. A class's score is its margin over the best of
the others, so that 0 is where the decision changes for every kind.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lossmith.surrogates.rows import CLASS_KINDS, kept, to_rows
from lossmith.vocabulary import Kind


class Decisions(NamedTuple):
    """All ``[S, K, M]``: raw scores (0 decides), and which of them should be, and should not be, positive."""

    scores: Tensor
    positives: Tensor
    negatives: Tensor


def to_decisions(kind: Kind, outputs: Tensor, targets: Tensor) -> Decisions:
    """Weights of what is left out are 0 on both sides."""
    if kind is Kind.MULTILABEL:
        scores, labels = outputs.transpose(1, 2), targets.transpose(1, 2)
        scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
        positives = labels == 1
    else:
        scores, rows = to_rows(kind, outputs, targets)
        labels = rows.unsqueeze(1)
        if kind in CLASS_KINDS:
            scores = _class_margins(scores).transpose(1, 2)
            classes = torch.arange(scores.shape[1], device=scores.device)
            positives = labels == classes[:, None]
        else:
            scores = scores.unsqueeze(1)
            positives = labels == 1
    weight = kept(labels, scores)
    return Decisions(scores, positives * weight, ~positives * weight)


def _class_margins(scores: Tensor) -> Tensor:
    """Each class's score minus the best of the others: positive exactly for the class that is predicted."""
    if scores.shape[-1] < 2:
        raise ValueError("one class came: there is nothing to choose among. 2 or more work.")
    best, second = scores.topk(2, dim=-1).values.split(1, dim=-1)
    return scores - torch.where(scores == best, second, best)
