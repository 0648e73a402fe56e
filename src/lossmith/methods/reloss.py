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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import final

import torch
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from lossmith.alignment import Estimate, losses_of_sets, measure_alignment
from lossmith.baselines import find_loss
from lossmith.learning import (
    SETS_PER_SOURCE,
    LearningState,
    Objective,
    load_learning,
    rank_objective,
    save_learning,
    surrogate_steps,
)
from lossmith.metrics import find_metric
from lossmith.predictions import draw_sets, random_predictions
from lossmith.predictions.splitting import split
from lossmith.ranking import spearman
from lossmith.surrogates import CountsNetwork, DeepSets, PairLoss, RankLoss, Surrogate, margin_loss
from lossmith.surrogates.pairs import ORDERED_KINDS
from lossmith.surrogates.rows import BINARY_KINDS, ROW_KINDS
from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, LAYOUTS, Kind, Loss, Metric, Predictions, check_predictions

# A loss that rises on more than this share of rows pushes models the wrong way, however well it ranks.
MAX_SHARE_RISING = 0.05
NUM_JUDGING_SETS = 500
# what a card says behind the name of a source that was only measured
UNSEEN = ", never learned from"
# how often in a run the surrogate is judged, and stored where a file to resume from was named
NUM_EVALUATIONS = 10


@dataclass(frozen=True)
class Measured:
    """Alignment on the sets of one source, beside that of cross-entropy where the kind has one."""

    spearman: Estimate
    kendall: Estimate
    base_spearman: Estimate | None = None
    base_kendall: Estimate | None = None


