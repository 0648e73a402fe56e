"""Does this loss rank predictions as the metric does?

Take many sets of held-out predictions, compute the loss and the metric's cost on each, and correlate their ranks:
1 where every set with a better metric has a lower loss, negative where the loss points the wrong way.

>>> import torch
>>> from lossmith.baselines import find_loss
>>> from lossmith.metrics import METRICS
>>> generator = torch.Generator().manual_seed(0)
>>> targets = torch.randint(2, (200, 64), generator=generator)
>>> skill = torch.linspace(-1, 1, 200)[:, None]
>>> outputs = skill * (2 * targets - 1) + torch.randn(200, 64, generator=generator)
>>> alignment = measure_alignment(find_loss("ce", "binary"), METRICS["auc"], Predictions(outputs, targets))
>>> alignment.spearman.low > 0.95, alignment.sign
(True, 1)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lossmith.metrics.stacking import OverSets, sets_at_once
from lossmith.predictions import draw_sets
from lossmith.ranking import average_rank, kendall, pair_counts, spearman
from lossmith.vocabulary import IGNORE_INDEX, Kind, Loss, Metric, Predictions, StackLoss, check_predictions

MIN_SETS = 3


@dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Alignment:
    """How well the order of a loss agrees with the order of the metric's COST: 1 is perfect, negative the wrong way."""

    metric: str
    spearman: Estimate
    kendall: Estimate
    sign: int
    """+1 when the loss falls as the metric improves, -1 when it rises, 0 when neither."""
    discordant_share: float
    """Of the pairs of sets that differ in loss and in cost: the share that the loss puts in the wrong order."""
    num_sets: int
    num_sets_left_out: int
    """Sets on which the metric is not defined."""
    losses: Tensor
    """``[num_sets]``, for the scatter plot."""
    costs: Tensor
    """``[num_sets]``: the metric, lower is better."""


def measure_alignment(
    loss: Loss,
    metric: Metric,
    predictions: Predictions,
    *,
    num_sets: int | None = None,
    set_size: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    num_bootstrap: int = 1000,
) -> Alignment:
    """Rank correlation of the loss and the metric's cost over many sets, with bootstrap intervals over the sets.

    Uses the held-out sets alone where ``is_held_out`` marks any. With ``num_sets`` and ``set_size`` it draws that many
    sets of that size from them, else it uses them as they are.
    """
    if (num_sets is None) != (set_size is None):
        raise ValueError("num_sets and set_size belong together: both draw sets, neither uses the sets as they are.")
    if not 0 < confidence < 1 or num_bootstrap < 1:
        raise ValueError(f"confidence={confidence} and num_bootstrap={num_bootstrap} came; 0 to 1, and 1 or more work.")
    _check(loss, metric, predictions)
    generator = torch.Generator().manual_seed(seed)
    if predictions.is_held_out is not None and bool(predictions.is_held_out.any()):
        predictions = predictions[predictions.is_held_out]
    if num_sets is not None and set_size is not None:
        predictions = draw_sets(predictions, num_sets=num_sets, set_size=set_size, generator=generator)
    _check_leaves_out(loss, metric.kind, predictions)
    losses = losses_of_sets(loss, predictions).double().cpu()
    with torch.no_grad():
        costs = _in_parts(metric.cost, predictions).double().cpu()
    is_defined = ~costs.isnan()
    losses, costs = losses[is_defined], costs[is_defined]
    _check_pairs(metric, losses, costs, num_left_out=int((~is_defined).sum()))

    resampled = torch.randint(len(losses), (num_bootstrap, len(losses)), generator=generator)
    rho = _estimate(spearman, losses, costs, resampled, confidence)
    num_concordant, num_discordant, _, _ = pair_counts(losses, costs)
    return Alignment(
        metric=metric.name,
        spearman=rho,
        kendall=_estimate(kendall, losses, costs, resampled, confidence),
        sign=int(rho.value > 0) - int(rho.value < 0),
        discordant_share=float(num_discordant / (num_concordant + num_discordant)),
        num_sets=len(losses),
        num_sets_left_out=int((~is_defined).sum()),
        losses=losses,
        costs=costs,
    )


def _check(loss: Loss, metric: Metric, predictions: Predictions) -> None:
    if not isinstance(metric, Metric):
        raise ValueError(
            f"the metric came as {type(metric).__name__}; a Metric works: find_metric('f1') or wrap(your_function)."
        )
    if not callable(loss) or isinstance(loss, type):
        came = loss.__name__ if isinstance(loss, type) else repr(loss)
        raise ValueError(
            f"the loss came as {came}; a function of outputs and targets, or an instance of a loss, works."
        )
    if not isinstance(predictions, Predictions):
        raise ValueError(
            f"predictions came as {type(predictions).__name__}; Predictions(outputs, targets) of stacks works."
        )
    check = partial(check_predictions, metric.kind, predictions.outputs, predictions.targets, is_stack=True)
    try:
        check()
    except ValueError as error:
        if not metric.reads_probabilities:
            raise
        check(want_scores=False)  # anything else that is wrong
        # the metric may be made for probabilities; whether the loss is, only the caller knows
        warnings.warn(f"{error} {metric.name} takes them as they are; the loss is given the same.", stacklevel=3)
    kept = predictions.targets[predictions.targets != IGNORE_INDEX]
    if kept.numel() == 0:
        raise ValueError(f"every target is {IGNORE_INDEX}, which is left out: there is nothing to measure on.")
    if metric.kind in (Kind.BINARY, Kind.MULTICLASS, Kind.MULTILABEL, Kind.SEGMENTATION) and kept.min() == kept.max():
        # some metrics have a value there, and any loss that rises with the scores looks good
        raise ValueError(f"{metric.kind} predictions: every target is {kept[0]:g}; targets of several classes work.")


