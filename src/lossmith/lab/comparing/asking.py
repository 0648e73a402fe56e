"""The whole answer in one generator, and in one call: compare, look closer, keep both in a folder.

What is shown on the way (bars, tables, lines) is the caller's ``for`` body.

>>> import lossmith
>>> result = lossmith.compare("digits", positive_class=8, metric="ap", losses=["smooth_ap"], num_seeds=2, num_trials=1,
...                           num_steps=20, progress=False)
>>> [row.recipe for row in result.table if row.recipe != "smooth_ap"], result.best() in ("ce", "smooth_ap")
(['ce'], True)
"""

from __future__ import annotations

import difflib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lossmith.kinds import Kind
from lossmith.lab.comparing.comparison import Comparison
from lossmith.lab.comparing.insights import insight_steps
from lossmith.lab.comparing.recipes import default_losses
from lossmith.lab.comparing.records import Settings, Trial
from lossmith.lab.comparing.studying import compare_steps, planned
from lossmith.lab.datasets import DATASETS, find_dataset, one_against_rest
from lossmith.lab.datasets.array_file import read_arrays
from lossmith.lab.datasets.splitting import Pool, pool_of
from lossmith.lab.datasets.table_file import pool_of_columns, read_columns
from lossmith.metrics import METRICS, find_metric
from lossmith.predictions.files import SUFFIXES as ARRAY_SUFFIXES
from lossmith.vocabulary import Metric

RUN_FILE = "run.json"
MAX_ROWS_OF_CHECK = 2000
SHARE_OF_COMPARING = 0.8
"""Of a budget; the rest is for what would help more."""
# the metric of several classes that asks what one of two classes asks
OF_SEVERAL_CLASSES = {
    "binary_accuracy": "accuracy",
    "f1": "f1_macro",
    "fbeta": "f1_macro",
    "auc": "auc_ovr",
    "ap": "ap_ovr",
    "mcc": "multiclass_mcc",
    "kappa": "multiclass_kappa",
    "balanced_accuracy": "multiclass_balanced_accuracy",
}
OF_TWO_CLASSES = {several: two for two, several in OF_SEVERAL_CLASSES.items() if two != "fbeta"}


@dataclass(frozen=True)
class News:
    """What is being done, the share that is done, and what is known so far."""

    what: str
    share: float
    comparison: Comparison
    is_new: bool = False
    """Whether trials have come in since the last news."""