@dataclass(frozen=True)
class Card:
    """What is known of a learned loss; measured on held-out rows that neither taught nor chose."""

    metric: str
    measured: Mapping[str, Measured]
    """By source."""
    share_rising: float | None
    """Rows on which the loss rises as the true score does; None where a row has no true score."""
    learned_from: str
    num_steps: int
    seed: int
    version: str

    def check(self) -> None:
        """Raise a ``ValueError`` unless the loss orders sets as the metric does and falls as rows get better."""
        for where, alignment in self.measured.items():
            if not alignment.spearman.low > 0:
                raise ValueError(
                    f"the loss does not rank held-out sets of {where} as {self.metric} does: Spearman "
                    f"{alignment.spearman}. Checkpoints that differ more in the metric, or another surrogate, may help."
                )
        if self.share_rising is not None and self.share_rising > MAX_SHARE_RISING:
            raise ValueError(
                f"the loss rises on {self.share_rising:.1%} of held-out rows as they get better: it would train the "
                "wrong way. A surrogate that falls by construction or a larger gradient_penalty works."
            )


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

    @property
    def kind(self) -> Kind:
        return self.surrogate.kind

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not self._has_checked:
            # once, at the door: reading the values makes the host wait
            check_predictions(self.kind, outputs, targets)
            self._has_checked = True
        elif outputs.dim() != len(LAYOUTS[self.kind].outputs) or outputs.shape[0] != targets.shape[0]:
            raise ValueError(
                f"this loss of {self.card.metric} takes {self.kind} predictions, {LAYOUTS[self.kind]}; outputs "
                f"{tuple(outputs.shape)} and targets {tuple(targets.shape)} came."
            )
        return self.of_stack(outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``[S, N, ...]`` to ``[S]``, unchecked."""
        losses: Tensor = self.surrogate(outputs, targets)
        return losses * self.scale

    def extra_repr(self) -> str:
        return f"metric={self.card.metric}, kind={self.kind}, scale={self.scale:.3g}"


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
    sets = _sets(
        metric,
        stored,
        torch.Generator().manual_seed(seed),
        num_real_sets=num_real_sets,
        num_random_sets=num_random_sets,
        set_size=set_size,
        num_classes=num_classes,
    )
    candidates = [surrogate] if surrogate is not None else _candidates(metric, sets, seed)
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
    bar = _progress_bar(metric, sets, num_steps * len(candidates)) if progress else _no_bar

    def agreements(index: int, candidate: Surrogate) -> Iterator[float]:
        """Learn one candidate; gives its best agreement so far, and leaves it in its best state."""
        optimizer = torch.optim.Adam(candidate.parameters(), lr=learning_rate, weight_decay=1e-4)  # paper, A.2
        state = LearningState(candidate, optimizer, torch.Generator().manual_seed(seed))
        if index in states:
            state.restore(states[index])
        choosing = [_Choosing.of(candidate, metric, stack) for stack in sets.choosing.values()]
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
        for step in steps:
            if step.number % every == 0 or step.number == num_steps:
                state.consider(sum(each.agreement(candidate) for each in choosing) / len(choosing))
                if state_path is not None:
                    states[index] = state.tensors(step.number)
                    save_learning(state_path, states, settings)
            yield state.best_agreement
        state.use_best()
        yield state.best_agreement

    best = [list(bar(agreements(index, candidate)))[-1] for index, candidate in enumerate(candidates)]
    # one that rises on rows that get better is the last choice, however well it ranks
    rising = [
        (_mean_share_rising(candidate, sets.choosing.values()) or 0.0) > MAX_SHARE_RISING for candidate in candidates
    ]
    _, _, chosen = max(zip((not rises for rises in rising), best, candidates), key=lambda each: each[:2])
    card = Card(
        metric.name,
        measured={
            where: measure(chosen, metric, _thinned(stack, chosen), seed=seed)
            for where, stack in sets.judging.items()
        },
        share_rising=_mean_share_rising(chosen, sets.judging.values()),
        learned_from=_in_words(stored, num_random_sets),
        num_steps=num_steps,
        seed=seed,
        version=version("lossmith"),
    )
    card.check()
    return ReLoss(chosen, card, scale=_scale_to_base(chosen, sets.judging.values()))


def measure(surrogate: Surrogate, metric: Metric, sets: Predictions, *, seed: int = 0) -> Measured:
    """Alignment of the surrogate, and of cross-entropy, on these sets as they are."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = surrogate(outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)
        return value

    learned = measure_alignment(loss, metric, sets, seed=seed)
    base = _base_loss(metric.kind)
    if base is None:
        return Measured(learned.spearman, learned.kendall)
    rival = measure_alignment(base, metric, sets, seed=seed)
    return Measured(learned.spearman, learned.kendall, rival.spearman, rival.kendall)


# ---- sets to learn from, to choose by, and to judge by


@dataclass(frozen=True)
class _Sets:
    learning: list[Predictions]
    """One stack for each stored set, so that sets of one checkpoint can be compared with each other."""
    choosing: dict[str, Predictions]
    judging: dict[str, Predictions]
    class_counts: list[int]


def _sets(
    metric: Metric,
    stored: Mapping[str, Predictions],
    generator: Generator,
    *,
    num_real_sets: int,
    num_random_sets: int,
    set_size: int,
    num_classes: Sequence[int],
) -> _Sets:
    learning: list[Predictions] = []
    choosing, judging = {}, {}
    class_counts = []

    def drawn(predictions: Predictions, num_sets: int) -> Predictions:
        size = min(set_size, predictions.set_size)
        return draw_sets(predictions, num_sets=num_sets, set_size=size, generator=generator)

    for where, predictions in stored.items():
        check_predictions(
            metric.kind,
            predictions.outputs,
            predictions.targets,
            is_stack=True,
            want_scores=not metric.reads_probabilities,
        )
        parts = split(predictions)
        # enough sets of a checkpoint to compare, even when that means not every checkpoint
        num_sets = num_real_sets // len(stored)
        num_checkpoints = max(1, min(parts.learning.num_sets, num_sets // SETS_PER_SOURCE))
        for checkpoint in torch.randperm(parts.learning.num_sets, generator=generator)[:num_checkpoints].split(1):
            learning += [drawn(parts.learning[checkpoint], max(1, num_sets // num_checkpoints))]
        choosing[where] = drawn(parts.choosing, NUM_JUDGING_SETS)
        judging[where] = drawn(parts.judging, NUM_JUDGING_SETS)
        class_counts.append(_count_classes(metric.kind, predictions))
    # a user's last batch is smaller than the others, and a loss is asked for it all the same
    sizes = [max(2, set_size >> halvings) for halvings in range(4)]
    shapes = list(product(num_classes or class_counts or [10], sizes))
    for count, size in shapes if num_random_sets >= len(shapes) else []:
        num_sets = num_random_sets // len(shapes)
        learning.append(
            random_predictions(metric.kind, num_sets=num_sets, set_size=size, num_classes=count, generator=generator)
        )
    if not stored:
        for part in (choosing, judging):
            part["random sets"] = random_predictions(
                metric.kind, num_sets=NUM_JUDGING_SETS, set_size=set_size, generator=generator
            )
    return _Sets(learning, choosing, judging, class_counts)


def _count_classes(kind: Kind, predictions: Predictions) -> int:
    if kind is Kind.MULTILABEL:
        return predictions.outputs.shape[-1]
    class_dim = CLASS_DIM.get(kind)
    return 1 if class_dim is None else predictions.outputs.shape[class_dim]


def _in_words(stored: Mapping[str, Predictions], num_random_sets: int) -> str:
    words = [f"{where} ({predictions.num_sets} stored sets)" for where, predictions in stored.items()]
    return " and ".join([", ".join(words), "random sets"] if words and num_random_sets else words or ["random sets"])


# ---- what is learned, and when it is best


def _candidates(metric: Metric, sets: _Sets, seed: int) -> list[Surrogate]:
    """What suits the metric: for one of order, pairs and ranks; for one of decisions, rows and counts.

    Which of them fits, the held-out sets can tell.
    """
    kind = metric.kind
    makers: list[Callable[[], Surrogate]] = []
    if kind in ORDERED_KINDS and _is_blind(metric, sets, _shifted):
        makers += [lambda: PairLoss(kind), lambda: RankLoss(kind)]
    elif kind in ROW_KINDS:
        makers += [lambda: margin_loss(kind), lambda: CountsNetwork(kind)]
        counts = set(sets.class_counts)
        if not _is_blind(metric, sets, _scaled) and len(counts) == 1:
            # it sees more than decisions, so it fits no pattern
            makers.append(lambda: DeepSets(kind, num_classes=1 if kind in BINARY_KINDS else max(counts)))
    if not makers:
        raise ValueError(f"no surrogate is made for {kind} predictions; {', '.join(ROW_KINDS)} work, or give one.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [make() for make in makers]


def _shifted(kind: Kind, outputs: Tensor) -> Tensor:
    """Another threshold for each class or label."""
    if kind is Kind.BINARY:
        return outputs + outputs.std()
    return outputs + outputs.std() * torch.linspace(-1, 1, outputs.shape[-1])


def _scaled(kind: Kind, outputs: Tensor) -> Tensor:
    return outputs * 3


def _is_blind(metric: Metric, sets: _Sets, change: Callable[[Kind, Tensor], Tensor]) -> bool:
    for stack in sets.choosing.values():
        few = stack[:64]
        before, after = (
            metric.cost(outputs, few.targets) for outputs in (few.outputs, change(metric.kind, few.outputs))
        )
        if not torch.allclose(before, after, atol=1e-5, equal_nan=True):
            return False
    return True


def _default_penalty(surrogate: Surrogate) -> float:
    return 0.0 if surrogate.has_sign_by_construction else 1.0


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
        summary = surrogate.summarize(sets.outputs, sets.targets)
        return cls(tuple(part[is_defined] for part in summary), costs[is_defined])

    @torch.no_grad()
    def agreement(self, surrogate: Surrogate) -> float:
        return float(spearman(surrogate.losses(*self.summary), self.costs).nan_to_num(-1.0))


# ---- what is known of it


def _base_loss(kind: Kind) -> Loss | None:
    return find_loss("ce", kind) if kind in CLASS_DIM else None


def _scale_to_base(surrogate: Surrogate, stacks: Iterable[Predictions]) -> float:
    """What brings the loss's gradient to cross-entropy's: the median over sets, because some have none."""
    base = _base_loss(surrogate.kind)
    if base is None:
        return 1.0
    ratios = []
    for stack in stacks:
        few = stack[:100]
        outputs = few.outputs.detach().requires_grad_()
        (learned_gradient,) = torch.autograd.grad(surrogate(outputs, few.targets).sum(), outputs)
        losses = torch.stack([base(one, target) for one, target in zip(outputs, few.targets)])
        (base_gradient,) = torch.autograd.grad(losses.sum(), outputs)
        learned_norm, base_norm = (gradient.flatten(1).norm(dim=1) for gradient in (learned_gradient, base_gradient))
        ratios.append(base_norm.median() / learned_norm.median().clamp_min(1e-12))
    return float(torch.stack(ratios).median())


def share_of_rising_rows(surrogate: Surrogate, sets: Predictions) -> float | None:
    """On how many rows the loss rises as the score of the true class (or of the right answer) does."""
    kind = surrogate.kind
    if kind not in ROW_KINDS:
        return None
    outputs = sets.outputs.detach().float().requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(outputs, sets.targets).sum(), outputs)
    class_dim = CLASS_DIM[kind]
    if class_dim is None:
        slope = torch.where(sets.targets == 1, gradient, -gradient)
    else:
        index = sets.targets.clamp_min(0).long().unsqueeze(-1)
        slope = gradient.movedim(class_dim, -1).gather(-1, index).squeeze(-1)
    # where a loss is flat, rounding leaves slopes of either sign; and when one positive passes another, soft average
    # precision rises and falls by next to nothing
    is_rising = slope > 0.01 * slope.abs().mean()
    is_kept = sets.targets != IGNORE_INDEX
    return float((is_rising & is_kept).sum() / is_kept.sum().clamp_min(1))


def _mean_share_rising(surrogate: Surrogate, stacks: Iterable[Predictions]) -> float | None:
    shares = [share_of_rising_rows(surrogate, stack[:200]) for stack in stacks]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


# ---- progress


Bar = Callable[[Iterator[float]], Iterator[float]]


def _no_bar(agreements: Iterator[float]) -> Iterator[float]:
    return agreements


def _progress_bar(metric: Metric, sets: _Sets, num_steps: int) -> Bar:
    """A line on the terminal, with what there is to beat beside it; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        return _no_bar
    from rich.console import Console
    from rich.progress import track

    base = _base_loss(metric.kind)
    rival = ""
    if base is not None:
        of_base = []
        for stack in sets.choosing.values():
            costs = metric.cost(stack.outputs, stack.targets)
            is_defined = ~costs.isnan()
            of_base.append(float(spearman(losses_of_sets(base, stack)[is_defined], costs[is_defined])))
        rival = f" (Spearman of cross-entropy: {sum(of_base) / len(of_base):.3f})"

    def bar(agreements: Iterator[float]) -> Iterator[float]:
        return iter(track(agreements, f"learning {metric.name}{rival}", num_steps, console=Console(stderr=True)))

    return bar
