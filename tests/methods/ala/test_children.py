"""A child: intervals give the same result wherever they run, and its checkpoints hold all that the next one needs."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lossmith.methods.ala import Child, ClassCorrelationLoss, EpochBatches, ParametricLoss
from lossmith.methods.ala.children import Interval, read_report, restore_child, save_child, train_interval
from lossmith.metrics import METRICS
from lossmith.vocabulary import Kind, Metric

WARMUP = nn.CrossEntropyLoss()
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
    assert replace(interval, discount=1.0).evaluated_steps == [10 + 20 * number for number in range(10)]


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


def test_bfloat16() -> None:
    one = child()
    inputs, targets = INTERVAL.validation
    one.model.bfloat16()
    batches = EpochBatches(inputs.bfloat16(), targets, batch_size=16, seed=0)
    report = train_interval(replace(one, batches=batches), replace(INTERVAL, validation=(inputs.bfloat16(), targets)))
    assert report.cost.isfinite()
    assert report.statistics.dtype == torch.float32


class CountingSGD(torch.optim.SGD):
    """Keeps a number that is no tensor, and steps by it."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weights in group["params"]:
                count = self.state[weights]["count"] = self.state[weights].get("count", 0) + 1
                weights.data.sub_(weights.grad, alpha=0.1 / count)


def test_numbers_of_an_optimizer_are_in_a_checkpoint(tmp_path: Path) -> None:
    whole, first, second = (
        replace(one, optimizer=CountingSGD(one.model.parameters())) for one in (child(), child(), child())
    )
    later = replace(INTERVAL, first_step=20)
    train_interval(whole, INTERVAL)
    expected = train_interval(whole, later)
    save_child(tmp_path / "child", first, train_interval(first, INTERVAL))
    restore_child(tmp_path / "child", second)
    assert torch.equal(train_interval(second, later).loss, expected.loss)
    for weights in first.model.parameters():
        first.optimizer.state[weights]["count"] = "many"
    with pytest.raises(ValueError, match="keeps 'count' as str"):
        save_child(tmp_path / "child", first, expected)


def test_a_metric_that_is_undefined_now_and_then_is_the_mean_of_the_rest() -> None:
    seen: list[float] = []

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(torch.nan if len(seen) % 2 else float(len(seen)))
        return torch.tensor(seen[-1:])

    report = train_interval(child(), replace(INTERVAL, metric=Metric("odd", Kind.MULTICLASS, value)))
    assert len(seen) > 2
    assert float(report.cost) == pytest.approx(-sum(seen[::2]) / len(seen[::2]))


def test_refuses_what_does_not_work() -> None:
    one = child()
    with pytest.raises(ValueError, match="ended after 3 of the 20 steps"):
        train_interval(
            replace(one, batches=lambda step: islice(EpochBatches(*INTERVAL.validation, 8, 0)(step), 3)), INTERVAL
        )
    with pytest.raises(ValueError, match="batch_size=0 came"):
        EpochBatches(*INTERVAL.validation, batch_size=0, seed=0)
    with pytest.raises(ValueError, match=r"binary predictions: outputs have the shape \(50, 3\)"):
        train_interval(child(), replace(INTERVAL, metric=METRICS["f1"]))
    with pytest.raises(ValueError, match="the training of a child diverged"):
        train_interval(replace(child("sgd"), learning_rate=lambda step: 1e30), INTERVAL)
    broken = ParametricLoss(lambda outputs, targets, values: outputs.mean() / (0 * values.sum()) * 0, initial=[1.0])
    with pytest.raises(ValueError, match="2 statistics that are NaN"):
        train_interval(replace(child(), loss=broken, warmup_loss=WARMUP), replace(INTERVAL, is_warmup=True))
