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
from typing import Any

import numpy as np
import torch
from numpy.polynomial import Polynomial, chebyshev
from torch import Tensor

from lossmith.tracing.sorted_lanes import SwapGains

NUM_TERMS = 4
# positions that are summed together, which the processor keeps at hand
CHUNK = 16384
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
        # what a metric has set to minus infinity stands last and is worth nothing
        x = scores.to(gains.upper.dtype).clamp(min=float(scores[scores.isfinite()].amin()))
        total, gradient = x.new_zeros(()), torch.zeros_like(x)
        for above in range(len(gains.upper)):
            for below in range(len(gains.upper)):
                if above != below:
                    value, slope = _of_classes(x, gains, above, below, beta)
                    total, gradient = total + value, gradient + slope
        ctx.save_for_backward(gradient.to(scores.dtype))
        return total.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None


def _of_classes(x: Tensor, gains: SwapGains, above: int, below: int, beta: float) -> tuple[Tensor, Tensor]:
    """Loss and its gradient over the pairs of an item of class ``above`` before one of class ``below``."""
    is_upper, is_lower = ((gains.labels == label).to(x.dtype) for label in (above, below))
    worth_above, worth_below = gains.of_classes(above, below)
    # a swap is worth the sum of both; [2, *rows, D]: how many items, and what they are worth
    upper = torch.stack((is_upper, worth_above * is_upper))
    lower = torch.stack((is_lower, worth_below * is_lower))
    # from the last position up, what comes behind has come before
    lower_up = lower.flip(-1)
    of_lower = _with_partners(lower, upper.cumsum(-1))
    total = of_lower.sum()
    improves = bool(total > 0)
    constant, slope, rates, coefficients = _expansion(beta, improves)
    value_before, slope_before = _decayed_sums(upper, x, rates, coefficients)
    _, slope_behind = _decayed_sums(lower_up, -x.flip(-1), rates, coefficients)
    value = constant * total + _with_partners(lower, value_before).sum()
    gradient = _with_partners(lower, slope_before) - _with_partners(upper, slope_behind.flip(-1))
    if slope:  # at beta = 0 the difference of scores itself
        linear = _with_partners(upper, lower_up.cumsum(-1).flip(-1)) - of_lower
        value, gradient = value + slope * (linear * x).sum(), gradient + slope * linear
    sign = 1 if improves else -1
    return sign * value, sign * gradient


def _with_partners(own: Tensor, partners: Tensor) -> Tensor:
    """For each item the worth of its swaps: its own with each partner, and that of each partner."""
    return own[1] * partners[0] + own[0] * partners[1]


def _decayed_sums(weights: Tensor, x: Tensor, rates: list[float], coefficients: list[float]) -> tuple[Tensor, Tensor]:
    """At each position the sum of ``weights [2, *rows, D]`` up to it, each times the polynomial in z of its distance;
    and the derivative by the score of the position. ``x`` falls along the last dimension.
    """
    value, slope = torch.zeros_like(weights), torch.zeros_like(weights)
    carried: list[Tensor | float] = [0.0] * len(rates)
    start = 0
    for end in _chunk_ends(x, rates[-1]):
        here, chunk = x[..., start:end], weights[..., start:end]
        drop = here - here[..., :1]
        fall, step = torch.exp(rates[0] * drop), torch.exp(drop)  # rates grow by 1
        for number, (rate, coefficient) in enumerate(zip(rates, coefficients)):
            sums = (chunk / fall).cumsum_(-1).add_(carried[number]).mul_(fall)
            value[..., start:end].add_(sums, alpha=coefficient)
            slope[..., start:end].add_(sums, alpha=coefficient * rate)
            if end < x.shape[-1]:
                carried[number] = sums[..., -1:] * torch.exp(rate * (x[..., end : end + 1] - here[..., -1:]))
            fall = fall.mul_(step)
        start = end
    return value, slope


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


@functools.lru_cache(maxsize=16)
def _expansion(beta: float, improves: bool) -> tuple[float, float, list[float], list[float]]:
    """The link as ``constant + slope * |difference| + sum of coefficients * z ** rates``.

    A swap that does not improve is of a pair in the better order, q = 1 / (1 + z); one that does, of a pair in
    the worse, q = z / (1 + z).
    """

    def fitted(function: Any) -> list[float]:
        nodes = chebyshev.chebinterpolate(lambda t: function((t + 1) / 2), NUM_TERMS - 1)
        in_z: Polynomial = chebyshev.Chebyshev(nodes, domain=[0, 1]).convert(kind=Polynomial)
        return [float(coefficient) for coefficient in in_z.coef]

    if improves and beta > 0:
        powers = fitted(lambda z: -((1 + z) ** -beta) / beta)
        return 1 / beta, 0.0, [beta + m for m in range(NUM_TERMS)], powers
    powers = fitted(lambda z: (1 - (1 + z) ** -beta) / (beta * z) if beta > 0 else np.log1p(z) / z)
    return 0.0, 1.0 if improves else 0.0, [1.0 + m for m in range(NUM_TERMS)], powers
