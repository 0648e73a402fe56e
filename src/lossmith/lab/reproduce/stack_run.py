"""One loss on one table: all seeds and learning rates at once, each seed's best run by its validation rows.

A unit of work for experiments on tables. What is kept is, for every metric that was asked for and every seed, the
validation and the test value of the run (learning rate, setting of the loss, checkpoint) that is best on validation
rows.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import torch

from lossmith.lab.comparing.recipes import RECIPES
from lossmith.lab.comparing.running import NUM_CHECKPOINTS, OptimizerName, Plan, stack_steps
from lossmith.lab.comparing.studying import grid
from lossmith.lab.datasets import find_dataset
from lossmith.lab.datasets.splitting import SHARES, Parts, Pool, Scaling, pool_of, split
from lossmith.lab.reproduce.experiment import Result, Unit
from lossmith.metrics import METRICS


@dataclass(frozen=True)
class StackRun:
    """Plain values: they are kept beside the result, and say what it belongs to."""

    dataset: str
    recipe: str
    metrics: tuple[str, ...]
    """The first is the one that the loss is made for; runs are chosen for each anew."""
    model: str = "linear"
    num_steps: int = 700
    batch_size: int = 256
    is_balanced: bool = False
    is_cosine: bool = True
    rates: tuple[float, ...] | None = None
    """Else the model's own four."""
    first_seed: int = 0
    num_seeds: int = 5
    max_rows: int | None = 8000
    max_validation: int = 3000
    max_test: int = 6000
    shares: tuple[float, float, float] = SHARES
    num_checkpoints: int = NUM_CHECKPOINTS
    optimizer: OptimizerName = "adam"
    scaling: Scaling = "standard"

    def unit(self, name: str) -> Unit:
        return Unit(name, asdict(self), lambda folder: stack_run_steps(self, folder))


def stack_run_steps(run: StackRun, folder: Path) -> Generator[float, None, Result]:
    """The share of the steps that is done; returns what every seed chose."""
    seeds = range(run.first_seed, run.first_seed + run.num_seeds)
    most = (run.max_rows, run.max_validation, run.max_test)
    parts = _parts(run.dataset, tuple(seeds), most, run.shares, run.scaling)
    plan = Plan(
        run.model, run.num_steps, run.batch_size, run.is_balanced, run.is_cosine, run.num_checkpoints, run.optimizer
    )
    rates = run.rates or grid(run.model, 4)
    recipe = RECIPES[run.recipe]
    metrics = [METRICS[name] for name in run.metrics]
    result = yield from stack_steps(parts, plan, recipe, seeds=seeds, rates=rates, metrics=metrics)
    kept: Result = {"milliseconds_per_step": round(1000 * result.seconds_per_step / result.num_runs, 4)}
    for metric in metrics:
        looks = result.looks[metric.name]
        sign = 1 if metric.higher_is_better else -1
        # [K, G, runs of a seed]
        validation, test = (
            torch.stack([getattr(look, part) for look in looks]).view(len(looks), len(seeds), -1)
            for part in ("validation", "test")
        )
        best = (sign * validation).nan_to_num(nan=-torch.inf).movedim(1, 0).flatten(1).argmax(1)
        each, per_seed = torch.arange(len(seeds)), validation.shape[-1]
        kept[metric.name] = {
            "validation": _rounded(validation.movedim(1, 0).flatten(1)[each, best]),
            "test": _rounded(test.movedim(1, 0).flatten(1)[each, best]),
            "rate": [rates[int(run) % per_seed % len(rates)] for run in best],
            "variant": [recipe.variants[int(run) % per_seed // len(rates)] for run in best],
            # on test rows, of the runs that were chosen
            "curve": [
                [look.step, round(float(look.test.view(len(seeds), -1)[each, best % per_seed].mean()), 6)]
                for look in looks
            ],
            "step": [looks[int(run) // per_seed].step for run in best],
        }
    return kept


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(float(value), 6) for value in values]


@lru_cache(maxsize=1)
def _pool(name: str) -> Pool:
    return pool_of(find_dataset(name).load(None))


@lru_cache(maxsize=2)
def _parts(
    name: str,
    seeds: tuple[int, ...],
    most: tuple[int | None, int, int],
    shares: tuple[float, float, float],
    scaling: Scaling,
) -> Parts:
    max_rows, max_validation, max_test = most
    return split(
        _pool(name),
        seeds,
        shares=shares,
        max_rows=max_rows,
        max_validation=max_validation,
        max_test=max_test,
        scaling=scaling,
    )
