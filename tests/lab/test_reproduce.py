"""Experiments: killed anywhere they end with the same result; every one runs at its smallest scale."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lossmith.lab.reproduce import COMMITTED, EXPERIMENTS, committed_results, find_experiment, write_results
from lossmith.lab.reproduce.experiment import (
    Bar,
    Experiment,
    Result,
    Unit,
    Verdict,
    experiment_steps,
    read_results,
)
from lossmith.lab.reproduce.rate_choice import RateChoice, late_mean, rate_choice_steps
from lossmith.lab.reproduce.training_run import TrainingRun, augmented, training_run_steps

RUN = TrainingRun("digits", "mlp", "uniloss", num_epochs=4, momentum=0.9, milestones=(0.5,), max_rows=300)


def finish(steps: Generator[float, None, Result]) -> Result:
    results: list[Result] = []

    def keep() -> Generator[float, None, None]:
        results.append((yield from steps))

    for _ in keep():
        pass
    return results[0]


def without_seconds(result: Result) -> Result:
    return {**result, "curve": [{**epoch, "seconds": None} for epoch in result["curve"]]}


# --------------------------------------------------------------------------------------------------------- one run


def test_a_killed_run_ends_with_the_same_result(tmp_path: Path) -> None:
    whole = finish(training_run_steps(RUN, tmp_path / "whole"))
    assert len(whole["curve"]) == 4
    assert whole["curve"][-1]["loss"] < whole["curve"][0]["loss"]
    for num_epochs in (1, 3):
        folder = tmp_path / str(num_epochs)
        steps = training_run_steps(RUN, folder)
        for _ in range(num_epochs):
            next(steps)
        steps.close()
        assert without_seconds(finish(training_run_steps(RUN, folder))) == without_seconds(whole)


def test_seeds_differ_and_the_callers_random_numbers_stay(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    one, other = (finish(training_run_steps(replace(RUN, seed=seed), tmp_path / str(seed))) for seed in (0, 1))
    assert one["curve"][0]["loss"] != other["curve"][0]["loss"]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    next(training_run_steps(RUN, tmp_path))
    with pytest.raises(ValueError, match="other settings"):
        next(training_run_steps(replace(RUN, learning_rate=1.0), tmp_path))


def test_the_learning_rate_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(
        torch.optim.SGD, "step", lambda optimizer: (seen.append(optimizer.param_groups[0]["lr"]), step(optimizer))
    )
    finish(training_run_steps(RUN, tmp_path))
    assert [seen[0], seen[-1]] == pytest.approx([0.1, 0.01])
    assert len(set(seen)) == 2


def test_augmented_images_are_crops(generator: torch.Generator) -> None:
    images = torch.arange(1.0, 2 * 3 * 64 + 1).view(2, 3, 8, 8).repeat(50, 1, 1, 1)
    ((crops, targets),) = augmented([(images, torch.arange(100))], generator)
    assert crops.shape == images.shape
    assert torch.equal(targets, torch.arange(100))
    num_mirrored = 0
    for image, crop in zip(images, crops):
        padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
        windows = padded.unfold(1, 8, 1).unfold(2, 8, 1).flatten(1, 2)  # [3, 81, 8, 8]
        is_plain, is_mirrored = (
            bool((windows == each[:, None]).flatten(2).all(-1).all(0).any()) for each in (crop, crop.flip(-1))
        )
        assert is_plain or is_mirrored
        num_mirrored += is_mirrored and not is_plain
    assert 25 < num_mirrored < 75


# ------------------------------------------------------------------------------------------------------ experiments


def toy(calls: list[str], *, bar: float = 1.0, setting: int = 0) -> Experiment:
    def work(name: str) -> Generator[float, None, Result]:
        calls.append(name)
        yield 0.5
        return {"value": 2.0}

    def units(scale: str) -> list[Unit]:
        return [Unit(name, {"setting": setting}, lambda _, name=name: work(name)) for name in ("a", "b")]

    def judge(scale: str, results: dict[str, Result]) -> Verdict:
        return Verdict(("unit",), [(name,) for name in results], [Bar("value", results["a"]["value"], bar)])

    return Experiment("toy", "A toy.", {"smoke": "at once"}, units, judge)


def test_finished_units_are_not_done_again(tmp_path: Path) -> None:
    calls: list[str] = []
    experiment = toy(calls)
    steps = experiment_steps(experiment, "smoke", tmp_path)
    assert [next(steps).num_done for _ in range(3)] == [0.5, 1, 1.5]
    steps.close()  # in the middle of b
    with pytest.raises(ValueError, match="not come to its end"):
        read_results(experiment, "smoke", tmp_path)
    assert [step.num_done for step in experiment_steps(experiment, "smoke", tmp_path)] == [1, 1.5, 2]
    assert calls == ["a", "b", "b"]
    assert read_results(experiment, "smoke", tmp_path) == {"a": {"value": 2.0}, "b": {"value": 2.0}}
    with pytest.raises(ValueError, match="other settings"):
        read_results(toy(calls, setting=1), "smoke", tmp_path)


def test_bars() -> None:
    results = {"a": {"value": 2.0}}
    assert toy([], bar=2.0).judge("smoke", results).is_met
    assert not toy([], bar=2.1).judge("smoke", results).is_met
    assert Bar("spread", 0.1, 0.2, is_at_least=False).is_met
    assert str(Bar("AP", 0.5, 0.9)) == "AP: 0.5000 ≥ 0.9, MISSED"
    assert not Bar("AP", float("nan"), 0.9).is_met


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_smoke(experiment: Experiment, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if any(unit.settings.get("dataset", "digits") != "digits" for unit in experiment.units("smoke")):
        request.getfixturevalue("data_root")  # digits come with scikit-learn, all others from there
    progress = list(experiment_steps(experiment, "smoke", tmp_path))
    assert progress[-1].num_done == progress[-1].num_units
    results = read_results(experiment, "smoke", tmp_path)
    verdict = experiment.judge("smoke", results)
    assert verdict.is_met
    assert verdict.rows
    assert {len(row) for row in verdict.rows} == {len(verdict.columns)}
    written = json.loads(write_results(experiment, "smoke", tmp_path).read_text(encoding="utf8"))
    assert written["results"] == results


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_every_scale_has_units_with_names_of_their_own(experiment: Experiment) -> None:
    assert "smoke" in experiment.scales
    for scale in experiment.scales:
        names = [unit.name for unit in experiment.units(scale)]
        assert len(set(names)) == len(names) > 0


@pytest.mark.parametrize("name", ["uniloss-mnist-ap", "uniloss-cifar10", "uniloss-batch-size", "uniloss-anchors"])
def test_full_size_results_are_held_against_bars(name: str) -> None:
    experiment = find_experiment(name)
    results = {
        unit.name: _result_with_test(0.9 if unit.name.startswith("ce") else 0.9990, unit.name)
        for unit in experiment.units("cpu")
    }
    verdict = experiment.judge("cpu", results)
    assert verdict.bars
    assert verdict.is_met
    if name == "uniloss-mnist-ap":
        assert not experiment.judge("cpu", {name: _result_with_test(0.9, name) for name in results}).is_met


def _result_with_test(test: float, unit: str) -> Result:
    run = {"test": test, "curve": [{"validation": test}]}
    return {"rate": 0.1, "validation": test, "runs": [run]} if unit.endswith("chosen rate") else run


def test_of_two_forms_the_bar_takes_the_better_one_by_its_trials() -> None:
    experiment = find_experiment("uniloss-mnist-ap")
    results = {unit.name: _result_with_test(0.9990, unit.name) for unit in experiment.units("cpu")}
    assert [bar.what for bar in experiment.judge("cpu", results).bars] == ["test AP of uniloss", "test AP of traced"]
    # worse on validation rows, whatever its tests
    results["traced, chosen rate"] |= {"validation": 0.9}
    assert experiment.judge("cpu", results).bars[1].what == "test AP of traced, normalised"


def test_a_rate_is_chosen_by_validation_rows(tmp_path: Path) -> None:
    run = replace(RUN, loss="ce", num_epochs=2, milestones=(), batch_size=32)
    choice = RateChoice(run, rates=(1e-5, 0.1), num_trial_epochs=6, trial_seed=0, test_seeds=(1, 2))
    result = finish(rate_choice_steps(choice, tmp_path))
    assert result["rate"] == 0.1
    assert [trial["rate"] for trial in result["trials"]] == [1e-5, 0.1]
    assert all("test" not in trial for trial in result["trials"])
    for seed, of_seed in zip((1, 2), result["runs"]):
        alone = finish(training_run_steps(replace(run, learning_rate=0.1, seed=seed), tmp_path / f"alone{seed}"))
        assert of_seed["test"] == alone["test"]
    # all is there already: a run that was killed goes on
    assert finish(rate_choice_steps(choice, tmp_path)) == result


def test_a_trial_that_came_to_nothing_is_not_chosen() -> None:
    assert late_mean([0.9, 0.5, 0.7]) == 0.7
    assert late_mean([0.9, 0.9, float("nan")]) < late_mean([0.1, 0.1, 0.1])


def test_interpolation_is_close_near_by_and_not_far_away(tmp_path: Path) -> None:
    """The order of Table 5, at the smallest scale."""
    experiment = find_experiment("uniloss-interpolation")
    for _ in experiment_steps(experiment, "smoke", tmp_path):
        pass
    rows = read_results(experiment, "smoke", tmp_path)["accuracy"]
    assert rows["0"]["rank correlation"] > 0.95
    assert rows["0"]["rank correlation"] > rows["1/8"]["rank correlation"] > rows["1/2"]["rank correlation"]
    assert rows["0"]["root mean square difference"] < rows["1/2"]["root mean square difference"]


@pytest.mark.parametrize("path", sorted(COMMITTED.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_committed_can_be_shown(path: Path) -> None:
    name, _, scale = path.stem.rpartition("-")
    experiment = find_experiment(name)
    results = committed_results(experiment, scale)
    assert list(results) == [unit.name for unit in experiment.units(scale)]
    experiment.judge(scale, results)


def test_results_of_an_earlier_form_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = find_experiment("reloss-speed")
    monkeypatch.setattr("lossmith.lab.reproduce._committed", lambda *_: {"results": {"another unit": {}}})
    with pytest.raises(ValueError, match="that is kept is of an earlier form of it; run it, without --show"):
        committed_results(experiment, "cpu")
