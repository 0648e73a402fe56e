"""Where do losses made from the metric pay? Over the width of the model, and over the number of training rows.

Two slices through the same plane, on three tables that are large enough for both: models from a linear one to 2 × 256
units on 8,000 rows, and a linear model and a network of 2 × 32 units on 500 to 100,000 rows. The loss of each metric is
that of the grand table; a mix with cross-entropy stands beside it. Seeds are no others' (see ``grand_table``).

``map_figure`` draws it.

>>> len(MAP.units("smoke")), MAP.units("smoke")[0].name
(12, 'phoneme-linear-500-ce')
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from lossmith.lab.comparing.records import CONTROL, REFERENCE
from lossmith.lab.reproduce.experiment import Experiment, Result, Unit, Verdict
from lossmith.lab.reproduce.grand_table import Gain, gain_between
from lossmith.lab.reproduce.stack_run import StackRun

TABLES = ("covtype_binary", "ijcnn1", "skin")
FIRST_SEED, NUM_SEEDS = 20_000, 4
# the metric each loss is judged by
RECIPES = {"traced_mcc": "f1", "smooth_ap": "ap", "traced_pairs": "auc", "ce+ap": "ap"}
METRICS_JUDGED = ("f1", "ap", "auc")
WIDTH_ROWS = 8000
WIDTHS = {
    "linear": "linear",
    "tiny2": "2",
    "tiny4": "4",
    "tiny8": "8",
    "mlp32": "32-32",
    "paper": "100-30-10",
    "mlp256": "256-256",
}
# rows, and steps: as long as cross-entropy still gains, or one core has the time
SIZES = {500: 300, 2000: 700, WIDTH_ROWS: 700, 30_000: 1400, 100_000: 2000}
MODELS_OF_SIZES = ("linear", "mlp32")
# of the two largest, three seeds and fewer learning rates
RATES = {"paper": (1e-3, 3e-3, 1e-2), "mlp256": (1e-3, 3e-3)}


@dataclass(frozen=True)
class Place:
    """On the map."""

    model: str
    num_rows: int


def places(scale: str) -> list[Place]:
    if scale == "smoke":
        return [Place("linear", 500), Place("tiny2", 500)]
    widths = [Place(model, WIDTH_ROWS) for model in WIDTHS]
    sizes = [Place(model, rows) for model in MODELS_OF_SIZES for rows in SIZES]
    return list(dict.fromkeys([*widths, *sizes]))


def _tables(scale: str) -> tuple[str, ...]:
    return TABLES if scale == "cpu" else ("phoneme",)


def _name(table: str, place: Place, recipe: str) -> str:
    return f"{table}-{place.model}-{place.num_rows}-{recipe}"


def _units(scale: str) -> list[Unit]:
    judged = {REFERENCE: METRICS_JUDGED, CONTROL: METRICS_JUDGED, **{name: (by,) for name, by in RECIPES.items()}}
    return [
        StackRun(
            table,
            recipe,
            metrics,
            model=place.model,
            num_steps=SIZES[place.num_rows] if scale == "cpu" else 20,
            rates=RATES.get(place.model),
            first_seed=FIRST_SEED,
            num_seeds=NUM_SEEDS - (place.model in RATES),
            max_rows=place.num_rows,
        ).unit(_name(table, place, recipe))
        for place in places(scale)
        for table in _tables(scale)
        for recipe, metrics in judged.items()
    ]


def gain_at(place: Place, recipe: str, results: Mapping[str, Result], tables: tuple[str, ...]) -> Gain:
    names = {table: [_name(table, place, name) for name in (recipe, REFERENCE, CONTROL)] for table in tables}
    return gain_between(names, RECIPES[recipe], results)


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    """Nothing here is to be reached: a map says what is."""
    rows = []
    for place in places(scale):
        for recipe, metric in RECIPES.items():
            gain = gain_at(place, recipe, results, _tables(scale))
            reference = statistics.mean(
                100 * value
                for table in _tables(scale)
                for value in results[_name(table, place, REFERENCE)][metric]["test"]
            )
            rows.append(
                (
                    WIDTHS[place.model],
                    f"{place.num_rows:,}",
                    metric,
                    recipe,
                    f"{reference:.2f}",
                    f"{gain.mean:+.2f} ± {gain.standard_error:.2f}",
                    *(f"{value:+.2f}" for value in gain.means.values()),
                )
            )
    return Verdict(("model", "rows", "metric", "loss", "ce", "gain in points", *_tables(scale)), rows, [])


MAP = Experiment(
    "tables-map",
    "Where losses made from the metric pay: over the width of the model and the number of training rows.",
    {
        "smoke": "one table, two models, 20 steps, seconds",
        "cpu": "3 tables, 7 models at 8,000 rows, 2 models at 500 to 100,000 rows, 3 or 4 seeds; 15 minutes",
    },
    _units,
    _judge,
)
