"""ReLoss: a loss that is learned once, to rank predictions as the metric does (Huang et al., ICLR 2022).

Algorithm 1: draw sets from stored checkpoints (G_M) and from a random generator (G_R), compute the loss and the metric
of each, and maximise their rank correlation; the values may differ, only the order counts. What the released code
showed to go wrong is done differently here, each with its reason beside it: real targets beside random ones, soft
ranks that do not depend on the scale of the losses and start soft, surrogates that cannot rise (or a signed penalty),
choice on held-out real sets and a card measured on others, and a check of the sign before anybody gets the loss.

>>> import torch
>>> from lossmith.predictions import random_predictions
>>> stored = random_predictions("multiclass", num_sets=64, set_size=200, generator=torch.Generator().manual_seed(0))
>>> loss = learn("accuracy", stored, num_steps=60, progress=False)
>>> outputs = torch.randn(32, 10, requires_grad=True)
>>> loss(outputs, torch.randint(10, (32,))).backward()
>>> loss.card.measured["predictions"].spearman.low > 0.9
True
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from lossmith.alignment import losses_of_sets
from lossmith.cards import (
    MAX_SHARE_RISING,
    Card,
    base_loss,
    mean_share_of_rising_rows,
    measure,
    scale_to_base,
)
from lossmith.learning import (
    LearningState,
    Objective,
    load_learning,
    rank_objective,
    save_learning,
    surrogate_steps,
)
from lossmith.learning_sets import LearningSets, in_words, learning_sets
from lossmith.metrics import find_metric
from lossmith.ranking import spearman
from lossmith.surrogates import Surrogate
from lossmith.surrogates.suiting import suiting_surrogates
from lossmith.vocabulary import IGNORE_INDEX, LAYOUTS, Kind, Metric, Predictions, check_predictions

# the square of a larger one would be infinite in single precision, and infinity over infinity no number
LARGEST_SCORE = 1e9
# of what tells all scores to grow. Where there is nothing else (a set of one row), the rest is a direction, however
# short, and not the rounding that a sum would bring to full length.
SHARE_TAKEN_OUT = 0.999
# of a rank correlation: no reason to prefer a surrogate to a simpler one
NEGLIGIBLE = 0.003
# how often in a run the surrogate is judged, and stored where a file to resume from was named
NUM_EVALUATIONS = 10


@final
class ReLoss(nn.Module):
    """A learned loss, in place of any loss of torch: ``(outputs, targets) -> scalar``, lower is better.

    Its weights are fixed. ``scale`` brings its gradient to that of cross-entropy, so that learning rates carry over.
    """

    def __init__(self, surrogate: Surrogate, card: Card, *, scale: float = 1.0) -> None:
        super().__init__()
        self.surrogate = surrogate.requires_grad_(False)
        self.card = card
        self.scale = scale
        self._has_checked = False
        self._has_warned = False

    @property
    def kind(self) -> Kind:
        return self.surrogate.kind

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # reading values makes the host wait for a device: once, at the door
        may_read = not self._has_checked or outputs.device.type == "cpu"
        if not self._has_checked:
            check_predictions(self.kind, outputs, targets)
            self._has_checked = True
        elif outputs.dim() != len(LAYOUTS[self.kind].outputs) or outputs.shape[0] != targets.shape[0]:
            raise ValueError(
                f"this loss of {self.card.metric} takes {self.kind} predictions, {LAYOUTS[self.kind]}; outputs "
                f"{tuple(outputs.shape)} and targets {tuple(targets.shape)} came."
            )
        loss = self.of_stack(outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)
        if may_read and not self._has_warned and not bool(loss) and _is_of_one_value(targets):
            self._has_warned = True
            warnings.warn(
                f"the loss of {self.card.metric} came upon a set that says nothing (everything left out, or one class "
                "alone): its loss is 0, without a gradient. This is said once.",
                stacklevel=2,
            )
        return loss

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``[S, N, ...]`` to ``[S]``, unchecked."""
        return judge(self.surrogate, outputs, targets) * self.scale

    def extra_repr(self) -> str:
        return f"metric={self.card.metric}, kind={self.kind}, scale={self.scale:.3g}"


def _is_of_one_value(targets: Tensor) -> bool:
    kept = targets[targets != IGNORE_INDEX]
    return kept.numel() == 0 or bool((kept == kept[0]).all())


