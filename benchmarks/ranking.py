"""Soft ranks against their peers, and the evidence for how they are summed at which size.

    python benchmarks/ranking.py [--json]

`docs/explanation/soft-ranks.md` explains the choice with the numbers of this script.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import scipy.optimize
import scipy.stats
import torch
from diffsort import DiffSortNet
from timing import Row, best_seconds_of, report
from torch import Tensor

from lossmith import ranking
from lossmith.ranking import average_rank, decaying_sums, kendall, soft_rank, soft_spearman, spearman

SCALES = [10.0**exponent for exponent in range(-6, 7)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pearson(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]).double())[0, 1])


def forward_and_backward(call: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    def run() -> None:
        leaf = x.detach().requires_grad_()
        call(leaf).sum().backward()

    return run


# ---- peers


def diffsort_rank(network: DiffSortNet, x: Tensor) -> Tensor:
    """Ranks of one set from a relaxed sorting network, as learning a loss by rank correlation was first done."""
    _, permutation = network(x[None])
    return (permutation[0] * torch.arange(1, len(x) + 1, dtype=x.dtype)).sum(-1)


def diffsort_network(size: int) -> DiffSortNet:
    return DiffSortNet("bitonic", size, steepness=5, interpolation_type="logistic_phi")


def permutahedron_rank(x: Tensor, strength: float) -> tuple[Tensor, float]:
    """Ranks as a projection on the permutahedron, and the share of values whose rank has no gradient.

    A value that is pooled with no neighbour has its exact rank, constant around it.
    """
    ordered, order = (x.double() / strength).sort()
    position = torch.arange(1, len(x) + 1, dtype=torch.float64)
    fit = scipy.optimize.isotonic_regression((ordered - position).numpy(), increasing=True)
    share = float((torch.tensor(fit.blocks).diff() == 1).sum()) / len(x)
    return torch.empty_like(ordered).scatter(0, order, ordered - torch.tensor(fit.x)), share


def log_sums(z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`decaying_sums` of positive weights by `logcumsumexp`."""
    below = (torch.logcumsumexp(z + w.log(), -1) - z).exp()
    above = (torch.logcumsumexp((w.log() - z).flip(-1), -1).flip(-1) + z).exp()
    return below - w, above - w


# ---- rows


def network_rows() -> list[Row]:
    rows = []
    for size, bar, num_turns in ((256, 50, 10), (1024, 500, 2)):
        losses, costs = normal(2, size)
        network = diffsort_network(size)

        def peer(a: Tensor, network: DiffSortNet = network, costs: Tensor = costs) -> Tensor:
            rank, target = diffsort_rank(network, a), average_rank(costs)
            return torch.nn.functional.cosine_similarity(rank - rank.mean(), target - target.mean(), dim=0)

        def ours(a: Tensor, costs: Tensor = costs) -> Tensor:
            return soft_spearman(a, costs)

        # the peer takes seconds: 20 of our calls to one of its own
        calls = [forward_and_backward(ours, losses)] * 20 + [forward_and_backward(peer, losses)]
        *our_seconds, peer_seconds = best_seconds_of(calls, budget=60, max_calls=num_turns)
        seconds = min(our_seconds)
        note = f"{seconds * 1e3:.2f} ms against {peer_seconds * 1e3:.0f} ms"
        name = f"soft Spearman, n = {size}, against diffsort's bitonic network"
        rows.append(Row(name, peer_seconds / seconds, "times as fast", bar, note=note))
    return rows


def large_rows() -> list[Row]:
    rows = []
    for size, bar in ((100_000, 100), (1_000_000, None)):
        losses, costs = normal(2, size)
        (seconds,) = best_seconds_of([forward_and_backward(lambda a, b=costs: soft_spearman(a, b), losses)], budget=2)
        rows.append(Row(f"soft Spearman, n = {size:,}", seconds * 1e3, "ms", bar, is_at_least=False))
    return rows


def fidelity_rows() -> list[Row]:
    """The lowest correlation of soft with exact ranks over all scales."""
    rows = []
    for size in (128, 256, 1024, 100_000):
        x = normal(size)
        lowest = min(pearson(soft_rank(x * scale), average_rank(x)) for scale in SCALES)
        rows.append(
            Row(f"soft with exact ranks, n = {size:,}, worst scale", lowest, "Pearson", 0.999, note=f"{lowest:.6f}")
        )
    small = normal(1000, 8)
    lowest = float(soft_spearman(small, small).min())
    rows.append(Row("the same, n = 8, worst of 1,000 sets", lowest, "Pearson"))
    x, network = normal(256), diffsort_network(256)
    for scale in (1e-6, 1.0, 1e6):
        value = pearson(diffsort_rank(network, x * scale), average_rank(x))
        rows.append(Row(f"the same of diffsort, n = 256, scale {scale:g}", value, "Pearson"))
    return rows