@torch.no_grad()
def _check_leaves_out(loss: Loss, kind: Kind, predictions: Predictions) -> None:
    """The metric does not look at predictions that are left out; does the loss? Many losses do not know -100."""
    is_left_out = predictions.targets == IGNORE_INDEX
    if kind in (Kind.HEATMAP, Kind.SPAN):
        is_left_out = is_left_out.any(-1)
    by_set = is_left_out.flatten(1)
    mixed = (by_set.any(1) & ~by_set.all(1)).nonzero()
    if len(mixed) == 0:
        return
    one = predictions[mixed[0]]
    is_left_out = is_left_out[mixed[0]]
    if kind is Kind.SEGMENTATION:
        is_left_out = is_left_out.unsqueeze(2)
    is_left_out = is_left_out.view(*is_left_out.shape, *[1] * (one.outputs.dim() - is_left_out.dim()))
    # the other end of the range, in which probabilities are still probabilities
    mirrored = one.outputs.min() + one.outputs.max() - one.outputs
    other = Predictions(mirrored.where(is_left_out, one.outputs), one.targets)
    # twice: some losses draw random numbers
    before, again, after = (losses_of_sets(loss, each) for each in (one, one, other))
    if torch.equal(before, again) and not torch.allclose(before, after, rtol=1e-4, equal_nan=True):
        raise ValueError(
            f"the loss changes with predictions whose target is {IGNORE_INDEX}, which the metric leaves out: "
            "leave them out of the loss as well, or measure on sets without them."
        )


@torch.no_grad()
def losses_of_sets(loss: Loss, predictions: Predictions) -> Tensor:
    """The loss of each set: ``[S]``."""
    if isinstance(loss, StackLoss):
        return _in_parts(loss.of_stack, predictions)
    name = getattr(loss, "__name__", type(loss).__name__)
    return OverSets(loss, name)(predictions.outputs, predictions.targets)


def _in_parts(of_stack: Callable[[Tensor, Tensor], Tensor], predictions: Predictions) -> Tensor:
    num_together = sets_at_once(predictions.outputs)
    pairs = zip(predictions.outputs.split(num_together), predictions.targets.split(num_together))
    return torch.cat([of_stack(outputs, targets) for outputs, targets in pairs])


def _check_pairs(metric: Metric, losses: Tensor, costs: Tensor, *, num_left_out: int) -> None:
    if len(losses) < MIN_SETS:
        raise ValueError(
            f"{metric.name} is defined on {len(losses)} of {len(losses) + num_left_out} sets; a rank correlation takes "
            f"{MIN_SETS} or more: num_sets and set_size draw more sets from the stored ones."
        )
    if not bool(losses.isfinite().all()):
        raise ValueError(f"the loss is NaN or infinite on {int((~losses.isfinite()).sum())} of {len(losses)} sets.")
    if bool((costs == costs[0]).all()):
        raise ValueError(f"{metric.name} is the same on all {len(costs)} sets: there is no order to agree with.")


def _estimate(
    correlation: Callable[[Tensor, Tensor], Tensor], losses: Tensor, costs: Tensor, resampled: Tensor, confidence: float
) -> Estimate:
    """Percentile bootstrap; ``resampled [num_bootstrap, num_sets]`` holds the sets of each resample."""
    # only the order matters, and integers are faster to sort; so are portions that fit into the processor's cache
    loss_ranks, cost_ranks = ((2 * average_rank(values)).int() for values in (losses, costs))
    portions = resampled.split(max(1, 2**17 // len(losses)))
    values = torch.cat([correlation(loss_ranks[portion], cost_ranks[portion]) for portion in portions])
    tail = (1 - confidence) / 2
    # a resample of equal sets has no correlation
    low, high = values.nanquantile(torch.tensor([tail, 1 - tail], dtype=values.dtype)).tolist()
    return Estimate(float(correlation(losses, costs)), low, high)


def plot_alignment(alignments: Mapping[str, Alignment], path: str | os.PathLike[str]) -> None:
    """One scatter plot per loss, three in a row: the loss of each set against its cost. The suffix picks the format."""
    if not alignments:
        raise ValueError("there is no alignment to plot.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots take matplotlib, which comes with the extra: pip install 'lossmith[lab]'.") from None
    num_columns = min(3, len(alignments))
    num_rows = -(-len(alignments) // num_columns)
    figure = Figure(figsize=(3.6 * num_columns, 3.3 * num_rows), layout="constrained")
    grid = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axes in grid[len(alignments) :]:
        axes.set_visible(False)
    for axes, (name, alignment) in zip(grid, alignments.items()):
        axes.scatter(alignment.costs, alignment.losses, s=6, alpha=0.4, linewidths=0)
        axes.set_title(f"{name}: Spearman {alignment.spearman.value:.3f}")
        axes.set_xlabel(f"cost of {alignment.metric} (lower is better)")
        axes.set_ylabel("loss")
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise ValueError(f"the plot cannot be written to {path}: {error}") from None
