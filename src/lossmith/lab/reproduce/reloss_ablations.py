"""ReLoss (Huang et al. 2022): what matters when a loss is learned, one choice at a time (Tables 8 to 14, Figure 3).

Each variant of the loss is learned from digit networks, judged on other networks and rows of digits, and trained with,
as ``ce + loss``, on MNIST. A learning rate is chosen for each on validation rows of seeds that the test does not use.

>>> [unit.name for unit in find_ablation("reloss-sum").units("smoke")]
['ce', 'sum', 'alone']
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from lossmith.combining import combine
from lossmith.lab.comparing.stack_losses import Mix, OfStack
from lossmith.lab.reproduce.compared_losses import compared_loss, compared_on_stack
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.lab.reproduce.many_seeds import Task, one_for_each, train_seeds
from lossmith.lab.reproduce.reloss_alignment import held_out, measured
from lossmith.learning import approximation_objective, rank_objective, surrogate_steps
from lossmith.learning_sets import learning_sets
from lossmith.methods.reloss import AlternatingReLoss, judge
from lossmith.metrics import METRICS
from lossmith.surrogates import PointwiseSurrogate, Surrogate
from lossmith.vocabulary import Kind, Loss

METRIC = METRICS["accuracy"]
JUDGING_SOURCE = "digits"
FIRST_CHOOSING_SEED = 1000


@dataclass(frozen=True)
class Variant:
    """How a loss is learned, and how a model is trained with it; plain values."""

    use: Literal["sum", "alone", "alternating", "hand-made"] = "sum"
    hand_made: str = "ce"
    hidden: tuple[int, ...] = ()
    """Of the paper's network, whose input is the probability of the true class; none: the default surrogate."""
    is_approximation: bool = False
    floor: float = 0.04
    """Of the default surrogate: no sharper than this."""
    gradient_penalty: float = 0.0
    is_penalty_signed: bool = True
    taught_by: str = "digits"
    num_steps: int = 400
    label_noise: float = 0.0
    """Share of labels of the models' rows that are drawn at random."""
    seed: int = 0


CE = Variant("hand-made")
DEFAULT = Variant()
PAPER = Variant(hidden=(128, 128, 128), gradient_penalty=1.0)
TASK = Task("mnist", num_rows=2000, num_epochs=10, batch_size=64)
SMOKE_TASK = Task("digits", num_rows=200, num_epochs=2)


def learned_surrogate(variant: Variant, folder: Path, *, num_rows: int) -> Surrogate:
    """Algorithm 1 without any check: what comes out wrong is to be seen."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(variant.seed)
        surrogate = PointwiseSurrogate(
            Kind.MULTICLASS,
            feature="probability" if variant.hidden else "margin",
            hidden=list(variant.hidden),
            floor=variant.floor,
            is_penalty_signed=variant.is_penalty_signed,
        )
    generator = torch.Generator().manual_seed(variant.seed)
    taught = {variant.taught_by: held_out(variant.taught_by, folder, num_rows, is_for_learning=True)}
    sets = learning_sets(METRIC, taught, generator, num_classes=(2, 10, 100))
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in surrogate_steps(
        surrogate,
        METRIC,
        sets.learning,
        approximation_objective() if variant.is_approximation else rank_objective(),
        optimizer,
        num_steps=variant.num_steps,
        generator=generator,
        gradient_penalty=variant.gradient_penalty,
        within=0.0 if variant.is_approximation else 0.5,
    ):
        pass
    return surrogate.requires_grad_(False)


def _steps(variant: Variant, is_smoke: bool, folder: Path) -> Generator[float, None, Result]:
    checkpoints, num_rows = folder.parent / "checkpoints", 500 if is_smoke else 2000
    result: Result = {}
    surrogate = None
    if variant.use != "hand-made":
        surrogate = learned_surrogate(variant, checkpoints, num_rows=num_rows)
        judging = held_out(JUDGING_SOURCE, checkpoints, num_rows, is_for_learning=False)
        of_source = measured(surrogate, METRIC, judging, 200 if is_smoke else 1000)
        result = {"share_rising": of_source["share_rising"], **of_source["learned"]}
    yield 0.3

    def make_losses(num_steps: int, num_models: int) -> OfStack:
        if surrogate is None:
            return compared_on_stack(variant.hand_made, Kind.MULTICLASS)
        if variant.use == "alternating":
            return one_for_each(partial(_alternating_sum, variant, surrogate))(num_steps, num_models)
        learned = partial(judge, surrogate)
        return learned if variant.use == "alone" else Mix(compared_on_stack("ce", Kind.MULTICLASS), learned).of_stack

    task = replace(SMOKE_TASK if is_smoke else TASK, label_noise=variant.label_noise)
    choosing = range(FIRST_CHOOSING_SEED, FIRST_CHOOSING_SEED + (1 if is_smoke else 2))
    validation = {}
    for rate in (0.06,) if is_smoke else (0.02, 0.06, 0.2):
        accuracies = train_seeds(task, make_losses, learning_rate=rate, seeds=choosing)
        validation[rate] = float(accuracies.validation.mean())
        yield 0.4
    best = max(validation, key=validation.__getitem__)
    test = train_seeds(task, make_losses, learning_rate=best, seeds=range(2 if is_smoke else 6)).test
    return {**result, "learning_rate": best, "test": test.tolist()}


def _alternating_sum(variant: Variant, surrogate: Surrogate, num_steps: int) -> Loss:
    """Each model has a surrogate of its own, which learns from that model's outputs."""
    copy = PointwiseSurrogate(**surrogate.settings)  # type: ignore[arg-type]
    copy.load_state_dict(surrogate.state_dict())
    learned = AlternatingReLoss(copy, METRIC, gradient_penalty=variant.gradient_penalty)
    return combine(compared_loss("ce", Kind.MULTICLASS), learned)


