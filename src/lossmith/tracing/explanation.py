"""What a traced loss has found in the code of a metric."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lossmith.tracing.decisions import Choice, Decision, Order
from lossmith.tracing.gains import Subject, Way
from lossmith.tracing.plan import Group, Plan, find


@dataclass(frozen=True)
class ExplainedDecision:
    """One decision of the metric, at all the places where it is taken."""

    operation: str
    sources: tuple[str, ...]
    """``file:line``"""
    num_rows: int
    num_options: int
    """Of each row."""
    form: str
    """Of its part of the loss."""
    way: str
    """How its gains are found."""
    error: float
    """Of the largest gain, on a sample."""
    num_times: int = 1
    """How often the code comes here: once for each row, in a loop."""

    @property
    def size(self) -> str:
        """Rows times options of each."""
        times = f"{self.num_times:,} times " if self.num_times > 1 else ""
        return f"{times}{self.num_rows:,} × {self.num_options:,}"

    def __str__(self) -> str:
        options = "option" if self.num_options == 1 else "options"
        error = f", off by {self.error:.1%} at most" if self.error else ""
        where = " and ".join(self.sources)
        return f"{self.operation} at {where}: {self.size} {options}; {self.form}; {self.way}{error}"


@dataclass(frozen=True)
class Explanation:
    """``str()`` of it is for people, :func:`dataclasses.asdict` for programs."""

    value: float
    decisions: tuple[ExplainedDecision, ...]
    num_runs: int
    """Runs of the metric for one loss; one run may hold many lanes."""
    milliseconds: float
    """To find all gains once; the first call of a loss takes longer, because it tries what serves."""
    milliseconds_of_metric: float
    dropped: tuple[str, ...] = ()
    """Decisions of the code that no outputs of this shape could have taken otherwise."""
    black_box: str = ""
    """Why the loss follows the metric by random steps, if it does."""
    is_continuous: bool = False

    def __str__(self) -> str:
        lines = [f"metric {self.value:.6g}, {self.milliseconds_of_metric:.2f} ms"]
        lines += [f"- {decision}" for decision in self.decisions]
        lines += [f"- dropped, nothing to decide here: {place}" for place in self.dropped]
        if self.is_continuous:
            lines.append("- the value has a gradient of its own, which is part of the loss")
        if self.black_box:
            lines.append(f"- not traced, followed by random steps: {self.black_box}")
        lines.append(f"gains: {self.num_runs} runs of the metric, {self.milliseconds:.2f} ms")
        return "\n".join(lines)


def explain(subject: Subject, plan: Plan, temperature: float, link: float) -> Explanation:
    """What ``plan`` does with this set."""
    num_runs = 0

    def counted(outputs: Tensor, targets: Tensor) -> Any:
        nonlocal num_runs
        num_runs += 1
        return subject.fn(outputs, targets)

    start = time.perf_counter()
    value = subject.goodness(subject.fn(subject.outputs.detach(), subject.targets)) * subject.sign
    seconds_of_metric = time.perf_counter() - start
    start = time.perf_counter()
    if not plan.black_box:
        find(plan, replace(subject, fn=counted), temperature, torch.Generator().manual_seed(0))
    seconds = time.perf_counter() - start
    _, trace = replace(subject, reading=plan.reading).run()
    decisions = tuple(
        ExplainedDecision(
            operation=" and ".join(dict.fromkeys(plan.places[number][0] for number in group.numbers)),
            sources=tuple(dict.fromkeys(plan.places[number][1] for number in group.numbers)),
            num_rows=trace.decisions[group.numbers[0]].rows.numel(),
            num_options=trace.decisions[group.numbers[0]].num_options,
            form=_form(trace.decisions[group.numbers[0]], link),
            way=_way_of(group),
            error=group.error,
        )
        for group in plan.groups
    )
    grouped = {number for group in plan.groups for number in group.numbers}
    left = [place for number, place in enumerate(plan.places) if number not in grouped and not plan.black_box]
    return Explanation(
        value=float(value),
        decisions=tuple(replace(decision, num_times=times) for decision, times in Counter(decisions).items()),
        num_runs=num_runs,
        milliseconds=seconds * 1e3,
        milliseconds_of_metric=seconds_of_metric * 1e3,
        dropped=tuple(dict.fromkeys(f"{operation} at {source}" for operation, source in left)),
        black_box=plan.black_box,
        is_continuous=plan.is_continuous,
    )


def _form(decision: Decision, link: float) -> str:
    if isinstance(decision, Choice):
        name = "cross-entropy" if link == 0 else "generalised cross-entropy"
        return f"{name} of the better alternatives, weighted by gains"
    if isinstance(decision, Order):
        return "logistic loss of pairs, weighted by the gains of swaps (LambdaRank)"
    name = "binary cross-entropy" if link == 0 else "generalised binary cross-entropy"
    return f"{name}, weighted by gains"


def _way_of(group: Group) -> str:
    if group.way is not Way.WHOLE:
        return str(group.way)
    way = "one run for each option" if group.is_looped else str(group.way)
    return f"{way}, rows of equal target and outcome together" if group.is_shared else way
