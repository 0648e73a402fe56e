"""The stack and the method take the same steps."""

from __future__ import annotations

import inspect

import pytest
import torch

from lossmith.kinds import Kind
from lossmith.lab.comparing import bilevel_stack
from lossmith.lab.comparing.bilevel_stack import JITTER, NUM_COPIES, StackedBilevel
from lossmith.methods.bilevel import bilevel_steps, jittered
from lossmith.metrics import METRICS


def test_numbers_are_those_of_the_method() -> None:
    defaults = {name: each.default for name, each in inspect.signature(bilevel_steps).parameters.items()}
    for name in ("num_model_steps", "num_surrogate_steps", "num_first_steps", "num_copies", "jitter"):
        assert getattr(bilevel_stack, name.upper()) == defaults[name]


def test_gradients_are_those_of_the_method(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(2, 30, generator=generator), torch.randint(2, (2, 30), generator=generator)
    stacked = StackedBilevel(METRICS["f1"], "scratch", 2)
    scores = outputs.clone().requires_grad_()
    values = stacked.of_stack(scores, targets)
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    for run in range(2):
        value, expected = stacked.surrogate.slopes(outputs[run], targets[run])
        assert torch.allclose(values[run], value, atol=1e-5)
        assert torch.allclose(gradient[run], expected, atol=1e-5)


def test_the_papers_own_gradient(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(2, 30, generator=generator), torch.randint(2, (2, 30), generator=generator)
    stacked = StackedBilevel(METRICS["f1"], "universal_raw", 2)
    scores = outputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(stacked.of_stack(scores, targets).sum(), scores)
    alone = outputs[0].clone().requires_grad_()
    network = stacked.surrogate.network
    with torch.no_grad():
        network.weights.copy_(stacked.weights[0])
    (expected,) = torch.autograd.grad(network(alone.unsqueeze(0), targets[:1]).sum(), alone)
    assert torch.allclose(gradient[0], expected, atol=1e-5)


def test_fitting_is_that_of_the_method(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(2, 30, generator=generator), torch.randint(2, (2, 30), generator=generator)
    metric, stacked = METRICS["f1"], StackedBilevel(METRICS["f1"], "scratch", 2)
    network = stacked.surrogate.network
    stacked.generator.manual_seed(1)
    sets = jittered(Kind.BINARY, outputs, targets, NUM_COPIES, JITTER, generator=torch.Generator().manual_seed(1))
    costs = metric.cost(sets.outputs, sets.targets)
    expected = []
    for run in range(2):
        part = slice(4 * run, 4 * run + 4)
        network.fit(*network.summarize(sets.outputs[part], sets.targets[part]), costs[part])
        assert network.weights.grad is not None
        expected.append(network.weights.grad.clone())
    stacked._fit(outputs.unsqueeze(1), targets.unsqueeze(1))
    assert stacked.weights.grad is not None
    assert torch.allclose(stacked.weights.grad, torch.stack(expected), atol=1e-5)


def test_it_learns_in_its_rhythm(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilevel_stack, "NUM_FIRST_STEPS", 30)
    stacked, num_drawn = StackedBilevel(METRICS["auc"], "scratch", 1), []
    outputs, targets = torch.randn(1, 1, 20, generator=generator), torch.tensor([[[0, 1] * 10]])

    def draw(num_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
        num_drawn.append(num_batches)
        return outputs.expand(-1, num_batches, -1), targets.expand(-1, num_batches, -1)

    counts = []
    for _ in range(7):
        stacked.follow(draw)
        counts.append(sum(num_drawn))
    assert counts == [30, 30, 30, 40, 40, 40, 50]
    num_drawn.clear()
    StackedBilevel(METRICS["auc"], "scratch", 1, num_first_steps=0).follow(draw)
    assert not num_drawn


def test_the_papers_universal_sets_are_others() -> None:
    ours, papers = (StackedBilevel(METRICS["auc"], start, 1).weights for start in ("universal", "universal_paper"))
    assert not torch.equal(ours, papers)


def test_the_universal_one_does_not_learn() -> None:
    stacked = StackedBilevel(METRICS["auc"], "universal", 2)
    before = stacked.weights.clone()
    stacked.follow(lambda: (_ for _ in ()).throw(AssertionError("asked for outputs")))
    assert torch.equal(before, stacked.weights)
    # and it knows what is better
    targets = torch.tensor([[0, 1] * 10] * 2)
    outputs = torch.stack([targets[0] * 4.0 - 2, -(targets[0] * 4.0 - 2)])
    right, wrong = stacked.of_stack(outputs, targets)
    assert float(right) < float(wrong)