# ---- the experiments


Bars = Callable[[Mapping[str, Result]], list[Bar]]


def _ablation(name: str, what: str, variants: Mapping[str, Variant], bars: Bars) -> Experiment:
    def units(scale: str) -> list[Unit]:
        is_smoke = scale == "smoke"
        chosen = {
            each: replace(variant, num_steps=min(variant.num_steps, 30), taught_by="digits") if is_smoke else variant
            for each, variant in variants.items()
        }
        return [
            Unit(each, {"is_smoke": is_smoke, **asdict(variant)}, partial(_steps, variant, is_smoke))
            for each, variant in chosen.items()
        ]

    def judge(scale: str, results: Mapping[str, Result]) -> Verdict:
        return Verdict(
            ("loss", "Spearman", "Kendall", "rows on which it rises", "test accuracy ± deviation"),
            [(each, *_cells(result)) for each, result in results.items()],
            [] if scale == "smoke" else bars(results),
        )

    scales = {"smoke": "small digits, seconds", "cpu": "losses from digits, models of MNIST, 2 minutes"}
    return Experiment(name, what, scales, units, judge)


def _cells(result: Result) -> tuple[str, ...]:
    test = f"{100 * statistics.mean(result['test']):.2f} ± {100 * statistics.stdev(result['test']):.2f}"
    if "spearman" not in result:
        return "", "", "", test
    correlations = (f"{100 * result[name]:.2f}" for name in ("spearman", "kendall"))
    return (*correlations, f"{result['share_rising']:.1%}", test)


def _lead(results: Mapping[str, Result], one: str, other: str) -> float:
    """In points of test accuracy."""
    return 100 * float(statistics.mean(results[one]["test"]) - statistics.mean(results[other]["test"]))


def _spearman(results: Mapping[str, Result], *names: str) -> list[float]:
    return [results[name]["spearman"] for name in names]


PENALTIES = {
    "network, no penalty": replace(PAPER, gradient_penalty=0.0),
    "network, signed penalty 1": PAPER,
    "network, signed penalty 10": replace(PAPER, gradient_penalty=10.0),
    **{
        f"network, penalty of the paper, seed {seed}": replace(
            PAPER, gradient_penalty=10.0, is_penalty_signed=False, seed=seed
        )
        for seed in range(3)
    },
    "default": DEFAULT,
}
FLOORS = (0.003, 0.01, 0.04, 0.1, 0.3, 1.0)
CAPACITIES = {
    "4": (4,),
    "8 8": (8, 8),
    "32 32": (32, 32),
    "128 128 128": (128, 128, 128),
    "256 256 256": (256, 256, 256),
}

