"""A loss whose gradient has one length in every batch, and which keeps scores from growing.

Losses made from a metric push hard where one decision is worth much and not at all where none is at stake; and as the
metric hardly changes once scores are large, nothing holds these back. On few rows that is how a network learns them by
heart. Here each batch pushes as hard as any other, and a penalty on the mean square of the scores does the holding.

>>> import torch
>>> def distances(outputs, targets):
...     return 1000 * (outputs - targets).abs().sum()
>>> loss = normalise(distances, penalty=0.1)
>>> outputs = torch.tensor([3.0, 0.0, 0.0, 0.0], requires_grad=True)
>>> loss(outputs, torch.zeros(4)).backward()
>>> outputs.grad  # a length of 1 / √4 from the distances, 2 · 0.1 · 3 / 4 from the penalty
tensor([0.6500, 0.0000, 0.0000, 0.0000])
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lossmith.vocabulary import IGNORE_INDEX, Loss


def normalise(loss: Loss, *, penalty: float = 0.01) -> NormalisedLoss:
    """``loss`` with a score gradient of length ``1 / √rows``, and ``penalty`` times the mean square of the scores.

    For outputs ``[N, ...]`` with a target for each score, or for each row of scores. The default suits scores of size
    1 to 10, as those of a yes-or-no question are.
    """
    return NormalisedLoss(loss, penalty=penalty)


@final
class NormalisedLoss(nn.Module):
    """Made by :func:`normalise`. Its value is that of the loss and the penalty; its gradient is as described."""

    def __init__(self, loss: Loss, *, penalty: float) -> None:
        super().__init__()
        if not penalty >= 0:
            raise ValueError(f"penalty={penalty} came; 0 or more works.")
        self.loss = loss
        self.penalty = penalty

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        is_kept = _kept_scores(outputs, targets)
        with torch.enable_grad():
            scores = outputs if outputs.requires_grad else outputs.detach().requires_grad_()
            value = self.loss(scores, targets)
            (gradient,) = torch.autograd.grad(value, scores, retain_graph=True)
            wide = torch.promote_types(scores.dtype, torch.float32)
            # half precision has no room for the squares of small gradients
            length = torch.linalg.vector_norm(gradient, dtype=wide)
            num_rows = is_kept.reshape(len(is_kept), -1).any(1).sum().clamp(min=1)
            # a batch that says nothing has nothing to bring to any length
            pushed = value * (num_rows.rsqrt() / length.masked_fill(length == 0, torch.inf))
            squares = scores.to(wide).square().masked_fill(~is_kept, 0).sum() / is_kept.sum().clamp(min=1)
            total: Tensor = pushed + (value - pushed).detach() + self.penalty * squares
        return total if torch.is_grad_enabled() else total.detach()

    def extra_repr(self) -> str:
        return f"penalty={self.penalty}"


def _kept_scores(outputs: Tensor, targets: Tensor) -> Tensor:
    """In the shape of ``outputs``: true for scores whose target is not left out."""
    if targets.shape == outputs.shape:
        return targets != IGNORE_INDEX
    if targets.shape == outputs.shape[:-1]:
        return (targets != IGNORE_INDEX).unsqueeze(-1).expand_as(outputs)
    raise ValueError(
        f"normalise: outputs {tuple(outputs.shape)} came with targets {tuple(targets.shape)}; "
        "a target for each score, or for each row of scores, works."
    )
