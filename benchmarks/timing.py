"""Fair timing on a busy machine: one thread, ours and the peer in turns, the best of each, in seconds of the processor.

Seconds of the clock would flatter us: a neighbour interrupts a long call of the peer and misses a short one of ours.

A benchmark is a list of :class:`Row`; :func:`report` prints them and says whether every bar is met.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True)
class Row:
    """One measurement beside its bar: at least (or at most) ``bar``; without a bar it is only told."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    is_at_least: bool = True
    note: str = ""

    @property
    def is_met(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.is_at_least else self.value <= self.bar


def use_one_thread() -> None:
    torch.set_num_threads(1)


def best_seconds(call: Callable[[], object], *, budget: float = 1.0, max_calls: int = 200) -> float:
    """Seconds of the fastest call within ``budget`` seconds, after one call to warm up."""
    return best_seconds_of([call], budget=budget, max_calls=max_calls)[0]


def best_seconds_of(calls: Sequence[Callable[[], object]], *, budget: float = 1.0, max_calls: int = 200) -> list[float]:
    """The same for several calls that take turns, so that a neighbour's load hits all of them alike."""
    for call in calls:
        call()
    best = [float("inf")] * len(calls)
    spent = [0.0] * len(calls)
    num_calls = 0
    while min(spent) < budget and num_calls < max_calls:
        for index, call in enumerate(calls):
            start = time.process_time()
            call()
            seconds = time.process_time() - start
            best[index] = min(best[index], seconds)
            spent[index] += seconds
        num_calls += 1
    return best


def report(measure: Callable[[], list[Row]], description: str) -> None:
    """Parse the command line, measure, print a table (or JSON as the last line), exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args()
    use_one_thread()
    rows = measure()
    width = max(len(row.name) for row in rows)
    for row in rows:
        sign = "≥" if row.is_at_least else "≤"
        bar = "" if row.bar is None else f"  ({sign} {row.bar:g}: {'met' if row.is_met else 'MISSED'})"
        print(f"{row.name:<{width}}  {row.value:10.3f} {row.unit}{bar}{'  ' + row.note if row.note else ''}")
    is_met = all(row.is_met for row in rows)
    if arguments.json:
        versions = {"torch": torch.__version__, "python": sys.version.split()[0], "cores": os.cpu_count()}
        print(json.dumps({"met": is_met, "versions": versions, "rows": [asdict(row) for row in rows]}))
    sys.exit(0 if is_met else 1)
