"""What is run, and in which order: exploration, wider grids, confirmation. What is done is kept, and not done again.

A unit of work is one loss with all its seeds and learning rates, trained as one stack. Finished units are trials of an
Optuna study: in a file (SQLite), or at any address that Optuna's storage takes, where many machines can share the work.
"""

from __future__ import annotations

import difflib
import json
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossmith.lab.comparing.comparison import find_candidate, mean_by_rate
from lossmith.lab.comparing.recipes import RECIPES
from lossmith.lab.comparing.records import CONTROL, REFERENCE, Settings, Trial
from lossmith.lab.comparing.running import Plan, StackResult, stack_steps
from lossmith.lab.comparing.stacks import STACKED_MODELS
from lossmith.lab.datasets.splitting import Pool, split
from lossmith.vocabulary import Metric

if TYPE_CHECKING:
    import optuna

# fresh seeds begin here, far from those of the exploration
FIRST_FRESH_SEED = 10_000
FILE_NAME = "trials.db"
MAX_WIDENINGS = 2
# seconds without a sign of life after which others take over what a machine has begun
PATIENCE = 600.0
# the reference, its control and the candidate
NUM_CONFIRMED = 3
MIN_ROWS_OF_NETWORK = 2_000


@dataclass(frozen=True)
class Progress:
    """What :func:`compare_steps` yields: the share that is done of what is planned so far, and trials that are new."""

    what: str
    share: float
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Unit:
    """One loss, at these learning rates, on the seeds of one wave."""

    recipe: str
    rates: tuple[float, ...]
    is_confirmation: bool

    @property
    def key(self) -> str:
        rates = ",".join(f"{rate:.6g}" for rate in self.rates)
        return f"{self.recipe} {'confirm' if self.is_confirmation else 'explore'} {rates}"


def model_for(settings: Settings, pool: Pool) -> str:
    """``auto`` is a network where there are rows enough for one, else a linear model."""
    if settings.model != "auto":
        if settings.model not in STACKED_MODELS:
            raise ValueError(f"there is no model {settings.model!r} to compare with; {', '.join(STACKED_MODELS)} work.")
        return settings.model
    return "mlp32" if len(pool.targets) >= MIN_ROWS_OF_NETWORK else "linear"


def grid(model: str, num_trials: int) -> tuple[float, ...]:
    """Learning rates at equal ratios; a single one is the middle."""
    low, high = STACKED_MODELS[model].learning_rates
    if num_trials == 1:
        return (math.sqrt(low * high),)
    return tuple(low * (high / low) ** (k / (num_trials - 1)) for k in range(num_trials))


def compare_steps(
    settings: Settings,
    pool: Pool,
    metric: Metric,
    *,
    folder: str | Path | None = None,
    storage: str | None = None,
    budget: float | None = None,
) -> Iterator[Progress]:
    """Does what is not yet done. All trials together, those of earlier runs included, come in what is yielded; the last
    share is 1 where everything has been run.

    ``folder`` keeps the trials in a file there, ``storage`` at an address of Optuna's (``postgresql://...``); without
    either, nothing is kept. After ``budget`` seconds no more is begun, and what runs is left.
    """
    study = open_study(settings, folder=folder, storage=storage)
    start = time.monotonic()
    finished: dict[str, tuple[Trial, ...]] = {}
    while True:
        new = {key: of_unit for key, of_unit in _finished(study).items() if key not in finished}
        finished |= new
        plan = planned(settings, pool, metric, [trial for of_unit in finished.values() for trial in of_unit])
        open_units = [unit for unit in plan if unit.key not in finished]
        sizes = {unit.key: _size(unit, finished, settings) for unit in plan}
        # fresh seeds are still to come, most likely
        to_come = 0.0 if any(unit.is_confirmation for unit in plan) else NUM_CONFIRMED * sizes[plan[0].key]
        whole = sum(sizes.values()) + (to_come if open_units and settings.with_confirmation else 0.0)
        share = 1 - (whole - sum(sizes[key] for key in finished if key in sizes)) / whole if open_units else 1.0
        yield Progress(", ".join(new), share, tuple(trial for of_unit in new.values() for trial in of_unit))
        if not open_units:
            return
        claimed = _claim(study, open_units)
        if claimed is None:  # others are at work on all that is left
            if budget is not None and time.monotonic() - start > budget:
                return
            time.sleep(1)
            continue
        unit, kept = claimed
        told = time.monotonic()
        for part in _unit_steps(settings, pool, metric, unit, study, kept):
            if budget is not None and time.monotonic() - start > budget:
                study.tell(kept, state=_failed(), skip_if_finished=True)
                return
            if time.monotonic() - told > PATIENCE / 10:
                told = time.monotonic()
                _show_life(kept)
            yield Progress(unit.key, share + part * sizes[unit.key] / whole)


