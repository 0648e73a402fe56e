"""Every loss that is compared, in one table: what it is, how it is made for a stack of runs, how a user writes it.

To add one: a :class:`LossRecipe` and a line in :data:`RECIPES`.

>>> print(snippet(RECIPES["traced"], "f1"))
import lossmith
loss = lossmith.trace(lossmith.metrics.METRICS["f1"], link=0.5)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from torch import nn

from lossmith.baselines import POSITIVE_WEIGHTS, cost_sensitive, find_loss
from lossmith.kinds import Kind
from lossmith.lab.comparing.bilevel_stack import StackedBilevel, Start
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
    TracedApOfPairs,
    TracedCounts,
    TracedRanking,
    best_thresholds,
    equal_error_thresholds,
    logistic,
    misordered,
    on_stack,
)
from lossmith.methods.reloss import learn
from lossmith.methods.uniloss import UniLoss
from lossmith.metrics import METRICS
from lossmith.metrics.counts import OfCounts
from lossmith.tracing import trace
from lossmith.vocabulary import Loss, Metric, StackLoss
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
    """``make(making, variant)`` gives the loss of a stack; ``lines`` is how a user writes it, ``{metric}`` filled."""

    name: str
    what: str
    make: Make
    lines: str
    kinds: tuple[Kind, ...] = (Kind.BINARY,)
    metrics: tuple[str, ...] = ()
    """Those that it is made for: there it is tried without being asked for."""
    variants: tuple[str, ...] = ("",)
    """Settings of its own; each is given every learning rate, and validation rows choose."""
    is_slow: bool = False
    """Its runs are called one by one."""

    def fits(self, metric: Metric) -> bool:
        return metric.kind in self.kinds


def snippet(recipe: LossRecipe, metric: str) -> str:
    """The few lines of Python that make this loss for that metric."""
    kind = METRICS[metric].kind if metric in METRICS else recipe.kinds[0]
    return recipe.lines.format(metric=metric, kind=kind)


BOTH = (Kind.BINARY, Kind.MULTICLASS)
ALL_OF_TWO_CLASSES = (
    "f1",
    "mcc",
    "jaccard",
    "binary_accuracy",
    "binary_error",
    "balanced_accuracy",
    "auc",
    "ap",
    "eer",
)
FOR_ANY_METRIC = ("traced", "ce+traced")
THRESHOLDED = ("f1", "mcc", "jaccard", "binary_accuracy", "binary_error", "balanced_accuracy")


def _baseline(name: str, what: str, *, kinds: tuple[Kind, ...] = BOTH, metrics: tuple[str, ...] = ()) -> LossRecipe:
    def make(making: Making, variant: str) -> StackLoss | OfStack:
        loss = find_loss(name, making.kind)
        if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
            return EachItsOwn(loss, making.num_runs)
        return on_stack(loss)

    return LossRecipe(name, what, make, _find(name), kinds, metrics)


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


def _learned(making: Making, variant: str) -> StackLoss | OfStack:
    return on_stack(_learn(making.metric))


@lru_cache(maxsize=4)
def _learn(metric: Metric) -> Loss:
    return learn(metric, progress=False)


def _uniloss(making: Making, variant: str) -> OfStack:
    return on_stack(UniLoss(making.metric))


def _mix(making: Making, variant: str, *, other: Make, weight: float = 1.0) -> StackLoss:
    return Mix(_ce(making), _call(other(making, "")), weight=weight)


def _warm(making: Making, variant: str, *, other: Make) -> StackLoss:
    return Then(_ce(making), _call(other(making, "")), num_steps=making.num_steps // 3)


def _normalised(making: Making, variant: str, *, other: Make) -> StackLoss:
    return Normalised(_call(other(making, "")))


def _smooth_ap(making: Making, variant: str, *, is_standardised: bool = False) -> StackLoss:
    return SmoothAp(is_standardised=is_standardised)


def _bilevel(making: Making, variant: str, *, start: Start, num_first_steps: int | None = None) -> StackLoss:
    return StackedBilevel(making.metric, start, making.num_runs, num_first_steps=num_first_steps)


def _pairwise(making: Making, variant: str) -> StackLoss:
    return Pairs(logistic)


def _pairs(making: Making, variant: str) -> StackLoss:
    return Pairs(misordered)


def _ap_of_pairs(making: Making, variant: str) -> StackLoss:
    return TracedApOfPairs()


_traced_ap = partial(_of_traced, name="ap")


def _find(name: str) -> str:
    return f'from lossmith.baselines import find_loss\nloss = find_loss("{name}", "{{kind}}")'


def _combined(learned: str, *, weight: float = 1.0) -> str:
    weighted = "" if weight == 1 else f", weight={weight}"
    return (
        "import lossmith\nfrom lossmith.baselines import find_loss\n"
        f'loss = lossmith.combine(find_loss("ce", "{{kind}}"), {learned}{weighted})'
    )


TRACED = 'lossmith.trace(lossmith.metrics.METRICS["{metric}"], link=0.5)'
TRACED_AP = 'lossmith.trace(lossmith.metrics.METRICS["ap"], link=0.5)'
BILEVEL_STEPS = (
    "for step in bilevel_steps(\n"
    "    model, surrogate, metric, batches, optimizer, surrogate_optimizer, generator=generator\n"
    "):\n"
    "    ..."
)


def _bilevel_lines(rest: str) -> str:
    return (
        "import torch, lossmith\n"
        "from lossmith.methods.bilevel import BilevelSurrogate, bilevel_steps, universal_steps\n"
        'metric, generator = lossmith.metrics.METRICS["{metric}"], torch.Generator()\n'
        'surrogate = BilevelSurrogate("binary", generator=generator)\n'
        "surrogate_optimizer = torch.optim.Adam(surrogate.parameters(), lr=1e-3)\n" + rest
    )


AUC_OF_PAIRS = (
    "import lossmith\n\ndef auc_of_pairs(outputs, targets):\n"
    "    return (outputs[targets == 1].unsqueeze(-1) > outputs[targets == 0]).float().mean()\n\n"
)

AT_THRESHOLD = (
    "import lossmith\nfrom lossmith.metrics import tune_threshold\n"
    'metric = lossmith.metrics.METRICS["{name}"]\ntraced = lossmith.trace(metric, link=0.5)\n'
    "# of each batch: follow the best threshold, and take the decisions there\n"
    "threshold += 0.1 * (tune_threshold(metric, outputs, targets) - threshold)\n"
    "loss = traced(outputs - threshold, targets)"
)

_LIST = (
    _baseline(REFERENCE, "Cross-entropy, the loss that everything is measured against."),
    LossRecipe(
        CONTROL,
        "Cross-entropy once more, from other first weights: a difference where there is none.",
        lambda making, variant: _ce(making),
        _find("ce"),
        BOTH,
    ),
    _baseline("balanced_ce", "Cross-entropy in which every class has the same weight.", metrics=ALL_OF_TWO_CLASSES),
    LossRecipe(
        "cost_sensitive",
        "Cross-entropy with a weight of positives that the validation rows choose of six.",
        lambda making, variant: on_stack(cost_sensitive(making.kind, positive_weight=float(variant))),
        "from lossmith.baselines import cost_sensitive\n"
        "# of 0.3, 0.9, 2.7, 8.1, 24.3 and 72.9, choose on validation rows\n"
        'loss = cost_sensitive("binary", positive_weight=2.7)',
        variants=tuple(f"{weight:g}" for weight in POSITIVE_WEIGHTS),
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
    LossRecipe(
        "pairwise", "Every positive against every negative, logistic.", _pairwise, _find("pairwise"), metrics=("auc",)
    ),
    _baseline("rank", "What is misclassified by rank: the right class behind others.", kinds=(Kind.MULTICLASS,)),
    _baseline("precision_at_recall", "Precision at a recall, as a Lagrangian.", kinds=(Kind.BINARY,)),
    _baseline("recall_at_precision", "Recall at a precision, as a Lagrangian.", kinds=(Kind.BINARY,)),
    _baseline("aucpr", "Area under the precision-recall curve, as a Lagrangian.", kinds=(Kind.BINARY,)),
    LossRecipe("smooth_ap", "Average precision with soft ranks.", _smooth_ap, _find("smooth_ap"), metrics=("ap",)),
    LossRecipe(
        "shipped",
        "The learned loss of the metric that comes with lossmith.",
        _shipped,
        'import lossmith\nloss = lossmith.load("{metric}")',
        BOTH,
        # that of AUC takes half a second for a batch of twenty runs
        metrics=tuple(name for name in shipped() if name != "auc"),
    ),
    LossRecipe(
        "learned",
        "A loss that is learned of the metric in seconds, on random sets.",
        _learned,
        'import lossmith\nloss = lossmith.learn("{metric}", progress=False)',
    ),
    LossRecipe(
        "uniloss",
        "The metric between its values at anchors (UniLoss).",
        _uniloss,
        'import lossmith\nloss = lossmith.UniLoss("{metric}")',
        BOTH,
        is_slow=True,
    ),
    LossRecipe(
        "traced",
        "The metric's own decisions, link 0.5.",
        _of_traced,
        f"import lossmith\nloss = {TRACED}",
        BOTH,
        metrics=(*THRESHOLDED, "ap", "accuracy"),
    ),
    LossRecipe(
        "traced_1",
        "The metric's own decisions, link 1.",
        partial(_of_traced, link=1.0),
        f"import lossmith\nloss = {TRACED}".replace("0.5", "1"),
        BOTH,
        metrics=("auc", "ap"),
    ),
    LossRecipe(
        "traced_link0",
        "The metric's own decisions, link 0: the logarithm, which never gives a decision up.",
        partial(_of_traced, link=0.0),
        f"import lossmith\nloss = {TRACED}".replace("0.5", "0"),
        BOTH,
    ),
    LossRecipe(
        "traced_mcc",
        "The decisions of Matthews' correlation, link 0.5, whatever the metric.",
        partial(_of_traced, name="mcc"),
        f"import lossmith\nloss = {TRACED}".format(metric="mcc"),
        metrics=(*THRESHOLDED, "eer"),
    ),
    LossRecipe(
        "traced_tracked",
        "The metric's own decisions at its best threshold, which is followed from batch to batch, link 0.5.",
        _tracked,
        AT_THRESHOLD.replace("{name}", "{metric}"),
        metrics=THRESHOLDED,
    ),
    LossRecipe(
        "traced_at_eer",
        "The decisions of balanced accuracy where both rates of error are equal, link 0.5.",
        _balanced_at_eer,
        AT_THRESHOLD.replace("{name}", "balanced_accuracy"),
        metrics=("eer",),
    ),
    LossRecipe(
        "ce+traced",
        "Cross-entropy and the traced metric at equal gradient norm.",
        partial(_mix, other=_of_traced),
        _combined(TRACED),
        BOTH,
        metrics=(*THRESHOLDED, "ap", "accuracy"),
    ),
    LossRecipe(
        "ce+traced/4",
        "Cross-entropy and the traced metric at a quarter of its gradient norm.",
        partial(_mix, other=_of_traced, weight=0.25),
        _combined(TRACED, weight=0.25),
        BOTH,
        metrics=THRESHOLDED,
    ),
    LossRecipe(
        "ce+traced_1",
        "Cross-entropy and the traced metric, link 1, at equal gradient norm.",
        partial(_mix, other=partial(_of_traced, link=1.0)),
        _combined(TRACED.replace("0.5", "1")),
        BOTH,
    ),
    LossRecipe(
        "ce+mcc/4",
        "Cross-entropy and the decisions of Matthews' correlation at a quarter of its gradient norm.",
        partial(_mix, other=partial(_of_traced, name="mcc"), weight=0.25),
        _combined(TRACED.replace("{metric}", "mcc"), weight=0.25),
    ),
    LossRecipe(
        "ce+ap",
        "Cross-entropy and traced average precision at equal gradient norm.",
        partial(_mix, other=_traced_ap),
        _combined(TRACED_AP),
        metrics=("auc", "eer"),
    ),
    LossRecipe(
        "ce+smooth_ap",
        "Cross-entropy and average precision with soft ranks at equal gradient norm.",
        partial(_mix, other=_smooth_ap),
        _combined('find_loss("smooth_ap", "{kind}")'),
        metrics=("ap",),
    ),
    LossRecipe(
        "ce_then_traced",
        "Cross-entropy for a third of the steps, then the traced metric at the same gradient norm.",
        partial(_warm, other=_of_traced),
        "# for the first third of the steps cross-entropy, then\nimport lossmith\nloss = " + TRACED,
        BOTH,
    ),
    LossRecipe(
        "normalised_traced",
        "The traced metric with gradients of one length in every batch, and a penalty on large scores.",
        partial(_normalised, other=_of_traced),
        f"import lossmith\nloss = lossmith.normalise({TRACED})",
    ),
    LossRecipe(
        "normalised_mcc",
        "The decisions of Matthews' correlation with gradients of one length, and a penalty on large scores.",
        partial(_normalised, other=partial(_of_traced, name="mcc")),
        f"import lossmith\nloss = lossmith.normalise({TRACED})".replace("{metric}", "mcc"),
    ),
    LossRecipe(
        "normalised_pairs",
        "AUC as the share of pairs in order, with gradients of one length, and a penalty on large scores.",
        partial(_normalised, other=_pairs),
        AUC_OF_PAIRS + "loss = lossmith.normalise(lossmith.trace(auc_of_pairs, link=1))",
        metrics=("auc",),
    ),
    LossRecipe(
        "normalised_ce",
        "Cross-entropy with gradients of one length in every batch, and a penalty on large scores.",
        partial(_normalised, other=lambda making, variant: _ce(making)),
        "import lossmith\nfrom lossmith.baselines import find_loss\n"
        'loss = lossmith.normalise(find_loss("ce", "{kind}"))',
        BOTH,
    ),
    LossRecipe(
        "sl_u",
        "A network that learned the metric on random sets (SL-U).",
        partial(_bilevel, start="universal"),
        _bilevel_lines(
            "for _ in universal_steps(surrogate, metric, surrogate_optimizer, generator=generator): pass\n"
            "loss = surrogate"
        ),
    ),
    LossRecipe(
        "sl_u_paper",
        "A network that learned the metric on random sets of the paper's, all near chance (SL-U).",
        partial(_bilevel, start="universal_paper"),
        _bilevel_lines(
            "for _ in universal_steps(surrogate, metric, surrogate_optimizer, generator=generator, is_paper=True):\n"
            "    pass\nloss = surrogate"
        ),
    ),
    LossRecipe(
        "sl_u_raw",
        "The same with that network's own gradient, as the paper has it.",
        partial(_bilevel, start="universal_raw"),
        _bilevel_lines(
            "for _ in universal_steps(surrogate, metric, surrogate_optimizer, generator=generator, is_paper=True):\n"
            "    pass\nloss = surrogate"
        ).replace(
            'BilevelSurrogate("binary", ',
            'BilevelSurrogate(\n    "binary", is_normalised=False, is_monotone=False, score_penalty=0.0, ',
        ),
    ),
    LossRecipe(
        "sl_s",
        "A network that learns the metric while it trains the model, from scratch (SL-S).",
        partial(_bilevel, start="scratch"),
        _bilevel_lines(BILEVEL_STEPS),
    ),
    LossRecipe(
        "sl_r",
        "A network that learned the metric on random sets, and goes on while it trains the model (SL-R).",
        partial(_bilevel, start="refined"),
        _bilevel_lines(
            "for _ in universal_steps(surrogate, metric, surrogate_optimizer, generator=generator): pass\n"
            + BILEVEL_STEPS
        ),
    ),
    LossRecipe(
        "sl_s_at_once",
        "SL-S without steps of its own before the model's first, as the paper has it.",
        partial(_bilevel, start="scratch", num_first_steps=0),
        _bilevel_lines(BILEVEL_STEPS.replace("generator=generator", "generator=generator, num_first_steps=0")),
    ),
    LossRecipe(
        "sl_r_at_once",
        "SL-R without steps of its own before the model's first, as the paper has it.",
        partial(_bilevel, start="refined", num_first_steps=0),
        _bilevel_lines(
            "for _ in universal_steps(surrogate, metric, surrogate_optimizer, generator=generator): pass\n"
            + BILEVEL_STEPS.replace("generator=generator", "generator=generator, num_first_steps=0")
        ),
    ),
    LossRecipe(
        "traced_pairs",
        "AUC as the share of pairs in order, traced with link 1: every pair is a decision.",
        _pairs,
        AUC_OF_PAIRS + "loss = lossmith.trace(auc_of_pairs, link=1)",
        metrics=("auc",),
    ),
    LossRecipe(
        "traced_ap_pairs",
        "Average precision as comparisons of each positive with all scores, traced with link 0.5.",
        _ap_of_pairs,
        "import lossmith\n\ndef ap_of_pairs(outputs, targets):\n"
        "    above = (outputs > outputs[targets == 1].unsqueeze(-1)).float()  # one row for each positive\n"
        "    return (((above * (targets == 1)).sum(-1) + 1) / (above.sum(-1) + 1)).mean()\n\n"
        "loss = lossmith.trace(ap_of_pairs, link=0.5)",
        metrics=("ap",),
    ),
    LossRecipe(
        "smooth_ap_scaled",
        "Average precision with soft ranks of scores in units of their deviation.",
        partial(_smooth_ap, is_standardised=True),
        "from lossmith.baselines import smooth_ap\nfrom lossmith.kinds import Kind\n"
        "loss_of_scaled = smooth_ap(Kind.BINARY)\nloss = loss_of_scaled(outputs / outputs.std(), targets)",
    ),
)

RECIPES: dict[str, LossRecipe] = {recipe.name: recipe for recipe in _LIST}


def default_losses(metric: Metric) -> tuple[str, ...]:
    """What is tried where nobody says: the reference, its control, cross-entropy with weights, which is the first thing
    that people try by hand, and all that is made for the metric.
    """
    made_for = [
        recipe.name
        for recipe in RECIPES.values()
        if metric.name in recipe.metrics and recipe.fits(metric) and not recipe.is_slow
    ]
    return tuple(dict.fromkeys((REFERENCE, CONTROL, "balanced_ce", *(made_for or FOR_ANY_METRIC))))
