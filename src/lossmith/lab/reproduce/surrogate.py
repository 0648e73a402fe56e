"""The tables and the figure of *Learning Surrogate Losses* (Grabocka, Scholz and Schmidt-Thieme 2019) on five tables.

The paper's network, batches (half positives, 100 rows) and split (80 % to train; of it an eighth to validate), at a
scale for one core: 400 steps of the model at two learning rates (1,000 or 1,600 beside opponents), where the paper
takes 300,000 iterations at 1e-5. Five of its nine tables are here, CC-Fraud as a sample of which 8 % are fraud.

All values are losses as in the paper: ``1 - x``, but for the equal error rate and the misclassification rate. What the
paper calls JAC is not the Jaccard index: see :data:`PAPER_TABLE3`.

>>> [unit.name for unit in TABLE2.units("smoke")]
['phoneme-auc-sl_u', 'phoneme-auc-sl_r', 'phoneme-auc-sl_s']
"""

from __future__ import annotations

import math
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
# SL-U on the random sets of section 4.2, and with the network's own gradient, too; where ours is not behind
UNIVERSAL_OF_PAPER = ("sl_u_paper", "sl_u_raw")
LOOKED_INTO = ("eer", "binary_error", "jaccard")
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
# tuned as we are: 400 steps are too few for opponents to converge
OPPONENT_RUN = {"num_steps": 1600, "num_seeds": 3}
# The paper's own figures of its opponents (table 3), on the tables that are the same here; its CC-Fraud is another
# sample. Its JAC is called "jaccard" here, but must be what scikit-learn's former ``jaccard_similarity_score`` gave for
# yes-or-no labels: accuracy. All its JAC losses are its MCR losses within noise (SL-R on A9A: .1512 and .1502), while
# its F1 loss of .3134 there makes the loss of the Jaccard index .477.
PAPER_TABLE3: dict[str, dict[str, dict[str, float]]] = {
    "binary_error": {
        "a9a": {"ce": 0.1520},
        "covtype_binary": {"ce": 0.2149},
        "ijcnn1": {"ce": 0.0364},
        "skin": {"ce": 0.0482},
    },
    "auc": {
        "a9a": {"pairwise": 0.1019, "aucpr": 0.1028},
        "covtype_binary": {"pairwise": 0.1786, "aucpr": 0.1504},
        "ijcnn1": {"pairwise": 0.0168, "aucpr": 0.0258},
        "skin": {"pairwise": 0.0364, "aucpr": 0.0473},
    },
    "jaccard": {
        "a9a": {"lovasz": 0.1539},
        "covtype_binary": {"lovasz": 0.2594},
        "ijcnn1": {"lovasz": 0.0322},
        "skin": {"lovasz": 0.0432},
    },
    "f1": {
        "a9a": {"cost_sensitive": 0.3177},
        "covtype_binary": {"cost_sensitive": 0.2305},
        "ijcnn1": {"cost_sensitive": 0.1959},
        # Skin's positives are the other class there
    },
}
# What the paper calls JAC, by the metric that it is.
METRICS_OF = {"binary_error": ("binary_error",), "auc": ("auc",), "jaccard": ("jaccard", "binary_error"), "f1": ("f1",)}
# As the paper ran its opponents, as far as its figures tell (``surrogate-opponents``): plain gradient descent, of which
# 1e-4 times 1,000,000 steps is 0.1 times 1,000, on columns from 0 to 1. No choice was made by these seeds.
PAPER_PROTOCOL = {"num_steps": 1000, "num_seeds": 3, "first_seed": 60_000, "scaling": "range"}
DESCENT = {"optimizer": "descent", "rates": (0.1,), "is_cosine": False}
# SL-R as in ``surrogate-pace``: one rate on either side
FAST = {"rates": (1e-2,)}
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
        for recipe in (*SURROGATES, *(UNIVERSAL_OF_PAPER if measure in LOOKED_INTO else ()))
    ]


