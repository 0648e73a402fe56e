"""What a comparison found: a row for every loss, and a verdict in a sentence or two.

Everything here is computed from the trials whenever it is asked for; what is saved are the trials.
"""

from __future__ import annotations

import html
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lossmith.lab.comparing.recipes import RECIPES, snippet
from lossmith.lab.comparing.records import CONTROL, REFERENCE, Settings, Trial
from lossmith.lab.statistics import Paired, compare_paired, holm
from lossmith.metrics import METRICS

FILE_NAME = "comparison.json"
FORMAT = 1
SIGNIFICANT = 0.05
# a rise from the last checkpoint but one that is worth a warning
MATTERS = 0.002


@dataclass(frozen=True)
class Scale:
    """How values of a metric are written. Those with a name are shares, and shown as points of a hundred."""

    factor: float = 100
    digits: int = 2
    unit: str = "points of "
    """Before the metric's name, behind a difference."""

    def plain(self, value: float) -> str:
        return f"{self.factor * value:.{self.digits}f}"

    def signed(self, value: float) -> str:
        return f"{self.factor * value:+.{self.digits}f}"

    def gain(self, paired: Paired) -> str:
        return f"{self.signed(paired.mean)} ± {self.plain(paired.standard_error)}"


POINTS = Scale()


@dataclass(frozen=True)
class Row:
    """One loss: the metric on test rows of models chosen on validation rows, one for each seed."""

    recipe: str
    mean: float
    deviation: float
    validation: float
    paired: Paired | None
    """Against tuned cross-entropy, better is more, whatever the direction of the metric; None for itself."""
    p_corrected: float | None
    rank: float
    """Among the losses of this table, averaged over seeds."""
    learning_rate: float
    """The one that was best on most seeds."""
    seconds_per_step: float
    num_seeds: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Settings and trials; the rest is computed from them."""

    settings: Settings
    higher_is_better: bool
    trials: tuple[Trial, ...]
    is_complete: bool = True
    """False where the time was up before everything was run."""

    @cached_property
    def table(self) -> tuple[Row, ...]:
        """The exploration: every loss, best first by its mean on test rows."""
        return self._rows(is_confirmation=False)

    @cached_property
    def confirmation(self) -> tuple[Row, ...]:
        """Fresh seeds, for the candidate of the exploration and what it is measured against."""
        return self._rows(is_confirmation=True)

    @cached_property
    def scale(self) -> Scale:
        """A metric of the user's own may be money: it is shown as it is."""
        if self.settings.metric in METRICS:
            return POINTS
        largest = max((abs(row.mean) for row in self.table), default=0.0)
        return Scale(1, 4 if largest < 10 else 2 if largest < 1000 else 0, "of ")

    @property
    def candidate(self) -> str:
        """The loss that was best on validation rows while exploring, the reference included."""
        return find_candidate(self.trials, higher_is_better=self.higher_is_better)

    @property
    def is_confirmed(self) -> bool:
        """Whether the candidate has run on fresh seeds, and not the reference alone, before the time was up."""
        return _row_of(self.confirmation, self.candidate) is not None

    @cached_property
    def evidence(self) -> Row | None:
        """How the candidate did on test rows: of fresh seeds, or without any, of those that it was found on."""
        return _row_of(self.confirmation, self.candidate) or _row_of(self.table, self.candidate)

    def best(self) -> str:
        """The loss to use: the candidate, if it is ahead of tuned cross-entropy beyond noise; else cross-entropy."""
        row = self.evidence
        if row is None or row.paired is None or row.paired.mean <= 0:
            return REFERENCE
        # one loss is judged on fresh seeds, all of them on the others
        p = row.paired.p if self.is_confirmed else row.p_corrected
        return row.recipe if _is_significant(p) else REFERENCE

    @property
    def verdict(self) -> str:
        """One sentence or two."""
        row, metric = self.evidence, self.settings.metric
        others = [each.recipe for each in self.table if each.recipe not in (REFERENCE, CONTROL)]
        if row is None or not others:
            more = "" if self.is_complete else " The time was up before that."
            return f"Nothing can be said yet: cross-entropy and another loss on two seeds are the least.{more}"
        use = "Use cross-entropy" if self.is_complete else "So far, use cross-entropy"
        if row.paired is None:
            tried = f"of {len(others)} losses none was" if len(others) > 1 else f"{others[0]} was not"
            return (
                f"{use}: {tried} better on the validation rows than tuned cross-entropy "
                f"({row.num_seeds} seeds, {metric}).{self._what_is_open()}"
            )
        gain = f"{self.scale.gain(row.paired)} {self.scale.unit}{metric}"
        where = (
            f"on {row.num_seeds} fresh seeds"
            if self.is_confirmed
            else f"on the {row.num_seeds} seeds it was found on (not yet confirmed)"
        )
        if self.best() == REFERENCE:
            how = "not" if row.paired.mean <= 0 else "not beyond noise"
            return (
                f"{use}: {row.recipe} was ahead on the validation rows, but {how} on test rows: "
                f"{gain} {where}.{self._what_is_open()}"
            )
        p = row.paired.p if self.is_confirmed else row.p_corrected
        use = "Use" if self.is_complete else "So far, use"
        return (
            f"{use} {row.recipe}: {gain} against tuned cross-entropy ({_p_in_words(p)}), {where}."
            f"{self._other_winners(row.recipe) if self.is_complete else self._what_is_open()}"
        )

    def _other_winners(self, best: str) -> str:
        """What else was better than cross-entropy, corrected for the number of losses."""
        names = [
            row.recipe
            for row in self.table
            if row.recipe != best
            and row.paired is not None
            and row.paired.mean > 0
            and _is_significant(row.p_corrected)
        ]
        if not names:
            return " Nothing else is significantly better."
        return f" While exploring, {', '.join(names)} {'was' if len(names) == 1 else 'were'} significantly better, too."

    def _what_is_open(self) -> str:
        """What a run that was cut short has not measured."""
        if self.is_complete:
            return ""
        seen = {row.recipe for row in self.table}
        unseen = [name for name in dict.fromkeys(self.settings.losses) if name not in seen]
        missing = f"{', '.join(unseen)} had no turn" if unseen else "not everything was run"
        return f" The time was up, and {missing}."

    def snippet(self) -> str:
        """The lines of Python that use the recommended loss."""
        lines, metric = snippet(RECIPES[self.best()], self.settings.metric), self.settings.metric
        # a metric of the user's own is in no table: it is what `lossmith.metrics.wrap` gave
        return lines if metric in METRICS else lines.replace(f'lossmith.metrics.METRICS["{metric}"]', "metric")

    def save(self, folder: str | Path) -> Path:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        content = {
            "format": FORMAT,
            "settings": self.settings.to_json(),
            "higher_is_better": self.higher_is_better,
            "is_complete": self.is_complete,
            "trials": [trial.to_json() for trial in self.trials],
        }
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(content) + "\n", encoding="utf8")
        unfinished.replace(path)
        return path

    def __repr__(self) -> str:
        """The table and the verdict: what somebody wants who types its name."""
        lines = [self.columns, *(cells(row, self.scale) for row in self.table)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]
        shown = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
        return "\n".join([f"{self.settings.data}, {self.settings.metric} on test rows", *shown, self.verdict])

    @property
    def columns(self) -> tuple[str, ...]:
        """The heads of :func:`cells`."""
        return "loss", self.settings.metric, "against ce", "p", "rank", "ms/step"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row, self.scale)) + "</tr>"
            for row in self.table
        )
        return f"<p>{html.escape(self.verdict)}</p><table><tr>{head}</tr>{body}</table>"

    def _rows(self, *, is_confirmation: bool) -> tuple[Row, ...]:
        trials = [trial for trial in self.trials if trial.is_confirmation == is_confirmation]
        return rows_of(trials, higher_is_better=self.higher_is_better)


