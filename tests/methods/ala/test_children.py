"""A child: intervals give the same result wherever they run, and its checkpoints hold all that the next one needs."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lossmith.methods.ala import Child, ClassCorrelationLoss, EpochBatches
from lossmith.methods.ala.children import Interval, read_report, restore_child, save_child, train_interval
from lossmith.metrics import METRICS

INTERVAL = Interval(0, 20, False, METRICS["accuracy"], (torch.randn(50, 4), torch.arange(50) % 3), None, 4, 0.9)


def child(optimizer: str = "adam") -> Child:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(120, 4, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
    made = torch.optim.Adam(model.parameters()) if optimizer == "adam" else torch.optim.SGD(model.parameters(), lr=0.1)
    batches = EpochBatches(inputs, inputs[:, :3].argmax(1), batch_size=16, seed=0)
    return Child(model, ClassCorrelationLoss(3), made, batches)


@pytest.mark.parametrize("first_step", [0, 3, 7, 8])
def test_batches_begin_anywhere(first_step: int) -> None:
    def noise(inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs + torch.rand(inputs.shape, generator=generator)

    batches = EpochBatches(torch.arange(30.0), torch.arange(30), batch_size=4, seed=5, change=noise)
    whole = list(islice(batches(0), 20))
    part = list(islice(batches(first_step), 20 - first_step))
    for mine, theirs in zip(part, whole[first_step:], strict=True):
        assert all(map(torch.equal, mine, theirs))
    epoch = torch.cat([targets for _, targets in whole[:7]])
    assert len(epoch.unique()) == len(epoch) == 28


def test_evaluations_follow_the_weights_of_equation_4() -> None:
    interval = replace(INTERVAL, num_steps=200, num_evaluations=10)
    evaluated = interval.evaluated_steps
    assert evaluated[-1] == 200
    assert len(evaluated) == 10
    # eq. 4 on a metric that falls evenly: the mean step by its weights, and by our points
    weights = torch.tensor([0.9 ** (200 - step) for step in range(1, 201)], dtype=torch.float64)
    mean = float((weights * torch.arange(1, 201)).sum() / weights.sum())
    assert sum(evaluated) / 10 == pytest.approx(mean, abs=1.0)
    assert replace(INTERVAL, num_steps=1).evaluated_steps == [1]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_goes_on_from_a_checkpoint(optimizer: str, tmp_path: Path) -> None:
    whole, first = child(optimizer), child(optimizer)
    later = replace(INTERVAL, first_step=20)
    train_interval(whole, INTERVAL)
    expected = train_interval(whole, later)
    report = train_interval(first, INTERVAL)
    save_child(tmp_path / "child.safetensors", first, report)
    assert torch.equal(read_report(tmp_path / "child.safetensors").statistics, report.statistics)
    second = child(optimizer)
    restore_child(tmp_path / "child.safetensors", second)
    torch.manual_seed(77)  # the caller's random numbers have no say
    found = train_interval(second, later)
    assert torch.equal(found.cost, expected.cost)
    assert all(map(torch.equal, second.model.state_dict().values(), whole.model.state_dict().values()))


def test_nothing_is_left_behind_in_the_caller() -> None:
    state, one = torch.get_rng_state(), child()
    train_interval(one, INTERVAL)
    assert torch.equal(torch.get_rng_state(), state)
    assert one.model.training
    assert torch.is_grad_enabled()


def test_warmup_loss_and_learning_rate() -> None:
    seen: list[int] = []

    def rate(step: int) -> float:
        seen.append(step)
        return 0.0

    one = replace(child("sgd"), warmup_loss=lambda outputs, targets: outputs.square().mean(), learning_rate=rate)
    before = [weights.clone() for weights in one.model.parameters()]
    report = train_interval(one, replace(INTERVAL, is_warmup=True))
    assert report.loss < 0.5
    assert seen == list(range(21))
    assert all(map(torch.equal, before, one.model.parameters()))


def test_refuses_batches_that_end_and_metrics_without_a_value() -> None:
    one = child()
    with pytest.raises(ValueError, match="ended after 3 of the 20 steps"):
        train_interval(
            replace(one, batches=lambda step: islice(EpochBatches(*INTERVAL.validation, 8, 0)(step), 3)), INTERVAL
        )
    nothing = (INTERVAL.validation[0], torch.full((50,), -100))
    with pytest.raises(ValueError, match="nothing to steer by"):
        train_interval(one, replace(INTERVAL, validation=nothing))
