"""An iteration of the bilevel surrogate beside three steps of cross-entropy, one thread; the share of its parts.

    python benchmarks/bilevel.py [--json]

An iteration is three steps of the model and ten of its loss, on sets of 100 (Algorithm 1 as the paper runs it). Both
sides train the paper's network, [100, 30, 10, 1] with batch norm and dropout, by the same optimizer on batches that
are drawn alike. Jittered copies of the outputs are of the fast setting; without them it is the paper's iteration.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from timing import Row, best_seconds, best_seconds_of, report
from torch import Tensor, nn

from lossmith.methods.bilevel import BilevelSurrogate, bilevel_steps, stratified_batches
from lossmith.metrics import METRICS
from lossmith.training import train_steps

NUM_FEATURES, BATCH_SIZE = 123, 100
METRIC_NAMES = ("binary_error", "f1", "jaccard", "mcc", "auc", "ap", "eer")


def paper_network(num_features: int = NUM_FEATURES) -> nn.Module:
    """Section 4.1."""
    sizes = (num_features, 100, 30, 10)
    hidden: list[nn.Module] = []
    for size, width in itertools.pairwise(sizes):
        hidden += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.LeakyReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], 1), nn.Flatten(0))


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Of a table as wide as A9A."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(20_000, NUM_FEATURES, generator=generator)
    targets = (inputs[:, 0] + torch.randn(20_000, generator=generator) > 1).long()
    return stratified_batches(inputs, targets, batch_size=BATCH_SIZE, generator=generator)


def adam(module: nn.Module, learning_rate: float) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), lr=learning_rate, fused=True)


def cross_entropy_steps() -> Callable[[], object]:
    """Three at a call."""
    model = paper_network()
    steps = train_steps(
        model,
        lambda outputs, targets: nn.functional.binary_cross_entropy_with_logits(outputs, targets.float()),
        batches(),
        adam(model, 1e-3),
    )
    return lambda: [next(steps) for _ in range(3)]


def iteration(metric: str, *, num_copies: int) -> Callable[[], object]:
    model, generator = paper_network(), torch.Generator().manual_seed(0)
    surrogate = BilevelSurrogate(generator=generator)
    steps = bilevel_steps(
        model,
        surrogate,
        METRICS[metric],
        batches(),
        adam(model, 1e-3),
        adam(surrogate, 1e-3),
        generator=generator,
        num_copies=num_copies,
    )
    return lambda: next(steps)


def measure() -> list[Row]:
    torch.manual_seed(0)
    matrix = torch.randn(512, 512)
    calibration = best_seconds(lambda: matrix @ matrix)
    rows = [Row("calibration: product of two 512 x 512 matrices", 1e3 * calibration, "ms")]
    for metric in METRIC_NAMES:
        of_three, fast, plain = best_seconds_of(
            [cross_entropy_steps(), iteration(metric, num_copies=3), iteration(metric, num_copies=0)], budget=0.7
        )
        rows += [
            Row(f"three steps of cross-entropy (beside {metric})", 1e3 * of_three, "ms"),
            Row(f"{metric}: an iteration with three jittered copies", 1e3 * fast, "ms"),
            Row(f"{metric}: times three steps of cross-entropy", fast / of_three, "x", 4, is_at_least=False),
            Row(f"{metric}: the same without copies, as in the paper", plain / of_three, "x", 4, is_at_least=False),
        ]
    return rows


if __name__ == "__main__":
    report(measure, __doc__)
