"""A function of one set becomes a function of a stack: ``torch.vmap`` where that is right, a loop where it is not.

Some functions refuse to be vectorised (they ask for a number, or for a size that depends on the data). Others give
another result under ``vmap`` without a word, so the first stack is compared with single calls.

>>> import torch
>>> largest = OverSets(lambda outputs, targets: (outputs * targets).max(), "largest")
>>> largest(torch.tensor([[1.0, 3.0], [5.0, 2.0]]), torch.tensor([[1, 1], [0, 1]]))
tensor([3., 2.])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from numbers import Real

import numpy as np
import torch
from torch import Tensor

# numbers that one vectorised call may hold per intermediate result: 64 MB in float32
MAX_NUMBERS = 2**24


def sets_at_once(outputs: Tensor) -> int:
    """How many sets of a stack to evaluate together when a function may compare all pairs of a set."""
    return max(1, MAX_NUMBERS // max(outputs[0].numel(), outputs.shape[1] ** 2))


class OverSets:
    """``fn(outputs, targets)`` of one set, evaluated on stacks: ``[S, N, ...], [S, N, ...] -> [S]``.

    ``loops_because`` says why the function is not to be vectorised at all. The first loop over more than one set
    warns, once.
    """

    def __init__(self, fn: Callable[[Tensor, Tensor], object], name: str, *, loops_because: str | None = None) -> None:
        self.fn = fn
        self.name = name
        self.loops_because = loops_because
        self._is_checked = False
        self._has_warned = False

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) > 1 and self.loops_because is None:
            values = self._vectorized(outputs, targets)
            if values is not None:
                return values
        return self.loop(zip(outputs, targets))

    def loop(self, sets: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        """One call per set; the sets may differ in size."""
        values = [self._one(outputs, targets) for outputs, targets in sets]
        if len(values) > 1 and not self._has_warned:
            self._has_warned = True
            because = self.loops_because or "targets are left out, which makes the sets differ in size"
            warnings.warn(f"{self.name} is evaluated set by set, which is slow: {because}.", stacklevel=3)
        return torch.stack(values)

    def _vectorized(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """``[S]``, or None and a reason in ``loops_because``."""
        try:
            with warnings.catch_warnings():
                # an operation without a batching rule is looped inside: slower, not wrong
                warnings.filterwarnings("ignore", message="There is a performance drop")
                values = torch.vmap(self._one, chunk_size=sets_at_once(outputs))(outputs, targets)
        except Exception as error:  # whatever the user's function raises: if the fault is its own, the loop shows it
            self.loops_because = f"torch.vmap failed with {type(error).__name__}: {str(error).strip().splitlines()[0]}"
            return None
        if not self._is_checked:
            picks = torch.linspace(0, len(outputs) - 1, min(len(outputs), 4)).round().long().tolist()
            alone = torch.stack([self._one(outputs[pick], targets[pick]) for pick in picks])
            tolerance = torch.finfo(alone.dtype).eps ** 0.5
            if not torch.allclose(values[picks], alone, rtol=tolerance, atol=tolerance, equal_nan=True):
                self.loops_because = "under torch.vmap it gives other results than alone"
                return None
            self._is_checked = True
        return values

    def _one(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # copies: a function may write to what it is given, and the caller's predictions are not its own
        result = self.fn(outputs.clone(), targets.clone())
        # float32 at least: a result in bfloat16 has three digits
        dtype = torch.promote_types(outputs.dtype, torch.float32)
        if isinstance(result, Tensor) and result.numel() == 1 and not result.is_complex():
            return result.reshape(()).to(device=outputs.device, dtype=dtype)
        if isinstance(result, (Real, np.generic)) or (isinstance(result, np.ndarray) and result.size == 1):
            return torch.tensor(float(result), device=outputs.device, dtype=dtype)
        came = f"a tensor of the shape {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
        raise ValueError(f"{self.name} gave {came} for one set; a single real number works.")