def _size(unit: Unit, finished: Mapping[str, Sequence[Trial]], settings: Settings) -> float:
    """About the time that it takes: the seconds of the runs of this loss so far, or of all."""
    known = [trial for of_unit in finished.values() for trial in of_unit]
    seconds = [trial.seconds_per_step for trial in known if trial.recipe == unit.recipe]
    seconds = seconds or [trial.seconds_per_step for trial in known] or [1.0]
    num_runs = len(unit.rates) * len(RECIPES[unit.recipe].variants) * settings.num_seeds
    # a stack of few runs takes longer for each
    return statistics.mean(seconds) * (num_runs + settings.num_seeds)


def planned(settings: Settings, pool: Pool, metric: Metric, trials: Sequence[Trial]) -> list[Unit]:
    """Everything that the trials so far ask for, the done included, in order."""
    names = tuple(dict.fromkeys((REFERENCE, *settings.losses)))
    _check(names, metric)
    rates = grid(model_for(settings, pool), settings.num_trials)
    explored = [trial for trial in trials if not trial.is_confirmation]
    # every loss has its turn before any is given more rates: a budget may end it all at any time
    units = [Unit(name, rates, False) for name in names]
    units += [Unit(name, (rate,), False) for name in names for rate in _wider(name, rates, explored, metric)]
    if not settings.with_confirmation or {trial.recipe for trial in explored} < set(names):
        return units
    candidate = find_candidate(explored, higher_is_better=metric.higher_is_better)
    if candidate == REFERENCE:
        return units
    for name in dict.fromkeys((REFERENCE, *(each for each in (CONTROL,) if each in names), candidate)):
        tried = sorted({trial.learning_rate for trial in explored if trial.recipe == name})
        units.append(Unit(name, tuple(tried), True))
    return units


def _check(names: Sequence[str], metric: Metric) -> None:
    for name in names:
        if name not in RECIPES:
            nearest = [f"; did you mean {each!r}?" for each in difflib.get_close_matches(name, RECIPES, n=1)]
            raise ValueError(
                f"there is no loss {name!r} to compare{''.join(nearest) or '.'} `lossmith losses --compared` lists all."
            )
        if not RECIPES[name].fits(metric):
            fitting = ", ".join(recipe.name for recipe in RECIPES.values() if recipe.fits(metric))
            raise ValueError(f"{name} is not for {metric.kind} predictions, which {metric.name} judges; {fitting} are.")


def _wider(name: str, rates: Sequence[float], trials: Sequence[Trial], metric: Metric) -> list[float]:
    """Learning rates beyond the grid, one after the other as long as the best one lies at its edge."""
    if len(rates) < 2:
        return []
    ratio = rates[1] / rates[0]
    values = mean_by_rate([trial for trial in trials if trial.recipe == name], higher_is_better=metric.higher_is_better)
    known, wider = list(rates), list[float]()
    while len(wider) < MAX_WIDENINGS and all(rate in values for rate in known):
        best = max(known, key=lambda rate: values[rate])
        if min(known) < best < max(known):
            break
        wider.append(best * ratio if best == max(known) else best / ratio)
        known.append(wider[-1])
    return wider


def _unit_steps(
    settings: Settings, pool: Pool, metric: Metric, unit: Unit, study: optuna.Study, kept: optuna.Trial
) -> Iterator[float]:
    first = settings.first_seed + FIRST_FRESH_SEED * unit.is_confirmation
    seeds = range(first, first + settings.num_seeds)
    parts = split(pool, seeds, max_rows=settings.max_rows)
    plan = Plan(model_for(settings, pool), settings.num_steps, settings.batch_size, is_balanced=settings.is_balanced)
    recipe = RECIPES[unit.recipe]
    result = yield from stack_steps(parts, plan, recipe, seeds=seeds, rates=unit.rates, metrics=[metric])
    trials = trials_of(result, metric, unit, recipe.variants, seeds)
    kept.set_user_attr("trials", json.dumps([trial.to_json() for trial in trials]))
    # others may have given it up, if this took very long
    study.tell(kept, statistics.mean(trial.validation for trial in trials), skip_if_finished=True)


