"""The whole method on a toy: it steers, it can be repeated, and it can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lossmith.methods.ala import ALA, AdaptiveStep, ClassCorrelationLoss, DistanceMixture, adaptive_steps
from lossmith.metrics import METRICS
from tests.methods.ala.toys import INTERVAL, NUM_STEPS, make_child, makers, rows, run


def assert_same_end(one: list[AdaptiveStep], other: list[AdaptiveStep]) -> None:
    assert one[-1].number == other[-1].number == NUM_STEPS
    for name in ("values", "costs", "rewards", "selection", "probabilities"):
        assert torch.equal(one[-1].details[name], other[-1].details[name]), name
    assert one[-1].selected is not None
    assert other[-1].selected is not None
    assert one[-1].selected.keys() == other[-1].selected.keys()
    assert all(torch.equal(weights, other[-1].selected[name]) for name, weights in one[-1].selected.items())


@pytest.fixture(scope="module")
def uninterrupted() -> list[AdaptiveStep]:
    return run(makers())


def test_rounds(uninterrupted: list[AdaptiveStep]) -> None:
    assert [step.number for step in uninterrupted] == list(range(INTERVAL, NUM_STEPS + 1, INTERVAL))
    costs = torch.stack([step.details["costs"] for step in uninterrupted])
    assert costs.shape == (6, 2)
    assert (costs[-1] < costs[0]).all()
    rewards = torch.stack([step.details["rewards"] for step in uninterrupted])
    assert rewards[0].isnan().all()  # nothing moved yet
    assert torch.equal(rewards[1:], torch.sign(costs[:-1] - costs[1:]))
    values = torch.stack([step.details["values"] for step in uninterrupted])
    assert not values[0].any()
    assert values[-1].any(-1).all()
    assert not torch.equal(values[-1, 0], values[-1, 1])
    moves = values.diff(dim=0).abs()
    assert ((moves < 1e-6) | ((moves - 0.05).abs() < 1e-6)).all()


def test_selected_is_the_best_by_rows_of_its_own(uninterrupted: list[AdaptiveStep]) -> None:
    selection = torch.stack([step.details["selection"] for step in uninterrupted])
    weights = uninterrupted[-1].selected
    assert weights is not None
    model = make_child(0).model
    model.load_state_dict(dict(weights))
    inputs, targets = rows(2)
    assert -METRICS["accuracy"](model(inputs), targets) == pytest.approx(float(selection.min()))


def test_the_same_seed_gives_the_same_run(uninterrupted: list[AdaptiveStep]) -> None:
    assert_same_end(run(makers()), uninterrupted)


def test_goes_on_in_the_middle(tmp_path: Path, uninterrupted: list[AdaptiveStep]) -> None:
    controller = ALA(ClassCorrelationLoss(4), seed=0)
    steps = adaptive_steps(
        makers(),
        controller,
        METRICS["accuracy"],
        rows(1),
        num_steps=NUM_STEPS,
        interval=INTERVAL,
        selection=rows(2),
        num_evaluations=3,
        folder=tmp_path,
    )
    for _ in range(3):
        next(steps)
    steps.close()
    rest = run(makers(), tmp_path)
    assert len(rest) == 3
    assert_same_end(rest, uninterrupted)
    assert run(makers(), tmp_path) == []  # it has come to its end
    assert len(list(tmp_path.glob("child*"))) == 2  # older checkpoints are gone
    with pytest.raises(ValueError, match="of another run"):
        run(makers(1), tmp_path)


def test_a_killed_run_ends_with_the_same_selection(tmp_path: Path, uninterrupted: list[AdaptiveStep]) -> None:
    """SIGKILL in the middle of the fourth round, of the second child."""
    command = [sys.executable, "-m", "tests.methods.ala.toys", str(tmp_path), "34"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    rest = run(makers(), tmp_path / "run")
    assert [step.number for step in rest] == [40, 50, 60]
    assert_same_end(rest, uninterrupted)


def test_one_child_and_no_selection() -> None:
    child = make_child(0)
    controller = ALA(child.loss)
    *_, last = adaptive_steps(
        [child], controller, METRICS["accuracy"], rows(1), num_steps=25, interval=10, warmup_steps=0, num_evaluations=1
    )
    assert last.number == 25
    assert last.selected is None
    assert last.details["selection"].isnan().all()


def test_a_fixed_policy_stays_as_it_is(tmp_path: Path) -> None:
    controller = ALA(ClassCorrelationLoss(10))
    controller.save(tmp_path / "policy.safetensors")
    child = make_child(0)
    fixed = ALA.load(tmp_path / "policy.safetensors", child.loss)
    for _ in adaptive_steps([child], fixed, METRICS["accuracy"], rows(1), num_steps=40, interval=10):
        pass
    assert child.loss.values.any()
    before, after = controller.state_dict(), fixed.state_dict()
    assert all(torch.equal(weights, after[name]) for name, weights in before.items())


def test_warmup_moves_nothing() -> None:
    child = make_child(0)
    for step in adaptive_steps(
        [child], ALA(child.loss), METRICS["accuracy"], rows(1), num_steps=30, interval=10, warmup_steps=30
    ):
        assert not step.details["values"].any()
        assert "entropy" not in step.details


def test_refuses_what_does_not_work() -> None:
    child = make_child(0)
    with pytest.raises(ValueError, match="Losses of one family"):
        next(adaptive_steps([child], ALA(DistanceMixture()), METRICS["accuracy"], rows(1), num_steps=10))
    with pytest.raises(ValueError, match="give functions that make"):
        next(adaptive_steps([child], ALA(child.loss), METRICS["accuracy"], rows(1), num_steps=10, num_processes=2))
    with pytest.raises(ValueError, match="0 children came"):
        next(adaptive_steps([], ALA(child.loss), METRICS["accuracy"], rows(1), num_steps=10))
