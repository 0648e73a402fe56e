"""When does a loss made from the metric beat tuned cross-entropy? All yes-or-no tables, three kinds of models, fresh seeds.

Two waves. *Exploration*: every candidate on five seeds; for each metric and kind of model the candidate is picked that
is best on the validation rows, averaged over tables. *Confirmation*: ten other seeds, which nothing was picked on. A
reader who distrusts the picking finds every candidate of the confirmation in the table.

The reference is the mean of two cross-entropies, each with its own first weights, batches and choice of learning rate,
checkpoint and threshold: what one of them loses against the other is noise that no candidate should have to carry.

>>> len(LINEAR_TABLE.units("smoke"))
10
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lossmith.lab.comparing.records import CONTROL, REFERENCE
from lossmith.lab.datasets.tables import TABLES
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.lab.reproduce.stack_run import StackRun
from lossmith.metrics import METRICS

ALL_METRICS = ("auc", "ap", "f1", "mcc", "jaccard", "eer", "binary_accuracy")
EXPLORED, CONFIRMED = range(5), range(10_000, 10_010)


@dataclass(frozen=True)
class Condition:
    """One kind of model and amount of data; candidates by metric, those that go into the second wave first."""

    name: str
    model: str
    max_rows: int
    candidates: Mapping[str, tuple[str, ...]]
    num_confirmed: int
    """Candidates of each metric that go into the second wave."""
    bars: Mapping[str, float]
    """Points that the picked candidate must gain, on average over tables."""
    worst_table: float | None = None
    """No table may lose more than this many points."""
    worst_mean: float | None = None
    """No metric may lose more than this, on average over tables."""
    num_steps: int = 700


LINEAR = Condition(
    "linear",
    "linear",
    8000,
    {
        "auc": ("traced_1", "sigmoid_pairs", "ce+ap"),
        "ap": ("traced_1", "traced", "smooth_ap", "shipped"),
        "f1": ("traced_mcc", "traced_tracked", "traced", "soft_f1"),
        "mcc": ("traced", "traced_tracked", "soft_mcc"),
        "jaccard": ("traced_mcc", "traced_tracked", "soft_jaccard"),
        "eer": ("traced_at_eer", "traced_mcc"),
        "binary_accuracy": ("traced_mcc", "traced_tracked", "traced"),
    },
    3,
    {"auc": 0.3, "ap": 1.2, "f1": 1.6, "mcc": 2.0, "jaccard": 1.8, "eer": 0.5, "binary_accuracy": 0.4},
    worst_table=-0.6,
)
FEW_ROWS = Condition(
    "network, 500 rows",
    "mlp32",
    500,
    {"auc": ("traced_1", "sigmoid_pairs", "pairwise"), "f1": ("traced_link0", "traced_mcc", "ce+traced")},
    3,
    {"auc": 0.6, "f1": 0.6},
    num_steps=300,
)
NETWORK = Condition(
    "network",
    "mlp32",
    8000,
    {
        "auc": ("ce+ap", "ce+traced_1"),
        "ap": ("ce+traced", "ce+smooth_ap"),
        "f1": ("ce+traced/4", "ce_then_traced"),
        "eer": ("ce+ap",),
        "binary_accuracy": ("ce+traced/4",),
    },
    2,
    {"ap": 0.2},
    worst_mean=-0.2,
)
# what is made by a method of this package, not by hand
SMOKE_CANDIDATES = ("traced", "traced_mcc", "ce+traced")
OURS = ("traced", "shipped", "sl_", "uniloss", "ce+", "ce_then")


def _units(condition: Condition, scale: str) -> list[Unit]:
    return [
        _run(condition, table, recipe, metrics, seeds, scale).unit(_name(table, recipe, metrics, seeds))
        for seeds in (EXPLORED, CONFIRMED)
        for table in (TABLES if scale == "cpu" else ("phoneme",))
        for recipe, metrics in _jobs(condition, is_confirmation=seeds is CONFIRMED)
    ]


def _at(condition: Condition, scale: str) -> Condition:
    """The smoke scale has one metric."""
    return condition if scale == "cpu" else replace(condition, candidates={"f1": SMOKE_CANDIDATES}, num_confirmed=3)


def _jobs(condition: Condition, *, is_confirmation: bool) -> list[tuple[str, tuple[str, ...]]]:
    references = [(name, tuple(condition.candidates)) for name in (REFERENCE, CONTROL)]
    last = condition.num_confirmed if is_confirmation else None
    return [
        *references,
        *((name, (metric,)) for metric, names in condition.candidates.items() for name in names[:last]),
    ]


def _run(condition: Condition, table: str, recipe: str, metrics: tuple[str, ...], seeds: range, scale: str) -> StackRun:
    return StackRun(
        table,
        recipe,
        metrics,
        model=condition.model,
        num_steps=condition.num_steps if scale == "cpu" else 30,
        first_seed=seeds.start,
        num_seeds=len(seeds) if scale == "cpu" else 2,
        max_rows=condition.max_rows,
    )


def _name(table: str, recipe: str, metrics: tuple[str, ...], seeds: range) -> str:
    wave = "confirm" if seeds is CONFIRMED else "explore"
    parts = (wave, table, recipe, *(metrics if len(metrics) == 1 else ()))
    return "-".join(parts).replace("/", "_by_")


# ----------------------------------------------------------------------------------------------------------- judgement


@dataclass(frozen=True)
class Gain:
    """Of a candidate over the reference, in points, on seeds and tables."""

    by_table: Mapping[str, list[float]]

    @property
    def mean(self) -> float:
        return statistics.mean(statistics.mean(values) for values in self.by_table.values())

    @property
    def standard_error(self) -> float:
        """Of the mean over these tables: seeds are what varies."""
        variances = [statistics.variance(values) / len(values) for values in self.by_table.values()]
        return math.sqrt(sum(variances)) / len(variances)

    @property
    def worst(self) -> tuple[str, float]:
        means = {table: statistics.mean(values) for table, values in self.by_table.items()}
        table = min(means, key=lambda name: means[name])
        return table, means[table]

    @property
    def share_of_wins(self) -> float:
        return statistics.mean(value > 0 for values in self.by_table.values() for value in values)


def gain_of(
    condition: Condition, recipe: str, metric: str, results: Mapping[str, Result], *, seeds: range, part: str = "test"
) -> Gain:
    sign = 100 if METRICS[metric].higher_is_better else -100
    by_table = {}
    every = tuple(condition.candidates)
    for table in TABLES:
        found = results.get(_name(table, recipe, (metric,), seeds))
        if found is None:
            continue
        pair = [results[_name(table, name, every, seeds)][metric][part] for name in (REFERENCE, CONTROL)]
        by_table[table] = [sign * (own - (a + b) / 2) for own, a, b in zip(found[metric][part], *pair)]
    return Gain(by_table)


def is_ours(recipe: str) -> bool:
    return recipe.startswith(OURS)


def picked(condition: Condition, metric: str, results: Mapping[str, Result]) -> str:
    """The candidate of ours with the best validation rows in the exploration."""
    names = [name for name in condition.candidates[metric][: condition.num_confirmed] if is_ours(name)]
    return max(
        names, key=lambda name: gain_of(condition, name, metric, results, seeds=EXPLORED, part="validation").mean
    )


def _judge(condition: Condition, scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    for metric, names in condition.candidates.items():
        best = picked(condition, metric, results)
        for name in names[: condition.num_confirmed]:
            gain = gain_of(condition, name, metric, results, seeds=CONFIRMED)
            table, worst = gain.worst
            rows.append(
                (
                    metric,
                    f"{name} (picked)" if name == best else name,
                    f"{gain.mean:+.2f} ± {gain.standard_error:.2f}",
                    f"{100 * gain.share_of_wins:.0f} %",
                    f"{table} {worst:+.2f}",
                )
            )
        if scale == "cpu":
            bars += _bars(condition, metric, best, gain_of(condition, best, metric, results, seeds=CONFIRMED))
    return Verdict(("metric", "loss", "gain in points", "wins", "worst table"), rows, bars)


def _bars(condition: Condition, metric: str, recipe: str, gain: Gain) -> list[Bar]:
    what = f"{metric}, {recipe}"
    bars = []
    if metric in condition.bars:
        bars.append(Bar(f"{what}: gain", gain.mean, condition.bars[metric]))
        bars.append(Bar(f"{what}: standard errors", gain.mean / gain.standard_error, 3))
    if condition.worst_table is not None:
        table, worst = gain.worst
        bars.append(Bar(f"{what}: worst table ({table})", worst, condition.worst_table))
    if condition.worst_mean is not None:
        bars.append(Bar(f"{what}: mean over tables", gain.mean, condition.worst_mean))
    return bars


def _experiment(name: str, condition: Condition, size: str) -> Experiment:
    return Experiment(
        name,
        f"Losses made from the metric against tuned cross-entropy on {len(TABLES)} tables, fresh seeds: {condition.name}.",
        {"smoke": "one table, 30 steps, seconds", "cpu": size},
        lambda scale: _units(_at(condition, scale), scale),
        lambda scale, results: _judge(_at(condition, scale), scale, results),
    )


LINEAR_TABLE = _experiment(
    "tables-linear", LINEAR, "11 tables, 7 metrics, 5 + 10 seeds, 700 steps; a quarter of an hour"
)
FEW_ROWS_TABLE = _experiment("tables-few-rows", FEW_ROWS, "11 tables, 2 metrics, 5 + 10 seeds, 300 steps; 10 minutes")
NETWORK_TABLE = _experiment("tables-network", NETWORK, "11 tables, 5 metrics, 5 + 10 seeds, 700 steps; 20 minutes")
