"""A loss with its own learning rate: chosen on validation rows with one seed, tested with others.

A unit of work for experiments that compare losses by equal trials: each loss has the same rates to choose from, the
same epochs to choose in, and the seeds that are tested have no part in the choice. Trials do not look at test rows.

>>> from tempfile import TemporaryDirectory
>>> run = TrainingRun("digits", "mlp", "ce", num_epochs=2, momentum=0.9)
>>> choice = RateChoice(run, rates=(0.001, 0.1), num_trial_epochs=2, trial_seed=0, test_seeds=(1,))
>>> with TemporaryDirectory() as folder:
...     list(rate_choice_steps(choice, Path(folder)))
[0.1667, 0.3333, 0.5, 0.6667, 0.8333, 1.0]
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lossmith.lab.reproduce.experiment import Result, Unit, part_steps
from lossmith.lab.reproduce.training_run import TrainingRun, trained_steps, training_run_steps


@dataclass(frozen=True)
class RateChoice:
    """Plain values: they are kept beside the result, and say what it belongs to."""

    run: TrainingRun
    """Its own learning rate and seed are not used."""
    rates: tuple[float, ...]
    num_trial_epochs: int
    trial_seed: int
    test_seeds: tuple[int, ...]

    def unit(self, name: str) -> Unit:
        return Unit(name, asdict(self), lambda folder: rate_choice_steps(self, folder))


def rate_choice_steps(choice: RateChoice, folder: Path) -> Generator[float, None, Result]:
    """Share of the epochs that is done; returns the trials, the rate, and a run for each test seed."""
    num_trial_epochs, num_test_epochs = choice.num_trial_epochs, choice.run.num_epochs
    num_epochs = len(choice.rates) * num_trial_epochs + len(choice.test_seeds) * num_test_epochs
    done = 0

    def share_told(num_epochs_of_run: int) -> Callable[[float], float]:
        before = done
        return lambda share: round((before + share * num_epochs_of_run) / num_epochs, 4)

    trials: list[Result] = []
    for rate in choice.rates:
        run = replace(choice.run, learning_rate=rate, seed=choice.trial_seed, num_epochs=num_trial_epochs)
        steps = trained_steps(run, folder / f"rate{rate:g}")
        _, curve = yield from part_steps(steps, share_told(num_trial_epochs))
        done += num_trial_epochs
        trials.append({"rate": rate, "validation": late_mean([epoch["validation"] for epoch in curve]), "curve": curve})
    best = max(trials, key=lambda trial: trial["validation"])
    runs: list[Result] = []
    for seed in choice.test_seeds:
        run = replace(choice.run, learning_rate=best["rate"], seed=seed)
        steps_of_test = training_run_steps(run, folder / f"seed{seed}")
        result = yield from part_steps(steps_of_test, share_told(num_test_epochs))
        done += num_test_epochs
        runs.append({"seed": seed, **result})
    return {"trials": trials, "rate": best["rate"], "validation": best["validation"], "runs": runs}


def late_mean(values: list[float]) -> float:
    """Over the last third of the epochs, as one epoch alone is noisy; a run that has come to nothing is the worst."""
    mean = statistics.fmean(values[-max(len(values) // 3, 1) :])
    return -math.inf if math.isnan(mean) else mean