def load_comparison(folder: str | Path) -> Comparison:
    path = Path(folder, FILE_NAME)
    if not path.is_file():
        raise ValueError(f"{path} is not there; a comparison that is saved leaves it.")
    content = json.loads(path.read_text(encoding="utf8"))
    if content["format"] > FORMAT:
        raise ValueError(f"{path} was written by a newer lossmith (format {content['format']}); update to read it.")
    trials = tuple(Trial.from_json(fields) for fields in content["trials"])
    return Comparison(
        Settings.from_json(content["settings"]), content["higher_is_better"], trials, content["is_complete"]
    )


def chosen(trials: Sequence[Trial], *, higher_is_better: bool) -> dict[str, dict[int, Trial]]:
    """By recipe and seed, the trial that is best on validation rows; the first of equals."""
    best: dict[str, dict[int, Trial]] = {}
    for trial in trials:
        known = best.setdefault(trial.recipe, {}).get(trial.seed)
        if known is None or _is_better(trial.validation, known.validation, higher_is_better):
            best[trial.recipe][trial.seed] = trial
    return best


def rows_of(trials: Sequence[Trial], *, higher_is_better: bool) -> tuple[Row, ...]:
    """One row for each recipe, best first; only seeds that every recipe has count."""
    by_recipe = chosen(trials, higher_is_better=higher_is_better)
    if REFERENCE not in by_recipe:
        return ()
    seeds = sorted(set.intersection(*(set(of_seed) for of_seed in by_recipe.values())))
    if len(seeds) < 2:
        return ()
    sign = 1 if higher_is_better else -1
    tests = {name: [sign * of_seed[seed].test for seed in seeds] for name, of_seed in by_recipe.items()}
    ranks = {
        name: statistics.mean(
            1 + sum((other[i] > own[i]) + 0.5 * (other[i] == own[i]) for key, other in tests.items() if key != name)
            for i in range(len(seeds))
        )
        for name, own in tests.items()
    }
    rows = []
    for name, of_seed in by_recipe.items():
        picked = [of_seed[seed] for seed in seeds]
        rates = [trial.learning_rate for trial in picked]
        rows.append(
            Row(
                name,
                statistics.mean(trial.test for trial in picked),
                statistics.stdev(trial.test for trial in picked),
                statistics.mean(trial.validation for trial in picked),
                None if name == REFERENCE else compare_paired(tests[name], tests[REFERENCE]),
                None,
                ranks[name],
                max(rates, key=rates.count),
                statistics.mean(trial.seconds_per_step for trial in picked),
                len(seeds),
                warnings_of(
                    [trial for trial in trials if trial.recipe == name], picked, higher_is_better=higher_is_better
                ),
            )
        )
    # the control is no candidate: it is there to show what nothing looks like
    judged = [row for row in rows if row.paired is not None and row.recipe != CONTROL]
    corrected = dict(
        zip((row.recipe for row in judged), holm([row.paired.p for row in judged if row.paired is not None]))
    )
    rows = [replace(row, p_corrected=corrected.get(row.recipe)) for row in rows]
    return tuple(sorted(rows, key=lambda row: -sign * row.mean))


