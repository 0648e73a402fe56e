"""Which way of finding gains serves a metric: found out once, by trying, and checked again now and then.

The survey of a metric runs it twice (does it draw lots?), replays another set's decisions on this one (does the value
depend on anything else?), puts decisions together that are one, and compares every fast way of finding gains with runs
in which one decision was really changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lossmith.tracing.decisions import Choice, Decision, Order
from lossmith.tracing.gains import (
    Gains,
    GainsOfAll,
    GainsOfSome,
    Numbers,
    Run,
    Subject,
    Way,
    every_option,
    lift,
    whole,
)
from lossmith.tracing.reading import LEAVING, Reading
from lossmith.tracing.recording import Trace, states_of_generators
from lossmith.tracing.scores import Score
from lossmith.tracing.table import Tables

# no gain is off by more than this share of the largest: the way is exact; close, if the two bars below are met
EXACT = 1e-3
MIN_AGREEMENT = 0.99
MIN_CORRELATION = 0.99
# more evaluations of code that calls random generators
NUM_RERUNS = 4
# more sets of scores for code that reads them out of sight; a metric of few values may agree on some by chance
NUM_OF_ALL_SORTS = 8
# options compared at a time: as many that a way calls worth something, and as many at random
NUM_COMPARED = 24
# numbers that all lanes of a run together may hold in one tensor, and in all runs for one loss
MAX_NUMBERS_OF_RUN = 2**21
MAX_NUMBERS = 2**23
# options of one loss where every one of them takes a run of its own; fewer where a run takes many decisions
MAX_RUNS = 64
MIN_RUNS = 16
MAX_DECISIONS_OF_RUNS = 8192
# groups with a run of lanes each; of more, which are rows in a loop, options are drawn
MAX_WHOLE = 128
# more, taken one by one in a loop of Python, cost seconds for every loss
MAX_DECISIONS = 1024
# groups of single rows that show how all others from the same line are run
NUM_SAMPLED_OF_PLACE = 3
# pairs of rows that have to agree on a gain before rows of equal target and outcome stand for each other
MIN_SHOWN = 4


@dataclass(frozen=True)
class Group:
    """Decisions that are one; the first of them leads."""

    numbers: Numbers
    way: Way = Way.WHOLE
    is_tested: bool = True
    """Some gain was not zero when the way was compared."""
    error: float = 0.0
    """Of the largest gain."""
    is_shared: bool = False
    """Rows of equal target and outcome are interchangeable."""
    is_looped: bool = False
    """Whole lanes go different ways: every option takes a run."""


@dataclass(frozen=True)
class Plan:
    places: tuple[tuple[str, str], ...]
    """Operation and ``file:line`` of every decision, in the order of the code."""
    groups: tuple[Group, ...]
    is_together: bool = True
    """One run serves all groups that need no whole lanes."""
    is_continuous: bool = False
    """The value has a gradient of its own."""
    returns_float: bool = False
    reading: Reading = Reading.WINNERS
    black_box: str = ""
    """Why decisions are not the whole truth, if they are not."""

    @property
    def is_tested(self) -> bool:
        return all(group.is_tested for group in self.groups)

    @property
    def ways(self) -> str:
        return ", ".join(str(group.way) for group in self.groups)

    def matches(self, decisions: Sequence[Decision]) -> bool:
        """Did the code take the way that it took in the survey?"""
        return [place[0] for place in self.places] == [decision.operation for decision in decisions]


def survey(subject: Subject, generator: torch.Generator) -> Plan:
    """Try what works for this metric on this set."""
    subject = replace(subject, outputs=subject.outputs.detach().requires_grad_())
    states = states_of_generators()
    value, trace = subject.run(wants_sources=True)
    moved = [name for name, state in states_of_generators().items() if state != states[name]]
    _check_value(subject, value, trace, sorted({*trace.random_calls, *moved}))
    plan = Plan(
        places=tuple((decision.operation, decision.source) for decision in trace.decisions),
        groups=(),
        is_continuous=isinstance(value, Score) and value.requires_grad,
        returns_float=isinstance(value, float) and value is trace.last_float,
        reading=subject.reading,
    )
    subject = replace(subject, returns_float=plan.returns_float)
    why_not = _why_not_followed(subject, value, trace)
    if why_not:
        return replace(plan, black_box=why_not)
    leaving = [decision for decision in trace.decisions if decision.operation == LEAVING]
    if plan.is_continuous and leaving:  # no replay could show that it was read right
        return survey(replace(subject, reading=Reading.NOTHING), generator)
    if not plan.is_continuous and not _replays(subject, trace, generator):
        if leaving:
            is_table = any(decision.comparisons.dim() == 2 for decision in leaving)
            following = list(Reading)[list(Reading).index(subject.reading) + 1] if is_table else Reading.NOTHING
            return survey(replace(subject, reading=following), generator)
        return replace(plan, black_box=_why_not_traced(trace))
    return _with_ways(plan, _groups(trace.decisions), subject, trace.decisions, subject.goodness(value), generator)


def improvise(decisions: Sequence[Decision], plan: Plan) -> Plan:
    """For code that takes another way than usual: whole lanes for everything."""
    places = tuple((decision.operation, decision.source) for decision in decisions)
    groups = tuple(replace(group, is_looped=True) for group in _groups(decisions))
    return replace(plan, places=places, groups=groups)


def find(
    plan: Plan, subject: Subject, temperature: float, generator: torch.Generator, tables: Tables | None = None
) -> tuple[Tensor, dict[Numbers, Gains]]:
    """The goodness of the set (with a gradient, where it has one of its own), and the gains of all decisions."""
    subject = replace(subject, returns_float=plan.returns_float, reading=plan.reading)
    slow = [group for group in plan.groups if group.way is Way.WHOLE]
    fast = [group for group in plan.groups if group.way in (Way.SORTED, Way.BY_ROW)]
    if len(fast) != 1 or slow or plan.is_continuous or fast[0].way is not Way.BY_ROW:
        tables = None
    if tables is not None and tables.has_one_for(subject.targets):
        value, trace = subject.run()
        if plan.matches(trace.decisions):
            goodness, decision = subject.goodness(value), trace.decisions[fast[0].numbers[0]]
            worth = tables.look_up(decision, subject.targets, float(goodness))
            if worth is not None:
                return goodness, {fast[0].numbers: GainsOfAll(decision, worth)}
    lifted = _lifted(fast, subject, plan.is_together)
    if lifted is None:  # on this set the code does what lanes cannot follow
        slow, lifted = [group for group in plan.groups if group.way is not Way.CHECK], {}
    if lifted and not plan.is_continuous:
        first = next(iter(lifted.values()))
    else:
        value, trace = subject.run()
        first = Run(subject.goodness(value), trace.decisions)
    if not plan.matches(first.decisions):
        slow, lifted = list(improvise(first.decisions, plan).groups), {}
    gains = {numbers: run.gains[numbers] for numbers, run in lifted.items() if numbers in run.gains}
    for each in gains.values() if tables is not None else ():
        if isinstance(each, GainsOfAll) and tables is not None:
            tables.learn(each.decision, each.gains, subject.targets, float(first.goodness))
    return first.goodness, gains | _in_whole_lanes(slow, subject, first, temperature, generator)


def recheck(plan: Plan, subject: Subject, generator: torch.Generator) -> Plan:
    """The same plan, or one with slower ways in place of those that did not hold on this set."""
    subject = replace(subject, returns_float=plan.returns_float, reading=plan.reading)
    value, trace = subject.run()
    if not plan.matches(trace.decisions):
        return plan
    return _with_ways(plan, list(plan.groups), subject, trace.decisions, subject.goodness(value), generator)


def _lifted(groups: Sequence[Group], subject: Subject, is_together: bool) -> dict[Numbers, Run] | None:
    """The run that has the gains of each group; None if a run did not end."""
    runs: dict[Numbers, Run] = {}
    for part in [groups] if is_together else [[group] for group in groups]:
        run = _try_run(subject, part)
        if run is None:
            return None
        runs |= {group.numbers: run for group in part}
    return runs


def _try_run(subject: Subject, groups: Sequence[Group]) -> Run | None:
    try:
        return lift(subject, {group.numbers: group.way for group in groups})
    except Exception:  # the code was written for ordinary tensors: whatever it meets with others, another way is taken
        return None


def _why_not_followed(subject: Subject, value: Any, trace: Trace) -> str:
    """What is clear before anything is replayed."""
    if len(trace.decisions) > MAX_DECISIONS:
        place = Counter((decision.operation, decision.source) for decision in trace.decisions).most_common(1)[0]
        (operation, source), num_times = place
        return (
            f"{operation} at {source} decides {num_times:,} times, one by one, and up to {MAX_DECISIONS:,} are "
            "followed; an operation on a whole tensor is one, whatever its size"
        )
    # the decisions of other outputs do not give the value of the others where it has a gradient of its own: what is not
    # seen has to be taken for a part of it
    if isinstance(value, Score) and value.requires_grad:
        if trace.escapes:
            return _escapes(trace)
        if trace.has_gradientless:
            return f"nothing is known of {_places(trace.unread)}"
    plain = subject.goodness(subject.fn(subject.outputs.detach().clone(), subject.targets.clone()))
    if not _is_same(plain, subject.goodness(value).detach().double()):
        return "the code gives another value when it is watched: it writes to parts of tensors that it reads elsewhere"
    return ""


def _why_not_traced(trace: Trace) -> str:
    if trace.escapes:
        return _escapes(trace)
    if trace.unread:
        return f"nothing is known of {_places(trace.unread)}"
    if trace.decisions:
        return "the decisions of other outputs, replayed on these, do not give the value that the others have"
    return "no operation of torch was seen to decide on them, as if the code were compiled or its value constant"


def _escapes(trace: Trace) -> str:
    return f"scores leave torch by {_places(trace.escapes)}"


def _places(named: Sequence[str]) -> str:
    first, *others = dict.fromkeys(named)
    return f"{first}{f' and {len(others)} more places' if others else ''}"


def _check_value(subject: Subject, value: object, trace: Trace, drawn: Sequence[str]) -> None:
    """A second run must give the same; code that draws from generators has more chances to give itself away."""
    first = subject.goodness(value).detach()
    for _ in range(NUM_RERUNS if drawn else 1):
        again, trace_of_again = subject.run()
        second = subject.goodness(again).detach()
        if not torch.equal(first.nan_to_num(), second.nan_to_num()) or not _compare_the_same(trace, trace_of_again):
            named = f" (it calls {', '.join(drawn)})" if drawn else ""
            differs = f"two evaluations of one set gave {float(first):.6g} and {float(second):.6g}"
            if float(first) == float(second):
                differs = "two evaluations of one set compared different scores"
            reason = "draws lots" if drawn else "draws lots, or remembers earlier calls"
            raise ValueError(
                f"the metric {reason}{named}: {differs}; a function of the outputs and targets alone works."
            )


def _compare_the_same(trace: Trace, other: Trace) -> bool:
    pairs = zip(trace.decisions, other.decisions)
    return len(trace.decisions) == len(other.decisions) and all(
        torch.equal(first.comparisons.nan_to_num(), second.comparisons.nan_to_num()) for first, second in pairs
    )


def _replays(subject: Subject, trace: Trace, generator: torch.Generator) -> bool:
    """Do the decisions of other outputs, replayed on these, give the value of the other outputs?"""
    outputs = subject.outputs.detach()
    noise = torch.randn(outputs.shape, generator=generator).to(outputs)
    finite = outputs.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).float()
    scale = finite.std(correction=0).clamp(min=1e-3).to(outputs.dtype)
    # the last two take the same order, and tell who reads more of the scores than that
    others = [outputs + noise * scale, outputs + 0.3 * noise * scale, 0.1 * outputs, outputs + scale]
    leaves = any(decision.operation == LEAVING for decision in trace.decisions)
    if leaves:
        others += _others_of_all_sorts(outputs, generator)
    values = set()
    for other in others if trace.decisions else ():
        try:
            expected, replayed = _replay(subject, other)
        except ValueError:
            if not leaves:
                raise
            return False  # code that checks what it is given, as that the numbers of a row sum to 1
        if not bool(torch.isclose(expected, replayed, rtol=1e-4, atol=1e-5, equal_nan=True)):
            return False
        values.add(float(expected))
    # out of sight, a value that was the same for all of them shows nothing
    return len(values) > (1 if leaves else 0)


def _others_of_all_sorts(outputs: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Scores on both sides of the usual thresholds, and rows and columns far from each other: code that nobody watches
    may compare any of them.
    """
    others = []
    for _ in range(NUM_OF_ALL_SORTS):
        noise, of_row, of_column = (
            torch.randn(shape, generator=generator).to(outputs)
            for shape in (outputs.shape, outputs.shape[:1], outputs.shape[1:])
        )
        other = noise + of_row.view(-1, *(1 for _ in outputs.shape[1:]))
        others.append(other + 2 * of_column if outputs.dim() > 1 else other)
    return others


