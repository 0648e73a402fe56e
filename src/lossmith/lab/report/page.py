"""What stands on the page: the verdict first, then the lines to use it, then everything that it rests on.

All text reaches the page through jinja2's escaping; the only markup that is taken as it is are our own pictures. The
page's own rules (its Content-Security-Policy) forbid it to load or send anything, and every script but ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lossmith.lab.comparing.comparison import Comparison, Row, Scale, load_comparison
from lossmith.lab.comparing.insights import Help, Insights, read_insights
from lossmith.lab.comparing.recipes import RECIPES
from lossmith.lab.comparing.records import CONTROL, REFERENCE
from lossmith.lab.report.plots import (
    colours_of,
    interval_of,
    plot_alignments,
    plot_curves,
    plot_differences,
    plot_ranks,
    plot_shapes,
)
from lossmith.lab.statistics import Paired, rank_over_datasets

FOLDER = Path(__file__).parent
RUN_FILE = "run.json"
COLUMNS = (
    ("loss", "what the models were trained with"),
    ("{metric}", "mean over seeds on test rows ± standard deviation"),
    (
        "against ce",
        "difference from tuned cross-entropy, seed by seed, ± its standard error; more is better",
    ),
    ("p", "two-sided paired t-test, corrected for the number of losses (Holm)"),
    ("wins", "seeds on which it beat cross-entropy"),
    ("rank", "among all losses, averaged over seeds; 1 is best"),
    ("chosen by", "mean over seeds on validation rows: what chooses the loss that runs again on fresh seeds"),
    ("ms/step", "of one model, in milliseconds of the processor"),
    ("rate", "learning rate that was best on most seeds"),
)


@dataclass(frozen=True)
class Run:
    """A comparison, and what is known of how it was made."""

    comparison: Comparison
    command: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    """Of the data, in words."""
    insights: Insights = field(default_factory=Insights)


def read_run(folder: str | Path) -> Run:
    """What ``lossmith compare`` left in a folder."""
    comparison = load_comparison(folder)
    path = Path(folder, RUN_FILE)
    about: dict[str, Any] = json.loads(path.read_text(encoding="utf8")) if path.is_file() else {}
    return Run(
        comparison,
        tuple(about.get("command", ())),
        about.get("versions", {}),
        about.get("facts", {}),
        read_insights(folder),
    )


def write_report(runs: Sequence[Run], path: str | Path) -> Path:
    """One page for one comparison or several; with several data sets of one metric, ranks over data sets on top."""
    if not runs:
        raise ValueError("there is no run to report.")
    page = render(runs)
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}.")
    path.write_text(page, encoding="utf8")
    return path


def render(runs: Sequence[Run]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (FOLDER / "page.js").read_text(encoding="utf8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    first = runs[0].comparison.settings
    title = (
        f"Which loss for {first.metric} on {first.data}?" if len(runs) == 1 else f"Which loss? {len(runs)} comparisons"
    )
    return environment.get_template("page.html.jinja").render(
        title=title,
        style=(FOLDER / "page.css").read_text(encoding="utf8"),
        script=script,
        script_hash=f"sha256-{digest}",
        overall=_overall(runs) if len(runs) > 1 else None,
        runs=[_run(run, number) for number, run in enumerate(runs)],
        version=version("lossmith"),
    )


def _overall(runs: Sequence[Run]) -> dict[str, Any]:
    """Ranks over data sets: of the losses that all runs tried, where all were judged by one metric."""
    comparisons = [run.comparison for run in runs]
    means = [{row.recipe: row.mean for row in comparison.table} for comparison in comparisons]
    sign = 1 if comparisons[0].higher_is_better else -1
    names = [name for name in means[0] if name != CONTROL and all(name in other for other in means)]
    if len({comparison.settings.metric for comparison in comparisons}) > 1 or len(names) < 2:
        return {"svg": None, "caption": ""}
    ranked = rank_over_datasets({name: [sign * each[name] for each in means] for name in names})
    return {"svg": plot_ranks(ranked, "data sets"), "caption": f"{_BARS} {_friedman(ranked.friedman_p)}"}


_BARS = "Lower is better. A bar joins losses whose ranks differ by less than the critical difference (Nemenyi, 5 %)."


def _friedman(p: float) -> str:
    return f"Friedman's test that all are equal: p = {p:.3g}." if p == p else ""


def _run(run: Run, number: int) -> dict[str, Any]:
    comparison = run.comparison
    settings = comparison.settings
    return {
        "anchor": f"run-{number + 1}",
        "data": settings.data,
        "metric": settings.metric,
        "higher_is_better": comparison.higher_is_better,
        "verdict": comparison.verdict,
        "facts": _headline(comparison),
        "helps": [
            _help(each, comparison.scale) for each in sorted(run.insights.helps, key=lambda each: -each.gain.mean)
        ],
        "snippet": comparison.snippet(),
        "note": _note(comparison, has_fresh=comparison.is_confirmed),
        "columns": [
            {"name": name.format(metric=settings.metric), "tip": tip, "sorted": _sorted_at_first(place, comparison)}
            for place, (name, tip) in enumerate(COLUMNS)
        ],
        "rows": [_row(row, comparison) for row in comparison.table],
        "warnings": _warnings(comparison),
        "figures": _figures(run),
        "settings": _settings(run),
        "command": shlex.join(run.command),
    }


def _warnings(comparison: Comparison) -> list[str]:
    """Each once, behind the losses that it is about."""
    about: dict[str, list[str]] = {}
    for row in comparison.table:
        for warning in row.warnings:
            about.setdefault(warning, []).append(row.recipe)
    return [f"{', '.join(names)}: {warning}" for warning, names in about.items()]


def _sorted_at_first(place: int, comparison: Comparison) -> str:
    if place != 1:
        return ""
    return "descending" if comparison.higher_is_better else "ascending"


def _headline(comparison: Comparison) -> list[dict[str, str]]:
    rows = comparison.confirmation if comparison.is_confirmed else comparison.table
    reference = next((row for row in rows if row.recipe == REFERENCE), None)
    row, scale = comparison.evidence, comparison.scale
    facts = []
    if reference is not None:
        facts.append(("tuned cross-entropy", scale.plain(reference.mean)))
    if row is not None and row.paired is not None:
        facts.append((row.recipe, scale.plain(row.mean)))
        facts.append(
            ("difference, points" if scale.factor == 100 else "difference", _minus(scale.signed(row.paired.mean)))
        )
        facts.append(("95 % interval", _range(row.paired, scale)))
        facts.append(("fresh seeds won" if comparison.is_confirmed else "seeds won", _wins(row.paired)))
    return [{"what": what, "value": value} for what, value in facts]


def _note(comparison: Comparison, *, has_fresh: bool) -> str:
    settings = comparison.settings
    where = " The best on validation rows then ran on fresh seeds, which nothing was chosen on." if has_fresh else ""
    num_seeds = max((row.num_seeds for row in comparison.table), default=0)
    return (
        f"Each loss trained the same model on {num_seeds} splits with {settings.num_trials} learning rates or more; "
        f"rate, step and threshold were chosen on validation rows, and the numbers are those of test rows.{where} "
        f"{CONTROL} is cross-entropy from other first weights: the size of a difference where there is none."
    )


def _row(row: Row, comparison: Comparison) -> dict[str, Any]:
    paired, scale = row.paired, comparison.scale
    tone = ""
    if paired is not None and row.recipe != CONTROL:
        tone = _tone(paired)
    mark = {REFERENCE: "reference", CONTROL: "control"}.get(row.recipe, "")
    cells: list[dict[str, Any]] = [
        {"value": row.recipe, "text": row.recipe, "tip": RECIPES[row.recipe].what if row.recipe in RECIPES else ""},
        {"value": row.mean, "text": f"{scale.plain(row.mean)} ± {scale.plain(row.deviation)}"},
        {"value": "", "text": ""}
        if paired is None
        else {
            "value": paired.mean,
            "text": _minus(scale.gain(paired)),
            "below": _range(paired, scale),
            "tone": tone,
        },
        {"value": "", "text": ""}
        if row.p_corrected is None
        else {"value": row.p_corrected, "text": "< 0.001" if row.p_corrected < 0.001 else f"{row.p_corrected:.3f}"},
        {"value": "", "text": ""} if paired is None else {"value": paired.num_wins, "text": _wins(paired)},
        {"value": row.rank, "text": f"{row.rank:.1f}"},
        {"value": row.validation, "text": scale.plain(row.validation)},
        {"value": row.seconds_per_step, "text": f"{1000 * row.seconds_per_step:.2f}"},
        {"value": row.learning_rate, "text": f"{row.learning_rate:.2g}"},
    ]
    filled = [{"tone": "", "tip": "", "below": "", **cell} for cell in cells]
    return {"cells": filled, "mark": "best" if row.recipe == comparison.best() else mark}


def _figures(run: Run) -> list[dict[str, str]]:
    comparison, insights = run.comparison, run.insights
    figures: list[tuple[str, str, str]] = []
    if len(comparison.table) > 1:
        figures.append(
            (
                "Is it more than noise?",
                plot_differences(comparison),
                "Mean difference over paired seeds and its 95 % interval (Student's t)."
                + (" Diamonds are fresh seeds." if comparison.confirmation else ""),
            )
        )
    if comparison.table:
        figures.append(
            (
                "Learning curves",
                plot_curves(comparison),
                "Mean over seeds at the learning rate that validation rows chose; cross-entropy is dashed, thin grey "
                "lines are its control and all others. The bands are one standard error of what the losses "
                "of a seed do not have in common.",
            )
        )
    if len(comparison.table) > 2:
        ranked = rank_over_datasets(_tests_by_seed(comparison))
        caption = f"{_BARS} Seeds share their data: this says nothing of other data. {_friedman(ranked.friedman_p)}"
        figures.append(("Ranks", plot_ranks(ranked, "seeds"), caption))
    if insights.alignments:
        figures.append(
            (
                "Alignment",
                plot_alignments(insights.alignments, colours_of(comparison)),
                "Each dot is a set of validation predictions of cross-entropy's models, early and late; the number is "
                "Spearman's correlation of loss and cost. A good order is needed to train well, but does not suffice.",
            )
        )
    if insights.shape is not None:
        figures.append(
            (
                "Shape",
                plot_shapes(insights.shape, colours_of(comparison)),
                "The loss of one batch as the score of one of its positives rises, everything else unchanged; grey is "
                "the metric's cost. Both are scaled to one height.",
            )
        )
    return [{"title": title, "svg": svg, "caption": caption} for title, svg, caption in figures]


def _tests_by_seed(comparison: Comparison) -> dict[str, Sequence[float]]:
    from lossmith.lab.comparing.comparison import chosen

    explored = [trial for trial in comparison.trials if not trial.is_confirmation]
    by_recipe = chosen(explored, higher_is_better=comparison.higher_is_better)
    seeds = sorted(set.intersection(*(set(of_seed) for of_seed in by_recipe.values())))
    sign = 1 if comparison.higher_is_better else -1
    return {
        name: [sign * of_seed[seed].test for seed in seeds] for name, of_seed in by_recipe.items() if name != CONTROL
    }


WORDS = {
    "model": "model",
    "num_trials": "learning rates for each loss, or more",
    "num_steps": "steps of a training run",
    "batch_size": "batch size",
    "is_balanced": "as many positives as negatives in a batch",
    "max_rows": "rows to train on, at most",
}


def _settings(run: Run) -> list[dict[str, str]]:
    settings, trials = run.comparison.settings, run.comparison.trials
    items: dict[str, str] = {"data": settings.data, **run.facts, "metric": settings.metric}
    items |= {WORDS[name]: _word(value) for name, value in settings.to_json().items() if name in WORDS}
    items["losses"] = ", ".join(settings.losses)
    for wave, is_fresh in (("seeds", False), ("fresh seeds", True)):
        if seeds := sorted({trial.seed for trial in trials if trial.is_confirmation == is_fresh}):
            items[wave] = ", ".join(map(str, seeds))
    items["training runs"] = str(len(trials))
    items |= {f"version of {name}": number for name, number in run.versions.items()}
    return [{"what": what, "value": value} for what, value in items.items()]


def _word(value: object) -> str:
    return {"None": "no limit", "True": "yes", "False": "no"}.get(str(value), str(value))


def _help(tried: Help, scale: Scale) -> dict[str, str]:
    points = " points" if scale.factor == 100 else ""
    return {"what": tried.what, "gain": f"{_minus(scale.gain(tried.gain))}{points}", "tone": _tone(tried.gain)}


def _tone(paired: Paired) -> str:
    low, high = interval_of(paired)
    return "good" if low > 0 else "bad" if high < 0 else ""


def _range(paired: Paired, scale: Scale) -> str:
    low, high = interval_of(paired)
    return _minus(f"{scale.signed(low)} to {scale.signed(high)}")


def _wins(paired: Paired) -> str:
    return f"{paired.num_wins:g} of {paired.num_pairs}"


def _minus(number: str) -> str:
    return number.replace("-", "−")
