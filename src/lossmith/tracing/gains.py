"""How gains are found: what each single decision is worth while all others stay as they are.

Three ways, see :mod:`lossmith.tracing.lanes` and :mod:`lossmith.tracing.sorted_lanes`: *whole lanes* run the metric
once for many options, each with one decision changed, and are exact by construction; *lanes by row* and *sorted lanes*
cost about one run, whatever the number of decisions, and are exact for some metrics, close for others, and impossible
for the rest. Which one serves shows when it is tried against the first: :mod:`lossmith.tracing.plan`.

Gains are of *goodness*: the value of the metric, or its negative where lower is better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from lossmith.tracing.all_pairs import all_pairs_loss
from lossmith.tracing.decisions import Choice, Decision, Order
from lossmith.tracing.lanes import Diverged, Fork, Lanes, Unsupported
from lossmith.tracing.links import choice_loss, margin_loss
from lossmith.tracing.reading import Reading
from lossmith.tracing.recording import MetricFunction, Trace, run
from lossmith.tracing.sorted_lanes import SortedFork, SwapGains

# rows with more pairs in all than this are summed by the cumulative sums of `all_pairs`
MAX_PAIRS = 2**15


@dataclass(frozen=True, eq=False)
class Subject:
    """A metric, and the set that it is traced on."""

    fn: MetricFunction
    outputs: Tensor
    targets: Tensor
    sign: int
    """1 if a higher value is better, else -1."""
    returns_float: bool = False
    """The code ends with ``return float(...)``."""
    reading: Reading = Reading.WINNERS
    """What scores that leave torch are taken for."""

    def run(self, **options: Any) -> tuple[Any, Trace]:
        """See :func:`~lossmith.tracing.recording.run`."""
        options |= {"returns_float": self.returns_float, "reading": self.reading}
        return run(self.fn, self.outputs, self.targets, **options)

    def goodness(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"the metric gave a tensor of the shape {tuple(value.shape)}; one number works.")
            return value.as_subclass(Tensor).reshape(()) * self.sign
        try:
            return torch.tensor(float(value) * self.sign, dtype=torch.float64)
        except (TypeError, ValueError):
            raise ValueError(f"the metric gave {type(value).__name__}; one number works.") from None


class Gains(ABC):
    """What options of a decision are worth."""

    decision: Decision

    @abstractmethod
    def loss(self, temperature: Tensor | float, beta: float) -> Tensor:
        """Differentiable in the scores and in the temperature."""

    @abstractmethod
    def at(self, option: Tensor, row: Tensor) -> Tensor:
        """``[B]``: gains of single options."""

    @abstractmethod
    def is_nothing(self) -> bool:
        """No option is worth anything."""


@dataclass(eq=False)
class GainsOfAll(Gains):
    """``gains [L, *rows]``, of every option of every row."""

    decision: Decision
    gains: Tensor

    def loss(self, temperature: Tensor | float, beta: float) -> Tensor:
        scores = self.decision.comparisons
        if isinstance(self.decision, Choice):
            return choice_loss(scores / temperature, self.gains.to(scores.dtype), beta=beta)
        option, row = every_option(self.decision)
        return GainsOfSome(self.decision, option, row, self.gains.reshape(-1)).loss(temperature, beta)

    def at(self, option: Tensor, row: Tensor) -> Tensor:
        return self.gains.reshape(len(self.gains), -1)[option, row]

    def is_nothing(self) -> bool:
        return not bool(self.gains.any())


@dataclass(eq=False)
class GainsOfSome(Gains):
    """``gains [B]`` of options that stand for ``num_meant [B]`` others like them."""

    decision: Decision
    option: Tensor
    row: Tensor
    gains: Tensor
    num_meant: Tensor | None = None

    def loss(self, temperature: Tensor | float, beta: float) -> Tensor:
        margins = self.decision.margin(self.option, self.row) / temperature
        num_meant = self.decision.num_meant(self.option)
        if self.num_meant is not None:
            num_meant = num_meant * self.num_meant
        total = margin_loss(margins, self.gains.to(margins.dtype), beta=beta, num_meant=num_meant)
        return total / _num_partners(self.decision)

    def at(self, option: Tensor, row: Tensor) -> Tensor:
        raise AssertionError("gains of some options are exact: nobody checks them")

    def is_nothing(self) -> bool:
        return not bool(self.gains.any())


@dataclass(eq=False)
class GainsOfSwaps(Gains):
    """Of all pairs of positions of sorted rows."""

    decision: Order
    gains: SwapGains

    def loss(self, temperature: Tensor | float, beta: float) -> Tensor:
        scores = self.decision.sorted_comparisons() / temperature
        length, num_seen = scores.shape[-1], self.decision.num_seen
        num_pairs = (num_seen * (2 * length - num_seen - 1)) // 2
        if num_pairs * self.decision.rows.numel() > MAX_PAIRS:
            return all_pairs_loss(scores, self.gains, beta=beta) / length
        upper, lower = torch.triu_indices(num_seen, length, 1, device=scores.device)
        margins = (scores[..., lower] - scores[..., upper]).movedim(-1, 0)
        return margin_loss(margins, self.gains.of_pairs(upper, lower).to(scores.dtype), beta=beta) / length

    def at(self, option: Tensor, row: Tensor) -> Tensor:
        upper, lower = self.decision.swaps[option]
        each = torch.arange(len(row), device=row.device)
        return self.gains.of_pairs(upper, lower).reshape(len(row), -1)[each, row]

    def is_nothing(self) -> bool:
        first_options = torch.arange(min(self.decision.num_options, MAX_PAIRS), device=self.gains.labels.device)
        return not bool(self.gains.of_pairs(*self.decision.swaps[first_options]).any())


def _num_partners(decision: Decision) -> int:
    """An item of a row could change places with every other: the mean over them is what its place is worth."""
    return decision.outcome.shape[-1] if isinstance(decision, Order) else 1


def every_option(decision: Decision) -> tuple[Tensor, Tensor]:
    """Option and row, ``[L * rows]`` each."""
    num_rows, device = decision.rows.numel(), decision.outcome.device
    number = torch.arange(decision.num_options * num_rows, device=device)
    return number // max(num_rows, 1), number % max(num_rows, 1)


class Way(Enum):
    """How the gains of a decision are found."""

    SORTED = "sorted lanes"
    BY_ROW = "lanes by row"
    WHOLE = "whole lanes"
    CHECK = "dropped, it only checks the set"

    def __str__(self) -> str:
        return self.value


Numbers = tuple[int, ...]
"""Of decisions, in the order of the code, that are one; the first leads."""


@dataclass(frozen=True, eq=False)
class Run:
    """What one run of the metric has shown."""

    goodness: Tensor
    decisions: Sequence[Decision]
    gains: Mapping[Numbers, Gains] = field(default_factory=dict)
    """Of those decisions that the value depends on."""
    checks: Collection[Numbers] = ()
    """Decisions that only steer an ``any()`` or ``all()`` of everything."""


def lift(subject: Subject, ways: Mapping[Numbers, Way]) -> Run:
    """The gains of several decisions in one run, each by sorted lanes or lanes by row.

    Raises :class:`~lossmith.tracing.lanes.Unsupported`, or whatever code raises that does not take lanes for tensors.
    """
    group_of = {number: numbers for numbers in ways for number in numbers}
    leaders: dict[Numbers, Decision] = {}
    forks: dict[Numbers, Fork | SortedFork] = {}

    def override(number: int, decision: Decision) -> Tensor | None:
        numbers = group_of.get(number)
        if numbers is None:
            return None
        leader = leaders.setdefault(numbers, decision)
        if ways[numbers] is Way.SORTED:
            if leader is not decision:
                raise Unsupported("an order that is asked for twice")
            forks[numbers] = sorted_fork = SortedFork(decision.outcome)
            return sorted_fork.index()
        options = decision.options(leader)
        fork = forks.setdefault(numbers, Fork(returns_float=subject.returns_float))
        assert isinstance(fork, Fork)
        if leader is decision:
            fork.ask(decision.rows, len(options), options.device)
        return fork.lanes(torch.cat((decision.outcome.unsqueeze(0), options)))

    value, trace = subject.run(override=override)
    goodness = subject.goodness(value.sum() if isinstance(value, Lanes) else value)
    gains: dict[Numbers, Gains] = {}
    weights = {numbers: fork.all_weights() for numbers, fork in forks.items()}
    every_weight = [weight for each in weights.values() for weight in each]
    if goodness.requires_grad and every_weight:
        gradients = iter(torch.autograd.grad(goodness, every_weight, allow_unused=True))
        for numbers, fork in forks.items():
            of_fork = [next(gradients) for _ in weights[numbers]]
            leader = leaders[numbers]
            if all(gradient is None for gradient in of_fork):
                continue
            if any(gradient is not None and not bool(gradient.sum().isfinite()) for gradient in of_fork):
                raise Unsupported("a gain that is no number")
            if isinstance(fork, SortedFork):
                assert isinstance(leader, Order)
                gains[numbers] = GainsOfSwaps(leader, fork.gains(of_fork))
            elif of_fork[0] is not None:
                gains[numbers] = GainsOfAll(leader, of_fork[0])
    checks = [
        numbers for numbers, fork in forks.items() if isinstance(fork, Fork) and fork.is_checked and not fork.is_summed
    ]
    return Run(goodness.detach(), trace.decisions, gains, checks)


def whole(subject: Subject, numbers: Sequence[int], option: Tensor, row: Tensor, *, at_once: int) -> tuple[Tensor, int]:
    """``[B]``: the goodness when option ``option[b]`` is taken in row ``row[b]``, and how many runs it took."""
    leaders: list[Decision] = []
    fork = Fork(returns_float=subject.returns_float)

    def override(number: int, decision: Decision) -> Tensor | None:
        if number not in numbers:
            return None
        outcomes = decision.single_options(option, row, *leaders[:1])
        leaders.append(decision)
        return outcomes[0] if len(row) == 1 else fork.lanes(outcomes)

    if len(row) > at_once:
        parts = [
            whole(subject, numbers, *part, at_once=at_once) for part in zip(option.split(at_once), row.split(at_once))
        ]
        return torch.cat([values for values, _ in parts]), sum(num_runs for _, num_runs in parts)
    try:
        with torch.no_grad():
            value, _ = subject.run(override=override, only=frozenset(numbers))
    except Diverged as diverged:
        values = torch.empty(len(row), dtype=torch.float64, device=row.device)
        num_runs = 1
        for group in range(int(diverged.group.max()) + 1):
            index = (diverged.group == group).nonzero().squeeze(1)
            values[index], more = whole(subject, numbers, option[index], row[index], at_once=at_once)
            num_runs += more
        return values, num_runs
    except Exception:
        # code that fails on lanes, which are not quite ordinary tensors, gets ordinary ones
        if len(row) == 1:
            raise
        parts = [whole(subject, numbers, *part, at_once=1) for part in zip(option.split(1), row.split(1))]
        return torch.cat([values for values, _ in parts]), len(parts)
    if isinstance(value, Lanes):
        return value.lanes.reshape(len(row)).double() * subject.sign, 1
    return subject.goodness(value).double().expand(len(row)), 1
