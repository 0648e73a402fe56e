"""All swaps of a sorted row at once, in time linear in its length: n items have n² swaps, but few kinds of change.

Let the items at positions r < q of a row change places. If items of equal target are interchangeable, a class ``b``
comes to the upper position r and a class ``a`` to the lower position q. In between nothing moves: only what the code
has *counted* on its way down differs there, by the same amount from r to q. So a tensor in sorted order has three
values per position and class, as long as code gathers, computes element by element, and counts (``cumsum``):

- ``upper [C, *shape]``: at the upper position, if class b comes there;
- ``lower [C, *shape]``: at the lower position, if class a comes there;
- ``between [P, *shape]``: in between, if a (above) and b (below) change places, for all P pairs of different classes.

A sum over positions makes the gain of a swap (r, q) a function of r plus a function of q: :class:`SwapGains`.
Everything else raises :class:`~lossmith.tracing.lanes.Unsupported`.

Shape legend: ``C`` classes, ``P = C (C - 1)`` ordered pairs of them, ``*rows`` sorted rows, ``D`` positions of a row.

>>> fork = SortedFork(torch.tensor([2, 0, 1]))
>>> relevance = torch.tensor([0, 1, 1])[fork.index()]  # 1, 0, 1 from first to last
>>> precision = relevance.cumsum(0) / torch.tensor([1, 2, 3])
>>> average_precision = (precision * relevance).sum() / 2
>>> gains = fork.gains(torch.autograd.grad(average_precision, fork.all_weights()))
>>> gains.of_pairs(torch.tensor([0, 1]), torch.tensor([1, 2]))  # 5/6 becomes 7/12, or 1
tensor([-0.2500,  0.1667], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lossmith.tracing.arguments import leaves, map_leaves
from lossmith.tracing.lanes import Lanes, Unsupported
from lossmith.tracing.operations import (
    ABOUT_THE_TENSOR,
    ELEMENTWISE,
    LINEAR,
    dims_along,
    is_in_place,
    plain_name,
)
from lossmith.tracing.scores import Score

MAX_CLASSES = 8


@dataclass(frozen=True, eq=False)
class SwapGains:
    """What every swap of a row is worth."""

    labels: Tensor
    """``[*rows, D]``: the class at each position."""
    upper: Tensor
    """``[C, *rows, D]``: if class b comes to an upper position; ``lower``: if class a comes to a lower one."""
    lower: Tensor
    passed: Tensor
    """``[P, *rows, D]``: all positions down to here being between two that change places."""

    def of_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """``[L, *rows]``: gains of the swaps of positions ``first[l] < second[l]``."""
        above, below = (self.labels[..., position].movedim(-1, 0) for position in (first, second))
        upper, lower = (
            each[..., position].movedim(-1, 1).gather(0, label.unsqueeze(0)).squeeze(0)
            for each, position, label in ((self.upper, first, below), (self.lower, second, above))
        )
        pair = _pair(above, below, len(self.upper)).unsqueeze(0)
        until, since = (
            self.passed[..., position].movedim(-1, 1).gather(0, pair).squeeze(0) for position in (second - 1, first)
        )
        return (upper + lower + until - since).where(above != below, 0)

    def of_classes(self, above: int, below: int) -> tuple[Tensor, Tensor]:
        """``[*rows, D]`` twice: a swap of an item of one class, above, with one of the other is worth their sum."""
        passed = self.passed[int(_pair(torch.tensor(above), torch.tensor(below), len(self.upper)))]
        before = F.pad(passed[..., :-1], (1, 0))
        return self.upper[below] - passed, self.lower[above] + before


@dataclass(eq=False)
class SortedFork:
    """What the tensors of one run share."""

    order: Tensor
    """``[*rows, D]``"""
    labels: Tensor | None = None
    """``[*rows, D]``: the class at each position."""
    weights: tuple[Tensor, Tensor, Tensor] | None = None
    """Of upper, lower and between: zeros that ask for a gradient."""
    _class_of_item: Tensor | None = None
    _item_of_class: Tensor | None = None

    def index(self) -> SortedIndex:
        """What the code sees of the order."""
        return SortedIndex.of(self.order, self)

    def gather(self, values: Tensor) -> Swapped:
        """Values of items, ``[*rows, D]`` or ``[D]``, in sorted order. The first ones say what the classes are."""
        values = values.expand(self.order.shape)
        is_first = self._class_of_item is None
        if self._class_of_item is None or self._item_of_class is None:
            self._class_of_item, self._item_of_class = self._classify(values)
        by_class = values.reshape(-1)[self._item_of_class]
        if not is_first and not torch.equal(by_class[self._class_of_item], values):
            raise Unsupported("items of one target differ")
        comes = by_class.view(-1, *(1 for _ in self.order.shape))
        return Swapped(self, values.gather(-1, self.order), upper=comes, lower=comes)

    def _classify(self, values: Tensor) -> tuple[Tensor, Tensor]:
        classes, class_of_item = torch.unique(values, return_inverse=True)
        num = len(classes)
        if num > MAX_CLASSES:
            raise Unsupported(f"{num} different targets")
        self.labels = class_of_item.gather(-1, self.order)
        shapes = (num,), (num,), (num * (num - 1),)
        upper, lower, between = (
            torch.zeros(*shape, *self.order.shape, dtype=_exact(values), device=values.device, requires_grad=True)
            for shape in shapes
        )
        self.weights = upper, lower, between
        each = torch.arange(class_of_item.numel(), device=values.device)
        return class_of_item, each.new_empty(num).scatter_(0, class_of_item.flatten(), each)

    def all_weights(self) -> list[Tensor]:
        return [] if self.weights is None else list(self.weights)

    def gains(self, gradients: Sequence[Tensor | None]) -> SwapGains:
        """From the gradients of the metric's value with respect to all weights."""
        assert self.labels is not None, "nothing was gathered"
        upper, lower, between = (
            torch.zeros_like(weight) if gradient is None else gradient
            for weight, gradient in zip(self.all_weights(), gradients)
        )
        return SwapGains(self.labels, upper, lower, between.cumsum(-1))


