"""The whole method on a toy: it steers, it can be repeated, and it can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from lossmith.methods.ala import (
    ALA,
    AdaptiveStep,
    Child,
    ClassCorrelationLoss,
    DistanceMixture,
    EpochBatches,
    ParametricLoss,
    adaptive_steps,
)
from lossmith.methods.ala.children import Report
from lossmith.methods.ala.steering import _select, _State
from lossmith.metrics import METRICS
from lossmith.vocabulary import Kind, Metric
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


def undefined_from(number: int) -> Metric:
    """Accuracy, and NaN from that evaluation on."""
    num_calls = 0

    def value(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal num_calls
        num_calls += 1
        return METRICS["accuracy"].value(outputs, targets) if num_calls <= number else torch.tensor([torch.nan])

    return Metric("accuracy", Kind.MULTICLASS, value)


def test_where_the_metric_is_undefined_there_is_no_reward() -> None:
    child = make_child(0)
    options = {"num_steps": 30, "interval": 10, "num_evaluations": 1}
    rounds = adaptive_steps([child], ALA(child.loss), undefined_from(2), rows(1), **options)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="undefined on the validation rows: no reward"):
        steps = list(rounds)
    assert steps[2].details["rewards"].tolist() == [0]
    assert torch.equal(steps[2].details["costs"], steps[1].details["costs"])
    with pytest.raises(ValueError, match="nothing to steer by"):
        next(adaptive_steps([child], ALA(child.loss), undefined_from(0), rows(1), **options))  # type: ignore[arg-type]


def test_one_child_without_a_selection_does_not_hide_the_other() -> None:
    selection = torch.tensor([torch.nan, 0.5], dtype=torch.float64)
    reports = [Report(*[torch.tensor(0.0)] * 2, each, *[torch.tensor(0.0)] * 3) for each in selection]
    crew = [make_child(seed) for seed in range(2)]
    state = _State(1, [], [], [])
    _select(state, crew, reports, None)
    assert state.best_cost == 0.5
    assert state.selected is not None
    assert torch.equal(state.selected["weight"], crew[1].model.state_dict()["weight"])


def test_a_run_goes_on_with_its_own_settings_only(tmp_path: Path) -> None:
    run(makers(1), tmp_path)
    with pytest.raises(ValueError, match="other seeds"):
        run(makers(2)[1:], tmp_path)
    other = ALA(ClassCorrelationLoss(4), seed=1)
    options = {"interval": INTERVAL, "num_evaluations": 3, "folder": tmp_path, "num_steps": NUM_STEPS}
    with pytest.raises(ValueError, match=r"other controller\)"):
        next(adaptive_steps(makers(1), other, METRICS["accuracy"], rows(1), **options))  # type: ignore[arg-type]


def test_checkpoints_of_a_run_that_never_began_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "child0-round1.safetensors").write_bytes(b"of another run")
    next(
        adaptive_steps(
            makers(1), ALA(ClassCorrelationLoss(4)), METRICS["accuracy"], rows(1), num_steps=1, folder=tmp_path
        )
    )
    assert (tmp_path / "child0-round1.safetensors").stat().st_size > 100


def test_finds_the_weight_that_the_metric_wants() -> None:
    """With the weight that it starts with a model says "none" to all rows; a random walk gets out of that later."""

    def weighted(outputs: torch.Tensor, targets: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets.float(), pos_weight=values[0].exp())

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1000, 4, generator=generator)
    targets = (inputs[:, 0] + 0.3 * torch.randn(1000, generator=generator) > 1.3).long()

    def child(seed: int) -> Child:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))
        loss = ParametricLoss(weighted, initial=[-3.0], low=-4, high=4, step_size=0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        return Child(model, loss, optimizer, EpochBatches(inputs, targets, batch_size=100, seed=seed), seed=seed)

    def end(seed: int, *, is_learning: bool) -> float:
        children = [child(seed) for seed in range(10, 14)]
        controller = ALA(children[0].loss, learning_rate=1e-2, is_learning=is_learning, seed=seed)
        *_, last = adaptive_steps(
            children,
            controller,
            METRICS["balanced_accuracy"],
            (inputs, targets),
            num_steps=120,
            interval=2,
            num_evaluations=1,
        )
        return -float(last.details["costs"].mean())

    # on average: a controller of one seed may be as lucky as a walk, or less
    learned, walked = (sum(end(seed, is_learning=each) for seed in range(4)) / 4 for each in (True, False))
    assert learned > walked + 0.1


def test_refuses_what_does_not_work() -> None:
    child = make_child(0)
    accuracy, held_out = METRICS["accuracy"], rows(1)
    with pytest.raises(ValueError, match="a loss with parameters to move works"):
        ALA(torch.nn.CrossEntropyLoss())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'history': 0"):
        ALA(child.loss, history=0)
    for options, match in (
        ({"num_evaluations": 0}, "num_evaluations=0"),
        ({"discount": 0.0}, "discount=0.0"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
        ({"backend": "threads"}, "'loky' \\(local processes\\) and 'ray' work"),
        ({"selection": (held_out[0], held_out[1][:3])}, "selection has 200 inputs and 3 targets"),
    ):
        with pytest.raises(ValueError, match=match):
            next(adaptive_steps([child], ALA(child.loss), accuracy, held_out, num_steps=9, **options))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="children came as one child"):
        next(adaptive_steps(child, ALA(child.loss), accuracy, held_out, num_steps=9))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="controller came as str"):
        next(adaptive_steps([child], "ala", accuracy, held_out, num_steps=9))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="validation came as NoneType"):
        next(adaptive_steps([child], ALA(child.loss), accuracy, None, num_steps=9))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="validation has 0 inputs"):
        next(adaptive_steps([child], ALA(child.loss), accuracy, (held_out[0][:0], held_out[1][:0]), num_steps=9))
    with pytest.raises(ValueError, match="metric came as str"):
        next(adaptive_steps([child], ALA(child.loss), "accuracy", held_out, num_steps=9))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two children have one model"):
        next(adaptive_steps([child, child], ALA(child.loss), accuracy, held_out, num_steps=9))
    with pytest.raises(ValueError, match="Losses of one family"):
        next(adaptive_steps([child], ALA(DistanceMixture()), METRICS["accuracy"], rows(1), num_steps=10))
    with pytest.raises(ValueError, match="give functions that make"):
        next(adaptive_steps([child], ALA(child.loss), METRICS["accuracy"], rows(1), num_steps=10, num_processes=2))
    with pytest.raises(ValueError, match="0 children came"):
        next(adaptive_steps([], ALA(child.loss), METRICS["accuracy"], rows(1), num_steps=10))
