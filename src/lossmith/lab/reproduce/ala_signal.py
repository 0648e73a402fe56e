"""Is there anything for a controller of a class matrix to learn? Two questions that the paper does not ask.

*Can it help?* Whole runs with a fixed matrix, drawn at random within the bounds: where tests differ no more between
matrices than between seeds, no controller finds a good one, because there is none.

*Can it be learned?* From one checkpoint an interval is trained twice, on the same batches, with the loss as it is and
with one random move of the controller. What the move does to the cost is the signal; how the cost of an interval varies
with its batches is the noise, which a reward holds as well.

>>> [unit.name for unit in SIGNAL.units("smoke")][:3]
['fixed clean, matrix 0-seed0', 'fixed clean, matrix 1-seed0', 'fixed imbalance, matrix 0-seed0']
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lossmith.lab.datasets import find_dataset
from lossmith.lab.reproduce.ala import CORRUPTIONS, IMAGES
from lossmith.lab.reproduce.experiment import Experiment, Result, Unit, Verdict
from lossmith.lab.reproduce.steered_run import SteeredRun, held_out_value, load_parts, new_child
from lossmith.methods.ala import Child, EpochBatches
from lossmith.methods.ala.children import Interval, train_interval
from lossmith.metrics import find_metric

# of the steps of a run that are done when a move is tried
SHARE_BEFORE = 0.4
NUM_MATRICES = {"smoke": 1, "small": 8}
NUM_TRIALS = {"smoke": 4, "small": 40}
NUM_SEEDS = {"smoke": 1, "small": 3}
SCALES = {
    "smoke": "small digits, seconds",
    "small": "a perceptron on 3,200 images of MNIST: 8 matrices and the identity, 40 moves, 3 seeds; minutes",
}


# ---------------------------------------------------------------------------------------------------- fixed matrices


def fixed_matrix_steps(run: SteeredRun, matrix: int, folder: Path) -> Generator[float, None, Result]:
    """A whole run with one matrix: number 0 is the identity, in the others a third of all pairs is at each bound."""
    dataset, parts = load_parts(run.dataset, run.max_rows, run.corruption)
    num_steps = max(1, len(parts.train[0]) // run.batch_size) * run.num_epochs
    child = new_child(run, dataset, parts, num_steps, run.seed)
    if matrix:
        drawn = torch.randint(-1, 2, child.loss.values.shape, generator=torch.Generator().manual_seed(matrix))
        child.loss.values.copy_(child.loss.high * drawn)
    metric = find_metric(run.metric)
    yield 0.0
    train_interval(child, Interval(0, num_steps, False, metric, parts.reward, None, 1, 0.9))
    return {"test": held_out_value(metric, child.model, parts.test)}


# ------------------------------------------------------------------------------------------------------ single moves


@dataclass(frozen=True)
class Trial:
    """Of ``num_trials`` moves, each of as many pairs as the controller moves, in intervals of ``run.interval`` steps.

    ``num_rows`` give the reward: None for those that the run has, else rows of the data set that the run leaves out.
    """

    run: SteeredRun
    num_trials: int
    num_rows: int | None


def trial_steps(trial: Trial, folder: Path) -> Generator[float, None, Result]:
    run = trial.run
    dataset, parts = load_parts(run.dataset, run.max_rows, run.corruption)
    num_steps = max(1, len(parts.train[0]) // run.batch_size) * run.num_epochs
    child = new_child(run, dataset, parts, num_steps, run.seed)
    metric, reward_rows = find_metric(run.metric), _reward_rows(trial, parts.reward)
    first_step = int(SHARE_BEFORE * num_steps)
    before = Interval(0, first_step, True, metric, reward_rows, None, run.num_evaluations, 0.9)
    cost_before = float(train_interval(child, before).cost)
    effects, costs = [], []
    for number in range(trial.num_trials):
        yield number / trial.num_trials
        as_it_is, moved = (_branch(child, parts.train, run.batch_size, number) for _ in range(2))
        generator = torch.Generator().manual_seed(number)
        index = torch.randperm(len(child.loss.values), generator=generator)[: dataset.num_classes]
        moved.loss.adjust(index, torch.randint(-1, 2, index.shape, generator=generator))
        interval = replace(before, first_step=first_step, num_steps=run.interval, is_warmup=False)
        without, with_move = (float(train_interval(each, interval).cost) for each in (as_it_is, moved))
        costs.append(without)
        effects.append(with_move - without)
    changed = [_sign(cost_before - cost) != _sign(cost_before - cost - effect) for cost, effect in zip(costs, effects)]
    return {
        "effect": statistics.pstdev(effects),
        "noise": statistics.stdev(costs),
        "changed": sum(changed) / len(changed),
    }


def _reward_rows(trial: Trial, default: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    if trial.num_rows is None:
        return default
    whole = find_dataset(trial.run.dataset).load(None)
    rows = slice(trial.run.max_rows, (trial.run.max_rows or 0) + trial.num_rows)
    return whole.train_inputs[rows], whole.train_targets[rows]


def _branch(child: Child, rows: tuple[Tensor, Tensor], batch_size: int, number: int) -> Child:
    """The child as it is now, with batches of its own from now on."""
    without_rows = replace(child, batches=lambda _: [])
    return replace(
        copy.deepcopy(without_rows), batches=EpochBatches(*rows, batch_size, seed=1000 + number), seed=1000 + number
    )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


# ------------------------------------------------------------------------------------------------------ the experiment


def _units(scale: str) -> list[Unit]:
    return [unit for seed in range(NUM_SEEDS[scale]) for unit in (*_fixed(scale, seed), *_moves(scale, seed))]


def _fixed(scale: str, seed: int) -> list[Unit]:
    units = []
    for corruption in CORRUPTIONS[::2]:
        metric = "multiclass_balanced_accuracy" if corruption == "imbalance" else "accuracy"
        run = replace(IMAGES[scale], loss="ala", metric=metric, corruption=corruption, seed=seed)
        units += [
            Unit(
                f"fixed {corruption}, matrix {matrix}-seed{seed}",
                {**asdict(run), "matrix": matrix},
                partial(fixed_matrix_steps, run, matrix),
            )
            for matrix in range(NUM_MATRICES[scale] + 1)
        ]
    return units


def _moves(scale: str, seed: int) -> list[Unit]:
    units = []
    for loss, steps in (("ala", "our steps"), ("ala_paper", "steps of the paper")):
        for interval in (10, 50):
            for num_rows in (None, 10_000) if scale == "small" else (None,):
                run = replace(IMAGES[scale], loss=loss, interval=interval, num_evaluations=10, seed=seed)
                trial = Trial(run, NUM_TRIALS[scale], num_rows)
                rows = "the run's rows" if num_rows is None else f"{num_rows:,} rows"
                name = f"{steps}, interval of {interval}, reward by {rows}-seed{seed}"
                units.append(Unit(name, asdict(trial), partial(trial_steps, trial)))
    return units


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    groups: dict[str, list[Result]] = {}
    for unit, result in results.items():
        groups.setdefault(unit.rpartition("-")[0], []).append(result)
    rows = [
        _row_of_matrices(corruption, groups) for corruption in CORRUPTIONS if f"fixed {corruption}, matrix 0" in groups
    ]
    for name, group in groups.items():
        if not name.startswith("fixed"):
            effect, noise, changed = (
                statistics.mean(each[key] for each in group) for key in ("effect", "noise", "changed")
            )
            # of so many rounds the mean reward of a good move is two standard errors above that of a bad one
            needed = math.inf if effect == 0 else 2 * (2 * noise / effect) ** 2
            rows.append((name, f"{100 * effect:.3f}", f"{100 * noise:.3f}", f"{100 * changed:.0f} %", f"{needed:,.0f}"))
    columns = ("", "points by the matrix or the move", "points by chance", "rewards it changed", "rounds to see it")
    return Verdict(columns, rows, [])


def _row_of_matrices(corruption: str, groups: Mapping[str, list[Result]]) -> tuple[str, ...]:
    """How far tests lie apart by matrix, beyond chance (the residual of matrix and seed), and the best lead."""
    identity, *others = (
        torch.tensor([each["test"] for each in group], dtype=torch.float64)
        for name, group in groups.items()
        if name.startswith(f"fixed {corruption},")
    )
    tests = torch.stack(others)  # [matrices, seeds], of a seed all from the same weights and on the same batches
    leads = (tests - identity).mean(1)
    residual = tests - tests.mean(0) - tests.mean(1, keepdim=True) + tests.mean()
    freedom = (len(tests) - 1) * (tests.shape[1] - 1)
    chance = float((residual.square().sum() / max(freedom, 1) / tests.shape[1]).sqrt())
    between = math.sqrt(max(0.0, float(leads.var(correction=min(1, len(leads) - 1))) - chance**2))
    best = f"best of {len(leads)} matrices {100 * leads.max():+.2f}, mean {100 * leads.mean():+.2f}"
    return (f"whole runs, {corruption}: {best}", f"{100 * between:.3f}", f"{100 * chance:.3f}", "", "")


SIGNAL = Experiment(
    "ala-signal",
    "What a class matrix can do for accuracy, and how much of a reward is a move's doing (not in the paper).",
    SCALES,
    _units,
    _judge,
    notes=(
        "What could a controller of a class matrix find? *Nothing, among matrices like these*: held for a whole run, "
        "each of eight that lie at our bounds is worse than the identity, on each of three seeds, by 1 to 3 points on "
        "clean labels and by 2 to 9 where classes are rare (a symmetric matrix cannot weigh a class). That is no "
        "chance, which is a fifth of how far the matrices lie apart. They are drawn at random, with the learning rate "
        "of cross-entropy: a matrix that helps may exist, but a walk does not meet it. *Moves can be seen*: one of ten "
        "pairs changes the cost of its interval by more than other batches do. But it is seen as one bit for ten pairs "
        "together, and what is to be learned from it is to stay at the identity. `rewards it changed` is low where the "
        "cost falls or rises by more than any move does."
    ),
)
