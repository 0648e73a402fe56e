"""Every loss that is compared, in one table: what it is, how it is made for a stack of runs, how a user writes it.

To add one: a :class:`LossRecipe` and a line in :data:`RECIPES`.

>>> print(snippet(RECIPES["traced"], "f1"))
import lossmith
loss = lossmith.trace(lossmith.metrics.METRICS["f1"], link=0.5)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from lossmith.baselines import find_loss
from lossmith.kinds import Kind
from lossmith.lab.comparing.records import CONTROL, REFERENCE
from lossmith.lab.comparing.stack_losses import (
    AtThreshold,
    EachItsOwn,
    Mix,
    Normalised,
    OfStack,
    Pairs,
    SmoothAp,
    Then,
    TracedCounts,
    TracedRanking,
    best_thresholds,
    equal_error_thresholds,
    misordered,
    on_stack,
)
from lossmith.metrics import METRICS
from lossmith.metrics.counts import OfCounts
from lossmith.tracing import trace
from lossmith.vocabulary import Metric, StackLoss
from lossmith.weights import load, shipped


@dataclass(frozen=True)
class Making:
    """What a recipe may ask about the runs that it is made for."""

    metric: Metric
    kind: Kind
    num_runs: int
    num_steps: int


Make = Callable[[Making, str], StackLoss | OfStack]


@dataclass(frozen=True)
class LossRecipe:
    """``make(making, variant)`` gives the loss of a stack; ``lines`` is how a user writes it, ``{metric}`` filled in."""

    name: str
    what: str
    make: Make
    lines: str
    kinds: tuple[Kind, ...] = (Kind.BINARY,)
    metrics: tuple[str, ...] = ()
    """Metrics that it is made for: there it is tried without being asked for. None: it is tried for those of
    ``default_losses``."""
    variants: tuple[str, ...] = ("",)
    """Settings of its own; each is given every learning rate, and validation rows choose."""
    is_slow: bool = False
    """Its runs are called one by one."""

    def fits(self, metric: Metric) -> bool:
        return metric.kind in self.kinds


def snippet(recipe: LossRecipe, metric: str) -> str:
    """The few lines of Python that make this loss for that metric."""
    return recipe.lines.format(metric=metric)


BOTH = (Kind.BINARY, Kind.MULTICLASS)
THRESHOLDED = ("f1", "mcc", "jaccard", "binary_accuracy", "binary_error", "balanced_accuracy")
TRACE = 'import lossmith\nloss = lossmith.trace(lossmith.metrics.METRICS["{name}"], link={link})'


def _baseline(name: str, what: str, *, kinds: tuple[Kind, ...] = BOTH, metrics: tuple[str, ...] = ()) -> LossRecipe:
    def make(making: Making, variant: str) -> StackLoss | OfStack:
        loss = find_loss(name, making.kind)
        has_weights = isinstance(loss, nn.Module) and any(True for _ in loss.parameters())
        return EachItsOwn(loss, making.num_runs) if has_weights else on_stack(loss)

    lines = 'from lossmith.baselines import find_loss\nloss = find_loss("{name}", "{kind}")'
    kind = "binary" if Kind.BINARY in kinds else "multiclass"
    return LossRecipe(name, what, make, lines.format(name=name, kind=kind), kinds, metrics)


def _traced(metric: Metric, *, link: float = 0.5) -> StackLoss | OfStack:
    """The same loss as :func:`lossmith.trace` makes, in one call for the whole stack where that is written out."""
    if metric.kind is Kind.BINARY and isinstance(metric.value, OfCounts) and metric.value.threshold == 0:
        return TracedCounts(metric.value.formula, link, metric.higher_is_better)
    if metric in (METRICS["auc"], METRICS["ap"]):
        return TracedRanking(metric.name, link)
    return on_stack(trace(metric, link=link))


def _of_traced(making: Making, variant: str, *, name: str | None = None, link: float = 0.5) -> StackLoss | OfStack:
    return _traced(making.metric if name is None else METRICS[name], link=link)


def _tracked(making: Making, variant: str, *, name: str | None = None) -> StackLoss:
    metric = making.metric if name is None else METRICS[name]
    assert isinstance(metric.value, OfCounts)
    find = partial(best_thresholds, metric.value.formula, higher_is_better=metric.higher_is_better)
    return AtThreshold(TracedCounts(metric.value.formula, 0.5, metric.higher_is_better), find)


def _balanced_at_eer(making: Making, variant: str) -> StackLoss:
    traced = _traced(METRICS["balanced_accuracy"])
    assert isinstance(traced, StackLoss)
    return AtThreshold(traced, equal_error_thresholds)


def _call(loss: StackLoss | OfStack) -> OfStack:
    return loss.of_stack if isinstance(loss, StackLoss) else loss


def _ce(making: Making) -> OfStack:
    return on_stack(find_loss("ce", making.kind))


def _shipped(making: Making, variant: str) -> StackLoss | OfStack:
    if making.metric.name not in shipped():
        raise ValueError(f"no learned loss of {making.metric.name} comes with lossmith; {', '.join(shipped())} do.")
    return on_stack(load(making.metric.name))


def _mix(making: Making, variant: str, *, other: Make, weight: float = 1.0) -> StackLoss:
    return Mix(_ce(making), _call(other(making, "")), weight=weight)


def _warm(making: Making, variant: str, *, other: Make) -> StackLoss:
    return Then(_ce(making), _call(other(making, "")), num_steps=making.num_steps // 3)


def _normalised(making: Making, variant: str, *, other: Make) -> StackLoss:
    return Normalised(_call(other(making, "")))


def _smooth_ap(making: Making, variant: str, *, is_standardised: bool = False) -> StackLoss:
    return SmoothAp(is_standardised=is_standardised)


def _pairs(making: Making, variant: str) -> StackLoss:
    return Pairs(misordered)


_traced_ap = partial(_of_traced, name="ap")

_LIST = (
    _baseline(REFERENCE, "Cross-entropy, the loss that everything is measured against."),
    LossRecipe(
        CONTROL,
        "Cross-entropy once more, from other first weights: a difference where there is none.",
        lambda making, variant: _ce(making),
        'from lossmith.baselines import find_loss\nloss = find_loss("ce", "binary")',
        BOTH,
    ),
    _baseline("focal", "Cross-entropy in which what is already right hardly counts."),
    _baseline("label_smoothing", "Cross-entropy with a tenth of each label moved to all classes."),
    _baseline("mse", "Squared error of probabilities."),
    _baseline("hinge", "Zero once the right answer leads by 1."),
    _baseline("soft_f1", "F1 of probabilities.", metrics=("f1", "mcc", "jaccard", "f1_macro")),
    _baseline("soft_mcc", "Matthews' correlation of probabilities.", metrics=("f1", "mcc", "jaccard")),
    _baseline("soft_jaccard", "Intersection over union of probabilities.", metrics=("jaccard",)),
    _baseline("soft_balanced_accuracy", "Balanced accuracy of probabilities.", metrics=("balanced_accuracy", "eer")),
    _baseline("lovasz", "The convex extension of the Jaccard loss.", metrics=("jaccard",)),
    _baseline("pairwise", "Every positive against every negative, logistic.", metrics=("auc",)),
    _baseline("precision_at_recall", "Precision at a recall, as a Lagrangian.", kinds=(Kind.BINARY,)),
    _baseline("recall_at_precision", "Recall at a precision, as a Lagrangian.", kinds=(Kind.BINARY,)),
    _baseline("aucpr", "Area under the precision-recall curve, as a Lagrangian.", kinds=(Kind.BINARY,)),
    LossRecipe(
        "smooth_ap",
        "Average precision with soft ranks.",
        _smooth_ap,
        'from lossmith.baselines import find_loss\nloss = find_loss("smooth_ap", "binary")',
        metrics=("ap",),
    ),
    LossRecipe(
        "shipped",
        "The learned loss of the metric that comes with lossmith.",
        _shipped,
        'import lossmith\nloss = lossmith.load("{metric}")',
        BOTH,
        metrics=tuple(shipped()),
    ),
    LossRecipe(
        "traced",
        "The metric's own decisions, link 0.5.",
        _of_traced,
        'import lossmith\nloss = lossmith.trace(lossmith.metrics.METRICS["{metric}"], link=0.5)',
        BOTH,
        metrics=(*THRESHOLDED, "ap", "accuracy"),
    ),
    LossRecipe(
        "traced_mcc",
        "The decisions of Matthews' correlation, link 0.5, whatever the metric.",
        partial(_of_traced, name="mcc"),
        TRACE.format(name="mcc", link=0.5),
        metrics=("f1", "mcc", "jaccard", "binary_accuracy", "binary_error", "eer"),
    ),
    LossRecipe(
        "ce+traced",
        "Cross-entropy and the traced metric at equal gradient norm.",
        partial(_mix, other=_of_traced),
        "import lossmith\nfrom lossmith.baselines import find_loss\n"
        'traced = lossmith.trace(lossmith.metrics.METRICS["{metric}"], link=0.5)\n'
        'loss = lossmith.combine(find_loss("ce", "binary"), traced)',
        BOTH,
        metrics=(*THRESHOLDED, "ap", "accuracy"),
    ),
)

RECIPES: dict[str, LossRecipe] = {recipe.name: recipe for recipe in _LIST}


def default_losses(metric: Metric) -> tuple[str, ...]:
    """What is tried where nobody says: the reference, its control, and all that is made for the metric."""
    made_for = [
        recipe.name
        for recipe in RECIPES.values()
        if metric.name in recipe.metrics and recipe.fits(metric) and not recipe.is_slow
    ]
    return (REFERENCE, CONTROL, *(made_for or ["traced"]))
