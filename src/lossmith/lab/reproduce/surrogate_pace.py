"""How many iterations a bilevel surrogate needs: the paper's setting beside the fast one, on A9A and IJCNN1.

The paper trains with a learning rate of 1e-5, and gradients clipped at a norm of 1e-5, for 300,000 iterations (section
4.1); an iteration is taken to be three steps of the model and ten of the surrogate. The fast setting is that of
:class:`~lossmith.methods.bilevel.BilevelSurrogate`: gradients of one length, jittered copies, a surrogate that starts
from the universal one, and rates a hundred to a thousand times as high. Both train the paper's network on the paper's
batches; both are judged after their last iteration, nothing is picked.

>>> [unit.name for unit in PACE.units("smoke")]
['phoneme-paper', 'phoneme-fast-seed0']
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from lossmith.lab.reproduce.bilevel_run import BilevelRun
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict

NUM_PAPER_ITERATIONS, NUM_FAST_ITERATIONS = 300_000, 6_000
NUM_SEEDS = 3
# of AUC, that the fast setting may lose
TOLERANCE = 0.002
SHARES_SHOWN = (0.05, 0.2, 0.5, 1.0)


def _tables(scale: str) -> Sequence[str]:
    return ("a9a", "ijcnn1") if scale == "cpu" else ("phoneme",)


def _units(scale: str) -> list[Unit]:
    is_small = scale == "smoke"
    units = []
    for table in _tables(scale):
        paper = BilevelRun(
            table,
            "auc",
            6 if is_small else NUM_PAPER_ITERATIONS,
            num_stretches=2 if is_small else 60,
            learning_rate=1e-5,
            surrogate_rate=1e-5,
            max_gradient_norm=1e-5,
            num_copies=0,
            num_first_steps=0,
            is_paper=True,
        )
        units.append(paper.unit(f"{table}-paper"))
        for seed in range(1 if is_small else NUM_SEEDS):
            fast = BilevelRun(
                table, "auc", 4 if is_small else NUM_FAST_ITERATIONS, num_stretches=2 if is_small else 20, seed=seed
            )
            units.append(fast.unit(f"{table}-fast-seed{seed}"))
    return units


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    for table in _tables(scale):
        slow = results[f"{table}-paper"]["curve"]
        fast = [result["curve"] for name, result in results.items() if name.startswith(f"{table}-fast")]
        rows += [(table, "the paper's", *_row([slow])), (table, "fast", *_row(fast))]
        if scale == "cpu":
            lead = statistics.mean(curve[-1]["test"] for curve in fast) - slow[-1]["test"]
            bars.append(Bar(f"{table}: lead of the fast setting in AUC", lead, -TOLERANCE))
            share = fast[0][-1]["iteration"] / slow[-1]["iteration"]
            bars.append(Bar(f"{table}: its share of the iterations", share, 1 / 20, is_at_least=False))
    columns = (
        "table",
        "setting",
        *(f"AUC after {100 * share:.0f} %" for share in SHARES_SHOWN),
        "iterations",
        "minutes",
    )
    return Verdict(columns, rows, bars)


def _row(curves: Sequence[Sequence[Mapping[str, float]]]) -> list[str]:
    """Means over runs after some shares of their iterations, how many these are, and minutes of the processor."""
    cells = []
    for share in SHARES_SHOWN:
        looks = [curve[max(round(share * len(curve)) - 1, 0)]["test"] for curve in curves]
        deviation = f" ± {statistics.stdev(looks):.4f}" if len(looks) > 1 else ""
        cells.append(f"{statistics.mean(looks):.4f}{deviation}")
    seconds = statistics.mean(sum(look["seconds"] for look in curve) for curve in curves)
    return [*cells, f"{curves[0][-1]['iteration']:,}", f"{seconds / 60:.1f}"]


PACE = Experiment(
    "surrogate-pace",
    "Quality by iterations: the paper's learning rates and 300,000 iterations beside the fast setting.",
    {
        "smoke": "one table, 6 iterations, seconds",
        "cpu": f"A9A and IJCNN1 by AUC: 300,000 iterations beside {NUM_FAST_ITERATIONS:,} with 3 seeds; two hours",
    },
    _units,
    _judge,
)
