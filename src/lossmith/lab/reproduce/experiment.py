"""An experiment is a list of units of work, and a judgement of their results.

A unit (one training run, one measurement) is the smallest piece whose result is kept: finished ones lie in the folder
of the run as JSON, so an experiment that is killed goes on with the unit that it was at. The judgement is computed from
the results whenever they are shown; what is committed are the results alone.

>>> from tempfile import TemporaryDirectory
>>> def halve(number):
...     yield 0.5
...     return {"half": number / 2}
>>> toy = Experiment(
...     "halves",
...     "Halves of numbers.",
...     {"smoke": "at once"},
...     units=lambda scale: [Unit(f"of{n}", {"number": n}, lambda folder, n=n: halve(n)) for n in (2, 3)],
...     judge=lambda scale, results: Verdict(("", "half"), [(name, str(r["half"])) for name, r in results.items()], []),
... )
>>> with TemporaryDirectory() as folder:
...     [progress.num_done for progress in experiment_steps(toy, "smoke", Path(folder))]
...     read_results(toy, "smoke", Path(folder))
[0.5, 1, 1.5, 2]
{'of2': {'half': 1.0}, 'of3': {'half': 1.5}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Result = dict[str, Any]
Told = TypeVar("Told")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Unit:
    """``work(folder)`` yields the share that is done and returns what JSON can hold.

    The folder is the unit's own, for checkpoints. A result is only taken up again with the same ``settings``.
    """

    name: str
    settings: Mapping[str, Any]
    work: Callable[[Path], Generator[float, None, Result]]


@dataclass(frozen=True)
class Bar:
    """A number that an experiment must reach."""

    what: str
    value: float
    bar: float
    is_at_least: bool = True

    @property
    def is_met(self) -> bool:
        return self.value >= self.bar if self.is_at_least else self.value <= self.bar

    def __str__(self) -> str:
        sign = "≥" if self.is_at_least else "≤"
        return f"{self.what}: {self.value:.4f} {sign} {self.bar:g}, {'met' if self.is_met else 'MISSED'}"


@dataclass(frozen=True)
class Verdict:
    """A table for people, and the bars: none at a scale that is too small for any."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    bars: Sequence[Bar]

    @property
    def is_met(self) -> bool:
        return all(bar.is_met for bar in self.bars)


@dataclass(frozen=True)
class Experiment:
    """``units`` and ``judge`` are given the scale; ``judge`` also the results, by the names of the units."""

    name: str
    what: str
    scales: Mapping[str, str]
    """What each scale runs and how long that takes."""
    units: Callable[[str], Sequence[Unit]]
    judge: Callable[[str, Mapping[str, Result]], Verdict]
    notes: str = ""
    """What the tables do not say, in Markdown, for the page of results: why a bar is missed, what a picture shows."""


@dataclass(frozen=True)
class Progress:
    unit: str
    num_done: float
    """Units, with the share of the present one."""
    num_units: int


def experiment_steps(experiment: Experiment, scale: str, folder: Path) -> Iterator[Progress]:
    """Do what is not done yet; each unit's result is written when it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    units = experiment.units(scale)
    for number, unit in enumerate(units):
        if not _path(unit, folder).is_file():
            result = yield from _unit_steps(unit, folder, number, len(units))
            unfinished = _path(unit, folder).with_suffix(".unfinished")
            unfinished.write_text(json.dumps({"settings": unit.settings, "result": result}), encoding="utf8")
            unfinished.replace(_path(unit, folder))
        yield Progress(unit.name, number + 1, len(units))


def _unit_steps(unit: Unit, folder: Path, number: int, num_units: int) -> Generator[Progress, None, Result]:
    return part_steps(unit.work(folder / unit.name), lambda share: Progress(unit.name, number + share, num_units))


def part_steps(
    steps: Generator[float, None, Returned], told: Callable[[float], Told]
) -> Generator[Told, None, Returned]:
    """The same work, its share told as something of a whole that it is part of."""
    while True:
        try:
            share = next(steps)
        except StopIteration as end:
            returned: Returned = end.value
            return returned
        yield told(share)


def read_results(experiment: Experiment, scale: str, folder: Path) -> dict[str, Result]:
    """What a finished run left, by the names of its units."""
    results: dict[str, Result] = {}
    for unit in experiment.units(scale):
        path = _path(unit, folder)
        if not path.is_file():
            raise ValueError(f"{path} is not there: the run has not come to its end.")
        stored = json.loads(path.read_text(encoding="utf8"))
        if stored["settings"] != json.loads(json.dumps(unit.settings)):
            raise ValueError(f"{path} has the result of other settings; delete it, or run in another folder.")
        results[unit.name] = stored["result"]
    return results


def _path(unit: Unit, folder: Path) -> Path:
    return folder / f"{unit.name}.json"