def compare(
    data: str | os.PathLike[str] | Mapping[str, Sequence[Any]] | Pool,
    *,
    metric: Metric | str,
    target: str | None = None,
    positive_class: int | None = None,
    losses: Sequence[str] | None = None,
    model: str = "auto",
    num_seeds: int = 5,
    num_trials: int = 4,
    num_steps: int = 700,
    budget: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train one model under many losses; ``.verdict`` says which one to use, if any is better than cross-entropy.

    ``data`` is a table with its ``target`` column, in a file (``.csv``, ``.parquet``) or as columns in a dictionary
    (``frame.to_dict("list")`` of pandas); a file of arrays (``.npz``, ``.safetensors``) with ``inputs`` or ``outputs``,
    and ``targets``; the name of a registered data set; or a :class:`Pool`. ``budget`` is in seconds. With a ``folder``
    a run that was stopped goes on there, and ``lossmith report`` makes a page of it. ``progress`` prints a line for
    each loss that is done.
    """
    if isinstance(data, Pool):
        pool = data
    elif isinstance(data, Mapping):
        pool = _pool_of_columns("data", data, target)
    else:
        pool = read_data(data, target=target, positive_class=positive_class)
    metric = find_metric(metric) if isinstance(metric, str) else metric
    settings = settings_for(
        pool, metric, losses=losses, model=model, num_seeds=num_seeds, num_trials=num_trials, num_steps=num_steps
    )
    comparison = Comparison(settings, metric.higher_is_better, (), False)
    with TemporaryDirectory() as temporary:
        for news in answer_steps(
            settings, pool, metric, folder or temporary, budget=budget, with_insights=folder is not None
        ):
            comparison = news.comparison
            if progress and news.is_new:
                latest = comparison.trials[-1]
                print(
                    f"{news.share:4.0%}  {latest.recipe}{' on fresh seeds' * latest.is_confirmation}", file=sys.stderr
                )
    return comparison


def read_data(data: str | os.PathLike[str], *, target: str | None = None, positive_class: int | None = None) -> Pool:
    """A table or arrays in a file, or a registered data set."""
    path = Path(data)
    if str(data) not in DATASETS and (path.suffix or path.exists()):
        if positive_class is not None:
            raise ValueError("a positive class goes with a named data set; a file holds its classes.")
        if path.suffix in ARRAY_SUFFIXES:
            if target is not None:
                raise ValueError(f"a target column goes with a table; in {path.name} it is the array called targets.")
            return read_arrays(path)
        return _pool_of_columns(path.stem, read_columns(path), target)
    if str(data) not in DATASETS and target is not None:
        beside = [each.name for each in sorted(path.parent.glob(f"{path.name}.*"))]
        hint = f"did you mean {beside[0]}?" if beside else "a table in a file works (table.csv)."
        raise ValueError(f"there is no file {data}; {hint}")
    if target is not None:
        raise ValueError(f"a target column goes with a table in a file; {data} is a data set, and knows its target.")
    dataset = find_dataset(str(data)).load(None)
    return pool_of(dataset if positive_class is None else one_against_rest(dataset, positive_class))


def _pool_of_columns(name: str, columns: Mapping[str, Sequence[Any]], target: str | None) -> Pool:
    # to take the last column for granted would answer a question that nobody has asked
    if target is None:
        shown = ", ".join(list(columns)[:12]) + (" and others" if len(columns) > 12 else "")
        raise ValueError(f"say which column of {name} is to be predicted (target): {shown}.")
    return pool_of_columns(name, columns, target=target)


def settings_for(
    pool: Pool,
    metric: Metric,
    *,
    losses: Sequence[str] | None = None,
    model: str = "auto",
    num_seeds: int = 5,
    num_trials: int = 4,
    num_steps: int = 700,
) -> Settings:
    """Without ``losses`` those that are made for the metric. Everything that can be wrong is found here, before any
    training.
    """
    if metric.kind is not pool.kind:
        raise ValueError(_other_kind(pool, metric))
    names = tuple(losses) if losses else default_losses(metric)
    settings = Settings(
        pool.name, metric.name, names, model, num_seeds=num_seeds, num_trials=num_trials, num_steps=num_steps
    )
    planned(settings, pool, metric, [])
    _check_that_it_can_choose(metric, pool)
    return settings


def _check_that_it_can_choose(metric: Metric, pool: Pool) -> None:
    """A metric of the user's own is called once before anything is trained: what is wrong with it is said at once."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(pool.targets), generator=generator)[:MAX_ROWS_OF_CHECK]
    shape = (1, len(rows)) if pool.kind is Kind.BINARY else (1, len(rows), pool.num_classes)
    scores = torch.randn(shape, generator=generator)
    if metric.reads_probabilities:
        scores = scores.sigmoid() if pool.kind is Kind.BINARY else scores.softmax(-1)
    value = metric.value(scores, pool.targets[rows].unsqueeze(0))
    if not bool(value.isfinite().all()):
        raise ValueError(
            f"{metric.name} is {value.item()} on random scores for rows of {pool.name}; nothing can be chosen by it."
        )


def _other_kind(pool: Pool, metric: Metric) -> str:
    came = (
        f"{metric.name} judges {metric.kind} predictions, and {pool.name} has {pool.num_classes} classes ({pool.kind})"
    )
    other = (OF_SEVERAL_CLASSES if pool.kind is Kind.MULTICLASS else OF_TWO_CLASSES).get(metric.name)
    if other is not None:
        return f"{came}; {other} works."
    fitting = [name for name, each in METRICS.items() if each.kind is pool.kind]
    nearest = difflib.get_close_matches(metric.name, fitting, n=3, cutoff=0.0)
    return f"{came}; metrics that judge those are {', '.join(nearest)} and others (`lossmith metrics`)."


def answer_steps(
    settings: Settings,
    pool: Pool,
    metric: Metric,
    folder: str | os.PathLike[str],
    *,
    budget: float | None = None,
    with_insights: bool = True,
    command: Sequence[str] = (),
) -> Iterator[News]:
    """Compare, then look closer; does what is not yet done, and keeps everything in ``folder`` as it comes."""
    folder, start = Path(folder), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    trials: list[Trial] = []
    comparison = Comparison(settings, metric.higher_is_better, (), False)
    share_of_comparing = 0.75 if with_insights else 1.0
    comparing = compare_steps(
        settings, pool, metric, folder=folder, budget=None if budget is None else SHARE_OF_COMPARING * budget
    )
    for progress in comparing:
        if progress.trials:
            trials += progress.trials
            comparison = Comparison(settings, metric.higher_is_better, tuple(trials), progress.share == 1)
            comparison.save(folder)
            _write_about(folder, pool, command)
        yield News(progress.what, share_of_comparing * progress.share, comparison, bool(progress.trials))
    if not with_insights:
        return
    for what, share in insight_steps(settings, pool, metric, comparison, folder):
        if budget is not None and time.monotonic() - start > budget:
            return
        yield News(what, share_of_comparing + (1 - share_of_comparing) * share, comparison)


def _write_about(folder: Path, pool: Pool, command: Sequence[str]) -> None:
    """What the report says of how it was made."""
    versions = {"lossmith": version("lossmith"), "torch": version("torch"), "python": platform.python_version()}
    facts = {"rows": f"{len(pool.targets):,}", "columns": f"{pool.inputs.shape[1]:,} as numbers"}
    shares = [(pool.targets == label).double().mean().item() for label in range(pool.num_classes)]
    names = pool.classes or tuple(map(str, range(pool.num_classes)))
    facts["classes"] = ", ".join(f"{name} {share:.1%}" for name, share in zip(names[:12], shares))
    content = {"command": list(command), "versions": versions, "facts": facts}
    (folder / RUN_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
