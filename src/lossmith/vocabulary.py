"""The words that every part of lossmith shares: :class:`Metric`, :class:`Predictions`, :class:`Loss`, :class:`Step`.

A metric has a *value*, the number that people report, and a *cost*, lower is better. The direction lives here and
nowhere else: no call site carries a minus sign.

>>> import torch
>>> mean_score = Metric("mean_score", Kind.BINARY, lambda outputs, targets: outputs.mean(-1))
>>> mean_score(torch.tensor([1.0, 3.0, -1.0]), torch.tensor([0, 1, 1]))
tensor(1.)
>>> mean_score.cost(torch.tensor([[1.0, 3.0], [0.0, -2.0]]), torch.tensor([[0, 1], [1, 1]]))
tensor([-2.,  1.])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lossmith.kinds import CLASS_DIM, IGNORE_INDEX, LAYOUTS, Kind, Layout, check_predictions, parse_kind

__all__ = [
    "CLASS_DIM",
    "IGNORE_INDEX",
    "LAYOUTS",
    "Kind",
    "Layout",
    "Loss",
    "Metric",
    "Predictions",
    "StackLoss",
    "Step",
    "check_predictions",
    "parse_kind",
]


class Loss(Protocol):
    """Anything that takes one set and gives a scalar, lower is better; a ``torch.nn.Module`` when it has weights."""

    def __call__(self, outputs: Tensor, targets: Tensor, /) -> Tensor: ...


@runtime_checkable
class StackLoss(Protocol):
    """A loss that can judge a whole stack at once, ``[S, N, ...] -> [S]``, and checks nothing then."""

    def of_stack(self, outputs: Tensor, targets: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Metric:
    """One number for one set of predictions.

    ``value`` is the hot path: it takes a *stack* of sets, gives ``[S]``, and checks nothing. Calling the metric takes
    ONE set, checks it, and gives a scalar. A set on which the metric is not defined has the value NaN, never a
    made-up number: callers leave it out.
    """

    name: str
    kind: Kind
    value: Callable[[Tensor, Tensor], Tensor]
    higher_is_better: bool = True
    reads_probabilities: bool = False
    """True where outputs may lie in [0, 1] on purpose: a rank metric, or one that was given its threshold."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_predictions(self.kind, outputs, targets, want_scores=not self.reads_probabilities)
        return self.value(outputs[None], targets[None])[0]

    def cost(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``[S]``, lower is better."""
        value = self.value(outputs, targets)
        return -value if self.higher_is_better else value


@dataclass(frozen=True)
class Predictions:
    """A stack of sets: ``outputs [S, N, ...]``, ``targets [S, N, ...]``.

    ``is_held_out [S]`` marks the sets that nothing may learn from; without it no set is marked.
    """

    outputs: Tensor
    targets: Tensor
    is_held_out: Tensor | None = None

    def __post_init__(self) -> None:
        for name, tensor in (("targets", self.targets), ("is_held_out", self.is_held_out)):
            if tensor is not None and tensor.shape[:1] != self.outputs.shape[:1]:
                raise ValueError(
                    f"{self.outputs.shape[0]} sets of outputs came with {name} of the shape {tuple(tensor.shape)}."
                )
        if self.is_held_out is not None and (self.is_held_out.dtype is not torch.bool or self.is_held_out.dim() != 1):
            # numbers 0 and 1 would pick the first and the second set, again and again
            raise ValueError(
                f"is_held_out is {self.is_held_out.dtype} of the shape {tuple(self.is_held_out.shape)}; "
                "torch.bool with one mark for each set works."
            )

    @property
    def num_sets(self) -> int:
        return self.outputs.shape[0]

    @property
    def set_size(self) -> int:
        return self.outputs.shape[1]

    def __getitem__(self, index: Tensor | slice) -> Predictions:
        """The sets that a slice, an index tensor or a mask picks."""
        is_held_out = None if self.is_held_out is None else self.is_held_out[index]
        return Predictions(self.outputs[index], self.targets[index], is_held_out)


@dataclass(frozen=True)
class Step:
    """What a ``*_steps`` generator yields. Tensors are detached and stay on their device: reading them is the
    caller's decision, because it makes the host wait.
    """

    number: int
    loss: Tensor
    details: Mapping[str, Tensor] = field(default_factory=dict)
