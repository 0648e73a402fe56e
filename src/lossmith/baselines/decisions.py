"""Predictions as yes-or-no decisions, for losses of sets: ``M`` rows, ``K`` labels or classes against the rest.

>>> import torch
>>> scores, labels = as_decisions(Kind.MULTICLASS, torch.zeros(2, 3), torch.tensor([2, -100]))
>>> labels
tensor([[   0,    0,    1],
        [-100, -100, -100]])
"""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, Kind

DECIDED_KINDS = (Kind.BINARY, Kind.MULTILABEL, Kind.MULTICLASS, Kind.SEGMENTATION, Kind.TOKENS)


def check_decided(kind: Kind, what: str) -> None:
    if kind not in DECIDED_KINDS:
        raise ValueError(f"{what} cannot read {kind} predictions; {', '.join(DECIDED_KINDS)} work.")


def as_decisions(kind: Kind, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Raw scores and labels (1, 0 or ``IGNORE_INDEX``), both ``[M, K]``; scores in at least single precision."""
    scores = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    if kind is Kind.BINARY:
        return scores.unsqueeze(-1), targets.unsqueeze(-1)
    if kind is Kind.MULTILABEL:
        return scores, targets
    class_dim = CLASS_DIM[kind]
    assert class_dim is not None
    scores = scores.movedim(class_dim, -1)
    num_classes = scores.shape[-1]
    rows = targets.reshape(-1, 1)
    is_class = rows == torch.arange(num_classes, device=rows.device)
    return scores.reshape(-1, num_classes), torch.where(rows == IGNORE_INDEX, rows, is_class.to(rows.dtype))


def as_probabilities(kind: Kind, scores: Tensor) -> Tensor:
    """``[M, K]``: the softmax where classes compete, else the sigmoid."""
    return scores.sigmoid() if CLASS_DIM[kind] is None else scores.softmax(-1)


def mean_over(values: Tensor, is_member: Tensor) -> Tensor:
    """The mean of ``[K]`` values over the members; without any, a zero that keeps the graph."""
    return values.masked_fill(~is_member, 0).sum() / is_member.sum().clamp(min=1)