def judge(surrogate: Surrogate, outputs: Tensor, targets: Tensor) -> Tensor:
    """``[S]``: what a surrogate says as a loss to train with, in the precision of its weights.

    Half of that would round away what tells sets apart.
    """
    weights = next(surrogate.parameters())
    with torch.autocast(outputs.device.type, enabled=False):
        # half precision has no number as large as the bound
        scores = outputs.to(weights.dtype).clamp(-LARGEST_SCORE, LARGEST_SCORE)
        losses: Tensor = surrogate(_of_one_size(surrogate, scores, targets), targets)
    return losses


def _of_one_size(surrogate: Surrogate, scores: Tensor, targets: Tensor) -> Tensor:
    """The same scores, but the gradient does not tell all of them to grow or to shrink together.

    A loss of decisions is blind to the size of the scores, yet each row that it wants further on the right side adds a
    little to it. In a sum with cross-entropy that is a loop: larger scores, dearer mistakes, a longer gradient of
    cross-entropy, and with it of the learned part. Scores grew without end before this.
    """
    size = surrogate.size(scores, targets)
    if size is None:
        return scores
    growth = (size / size.detach()) ** SHARE_TAKEN_OUT
    return scores / growth.view(-1, *(1,) * (scores.dim() - 1))


def learn(
    metric: Metric | str,
    predictions: Predictions | Mapping[str, Predictions] | None = None,
    *,
    surrogate: Surrogate | None = None,
    num_steps: int = 400,
    seed: int = 0,
    progress: bool = True,
    resume_from: str | os.PathLike[str] | None = None,
    objective: Objective | None = None,
    learning_rate: float = 0.03,
    gradient_penalty: float | None = None,
    within: float = 0.5,
    num_real_sets: int = 2048,
    num_random_sets: int = 2048,
    set_size: int = 128,
    num_classes: Sequence[int] = (),
) -> ReLoss:
    """Learn a loss for ``metric`` from stored ``predictions``, in seconds.

    ``predictions`` are stored checkpoints, early and late: one set each, of many rows, the same rows in each or not;
    or several such stacks by the names of their sources. Sets that ``is_held_out`` marks choose and judge; without a
    mark the last third of the rows does. Without predictions the loss learns from random sets alone, which have
    ``num_classes`` classes, one number after the other, and by default as many as the predictions have.

    Without a ``surrogate`` those that suit the metric are learned, and the held-out sets choose. ``gradient_penalty``
    is the paper's lambda (10 there); by default it is 0 for surrogates that have their sign by construction and 1 for
    free networks. A run that is killed goes on from the file ``resume_from`` and ends with the same weights.
    """
    metric = find_metric(metric) if isinstance(metric, str) else metric
    stored = {} if predictions is None else predictions
    if isinstance(stored, Predictions):
        stored = {"predictions": stored}
    _check_arguments(metric, stored, num_steps=num_steps, within=within, set_size=set_size)
    stored = {where: _in_single_precision(each) for where, each in stored.items()}
    sets = learning_sets(
        metric,
        stored,
        torch.Generator().manual_seed(seed),
        num_real_sets=num_real_sets,
        num_random_sets=num_random_sets,
        set_size=set_size,
        num_classes=num_classes,
    )
    choosing_stacks = list(sets.choosing.values())
    candidates = [surrogate] if surrogate is not None else suiting_surrogates(metric, choosing_stacks, seed=seed)
    settings = {
        "metric": metric.name,
        "seed": seed,
        "num_steps": num_steps,
        "learning_rate": learning_rate,
        "gradient_penalty": gradient_penalty,
        "within": within,
        "surrogates": [dict(candidate.settings) for candidate in candidates],
        "sets": [float(stack.outputs.double().sum()) for stack in sets.learning],
    }
    state_path = None if resume_from is None else Path(resume_from)
    states = {} if state_path is None else load_learning(state_path, settings)
    show = _progress_bar(metric, sets) if progress else _no_bar

    def agreements(index: int, candidate: Surrogate) -> Iterator[float]:
        """Learn one candidate; gives its best agreement after each step, and leaves it in its best state."""
        optimizer = torch.optim.Adam(candidate.parameters(), lr=learning_rate, weight_decay=1e-4)  # paper, A.2
        state = LearningState(candidate, optimizer, torch.Generator().manual_seed(seed))
        if index in states:
            state.restore(states[index])
        choosing = [_Choosing.of(candidate, metric, stack) for stack in choosing_stacks]
        steps = surrogate_steps(
            candidate,
            metric,
            [_thinned(stack, candidate) for stack in sets.learning],
            objective or rank_objective(),
            optimizer,
            num_steps=num_steps,
            generator=state.generator,
            gradient_penalty=_default_penalty(candidate) if gradient_penalty is None else gradient_penalty,
            within=within,
            scheduler=_half_cosine(optimizer, num_steps=num_steps, first_step=state.step),
            first_step=state.step,
        )
        every = max(1, num_steps // NUM_EVALUATIONS)
        yield state.best_agreement
        for step in steps:
            if step.number % every == 0 or step.number == num_steps:
                state.consider(sum(each.agreement(candidate) for each in choosing) / len(choosing))
                if state_path is not None:
                    states[index] = state.tensors(step.number)
                    save_learning(state_path, states, settings)
            yield state.best_agreement
        state.use_best()
        yield state.best_agreement

    best: dict[Surrogate, float] = {}
    for index, candidate in enumerate(candidates):
        what = metric.name if len(candidates) == 1 else f"{metric.name} ({index + 1} of {len(candidates)})"
        agreement = list(show(agreements(index, candidate), what, num_steps))[-1]
        # one that rises on rows that get better is the last choice, however well it ranks
        rises = (mean_share_of_rising_rows(candidate, choosing_stacks) or 0.0) > MAX_SHARE_RISING
        best[candidate] = agreement - 2.0 * rises
        if best[candidate] >= 1 - NEGLIGIBLE:
            break  # no other could be better by more
    # the simplest come first
    chosen = next(each for each, agreement in best.items() if agreement >= max(best.values()) - NEGLIGIBLE)
    card = Card(
        metric.name,
        measured={
            where: measure(chosen, metric, _thinned(stack, chosen), seed=seed) for where, stack in sets.judging.items()
        },
        share_rising=mean_share_of_rising_rows(chosen, sets.judging.values()),
        learned_from=in_words(stored, num_random_sets),
        num_steps=num_steps,
        seed=seed,
        version=version("lossmith"),
    )
    card.check()
    return ReLoss(chosen, card, scale=scale_to_base(chosen, sets.judging.values()))


def _check_arguments(metric: object, stored: object, *, num_steps: int, within: float, set_size: int) -> None:
    if not isinstance(metric, Metric):
        raise ValueError(
            f"metric came as {type(metric).__name__}; a name works, and a function of your own as "
            "lossmith.metrics.wrap(function, kind=..., higher_is_better=...)."
        )
    of_sources = stored.values() if isinstance(stored, Mapping) else [stored]
    for each in of_sources:
        if not isinstance(each, Predictions):
            raise ValueError(
                f"predictions came as {type(each).__name__}; lossmith.Predictions(outputs, targets) works, with a set "
                "for each checkpoint, or several of them by the names of their sources."
            )
    if num_steps < 1 or not 0 <= within <= 1 or set_size < 2:
        raise ValueError(
            f"num_steps={num_steps}, within={within} and set_size={set_size} came; 1 step or more, a share from 0 to 1 "
            "and sets of 2 or more work."
        )


# ---- what is learned, and when it is best


def _default_penalty(surrogate: Surrogate) -> float:
    return 0.0 if surrogate.has_sign_by_construction else 1.0


def _in_single_precision(stored: Predictions) -> Predictions:
    """As the weights are. What has no floating point is told so at the door."""
    is_real = isinstance(stored.outputs, Tensor) and stored.outputs.is_floating_point()
    outputs = stored.outputs.float() if is_real else stored.outputs
    return Predictions(outputs, stored.targets, stored.is_held_out)


def _thinned(sets: Predictions, surrogate: Surrogate) -> Predictions:
    """Some surrogates look at all pairs of rows: of them, fewer sets say as much."""
    return sets[::4] if surrogate.sees_pairs else sets


def _half_cosine(optimizer: torch.optim.Optimizer, *, num_steps: int, first_step: int) -> LambdaLR:
    # a formula of the step, not of the step before: it goes on anywhere
    return LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * (first_step + step) / num_steps)))