class SortedIndex(torch.Tensor):
    """The order itself, or its first positions: code may gather by it."""

    fork: SortedFork
    is_score = False

    @staticmethod
    def of(order: Tensor, fork: SortedFork) -> SortedIndex:
        self = order.as_subclass(SortedIndex)
        self.fork = fork
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return propagate_sorted(func, args, kwargs or {})


class SortedLanes(torch.Tensor):
    """As a tensor it is what happened. Its last dimension runs along positions."""

    swapped: Swapped
    is_score = False

    @staticmethod
    def of(swapped: Swapped) -> SortedLanes:
        self = swapped.natural.detach().as_subclass(SortedLanes)
        self.swapped = swapped
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return propagate_sorted(func, args, kwargs or {})


@dataclass(frozen=True, eq=False)
class Swapped:
    """What happened to a tensor, and what would have under all swaps. None: the same.

    Element j of the last dimension is at position ``start + step * j``.
    """

    fork: SortedFork
    natural: Tensor
    upper: Tensor | None = None
    lower: Tensor | None = None
    between: Tensor | None = None
    start: int = 0
    step: int = 1
    is_count: bool = False
    """Counted from the top: ``between`` holds from the upper position to the one before the lower, whatever stands
    there; ``upper`` and ``lower`` are not given."""

    @property
    def slots(self) -> tuple[Tensor | None, ...]:
        return self.upper, self.lower, self.between

    def map(self, of_each: Callable[[Tensor], Tensor], **changes: Any) -> Swapped:
        upper, lower, between = (None if slot is None else of_each(slot) for slot in self.slots)
        return replace(self, natural=of_each(self.natural), upper=upper, lower=lower, between=between, **changes)

    def seen_from(self, start: int) -> Swapped:
        """All three slots, if element j is said to be at ``start + step * j``: a count may be of those before it."""
        if not self.is_count:
            if start != self.start:
                raise Unsupported("positions do not match")
            return self
        if self.between is None or self.fork.weights is None or start - self.start not in (0, 1):
            raise Unsupported("positions do not match")
        here = replace(self, start=start, is_count=False)
        num_classes = len(self.fork.weights[0])
        if num_classes == 2:  # an item changes places with one of the other class
            return (
                replace(here, upper=self.between.flip(0)) if start == self.start else replace(here, lower=self.between)
            )
        labels = here.labels()
        each = torch.arange(num_classes, device=labels.device).view(-1, *(1 for _ in labels.shape))
        # whoever is there is above the one that comes from below, and the other way round
        pair = _pair(labels, each, num_classes) if start == self.start else _pair(each, labels, num_classes)
        slot = torch.take_along_dim(self.between, pair, 0)
        return replace(here, upper=slot) if start == self.start else replace(here, lower=slot)

    def labels(self) -> Tensor:
        labels, length = self.fork.labels, self.natural.shape[-1]
        assert labels is not None
        if (self.start, self.step, length) == (0, 1, labels.shape[-1]):
            return labels
        position = self.start + self.step * torch.arange(length, device=labels.device)
        return labels[..., position.clamp(0, labels.shape[-1] - 1)]

    def summed(self) -> Tensor:
        """An ordinary tensor from here on, with gradients with respect to the weights."""
        assert self.fork.weights is not None
        seen = self.seen_from(self.start)
        result: Tensor = _Summed.apply(  # type: ignore[no-untyped-call]
            *self.fork.weights, seen.natural, *seen.slots, self.start, self.step
        )
        return result


