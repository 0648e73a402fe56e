from __future__ import annotations

import pytest
import torch
from torch import nn

from lossmith.lab.comparing.stacks import STACKED_MODELS, StackedAdam, StackedDescent, StackedNorm, new_stack


def layers_of(model: nn.Module, run: int) -> nn.Sequential:
    """One run of a stack of 32-32 networks, as ordinary layers."""
    layers: list[nn.Module] = []
    for number, (weights, biases) in enumerate(zip(model.weights, model.biases)):  # type: ignore[call-overload]
        layer = nn.Linear(weights.shape[1], weights.shape[2])
        with torch.no_grad():
            layer.weight.copy_(weights[run].T)
            layer.bias.copy_(biases[run, 0])
        layers += [nn.ReLU(), layer] if number else [layer]
    return nn.Sequential(*layers, nn.Flatten(0))


def test_each_run_is_an_ordinary_network(generator: torch.Generator) -> None:
    model = new_stack("mlp32", 5, 1, seeds=[3, 4], num_runs=2)
    inputs = torch.randn(2, 7, 5, generator=generator)
    outputs = model(inputs)
    for run in range(4):
        assert torch.allclose(outputs[run], layers_of(model, run)(inputs[run // 2]), atol=1e-5)


def test_runs_of_a_seed_begin_alike() -> None:
    model = new_stack("tiny4", 3, 1, seeds=[0, 1], num_runs=3)
    first = model.weights[0]
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[3])


def test_training_is_that_of_torchs_adam(generator: torch.Generator) -> None:
    rates = torch.tensor([0.01, 0.1])
    model = new_stack("mlp32", 4, 1, seeds=[0], num_runs=2)
    alone = [layers_of(model, run) for run in range(2)]
    optimizers = [torch.optim.Adam(each.parameters(), lr=float(rate)) for each, rate in zip(alone, rates)]
    stacked = StackedAdam(list(model.parameters()), rates)
    for _ in range(5):
        inputs = torch.randn(1, 8, 4, generator=generator)
        stacked.clear()
        model(inputs).square().mean(1).sum().backward()
        stacked.step(1.0)
        for network, optimizer in zip(alone, optimizers):
            optimizer.zero_grad()
            network(inputs[0]).square().mean().backward()
            optimizer.step()
    outputs = model(inputs)
    for run, network in enumerate(alone):
        assert torch.allclose(outputs[run], network(inputs[0]), atol=1e-4)


def test_descent_is_torchs(generator: torch.Generator) -> None:
    rates = torch.tensor([0.01, 0.1])
    model = new_stack("paper", 4, 1, seeds=[0], num_runs=2)
    before = [each.detach().clone() for each in model.parameters()]
    stacked = StackedDescent(list(model.parameters()), rates)
    model(torch.randn(1, 8, 4, generator=generator)).square().mean(1).sum().backward()
    gradients = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    stacked.step(0.5)
    for old, new, gradient in zip(before, model.parameters(), gradients, strict=True):
        for run, rate in enumerate(rates):
            assert torch.allclose(new[run], old[run] - 0.5 * rate * gradient[run], atol=1e-6)
    stacked.clear()
    assert all(each.grad is None for each in model.parameters())


def test_norm_is_torchs(generator: torch.Generator) -> None:
    hidden = torch.randn(2, 6, 3, generator=generator)
    stacked, alone = StackedNorm(2, 3), [nn.BatchNorm1d(3) for _ in range(2)]
    for each in (hidden, 2 * hidden + 1):
        expected = torch.stack([norm(rows) for norm, rows in zip(alone, each)])
        assert torch.allclose(stacked(each), expected, atol=1e-5)
    stacked.eval()
    expected = torch.stack([norm.eval()(rows) for norm, rows in zip(alone, hidden)])
    assert torch.allclose(stacked(hidden), expected, atol=1e-5)


@pytest.mark.parametrize("name", list(STACKED_MODELS))
def test_shapes(name: str) -> None:
    assert new_stack(name, 3, 1, seeds=[0, 1], num_runs=2)(torch.zeros(2, 5, 3)).shape == (4, 5)
    assert new_stack(name, 3, 4, seeds=[0], num_runs=1)(torch.zeros(1, 5, 3)).shape == (1, 5, 4)
