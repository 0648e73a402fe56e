"""The tables and the figure of *Learning Surrogate Losses* (Grabocka, Scholz and Schmidt-Thieme 2019) on five tables.

The paper's network, batches (half positives, 100 rows) and split (80 % to train; of it an eighth to validate), at a
scale for one core: 400 steps of the model at two learning rates (1,600 beside opponents), where the paper takes 300,000
iterations at 1e-5. Five of the paper's nine tables are here, CC-Fraud as a sample of which 8 % are fraud.

All values are losses as in the paper: ``1 - x``, but for the equal error rate and the misclassification rate.

>>> [unit.name for unit in TABLE2.units("smoke")]
['phoneme-auc-sl_u', 'phoneme-auc-sl_r', 'phoneme-auc-sl_s']
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.lab.reproduce.stack_run import StackRun
from lossmith.lab.statistics import mean_ranks
from lossmith.metrics import METRICS

TABLES = ("a9a", "ccfraud_sample", "covtype_binary", "ijcnn1", "skin")
MEASURES = ("auc", "eer", "ap", "binary_error", "f1", "mcc", "jaccard")
SURROGATES = ("sl_u", "sl_r", "sl_s")
# table 2 of the paper: ranks of SL-U, SL-R and SL-S, averaged over its nine tables
PAPER_RANKS = {
    "auc": (1.78, 2.22, 1.89),
    "eer": (2.89, 1.67, 1.44),
    "ap": (2.67, 1.67, 1.67),
    "binary_error": (2.78, 1.78, 1.22),
    "f1": (2.67, 1.78, 1.67),
    "mcc": (2.89, 1.44, 1.67),
    "jaccard": (2.78, 1.56, 1.67),
}
# table 3: opponents by measure, and the share of tables on which SL-R won against the best of them, ties half
OPPONENTS = {"binary_error": ("ce",), "auc": ("pairwise", "aucpr"), "jaccard": ("lovasz",), "f1": ("cost_sensitive",)}
PAPER_WINS = {"binary_error": 5.5 / 9, "auc": 8 / 9, "jaccard": 5.5 / 9, "f1": 6 / 9}
# without tuning, as the paper ran them: one constant learning rate, judged after the last step
UNTUNED_RATE = 1e-3
# the paper trains its opponents until they have converged; 400 steps are too few for that
OPPONENT_RUN = {"num_steps": 1600, "num_seeds": 3}
# where two losses are so close, it is a tie (the paper rounds to it)
TIE = 5e-5

PAPER_RUN = StackRun(
    "",
    "",
    (),
    model="paper",
    num_steps=400,
    batch_size=100,
    is_balanced=True,
    rates=(3e-3, 1e-2),
    num_seeds=2,
    max_rows=20_000,
    max_validation=4000,
    max_test=8000,
    shares=(0.7, 0.1, 0.2),
)


def _run(scale: str, **changes: object) -> StackRun:
    fields = {name: getattr(PAPER_RUN, name) for name in PAPER_RUN.__dataclass_fields__} | changes
    if scale == "smoke":
        fields |= {"num_steps": 6, "max_rows": 500, "rates": (1e-2,)}
    return StackRun(**fields)


def _tables(scale: str) -> Sequence[str]:
    return TABLES if scale == "cpu" else ("phoneme",)


def _measures(scale: str) -> Sequence[str]:
    return MEASURES if scale == "cpu" else ("auc",)


def loss_of(result: Result, measure: str) -> float:
    """As the paper prints it, averaged over seeds."""
    value: float = statistics.mean(result[measure]["test"])
    return 1 - value if METRICS[measure].higher_is_better else value


# ---------------------------------------------------------------------------------------------------- table 2: ablation


def _ablation_units(scale: str) -> list[Unit]:
    return [
        _run(scale, dataset=table, recipe=recipe, metrics=(measure,)).unit(f"{table}-{measure}-{recipe}")
        for table in _tables(scale)
        for measure in _measures(scale)
        for recipe in SURROGATES
    ]


def _judge_ablation(scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    for measure in _measures(scale):
        losses = {
            recipe: [loss_of(results[f"{table}-{measure}-{recipe}"], measure) for table in _tables(scale)]
            for recipe in SURROGATES
        }
        ranks = mean_ranks({recipe: [-loss for loss in values] for recipe, values in losses.items()})
        paper = " ".join(f"{rank:.2f}" for rank in PAPER_RANKS[measure])
        ours = " ".join(f"{ranks[recipe]:.2f}" for recipe in SURROGATES)
        for number, table in enumerate(_tables(scale)):
            rows.append((measure, table, *(f"{losses[recipe][number]:.4f}" for recipe in SURROGATES), "", ""))
        rows.append((measure, "ranks", "", "", "", ours, paper))
        if scale == "cpu" and measure != "auc":
            learned = min(ranks["sl_r"], ranks["sl_s"])
            bars.append(Bar(f"{measure}: SL-U behind a surrogate of the data, in ranks", ranks["sl_u"] - learned, 0.0))
    return Verdict(("measure", "table", "SL-U", "SL-R", "SL-S", "ranks U R S", "paper's ranks"), rows, bars)


TABLE2 = Experiment(
    "surrogate-table2",
    "Surrogates that are universal, refined, or from scratch (table 2).",
    {"smoke": "one table, AUC, seconds", "cpu": "5 tables, 7 measures, 2 seeds, 400 steps; half an hour"},
    _ablation_units,
    _judge_ablation,
)


# -------------------------------------------------------------------------------------- table 3: against the hand-made


def _opponent_units(scale: str) -> list[Unit]:
    units = []
    for table in _tables(scale):
        for measure in OPPONENTS if scale == "cpu" else ("auc",):
            make = partial(_run, scale, dataset=table, metrics=(measure,), **OPPONENT_RUN)
            units.append(make(recipe="sl_r").unit(f"{table}-{measure}-sl_r"))
            for recipe in OPPONENTS[measure]:
                units.append(make(recipe=recipe).unit(f"{table}-{measure}-{recipe}"))
                untuned = make(recipe=recipe, rates=(UNTUNED_RATE,), is_cosine=False, num_checkpoints=1)
                units.append(untuned.unit(f"{table}-{measure}-{recipe}-untuned"))
    return units


def _judge_opponents(scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    for measure in OPPONENTS if scale == "cpu" else ("auc",):
        wins = {"untuned": 0.0, "tuned": 0.0}
        for table in _tables(scale):
            ours = loss_of(results[f"{table}-{measure}-sl_r"], measure)
            cells = []
            for protocol, suffix in (("untuned", "-untuned"), ("tuned", "")):
                losses = {
                    recipe: loss_of(results[f"{table}-{measure}-{recipe}{suffix}"], measure)
                    for recipe in OPPONENTS[measure]
                }
                best = min(losses, key=lambda name: losses[name])
                wins[protocol] += 0.5 if abs(ours - losses[best]) < TIE else float(ours < losses[best])
                cells.append(f"{best} {losses[best]:.4f}")
            rows.append((measure, table, f"{ours:.4f}", *cells))
        num = len(_tables(scale))
        rows.append((measure, "wins of SL-R", "", *(f"{wins[name]:g} of {num}" for name in ("untuned", "tuned"))))
        if scale == "cpu":
            bars.append(Bar(f"{measure}: share of wins, opponents untuned", wins["untuned"] / num, PAPER_WINS[measure]))
    return Verdict(("measure", "table", "SL-R", "best opponent, untuned", "best opponent, tuned"), rows, bars)


TABLE3 = Experiment(
    "surrogate-table3",
    "The refined surrogate against hand-made losses, these as the paper ran them and tuned as we are (table 3).",
    {"smoke": "one table, AUC, seconds", "cpu": "5 tables, 4 measures, 3 seeds, 1,600 steps; 40 minutes"},
    _opponent_units,
    _judge_opponents,
    "The paper's share of wins is not there. Trained for 400 steps and two seeds, in an earlier run that is not "
    "kept, SL-R met two of these four bars; four times as long, it meets none: the opponents gain more by the "
    "time than it does. On IJCNN1 and Skin the paper's opponents end far above what the same losses reach here "
    "untuned (cross-entropy on IJCNN1: 0.0364 there), on A9A and CovType by accuracy they do not; splits and "
    "schedules differ, and why that is so was not looked into. Where opponents are tuned as hard as SL-R, they "
    "are ahead on most tables.",
)


# ---------------------------------------------------------------------------------------------- figure 3: convergence


def _curve_units(scale: str) -> list[Unit]:
    table = "ijcnn1" if scale == "cpu" else "phoneme"
    return [
        _run(scale, dataset=table, recipe=recipe, metrics=(measure,)).unit(f"{table}-{measure}-{recipe}")
        for measure in (("auc", "ap", "binary_error", "f1") if scale == "cpu" else ("auc",))
        for recipe in ("sl_r", "sl_s")
    ]


def _judge_curves(scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    for name, result in results.items():
        _, measure, recipe = name.split("-")
        curve = result[measure]["curve"]
        losses = [1 - value if METRICS[measure].higher_is_better else value for _, value in curve]
        rows.append((measure, recipe, *(f"{loss:.4f}" for loss in losses)))
        if recipe == "sl_s" and scale == "cpu":
            refined = results[name.replace("sl_s", "sl_r")][measure]["curve"]
            sign = 1 if METRICS[measure].higher_is_better else -1
            bars.append(Bar(f"{measure}: SL-R ahead at the first look", sign * (refined[0][1] - curve[0][1]), 0.0))
    steps = [str(step) for step, _ in next(iter(results.values()))[next(iter(results)).split("-")[1]]["curve"]]
    return Verdict(("measure", "surrogate", *(f"loss at {step}" for step in steps)), rows, bars)


FIGURE3 = Experiment(
    "surrogate-figure3",
    "How fast models learn with a surrogate that is refined and one from scratch, on IJCNN1 (figure 3).",
    {"smoke": "one table, AUC, seconds", "cpu": "IJCNN1, 4 measures, 2 seeds, 400 steps; 5 minutes"},
    _curve_units,
    _judge_curves,
    "A surrogate that starts from the universal one leads at first on the two metrics of decisions, and not on "
    "the two of rankings. Two seeds; why rankings differ was not looked into.",
)
