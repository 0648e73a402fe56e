"""What can stand in for a metric: a stack of sets in, one loss per set out, lower is better.

Learning evaluates the same stored sets hundreds of times, and most surrogates need to know little of a set: a histogram
of one number per row says it all. So a surrogate has two faces: ``forward(outputs, targets)``, exact and with
gradients to the outputs, is what trains a model; ``losses(*summarize(outputs, targets))`` is what learns the surrogate,
where the summary is computed once for each stored set. A surrogate without a shorter summary keeps the set itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from lossmith.vocabulary import Kind

Setting = bool | int | float | str | list[int]


class Surrogate(nn.Module, ABC):
    """Abstract; the classes that derive from it are final."""

    kind: Kind
    sees_pairs: ClassVar[bool] = False
    """Its cost grows with the square of a set's size: learning shows it fewer sets."""

    @property
    def has_sign_by_construction(self) -> bool:
        """Whatever its weights are, it does not rise as rows get better: it needs no penalty."""
        return True

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Setting]:
        """The constructor's arguments: with the weights they are all that a file needs to keep."""

    @abstractmethod
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``[S, N, ...]`` and ``[S, N, ...]`` to ``[S]``."""

    def size(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """``[S]``: how large all scores of a set are at once, where that must be no affair of the loss; else None.

        A loss that divides by the size of the scores says nothing about it. Its gradient does, as the divisor is a
        constant to it, and whoever trains with the loss takes that part out.
        """
        return None

    @abstractmethod
    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """What learning needs to know of every set; each tensor starts with ``S``."""

    @abstractmethod
    def losses(self, *summary: Tensor) -> Tensor:
        """``[S]`` from a summary, with gradients to the weights."""

    @abstractmethod
    def penalty(self, *summary: Tensor) -> Tensor:
        """``[S]``: how far the loss is from falling by 1 for each row's step in the right direction.

        The paper's penalty (eq. 8) compares the *norm* of the gradient with 1, which both directions of the slope
        satisfy: a loss that starts with the wrong sign cannot turn round any more. Ours is signed. It is also per
        row: the gradient of a set's mean shrinks with the size of the set.
        """
