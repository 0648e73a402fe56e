"""ReLoss (Huang et al. 2022): how well a loss that is learned once ranks the predictions of networks it never saw.

A loss learns from the networks of the shipped ones and is measured on other networks and other rows: 2,000 sets of 128
rows that no network trained on, early and late checkpoints alike. *Within* is the mean correlation over sets of a
single checkpoint, which differ only by their rows. Brier's score is the opponent to beat: it is far better aligned with
accuracy than cross-entropy is.

>>> [unit.name for unit in ALIGNMENT.units("smoke")]
['accuracy-seed0']
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor

from lossmith.alignment import losses_of_sets
from lossmith.baselines import find_loss
from lossmith.cards import share_of_rising_rows
from lossmith.lab.checkpoints import CheckpointRun, checkpoint_steps, collect_checkpoints
from lossmith.lab.datasets import find_dataset
from lossmith.lab.recipes import Recipe, recipe_for
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.lab.ship import PLANS
from lossmith.metrics import find_metric
from lossmith.predictions import draw_sets
from lossmith.ranking import kendall, spearman
from lossmith.surrogates import Surrogate
from lossmith.vocabulary import Kind, Metric, Predictions

SET_SIZE = 128
LEARNED = "learned"
RIVALS = ("ce", "brier")
SEEDS_TO_LEARN_FROM = 3
"""Networks of these seeds teach; where a source teaches and judges, those of later seeds judge."""
SOURCES = {
    "smoke": ("digits",),
    "small": ("digits", "mnist", "covtype", "magic_telescope", "omniglot"),
    "cpu": ("digits", "mnist", "cifar10", "covtype", "magic_telescope", "omniglot"),
}
# training images: a network on all of them would take longer than all the rest
NUM_CIFAR10_IMAGES = 10_000
# the study of prototypes that the learned losses must reach, Spearman on the mean of four tables
SET_METRICS = {"f1": 0.937, "jaccard": 0.937, "mcc": 0.943, "balanced_accuracy": 0.937, "auc": 0.992, "ap": 0.996}


@dataclass(frozen=True)
class Measurement:
    """One loss, learned and measured."""

    metric: str
    sources: tuple[str, ...]
    """Where it is measured."""
    seed: int
    num_steps: int = 400
    num_sets: int = 2000
    num_rows: int = 2000

    @property
    def unit(self) -> Unit:
        return Unit(
            f"{self.metric}-seed{self.seed}", asdict(self), lambda folder: _measurement_steps(self, folder.parent)
        )


def _units(scale: str) -> list[Unit]:
    if scale == "smoke":
        return [Measurement("accuracy", SOURCES[scale], 0, num_steps=40, num_sets=200, num_rows=500).unit]
    of_accuracy = [Measurement("accuracy", SOURCES[scale], seed).unit for seed in range(5)]
    of_sets = [Measurement(name, PLANS[name].other_sources, seed).unit for name in SET_METRICS for seed in range(3)]
    return of_accuracy + of_sets


def _measurement_steps(setting: Measurement, folder: Path) -> Generator[float, None, Result]:
    plan, metric = PLANS[setting.metric], find_metric(setting.metric)
    taught = {
        name: held_out(name, folder / "checkpoints", setting.num_rows, is_for_learning=True) for name in plan.sources
    }
    yield 0.2
    loss = plan.learn(metric, taught, seed=setting.seed, num_steps=setting.num_steps, progress=False)
    result: Result = {}
    for number, name in enumerate(setting.sources):
        yield 0.4 + 0.6 * number / len(setting.sources)
        predictions = held_out(name, folder / "checkpoints", setting.num_rows, is_for_learning=False)
        result[name] = measured(loss.surrogate, metric, predictions, setting.num_sets)
    return result


@lru_cache(maxsize=24)
def held_out(name: str, folder: Path, num_rows: int, *, is_for_learning: bool) -> Predictions:
    """Of rows that the networks did not train on: the first half for learning, where the source has both parts."""
    dataset = find_dataset(name).load(NUM_CIFAR10_IMAGES if name == "cifar10" else None)
    is_in_both = name == "digits"
    runs = [
        CheckpointRun(
            dataset, recipe, folder / f"{name}{suffix}", num_seeds=len(seeds), num_rows=num_rows, first_seed=seeds[0]
        )
        for suffix, recipe, seeds in _networks(name)
    ]
    stacks = []
    for run in runs:
        for _ in checkpoint_steps(run):
            pass
        stored = collect_checkpoints(run)
        assert stored.predictions.is_held_out is not None
        is_picked = stored.predictions.is_held_out
        rows = slice(None)
        if is_in_both:
            is_picked = is_picked & ((stored.seed < SEEDS_TO_LEARN_FROM) == is_for_learning)
            half = stored.predictions.set_size // 2
            rows = slice(None, half) if is_for_learning else slice(half, None)
        stacks.append((stored.predictions.outputs[is_picked][:, rows], stored.predictions.targets[is_picked][:, rows]))
    return Predictions(*(torch.cat(parts) for parts in zip(*stacks)))


def _networks(name: str) -> list[tuple[str, Recipe, range]]:
    """Folder's suffix, recipe and seeds of the networks of a source."""
    recipe = recipe_for(name)
    if name == "cifar10":
        # one seed costs minutes: each differs in its schedule, too
        return [
            ("", replace(recipe, num_epochs=8), range(1)),
            ("-fast", replace(recipe, num_epochs=5, learning_rate=1e-2), range(1, 2)),
            ("-slow", replace(recipe, num_epochs=4, learning_rate=1e-3), range(2, 3)),
        ]
    return [("", recipe, range(2 * SEEDS_TO_LEARN_FROM if name == "digits" else SEEDS_TO_LEARN_FROM))]