def _replay(subject: Subject, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The goodness of these outputs, and that of the subject's when it is told their decisions."""
    with torch.no_grad():
        value, trace = replace(subject, outputs=outputs).run()
        outcomes = dict(enumerate(decision.outcome for decision in trace.decisions))
        # code that reads scores in other ways may come to more decisions than it did there
        replayed, _ = subject.run(override=lambda number, _: outcomes.get(number))
    return subject.goodness(value).double(), subject.goodness(replayed).double()


def _groups(decisions: Sequence[Decision]) -> list[Group]:
    groups: list[list[int]] = []
    by_key: dict[Any, list[list[int]]] = {}
    for number, decision in enumerate(decisions):
        could_be_same: list[list[int]] = []
        if decision.comparisons.numel() > 1:  # single numbers may be equal by chance
            # equal up to the sign
            first = float(decision.comparisons.detach().flatten()[0].abs())
            could_be_same = by_key.setdefault((decision.comparisons.shape, first), [])
        same = next((numbers for numbers in could_be_same if decision.is_same_as(decisions[numbers[0]])), None)
        if same is not None:
            same.append(number)
        elif decision.num_options and decision.rows.numel():
            groups.append([number])
            could_be_same.append(groups[-1])
    return [Group(tuple(numbers)) for numbers in groups]


def _with_ways(
    plan: Plan,
    groups: Sequence[Group],
    subject: Subject,
    decisions: Sequence[Decision],
    goodness: Tensor,
    generator: torch.Generator,
) -> Plan:
    """The fastest way for each group that is exact on a sample of options; else whole lanes, or if these take too long
    a way that comes close.
    """
    goodness = goodness.detach().double()
    samples = {
        group.numbers: _Sample(subject, group, decisions[group.numbers[0]], goodness, len(groups), generator)
        for group in groups
    }
    candidates = {group.numbers: _ways(decisions[group.numbers[0]]) for group in groups}
    found: dict[Numbers, Group] = {group.numbers: group for group in groups if group.way is Way.CHECK}
    # all at once in one run, then those that this has not served one by one
    together = [replace(group, way=candidates[group.numbers][0]) for group in groups if candidates[group.numbers]]
    of_rows = [group for group in together if group.way is Way.BY_ROW]
    for trial in [
        together,
        of_rows,
        *([replace(group, way=way)] for group in groups for way in candidates[group.numbers]),
    ]:
        trial = [group for group in trial if group.numbers not in found]
        run = _try_run(subject, trial) if trial else None
        if run is not None and _is_same(run.goodness, goodness):
            for group in trial:
                result = samples[group.numbers].try_way(group, run)
                if result is not None:
                    found[group.numbers] = result
    of_places: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.numbers in found:
            continue
        # a loop over rows comes to the same line again and again
        alike = of_places.setdefault(plan.places[group.numbers[0]], [])
        is_row = decisions[group.numbers[0]].rows.numel() == 1
        if is_row and len(alike) >= NUM_SAMPLED_OF_PLACE and len({each.is_looped for each in alike}) == 1:
            found[group.numbers] = replace(alike[0], numbers=group.numbers)
        else:
            found[group.numbers] = samples[group.numbers].otherwise()
            alike.append(found[group.numbers])
    chosen = tuple(found[group.numbers] for group in groups)
    if sum(group.way is Way.WHOLE for group in chosen) > MAX_WHOLE:
        chosen = tuple(replace(group, is_looped=group.way is Way.WHOLE) for group in chosen)
    fast = [group for group in chosen if group.way in (Way.SORTED, Way.BY_ROW)]
    run = _try_run(subject, fast) if len(fast) > 1 else None
    is_together = len(fast) <= 1 or (run is not None and len(run.gains) == len(fast))
    return replace(plan, groups=chosen, is_together=is_together)


def _ways(decision: Decision) -> list[Way]:
    ways = [Way.SORTED] if isinstance(decision, Order) else []
    num_numbers = decision.num_options * decision.outcome.numel()
    return [*ways, Way.BY_ROW] if decision.rows.numel() > 1 and num_numbers <= 4 * MAX_NUMBERS else ways


def _is_same(goodness: Tensor, expected: Tensor) -> bool:
    return bool(torch.isclose(goodness.double(), expected, rtol=1e-4, atol=1e-6, equal_nan=True))


class _Sample:
    """Options of a group of which the gains are known: the metric was run with each of them."""

    def __init__(
        self,
        subject: Subject,
        group: Group,
        decision: Decision,
        goodness: Tensor,
        num_groups: int,
        generator: torch.Generator,
    ) -> None:
        self.subject, self.group, self.decision, self.goodness = subject, group, decision, goodness
        self.generator = generator
        self.close: Group | None = None
        self.num_runs = self.num_options = 0
        self.size = max(subject.outputs.numel(), decision.outcome.numel(), 1)
        self.num_compared = max(min(NUM_COMPARED, MAX_NUMBERS // self.size, 4 * NUM_COMPARED // num_groups), 2)
        # seven digits of the value are not more of the gain
        self.noise = 4 * torch.finfo(torch.float32).eps * max(float(goodness.abs().nan_to_num()), 1e-3)

    def try_way(self, group: Group, run: Run) -> Group | None:
        """The group, if its gains in this run are exact."""
        if group.numbers in run.checks:
            return replace(group, way=Way.CHECK)
        if group.numbers not in run.gains:
            return None
        error, is_close, is_tested = self.compare(run.gains[group.numbers])
        group = replace(group, error=error, is_tested=is_tested)
        if is_close and self.close is None:
            self.close = group
        return group if error <= EXACT else None

    def otherwise(self) -> Group:
        is_looped, is_shared = self.how_to_run()
        group = replace(self.group, way=Way.WHOLE, error=0.0, is_tested=True, is_looped=is_looped, is_shared=is_shared)
        every = _every(group, self.decision, self.subject.targets)
        return self.close if self.close is not None and not _is_affordable(every, self.subject) else group

    def compare(self, gains: Gains) -> tuple[float, bool, bool]:
        """Error as a share of the largest gain; is that close?; was there any gain?"""
        option, row = self._draw(20 * self.num_compared)
        found = gains.at(option, row).double()
        # as many that are said to be worth something as others
        worthy = found.nonzero().squeeze(1)[: self.num_compared]
        chosen = torch.cat((worthy, torch.arange(self.num_compared, device=row.device)))
        option, row, found = option[chosen], row[chosen], found[chosen]
        true = self.true_gains(option, row)
        largest = float(true.abs().amax())
        error = max(float((found - true).abs().nan_to_num(torch.inf).amax()) - self.noise, 0) / max(largest, self.noise)
        return error, _are_close(found, true, self.noise), largest > 10 * self.noise

    def true_gains(self, option: Tensor, row: Tensor) -> Tensor:
        values, num_runs = whole(self.subject, self.group.numbers, option, row, at_once=_at_once(self.size))
        self.num_runs, self.num_options = self.num_runs + num_runs, self.num_options + len(row)
        return (values - self.goodness).nan_to_num(0)

    def how_to_run(self) -> tuple[bool, bool]:
        """Do lanes diverge, and can rows of equal target and outcome stand for each other?"""
        if self.decision.num_options * self.decision.rows.numel() == 1:
            return True, False
        if self.decision.rows.numel() == 1:  # of a loop over rows: every run counts
            option = torch.arange(min(self.decision.num_options, NUM_COMPARED), device=self.decision.outcome.device)
            self.true_gains(option, torch.zeros_like(option))
            return self.num_runs > 1, False
        option, row = self._draw(self.num_compared)
        gains = self.true_gains(option, row)
        is_looped = self.num_options > 1 and self.num_runs > self.num_options // 2
        first = _first_of_key(self.decision, self.subject.targets)
        if first is None:
            return is_looped, False
        others = self.true_gains(option, first[row])
        largest = max(float(gains.abs().amax()), float(others.abs().amax()))
        # what depends on the other rows is worth nothing most of the time, and then all rows look alike
        shows = (first[row] != row) & ((gains.abs() > 10 * self.noise) | (others.abs() > 10 * self.noise))
        is_alike = float((gains - others).abs().amax()) <= 2 * self.noise + EXACT * largest
        return is_looped, is_alike and int(shows.sum()) >= MIN_SHOWN

    def _draw(self, num: int) -> tuple[Tensor, Tensor]:
        num_rows, device = self.decision.rows.numel(), self.decision.outcome.device
        number = torch.randint(self.decision.num_options * num_rows, (num,), generator=self.generator).to(device)
        return number // num_rows, number % num_rows


def _are_close(found: Tensor, true: Tensor, noise: float) -> bool:
    is_worth = true.abs() > noise
    if not bool(is_worth.any()):
        return bool((found.abs() <= noise).all())
    agreement = float((found.sign() == true.sign())[is_worth].double().mean())
    both = torch.stack((found, true))
    # where all gains are equal they do not correlate
    correlation = 1.0 if bool((both.std(1) <= noise).any()) else float(torch.corrcoef(both)[0, 1])
    return agreement >= MIN_AGREEMENT and correlation >= MIN_CORRELATION


def _at_once(size: int) -> int:
    return max(MAX_NUMBERS_OF_RUN // size, 1)


def _first_of_key(decision: Decision, targets: Tensor) -> Tensor | None:
    """``[rows]``: the first row with the same target and outcome; None where targets do not belong to rows."""
    if isinstance(decision, Order) or decision.rows.numel() != targets.numel() or decision.rows.numel() < 2:
        return None
    keys = torch.stack((targets.flatten().double(), decision.outcome.flatten().double()))
    key = torch.unique(keys, dim=1, return_inverse=True)[1]
    row = torch.arange(len(key), device=key.device)
    first = row.new_full((int(key.max()) + 1,), len(key)).scatter_reduce(0, key, row, "amin")
    return first[key]


@dataclass(frozen=True, eq=False)
class _Options:
    """Options of one group, of which some stand for several: number ``inverse[l, row]`` has the gain of an option."""

    group: Group
    decision: Decision
    option: Tensor
    row: Tensor
    inverse: Tensor | None = None


def _every(group: Group, decision: Decision, targets: Tensor) -> _Options:
    option, row = every_option(decision)
    first = _first_of_key(decision, targets) if group.is_shared else None
    if first is None:
        return _Options(group, decision, option, row)
    number, inverse = torch.unique(option * len(first) + first[row], return_inverse=True)
    return _Options(group, decision, number // len(first), number % len(first), inverse)


def _is_affordable(options: _Options, subject: Subject) -> bool:
    if options.group.is_looped:
        return len(options.row) <= MAX_RUNS
    return len(options.row) * max(subject.outputs.numel(), options.decision.outcome.numel()) <= MAX_NUMBERS


def _in_whole_lanes(
    groups: Sequence[Group], subject: Subject, run: Run, temperature: float, generator: torch.Generator
) -> dict[Numbers, Gains]:
    every = [_every(group, run.decisions[group.numbers[0]], subject.targets) for group in groups]
    num_looped = sum(len(options.row) for options in every if options.group.is_looped)
    found: dict[Numbers, Gains] = {}
    for options in every:
        decision, size = options.decision, max(subject.outputs.numel(), options.decision.outcome.numel())
        if not len(options.row):
            continue
        if options.group.is_looped:
            num_runs = min(max(MAX_DECISIONS_OF_RUNS // len(run.decisions), MIN_RUNS), MAX_RUNS)
            share = num_runs / max(num_looped, num_runs)
        else:
            share = min(MAX_NUMBERS / (size * len(options.row)), 1)
        num_meant = None
        option, row = options.option, options.row
        if share < 1:
            num = share * len(row)
            if num < 1 and float(torch.rand((), generator=generator)) >= num:
                continue  # others stand for this group
            option, row, num_meant = _drawn(decision, max(int(num), 1), temperature, generator)
            if not len(option):
                continue
            num_meant = num_meant / min(num, 1)
        values, _ = whole(subject, options.group.numbers, option, row, at_once=_at_once(size))
        gains = (values - run.goodness.double()).nan_to_num(0)
        if num_meant is not None:
            found[options.group.numbers] = GainsOfSome(decision, option, row, gains, num_meant)
        else:
            gains = gains if options.inverse is None else gains[options.inverse]
            found[options.group.numbers] = GainsOfAll(decision, gains.view(decision.num_options, *decision.rows))
    return found


def _drawn(
    decision: Decision, num: int, temperature: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Options drawn by how likely the scores are to change to them, and how many others each stands for."""
    option, row = every_option(decision)
    with torch.no_grad():
        chance = torch.sigmoid(decision.margin(option, row).float() / temperature)
        is_option = ~chance.isnan()  # of two infinities neither is larger
        if isinstance(decision, Choice):
            is_option &= option != decision.outcome.flatten()[row]
        option, row, chance = option[is_option], row[is_option], chance[is_option]
        chance = chance + 0.1 * chance.mean() + torch.finfo(chance.dtype).tiny
    if not len(option):
        return option, row, chance
    drawn = torch.multinomial(chance.cpu(), num, replacement=True, generator=generator).to(chance.device)
    return option[drawn], row[drawn], chance.sum() / (num * chance[drawn])
