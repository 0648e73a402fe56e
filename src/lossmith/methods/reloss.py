"""ReLoss: a loss that is learned once, to rank predictions as the metric does (Huang et al., ICLR 2022).

Algorithm 1: draw sets from stored checkpoints (G_M) and from a random generator (G_R), compute the loss and the metric
of each, and maximise their rank correlation; the values may differ, only the order counts. What the released code
showed to go wrong is done differently here, each with its reason beside it: real targets beside random ones, soft
ranks that do not depend on the scale of the losses and start soft, surrogates that cannot rise (or a signed penalty),
choice on held-out real sets and a report on others, and a check of the sign before anybody gets the loss.

>>> import torch
>>> from lossmith.predictions import random_predictions
>>> stored = random_predictions("multiclass", num_sets=64, set_size=200, generator=torch.Generator().manual_seed(0))
>>> loss = learn("accuracy", stored, num_steps=60, progress=False)
>>> outputs = torch.randn(32, 10, requires_grad=True)
>>> loss(outputs, torch.randint(10, (32,))).backward()
>>> loss.report.alignment.spearman.low > 0.9
True
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from lossmith.alignment import Alignment, losses_of_sets, measure_alignment
from lossmith.baselines import find_loss
from lossmith.learning import SETS_PER_SOURCE, Objective, rank_objective, surrogate_steps
from lossmith.metrics import find_metric
from lossmith.predictions import draw_sets, ragged, random_predictions
from lossmith.ranking import spearman
from lossmith.surrogates import CountsNetwork, PairLoss, PointwiseSurrogate, RankLoss, Surrogate, margin_loss
from lossmith.surrogates.counts import COUNTED_KINDS
from lossmith.surrogates.pairs import ORDERED_KINDS
from lossmith.surrogates.rows import ROW_KINDS
from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, LAYOUTS, Kind, Metric, Predictions, check_predictions

# A loss that rises on more than this share of rows pushes models the wrong way, however well it ranks.
MAX_SHARE_RISING = 0.01


@dataclass(frozen=True)
class Report:
    """What is known of a learned loss, measured on held-out sets that chose nothing."""

    alignment: Alignment
    base_alignment: Alignment | None
    """Of cross-entropy on the same sets."""
    share_rising: float | None
    """Rows on which the loss rises as the true score does; None where a row has no true score."""


@final
class ReLoss(nn.Module):
    """A learned loss, in place of any loss of torch: ``(outputs, targets) -> scalar``, lower is better.

    Its weights are fixed. ``scale`` brings its gradient to that of cross-entropy, so that learning rates carry over.
    """

    def __init__(self, surrogate: Surrogate, metric: str, *, scale: float = 1.0, report: Report | None = None) -> None:
        super().__init__()
        self.surrogate = surrogate.requires_grad_(False)
        self.metric = metric
        self.scale = scale
        self.report = report
        self._has_checked = False

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        kind = self.surrogate.kind
        if not self._has_checked:
            # once, at the door: reading the values makes the host wait
            check_predictions(kind, outputs, targets)
            self._has_checked = True
        elif outputs.dim() != len(LAYOUTS[kind].outputs) or outputs.shape[0] != targets.shape[0]:
            raise ValueError(
                f"this loss of {self.metric} takes {kind} predictions, {LAYOUTS[kind]}; outputs "
                f"{tuple(outputs.shape)} and targets {tuple(targets.shape)} came."
            )
        loss: Tensor = self.surrogate(outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)
        return loss * self.scale

    def extra_repr(self) -> str:
        return f"metric={self.metric}, kind={self.surrogate.kind}, scale={self.scale:.3g}"


def learn(
    metric: Metric | str,
    predictions: Predictions | None = None,
    *,
    surrogate: Surrogate | None = None,
    num_steps: int = 400,
    seed: int = 0,
    progress: bool = True,
    objective: Objective | None = None,
    learning_rate: float = 0.01,
    gradient_penalty: float | None = None,
    within: float = 0.5,
    num_real_sets: int = 2048,
    num_random_sets: int = 2048,
    set_size: int = 128,
) -> ReLoss:
    """Learn a loss for ``metric`` from stored ``predictions``, in seconds.

    ``predictions`` are stored checkpoints, early and late: one set each, of many rows, the same rows in each or not.
    Sets that ``is_held_out`` marks choose and judge; without a mark the last third of the rows does. Without
    predictions the loss learns from random sets alone. Without a ``surrogate`` every one that suits the kind is
    learned, and the held-out sets choose. ``gradient_penalty`` is the paper's lambda (10 there); by default it is 0 for
    surrogates that have their sign by construction and 1 for free networks.
    """
    metric = find_metric(metric) if isinstance(metric, str) else metric
    generator = torch.Generator().manual_seed(seed)
    stored = _split(metric, predictions, generator)
    stacks = [
        *_real_stacks(stored.learning, num_sets=num_real_sets, set_size=set_size, generator=generator),
        *_random_stacks(metric.kind, stored, num_sets=num_random_sets, set_size=set_size, generator=generator),
    ]
    choosing = _judging_sets(metric.kind, stored.choosing, set_size, generator)
    base = _base_loss(metric.kind)

    candidates = [surrogate] if surrogate is not None else _candidates(metric, seed)
    bar = _progress_bar(metric, base, choosing, num_steps * len(candidates)) if progress else _no_bar
    learned: list[tuple[float, Surrogate]] = []
    for candidate in candidates:
        penalty = _default_penalty(candidate) if gradient_penalty is None else gradient_penalty
        optimizer = torch.optim.Adam(candidate.parameters(), lr=learning_rate, weight_decay=1e-4)  # paper, A.2
        steps = surrogate_steps(
            candidate,
            metric,
            stacks,
            objective or rank_objective(),
            optimizer,
            num_steps=num_steps,
            generator=generator,
            gradient_penalty=penalty,
            within=within,
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps),
        )
        learned.append(_best_state(candidate, metric, choosing, bar(steps), num_steps))
    best = max(range(len(learned)), key=lambda index: learned[index][0])
    chosen = learned[best][1]
    judging = _judging_sets(metric.kind, stored.judging, set_size, generator)
    return ReLoss(
        chosen,
        metric.name,
        scale=_scale_to_base(chosen, base, judging),
        report=_checked_report(chosen, metric, base, judging, seed),
    )


# ---- sets to learn from, to choose by, and to judge by


@dataclass(frozen=True)
class _Stored:
    learning: Predictions | None
    choosing: Predictions | None
    judging: Predictions | None
    num_classes: int


def _split(metric: Metric, predictions: Predictions | None, generator: Generator) -> _Stored:
    if predictions is None:
        return _Stored(None, None, None, num_classes=10)
    check_predictions(
        metric.kind,
        predictions.outputs,
        predictions.targets,
        is_stack=True,
        want_scores=not metric.reads_probabilities,
    )
    class_dim = CLASS_DIM.get(metric.kind)
    num_classes = predictions.outputs.shape[class_dim] if class_dim is not None else 10
    if metric.kind is Kind.MULTILABEL:
        num_classes = predictions.outputs.shape[-1]
    is_held_out = predictions.is_held_out
    if is_held_out is not None and bool(is_held_out.any()):
        if bool(is_held_out.all()):
            raise ValueError("every set is held out: there is nothing left to learn from.")
        held_out = predictions[is_held_out]
        middle = held_out.set_size // 2
        return _Stored(
            predictions[~is_held_out], _rows(held_out, 0, middle), _rows(held_out, middle, None), num_classes
        )
    size = predictions.set_size
    if size < 6:
        raise ValueError(
            f"the sets have {size} rows each; a third of the rows is held out, so 6 or more work, and hundreds are "
            "better: store a whole data set's outputs as one set."
        )
    first, second = size * 2 // 3, size * 5 // 6
    return _Stored(
        _rows(predictions, 0, first),
        _rows(predictions, first, second),
        _rows(predictions, second, None),
        num_classes,
    )


def _rows(predictions: Predictions, start: int, stop: int | None) -> Predictions:
    return Predictions(predictions.outputs[:, start:stop], predictions.targets[:, start:stop])


def _real_stacks(
    stored: Predictions | None, *, num_sets: int, set_size: int, generator: Generator
) -> Iterator[Predictions]:
    """One stack for each stored set, so that sets of one checkpoint can be compared with each other."""
    if stored is None:
        return
    # enough sets of a source to compare, even when that means not every source
    num_sources = max(1, min(stored.num_sets, num_sets // SETS_PER_SOURCE))
    for index in torch.randperm(stored.num_sets, generator=generator)[:num_sources].tolist():
        source = stored[index : index + 1]
        yield draw_sets(
            source, num_sets=num_sets // num_sources, set_size=min(set_size, source.set_size), generator=generator
        )


def _random_stacks(
    kind: Kind, stored: _Stored, *, num_sets: int, set_size: int, generator: Generator
) -> Iterator[Predictions]:
    if stored.learning is not None:
        set_size = min(set_size, stored.learning.set_size)
    stack = random_predictions(
        kind, num_sets=num_sets, set_size=set_size, num_classes=stored.num_classes, generator=generator
    )
    yield ragged(stack, smallest=min(16, set_size), generator=generator)


def _judging_sets(kind: Kind, stored: Predictions | None, set_size: int, generator: Generator) -> Predictions:
    if stored is None:
        return random_predictions(kind, num_sets=1000, set_size=set_size, generator=generator)
    return draw_sets(stored, num_sets=1000, set_size=min(set_size, stored.set_size), generator=generator)


# ---- what is learned, and when it is best


def _candidates(metric: Metric, seed: int) -> list[Surrogate]:
    """Everything that suits the kind: which of them fits a user's own metric, its held-out sets can tell."""
    makers: list[Callable[[], Surrogate]] = []
    if metric.kind in ROW_KINDS:
        makers.append(lambda: margin_loss(metric.kind))
    if metric.kind in COUNTED_KINDS:
        makers.append(lambda: CountsNetwork(metric.kind))
    if metric.kind in ORDERED_KINDS:
        makers += [lambda: PairLoss(metric.kind), lambda: RankLoss(metric.kind)]
    if not makers:
        kinds = ", ".join(dict.fromkeys((*ROW_KINDS, *COUNTED_KINDS, *ORDERED_KINDS)))
        raise ValueError(f"no surrogate is made for {metric.kind} predictions yet; {kinds} work, or give one.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [make() for make in makers]


def _default_penalty(surrogate: Surrogate) -> float:
    return 1.0 if isinstance(surrogate, PointwiseSurrogate) and surrogate.hidden else 0.0


def _best_state(
    surrogate: Surrogate, metric: Metric, choosing: Predictions, steps: Iterator[object], num_steps: int
) -> tuple[float, Surrogate]:
    """The surrogate as it was when it ranked the choosing sets best, and how well that was."""
    with torch.no_grad():
        summary = surrogate.summarize(choosing.outputs, choosing.targets)
        costs = metric.cost(choosing.outputs, choosing.targets)
    is_defined = ~costs.isnan()
    summary, costs = tuple(part[is_defined] for part in summary), costs[is_defined]
    best = (-2.0, copy.deepcopy(surrogate))
    every = max(1, num_steps // 10)
    for number, _ in enumerate(steps, start=1):
        if number % every == 0 or number == num_steps:
            with torch.no_grad():
                agreement = float(spearman(surrogate.losses(*summary), costs).nan_to_num(-1.0))
            if agreement > best[0]:
                best = (agreement, copy.deepcopy(surrogate))
    return best


# ---- what is known of it


def _base_loss(kind: Kind) -> Callable[[Tensor, Tensor], Tensor] | None:
    return find_loss("ce", kind) if kind in CLASS_DIM else None


def _scale_to_base(surrogate: Surrogate, base: Callable[[Tensor, Tensor], Tensor] | None, sets: Predictions) -> float:
    """What brings the loss's gradient to cross-entropy's: the median over sets, because some have none."""
    if base is None:
        return 1.0
    few = sets[:100]
    outputs = few.outputs.detach().requires_grad_()
    (learned_gradient,) = torch.autograd.grad(surrogate(outputs, few.targets).sum(), outputs)
    losses = torch.stack([base(one, target) for one, target in zip(outputs, few.targets)])
    (base_gradient,) = torch.autograd.grad(losses.sum(), outputs)
    learned_norm, base_norm = (gradient.flatten(1).norm(dim=1) for gradient in (learned_gradient, base_gradient))
    return float(base_norm.median() / learned_norm.median().clamp_min(1e-12))


def share_of_rising_rows(surrogate: Surrogate, sets: Predictions) -> float | None:
    """On how many rows the loss rises as the score of the true class (or of the right answer) does."""
    kind = surrogate.kind
    if kind not in ROW_KINDS:
        return None
    outputs = sets.outputs.detach().float().requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(outputs, sets.targets).sum(), outputs)
    is_kept = sets.targets != IGNORE_INDEX
    class_dim = CLASS_DIM[kind]
    if class_dim is None:
        slope = torch.where(sets.targets == 1, gradient, -gradient)
    else:
        gradient = gradient.movedim(class_dim, -1)
        slope = gradient.gather(-1, sets.targets.clamp_min(0).long().unsqueeze(-1)).squeeze(-1)
    # rounding leaves slopes of either sign where the loss is flat
    is_rising = slope > 1e-6 * slope.abs().max()
    return float((is_rising & is_kept).sum() / is_kept.sum().clamp_min(1))


def _checked_report(
    surrogate: Surrogate,
    metric: Metric,
    base: Callable[[Tensor, Tensor], Tensor] | None,
    sets: Predictions,
    seed: int,
) -> Report:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = surrogate(outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)
        return value

    alignment = measure_alignment(loss, metric, sets, seed=seed)
    share_rising = share_of_rising_rows(surrogate, sets)
    if alignment.spearman.low <= 0:
        raise ValueError(
            f"the learned loss does not rank held-out sets as {metric.name} does: Spearman {alignment.spearman}. "
            "Stored checkpoints that differ more in the metric, or another surrogate, may help."
        )
    if share_rising is not None and share_rising > MAX_SHARE_RISING:
        raise ValueError(
            f"the learned loss rises on {share_rising:.1%} of held-out rows as they get better: it would train the "
            "wrong way. A surrogate that falls by construction (margin_loss) or a larger gradient_penalty works."
        )
    return Report(alignment, measure_alignment(base, metric, sets, seed=seed) if base else None, share_rising)


# ---- progress


Bar = Callable[[Iterator[object]], Iterator[object]]


def _no_bar(steps: Iterator[object]) -> Iterator[object]:
    return steps


def _progress_bar(
    metric: Metric, base: Callable[[Tensor, Tensor], Tensor] | None, choosing: Predictions, num_steps: int
) -> Bar:
    """A line on the terminal, with what there is to beat beside it; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        return _no_bar
    from rich.console import Console
    from rich.progress import track

    rival = ""
    if base is not None:
        costs = metric.cost(choosing.outputs, choosing.targets)
        is_defined = ~costs.isnan()
        agreement = spearman(losses_of_sets(base, choosing)[is_defined].double(), costs[is_defined].double())
        rival = f" (cross-entropy: {float(agreement):.3f})"

    def bar(steps: Iterator[object]) -> Iterator[object]:
        return iter(track(steps, f"learning {metric.name}{rival}", num_steps, console=Console(stderr=True)))

    return bar
