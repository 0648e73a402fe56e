"""Children that take no time, for runs that are killed: importable, because processes make their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from lossmith.methods.ala import ALA, AdaptiveStep, Child, ClassCorrelationLoss, EpochBatches, adaptive_steps
from lossmith.metrics import METRICS

NUM_CLASSES, NUM_STEPS, INTERVAL = 4, 60, 10


def rows(seed: int, num_rows: int = 200) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_rows, 6, generator=generator)
    noise = torch.randn(num_rows, NUM_CLASSES, generator=generator)
    return inputs, (inputs[:, :NUM_CLASSES] + 0.5 * noise).argmax(1)


def make_child(seed: int) -> Child:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Linear(6, NUM_CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    batches = EpochBatches(*rows(0), batch_size=20, seed=seed)
    return Child(model, ClassCorrelationLoss(NUM_CLASSES), optimizer, batches, seed=seed)


@dataclass(frozen=True)
class DyingBatches:
    """Kills its process at a step, once: a file remembers."""

    batches: EpochBatches
    step: int
    marker: Path

    def __call__(self, first_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(self.batches(first_step), start=first_step):
            if number == self.step and not self.marker.exists():
                self.marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


def make_dying_child(seed: int, step: int, marker: Path) -> Child:
    child = make_child(seed)
    assert isinstance(child.batches, EpochBatches)
    return replace(child, batches=DyingBatches(child.batches, step, marker))


@dataclass(frozen=True)
class FewBatches:
    """They end after 15 steps."""

    batches: EpochBatches

    def __call__(self, first_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        return islice(self.batches(first_step), max(0, 15 - first_step))


def make_short_child(seed: int) -> Child:
    child = make_child(seed)
    assert isinstance(child.batches, EpochBatches)
    return replace(child, batches=FewBatches(child.batches))


def makers(num_children: int = 2) -> list[partial[Child]]:
    return [partial(make_child, seed) for seed in range(num_children)]


def run(children: Sequence[Callable[[], Child]], folder: Path | None = None, **options: object) -> list[AdaptiveStep]:
    """All rounds of a run."""
    controller = ALA(ClassCorrelationLoss(NUM_CLASSES), seed=0)
    return list(
        adaptive_steps(
            children,
            controller,
            METRICS["accuracy"],
            rows(1),
            num_steps=NUM_STEPS,
            interval=INTERVAL,
            selection=rows(2),
            num_evaluations=3,
            folder=folder,
            **options,  # type: ignore[arg-type]
        )
    )


if __name__ == "__main__":
    import sys

    dying = partial(make_dying_child, 1, int(sys.argv[2]), Path(sys.argv[1], "marker"))
    run([partial(make_child, 0), dying], Path(sys.argv[1], "run"))
