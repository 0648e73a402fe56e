"""The papers' experiments, at a scale that fits the machine, and the results that they had here.

To add one: write an :class:`~lossmith.lab.reproduce.experiment.Experiment` in the file of its paper, add a line below,
put the file that a run ends with into ``results/``, and make the pages of the documentation anew
(:mod:`~lossmith.lab.reproduce.pages`).

>>> find_experiment("uniloss-mnist").name
Traceback (most recent call last):
    ...
ValueError: there is no experiment called 'uniloss-mnist'; did you mean 'uniloss-mnist-ap'? ...
"""

from __future__ import annotations

import difflib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lossmith.lab.reproduce import (
    ala,
    ala_signal,
    grand_table,
    reloss_ablations,
    reloss_alignment,
    reloss_classification,
    reloss_speed,
    reloss_toy,
    surrogate,
    surrogate_pace,
    tables_bilevel,
    tables_map,
    uniloss,
)
from lossmith.lab.reproduce.experiment import Experiment, Result, Verdict, read_results

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        reloss_alignment.ALIGNMENT,
        reloss_classification.CLASSIFICATION,
        *reloss_ablations.ABLATIONS,
        reloss_toy.TOY,
        reloss_speed.SPEED,
        uniloss.MNIST_AP,
        uniloss.CIFAR10_ACCURACY,
        uniloss.BATCH_SIZE,
        uniloss.ANCHORS,
        uniloss.INTERPOLATION,
        grand_table.LINEAR_TABLE,
        grand_table.FEW_ROWS_TABLE,
        grand_table.NETWORK_TABLE,
        tables_bilevel.BILEVEL,
        tables_map.MAP,
        surrogate.TABLE2,
        surrogate.TABLE3,
        surrogate.OPPONENTS_READ,
        surrogate.FIGURE3,
        surrogate_pace.PACE,
        *ala.EXPERIMENTS,
        ala_signal.SIGNAL,
    )
}

COMMITTED = Path(__file__).parent / "results"


def find_experiment(name: str) -> Experiment:
    """The experiment of that name, or an error that names the nearest."""
    if name not in EXPERIMENTS:
        nearest = difflib.get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"there is no experiment called {name!r}; did you mean {nearest!r}? All: {', '.join(EXPERIMENTS)}."
        )
    return EXPERIMENTS[name]


def write_results(experiment: Experiment, scale: str, folder: Path) -> Path:
    """All results of a finished run in one file, of the name and form that is committed."""
    path = folder / _file_name(experiment, scale)
    versions = {"lossmith": version("lossmith"), "torch": torch.__version__, "python": platform.python_version()}
    # a line for each unit: small, and what a unit that ran again has changed is one line of a difference
    units = [
        f"{json.dumps(name)}: {json.dumps(unit)}" for name, unit in read_results(experiment, scale, folder).items()
    ]
    results = ",\n".join(units)
    path.write_text(f'{{"versions": {json.dumps(versions)}, "results": {{\n{results}\n}}}}\n', encoding="utf8")
    return path


def has_results(experiment: Experiment, scale: str) -> bool:
    return (COMMITTED / _file_name(experiment, scale)).is_file()


def committed_results(experiment: Experiment, scale: str) -> dict[str, Result]:
    results: dict[str, Result] = _committed(experiment, scale)["results"]
    if list(results) != [unit.name for unit in experiment.units(scale)]:
        raise ValueError(
            f"the result of {experiment.name} at the scale {scale} that is kept is of an earlier form of it; run it, "
            "without --show."
        )
    return results


def kept_versions(experiment: Experiment, scale: str) -> dict[str, str]:
    """Of lossmith, torch and Python, that the committed results were made with."""
    versions: dict[str, str] = _committed(experiment, scale)["versions"]
    return versions


def verdict_of(experiment: Experiment, scale: str) -> Verdict:
    """The judgement of the committed results."""
    return experiment.judge(scale, committed_results(experiment, scale))


def _committed(experiment: Experiment, scale: str) -> dict[str, Any]:
    if not has_results(experiment, scale):
        raise ValueError(f"no result of {experiment.name} at the scale {scale} is kept; run it, without --show.")
    content: dict[str, Any] = json.loads((COMMITTED / _file_name(experiment, scale)).read_text(encoding="utf8"))
    return content


def _file_name(experiment: Experiment, scale: str) -> str:
    return f"{experiment.name}-{scale}.json"
