"""Whatever code a metric is, its value is that of its decisions: those of another set give the other set's value."""

from __future__ import annotations

import warnings

import pytest
import torch

from lossmith.tracing.recording import run
from tests.tracing.unmodified import LIBRARIES, OWN, Case

NUM_TRIALS = 100


def test_there_are_enough() -> None:
    assert len({case.name for case in OWN + LIBRARIES}) == len(OWN + LIBRARIES) >= 60


@pytest.mark.parametrize("case", OWN + LIBRARIES, ids=lambda case: case.name)
def test_replay_is_exact(case: Case, generator: torch.Generator) -> None:
    outputs, targets = case.draw(generator)
    values = set()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # what metrics themselves complain about
        for _ in range(NUM_TRIALS):
            other, _ = case.draw(generator)
            expected = float(case.fn(other, targets))
            recorded, trace = run(case.fn, other, targets)
            replayed, _ = run(
                case.fn, outputs, targets, override=lambda number, _, trace=trace: trace.decisions[number].outcome
            )
            assert float(recorded) == pytest.approx(expected, abs=1e-6, nan_ok=True)
            assert float(replayed) == pytest.approx(expected, abs=1e-6, nan_ok=True)
            values.add(round(expected, 6))
    assert len(values) >= 2, "the sets are too much alike to show anything"
