"""``lossmith report``: one page of everything that comparisons found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lossmith.cli.console import print_json


def report(
    runs: Annotated[list[Path], Argument(help="Folders that `lossmith compare` left.")],
    out: Annotated[Path, Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Write one self-contained page: it opens from a file, prints, and loads nothing from elsewhere."""
    from lossmith.lab.report import read_run, write_report

    read = [read_run(run) for run in runs]
    page = write_report(read, out)
    if as_json:
        print_json({"report": str(page), "verdicts": [run.comparison.verdict for run in read]})
        return
    for run in read:
        print(f"{run.comparison.settings.data}: {run.comparison.verdict}")
    print(f"Report: {page}")
