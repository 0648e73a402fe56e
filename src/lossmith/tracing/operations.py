"""Kinds of torch operations, by name: what the tracer has to know about each is how it treats rows.

A name stands for the function, the method, the operator and the one in place: ``add`` for ``torch.add``, ``add_``,
``__radd__`` and ``__iadd__``.

>>> plain_name("__iadd__"), plain_name("masked_fill_"), is_in_place("masked_fill_")
('add', 'masked_fill', True)
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# name of the operator without its underscores -> does it decide that its first argument is larger, or smaller?
COMPARISONS = {"gt": 1, "greater": 1, "ge": 1, "greater_equal": 1, "lt": -1, "less": -1, "le": -1, "less_equal": -1}

ELEMENTWISE = frozenset(
    """abs absolute add addcdiv addcmul and atan2 bfloat16 bitwise_and bitwise_not bitwise_or bitwise_xor bool bucketize
    byte ceil char clamp clamp_max clamp_min clip clone contiguous copysign cos cpu cuda detach div divide double eq erf
    exp exp2 expm1 fix float floor floor_divide floordiv fmax fmin fmod frac half heaviside hypot int invert isclose
    isfinite isin isinf isnan lerp log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit
    long lshift masked_fill maximum minimum mod mul multiply nan_to_num ne neg negative not_equal or positive pow rand
    rdiv reciprocal relu remainder rfloordiv rmod rmul ror round rpow rshift rsqrt rsub rtruediv rxor radd sgn short
    sigmoid sign sin softplus sqrt square sub subtract tanh to true_divide truediv trunc type type_as where xlogy
    xor""".split()
) | frozenset(COMPARISONS)

SHAPES = frozenset(
    """broadcast_to cat chunk concat diagonal expand expand_as flatten getitem hstack movedim moveaxis narrow permute
    ravel repeat reshape reshape_as roll select split split_with_sizes squeeze stack swapaxes t tile transpose tril triu
    unbind unflatten unfold unsqueeze view view_as vstack""".split()
)

# operations along a dimension: position of that argument, and what it is when it is not given (None: all dimensions)
ALONG: Mapping[str, tuple[int, int | None]] = (
    dict.fromkeys(
        "all amax amin any argmax argmin count_nonzero logsumexp max mean median min nanmean".split(), (1, None)
    )
    | dict.fromkeys("nansum prod std std_mean sum var var_mean".split(), (1, None))
    | dict.fromkeys("argsort cummax cummin cumprod cumsum flip gather index_select log_softmax".split(), (1, -1))
    | dict.fromkeys("logcumsumexp scatter scatter_add softmax sort".split(), (1, -1))
    | dict.fromkeys("diff kthvalue topk".split(), (2, -1))
    | dict.fromkeys("linalg_vector_norm norm take_along_dim vector_norm".split(), (2, None))
)

LINEAR = frozenset("bmm cumsum dot einsum inner matmul mean mm mv nanmean nansum sum tensordot trace".split())

# these want one definite value: a branch of the code, a number, a list, a size
READS = frozenset(
    """__array__ __bool__ __complex__ __contains__ __float__ __index__ __int__ allclose equal histc is_nonzero
    masked_select nonzero numpy repeat_interleave tolist unique unique_consecutive""".split()
)

ABOUT_THE_TENSOR = frozenset(
    """__format__ __hash__ __len__ __repr__ _is_view dim element_size empty_like full_like get_device is_complex
    is_contiguous is_floating_point is_signed is_tensor ndimension nelement new_empty new_full new_ones new_tensor
    new_zeros numel ones_like requires_grad_ result_type size storage_offset stride zeros_like""".split()
)

RANDOM = frozenset(
    """bernoulli bernoulli_ dropout multinomial normal normal_ poisson rand rand_like randint randint_like randn
    randn_like random_ randperm uniform_""".split()
)

_ASSIGNMENTS = frozenset("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split())


@functools.cache
def plain_name(name: str) -> str:
    plain = name.strip("_")
    return plain[1:] if plain in _ASSIGNMENTS else plain


@functools.cache
def is_in_place(name: str) -> bool:
    return name == "__setitem__" or name.strip("_") in _ASSIGNMENTS or (name[-1] == "_" and name[-2:] != "__")


def out_of_place(name: str) -> Any:
    """The method that gives what the one in place would have made of its first argument."""
    if name == "__setitem__":
        return assigned
    if name in ("fill_", "zero_", "copy_"):
        return filled
    plain = f"__{plain_name(name)}__" if name.startswith("__") else plain_name(name)
    found = getattr(Tensor, plain, None)
    if found is not None:
        return found

    def changed(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(tensor.clone(), name)(*args, **kwargs)

    # torch has it in place only, as fill_diagonal_
    changed.__name__ = plain
    return changed


def assigned(tensor: Tensor, index: Any, value: Any) -> Tensor:
    copy = tensor.clone()
    copy[index] = value
    return copy


def filled(tensor: Tensor, value: Any = 0, non_blocking: bool = False) -> Tensor:
    copy: Tensor = torch.zeros_like(tensor) + value
    return copy


def dims_along(plain: str, args: tuple[Any, ...], kwargs: dict[str, Any], num_dims: int) -> list[int]:
    """The dimensions that an operation of :data:`ALONG` works along, from 0 on."""
    position, default = ALONG[plain]
    dims = kwargs.get("dim", kwargs.get("axis", kwargs.get("dims")))
    if dims is None:
        dims = args[position] if len(args) > position else default
    if dims is None or num_dims == 0:
        return list(range(num_dims))
    return [dim % num_dims for dim in ([dims] if isinstance(dims, int) else dims)]
