"""``lossmith compare``: which loss to train with, on data of one's own."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option

from lossmith.cli.align import choose_metric
from lossmith.cli.console import is_watched, print_json, print_table, spinner

if TYPE_CHECKING:
    from lossmith.lab.comparing import Comparison
    from lossmith.lab.comparing.asking import News
    from lossmith.lab.comparing.comparison import Row, Scale
    from lossmith.lab.comparing.insights import Help

STOPPED = 130
"""The exit code of a program that Ctrl-C has stopped."""


def compare(
    data: Annotated[
        str,
        Argument(
            help="A table (.csv, .parquet), arrays inputs and targets (.npz, .safetensors), or a name from "
            "`lossmith data list`."
        ),
    ],
    target: Annotated[str | None, Option(help="The column of the table to predict.")] = None,
    metric: Annotated[str | None, Option(help="A name from `lossmith metrics`.")] = None,
    metric_fn: Annotated[
        str | None, Option(help="In place of --metric: your own, module:function of (outputs, targets) of one set.")
    ] = None,
    kind: Annotated[str | None, Option(help="With --metric-fn: binary or multiclass.")] = None,
    higher_is_better: Annotated[
        bool | None, Option("--higher-is-better/--lower-is-better", help="With --metric-fn.")
    ] = None,
    losses: Annotated[
        str | None, Option(help="Names with commas between. Without: those that are made for the metric.")
    ] = None,
    budget: Annotated[str | None, Option(help="Time to spend, as 90s, 5m or 1h. Without: until all is done.")] = None,
    seeds: Annotated[int, Option(min=2, help="Splits and first weights to explore on, and as many to confirm.")] = 5,
    trials: Annotated[int, Option(min=1, help="Learning rates for each loss.")] = 4,
    steps: Annotated[int, Option(min=1, help="Of each training run.")] = 700,
    model: Annotated[str, Option(help="linear, mlp32, mlp256, ...; auto chooses by the number of rows.")] = "auto",
    positive_class: Annotated[
        str | None, Option(help="What counts as yes; of several classes: this one against the rest.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Folder of the run; one that was stopped goes on. [default: runs/DATA-METRIC]")
    ] = None,
    insights: Annotated[
        bool, Option("--insights/--no-insights", help="Also measure what would help more, and how losses align.")
    ] = True,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Train one model under many losses, and say which one to use, if any is better than cross-entropy.

    Every loss gets the same seeds, steps and learning rates; validation rows choose, test rows are reported, and the
    best must win again on fresh seeds. Ctrl-C keeps what is done, and the same command goes on. Ends with a verdict,
    the lines of Python that use it, and a report.
    """
    from lossmith.lab.comparing.asking import answer_steps, data_in_words, read_data, settings_for

    seconds = None if budget is None else seconds_of(budget)
    chosen = choose_metric(metric, metric_fn, kind, higher_is_better)
    with spinner(f"reading {data}"):
        pool = read_data(data, target=target, positive_class=positive_class)
    settings = settings_for(
        pool,
        chosen,
        losses=None if losses is None else re.findall(r"[^,\s]+", losses),
        model=model,
        num_seeds=seeds,
        num_trials=trials,
        num_steps=steps,
    )
    folder = out or Path("runs", f"{_file_name(pool.name)}-{chosen.name}")
    news = answer_steps(
        settings, pool, chosen, folder, budget=seconds, with_insights=insights, command=("lossmith", *sys.argv[1:])
    )
    comparison, is_stopped = follow(news, title=data_in_words(pool), is_quiet=as_json, budget=seconds)
    report_comparison(comparison, folder, as_json=as_json)
    if is_stopped:
        print(f"Stopped. What is done is kept in {folder}: the same command goes on.", file=sys.stderr)
        raise Exit(STOPPED)


