"""A study is run, killed, taken up again; grids widen; fresh seeds confirm."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from lossmith.kinds import Kind
from lossmith.lab.comparing import studying
from lossmith.lab.comparing.records import Settings, Trial
from lossmith.lab.comparing.studying import (
    FIRST_FRESH_SEED,
    MAX_WIDENINGS,
    Progress,
    compare_steps,
    grid,
    model_for,
    planned,
)
from lossmith.metrics import METRICS
from tests.lab.comparing.test_running import toy_pool

POOL, F1 = toy_pool(), METRICS["f1"]
SETTINGS = Settings(
    "toy", "f1", ("ce", "soft_f1"), model="linear", num_seeds=2, num_trials=2, num_steps=7, batch_size=32
)


def trials_of(steps: list[Progress]) -> list[Trial]:
    return [trial for progress in steps for trial in progress.trials]


def trial(recipe: str, rate: float, validation: float, *, seed: int = 0, is_confirmation: bool = False) -> Trial:
    return Trial(recipe, "", seed, rate, is_confirmation, ((7, validation),), 7, 0.0, validation, validation, 0.001)


def test_a_killed_study_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = list(compare_steps(SETTINGS, POOL, F1))
    first = list(compare_steps(SETTINGS, POOL, F1, folder=tmp_path, budget=0.0))
    assert first[-1].share < 1
    killed = compare_steps(SETTINGS, POOL, F1, folder=tmp_path)
    kept: list[Trial] = []
    while not kept:
        kept += next(killed).trials
    next(killed)
    del killed  # in the middle of a unit
    rest = list(compare_steps(SETTINGS, POOL, F1, folder=tmp_path))
    assert list(rest[0].trials) == kept
    assert rest[-1].share == 1

    def told(trials: list[Trial]) -> set[Trial]:
        return {replace(each, seconds_per_step=0.0) for each in trials}

    assert told(trials_of(rest)) == told(trials_of(whole))
    # nothing is left to do
    again = list(compare_steps(SETTINGS, POOL, F1, folder=tmp_path))
    assert [progress.share for progress in again] == [1.0]


def test_other_settings_are_not_taken_up(tmp_path: Path) -> None:
    list(compare_steps(SETTINGS, POOL, F1, folder=tmp_path, budget=0.0))
    with pytest.raises(ValueError, match="other settings \\(num_steps\\)"):
        list(compare_steps(replace(SETTINGS, num_steps=8), POOL, F1, folder=tmp_path))


def test_any_address_of_a_storage(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    trials = trials_of(list(compare_steps(SETTINGS, POOL, F1, storage=address)))
    assert trials_of(list(compare_steps(SETTINGS, POOL, F1, storage=address))) == trials


def test_what_a_killed_machine_had_begun_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    killed = compare_steps(SETTINGS, POOL, F1, storage=address)
    next(killed)
    next(killed)  # in the middle of the first unit, which is that of cross-entropy
    del killed
    others = list(compare_steps(SETTINGS, POOL, F1, storage=address, budget=0.5))
    assert "ce" not in {each.recipe for each in trials_of(others)}  # whoever has begun it may well be alive
    monkeypatch.setattr(studying, "PATIENCE", 0.0)
    rest = list(compare_steps(SETTINGS, POOL, F1, storage=address))
    assert rest[-1].share == 1
    whole = trials_of(list(compare_steps(SETTINGS, POOL, F1)))
    assert {replace(each, seconds_per_step=0.0) for each in trials_of(rest)} == {
        replace(each, seconds_per_step=0.0) for each in whole
    }


def test_two_machines_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studying.time, "sleep", lambda seconds: None)
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    one, other = (compare_steps(SETTINGS, POOL, F1, storage=address) for _ in range(2))
    next(one)
    next(other)
    begun = {next(one).what, next(other).what}
    assert len(begun) == 2  # not the same unit twice
    found: list[list[Progress]] = [[], []]
    for both in itertools.zip_longest(one, other):
        for of_one, progress in zip(found, both):
            of_one += [progress] if progress is not None else []
    alone = {replace(each, seconds_per_step=0.0) for each in trials_of(list(compare_steps(SETTINGS, POOL, F1)))}
    for of_one in found:  # both have seen everything, whoever did it
        assert of_one[-1].share == 1
        assert {replace(each, seconds_per_step=0.0) for each in trials_of(of_one)} == alone


def test_waves_have_seeds_of_their_own() -> None:
    trials = trials_of(list(compare_steps(SETTINGS, POOL, F1)))
    explored = {each.seed for each in trials if not each.is_confirmation}
    confirmed = {each.seed for each in trials if each.is_confirmation}
    assert explored == {0, 1}
    assert confirmed <= {FIRST_FRESH_SEED, FIRST_FRESH_SEED + 1}


def test_the_grid_widens_at_its_edge() -> None:
    rates = grid("linear", 3)
    falling = [trial("ce", rate, 0.9 - 0.1 * number) for number, rate in enumerate(rates)]
    wider = [unit for unit in planned(SETTINGS3, POOL, F1, falling) if unit.recipe == "ce"]
    assert wider[1].rates == pytest.approx((rates[0] ** 2 / rates[1],))
    # and again, but not for ever
    for number in range(1, 5):
        falling.append(trial("ce", wider[-1].rates[0], 0.9 + 0.1 * number))
        wider = [unit for unit in planned(SETTINGS3, POOL, F1, falling) if unit.recipe == "ce"]
    assert len(wider) == 1 + MAX_WIDENINGS
    in_the_middle = [trial("ce", rate, value) for rate, value in zip(rates, (0.1, 0.9, 0.2))]
    assert len([unit for unit in planned(SETTINGS3, POOL, F1, in_the_middle) if unit.recipe == "ce"]) == 1


SETTINGS3 = replace(SETTINGS, num_trials=3)


def test_only_the_candidate_is_confirmed_with_what_it_is_measured_against() -> None:
    settings = replace(SETTINGS3, losses=("ce_again", "soft_f1", "focal"))
    values = {"ce": 0.5, "ce_again": 0.5, "soft_f1": 0.7, "focal": 0.6}
    rates = grid("linear", 3)
    trials = [
        trial(name, rate, value - abs(number - 1) * 0.1, seed=seed)
        for name, value in values.items()
        for number, rate in enumerate(rates)
        for seed in (0, 1)
    ]
    confirmed = [unit for unit in planned(settings, POOL, F1, trials) if unit.is_confirmation]
    assert [unit.recipe for unit in confirmed] == ["ce", "ce_again", "soft_f1"]
    assert all(unit.rates == rates for unit in confirmed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": ("sof_f1",)}, "did you mean 'soft_f1'"),
        ({"model": "transformer"}, "mlp32"),
        ({"metric": "accuracy", "losses": ("pairwise",)}, "not for multiclass"),
    ],
)
def test_mistakes_are_named(change: dict[str, object], message: str) -> None:
    settings = replace(SETTINGS, **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        next(compare_steps(settings, POOL, METRICS[settings.metric]))


def test_model_and_grid() -> None:
    assert model_for(replace(SETTINGS, model="auto"), POOL) == "linear"
    assert model_for(replace(SETTINGS, model="auto"), toy_pool(3000)) == "mlp32"
    assert grid("linear", 2) == pytest.approx((0.01, 0.3))
    assert len(grid("mlp32", 1)) == 1


def test_kinds_of_classes() -> None:
    pool = toy_pool(num_classes=3)
    settings = replace(SETTINGS, metric="f1_macro", losses=("ce", "soft_f1"), with_confirmation=False)
    trials = trials_of(list(compare_steps(settings, pool, METRICS["f1_macro"])))
    assert pool.kind is Kind.MULTICLASS
    assert {each.threshold for each in trials} == {None}