ABLATIONS = (
    _ablation(
        "reloss-objective",
        "Approximating the metric against ranking as it does (Table 8).",
        {"ce": CE, "approximation": replace(PAPER, is_approximation=True), "correlation": PAPER},
        lambda results: [
            Bar(
                "lead of correlation in Spearman",
                _spearman(results, "correlation")[0] - _spearman(results, "approximation")[0],
                0.0,
            ),
            Bar("lead of correlation in accuracy, points", _lead(results, "correlation", "approximation"), -0.15),
        ],
    ),
    _ablation(
        "reloss-transfer",
        "A loss from another data set against one from the same (Table 9).",
        {
            "ce": CE,
            "from digits": DEFAULT,
            "from MNIST": replace(DEFAULT, taught_by="mnist"),
            "from CovType": replace(DEFAULT, taught_by="covtype"),
        },
        lambda results: [Bar("lead of the same over another", -abs(_lead(results, "from MNIST", "from digits")), -0.3)],
    ),
    _ablation(
        "reloss-sum",
        "The learned loss with and without the regular one (Table 10).",
        {"ce": CE, "sum": DEFAULT, "alone": replace(DEFAULT, use="alone")},
        lambda results: [Bar("lead of the sum over the loss alone, points", _lead(results, "sum", "alone"), 0.0)],
    ),
    _ablation(
        "reloss-alternate",
        "A loss that goes on learning while the model learns (Table 11).",
        {"ce": CE, "fixed": DEFAULT, "alternating": replace(DEFAULT, use="alternating")},
        lambda results: [Bar("lead of the fixed loss, points", _lead(results, "fixed", "alternating"), -0.15)],
    ),
    _ablation(
        "reloss-penalty",
        "The paper's network with and without a gradient penalty (Table 12).",
        PENALTIES,
        lambda results: [
            Bar("Spearman with the signed penalty", min(_spearman(results, *list(PENALTIES)[1:3])), 0.9),
            Bar("rows on which the default rises", results["default"]["share_rising"], 0.0, is_at_least=False),
        ],
    ),
    _ablation(
        "reloss-seeds",
        "Five losses, learned independently (Table 13).",
        {f"seed {seed}": replace(DEFAULT, seed=seed) for seed in range(5)},
        lambda results: [
            Bar("deviation of Spearman", statistics.stdev(_spearman(results, *results)), 0.0005, is_at_least=False)
        ],
    ),
    _ablation(
        "reloss-rank-loss",
        "The rank loss of Blondel et al. (Table 14).",
        {"ce": CE, "rank": Variant("hand-made", "rank"), "sum": DEFAULT},
        lambda results: [Bar("lead of the sum over the rank loss, points", _lead(results, "sum", "rank"), 0.0)],
    ),
    _ablation(
        "reloss-capacity",
        "Networks of several sizes, and losses of several correlations (Figure 3).",
        {
            **{f"hidden {name}": replace(PAPER, hidden=hidden) for name, hidden in CAPACITIES.items()},
            **{f"default, {steps} steps": replace(DEFAULT, num_steps=steps) for steps in (1, 10, 50, 400)},
        },
        lambda results: [
            Bar(
                "gain in Spearman by learning",
                _spearman(results, "default, 400 steps")[0] - _spearman(results, "default, 1 steps")[0],
                0.0,
            )
        ],
    ),
    _ablation(
        "reloss-sharpness",
        "How sharp the loss may be, on models of which 30 % of the labels are wrong (not in the paper).",
        {
            "ce": replace(CE, label_noise=0.3),
            **{f"floor {floor:g}": replace(DEFAULT, floor=floor, label_noise=0.3) for floor in FLOORS},
        },
        lambda results: [Bar("lead of floor 0.04 over ce, points", _lead(results, "floor 0.04", "ce"), 0.0)],
    ),
)


def find_ablation(name: str) -> Experiment:
    return next(experiment for experiment in ABLATIONS if experiment.name == name)
