"""The learned surrogate beside the traced loss, on linear models and eight tables: F1, and its worst seed.

A bilevel surrogate may collapse: a network that has the metric wrong leads the model away, and is then fitted to what
it did. So the smallest value over all seeds stands beside the mean; and a second cross-entropy beside the first, with
other first weights and batches: what a seed of that loses is noise.

>>> [unit.name for unit in BILEVEL.units("smoke")]
['phoneme-ce', 'phoneme-ce_again', 'phoneme-traced_mcc', 'phoneme-sl_r', 'phoneme-sl_s']
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from lossmith.lab.comparing.records import CONTROL, REFERENCE
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.lab.reproduce.grand_table import FIRST_FRESH_SEED, TABLES
from lossmith.lab.reproduce.stack_run import StackRun

TRACED = "traced_mcc"
SURROGATES = ("sl_r", "sl_s")
RECIPES = (REFERENCE, CONTROL, TRACED, *SURROGATES)
NUM_SEEDS = 5
# a surrogate that has lost its way costs tens of points
COLLAPSE = -5.0


def _tables(scale: str) -> tuple[str, ...]:
    return TABLES if scale == "cpu" else ("phoneme",)


def _units(scale: str) -> list[Unit]:
    return [
        StackRun(
            table,
            recipe,
            ("f1",),
            num_steps=700 if scale == "cpu" else 6,
            rates=(3e-2, 1e-1),
            first_seed=FIRST_FRESH_SEED,
            num_seeds=NUM_SEEDS if scale == "cpu" else 2,
        ).unit(f"{table}-{recipe}")
        for table in _tables(scale)
        for recipe in RECIPES
    ]


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    tests = {
        recipe: {table: [100 * each for each in results[f"{table}-{recipe}"]["f1"]["test"]] for table in _tables(scale)}
        for recipe in RECIPES
    }
    rows = [
        (
            table,
            *(f"{statistics.mean(tests[recipe][table]):.2f} ({min(tests[recipe][table]):.2f})" for recipe in RECIPES),
        )
        for table in _tables(scale)
    ]
    means = {recipe: statistics.mean(map(statistics.mean, of_table.values())) for recipe, of_table in tests.items()}
    rows.append(("mean", *(f"{means[recipe]:.2f}" for recipe in RECIPES)))
    worst = {recipe: _worst(tests[recipe], tests[REFERENCE]) for recipe in RECIPES}
    rows.append(("worst seed against ce", "", *(f"{worst[recipe]:+.2f}" for recipe in RECIPES[1:])))
    bars = []
    for recipe in SURROGATES if scale == "cpu" else ():
        bars.append(Bar(f"{recipe}: points behind the traced loss", means[TRACED] - means[recipe], 1.0, False))
        bars.append(Bar(f"{recipe}: worst seed of all, against cross-entropy", worst[recipe], COLLAPSE))
    return Verdict(("table", *(f"{recipe} (worst seed)" for recipe in RECIPES)), rows, bars)


def _worst(own: Mapping[str, list[float]], reference: Mapping[str, list[float]]) -> float:
    """What the unluckiest pair of a table and a seed loses."""
    return min(a - b for table in own for a, b in zip(own[table], reference[table]))


BILEVEL = Experiment(
    "tables-bilevel",
    "Surrogates that are learned along with linear models, beside the traced loss, by F1 and its worst seed.",
    {"smoke": "one table, 6 steps, seconds", "cpu": f"8 tables, {NUM_SEEDS} seeds, 700 steps; 6 minutes"},
    _units,
    _judge,
    "Worst seeds are in brackets: none has collapsed, which would cost tens of points. The bar for them asks for "
    "more, that no seed lose five points to cross-entropy of the same seed, and Mammography misses it: its "
    "training batches have six positives, and its test rows some fifty, one of which is a point of F1. On "
    "validation rows, as many, the runs that lose most there are not behind: SL-R is ahead of cross-entropy by "
    "1.5 points on the seed where it loses 7.7 on test rows. Cross-entropy again, with other first weights and "
    "batches at the same two rates, loses no more than 1.4 points, so first weights are not the noise; the choice "
    "among runs is. Where cross-entropy may choose among five rates (`tables-linear`, this table and these "
    "seeds), its two copies are up to 6 points apart in either direction. That is a reason to expect such seeds, "
    "not a proof that the learned surrogate is as good on this table: its mean is behind, too. Balanced or larger "
    "batches for it were not tried here.",
)