def trials_of(
    result: StackResult, metric: Metric, unit: Unit, variants: Sequence[str], seeds: Sequence[int]
) -> tuple[Trial, ...]:
    """One for each run, at its best checkpoint."""
    looks = result.looks[metric.name]
    settings_of_runs = [(seed, variant, rate) for seed in seeds for variant in variants for rate in unit.rates]
    trials = []
    for run, (seed, variant, rate) in enumerate(settings_of_runs):
        values = [float(look.validation[run]) for look in looks]
        sign = 1 if metric.higher_is_better else -1
        # NaN, of scores that have grown beyond all bounds, is worse than anything
        best = max(range(len(looks)), key=lambda k: -math.inf if math.isnan(values[k]) else sign * values[k])
        thresholds = looks[best].thresholds
        trials.append(
            Trial(
                unit.recipe,
                variant,
                seed,
                rate,
                unit.is_confirmation,
                tuple((look.step, value) for look, value in zip(looks, values)),
                looks[best].step,
                None if thresholds is None else float(thresholds[run]),
                values[best],
                float(looks[best].test[run]),
                result.seconds_per_step / result.num_runs,
                ("scores grew beyond all bounds",) if any(math.isnan(value) for value in values) else (),
            )
        )
    return tuple(trials)


# ------------------------------------------------------------------------------------------------------ what is kept


def open_study(settings: Settings, *, folder: str | Path | None, storage: str | None) -> optuna.Study:
    """The study of these settings: a new one, or the one that is there."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    address = storage
    if storage is None and folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        address = f"sqlite:///{Path(folder).resolve() / FILE_NAME}"
    name = f"{settings.data} {settings.metric}"
    study = optuna.create_study(storage=address, study_name=name, load_if_exists=True)
    kept = study.user_attrs.get("settings")
    if kept is None:
        study.set_user_attr("settings", settings.to_json())
    elif kept != json.loads(json.dumps(settings.to_json())):
        changed = ", ".join(
            key for key, value in settings.to_json().items() if json.dumps(kept.get(key)) != json.dumps(value)
        )
        raise ValueError(f"the study in {folder or storage} has other settings ({changed}); take another folder.")
    if storage is None:
        # a file belongs to one process: what it says is running was killed
        for trial in _running(study):
            study.tell(trial.number, state=_failed())
    return study


def _finished(study: optuna.Study) -> dict[str, tuple[Trial, ...]]:
    from optuna.trial import TrialState

    return {
        trial.user_attrs["unit"]: tuple(Trial.from_json(fields) for fields in json.loads(trial.user_attrs["trials"]))
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    }


def _claim(study: optuna.Study, units: Sequence[Unit]) -> tuple[Unit, optuna.Trial] | None:
    """A unit that nobody is at work on, and the trial that says that we are."""
    _give_up_the_dead(study)
    taken = {trial.user_attrs.get("unit") for trial in _running(study)}
    unit = next((unit for unit in units if unit.key not in taken), None)
    if unit is None:
        return None
    trial = study.ask()
    trial.set_user_attr("unit", unit.key)
    _show_life(trial)
    if any(other.number < trial.number and other.user_attrs.get("unit") == unit.key for other in _running(study)):
        study.tell(trial, state=_failed())  # somebody else was a moment earlier
        return None
    return unit, trial


def _running(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def _show_life(trial: optuna.Trial) -> None:
    trial.set_user_attr("alive", time.time())


def _give_up_the_dead(study: optuna.Study) -> None:
    """A machine that was killed says nothing any more: what it had begun is there for others."""
    for trial in _running(study):
        begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
        if time.time() - trial.user_attrs.get("alive", begun) > PATIENCE:
            study.tell(trial.number, state=_failed(), skip_if_finished=True)


def _failed() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL
