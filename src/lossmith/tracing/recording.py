"""How a metric's own code is watched: every operation on the scores passes by, and decisions can be changed.

Inside :class:`Trace` every tensor that depends continuously on the outputs is a :class:`Score`. An operation on a score
gives a score again, or it is a decision: it is recorded, and what the code sees as its result may be replaced. A run
with every decision replaced by those of another run gives the other run's value: that is an exact replay.

>>> def accuracy(outputs, targets):
...     return ((outputs > 0) == targets).float().mean()
>>> outputs, targets = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([True, True, True])
>>> value, trace = run(accuracy, outputs, targets)
>>> [(decision.operation, decision.outcome.tolist()) for decision in trace.decisions]
[('gt', [True, False, True])]
>>> run(accuracy, outputs, targets, override=lambda number, decision: ~decision.outcome)[0]
tensor(0.3333)
"""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lossmith.tracing.arguments import leaves, map_leaves
from lossmith.tracing.decisions import Decision, Threshold
from lossmith.tracing.lanes import Lanes, Returned, propagate
from lossmith.tracing.operations import ABOUT_THE_TENSOR, COMPARISONS, RANDOM, is_in_place, out_of_place, plain_name
from lossmith.tracing.reading import Finish, Reading, count_boundaries, insertion, read_decision, read_leaving
from lossmith.tracing.scores import Origin, Score, as_score, origin_of
from lossmith.tracing.sorted_lanes import SortedIndex, SortedLanes, propagate_sorted

MetricFunction = Callable[[Tensor, Tensor], Any]
Override = Callable[[int, Decision], Tensor | None]
"""Number of a decision and what was decided -> what the code shall see instead, or None."""

# up to this length a list of scores is a list of tensors; a longer one leaves torch
MAX_LENGTH_OF_LIST = 4096
SAME_SCORE = frozenset("detach detach_ item requires_grad_ __deepcopy__".split())
LEAVES_TORCH = frozenset("__array__ __complex__ __float__ __index__ __int__ numpy tolist".split())
_UNREAD = Threshold("", torch.empty(0), torch.empty(0, dtype=torch.bool))
_OF_TRACING = (str(Path(__file__).parent) + os.sep, str(Path(torch.__file__).parent) + os.sep)
_OF_LIBRARIES = (
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
    str(Path(__file__).parent.parent) + os.sep,
)


def run(
    fn: MetricFunction,
    outputs: Tensor,
    targets: Tensor,
    *,
    override: Override | None = None,
    only: Collection[int] | None = None,
    returns_float: bool = False,
    reading: Reading = Reading.WINNERS,
    wants_sources: bool = False,
) -> tuple[Any, Trace]:
    """The value of the metric, as it comes, and the trace of its run. See :class:`Trace` for the options."""
    trace = Trace(override, only, returns_float, reading, wants_sources)
    try:
        # copies, because code that writes to its arguments must not write to the model's outputs, nor see it twice
        outputs, targets = outputs.clone(), targets.clone()
        with trace:
            value = fn(as_score(outputs), targets)
    except Returned as returned:
        value = returned.value
    except ZeroDivisionError:  # Python's way to say what torch says by a NaN: not defined on this set
        value = torch.nan
    return value, trace


