"""Exact ranks against scipy; soft ranks against their definition, their limits and their edge cases."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lossmith import ranking
from lossmith.ranking import average_rank, decaying_sums, kendall, pair_counts, soft_rank, soft_spearman, spearman

SCALES = [10.0**exponent for exponent in range(-6, 7)]
# of decaying sums: all pairs, halving down to one value, or as the size decides
METHODS = {"pairs": 2**62, "halving": 0, "by size": ranking._MAX_PAIRS}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_MAX_PAIRS", METHODS[request.param])


def by_scipy(correlation: Callable[..., object], a: Tensor, b: Tensor) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about constants, where NaN is expected
        return float(correlation(a.double().numpy(), b.double().numpy()).statistic)


def by_definition(x: Tensor, temperature: float) -> Tensor:
    """Half for itself, and each other value with the probability that the Laplace distribution gives its distance."""
    z = (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True) / temperature
    distance = z.unsqueeze(-1) - z.unsqueeze(-2)
    tail = torch.exp(-distance.abs()) / 2
    return torch.where(distance > 0, 1 - tail, tail).sum(-1) + 0.5


def pearson(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]).double())[0, 1])


# ---- exact

few_values = st.lists(st.integers(-3, 3), min_size=1, max_size=40)
any_floats = st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(values=few_values | any_floats)
def test_average_rank_is_scipys(values: list[float]) -> None:
    x = torch.tensor(values)
    np.testing.assert_array_equal(average_rank(x), scipy.stats.rankdata(values))


@settings(deadline=None, max_examples=60)
@given(pairs=st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 5)), min_size=2, max_size=60))
def test_correlations_are_scipys_with_many_ties(pairs: list[tuple[int, int]]) -> None:
    a, b = torch.tensor(pairs).T
    np.testing.assert_allclose(spearman(a, b), by_scipy(scipy.stats.spearmanr, a, b), atol=1e-6)
    np.testing.assert_allclose(kendall(a, b.float()), by_scipy(scipy.stats.kendalltau, a, b), atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 8, 9, 1000, 40_000])
@pytest.mark.parametrize("num_values", [2, 20, None])
def test_correlations_are_scipys_at_every_size(size: int, num_values: int | None, generator: torch.Generator) -> None:
    a, noise = torch.randn(2, size, generator=generator)
    b = a + noise
    if num_values:
        a, b = (a * num_values / 4).round(), (b * num_values / 4).round()
    np.testing.assert_allclose(spearman(a, b), by_scipy(scipy.stats.spearmanr, a, b), atol=1e-6)
    np.testing.assert_allclose(kendall(a, b), by_scipy(scipy.stats.kendalltau, a, b), atol=1e-6)


def test_stacks_are_their_sets(generator: torch.Generator) -> None:
    a, b = torch.randint(5, (2, 3, 2, 21), generator=generator).float()
    for correlation in (spearman, kendall, soft_spearman):
        one_by_one = [[correlation(x, y) for x, y in zip(*rows)] for rows in zip(a, b)]
        torch.testing.assert_close(correlation(a, b), torch.tensor(one_by_one))
    for rank in (average_rank, soft_rank):
        torch.testing.assert_close(rank(a)[2, 1], rank(a[2, 1]))


def test_pair_counts_by_hand() -> None:
    counts = pair_counts(torch.tensor([1, 1, 2, 3, 3]), torch.tensor([5, 5, 6, 4, 6]))
    assert [int(count) for count in counts] == [4, 3, 2, 2]


def test_perfect_orders_are_exactly_one(generator: torch.Generator) -> None:
    x = torch.randn(50, 77, generator=generator)
    for correlation in (spearman, kendall):
        assert correlation(x, x.exp()).eq(1).all()
        assert correlation(x, -x).eq(-1).all()


@pytest.mark.parametrize("correlation", [spearman, kendall])
def test_undefined_is_nan(correlation: Callable[[Tensor, Tensor], Tensor]) -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, torch.nan, 3.0], [torch.inf, -torch.inf, 0.0]])
    b = torch.tensor([1.0, 2.0, 3.0]).expand(4, 3)
    assert correlation(a, b).isnan().tolist() == [False, True, True, False]
    assert correlation(b, a).isnan().tolist() == [False, True, True, False]
    assert correlation(a[:, :1], b[:, :1]).isnan().all()


def test_a_nan_of_either_sign_is_found_in_a_long_set() -> None:
    x = torch.arange(2.0**15)
    for nan in (torch.nan, -torch.nan):
        x[7] = nan
        assert average_rank(x).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_long_set_sorts_like_a_short_one(dtype: torch.dtype, generator: torch.Generator) -> None:
    """Long sets go by the bits of their numbers."""
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-45, -1e-45, 3e38, -3e38], dtype=dtype)
    x = torch.cat([torch.randn(2**15, generator=generator, dtype=dtype), special.repeat(3)])
    ordered, order = ranking._sort(x)
    expected = x.sort(stable=True)
    assert torch.equal(ordered, expected.values)
    assert torch.equal(order, expected.indices)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float16, torch.float32, torch.float64]
)
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([1, 0, 1, 1]).to(dtype)
    rank = average_rank(x)
    assert rank.tolist() == [3, 1, 3, 3]
    assert rank.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    assert kendall(x, x) == spearman(x, x) == 1


def test_kendall_of_a_large_set_is_fast(generator: torch.Generator) -> None:
    a, b = torch.randn(2, 100_000, generator=generator)
    start = time.thread_time()
    kendall(a, b)
    assert time.thread_time() - start < 2  # all pairs would take a minute


# ---- soft


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 33, 300])
@pytest.mark.parametrize("temperature", [0.01, 0.1, 1, 30])
def test_soft_rank_is_its_definition(size: int, temperature: float, generator: torch.Generator) -> None:
    x = torch.randn(3, size, generator=generator, dtype=torch.float64)
    expected = by_definition(x, temperature) if size > 1 else torch.ones_like(x)
    torch.testing.assert_close(soft_rank(x, temperature=temperature), expected, rtol=0, atol=1e-10)
    in_float32 = soft_rank(x.float(), temperature=temperature)
    torch.testing.assert_close(in_float32, expected.float(), rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize("size", [2000, 2**15 + 5])
def test_the_methods_agree_in_large_sets(size: int, generator: torch.Generator) -> None:
    """The halving down to single values, against what the size decides and against float64."""
    x = torch.randn(size, generator=generator)
    with patch.object(ranking, "_MAX_PAIRS", 0):
        halved = soft_rank(x)
    torch.testing.assert_close(halved, soft_rank(x), rtol=0, atol=1e-6 * size)
    torch.testing.assert_close(halved, soft_rank(x.double()).float(), rtol=0, atol=1e-6 * size)


@settings(deadline=None, max_examples=40)
@given(values=few_values)
def test_soft_rank_falls_to_the_average_rank(values: list[int]) -> None:
    x = torch.tensor(values)
    torch.testing.assert_close(soft_rank(x, temperature=1e-3), average_rank(x), rtol=0, atol=1e-4)


def test_soft_spearman_falls_to_spearman(generator: torch.Generator) -> None:
    a, noise = torch.randn(2, 4, 64, generator=generator, dtype=torch.float64)
    b = (a + noise).round()
    errors = [(soft_spearman(a, b, temperature=t) - spearman(a, b)).abs().max() for t in (1, 0.1, 0.01, 1e-4)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("scale", SCALES)
def test_soft_ranks_follow_the_exact_ranks_at_every_scale(scale: float, generator: torch.Generator) -> None:
    for size in (256, 5000):
        x = torch.randn(size, generator=generator) * scale
        assert pearson(soft_rank(x), average_rank(x)) >= 0.999


@pytest.mark.parametrize("scale", SCALES)
def test_scale_does_not_matter(scale: float, generator: torch.Generator) -> None:
    x, b = torch.randn(2, 200, generator=generator)
    torch.testing.assert_close(soft_rank(x * scale), soft_rank(x), rtol=0, atol=1e-4)
    scaled = (x * scale).requires_grad_()
    soft_spearman(scaled, b).backward()
    x.requires_grad_()
    soft_spearman(x, b).backward()
    torch.testing.assert_close(scaled.grad * scale, x.grad, rtol=1e-3, atol=1e-6)


def test_powers_of_two_and_shifts_do_not_matter(generator: torch.Generator) -> None:
    x = torch.randint(-1000, 1000, (5, 300), generator=generator).float()
    assert torch.equal(soft_rank(x * 2.0**20), soft_rank(x))
    assert torch.equal(soft_rank(x * 2.0**-20), soft_rank(x))
    assert torch.equal(soft_rank(x + 10_000), soft_rank(x))


def test_no_gradient_along_scale_and_shift(generator: torch.Generator) -> None:
    """The standardisation takes part in the gradient."""
    x = torch.randn(100, generator=generator, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(soft_rank(x, temperature=0.5)[:20].sum(), x)
    assert gradient.norm() > 1
    assert abs(gradient.sum()) < 1e-10
    assert abs(gradient @ x) < 1e-10


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.integers(-20, 20), min_size=2, max_size=30), seed=st.integers(0, 99))
def test_soft_rank_keeps_order_and_moves_with_its_values(values: list[int], seed: int) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    rank = soft_rank(x, temperature=0.5)
    shuffle = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(soft_rank(x[shuffle], temperature=0.5), rank[shuffle])
    torch.testing.assert_close(soft_rank(-x, temperature=0.5), len(values) + 1 - rank)
    assert (rank[x.argsort()].diff() >= -1e-12).all()


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("temperature", [0.3, 2])
def test_gradients_of_first_and_second_order(temperature: float, generator: torch.Generator) -> None:
    x = torch.randn(2, 9, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randint(4, (2, 9), generator=generator)
    for call in (partial(soft_rank, temperature=temperature), partial(soft_spearman, b=b, temperature=temperature)):
        assert torch.autograd.gradcheck(call, x)
        assert torch.autograd.gradgradcheck(call, x)


@pytest.mark.usefixtures("method")
def test_gradient_at_ties() -> None:
    x = torch.tensor([1, 1, 2, 5, 5, 5, -3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(partial(soft_rank, temperature=0.3), x)


@pytest.mark.usefixtures("method")
def test_gradients_of_decaying_sums(generator: torch.Generator) -> None:
    z, w_below, w_above = torch.randn(3, 2, 9, generator=generator, dtype=torch.float64)
    inputs = (z.sort(-1).values.requires_grad_(), w_below.requires_grad_(), w_above.requires_grad_())
    assert torch.autograd.gradcheck(decaying_sums, inputs)
    assert torch.autograd.gradgradcheck(decaying_sums, inputs)


@pytest.mark.parametrize("size", [1, 8, 300])
def test_works_under_vmap(size: int, generator: torch.Generator) -> None:
    a, b = torch.randn(2, 4, size, generator=generator)
    a.requires_grad_()
    for b_dim, order in ((0, b), (None, b[0])):
        vectorised = torch.vmap(soft_spearman, in_dims=(0, b_dim))(a, order)
        stacked = soft_spearman(a, order.expand_as(a))
        torch.testing.assert_close(vectorised, stacked)
        gradients = [torch.autograd.grad(values.sum(), a)[0] for values in (vectorised, stacked)]
        torch.testing.assert_close(*gradients)
    per_set = torch.vmap(torch.func.grad(lambda one, order: soft_spearman(one, order)))(a.detach(), b)
    torch.testing.assert_close(per_set, torch.autograd.grad(soft_spearman(a, b).sum(), a)[0])


def test_gradient_of_a_large_set_in_float32(generator: torch.Generator) -> None:
    a, noise = torch.randn(2, 30_000, generator=generator, dtype=torch.float64)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        x = a.to(dtype).requires_grad_()
        soft_spearman(x, (a + noise).to(dtype), temperature=0.05).backward()
        gradients.append(x.grad.double())
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()


def test_ascent_brings_the_orders_together(generator: torch.Generator) -> None:
    a, b = torch.randn(2, 4, 32, generator=generator)
    a.requires_grad_()
    optimizer = torch.optim.Adam([a], lr=0.05, maximize=True)
    for step in range(150):
        optimizer.zero_grad()
        soft_spearman(a, b, temperature=0.05 ** (step / 150)).sum().backward()
        optimizer.step()
    assert (spearman(a, b) > 0.97).all()


EDGE_CASES = {
    "one value": [3.0],
    "two values": [3.0, -1.0],
    "two equal values": [3.0, 3.0],
    "all equal": [0.1] * 9,
    "all equal but one": [0.1] * 9 + [0.2],
    "ties": [1.0, 1.0, 2.0, 2.0, 2.0, 5.0],
    "saturated": [1e4, -1e4, 1e4, -1e4, 1e4],
    "an outlier": [1e30, 0.0, 1.0, 2.0, 3.0],
    "the largest numbers": [3.3e38, -3.3e38, 3.3e38, 1.0],
    "the smallest numbers": [1e-45, 0.0, -1e-45, 1e-38],
    "narrow": [1e-30, 2e-30, 0.0, 1e-31],
    "far from 0": [1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3],
}


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("temperature", [ranking.MIN_TEMPERATURE, 1e-3, 0.1, 1, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", EDGE_CASES)
def test_finite_at_the_edges(name: str, dtype: torch.dtype, temperature: float) -> None:
    x = torch.tensor(EDGE_CASES[name], dtype=dtype, requires_grad=True)
    b = torch.arange(float(len(x)))
    rank = soft_rank(x, temperature=temperature)
    value = soft_spearman(x, b, temperature=temperature)
    (value + rank[0]).backward()
    assert rank.isfinite().all()
    assert rank.mean().item() == pytest.approx((len(x) + 1) / 2, rel=1e-5)
    assert value.isfinite()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("size", [1, 2, 9, 300])
def test_a_constant_says_nothing(size: int) -> None:
    varied = torch.arange(float(size), requires_grad=True)
    constant = torch.full((size,), 0.1, requires_grad=True)
    for a, b in ((constant, varied.detach()), (varied, constant.detach())):
        value = soft_spearman(a, b)
        value.backward()
        assert a.grad.eq(0).all()
        if size > 1 or a is constant:
            assert value == 0
    constant.grad = None
    rank = soft_rank(constant)
    rank[0].backward()
    assert rank.eq((size + 1) / 2).all()
    assert constant.grad.eq(0).all()


def test_what_is_not_finite_shows_in_its_own_set_alone() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [1.0, torch.inf, 3.0], [torch.nan, 2.0, 3.0]])
    assert soft_rank(x).isnan().all(-1).tolist() == [False, True, True]
    assert soft_spearman(x, x[:1].expand(3, 3)).isnan().tolist() == [False, True, True]


@pytest.mark.parametrize("size", [16, 700])
def test_autocast_changes_nothing(size: int, generator: torch.Generator) -> None:
    a, b = torch.randn(2, 3, size, generator=generator)
    results = []
    for is_on in (False, True):
        x = a.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
            value = soft_spearman(x, b)
            value.sum().backward()
        results += [value.detach(), x.grad]
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[3])


def test_the_second_argument_gets_no_gradient() -> None:
    a, b = torch.randn(2, 5, generator=torch.Generator().manual_seed(1)).requires_grad_().unbind()
    assert not average_rank(b).requires_grad
    assert soft_spearman(a, b).requires_grad
    assert not soft_spearman(a.detach(), b).requires_grad


@pytest.mark.parametrize("call", [average_rank, soft_rank])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_no_values_are_refused(call: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least one value"):
        call(torch.zeros(shape))


@pytest.mark.parametrize("call", [spearman, kendall, pair_counts, soft_spearman])
def test_shapes_that_differ_are_refused(call: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match=r"a \(3, 4\) and b \(4,\) differ in shape"):
        call(torch.zeros(3, 4), torch.zeros(4))


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), 1e-300])
def test_temperature_is_positive(temperature: float) -> None:
    with pytest.raises(ValueError, match="1e-06 or more works"):
        soft_rank(torch.zeros(3), temperature=temperature)


@pytest.mark.parametrize("call", [spearman, kendall, soft_spearman])
@pytest.mark.parametrize("values", [[1.0, 2.0], np.ones(2), torch.ones(2, dtype=torch.complex64)])
def test_what_cannot_be_ranked_gets_a_sentence(call: Callable[[object, object], Tensor], values: object) -> None:
    for arguments in ((values, torch.ones(2)), (torch.ones(2), values)):
        with pytest.raises(ValueError, match=r"(list|ndarray|torch.complex64) came to be ranked; a torch.Tensor"):
            call(*arguments)
