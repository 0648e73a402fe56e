"""Ranks and rank correlations, exact and differentiable, over stacks of sets.

Exact: equal values share the average of their ranks. Soft: the same rank, blurred. A rank counts the values below; in
a soft rank, a value that is ``d`` below counts with the probability ``P(noise < d / temperature)`` of the Laplace
distribution, instead of 0 or 1. Distances are in standard deviations of the set: scale and shift do not matter. So

    soft rank = exact rank - 1/2 * (sum over the values below of e^-(d / temperature) - the same sum over those above)

and over sorted values such sums take O(N), as do their derivatives (:func:`decaying_sums`).

The last dimension holds the ``N`` values of one set; dimensions in front of it are a stack.

>>> average_rank(torch.tensor([30.0, 10.0, 30.0, 20.0]))
tensor([3.5000, 1.0000, 3.5000, 2.0000])
>>> losses, costs = torch.tensor([0.9, 0.2, 0.4], requires_grad=True), torch.tensor([0.5, 0.1, 0.3])
>>> spearman(losses, costs)
tensor(1.)
>>> (1 - soft_spearman(losses, costs, temperature=1.0)).backward()  # what learning a loss minimises
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["PairCounts", "average_rank", "kendall", "pair_counts", "soft_rank", "soft_spearman", "spearman"]


# ---- exact


def average_rank(x: Tensor) -> Tensor:
    """Ranks from 1 on, in the shape of ``x``; equal values share their average. A set with a NaN has NaN ranks.

    In float32, or in float64 where ``x`` is. They have no gradient.
    """
    _check(x)
    x = x.detach()
    ordered, order = _sort(x)
    run, run_sizes = _runs(_is_new(ordered))
    # a run of equal values ends at the rank that is the number of values up to there
    twice_rank = run_sizes.cumsum(-1) * 2 - run_sizes + 1
    rank_in_order = twice_rank.gather(-1, run).to(_float_dtype(x)).div_(2)
    rank = torch.empty_like(rank_in_order).scatter(-1, order, rank_in_order)  # not in place: vmap cannot do that
    return rank.masked_fill(_has_nan(x), torch.nan)


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's rank correlation, ``[..., N] -> [...]``; NaN where ``a`` or ``b`` is constant or holds a NaN."""
    _check(a, b)
    a, b = _centred(average_rank(a)), _centred(average_rank(b))
    return ((a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()).clamp(-1, 1)


def kendall(a: Tensor, b: Tensor) -> Tensor:
    """Kendall's tau-b, ``[..., N] -> [...]``, in O(N log N); NaN where ``a`` or ``b`` is constant or holds a NaN."""
    counts = pair_counts(a, b)
    num_pairs = a.shape[-1] * (a.shape[-1] - 1) // 2
    dtype = torch.promote_types(_float_dtype(a), _float_dtype(b))
    excess = (counts.concordant - counts.discordant).to(dtype)
    untied_in_a, untied_in_b = (num_pairs - counts.tied_in_a).to(dtype), (num_pairs - counts.tied_in_b).to(dtype)
    tau = (excess / (untied_in_a * untied_in_b).sqrt()).clamp(-1, 1)
    return tau.masked_fill((_has_nan(a) | _has_nan(b)).squeeze(-1), torch.nan)


class PairCounts(NamedTuple):
    """Of the ``N (N - 1) / 2`` pairs of a set, how many are what; one that is tied in both counts as tied twice."""

    concordant: Tensor
    discordant: Tensor
    tied_in_a: Tensor
    tied_in_b: Tensor


def pair_counts(a: Tensor, b: Tensor) -> PairCounts:
    """The pairs that ``a`` and ``b``, free of NaN, put in the same order, in opposite orders, or in none: ``[...]``."""
    _check(a, b)
    ordered_b, order = _sort(b)
    tied_in_b = _tied_pairs(_is_new(ordered_b))
    # stable: now sorted by a and, where a is tied, by b, so that only discordant pairs are out of order in b
    order = order.gather(-1, _sort(a.gather(-1, order))[1])
    a, b = a.gather(-1, order), b.gather(-1, order)
    is_new_in_a = _is_new(a)
    tied_in_a, tied_in_both = _tied_pairs(is_new_in_a), _tied_pairs(is_new_in_a | _is_new(b))
    discordant = _inversions(_sort(b)[1])
    num_pairs = a.shape[-1] * (a.shape[-1] - 1) // 2
    concordant = num_pairs - tied_in_a - tied_in_b + tied_in_both - discordant
    return PairCounts(concordant, discordant, tied_in_a, tied_in_b)


def _inversions(permutation: Tensor) -> Tensor:
    """How many pairs of a permutation of ``0 ... N - 1`` are out of order.

    From the highest bit to the lowest, values are parted by that bit and keep their order otherwise. Before the turn
    of a bit, each block of twice its size holds the values that agree in all higher bits, half of them with the bit. A
    pair is out of order where, inside a block, a value with the bit stands in front of one without.
    """
    num_bits = (permutation.shape[-1] - 1).bit_length()
    position = torch.arange(2**num_bits, device=permutation.device)
    # a power of two long, with values at the end that are in order
    padding = position[permutation.shape[-1] :].expand(*permutation.shape[:-1], -1)
    values = torch.cat([permutation, padding], -1)
    count = torch.zeros_like(values[..., 0])
    for bit in reversed(range(num_bits)):
        half = 1 << bit
        start = position & -2 * half  # of the block
        has_bit = (values >> bit).bitwise_and_(1)
        num_before = has_bit.cumsum(-1).sub_(has_bit).sub_(start >> 1)  # with the bit, in the same block
        # less what those with the bit have before them: 0, 1, ... half - 1 in each block
        count += num_before.sum(-1) - len(position) * (half - 1) // 4
        # the new position is start + half + num_before with the bit, position - num_before without
        # (in place because fresh memory costs more than arithmetic here, and without the slower torch.where)
        to_upper_half = (2 * num_before).add_(start + half - position).mul_(has_bit)
        values = torch.empty_like(values).scatter_(-1, to_upper_half.add_(position).sub_(num_before), values)
    return count


def _is_new(ordered: Tensor) -> Tensor:
    """True where a run of equal values begins."""
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return is_new


def _runs(is_new: Tensor) -> tuple[Tensor, Tensor]:
    """For each value the number of its run from 0 on, and for each run its size (0 behind the last run)."""
    run = is_new.cumsum(-1) - 1
    return run, torch.zeros_like(run).scatter_add_(-1, run, torch.ones_like(run))


def _tied_pairs(is_new: Tensor) -> Tensor:
    _, sizes = _runs(is_new)
    return (sizes * (sizes - 1)).sum(-1) // 2


# ---- soft

MIN_TEMPERATURE = 1e-6
"""Below, float32 has nothing left to blur, and in the end distances overflow."""


def soft_rank(x: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Differentiable ranks from 1 on, in the shape of ``x``; the :func:`average_rank` as ``temperature`` goes to 0.

    ``temperature`` is the width of the blur in standard deviations of the set, whatever its size or scale. A constant
    set has equal ranks and no gradient; one with a NaN or an infinite value has NaN ranks. 16-bit input gives float32,
    because ranks beyond 256 do not fit into bfloat16.
    """
    _check(x)
    if not temperature >= MIN_TEMPERATURE:
        raise ValueError(f"temperature={temperature}; {MIN_TEMPERATURE} or more works (for exact ranks: average_rank).")
    z = _standardised(x.to(_float_dtype(x))) / temperature
    _, order = _sort(z.detach())
    weight = torch.ones_like(z)
    below, above = decaying_sums(z.gather(-1, order), weight, weight)
    position = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    return torch.empty_like(z).scatter(-1, order, position - (below - above) / 2)


def soft_spearman(a: Tensor, b: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Correlation of the soft ranks of ``a`` with the exact ranks of ``b``, ``[..., N] -> [...]``.

    ``b`` is the order to learn, such as the values of a metric, and gets no gradient. Where ``a`` or ``b`` is constant
    there is nothing to learn: 0, and no gradient.
    """
    _check(a, b)
    soft, exact = _centred(soft_rank(a, temperature=temperature)), _centred(average_rank(b))
    return torch.nn.functional.cosine_similarity(soft, exact, dim=-1)


def _standardised(x: Tensor) -> Tensor:
    """Distance from the lowest value, in standard deviations; 0 without a gradient in a constant set."""
    half = x / 2  # the distance of two finite numbers need not be finite, that of their halves is
    low, high = half.detach().aminmax(dim=-1, keepdim=True)
    width = high - low
    # of a narrower set the gradient, which goes with 1 / width, would overflow
    is_constant = width <= torch.finfo(x.dtype).tiny / torch.finfo(x.dtype).eps
    # low and width cancel out of the result: no gradient passes through them
    unit = (half - low) / width.masked_fill(is_constant, torch.inf)
    return unit / unit.std(-1, correction=0, keepdim=True).masked_fill(is_constant, 1)


def decaying_sums(z: Tensor, w_below: Tensor, w_above: Tensor) -> tuple[Tensor, Tensor]:
    """What each of the ascending values ``z`` sees below and above it, fading with the distance. O(N), differentiable.

    ``below_i = sum_{j < i} w_below_j e^-(z_i - z_j)`` and ``above_i = sum_{j > i} w_above_j e^-(z_j - z_i)``; values
    that are equal have a place below or above each other, too.
    """
    below, above = _DecayingSums.apply(z, w_below, w_above)  # type: ignore[no-untyped-call]
    return below, above


class _DecayingSums(torch.autograd.Function):
    """The sum below is the transpose of the sum above, so the backward pass is this function again: any order works.

    Autograd through the scan would be less exact: it subtracts sums over all the pairs on both sides of each gap.
    """

    @staticmethod
    def forward(z: Tensor, w_below: Tensor, w_above: Tensor) -> tuple[Tensor, Tensor]:
        below, above = _decaying_sum(torch.stack([z, -z.flip(-1)]), torch.stack([w_below, w_above.flip(-1)]))
        return below, above.flip(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, int]]:
        # sets in front of each other are what the function takes anyway
        stacks = [
            each.expand(info.batch_size, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip(inputs, in_dims)
        ]
        return _DecayingSums.apply(*stacks), (0, 0)  # type: ignore[no-untyped-call]

    @staticmethod
    def backward(ctx: Any, grad_below: Tensor, grad_above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, w_below, w_above, below, above = ctx.saved_tensors
        grad_w_above, grad_w_below = decaying_sums(z, grad_above, grad_below)
        through_below = w_below * grad_w_below - grad_below * below
        through_above = w_above * grad_w_above - grad_above * above
        return through_below - through_above, grad_w_below, grad_w_above


def _decaying_sum(z: Tensor, w: Tensor) -> Tensor:
    """``sum_{j < i} w_j e^-(z_i - z_j)`` for ascending ``z``: over all pairs where they are few, else by halving.

    Halving lets the value at each even place pass its weight on to its right neighbour, solves the odd places alone,
    and fills in the even ones from there. All exponents are distances of neighbours, at every depth, and none is
    positive: nothing overflows, however far the values spread, and rounding does not add up along the set.
    """
    size = z.shape[-1]
    if size == 1 or z.numel() * size <= _MAX_PAIRS:
        decay = (z.unsqueeze(-2) - z.unsqueeze(-1)).clamp_(max=0).exp_().tril_(-1)
        return (decay * w.unsqueeze(-2)).sum(-1)  # not a matrix product: autocast would round it to 16 bits
    num_odd, num_after_odd = size // 2, (size - 1) // 2
    odd, even = z[..., 1::2], z[..., ::2]
    passed_on = (even[..., :num_odd] - odd).exp_().mul_(w[..., : 2 * num_odd : 2])
    weight = w[..., 1::2] + passed_on
    from_pairs_below = _decaying_sum(odd, weight)
    result = torch.zeros_like(w)
    result[..., 1::2] = from_pairs_below + passed_on
    decay = (odd[..., :num_after_odd] - even[..., 1:]).exp_()
    result[..., 2::2] = decay.mul_((from_pairs_below + weight)[..., :num_after_odd])
    return result


_MAX_PAIRS = 2**15
"""Up to here, all pairs of a stack cost less than another halving (`benchmarks/ranking.py`)."""


# ---- both


def _sort(x: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending values and their order, stable."""
    if x.numel() == x.shape[-1] >= _MIN_RADIX and x.device.type == "cpu" and x.dtype in _BITS:
        # torch sorts a long row of integers by radix, several times as fast as floats: sort the floats' bits, with
        # 0 added because -0.0 equals 0.0, and those of negative numbers flipped because they count downwards
        integer = _BITS[x.dtype]
        bits = (x + 0).view(integer).flatten()
        bits = bits ^ (bits >> torch.iinfo(integer).bits - 1 & torch.iinfo(integer).max)
        order = bits.sort(stable=True).indices.view(x.shape)
        return x.gather(-1, order), order
    return x.sort(stable=True)


_MIN_RADIX = 2**15  # where torch switches to radix
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def _centred(rank: Tensor) -> Tensor:
    """Ranks around 0 and between -1 and 1, so that squares of large sets stay small."""
    size = rank.shape[-1]
    return (rank - (size + 1) / 2) / size


def _has_nan(x: Tensor) -> Tensor:
    return x.isnan().any(-1, keepdim=True)


def _float_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def _check(x: Tensor, other: Tensor | None = None) -> None:
    for values in (x, x if other is None else other):
        if not isinstance(values, Tensor) or values.is_complex():
            came = values.dtype if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"{came} came to be ranked; a torch.Tensor of real numbers works (torch.as_tensor).")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"ranks of the shape {tuple(x.shape)} came; [..., N] with at least one value works.")
    if other is not None and other.shape != x.shape:
        raise ValueError(f"a {tuple(x.shape)} and b {tuple(other.shape)} differ in shape; [..., N] twice works.")
