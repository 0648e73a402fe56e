r"""Pages of the documentation with the table and the bars of every experiment, made from the committed results.

``python -m lossmith.lab.reproduce.pages docs/results`` writes them; a test says when that was forgotten. Nobody copies
a number by hand: what a page says is what ``lossmith reproduce NAME --show`` prints.

>>> print(markdown_table(("loss", "f1"), [("ce", "0.71"), ("a|b", "0.73")]))
| loss | f1 |
|---|---|
| ce | 0.71 |
| a\|b | 0.73 |
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from lossmith.lab.reproduce import EXPERIMENTS, has_results, kept_versions, verdict_of
from lossmith.lab.reproduce.experiment import Bar, Experiment

# by the first word of an experiment's name: the page it is on
TITLES = {
    "reloss": "Relational surrogate losses",
    "uniloss": "UniLoss",
    "tables": "Tables of data",
    "surrogate": "Learning surrogate losses",
    "ala": "Adaptive loss alignment",
}

INTRODUCTION = """# Results

What the experiments of `lossmith reproduce` gave: on two cores, without a GPU, at the scale that is named. Every
number on these pages is computed from a result that is committed with the code;
`lossmith reproduce NAME --scale SCALE --show` prints the same, and without `--show` the experiment runs again.
A bar is what an experiment was to reach, written down beside it; those that were missed are said to be missed.
"""


def write_pages(folder: Path) -> list[Path]:
    """One page for each word of ``TITLES``, and the list of all experiments."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in {"index": index_page(), **{page: experiments_page(page) for page in TITLES}}.items():
        paths.append(folder / f"{name}.md")
        paths[-1].write_text(text, encoding="utf8")
    return paths


def page_of(experiment: Experiment) -> str:
    return experiment.name.partition("-")[0]


def index_page() -> str:
    rows = []
    for experiment in EXPERIMENTS.values():
        link = f"[`{experiment.name}`]({page_of(experiment)}.md#{experiment.name})"
        kept = [scale for scale in experiment.scales if has_results(experiment, scale)]
        met = [_summary(verdict_of(experiment, scale).bars) for scale in kept]
        rows.append((link, experiment.what, ", ".join(kept) or "not run yet", "; ".join(met)))
    return f"{INTRODUCTION}\n{markdown_table(('experiment', 'what', 'scale', 'bars'), rows)}\n"


def experiments_page(page: str) -> str:
    sections = [_section(experiment) for experiment in EXPERIMENTS.values() if page_of(experiment) == page]
    return f"# {TITLES[page]}\n\n" + "\n".join(sections)


def _section(experiment: Experiment) -> str:
    parts = [f"## {experiment.name}", experiment.what]
    kept = [scale for scale in experiment.scales if has_results(experiment, scale)]
    for scale in kept:
        verdict = verdict_of(experiment, scale)
        versions = ", ".join(f"{name} {version}" for name, version in kept_versions(experiment, scale).items())
        parts += [
            f"`lossmith reproduce {experiment.name} --scale {scale} --show` ({experiment.scales[scale]}; {versions}):",
            markdown_table(verdict.columns, verdict.rows),
        ]
        if verdict.bars:
            rows = [(bar.what, f"{bar.value:.4f}", _target(bar), _met(bar)) for bar in verdict.bars]
            parts.append(markdown_table(("bar", "value", "to reach", ""), rows))
    if experiment.notes:
        parts.append(experiment.notes)
    others = [f"`{scale}` ({what})" for scale, what in experiment.scales.items() if scale not in (*kept, "smoke")]
    if others:
        parts.append(f"Not run: {', '.join(others)}.")
    return "\n\n".join(parts) + "\n"


def _target(bar: Bar) -> str:
    return f"{'≥' if bar.is_at_least else '≤'} {bar.bar:g}"


def _met(bar: Bar) -> str:
    return "met" if bar.is_met else "**missed**"


def _summary(bars: Sequence[Bar]) -> str:
    return f"{sum(bar.is_met for bar in bars)} of {len(bars)} met" if bars else "none"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, *rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join([_line(cells[0]), "|" + "---|" * len(columns), *map(_line, cells[1:])])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for path in write_pages(Path(sys.argv[1] if sys.argv[1:] else "docs/results")):
        print(path)
