"""The loss of all swaps of a sorted row in O(n log n): n²/2 pairs, summed by a few cumulative sums.

The link of a pair depends on ``z = exp(-|difference of scores|)`` alone, and smoothly: a polynomial in z of four terms
is exact to 1e-3. A power of z is ``exp(-m s_r) exp(m s_q)``, a product of a function of one position and a function of
the other, and so is what the swap is worth (:mod:`lossmith.tracing.sorted_lanes`): sums over pairs are cumulative sums.

>>> from lossmith.tracing.links import margin_loss
>>> labels, first, second = torch.tensor([1, 0, 1, 0]), *torch.triu_indices(4, 4, 1)
>>> upper, passed = torch.tensor([[0.0], [1.0]]).expand(2, 4).double(), torch.zeros(2, 4).double()
>>> gains = SwapGains(labels, upper, passed, passed)  # a swap is worth 1 if it brings a positive up, else nothing
>>> scores = torch.tensor([2.0, 1.0, -1.0, -2.0])
>>> direct = margin_loss(scores[second] - scores[first], gains.of_pairs(first, second), beta=0.5)
>>> direct, all_pairs_loss(scores, gains, beta=0.5)  # one pair is in the worse order
(tensor(1.3095, dtype=torch.float64), tensor(1.3091))
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.polynomial import Polynomial, chebyshev
from torch import Tensor

from lossmith.tracing.sorted_lanes import SwapGains

NUM_TERMS = 4
# positions that are summed together, which the processor keeps at hand
CHUNK = 8192
# of exp(), within a chunk: float64 ends at 709
MAX_EXPONENT = 300.0


def all_pairs_loss(scores: Tensor, gains: SwapGains, *, beta: float) -> Tensor:
    """``scores [*rows, D]`` from the first position to the last, in temperatures: the sum over all pairs of
    ``|gain| * link(q)``, q the probability of the better order.

    The sign is that of a pair of classes, not of each swap: for two classes either order is the better one.
    """
    result: Tensor = _AllPairs.apply(scores, gains, beta)  # type: ignore[no-untyped-call]
    return result


class _AllPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, gains: SwapGains, beta: float) -> Tensor:
        x = scores.to(gains.upper.dtype)
        is_counted = None
        if not bool((is_finite := x.isfinite()).all()):
            # what a metric has set to infinity stands first or last, and never changes places
            is_counted = is_finite
            finite = x[is_finite] if bool(is_finite.any()) else x.new_zeros(1)
            x = x.clamp(min=float(finite.amin()), max=float(finite.amax()))
        total, gradient = x.new_zeros(()), torch.zeros_like(x)
        num_classes = len(gains.upper)
        for first in range(num_classes):
            for second in range(first):
                value, slope = _of_classes(x, is_counted, gains, first, second, beta)
                total, gradient = total + value, gradient + slope
        ctx.save_for_backward(gradient.to(scores.dtype))
        return total.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None


def _of_classes(
    x: Tensor, is_counted: Tensor | None, gains: SwapGains, first: int, second: int, beta: float
) -> tuple[Tensor, Tensor]:
    """Loss and its gradient over the pairs of an item of one class and one of the other.

    ``O`` = 2 orders: the first class above, or the second.
    """
    labels = gains.labels
    is_upper = torch.stack((labels == first, labels == second)).to(x.dtype)
    if is_counted is not None:
        is_upper = is_upper * is_counted
    of_orders = gains.of_classes(first, second), gains.of_classes(second, first)
    worth_above, worth_below = (torch.stack(each) for each in zip(*of_orders))
    # a swap is worth the sum of both; [O, 2, *rows, D]: how many items, and what they are worth
    upper = torch.stack((is_upper, worth_above * is_upper), 1)
    is_lower = is_upper.flip(0)
    lower = torch.stack((is_lower, worth_below * is_lower), 1)
    # from the last position up, what comes behind has come before
    lower_up = lower.flip(-1)
    of_lower = _with_partners(lower, upper.cumsum(-1))
    totals = of_lower.flatten(1).sum(1)
    expansions = [_expansion(beta, total > 0) for total in totals.tolist()]
    signs, constants, linears = (x.new_tensor([getattr(each, name) for each in expansions]) for name in _SCALARS)
    rates = [each.rates for each in expansions]
    slopes = [[[rate * power for rate, power in zip(each.rates, each.powers)]] for each in expansions]
    both = [[each.powers, *slope] for each, slope in zip(expansions, slopes)]
    value_before, slope_before = _decayed_sums(upper, x, rates, both).unbind(1)
    slope_behind = _decayed_sums(lower_up, -x.flip(-1), rates, slopes)[:, 0].flip(-1)
    value = constants * totals + _with_partners(lower, value_before).flatten(1).sum(1)
    gradient = _with_partners(lower, slope_before) - _with_partners(upper, slope_behind)
    if beta == 0 and bool(linears.any()):  # the difference of scores itself
        linear = _with_partners(upper, lower_up.cumsum(-1).flip(-1)) - of_lower
        value = value + linears * (linear * x).flatten(1).sum(1)
        gradient = gradient + linear * linears.view(-1, *(1 for _ in x.shape))
    return (signs * value).sum(), torch.tensordot(signs, gradient, 1)


def _with_partners(own: Tensor, partners: Tensor) -> Tensor:
    """For each item the worth of its swaps: its own with each partner, and that of each partner."""
    return own[:, 1] * partners[:, 0] + own[:, 0] * partners[:, 1]


def _decayed_sums(weights: Tensor, x: Tensor, rates: list[list[float]], polynomials: list[list[list[float]]]) -> Tensor:
    """``[O, polynomials, 2, *rows, D]``: at each position the sum of ``weights [O, 2, *rows, D]`` up to it, each times
    a polynomial in z of its distance. ``rates [O][R]`` grow by 1, and have a coefficient each. ``x`` falls along the
    last dimension.
    """
    coefficients = x.new_tensor(polynomials)
    starts = x.new_tensor([each[0] for each in rates]).view(-1, *(1 for _ in x.shape))
    num_rates = len(rates[0])

    def powers_of_z(distance: Tensor) -> Tensor:  # [*rows, d] -> [O, R, 1, *rows, d]
        step, powers = torch.exp(distance), [torch.exp(starts * distance)]
        while len(powers) < num_rates:
            powers.append(powers[-1] * step)
        return torch.stack(powers, 1).unsqueeze(2)

    parts: list[Tensor] = []
    carried, start = x.new_zeros(()), 0
    for end in _chunk_ends(x, max(each[-1] for each in rates)):
        here = x[..., start:end]
        falls = powers_of_z(here - here[..., :1])
        sums = (weights[..., start:end].unsqueeze(1) / falls).cumsum_(-1)
        if start:
            sums += carried
        sums *= falls
        part = torch.bmm(coefficients, sums.flatten(2))
        parts.append(part.view(len(rates), -1, *weights.shape[1:-1], end - start))
        if end < x.shape[-1]:
            carried = sums[..., -1:] * powers_of_z(x[..., end : end + 1] - here[..., -1:])
        start = end
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def _chunk_ends(x: Tensor, rate: float) -> list[int]:
    """Chunks over which no power of z under- or overflows."""
    length = x.shape[-1]
    drop = (x[..., :1] - x).reshape(-1, length).amax(0) * rate
    ends: list[int] = []
    while not ends or ends[-1] < length:
        start = ends[-1] if ends else 0
        allowed = torch.searchsorted(drop, drop[start] + MAX_EXPONENT, right=True)
        ends.append(min(max(int(allowed), start + 1), start + CHUNK, length))
    return ends


@dataclass(frozen=True)
class _Expansion:
    """The link of all pairs of an order: ``sign * (constant + linear * |difference| + sum of powers * z ** rates)``."""

    sign: float
    constant: float
    linear: float
    rates: list[float]
    powers: list[float]


_SCALARS = ("sign", "constant", "linear")


@functools.lru_cache(maxsize=16)
def _expansion(beta: float, improves: bool) -> _Expansion:
    """A swap that does not improve is of a pair in the better order, q = 1 / (1 + z); one that does, of a pair in the
    worse, q = z / (1 + z).
    """

    def fitted(function: Any) -> list[float]:
        nodes = chebyshev.chebinterpolate(lambda t: function((t + 1) / 2), NUM_TERMS - 1)
        in_z: Polynomial = chebyshev.Chebyshev(nodes, domain=[0, 1]).convert(kind=Polynomial)
        return [float(coefficient) for coefficient in in_z.coef]

    sign = 1.0 if improves else -1.0
    if improves and beta > 0:
        powers = fitted(lambda z: -((1 + z) ** -beta) / beta)
        return _Expansion(sign, 1 / beta, 0.0, [beta + m for m in range(NUM_TERMS)], powers)
    powers = fitted(lambda z: (1 - (1 + z) ** -beta) / (beta * z) if beta > 0 else np.log1p(z) / z)
    return _Expansion(sign, 0.0, 1.0 if improves else 0.0, [1.0 + m for m in range(NUM_TERMS)], powers)
