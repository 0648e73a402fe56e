"""The hinge: zero once the right answer leads by a margin of 1.

>>> import torch
>>> hinge(Kind.BINARY)(torch.tensor([3.0, 0.5]), torch.tensor([1, 1]))
tensor(0.2500)
"""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.baselines.pointwise import Pointwise
from lossmith.vocabulary import Kind, Loss


def hinge(kind: Kind) -> Loss:
    """Mean of ``max(0, 1 - lead)``: the lead over 0, or over the best other class (Crammer and Singer 2001)."""
    return Pointwise(kind, _score_term, _class_term)


def _score_term(scores: Tensor, targets: Tensor) -> Tensor:
    return (1 - (2 * targets - 1) * scores).relu()


def _class_term(scores: Tensor, targets: Tensor) -> Tensor:
    is_target = torch.arange(scores.shape[-1], device=scores.device) == targets[..., None]
    best_other = scores.masked_fill(is_target, -torch.inf).amax(-1)
    return (1 + best_other - scores.gather(-1, targets[..., None])[..., 0]).relu()