def propagate_sorted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name, plain = func.__name__, plain_name(func.__name__)
    tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if name == "__get__" and func.__self__.__name__ == "data":
        return args[0]
    if name in ABOUT_THE_TENSOR or (name == "__get__" and func.__self__.__name__ not in ("T", "mT")):
        args, kwargs = map_leaves(_natural, (args, kwargs))
        return func(*args, **kwargs)
    if is_in_place(name):
        raise Unsupported(name)
    if any(isinstance(tensor, SortedIndex) for tensor in tensors):
        return _by_index(func, plain, args, kwargs)
    if plain in ("trapezoid", "trapz"):
        return _trapezoid(*args, **kwargs)
    if plain in LINEAR - {"cumsum"} or any(type(tensor) is Tensor and tensor.requires_grad for tensor in tensors):
        return _summed(func, plain, args, kwargs)
    if plain in ELEMENTWISE:
        return SortedLanes.of(_elementwise(func, tensors, args, kwargs))
    if plain in ("cat", "concat"):
        return _concatenated(*args, **kwargs)
    if not isinstance(args[0], SortedLanes):
        raise Unsupported(name)
    swapped = args[0].swapped
    if plain == "getitem":
        return _indexed(swapped, args[1])
    if plain == "cumsum" and dims_along(plain, args, kwargs, args[0].dim()) == [args[0].dim() - 1]:
        return SortedLanes.of(_counted(swapped))
    if plain in ("cummax", "cummin") and swapped.is_count:
        # a count never falls: its maximum so far repeats what ties have cleared
        natural = func(swapped.natural, *args[1:], **kwargs)
        so_far = swapped.map(lambda each: func(each, *args[1:], **kwargs)[0])
        return type(natural)((SortedLanes.of(so_far), natural[1]))
    if plain == "gather" and args[1] in (-1, args[0].dim() - 1):
        return _indexed(swapped, (..., args[2]))
    if plain == "flip" and dims_along(plain, args, kwargs, args[0].dim()) == [args[0].dim() - 1]:
        last = swapped.start + swapped.step * (swapped.natural.shape[-1] - 1)
        return SortedLanes.of(swapped.map(lambda each: each.flip(-1), start=last, step=-swapped.step))
    if plain == "pad" and len(args[1]) == 2:
        widened = swapped.map(lambda each: func(each.expand(*each.shape[:-1], args[0].shape[-1]), *args[1:], **kwargs))
        return SortedLanes.of(replace(widened, start=swapped.start - swapped.step * args[1][0]))
    raise Unsupported(name)


