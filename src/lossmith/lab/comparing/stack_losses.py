"""Losses on a stack of runs: ``outputs [S, N, ...]``, ``targets [S, N, ...]`` give ``[S]``, one loss for each run.

A loss with ``of_stack`` is taken at its word; any other is mapped over the stack, or, where its code looks at numbers,
called run by run. What is slow that way and wanted often is written out here for scores ``[S, N]``: traced losses of
counts and of rankings, pairs, mixes. Tests hold each to the loss that a user gets, one set at a time.

>>> from lossmith.baselines import find_loss
>>> focal = on_stack(find_loss("focal", "binary"))
>>> focal(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [1, 1, 1]]))
tensor([0.1733, 0.1733])
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossmith.metrics import counts as of
from lossmith.metrics.counts import Counts, Formula
from lossmith.tracing.links import link
from lossmith.vocabulary import Loss, StackLoss

OfStack = Callable[[Tensor, Tensor], Tensor]


def on_stack(loss: Loss | StackLoss) -> OfStack:
    """The loss of each run, ``[S]``."""
    return loss.of_stack if isinstance(loss, StackLoss) else Mapped(loss)


class Mapped:
    """A loss of one set over a stack: in one call where its code allows that, else in a loop."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self._can_map: bool | None = None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._can_map is None:
            self._can_map = self._try(outputs.detach(), targets)
        if self._can_map:
            mapped: Tensor = torch.vmap(self.loss)(outputs, targets)
            return mapped
        return torch.stack([self.loss(*each) for each in zip(outputs, targets)])

    def _try(self, outputs: Tensor, targets: Tensor) -> bool:
        try:
            mapped = torch.vmap(self.loss)(outputs[:1], targets[:1])
        except Exception:  # code that asks for the value of a number, or an operation without a rule: it is looped
            return False
        return torch.allclose(mapped, torch.stack([self.loss(outputs[0], targets[0])]), atol=1e-5, equal_nan=True)


class EachItsOwn(nn.Module):
    """A loss with weights of its own: every run has its own copy of them."""

    def __init__(self, loss: nn.Module, num_runs: int) -> None:
        super().__init__()
        self._loss = [copy.deepcopy(loss).to("meta")]  # in a list: its weights are not of this module
        self._names = [name for name, _ in loss.named_parameters()]
        self.stacked = nn.ParameterList(
            nn.Parameter(each.detach().expand(num_runs, *each.shape).clone()) for each in loss.parameters()
        )
        self._buffers_of_one = dict(loss.named_buffers())

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        def of_one(weights: tuple[Tensor, ...], outputs: Tensor, targets: Tensor) -> Any:
            state = {**dict(zip(self._names, weights)), **self._buffers_of_one}
            return torch.func.functional_call(self._loss[0], state, (outputs, targets))

        mapped: Tensor = torch.vmap(of_one)(tuple(self.stacked), outputs, targets)
        return mapped


# ------------------------------------------------------------------------------- traced losses, for scores [S, N]


@dataclass(frozen=True)
class TracedCounts:
    """``lossmith.trace`` of a metric over counts: what is worth something is how many of each kind there are, so four
    gains are all the gains of a set.
    """

    formula: Formula
    link: float = 0.5
    higher_is_better: bool = True

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        is_above, is_positive = outputs.detach() > 0, targets == 1
        now = of.count(is_above, targets).to(outputs.dtype)
        value, (tp, fp, fn, tn) = self.formula(now), now
        flipped = [
            Counts(tp - 1, fp, fn + 1, tn),
            Counts(tp, fp - 1, fn, tn + 1),
            Counts(tp + 1, fp, fn - 1, tn),
            Counts(tp, fp + 1, fn, tn - 1),
        ]
        sign = 1 if self.higher_is_better else -1
        gains = torch.stack([sign * (self.formula(each) - value) for each in flipped], -1)  # [S, 4]
        kind = torch.where(is_above, torch.where(is_positive, 0, 1), torch.where(is_positive, 2, 3))
        gain = gains.gather(-1, kind).masked_fill((targets != 0) & (targets != 1), 0)
        margin = torch.where(is_above, -outputs, outputs)
        return (gain.abs() * link(F.logsigmoid(gain.sign() * margin), self.link)).sum(-1)