Judge = Callable[[Predictions], Tensor]


def measured(surrogate: Surrogate, metric: Metric, predictions: Predictions, num_sets: int) -> Result:
    if surrogate.kind is Kind.MULTICLASS and predictions.outputs.dim() == 2:
        # a yes-or-no score is a choice between it and 0
        scores = torch.stack([torch.zeros_like(predictions.outputs), predictions.outputs], -1)
        predictions = Predictions(scores, predictions.targets)
    rivals = {name: find_loss(name, surrogate.kind) for name in RIVALS}
    judges: dict[str, Judge] = {LEARNED: partial(_stacked, surrogate)}
    judges |= {name: partial(losses_of_sets, rival) for name, rival in rivals.items()}
    generator = torch.Generator().manual_seed(1)
    sets = draw_sets(predictions, num_sets=num_sets, set_size=SET_SIZE, generator=generator)
    # single checkpoints, as many sets together
    checkpoints = torch.linspace(0, predictions.num_sets - 1, 10).long().unique().split(1)
    alone = [
        draw_sets(predictions[index], num_sets=num_sets // 10, set_size=SET_SIZE, generator=generator)
        for index in checkpoints
    ]
    result: Result = {"share_rising": share_of_rising_rows(surrogate, sets[:200])}
    for name, judge in judges.items():
        losses, costs = _defined(judge(sets), metric, sets)
        within = [float(spearman(*_defined(judge(each), metric, each))) for each in alone]
        known = [value for value in within if value == value]
        result[name] = {
            "spearman": float(spearman(losses, costs)),
            "kendall": float(kendall(losses, costs)),
            "within": statistics.mean(known) if known else None,
        }
    return result


@torch.no_grad()
def _stacked(surrogate: Surrogate, sets: Predictions) -> Tensor:
    pairs = zip(sets.outputs.split(50), sets.targets.split(50))
    return torch.cat([surrogate(outputs, targets) for outputs, targets in pairs])


def _defined(losses: Tensor, metric: Metric, sets: Predictions) -> tuple[Tensor, Tensor]:
    costs = metric.cost(sets.outputs, sets.targets)
    is_defined = ~costs.isnan()
    return losses[is_defined].double(), costs[is_defined].double()


# ---- judgement


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    by_metric: dict[str, list[Result]] = {}
    for unit, result in results.items():
        by_metric.setdefault(unit.rpartition("-")[0], []).append(result)
    rows = [
        (metric, source, *(_cell(losses, source, loss) for loss in (LEARNED, *RIVALS)))
        for metric, losses in by_metric.items()
        for source in losses[0]
    ]
    columns = ("metric", "source", "learned: Spearman, Kendall, within", *RIVALS)
    bars = [] if scale == "smoke" else [*_bars_of_accuracy(by_metric["accuracy"]), *_bars_of_sets(by_metric)]
    return Verdict(columns, rows, bars)


def _values(results: Sequence[Result], source: str, loss: str, what: str) -> list[float]:
    return [result[source][loss][what] for result in results]


def _mean(results: Sequence[Result], source: str, loss: str, what: str) -> float:
    return statistics.mean(_values(results, source, loss, what))


def _cell(results: Sequence[Result], source: str, loss: str) -> str:
    values = _values(results, source, loss, "spearman")
    deviation = f" ± {100 * statistics.stdev(values):.2f}" if loss == LEARNED and len(values) > 1 else ""
    kendall_value = 100 * _mean(results, source, loss, "kendall")
    within = _values(results, source, loss, "within")
    alone = f", {100 * statistics.mean(within):.1f}" if None not in within else ""
    return f"{100 * statistics.mean(values):.2f}{deviation}, {kendall_value:.1f}{alone}"


def _bars_of_accuracy(results: Sequence[Result]) -> list[Bar]:
    sources = list(results[0])

    def learned(what: str) -> dict[str, float]:
        return {source: _mean(results, source, LEARNED, what) for source in sources}

    rho, tau, within = learned("spearman"), learned("kendall"), learned("within")
    bars = [
        Bar("Spearman on the mean of sources", statistics.mean(rho.values()), 0.988),
        Bar("Kendall on the mean of sources", statistics.mean(tau.values()), 0.926),
        Bar("lowest Spearman of a source", min(rho.values()), 0.984),
        Bar("lowest Kendall of a source", min(tau.values()), 0.899),
    ]
    for rival in RIVALS:
        lead = min(rho[source] - _mean(results, source, rival, "spearman") for source in sources)
        lead_within = min(within[source] - _mean(results, source, rival, "within") for source in sources)
        bars += [
            Bar(f"lowest lead over {rival}", lead, 0.0),
            Bar(f"lowest lead over {rival} within a checkpoint", lead_within, 0.0),
        ]
    deviation = max(statistics.stdev(_values(results, source, LEARNED, "spearman")) for source in sources)
    rising = max(result[source]["share_rising"] for result in results for source in sources)
    bars.append(Bar("highest deviation between learning seeds", deviation, 0.0005, is_at_least=False))
    bars.append(Bar("share of rows on which the loss rises", rising, 0.0, is_at_least=False))
    return bars


def _bars_of_sets(by_metric: Mapping[str, Sequence[Result]]) -> list[Bar]:
    return [
        Bar(
            f"{metric}, mean of tables",
            statistics.mean(_mean(by_metric[metric], source, LEARNED, "spearman") for source in by_metric[metric][0]),
            bar,
        )
        for metric, bar in SET_METRICS.items()
    ]


ALIGNMENT = Experiment(
    "reloss-alignment",
    "Learned losses against cross-entropy and Brier, on networks that they never saw (Table 1 and Figure 3).",
    {
        "smoke": "digits, seconds",
        "small": "digits, MNIST and tables, 20 minutes",
        "cpu": "and three ResNet-20 on 10,000 images of CIFAR-10, of 8, 5 and 4 epochs, 30 minutes",
    },
    _units,
    _judge,
)
