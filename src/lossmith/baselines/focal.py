"""Focal loss: cross-entropy in which what is already right hardly counts (Lin et al. 2017).

>>> import torch
>>> focal(Kind.BINARY)(torch.tensor([0.0]), torch.tensor([1]))  # (1 - 1/2)^2 log 2
tensor(0.1733)
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from lossmith.baselines.pointwise import Pointwise
from lossmith.vocabulary import Kind, Loss


def focal(kind: Kind, *, gamma: float = 2.0) -> Loss:
    """Mean of ``-(1 - q)^gamma log q``, with ``q`` the probability of the target."""
    if gamma < 1:
        raise ValueError(f"gamma={gamma} came; 1 or more works (below, the gradient has no bound).")
    return Pointwise(kind, partial(_score_term, gamma=gamma), partial(_class_term, gamma=gamma))


def _score_term(scores: Tensor, targets: Tensor, *, gamma: float) -> Tensor:
    lead = (2 * targets - 1) * scores
    return lead.neg().sigmoid() ** gamma * -F.logsigmoid(lead)


def _class_term(scores: Tensor, targets: Tensor, *, gamma: float) -> Tensor:
    log_q = scores.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return -(log_q.expm1().neg() ** gamma) * log_q
