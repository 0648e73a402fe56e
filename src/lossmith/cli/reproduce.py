"""``lossmith reproduce``: run an experiment of the papers, or show the result that it had here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from lossmith.cli.console import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from lossmith.lab.reproduce.experiment import Experiment, Result


def reproduce(
    name: Annotated[str | None, Argument(help="An experiment. Without: list all.")] = None,
    scale: Annotated[str, Option(help="smoke (seconds), cpu (hours) or paper (the paper's own size).")] = "cpu",
    show: Annotated[bool, Option("--show", help="Run nothing: print the result that is kept in the package.")] = False,
    folder: Annotated[
        Path | None, Option(help="Of the run; a run that was killed goes on there. [default: runs/NAME-SCALE]")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Run an experiment of the papers and compare it with its bars; exit code 1 where one is missed."""
    from lossmith.lab.reproduce import committed_results, find_experiment

    if name is None:
        _list_experiments(as_json=as_json)
        return
    experiment = find_experiment(name)
    if scale not in experiment.scales:
        raise ValueError(f"{name} has no scale {scale!r}; {', '.join(experiment.scales)} work.")
    if show:
        results = committed_results(experiment, scale)
    else:
        results = _run(experiment, scale, folder or Path("runs", f"{name}-{scale}"))
    verdict = experiment.judge(scale, results)
    print(experiment.what)
    print_table(f"scale {scale}: {experiment.scales[scale]}", verdict.columns, verdict.rows)
    for bar in verdict.bars:
        print(bar)
    if as_json:
        print_json(
            {
                "experiment": name,
                "scale": scale,
                "met": verdict.is_met,
                "bars": [{**asdict(bar), "met": bar.is_met} for bar in verdict.bars],
                "rows": [dict(zip(verdict.columns, row)) for row in verdict.rows],
            }
        )
    if not verdict.is_met:
        raise Exit(1)


def _run(experiment: Experiment, scale: str, folder: Path) -> dict[str, Result]:
    from lossmith.lab.reproduce import write_results
    from lossmith.lab.reproduce.experiment import experiment_steps, read_results

    with progress_bar(experiment.name, 100) as advance:
        for progress in experiment_steps(experiment, scale, folder):
            advance(int(100 * progress.num_done / progress.num_units))
    print(f"results: {write_results(experiment, scale, folder)}")
    return read_results(experiment, scale, folder)


def _list_experiments(*, as_json: bool) -> None:
    from lossmith.lab.reproduce import EXPERIMENTS

    if as_json:
        listed = [
            {"name": each.name, "description": each.what, "scales": dict(each.scales)} for each in EXPERIMENTS.values()
        ]
        print_json({"experiments": listed})
        return
    rows = [
        (experiment.name, experiment.what, "; ".join(f"{scale}: {what}" for scale, what in experiment.scales.items()))
        for experiment in EXPERIMENTS.values()
    ]
    print_table("experiments", ("name", "what", "scales"), rows)
