"""Whatever code a metric is, its value is that of its decisions: those of another set give the other set's value."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from lossmith.tracing.reading import Reading
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


def test_escapes_are_named_with_their_line() -> None:
    def sum_in_numpy(outputs: Tensor, targets: Tensor) -> float:
        return float(np.sum(outputs.detach().numpy() * targets.numpy()))

    _, trace = run(sum_in_numpy, torch.randn(4), torch.ones(4), reading=Reading.NOTHING)
    (escape,) = trace.escapes
    assert escape.startswith("numpy at ")
    assert escape.endswith(f"test_recording.py:{sum_in_numpy.__code__.co_firstlineno + 1}")


def test_decisions_within_a_library_are_named_with_the_line_that_calls_it() -> None:
    def of_library(outputs: Tensor, targets: Tensor) -> Tensor:
        return binary_auroc(outputs, targets)

    outputs, targets = torch.rand(6), torch.arange(6) % 2
    (*_, order) = run(of_library, outputs, targets, wants_sources=True)[1].decisions
    assert order.source.endswith(f"test_recording.py:{of_library.__code__.co_firstlineno + 1}")
    # nobody's own code calls it: the library's
    (*_, order) = run(binary_auroc, outputs, targets, wants_sources=True)[1].decisions
    assert "torchmetrics" in order.source


def test_inference_mode_is_refused_and_no_grad_is_not() -> None:
    @torch.inference_mode()
    def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).float().mean()

    with pytest.raises(ValueError, match=r"inference_mode\(\) at .*test_recording.py:\d+.*torch.no_grad\(\) works"):
        run(accuracy, torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    _, trace = run(torch.no_grad()(accuracy.__wrapped__), torch.randn(4, 3), torch.tensor([0, 1, 2, 0]))
    assert [decision.operation for decision in trace.decisions] == ["argmax"]


def test_comparisons_keep_their_gradient_under_no_grad() -> None:
    @torch.no_grad()
    def positive(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.detach().cpu() > 0).float().mean()

    outputs = torch.randn(4, requires_grad=True)
    _, trace = run(positive, outputs, torch.ones(4))
    (gradient,) = torch.autograd.grad(trace.decisions[0].comparisons.sum(), outputs)
    assert gradient.tolist() == [1.0] * 4


def test_thresholds_of_probabilities_are_thresholds_of_logits() -> None:
    outputs = torch.tensor([-3.0, 0.0, 5.0, 40.0])
    _, trace = run(
        lambda outputs, targets: (outputs.sigmoid().unsqueeze(1)[:, 0] > 0.25).float().mean(), outputs, outputs
    )
    torch.testing.assert_close(
        trace.decisions[0].comparisons.as_subclass(Tensor), outputs + torch.log(torch.tensor(3.0))
    )