def _by_index(func: Any, plain: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, *rest = args
    if isinstance(values, SortedIndex):
        order = func(values.as_subclass(Tensor), *rest, **kwargs)
        is_start = plain in ("narrow", "getitem", "movedim", "clone", "contiguous", "detach", "to", "long")
        if is_start and torch.equal(order, values.fork.order[..., : order.shape[-1]]):
            return SortedIndex.of(order, values.fork)
        raise Unsupported(plain)
    index = next(leaf for leaf in leaves((rest, kwargs)) if isinstance(leaf, SortedIndex))
    if isinstance(values, Score):
        args, kwargs = map_leaves(_natural, (args, kwargs))
        return func(*args, **kwargs)
    is_along_last = plain in ("gather", "take_along_dim", "index_select") and index.dim() - 1 in dims_along(
        "gather", (values, *[each for each in rest if isinstance(each, int)]), {}, index.dim()
    )
    if not is_along_last and not (plain == "getitem" and rest[0] is index and values.dim() == index.dim() == 1):
        raise Unsupported(plain)
    return _indexed(index.fork.gather(values), (..., slice(0, index.shape[-1])))


def _elementwise(func: Any, tensors: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Swapped:
    operands = [tensor.swapped for tensor in tensors if isinstance(tensor, SortedLanes)]
    if any(each.fork is not operands[0].fork for each in operands) or any(
        isinstance(tensor, Lanes) for tensor in tensors
    ):
        raise Unsupported("two decisions meet")
    first = operands[0]
    num_dims = max(tensor.dim() for tensor in tensors)
    if any(each.step != first.step or each.natural.dim() != num_dims for each in operands):
        raise Unsupported("positions do not match")
    starts = {each.start for each in operands}
    is_count = len(starts) == 1 and all(each.is_count for each in operands)
    start = (
        max(starts)
        if all(each.is_count for each in operands)
        else next(each.start for each in operands if not each.is_count)
    )
    seen = operands if is_count else [each.seen_from(start) for each in operands]

    def with_slot(slot: str) -> Any:
        following = iter(seen)

        def value_of(leaf: Any) -> Any:
            if not isinstance(leaf, SortedLanes):
                return leaf.detach() if isinstance(leaf, Score) else leaf
            each = next(following)
            value = getattr(each, slot)
            return each.natural if value is None else value

        slot_args, slot_kwargs = map_leaves(value_of, (args, kwargs))
        result, first = func(*slot_args, **slot_kwargs), slot_args[0]
        # `.float()` does not take digits from a count
        is_rounded = (
            isinstance(first, Tensor) and result.is_floating_point() and first.dtype == torch.float64 != result.dtype
        )
        return first if is_rounded else result

    slots = {
        slot: with_slot(slot)
        for slot in ("upper", "lower", "between")
        if any(getattr(each, slot) is not None for each in seen)
    }
    return Swapped(first.fork, with_slot("natural"), **slots, start=start, step=first.step, is_count=is_count)


def _counted(swapped: Swapped) -> Swapped:
    """``cumsum`` over positions: in between, one of class b more and one of class a less has been counted."""
    comes = swapped.upper
    if comes is None or comes.shape[-1] != 1 or swapped.between is not None or swapped.is_count:
        raise Unsupported("cumsum of what depends on the position")
    comes = comes.to(_exact(comes))
    # from the bottom up it is the other way round, and starts behind the upper position
    above, below = (~torch.eye(len(comes), dtype=torch.bool, device=comes.device)).nonzero().unbind(1)
    more, start = comes[below] - comes[above], swapped.start
    if swapped.step == -1:
        more, start = -more, start - 1
    natural = swapped.natural.to(comes.dtype).cumsum(-1)
    return Swapped(swapped.fork, natural, between=natural + more, start=start, step=swapped.step, is_count=True)


def _indexed(swapped: Swapped, index: Any) -> Any:
    along = index[-1] if isinstance(index, tuple) else index
    if (isinstance(index, tuple) and index[:-1] not in ((), (Ellipsis,))) or (
        (not isinstance(index, tuple) or len(index) == 1) and swapped.natural.dim() > 1
    ):
        raise Unsupported("getitem")
    length = swapped.natural.shape[-1]
    if isinstance(along, int):
        if not swapped.is_count:
            raise Unsupported("getitem")
        return swapped.natural[..., along]  # a count at either end: all, or none
    if isinstance(along, slice):
        first, last, stride = along.indices(length)
        if stride != 1:
            raise Unsupported("getitem")
        if swapped.is_count and last - first == 1:
            return swapped.natural[..., along]
        moved = swapped.map(lambda each: each if each.shape[-1] == 1 else each[..., along])
        return SortedLanes.of(replace(moved, start=swapped.start + swapped.step * first))
    if isinstance(along, Tensor) and not along.is_floating_point() and along.dtype != torch.bool:
        # where ties begin or end: without ties, the positions themselves
        return SortedLanes.of(
            swapped.map(
                lambda each: (
                    each if each.shape[-1] == 1 else each.gather(-1, along.expand(*each.shape[:-1], along.shape[-1]))
                )
            )
        )
    raise Unsupported("getitem")


def _concatenated(tensors: Any, dim: int = 0) -> SortedLanes:
    sorted_lanes = [each for each in tensors if isinstance(each, SortedLanes)]
    if len(sorted_lanes) != 1 or dim not in (-1, sorted_lanes[0].dim() - 1):
        raise Unsupported("cat")
    swapped = sorted_lanes[0].swapped
    length = swapped.natural.shape[-1]

    def joined(each: Tensor) -> Tensor:
        parts = (
            each.expand(*each.shape[:-1], length) if part is sorted_lanes[0] else part.expand(*each.shape[:-1], -1)
            for part in tensors
        )
        return torch.cat(tuple(parts), -1)

    before = sum(part.shape[-1] for part in tensors[: [part is sorted_lanes[0] for part in tensors].index(True)])
    return SortedLanes.of(swapped.map(joined, start=swapped.start - swapped.step * before))


def _trapezoid(height: Tensor, at: Tensor, *, dim: int = -1) -> Tensor:
    if dim not in (-1, height.dim() - 1):
        raise Unsupported("trapezoid")
    return ((at[..., 1:] - at[..., :-1]) * (height[..., 1:] + height[..., :-1])).sum(-1) / 2


def _summed(func: Any, plain: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dtype = next(_exact(leaf.swapped.natural) for leaf in leaves((args, kwargs)) if isinstance(leaf, SortedLanes))

    def value_of(leaf: Any) -> Any:
        if isinstance(leaf, SortedLanes):
            return leaf.swapped.summed()
        if isinstance(leaf, torch.dtype):
            return dtype
        return leaf.to(dtype) if isinstance(leaf, Tensor) and plain in LINEAR else leaf

    args, kwargs = map_leaves(value_of, (args, kwargs))
    return func(*args, **kwargs)


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        weights, (natural, *slots), (start, step) = arguments[:3], arguments[3:7], arguments[7:]
        natural = torch.as_tensor(natural, dtype=weights[0].dtype)
        ctx.save_for_backward(natural, *slots)
        ctx.num_positions, ctx.start, ctx.step = weights[0].shape[-1], start, step
        return natural.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        natural, *slots = ctx.saved_tensors
        changes = (None if slot is None else (slot - natural) * gradients[0] for slot in slots)
        placed = (
            None if change is None else _placed(change, ctx.start, ctx.step, ctx.num_positions) for change in changes
        )
        return (*placed, *(None,) * 6)


def _pair(above: Tensor, below: Tensor, num_classes: int) -> Tensor:
    """Number of an ordered pair of classes; of two equal ones any number."""
    return (above * (num_classes - 1) + below - (below > above).long()).clamp(max=num_classes * (num_classes - 1) - 1)


def _placed(change: Tensor, start: int, step: int, num_positions: int) -> Tensor:
    """``[..., elements]`` to ``[..., D]``: each element to its position; what is before the first or behind the last
    position is counted, and never changes.
    """
    if step == -1:
        start, change = start - change.shape[-1] + 1, change.flip(-1)
    before, behind = start, num_positions - start - change.shape[-1]
    return F.pad(change, (before, behind))


def _exact(tensor: Tensor) -> torch.dtype:
    """Counts of a million and their inverses need more than seven digits; Apple's GPUs have no more."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def _natural(leaf: Any) -> Any:
    if isinstance(leaf, SortedLanes):
        return leaf.swapped.natural
    return leaf.as_subclass(Tensor) if isinstance(leaf, SortedIndex) else leaf