@dataclass(frozen=True)
class _Choosing:
    """Held-out sets as a surrogate sees them."""

    summary: tuple[Tensor, ...]
    costs: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, surrogate: Surrogate, metric: Metric, sets: Predictions) -> _Choosing:
        sets = _thinned(sets, surrogate)
        costs = metric.cost(sets.outputs, sets.targets)
        is_defined = ~costs.isnan()
        if not bool(is_defined.any()):
            raise ValueError(
                f"{metric.name} is defined on none of the held-out sets (one class alone? all left out?): nothing can "
                "choose a loss. Rows of all classes among the last third, or larger sets, work."
            )
        summary = surrogate.summarize(sets.outputs, sets.targets)
        return cls(tuple(part[is_defined] for part in summary), costs[is_defined])

    @torch.no_grad()
    def agreement(self, surrogate: Surrogate) -> float:
        return float(spearman(surrogate.losses(*self.summary), self.costs).nan_to_num(-1.0))


# ---- learning while the model learns


@final
class AlternatingReLoss(nn.Module):
    """A loss that goes on learning from the predictions of the model that it trains (paper, Table 11).

    Every ``interval`` calls in training mode it takes ``num_steps`` steps on the last ``num_kept`` batches. The paper
    finds little gain and more spread than with a loss that stays as it is.
    """

    def __init__(
        self,
        surrogate: Surrogate,
        metric: Metric | str,
        *,
        interval: int = 50,
        num_steps: int = 20,
        num_kept: int = 64,
        learning_rate: float = 0.01,
        gradient_penalty: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.surrogate = surrogate.requires_grad_(False)
        self.metric = find_metric(metric) if isinstance(metric, str) else metric
        self.interval = interval
        self.num_steps = num_steps
        self.gradient_penalty = _default_penalty(surrogate) if gradient_penalty is None else gradient_penalty
        self._optimizer = torch.optim.Adam(surrogate.parameters(), lr=learning_rate, weight_decay=1e-4)
        self._generator = torch.Generator().manual_seed(seed)
        self._kept: deque[tuple[Tensor, Tensor]] = deque(maxlen=num_kept)
        self._num_calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.training:
            if self._kept and self._kept[0][0].shape != outputs.shape:
                self._kept.clear()  # a stack has sets of one size
            self._kept.append((outputs.detach(), targets))
            self._num_calls += 1
            if self._num_calls % self.interval == 0:
                self._learn()
        return judge(self.surrogate, outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)

    def _learn(self) -> None:
        stack = Predictions(*(torch.stack(parts) for parts in zip(*self._kept)))
        costs = self.metric.cost(stack.outputs, stack.targets)
        if not bool((costs != costs[0]).any()):
            return  # one value alone has no order
        self.surrogate.requires_grad_()
        with torch.enable_grad():
            for _ in surrogate_steps(
                self.surrogate,
                self.metric,
                [stack],
                # what it knows already would be lost in a soft start
                rank_objective(start=0.05),
                self._optimizer,
                num_steps=self.num_steps,
                generator=self._generator,
                sets_per_step=len(self._kept),
                gradient_penalty=self.gradient_penalty,
            ):
                pass
        self.surrogate.requires_grad_(False)


# ---- progress


ShowProgress = Callable[[Iterator[float], str, int], Iterator[float]]


def _no_bar(agreements: Iterator[float], what: str, num_steps: int) -> Iterator[float]:
    return agreements


def _progress_bar(metric: Metric, sets: LearningSets) -> ShowProgress:
    """A line on the terminal with the agreement so far, and what there is to beat beside it."""
    if not sys.stderr.isatty():
        return _no_bar
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    base = base_loss(metric.kind)
    rival = ""
    if base is not None:
        of_base = []
        for stack in sets.choosing.values():
            costs = metric.cost(stack.outputs, stack.targets)
            is_defined = ~costs.isnan()
            of_base.append(float(spearman(losses_of_sets(base, stack)[is_defined], costs[is_defined])))
        rival = f" (cross-entropy {sum(of_base) / len(of_base):.3f})"

    def show(agreements: Iterator[float], what: str, num_steps: int) -> Iterator[float]:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(f"learning {what}", total=num_steps)
            for agreement in agreements:
                known = f": Spearman {agreement:.3f}{rival}" if agreement >= -1 else rival
                bar.update(task, advance=1, description=f"learning {what}{known}")
                yield agreement

    return show