def _judge_ablation(scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    for measure in _measures(scale):
        others = UNIVERSAL_OF_PAPER if measure in LOOKED_INTO else ()
        losses = {
            recipe: [loss_of(results[f"{table}-{measure}-{recipe}"], measure) for table in _tables(scale)]
            for recipe in (*SURROGATES, *others)
        }
        blank = [""] * (len(UNIVERSAL_OF_PAPER) - len(others))
        for number, table in enumerate(_tables(scale)):
            cells = [f"{values[number]:.4f}" for values in losses.values()]
            rows.append((measure, table, *cells, *blank, "", ""))
        ranks = {
            universal: mean_ranks(
                {recipe: [-loss for loss in losses[recipe]] for recipe in (universal, "sl_r", "sl_s")}
            )
            for universal in ("sl_u", *others)
        }
        shown = {name: " ".join(f"{rank:.2f}" for rank in of_recipe.values()) for name, of_recipe in ranks.items()}
        paper = " ".join(f"{rank:.2f}" for rank in PAPER_RANKS[measure])
        cells = [shown[name] for name in others]
        rows.append((measure, "ranks", "", "", "", *cells, *blank, shown["sl_u"], paper))
        if scale == "cpu" and measure != "auc":
            behind = ranks["sl_u"]["sl_u"] - min(ranks["sl_u"][recipe] for recipe in ("sl_r", "sl_s"))
            bars.append(Bar(f"{measure}: SL-U behind a surrogate of the data, in ranks", behind, 0.0))
    columns = (
        "measure",
        "table",
        "SL-U",
        "SL-R",
        "SL-S",
        "SL-U, the paper's sets",
        "SL-U, its sets and gradient",
        "ranks U R S",
        "paper's ranks",
    )
    return Verdict(columns, rows, bars)


TABLE2 = Experiment(
    "surrogate-table2",
    "Surrogates that are universal, refined, or from scratch (table 2).",
    {"smoke": "one table, AUC, seconds", "cpu": "5 tables, 7 measures, 2 seeds, 400 steps; half an hour"},
    _ablation_units,
    _judge_ablation,
    "The order of the paper holds where a surrogate of the data is ahead of the universal one by AP, F1 and MCC; "
    "by EER, accuracy and the Jaccard index ours is not behind. That is because our SL-U is another one than the "
    "paper's: it learns from random sets of all skills, not from scores near chance, and its gradient is mended "
    "(never away from the target, of one length, with a penalty on large scores). For these three measures the "
    "two columns more take that back. On the paper's sets alone, SL-U falls behind by the Jaccard index and, "
    "just, by EER; with the network's own gradient, too, it is last by all three, or as far back as SL-S, as in "
    "the paper. So what puts SL-U in its place there is what a surrogate must not do, and ours no longer does. "
    "Two seeds: ranks of five tables move by some tenths.",
)


# -------------------------------------------------------------------------------------- table 3: against the hand-made


def _opponent_units(scale: str) -> list[Unit]:
    units = []
    for table in _tables(scale):
        for measure in _opposed(scale):
            make = partial(_run, scale, dataset=table)
            paper = partial(make, metrics=METRICS_OF[measure], **PAPER_PROTOCOL)
            tuned = partial(make, metrics=(measure,), **OPPONENT_RUN)
            for recipe in ("sl_r", *OPPONENTS[measure]):
                change = FAST if recipe == "sl_r" else DESCENT
                units.append(paper(recipe=recipe, **change).unit(f"{table}-{measure}-{recipe}-paper"))
                units.append(tuned(recipe=recipe).unit(f"{table}-{measure}-{recipe}"))
    return units


def _opposed(scale: str) -> Sequence[str]:
    return list(OPPONENTS) if scale == "cpu" else ("auc",)


def _judge_opponents(scale: str, results: Mapping[str, Result]) -> Verdict:
    rows, bars = [], []
    tables = _tables(scale)
    for measure in _opposed(scale):
        wins = {"-paper": 0.0, "": 0.0}
        for table in tables:
            cells: list[str] = []
            for protocol in wins:
                losses = {
                    recipe: loss_of(results[f"{table}-{measure}-{recipe}{protocol}"], measure)
                    for recipe in ("sl_r", *OPPONENTS[measure])
                }
                wins[protocol] += _win(losses)
                cells += [f"{losses['sl_r']:.4f}", _best(losses)]
            # what is printed for JAC is accuracy, and stands below
            printed = {} if measure == "jaccard" else _printed(measure, table)
            rows.append((measure, table, *cells[:2], _best(printed), *cells[2:]))
        counts = [f"{count:g} of {len(tables)}" for count in wins.values()]
        rows.append((measure, "wins of SL-R", counts[0], "", "", counts[1], ""))
        if scale == "cpu":
            share = wins["-paper"] / len(tables)
            bars.append(Bar(f"{measure}: share of wins, the paper's protocol", share, PAPER_WINS[measure]))
    if scale == "cpu":
        rows += _rows_of_accuracy(tables, results)
        for measure, of_table in PAPER_TABLE3.items():
            own = {table: _by_paper(table, measure, "sl_r", results) for table in of_table}
            share = statistics.mean(_win({**_printed(measure, table), "sl_r": loss}) for table, loss in own.items())
            what = "the paper's JAC" if measure == "jaccard" else measure
            rows.append((what, "share of wins over printed figures", f"{share:.2f}", "", "", "", ""))
    columns = (
        "measure",
        "table",
        "SL-R, the paper's protocol",
        "best opponent there",
        "best opponent, as printed",
        "SL-R, ours",
        "best opponent, tuned",
    )
    return Verdict(columns, rows, bars)


def _rows_of_accuracy(tables: Sequence[str], results: Mapping[str, Result]) -> list[tuple[str, ...]]:
    """What the paper calls JAC: Lovász and the surrogate of accuracy, both by accuracy."""
    rows, wins = [], 0.0
    for table in tables:
        losses = {recipe: _by_paper(table, "jaccard", recipe, results) for recipe in ("sl_r", "lovasz")}
        wins += _win(losses)
        printed = _best(_printed("jaccard", table))
        rows.append(("the paper's JAC", table, f"{losses['sl_r']:.4f}", _best(losses), printed, "", ""))
    return [*rows, ("the paper's JAC", "wins of SL-R", f"{wins:g} of {len(tables)}", "", "", "", "")]


def _by_paper(table: str, measure: str, recipe: str, results: Mapping[str, Result]) -> float:
    """The loss by the paper's protocol, and by what the paper measured: a surrogate of its JAC is one of accuracy."""
    metric = METRICS_OF[measure][-1]
    return loss_of(results[f"{table}-{metric if recipe == 'sl_r' else measure}-{recipe}-paper"], metric)


def _printed(measure: str, table: str) -> dict[str, float]:
    """Of the opponents, where the table is the same."""
    return PAPER_TABLE3[measure].get(table, {})


def _best(losses: Mapping[str, float]) -> str:
    """The best opponent of those that are known."""
    opponents = [recipe for recipe in losses if recipe != "sl_r"]
    best = min(opponents, key=lambda name: losses[name], default=None)
    return f"{best} {losses[best]:.4f}" if best else ""


def _win(losses: Mapping[str, float]) -> float:
    best = min(loss for recipe, loss in losses.items() if recipe != "sl_r")
    return 0.5 if abs(losses["sl_r"] - best) < TIE else float(losses["sl_r"] < best)


TABLE3 = Experiment(
    "surrogate-table3",
    "The refined surrogate against hand-made losses, these as the paper ran them and tuned as we are (table 3).",
    {
        "smoke": "one table, AUC, seconds",
        "cpu": "5 tables, 4 measures, 3 seeds, 1,000 steps by the paper's protocol and 1,600 by ours; 20 minutes",
    },
    _opponent_units,
    _judge_opponents,
    "By the paper's protocol, opponents descend plainly, at the learning rate and as long as the paper says, on "
    "columns from 0 to 1 ([`surrogate-opponents`](#surrogate-opponents) has the evidence for that), and SL-R "
    "takes as many steps at one rate; validation rows choose checkpoint and threshold on either side. SL-R wins "
    "where such a descent has not come to its end: on CovType and IJCNN1 by every measure, there by up to half of "
    "the error. A9A, CC-Fraud and Skin are learned to their end by anybody in that time; differences are small, "
    "and more go against SL-R than for it. What the paper's Skin opponents suffered from, ours do not: the "
    "printed ones end twenty-five times higher, and more. So the share of wins of three measures is not there. "
    "Set against the figures that the paper prints for its opponents, on the tables that are the same, SL-R has "
    "that share by all four measures; splits differ, SL-R has 20,000 training rows and 1,000 steps, and this was "
    "looked at when the bars had been missed: it is no bar.\n\n"
    "What was tried for SL-R on other seeds, on A9A by accuracy, and is not kept: learning rates of 1e-3 and "
    "3e-3, and batches as the data come instead of half positives. None brought it clearly past cross-entropy. "
    "Batches as they come were better on validation rows than balanced ones, of which the accuracy is not that of "
    "the data; the paper balances.\n\n"
    "What the paper calls JAC is accuracy: all its JAC losses are its misclassification rates within noise, and "
    "its own F1 on A9A (a loss of .3134) would make a Jaccard loss of .477, where it prints .1512. The rows and "
    "the bar of `jaccard` are of the Jaccard index; those of the paper's JAC are of accuracy, Lovász beside a "
    "surrogate of accuracy. Figures are not printed here for CC-Fraud, of which the paper has another sample, and "
    "for F1 on Skin, where its positives are the other class.\n\n"
    "Where opponents are tuned as hard as SL-R, the two columns on the right, they are ahead on most tables. "
    "These columns are of other seeds and longer runs, on standardised columns. In an earlier version the paper's "
    "opponents were Adam at 1e-3, judged after its last step: SL-R won 2, 4, 2 and 3 of five, and none of the "
    "bars was met.",
)


# ------------------------------------------------------------------------ table 3: how its opponents were trained

# ways to read "1M iterations with a learning rate of 1e-4": columns and optimizer
READINGS: dict[str, dict[str, object]] = {
    "adam": {"rates": (1e-3,), "is_cosine": False, "num_checkpoints": 1, **OPPONENT_RUN},
    "descent": {**PAPER_PROTOCOL, **DESCENT, "scaling": "standard"},
    "descent, 0 to 1": {**PAPER_PROTOCOL, **DESCENT},
}


def _figures(scale: str) -> list[tuple[str, str, str]]:
    """Measure, table and loss of every figure of the paper that we can set ours beside."""
    if scale == "smoke":
        return [("auc", "phoneme", "pairwise")]
    return [
        (measure, table, recipe)
        for measure, of_table in PAPER_TABLE3.items()
        for table, of_recipe in of_table.items()
        for recipe in of_recipe
    ]


def _reading_units(scale: str) -> list[Unit]:
    return [
        _run(scale, dataset=table, recipe=recipe, metrics=METRICS_OF[measure], **change).unit(
            _name_of_reading(reading, measure, table, recipe)
        )
        for reading, change in READINGS.items()
        for measure, table, recipe in _figures(scale)
    ]


def _name_of_reading(reading: str, measure: str, table: str, recipe: str) -> str:
    return f"{table}-{measure}-{recipe}-{reading.replace(', ', '-').replace(' ', '_')}"


def _judge_readings(scale: str, results: Mapping[str, Result]) -> Verdict:
    """Nothing here is to be reached: that reading is chosen whose opponents are closest to the paper's."""
    rows = []
    distances: dict[str, list[float]] = {reading: [] for reading in READINGS}
    for figure in _figures(scale):
        measure, table, recipe = figure
        paper = PAPER_TABLE3.get(measure, {}).get(table, {}).get(recipe)
        losses = []
        for reading in READINGS:
            losses.append(loss_of(results[_name_of_reading(reading, *figure)], METRICS_OF[measure][-1]))
            if paper is not None:
                distances[reading].append(abs(math.log(max(losses[-1], TIE) / paper)))
        what = "the paper's JAC" if measure == "jaccard" else measure
        rows.append((what, table, recipe, f"{paper:.4f}" if paper else "", *(f"{loss:.4f}" for loss in losses)))
    medians = [f"{statistics.median(values):.2f}" if values else "" for values in distances.values()]
    rows.append(("median of the ratio's logarithm", "", "", "", *medians))
    return Verdict(("measure", "table", "loss", "paper", *READINGS), rows, [])


OPPONENTS_READ = Experiment(
    "surrogate-opponents",
    "How the opponents of table 3 were trained: readings of section 4.3, beside the paper's figures.",
    {"smoke": "one table, one loss, seconds", "cpu": "4 tables, 5 losses, 3 seeds, 3 readings; 6 minutes"},
    _reading_units,
    _judge_readings,
    'The paper trains opponents for "1M iterations with a learning rate of 1e-4". A million steps of Adam would '
    "come to the end that the first column nears, far below the paper's figures on IJCNN1 and Skin. As plain "
    "gradient descent they are as far as 1,000 steps at 0.1. On columns from 0 to 1, as LIBSVM has them, that is "
    "the closest of these readings on IJCNN1; on A9A all agree. Skin's figures none of them explains: with the "
    "paper's network every loss is far below them within a hundred steps. JAC is by accuracy (see "
    "`surrogate-table3`); F1 on Skin is left out, because the paper's positives there are the other class. "
    "Checkpoints of descents are chosen on validation rows, Adam is judged at its end.\n\n"
    "Looked at in pilots of two seeds and not kept: no batch norm, with which Skin comes near the paper's figures "
    "and IJCNN1 does not learn at all from columns of 0 to 1; batch norm of the output, too; thresholds at 0. No "
    "one setting fits all tables.",
)


# ---------------------------------------------------------------------------------------------- figure 3: convergence


def _curve_units(scale: str) -> list[Unit]:
    table = "ijcnn1" if scale == "cpu" else "phoneme"
    return [
        _run(scale, dataset=table, recipe=recipe, metrics=(measure,)).unit(f"{table}-{measure}-{recipe}")
        for measure in (("auc", "ap", "binary_error", "f1") if scale == "cpu" else ("auc",))
        for recipe in ("sl_r", "sl_s", *(("sl_r_at_once", "sl_s_at_once") if measure in ("auc", "ap") else ()))
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
    "the two of rankings. Two things here are not the paper's: 1,000 steps of the surrogate on the data before "
    "the model's first, which might take the head start away, and a learning rate of the surrogate from scratch "
    "three times that of the refined one. The first is not the reason: without those steps (the rows `at_once`) "
    "SL-R is still behind at the first look. Two seeds do not settle it: on three others, at one rate and not "
    "kept, SL-R without first steps was ahead by AUC and AP after 60 to 90 steps. At the end each leads by "
    "two of the four measures.",
)