class Trace(TorchFunctionMode):
    """Watches one run of a metric.

    Args:
        override: what the code shall see of a decision.
        only: numbers of the decisions that matter to the caller; others may be counted and not read.
        returns_float: the code ends with ``return float(...)``, which would take lanes and gradients away.
        reading: what scores that leave torch are taken for, see :func:`~lossmith.tracing.reading.read_leaving`.
        wants_sources: note where in the code each decision is.
    """

    def __init__(
        self,
        override: Override | None,
        only: Collection[int] | None,
        returns_float: bool,
        reading: Reading,
        wants_sources: bool,
    ) -> None:
        super().__init__()
        self.override = override
        self.only = only
        self.returns_float = returns_float
        self.reading = reading
        self.wants_sources = wants_sources
        self.decisions: list[Decision] = []
        self.escapes: list[str] = []
        """Where scores left torch: ``operation at file:line``; the next two likewise."""
        self.random_calls: list[str] = []
        self.unread: list[str] = []
        """Operations on scores that are neither continuous nor known as decisions; noted with ``wants_sources``."""
        self.has_gradientless = False
        """One of them gave numbers without a gradient, as ``histc`` does."""
        self.last_float: float | None = None
        # tensors that the code wrote traced values into: id -> (the tensor, kept alive; what it stands for)
        self._rewritten: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name == "_set_grad_enabled":
            return None  # what is computed under no_grad is compared all the same, and comparisons need gradients
        if name in RANDOM:
            self.random_calls.append(f"{name} at {caller()}")
        if self._rewritten:
            args, kwargs = map_leaves(self._current, (args, kwargs))
        traced = _traced(kwargs.values(), _traced(args, []))
        if not traced:
            return self._untraced(func, name, args, kwargs)
        if torch.is_inference_mode_enabled() and not all(_is_whole(tensor) for tensor in traced):
            raise ValueError(
                f"the metric works under torch.inference_mode() at {caller()}, where nothing can be traced; "
                "torch.no_grad() works."
            )
        if name in SAME_SCORE:
            return args[0]
        if name in ("tensor", "as_tensor", "asarray"):
            return _stacked(args[0])
        if name in ("searchsorted", "bucketize"):
            values, boundaries, is_right = insertion(name, args, kwargs)
            if _traced([boundaries], []):
                with self:  # scores among scores: what is watched are the comparisons that are counted
                    return count_boundaries(values, boundaries, is_right)
        in_place = is_in_place(name)
        if not all(isinstance(tensor, Score) for tensor in traced):
            result = self._in_lanes(func, name, args, kwargs, traced)
        elif in_place and isinstance(args[0], Score) and _has_own_memory(args[0]):
            # earlier decisions were taken on what is overwritten here: it is kept
            instead = out_of_place(name)
            result = self._on_scores(instead, instead.__name__, args, kwargs)
        else:
            result = self._on_scores(func, name, args, kwargs)
            if in_place and not isinstance(args[0], Score):
                result = as_score(args[0])
        if in_place and result is not args[0] and isinstance(result, Tensor):
            self._rewritten[id(args[0])] = (args[0], result)
        return result

    def _untraced(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("item", "__float__") and self.override is not None and args[0].requires_grad:
            # a sum over rows, with its gradient
            if name == "item":
                return args[0]
            if self.returns_float:
                raise Returned(args[0])
        result = func(*args, **kwargs)
        if name == "__float__":
            self.last_float = result
        return result

    def _on_scores(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "__get__":
            is_data = func.__self__.__name__ == "data"
            return args[0] if is_data else _marked(func(*args))
        if name in LEAVES_TORCH:
            return self._leave(func, name, args, kwargs)
        plain = plain_name(name)
        if self.only is not None and len(self.decisions) not in self.only and _surely_decides(plain, args[0]):
            self.decisions.append(_UNREAD)
            return _marked(func(*args, **kwargs))
        read = read_decision(func, plain, args, kwargs)
        if read is not None:
            return self._decide(*read)
        result = func(*args, **kwargs)
        if self.wants_sources:
            self._note_unread(name, result)
        return _marked(result, origin_of(func, plain, args, kwargs))

    def _note_unread(self, name: str, result: Any) -> None:
        if name in ABOUT_THE_TENSOR or not torch.is_grad_enabled():
            return
        results = [leaf for leaf in leaves(result) if isinstance(leaf, Tensor)]
        if any(leaf.is_floating_point() and leaf.requires_grad for leaf in results):
            return
        self.has_gradientless |= any(leaf.is_floating_point() for leaf in results)
        self.unread.append(f"{name} at {caller()}")

    def _leave(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        score = args[0]
        if name == "tolist" and score.numel() <= MAX_LENGTH_OF_LIST:
            return _listed(score)
        if name in ("numpy", "__array__") and score.dim() > 0 and self.reading is not Reading.NOTHING:
            scores = self._decide(*read_leaving(score, self.reading))
            if isinstance(scores, Lanes):
                return propagate(func, (scores, *args[1:]), kwargs)
            return func(scores, *args[1:], **kwargs)
        self.escapes.append(f"{name} at {caller()}")
        return func(score.detach(), *args[1:], **kwargs)

    def _decide(self, decision: Decision, finish: Finish) -> Any:
        number = len(self.decisions)
        self.decisions.append(decision)
        if self.wants_sources:
            decision.source = caller()
        outcome = None if self.override is None else self.override(number, decision)
        return _marked(finish(decision.outcome if outcome is None else outcome))

    def _in_lanes(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], traced: list[Tensor]
    ) -> Any:
        is_score = any(isinstance(each, Score) or (isinstance(each, Lanes) and each.is_score) for each in traced)
        if is_score:
            # scores that an earlier decision changed are decided upon in each lane as they are; the count goes on
            in_one_lane = map_leaves(lambda leaf: as_score(leaf.lanes[0]) if isinstance(leaf, Lanes) else leaf, args)
            read = read_decision(func, plain_name(name), in_one_lane, kwargs)
            if read is not None:
                self.decisions.append(read[0])
        if any(isinstance(each, (SortedIndex, SortedLanes)) for each in traced):
            return propagate_sorted(func, args, kwargs)
        return propagate(func, args, kwargs, is_score)

    def _current(self, leaf: Any) -> Any:
        while id(leaf) in self._rewritten:
            leaf = self._rewritten[id(leaf)][1]
        return leaf


def states_of_generators() -> dict[str, int]:
    """Of the global ones outside of torch: they move when code draws from them."""
    of_numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - it is the global one that code draws from
    return {"random": hash(random.getstate()), "numpy.random": hash((of_numpy["key"].tobytes(), of_numpy["pos"]))}


def caller() -> str:
    """``file:line`` of the user's code that is being run, or else of the library that the metric comes from."""
    frame: FrameType | None = sys._getframe(1)
    of_library = ""
    while frame is not None and frame.f_code is not run.__code__:
        file = frame.f_code.co_filename
        if not file.startswith((*_OF_TRACING, "<frozen")):
            if not file.startswith(_OF_LIBRARIES):
                return f"{file}:{frame.f_lineno}"
            of_library = of_library or f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return of_library or "compiled code"


def _traced(tree: Any, found: list[Tensor]) -> list[Tensor]:
    for leaf in tree:
        if isinstance(leaf, Tensor):
            if isinstance(leaf, (Score, Lanes, SortedIndex, SortedLanes)):
                found.append(leaf)
        elif isinstance(leaf, (tuple, list)):
            _traced(leaf, found)
    return found


def _surely_decides(plain: str, score: Any) -> bool:
    is_row = isinstance(score, Tensor) and score.dim() > 0
    return plain in COMPARISONS or (is_row and plain in ("argmax", "argmin", "argsort", "sort", "topk"))


def _has_own_memory(tensor: Tensor) -> bool:
    """Not a part of a larger tensor, which would have to change with it."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _is_whole(tensor: Tensor) -> bool:
    """Lanes that want values alone, and no gradient."""
    return isinstance(tensor, Lanes) and tensor.fork.weights is None and not tensor.is_score


def _marked(result: Any, origin: Origin | None = None) -> Any:
    """Results of operations on scores are scores, where they are continuous."""

    def mark(leaf: Any) -> Any:
        if isinstance(leaf, Lanes):
            leaf.is_score = leaf.lanes.is_floating_point()
        elif isinstance(leaf, Tensor) and leaf.is_floating_point() and not isinstance(leaf, Score):
            return as_score(leaf, origin)
        return leaf

    return mark(result) if isinstance(result, Tensor) else map_leaves(mark, result)


def _listed(score: Tensor) -> Any:
    return [_listed(each) for each in _marked(score.unbind())] if score.dim() else score


def _stacked(values: Any) -> Any:
    if not isinstance(values, (tuple, list)):
        return values if isinstance(values, Tensor) else torch.as_tensor(values)
    return torch.stack([_stacked(value) for value in values])