class AtThreshold:
    """A loss of decisions, taken where they are best: scores less a threshold that follows that of the batches.

    ``find(outputs, targets) -> [S]`` is the threshold of one batch; the running mean of them is subtracted.
    """

    def __init__(self, loss: StackLoss, find: OfStack, *, momentum: float = 0.1) -> None:
        self.loss, self.find, self.momentum = loss, find, momentum
        self._threshold: Tensor | None = None

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = self.find(outputs.detach(), targets)
        self._threshold = found if self._threshold is None else self._threshold.lerp(found, self.momentum)
        return self.loss.of_stack(outputs - self._threshold.unsqueeze(-1), targets)


@dataclass(frozen=True)
class TracedRanking:
    """``lossmith.trace`` of AUC or average precision: every swap of a positive and a negative, at what it is worth."""

    metric: str
    link: float = 0.5

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, order = outputs.sort(stable=True, dim=-1, descending=True)
        positive = (targets == 1).gather(-1, order)
        place = torch.arange(1, outputs.shape[-1] + 1, device=outputs.device, dtype=outputs.dtype)
        num_up_to = positive.cumsum(-1).to(outputs.dtype)
        num_positives, num_negatives = positive.sum(-1), (~positive).sum(-1)
        index = _first_places(positive)  # [S, P]
        is_real = torch.arange(index.shape[-1], device=index.device) < num_positives.unsqueeze(-1)
        of_positive, its_place = scores.gather(-1, index).unsqueeze(-1), place[index].unsqueeze(-1)
        is_below = its_place < place  # the negative stands below the positive
        if self.metric == "auc":
            worth = (place - its_place).abs() / (num_positives * num_negatives).clamp(min=1)[:, None, None]
        else:
            precision = num_up_to / place
            reciprocal = (positive / place).cumsum(-1)
            mine, other = precision.gather(-1, index).unsqueeze(-1), precision.unsqueeze(-2)
            until, since = reciprocal.gather(-1, index).unsqueeze(-1), reciprocal.unsqueeze(-2)
            own = (1 / place)[index].unsqueeze(-1)
            # falling to a lower place, or rising to a higher one, past the positives in between
            falls = other - mine - (since - until)
            rises = other + (1 / place) - mine + (until - own - since)
            worth = torch.where(is_below, falls, rises).abs() / num_positives.clamp(min=1)[:, None, None]
        worth = worth * (~positive).unsqueeze(-2) * is_real.unsqueeze(-1)
        lead = of_positive - scores.unsqueeze(-2)  # of the positive over the negative
        # a pair in the better order would lose by a swap, one in the worse would gain: q is of the better order always
        # an item could change places with every other: the mean over them is what its place is worth
        return (worth * link(F.logsigmoid(lead), self.link)).sum((-1, -2)) / outputs.shape[-1]


