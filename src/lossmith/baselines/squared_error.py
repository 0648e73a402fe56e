"""Squared error of probabilities against the one-hot target: bounded, so no single prediction rules the mean.

``brier`` sums over the classes, as Brier (1950) has it; ``mse`` is their mean, as most people mean it. With one number
of classes they rank predictions alike; for ``binary`` and ``multilabel`` they are one and the same.

>>> import torch
>>> outputs, targets = torch.tensor([[0.0, 0.0], [9.0, -9.0]]), torch.tensor([0, 0])
>>> brier(Kind.MULTICLASS)(outputs, targets), mean_squared_error(Kind.MULTICLASS)(outputs, targets)
(tensor(0.2500), tensor(0.1250))
"""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.baselines.pointwise import Pointwise
from lossmith.vocabulary import Kind, Loss


def brier(kind: Kind) -> Loss:
    """Mean over predictions of ``sum over classes (q - onehot)^2``; ``(q - y)^2`` where a score stands for itself."""
    return Pointwise(kind, _score_term, _sum_of_squares)


def mean_squared_error(kind: Kind) -> Loss:
    """Mean over predictions and classes of ``(q - onehot)^2``."""
    return Pointwise(kind, _score_term, _mean_of_squares)


def _score_term(scores: Tensor, targets: Tensor) -> Tensor:
    return (scores.sigmoid() - targets).square()


def _sum_of_squares(scores: Tensor, targets: Tensor) -> Tensor:
    one_hot = torch.arange(scores.shape[-1], device=scores.device) == targets[..., None]
    return (scores.softmax(-1) - one_hot.to(scores.dtype)).square().sum(-1)


def _mean_of_squares(scores: Tensor, targets: Tensor) -> Tensor:
    return _sum_of_squares(scores, targets) / scores.shape[-1]
