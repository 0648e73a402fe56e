"""Beyond the table: what would help more than another loss, how each loss ranks predictions, and what it looks like.

Everything here is measured with tuned cross-entropy on the splits of the comparison, so that differences are paired:
a larger model, twice as many steps, a tuned threshold. The validation predictions of those models, early and late, are
what alignment is measured on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lossmith.alignment import Alignment, Estimate, measure_alignment
from lossmith.lab.comparing.comparison import SIGNIFICANT, Comparison, chosen
from lossmith.lab.comparing.recipes import RECIPES, Making
from lossmith.lab.comparing.records import CONTROL, REFERENCE, Settings
from lossmith.lab.comparing.running import Plan, StackResult, stack_steps
from lossmith.lab.comparing.stack_losses import AtThreshold, EachItsOwn, Mix, Normalised, OfStack, Then
from lossmith.lab.comparing.studying import grid, model_for
from lossmith.lab.datasets.splitting import Pool, split
from lossmith.lab.statistics import Paired, compare_paired
from lossmith.vocabulary import Kind, Metric, Predictions, StackLoss

FILE_NAME = "insights.json"
LARGER = {"linear": "mlp32", "tiny2": "tiny8", "tiny4": "mlp32", "tiny8": "mlp32", "mlp32": "mlp256"}
# losses that depend on the batches before, or on gradients: there is no one shape to show
WITHOUT_A_SHAPE = (AtThreshold, EachItsOwn, Mix, Normalised, Then)
NUM_ROWS, NUM_SETS, SET_SIZE, NUM_BOOTSTRAP, NUM_SCORES = 2000, 300, 128, 200, 81


@dataclass(frozen=True)
class Help:
    """Something else than the loss, and what it brings to tuned cross-entropy; better is more."""

    what: str
    gain: Paired

    @property
    def is_a_gain(self) -> bool:
        """Beyond noise."""
        return self.gain.mean > 0 and self.gain.p < SIGNIFICANT


@dataclass(frozen=True)
class Shape:
    """``scores [V]`` of one positive (of several classes: of the true one), and what one batch costs at each."""

    scores: Tensor
    cost: Tensor
    losses: Mapping[str, Tensor]


@dataclass(frozen=True)
class Insights:
    helps: tuple[Help, ...] = ()
    alignments: Mapping[str, Alignment] = field(default_factory=dict)
    shape: Shape | None = None


def insight_steps(
    settings: Settings, pool: Pool, metric: Metric, comparison: Comparison, folder: str | Path
) -> Iterator[tuple[str, float]]:
    """Yields what is being measured, and the share that is done; the file appears at the end, whole.

    Where it is there, and cross-entropy is still the one that it was measured against, nothing is left to do.
    """
    path = Path(folder, FILE_NAME)
    reference = chosen(
        [trial for trial in comparison.trials if trial.recipe == REFERENCE and not trial.is_confirmation],
        higher_is_better=metric.higher_is_better,
    ).get(REFERENCE, {})
    seeds = sorted(reference)
    tests = [reference[seed].test for seed in seeds]
    if len(seeds) < 2 or (path.is_file() and json.loads(path.read_text(encoding="utf8")).get("against") == tests):
        return
    sign = 1 if metric.higher_is_better else -1
    model = model_for(settings, pool)
    plan = Plan(model, settings.num_steps, settings.batch_size, is_balanced=settings.is_balanced)
    rates = tuple(sorted({reference[seed].learning_rate for seed in seeds}))
    larger = LARGER.get(model)
    remembered = Remembered()
    untuned = replace(metric, name="untuned", reads_probabilities=True)
    witness = Metric("remembered", metric.kind, remembered, reads_probabilities=True)
    # what is tried, with which learning rates, judged by what
    trials = [("as it is", plan, rates, [metric, untuned, witness])]
    trials.append(("twice as many steps", replace(plan, num_steps=2 * plan.num_steps), rates, [metric]))
    if larger is not None:
        larger_rates = grid(larger, settings.num_trials)
        trials.append((f"a larger model ({model} → {larger})", replace(plan, model=larger), larger_rates, [metric]))
    parts = split(pool, seeds, max_rows=settings.max_rows)
    helps = []
    for number, (what, tried, its_rates, metrics) in enumerate(trials):
        work = stack_steps(parts, tried, RECIPES[REFERENCE], seeds=seeds, rates=its_rates, metrics=metrics)
        while True:
            try:
                share = next(work)
            except StopIteration as end:
                result: StackResult = end.value
                break
            yield what, (number + share) / (len(trials) + 1)
        found = best_tests(result, metric, num_seeds=len(seeds))
        if number == 0:
            if result.looks[metric.name][0].thresholds is not None:
                plain = best_tests(result, untuned, num_seeds=len(seeds))
                gain = compare_paired([sign * value for value in found], [sign * value for value in plain])
                helps.append(Help("a tuned threshold (every loss above has one)", gain))
        elif all(value == value for value in found):
            gain = compare_paired([sign * value for value in found], [sign * value for value in tests])
            helps.append(Help(what, gain))
    yield "alignment", len(trials) / (len(trials) + 1)
    predictions = remembered.predictions()
    losses = plain_losses(settings, pool, metric)
    insights = Insights(tuple(helps), measure_all(losses, metric, predictions), shape_of(losses, metric, predictions))
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(as_json(insights) | {"against": tests}) + "\n", encoding="utf8")
    unfinished.replace(path)


class Remembered:
    """In the place of a metric's value: keeps the validation predictions that it is shown at every look."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.targets: list[Tensor] = []
        self._num_calls = 0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._num_calls += 1
        if self._num_calls % 2:  # a look is at validation rows, then at test rows
            self.outputs.append(outputs[:, :NUM_ROWS].clone())
            self.targets.append(targets[:, :NUM_ROWS].clone())
        return outputs.new_zeros(len(outputs))

    def predictions(self) -> Predictions:
        return Predictions(torch.cat(self.outputs), torch.cat(self.targets))