def find_candidate(trials: Sequence[Trial], *, higher_is_better: bool) -> str:
    """Best on the validation rows of the exploration; nothing else decides."""
    rows = rows_of([trial for trial in trials if not trial.is_confirmation], higher_is_better=higher_is_better)
    sign = 1 if higher_is_better else -1
    candidates = [row for row in rows if row.recipe != CONTROL]
    return max(candidates, key=lambda row: sign * row.validation).recipe if candidates else REFERENCE


def mean_by_rate(trials: Sequence[Trial], *, higher_is_better: bool) -> dict[float, float]:
    """By learning rate, the validation value (of a cost its negative) at its best setting, averaged over seeds."""
    sign, by_rate = (1 if higher_is_better else -1), dict[float, dict[int, float]]()
    for trial in trials:
        of_seed = by_rate.setdefault(trial.learning_rate, {})
        of_seed[trial.seed] = max(of_seed.get(trial.seed, -math.inf), sign * trial.validation)
    return {rate: statistics.mean(of_seed.values()) for rate, of_seed in by_rate.items()}


def warnings_of(trials: Sequence[Trial], picked: Sequence[Trial], *, higher_is_better: bool) -> tuple[str, ...]:
    """What would make one doubt the numbers of a recipe: trials are all of it, ``picked`` the chosen ones."""
    warnings = [warning for trial in picked for warning in trial.warnings]
    values = mean_by_rate(trials, higher_is_better=higher_is_better)
    best = max(values, key=lambda rate: values[rate])
    if len(values) > 1 and best in (min(values), max(values)):
        warnings.append(
            f"the best learning rate, {best:.2g}, is the {'smallest' if best == min(values) else 'largest'} tried"
        )
    if all(len(trial.curve) > 1 for trial in picked):
        sign = 1 if higher_is_better else -1
        rise = statistics.mean(sign * (trial.curve[-1][1] - trial.curve[-2][1]) for trial in picked)
        is_last = statistics.mean(trial.best_step == trial.curve[-1][0] for trial in picked)
        if is_last > 0.5 and rise > MATTERS:
            warnings.append("the last checkpoint is the best: more steps may change the order")
    return tuple(dict.fromkeys(warnings))


def _is_significant(p: float | None) -> bool:
    return p is not None and p < SIGNIFICANT


def _p_in_words(p: float | None) -> str:
    return "p < 0.001" if p is None or p < 0.001 else f"p = {p:.3f}" if p < 0.01 else f"p = {p:.2f}"


def cells(row: Row, scale: Scale = POINTS) -> tuple[str, ...]:
    """A row in words."""
    against = "" if row.paired is None else scale.gain(row.paired)
    p = "" if row.p_corrected is None else f"{row.p_corrected:.3f}"
    value = f"{scale.plain(row.mean)} ± {scale.plain(row.deviation)}"
    return row.recipe, value, against, p, f"{row.rank:.1f}", f"{1000 * row.seconds_per_step:.2f}"


def _row_of(rows: Sequence[Row], recipe: str) -> Row | None:
    return next((row for row in rows if row.recipe == recipe), None)


def _is_better(value: float, other: float, higher_is_better: bool) -> bool:
    # NaN, the value of a metric that is not defined, is never better
    return value > other if higher_is_better else value < other