def seconds_of(budget: str) -> float:
    """90s, 5m, 1.5h, or plain seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", budget)
    if found is None or float(found[1]) == 0:
        raise ValueError(f"--budget {budget} is no time to spend; 90s, 5m and 1h work.")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(name).stem).strip("-") or "data"


def follow(
    all_news: Iterator[News], *, title: str = "", is_quiet: bool = False, budget: float | None = None
) -> tuple[Comparison, bool]:
    """Show what comes in; gives what was known at the end, and whether that was Ctrl-C."""
    news = next(all_news)  # where there is a mistake it is found now
    if title and not is_quiet:
        print(title, flush=True)
    clock = Clock(news.share, budget)
    try:
        with _display(is_quiet) as show:
            show(news, clock.left(news.share))
            for news in all_news:
                show(news, clock.left(news.share))
    except KeyboardInterrupt:
        return news.comparison, True
    return news.comparison, False


class Clock:
    """The time left, by what has been done since the beginning; never more than the budget."""

    def __init__(self, share: float, budget: float | None) -> None:
        self.first_share, self.budget, self.start = share, budget, time.monotonic()

    def left(self, share: float) -> str:
        """In words; nothing while too little is known."""
        passed, done = time.monotonic() - self.start, share - self.first_share
        guesses = [] if self.budget is None else [max(self.budget - passed, 0.0)]
        if done > 0 and passed > 1:
            guesses.append(passed * (1 - share) / done)
        if not guesses or share >= 1:
            return ""
        seconds = round(min(guesses))
        return f"{seconds}s left" if seconds < 90 else f"{round(seconds / 60)}m left"


@contextmanager
def _display(is_quiet: bool) -> Iterator[Callable[[News, str], None]]:
    """A table that fills under a bar where somebody watches; elsewhere a line for each loss that is done."""
    console = Console(stderr=True, markup=False)
    if is_quiet:
        yield lambda news, left: None
        return
    if not is_watched(console):
        yield _say
        return
    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    bar = Progress(TextColumn("{task.description}", markup=False), *columns, console=console)
    task = bar.add_task("", total=1.0, left="")
    with Live(bar, console=console, transient=True, refresh_per_second=8) as live:

        def show(news: News, left: str) -> None:
            what = news.what.partition(" explore")[0].partition(" confirm")[0].rpartition(", ")[2]
            bar.update(task, completed=news.share, description=what or "starting", left=left)
            live.update(Group(_live_table(news.comparison), bar) if news.comparison.table else bar)

        yield show


def _say(news: News, left: str) -> None:
    if not news.is_new:
        return
    comparison, latest = news.comparison, news.comparison.trials[-1]
    rows = comparison.confirmation if latest.is_confirmation else comparison.table
    said = f"{news.share:4.0%}  {latest.recipe}{' on fresh seeds' * latest.is_confirmation}"
    for row in rows:
        if row.recipe == latest.recipe:
            said += f": {comparison.settings.metric} {' '.join(filter(None, cells_of(comparison, row)[1:3]))}"
    print(f"{said}, {left}" if left else said, flush=True)


def _live_table(comparison: Comparison) -> Table:
    table = Table(title=Text(f"{comparison.settings.data}: {comparison.settings.metric} on test rows"), **_LOOKS)
    for number, column in enumerate(comparison.columns):
        table.add_column(column, no_wrap=True, justify="left" if number == 0 else "right")
    for row in rows_of(comparison):
        table.add_row(*row)
    return table


_LOOKS: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": None, "pad_edge": False}


def rows_of(comparison: Comparison) -> list[tuple[str, ...]]:
    return [cells_of(comparison, row) for row in comparison.table]


def cells_of(comparison: Comparison, row: Row) -> tuple[str, ...]:
    from lossmith.lab.comparing.comparison import cells

    return cells(row, comparison.scale)


def report_comparison(comparison: Comparison, folder: Path, *, as_json: bool) -> None:
    """The table, the verdict, what would help more, how to use it, and the page with everything."""
    from lossmith.lab.report import read_run, write_report

    run = read_run(folder) if comparison.trials else None
    helps = run.insights.helps if run is not None else ()
    page = None if run is None else write_report([run], folder / "report.html")
    if as_json:
        print_json(
            {
                "data": comparison.settings.data,
                "metric": comparison.settings.metric,
                "verdict": comparison.verdict,
                "best": comparison.best(),
                "is_complete": comparison.is_complete,
                "table": [asdict(row) for row in comparison.table],
                "confirmation": [asdict(row) for row in comparison.confirmation],
                "helps": [asdict(each) for each in helps],
                "snippet": comparison.snippet(),
                "folder": str(folder),
                "report": None if page is None else str(page),
            }
        )
        return
    if comparison.table:
        title = f"{comparison.settings.data}: {comparison.settings.metric} on test rows"
        print_table(title, comparison.columns, rows_of(comparison))
        print()
    print(comparison.verdict)
    for sentence in helps_in_words(helps, comparison.scale):
        print(sentence)
    if comparison.table:
        print("\n" + "\n".join(f"    {line}" for line in comparison.snippet().splitlines()))
    if page is not None:
        print(f"\nReport: {page}")


def helps_in_words(helps: Sequence[Help], scale: Scale) -> list[str]:
    """What was tried beside losses, the most helpful first."""
    ordered = sorted(helps, key=lambda each: -each.gain.mean)
    parts = {
        "What else helps, measured with cross-entropy": [each for each in ordered if each.is_a_gain],
        "What does not": [each for each in ordered if not each.is_a_gain],
    }
    points = " points" if scale.factor == 100 else ""
    return [
        f"{title}: {'; '.join(f'{each.what} {scale.gain(each.gain)}{points}' for each in part)}."
        for title, part in parts.items()
        if part
    ]