def best_tests(result: StackResult, metric: Metric, *, num_seeds: int) -> list[float]:
    """For every seed the test value of the run and the checkpoint that are best on its validation rows."""
    looks = result.looks[metric.name]
    validation = torch.stack([look.validation for look in looks], -1).view(num_seeds, -1)
    test = torch.stack([look.test for look in looks], -1).view(num_seeds, -1)
    sign = 1 if metric.higher_is_better else -1
    index = (sign * validation).nan_to_num(-torch.inf).argmax(-1, keepdim=True)
    values: list[float] = test.gather(-1, index).squeeze(-1).tolist()
    return values


@dataclass(frozen=True)
class PlainLoss:
    """A recipe's loss as alignment takes it."""

    of_all: OfStack

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.of_all(outputs[None], targets[None])[0]

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.of_all(outputs, targets)


def plain_losses(settings: Settings, pool: Pool, metric: Metric) -> dict[str, PlainLoss]:
    """Of the compared losses those that judge a batch by its predictions alone."""
    losses = {}
    for name in dict.fromkeys((REFERENCE, *settings.losses)):
        recipe = RECIPES[name]
        if name == CONTROL or recipe.is_slow:
            continue
        made = recipe.make(Making(metric, pool.kind, 1, settings.num_steps), recipe.variants[0])
        if not isinstance(made, WITHOUT_A_SHAPE):
            losses[name] = PlainLoss(made.of_stack if isinstance(made, StackLoss) else made)
    return losses


def measure_all(losses: Mapping[str, PlainLoss], metric: Metric, predictions: Predictions) -> dict[str, Alignment]:
    """Nothing where the metric does not tell these sets apart: of rare positives each may have an F1 of 0."""
    set_size = min(SET_SIZE, predictions.set_size)
    try:
        return {
            name: measure_alignment(
                loss, metric, predictions, num_sets=NUM_SETS, set_size=set_size, num_bootstrap=NUM_BOOTSTRAP
            )
            for name, loss in losses.items()
        }
    except ValueError:
        return {}


def shape_of(losses: Mapping[str, PlainLoss], metric: Metric, predictions: Predictions) -> Shape | None:
    """One batch of the last checkpoint, in which one score rises."""
    if metric.kind not in (Kind.BINARY, Kind.MULTICLASS):
        return None
    outputs, targets = predictions.outputs[-1], predictions.targets[-1]
    if metric.kind is Kind.BINARY:
        positives, negatives = (targets == 1).nonzero().flatten()[:8], (targets == 0).nonzero().flatten()[:24]
        if not len(positives) or not len(negatives):
            return None
        rows = torch.cat([positives, negatives])
        place = 0
    else:
        rows = torch.arange(min(32, len(targets)))
        place = int(targets[0])
    outputs, targets = outputs[rows], targets[rows]
    spread = max(4.0, 1.2 * float(outputs.abs().max()))
    scores = torch.linspace(-spread, spread, NUM_SCORES)
    moved = outputs.expand(NUM_SCORES, *outputs.shape).clone()
    moved.flatten(1)[:, place] = scores  # of the first row
    labels = targets.expand(NUM_SCORES, -1).contiguous()
    with torch.no_grad():
        cost = metric.cost(moved, labels)
        return Shape(scores, cost, {name: loss.of_stack(moved, labels) for name, loss in losses.items()})


# ---- files


def as_json(insights: Insights) -> dict[str, Any]:
    def numbers(values: Tensor) -> list[float]:
        return [float(f"{value:.6g}") for value in values.tolist()]

    shape = insights.shape
    return {
        "helps": [asdict(each) for each in insights.helps],
        "alignments": {
            name: {**vars(each), "losses": numbers(each.losses), "costs": numbers(each.costs)}
            | {part: vars(getattr(each, part)) for part in ("spearman", "kendall")}
            for name, each in insights.alignments.items()
        },
        "shape": shape
        and {
            "scores": numbers(shape.scores),
            "cost": numbers(shape.cost),
            "losses": {name: numbers(values) for name, values in shape.losses.items()},
        },
    }


def read_insights(folder: str | Path) -> Insights:
    """Nothing where there is no file."""
    path = Path(folder, FILE_NAME)
    if not path.is_file():
        return Insights()
    content = json.loads(path.read_text(encoding="utf8"))
    alignments = {
        name: Alignment(
            **{
                **each,
                "spearman": Estimate(**each["spearman"]),
                "kendall": Estimate(**each["kendall"]),
                "losses": torch.tensor(each["losses"]),
                "costs": torch.tensor(each["costs"]),
            }
        )
        for name, each in content["alignments"].items()
    }
    shape = content["shape"] and Shape(
        torch.tensor(content["shape"]["scores"]),
        torch.tensor(content["shape"]["cost"]),
        {name: torch.tensor(values) for name, values in content["shape"]["losses"].items()},
    )
    helps = tuple(Help(each["what"], Paired(**each["gain"])) for each in content["helps"])
    return Insights(helps, alignments, shape)