@dataclass(frozen=True)
class TracedApOfPairs:
    """``lossmith.trace`` of average precision as the mean, over positives, of the share of positives among what stands
    no lower: each comparison of a positive with another score is a decision of its own, while all others stay.
    """

    link: float = 0.5

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        is_positive, is_kept = targets == 1, (targets == 0) | (targets == 1)
        index = _first_places(is_positive)
        is_real = is_positive.gather(-1, index).to(outputs.dtype)
        lead = outputs.unsqueeze(-2) - outputs.gather(-1, index).unsqueeze(-1)  # [S, P, N]: over the positive
        is_above = ((lead.detach() > 0) & is_kept.unsqueeze(-2)).to(outputs.dtype)
        helps = is_positive.unsqueeze(-2).to(outputs.dtype)
        positives_above, all_above = ((is_above * helps).sum(-1, keepdim=True), is_above.sum(-1, keepdim=True))
        # the others as they are, this one above or not
        others_positive, others = positives_above - is_above * helps, all_above - is_above
        gain = (others_positive + helps + 1) / (others + 2) - (others_positive + 1) / (others + 1)
        gain = gain * (is_real / is_real.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(-1) * is_kept.unsqueeze(-2)
        return (gain.abs() * link(F.logsigmoid(gain.sign() * lead), self.link)).sum((-1, -2))


def _first_places(is_member: Tensor) -> Tensor:
    """``[S, P]``: where the members are, first those; P is the largest number of them in a run."""
    most = max(int(is_member.sum(-1).max()), 1)
    return is_member.to(torch.int8).sort(stable=True, dim=-1, descending=True).indices[..., :most]


# ----------------------------------------------------------------------------------- pairs and ranks, for scores [S, N]


@dataclass(frozen=True)
class Pairs:
    """The mean over pairs of a positive and a negative of ``term(positive - negative)``."""

    term: Callable[[Tensor], Tensor]

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        lead, is_pair = _leads(outputs, targets)
        return (self.term(lead) * is_pair).sum((-1, -2)) / is_pair.sum((-1, -2)).clamp(min=1)


def misordered(lead: Tensor) -> Tensor:
    """The chance that a pair is out of order: AUC with a smooth step."""
    return torch.sigmoid(-lead)


def logistic(lead: Tensor) -> Tensor:
    return F.softplus(-lead)


def _leads(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """``[S, P, M]``: positives over negatives; and which of these are pairs, not padding."""
    positive, negative = (_first_places(targets == label) for label in (1, 0))
    is_positive, is_negative = (
        (targets.gather(-1, index) == label).to(outputs.dtype) for index, label in ((positive, 1), (negative, 0))
    )
    lead = outputs.gather(-1, positive).unsqueeze(-1) - outputs.gather(-1, negative).unsqueeze(-2)
    return lead, is_positive.unsqueeze(-1) * is_negative.unsqueeze(-2)


@dataclass(frozen=True)
class SmoothAp:
    """``1 - `` average precision with each rank a sum of sigmoids; scores may be brought to one spread first."""

    temperature: float = 1.0
    is_standardised: bool = False
    """Divided by the deviation of the scores of the batch: then the temperature is in units of it."""

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.is_standardised:
            outputs = outputs / outputs.std(-1, keepdim=True).clamp(min=1e-4)
        is_positive, is_kept = targets == 1, (targets == 0) | (targets == 1)
        index = _first_places(is_positive)
        is_real = is_positive.gather(-1, index).to(outputs.dtype)
        lead = (outputs.unsqueeze(-2) - outputs.gather(-1, index).unsqueeze(-1)) / self.temperature
        above = lead.sigmoid() * is_kept.unsqueeze(-2)
        positives_above = (above * is_positive.unsqueeze(-2)).sum(-1) + 0.5
        all_above = above.sum(-1) + 0.5
        num_positives = is_real.sum(-1)
        value = 1 - (positives_above / all_above * is_real).sum(-1) / num_positives.clamp(min=1)
        return value * (num_positives > 0)


# ---------------------------------------------------------------------------------------------------------------- mixes


class Mix:
    """``base + weight * other`` at equal gradient norm, run by run; the second from step ``warmup_steps`` on."""

    def __init__(self, base: OfStack, other: OfStack, *, weight: float = 1.0, warmup_steps: int = 0) -> None:
        self.base, self.other, self.weight, self.warmup_steps = base, other, weight, warmup_steps
        self._num_steps = 0

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._num_steps += 1
        base = self.base(outputs, targets)
        if self._num_steps <= self.warmup_steps:
            return base
        other = self.other(outputs, targets)
        base_norm, other_norm = (gradient_norms(each, outputs) for each in (base, other))
        return base + self.weight * other * (base_norm / other_norm.masked_fill(other_norm == 0, torch.inf))


class Then:
    """One loss for ``num_steps`` steps, and then the other, at the gradient norm that the first would have."""

    def __init__(self, first: OfStack, second: OfStack, *, num_steps: int) -> None:
        self.first, self.second, self.num_steps = first, second, num_steps
        self._num_steps = 0

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self._num_steps += 1
        first = self.first(outputs, targets)
        if self._num_steps <= self.num_steps:
            return first
        second = self.second(outputs, targets)
        first_norm, second_norm = (gradient_norms(each, outputs) for each in (first, second))
        return second * (first_norm / second_norm.masked_fill(second_norm == 0, torch.inf))


@dataclass(frozen=True)
class Normalised:
    """Score gradients of one length whatever the batch says, and a penalty that keeps scores from growing."""

    loss: OfStack
    penalty: float = 0.01

    def of_stack(self, outputs: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = self.loss(outputs, targets)
        norm = gradient_norms(value, outputs)
        factor: Tensor = outputs.shape[1] ** -0.5 / norm.masked_fill(norm == 0, torch.inf)
        return value * factor + self.penalty * outputs.square().flatten(1).mean(1)


def gradient_norms(losses: Tensor, outputs: Tensor) -> Tensor:
    """``[S]``: how long the gradient of each run's loss is, with respect to its own outputs."""
    (gradient,) = torch.autograd.grad(losses.sum(), outputs, retain_graph=True)
    norms: Tensor = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
    return norms


# ----------------------------------------------------------------------------------------------- thresholds of a stack


def best_thresholds(formula: Formula, outputs: Tensor, targets: Tensor, *, higher_is_better: bool = True) -> Tensor:
    """``[S]``: the threshold at which a formula of counts is best, in the middle between two neighbouring scores."""
    return sweep_thresholds(formula, outputs, targets, higher_is_better=higher_is_better)[1]


def sweep_thresholds(
    formula: Formula, outputs: Tensor, targets: Tensor, *, higher_is_better: bool = True
) -> tuple[Tensor, Tensor]:
    """``[S]`` twice: the best value of a formula over all thresholds, and the threshold. Scores may tie."""
    scores, order = outputs.sort(-1, descending=True)
    sorted_targets = targets.gather(-1, order)
    positive, negative = (sorted_targets == 1).cumsum(-1), (sorted_targets == 0).cumsum(-1)
    tp, fp = F.pad(positive, (1, 0)), F.pad(negative, (1, 0))  # of the first k scores, k = 0 ... N
    dtype = of.value_dtype(outputs)
    swept = Counts(tp, fp, tp[..., -1:] - tp, fp[..., -1:] - fp).to(dtype)
    values = formula(swept)
    values = values if higher_is_better else -values
    upper = torch.cat([scores[..., :1] + scores[..., :1].abs().clamp(min=1), scores], -1)
    lower = torch.cat([scores, scores[..., -1:] - scores[..., -1:].abs().clamp(min=1)], -1)
    best, index = values.masked_fill(upper <= lower, -torch.inf).max(-1)
    middle = (upper / 2 + lower / 2).gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return (best if higher_is_better else -best), middle


def equal_error_thresholds(outputs: Tensor, targets: Tensor) -> Tensor:
    """``[S]``: where the rates of false alarms and of misses are closest."""

    def difference(counts: Counts) -> Tensor:
        false_positive = of.ratio(counts.false_positives, counts.negatives)
        false_negative = of.ratio(counts.false_negatives, counts.positives)
        return (false_positive - false_negative).abs()

    return best_thresholds(difference, outputs, targets, higher_is_better=False)


def any_of(losses: Sequence[OfStack], runs: Sequence[int]) -> OfStack:
    """Run ``s`` has the loss ``losses[runs[s]]``: variants of one recipe in one stack."""
    index = [torch.tensor([s for s, which in enumerate(runs) if which == number]) for number in range(len(losses))]
    back = torch.cat(index).argsort()

    def of_stack(outputs: Tensor, targets: Tensor) -> Tensor:
        parts = [loss(outputs[rows], targets[rows]) for loss, rows in zip(losses, index)]
        return torch.cat(parts)[back]

    return of_stack
