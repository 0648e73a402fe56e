"""A long bilevel run: killed anywhere it ends with the same numbers; how many iterations it takes is judged by them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from lossmith.lab.reproduce import bilevel_run
from lossmith.lab.reproduce.bilevel_run import BilevelRun, bilevel_run_steps
from lossmith.lab.reproduce.experiment import Result
from lossmith.lab.reproduce.surrogate_pace import PACE
from lossmith.methods.bilevel import universal_steps
from tests.lab.test_reproduce import finish, without_seconds

FAST = BilevelRun("toy", "auc", 8, num_stretches=2, num_first_steps=20)
PAPER = replace(FAST, is_paper=True, num_copies=0, num_first_steps=0, max_gradient_norm=1e-5, learning_rate=1e-5)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in place of a file of the data folder, and a universal surrogate that is learned in no time."""
    from lossmith.kinds import Kind
    from lossmith.lab.datasets.splitting import Pool, split

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(600, 5, generator=generator)
    targets = (inputs[:, 0] - inputs[:, 1] + 0.5 * torch.randn(600, generator=generator) > 1).long()
    pool = Pool("toy", Kind.BINARY, inputs, targets, 2)
    monkeypatch.setattr(bilevel_run, "ITERATIONS_BETWEEN_YIELDS", 3)
    monkeypatch.setattr(bilevel_run, "universal_steps", partial(universal_steps, num_steps=20, num_sets=64))
    monkeypatch.setattr(bilevel_run, "_parts", lambda name, seed: split(pool, [seed], shares=bilevel_run.SHARES))


@pytest.mark.parametrize("run", [FAST, PAPER], ids=["fast", "paper"])
def test_a_killed_run_ends_with_the_same_result(run: BilevelRun, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    whole = finish(bilevel_run_steps(run, tmp_path / "whole"))
    assert [look["iteration"] for look in whole["curve"]] == [4, 8]
    # two yields in each stretch: killed before anything is kept, and in the middle of the second stretch
    for num_yields in (1, 4):
        folder = tmp_path / str(num_yields)
        steps = bilevel_run_steps(run, folder)
        shares = [next(steps) for _ in range(num_yields)]
        assert shares == sorted(shares)
        steps.close()
        assert (folder / "checkpoint.safetensors").is_file() == (num_yields == 4)
        assert without_seconds(finish(bilevel_run_steps(run, folder))) == without_seconds(whole)
    # a finished one is not trained again
    assert finish(bilevel_run_steps(run, tmp_path / "whole")) == whole
    assert torch.equal(torch.get_rng_state(), state)


def test_the_fast_setting_learns_and_seeds_differ(tmp_path: Path) -> None:
    runs = [
        finish(bilevel_run_steps(replace(FAST, num_iterations=30, seed=seed), tmp_path / str(seed))) for seed in (0, 1)
    ]
    looks = [run["curve"][-1]["test"] for run in runs]
    assert min(looks) > 0.8
    assert looks[0] != looks[1]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    finish(bilevel_run_steps(replace(FAST, num_iterations=2), tmp_path))
    with pytest.raises(ValueError, match="other settings"):
        next(bilevel_run_steps(FAST, tmp_path))


# --------------------------------------------------------------------------------------------------- surrogate-pace


def curves(*, paper: float, fast: float) -> dict[str, Result]:
    """Of the scale that counts: every run ends at that value."""
    results: dict[str, Result] = {}
    for unit in PACE.units("cpu"):
        num_looks, end = unit.settings["num_stretches"], paper if unit.settings["is_paper"] else fast
        stretch = unit.settings["num_iterations"] // num_looks
        results[unit.name] = {
            "curve": [
                {"iteration": stretch * look, "test": 0.5 + (end - 0.5) * look / num_looks, "seconds": 60.0}
                for look in range(1, num_looks + 1)
            ]
        }
    return results


def test_pace_is_judged_by_its_last_look() -> None:
    assert PACE.judge("cpu", curves(paper=0.9, fast=0.8985)).is_met
    verdict = PACE.judge("cpu", curves(paper=0.9, fast=0.8975))
    assert not verdict.is_met
    assert [bar.is_met for bar in verdict.bars] == [False, True, False, True]
    assert verdict.bars[1].value == pytest.approx(1 / 50)
    paper, fast = verdict.rows[:2]
    assert paper[:3] == ("a9a", "the paper's", "0.5200")  # after 3 of 60 looks
    assert paper[-2:] == ("300,000", "60.0")
    assert fast[-3:] == ("0.8975 ± 0.0000", "6,000", "20.0")


def test_a_fast_setting_that_takes_too_long_is_no_fast_one() -> None:
    results = curves(paper=0.9, fast=0.9)
    for name, result in results.items():
        if name.startswith("a9a-fast"):
            result["curve"][-1]["iteration"] = 20_000
    assert not PACE.judge("cpu", results).is_met
