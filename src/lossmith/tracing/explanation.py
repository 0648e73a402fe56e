"""What a traced loss has found in the code of a metric."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

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
    way: str
    """How its gains are found."""
    error: float
    """Of the largest gain, on a sample."""

    def __str__(self) -> str:
        options = "option" if self.num_options == 1 else "options"
        error = f", off by {self.error:.1%} at most" if self.error else ""
        where = " and ".join(self.sources)
        return f"{self.operation} at {where}: {self.num_rows:,} × {self.num_options:,} {options}; {self.way}{error}"


@dataclass(frozen=True)
class Explanation:
    """``str()`` of it is for people."""

    value: float
    decisions: tuple[ExplainedDecision, ...]
    num_runs: int
    """Runs of the metric for one loss; one run may hold many lanes."""
    milliseconds: float
    """To find all gains once."""
    milliseconds_of_metric: float
    black_box: str = ""
    """Why the loss follows the metric by random steps, if it does."""
    is_continuous: bool = False

    def __str__(self) -> str:
        lines = [f"metric {self.value:.6g}, {self.milliseconds_of_metric:.2f} ms"]
        lines += [f"- {decision}" for decision in self.decisions]
        if self.is_continuous:
            lines.append("- the value has a gradient of its own, which is part of the loss")
        if self.black_box:
            lines.append(f"- not traced, followed by random steps: {self.black_box}")
        lines.append(f"gains: {self.num_runs} runs of the metric, {self.milliseconds:.2f} ms")
        return "\n".join(lines)


def explain(subject: Subject, plan: Plan, temperature: float) -> Explanation:
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
    _, trace = subject.run()
    decisions = tuple(
        ExplainedDecision(
            operation=" and ".join(dict.fromkeys(plan.places[number][0] for number in group.numbers)),
            sources=tuple(dict.fromkeys(plan.places[number][1] for number in group.numbers)),
            num_rows=trace.decisions[group.numbers[0]].rows.numel(),
            num_options=trace.decisions[group.numbers[0]].num_options,
            way=_way_of(group),
            error=group.error,
        )
        for group in plan.groups
    )
    return Explanation(
        value=float(value),
        decisions=decisions,
        num_runs=num_runs,
        milliseconds=seconds * 1e3,
        milliseconds_of_metric=seconds_of_metric * 1e3,
        black_box=plan.black_box,
        is_continuous=plan.is_continuous,
    )


def _way_of(group: Group) -> str:
    if group.way is not Way.WHOLE:
        return str(group.way)
    way = "one run for each option" if group.is_looped else str(group.way)
    return f"{way}, rows of equal target and outcome together" if group.is_shared else way
