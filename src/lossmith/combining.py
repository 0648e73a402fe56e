"""An ordinary loss and a learned one in one sum (paper 000, Table 10: the learned loss alone trains worse).

The learned part's gradient is brought to the length of the base's, batch by batch, so that ``weight`` 1 means as much
of each whatever their units. It is held back for some steps: of an untrained model the metric has little to say.

>>> import torch
>>> def squares(outputs, targets):
...     return (outputs - targets).square().sum()
>>> def thousand_distances(outputs, targets):
...     return 1000 * (outputs - targets).abs().sum()
>>> loss = combine(squares, thousand_distances)
>>> outputs = torch.tensor([3.0, 0.0], requires_grad=True)
>>> loss(outputs, torch.zeros(2)).backward()
>>> outputs.grad  # 6 of each
tensor([12.,  0.])
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from lossmith.vocabulary import Loss


def combine(base_loss: Loss, learned: Loss, *, weight: float = 1.0, warmup_steps: int = 0) -> CombinedLoss:
    """``base_loss + weight * learned``, the second from step ``warmup_steps`` on, with gradients of one length."""
    return CombinedLoss(base_loss, learned, weight=weight, warmup_steps=warmup_steps)


@final
class CombinedLoss(nn.Module):
    """Made by :func:`combine`. Steps are calls in training mode; their number is part of ``state_dict()``."""

    num_steps: Tensor

    def __init__(self, base_loss: Loss, learned: Loss, *, weight: float, warmup_steps: int) -> None:
        super().__init__()
        if not (isinstance(weight, (int, float)) and 0 <= weight < math.inf):
            raise ValueError(f"weight={weight!r} came; a number, 0 or more, works.")
        if not isinstance(warmup_steps, int) or warmup_steps < 0:
            raise ValueError(
                f"warmup_steps={warmup_steps!r} came; a whole number of steps, 0 or more, works (of a share of them: "
                "int(0.3 * num_steps))."
            )
        for which, loss in (("base_loss", base_loss), ("learned", learned)):
            if not callable(loss):
                raise ValueError(f"{which} came as {loss!r:.60}; a loss works: lossmith.load(...), torch.nn....Loss().")
        self.base_loss = base_loss
        self.learned = learned
        self.weight = weight
        self.warmup_steps = warmup_steps
        self.register_buffer("num_steps", torch.tensor(0))
        # the same number where reading it does not make the host wait
        self._num_steps = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        is_warm = self._num_steps >= self.warmup_steps
        if self.training:
            self._num_steps += 1
            self.num_steps.fill_(self._num_steps)
        if not is_warm or not self.weight:
            return self.base_loss(outputs, targets)
        with torch.enable_grad():
            # in half precision small gradients are 0, and with them the ratio of their lengths
            scores = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            scores = scores if scores.requires_grad else scores.detach().requires_grad_()
            base, learned = self.base_loss(scores, targets), self.learned(scores, targets)
            base_norm, learned_norm = (_gradient_norm(part, scores) for part in (base, learned))
        # where the learned part has no gradient there is nothing to bring to any length
        factor = base_norm / learned_norm.masked_fill(learned_norm == 0, torch.inf)
        total = base + self.weight * factor * learned
        return total if torch.is_grad_enabled() else total.detach()

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: object) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self._num_steps = int(self.num_steps)

    def extra_repr(self) -> str:
        return f"weight={self.weight}, warmup_steps={self.warmup_steps}"


def _gradient_norm(loss: Tensor, scores: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
    norm: Tensor = torch.linalg.vector_norm(gradient)
    return norm
