"""How commands speak: tables and sentences on stdout, progress and warnings on stderr, JSON as the last line."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import cleandoc
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column names the row; a reader that is no terminal gets lines of any length, and never half a cell."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200, markup=False).print(table)


def first_sentence(docstring: str | None) -> str:
    """The one idea of a docstring, without its markup."""
    paragraph = cleandoc(docstring or "").split("\n\n")[0]
    return re.sub(r":\w+:`(?:[\w.]*\.)?(\w+)`|`+", r"\1", " ".join(paragraph.split()))


def print_json(content: Mapping[str, Any]) -> None:
    print(json.dumps(_without_nan(content), allow_nan=False))


def _without_nan(content: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(content, Mapping):
        return {name: _without_nan(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many are done. Silent where nobody watches: stdout or stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not is_watched(console)) as progress:
        task = progress.add_task(description, total=total)
        yield lambda completed: progress.update(task, completed=completed)


@contextmanager
def spinner(description: str) -> Iterator[None]:
    """For what takes a while and cannot be counted."""
    console = Console(stderr=True)
    if not is_watched(console):
        yield
        return
    with console.status(description):
        yield


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of :func:`warnings.showwarning`: the sentence without the line of code that it came from."""
    print(f"Warning: {message}", file=sys.stderr)


def is_watched(console: Console) -> bool:
    return sys.stdout.isatty() and console.is_terminal
