"""Tensors that depend continuously on the outputs, and what they were before a sigmoid or a softmax.

A decision on a probability is a decision on its logit, and only there its gradient does not vanish:
``sigmoid(s) > 0.5`` compares ``s`` with 0. So a probability remembers where it came from, through slices and reshapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_SAME_ELEMENTS = frozenset(
    """chunk clone contiguous cpu cuda double expand flatten float getitem movedim narrow permute ravel reshape
    reshape_as select split squeeze swapaxes t to transpose unbind unflatten unsqueeze view view_as""".split()
)


@dataclass(frozen=True)
class Origin:
    """Both are computed when a decision asks for them."""

    logits: Callable[[], Tensor]
    """Element by element the logit of the probability."""
    rows: Callable[[], Tensor]
    """For a choice among the alternatives of a row: the input of the softmax (of a sigmoid: its logits)."""

    def through(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Origin:
        return Origin(
            lambda: func(self.logits(), *args[1:], **kwargs),
            lambda: func(self.rows(), *args[1:], **kwargs),
        )


class Score(torch.Tensor):
    """Outside of a trace it is a tensor like any other."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    origin: Origin | None = None


def as_score(tensor: Tensor, origin: Origin | None = None) -> Score:
    score = tensor.as_subclass(Score)
    if origin is not None:
        score.origin = origin
    return score


def origin_of(func: Callable[..., Any], plain: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Origin | None:
    """Where the result of an operation on scores came from, if that is worth remembering."""
    first = args[0]
    if plain == "sigmoid":
        return Origin(lambda: first, lambda: first)
    if plain == "softmax":
        dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
        return Origin(lambda: _logits_of_softmax(first, dim), lambda: first)
    if plain == "where" and len(args) == 3 and args[0].dim() == 0:
        # torchmetrics: "if any score is outside of [0, 1], it is not a probability yet"
        first = args[1] if bool(args[0]) else args[2]
        return first.origin if isinstance(first, Score) else None
    if isinstance(first, Score) and first.origin is not None and plain in _SAME_ELEMENTS:
        return first.origin.through(func, args, kwargs)
    return None


def _logits_of_softmax(scores: Tensor, dim: int) -> Tensor:
    if scores.shape[dim] == 2:
        return scores - scores.flip(dim)
    log_probability = F.log_softmax(scores.double(), dim)
    # float64 knows 1 - p down to 1e-16: beyond logits of 36 the others are too far away to matter
    return (log_probability - torch.log(-torch.expm1(log_probability.clamp(max=-1e-16)))).to(scores.dtype)