def method_rows() -> list[Row]:
    """Soft ranks forward and backward, summed over all pairs, by halving alone, and as the size decides."""
    rows = []
    shapes = [(1, size) for size in (8, 32, 128, 256, 512, 1024, 4096, 100_000, 1_000_000)]
    shapes += [(256, size) for size in (8, 32, 128)]
    for shape in shapes:
        run = forward_and_backward(soft_rank, normal(*shape))

        def with_pairs(limit: int, run: Callable[[], None] = run) -> Callable[[], None]:
            return patch.object(ranking, "_MAX_PAIRS", limit)(run)

        calls = [with_pairs(ranking._MAX_PAIRS), with_pairs(0)]
        if shape[0] * shape[1] ** 2 <= 2**24:
            calls.append(with_pairs(2**62))
        ours, halving, *pairs = (seconds * 1e3 for seconds in best_seconds_of(calls, budget=0.3))
        note = f"halving {halving:.2f}, " + (f"pairs {pairs[0]:.2f}" if pairs else "pairs: too much memory")
        rows.append(Row(f"soft rank, {shape[0]} x {shape[1]:,}", ours, "ms", note=note))
    return rows


def scan_rows() -> list[Row]:
    """The sums themselves, forward: time, and the greatest error in ranks against float64."""
    rows = []
    for size in (1024, 100_000, 1_000_000):
        z = (normal(size) / 0.1).sort().values
        w = torch.ones_like(z)
        exact = decaying_sums(z.double(), w.double(), w.double())
        calls: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
            "halving": lambda z=z, w=w: decaying_sums(z, w, w),
            "logcumsumexp": lambda z=z, w=w: log_sums(z, w),
            "logcumsumexp in float64": lambda z=z, w=w: log_sums(z.double(), w.double()),
        }
        for (name, call), seconds in zip(calls.items(), best_seconds_of(list(calls.values()), budget=0.3)):
            error = max(float((got - want).abs().max()) for got, want in zip(call(), exact))
            rows.append(Row(f"{name}, n = {size:,}", seconds * 1e3, "ms", note=f"greatest error {error:.2g} ranks"))
    return rows


def permutahedron_rows() -> list[Row]:
    """At the strength that gives the projection the fidelity of our default temperature."""
    rows = []
    for size in (256, 10_000):
        x = normal(size)
        exact = average_rank(x)
        target = pearson(soft_rank(x), exact)
        low, high = 1e-7, 1.0  # fidelity falls with the strength
        for _ in range(40):
            strength = (low * high) ** 0.5
            is_close = pearson(permutahedron_rank(x, strength)[0], exact) > target
            low, high = (strength, high) if is_close else (low, strength)
        _, share = permutahedron_rank(x, low)
        ours, peer = best_seconds_of(
            [lambda x=x: soft_rank(x), lambda x=x, s=low: permutahedron_rank(x, s)], budget=0.2
        )
        note = f"strength {low:.2g}; forward {peer * 1e3:.2f} ms, ours {ours * 1e3:.2f} ms"
        rows.append(Row(f"permutahedron, n = {size:,}, no gradient", share * 100, "% of values", note=note))
    return rows


def exact_rows() -> list[Row]:
    a, noise = normal(2, 100_000)
    b = a + noise
    pairs = (("Spearman", spearman, scipy.stats.spearmanr), ("Kendall", kendall, scipy.stats.kendalltau))
    rows = []
    for name, ours, peer in pairs:
        assert abs(float(ours(a, b)) - peer(a, b).statistic) < 1e-6
        seconds, peer_seconds = best_seconds_of([lambda f=ours: f(a, b), lambda f=peer: f(a, b)], budget=0.5)
        rows.append(Row(f"{name}, n = 100,000", seconds * 1e3, "ms", note=f"scipy {peer_seconds * 1e3:.1f} ms"))
    a, b = a[: 256 * 128].view(256, 128), b[: 256 * 128].view(256, 128)
    for name, ours, peer in pairs:
        loop = [lambda f=ours: f(a, b), lambda f=peer: [f(x, y) for x, y in zip(a.numpy(), b.numpy())]]
        seconds, peer_seconds = best_seconds_of(loop, budget=0.2)
        rows.append(Row(f"{name}, 256 x 128", seconds * 1e3, "ms", note=f"scipy in a loop {peer_seconds * 1e3:.0f} ms"))
    return rows


def measure() -> list[Row]:
    groups = (network_rows, large_rows, fidelity_rows, method_rows, scan_rows, permutahedron_rows, exact_rows)
    return [row for group in groups for row in group()]


if __name__ == "__main__":
    report(measure, "Soft and exact ranks: speed and fidelity.")
