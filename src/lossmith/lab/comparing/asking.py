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
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from lossmith.lab.comparing.studying import compare_steps, model_for, planned
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
    positive_class: int | str | None = None,
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
    and ``targets``; the name of a registered data set; or a :class:`Pool`. ``positive_class`` is what counts as yes, of
    several classes against all others. ``budget`` is in seconds. With a ``folder`` a run that was stopped goes on
    there, and ``lossmith report`` makes a page of it. ``progress`` prints a line for each loss that is done.
    """
    if isinstance(data, Pool):
        pool = against_the_rest(data, positive_class)
    elif isinstance(data, Mapping):
        pool = against_the_rest(_pool_of_columns("data", data, target), positive_class)
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


def read_data(
    data: str | os.PathLike[str], *, target: str | None = None, positive_class: int | str | None = None
) -> Pool:
    """A table or arrays in a file, or a registered data set."""
    path = Path(data)
    if str(data) not in DATASETS and (path.suffix or path.exists()):
        if path.suffix in ARRAY_SUFFIXES:
            if target is not None:
                raise ValueError(f"a target column goes with a table; in {path.name} it is the array called targets.")
            return against_the_rest(read_arrays(path), positive_class)
        return against_the_rest(_pool_of_columns(path.stem, read_columns(path), target), positive_class)
    if str(data) not in DATASETS and target is not None:
        beside = [each.name for each in sorted(path.parent.glob(f"{path.name}.*"))]
        hint = f"did you mean {beside[0]}?" if beside else "a table in a file works (table.csv)."
        raise ValueError(f"there is no file {data}; {hint}")
    if target is not None:
        raise ValueError(f"a target column goes with a table in a file; {data} is a data set, and knows its target.")
    dataset = find_dataset(str(data)).load(None)
    if positive_class is None:
        return pool_of(dataset)
    if not str(positive_class).isdigit():
        raise ValueError(
            f"the classes of {data} are numbers from 0 to {dataset.num_classes - 1}; {positive_class} came."
        )
    pool = pool_of(one_against_rest(dataset, int(positive_class)))
    return replace(pool, classes=("others", str(positive_class)))


def against_the_rest(pool: Pool, positive_class: int | str | None) -> Pool:
    """The same rows with a yes-or-no question: is it this class?"""
    if positive_class is None:
        return pool
    names = class_names(pool)
    if str(positive_class) not in names:
        shown = ", ".join(names[:12]) + (" and others" if len(names) > 12 else "")
        raise ValueError(f"{pool.name} has no class {positive_class}; its classes are {shown}.")
    is_positive = pool.targets == names.index(str(positive_class))
    rest = next(name for name in names if name != str(positive_class)) if len(names) == 2 else "others"
    name = pool.name if len(names) == 2 else f"{pool.name}, {positive_class} against the rest"
    return replace(
        pool,
        name=name,
        kind=Kind.BINARY,
        targets=is_positive.long(),
        num_classes=2,
        classes=(rest, str(positive_class)),
    )


def class_names(pool: Pool) -> tuple[str, ...]:
    return pool.classes or tuple(map(str, range(pool.num_classes)))


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
    value = _value_on_random_scores(metric, pool)
    if not math.isfinite(value):
        raise ValueError(
            f"{metric.name} is {value} on random scores for rows of {pool.name}; nothing can be chosen by it."
        )


def _value_on_random_scores(metric: Metric, pool: Pool) -> float:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(pool.targets), generator=generator)[:MAX_ROWS_OF_CHECK]
    shape = (1, len(rows)) if pool.kind is Kind.BINARY else (1, len(rows), pool.num_classes)
    scores = torch.randn(shape, generator=generator)
    if metric.reads_probabilities:
        scores = scores.sigmoid() if pool.kind is Kind.BINARY else scores.softmax(-1)
    return metric.value(scores, pool.targets[rows].unsqueeze(0)).item()


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
    _open_folder(folder, settings, pool, metric, command)
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
        yield News(progress.what, share_of_comparing * progress.share, comparison, bool(progress.trials))
    if not with_insights:
        return
    for what, share in insight_steps(settings, pool, metric, comparison, folder):
        if budget is not None and time.monotonic() - start > budget:
            return
        yield News(what, share_of_comparing + (1 - share_of_comparing) * share, comparison)


def _open_folder(folder: Path, settings: Settings, pool: Pool, metric: Metric, command: Sequence[str]) -> None:
    """A folder belongs to one question: other data, or a metric that has changed, would get the old answer."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a folder to keep the run in works.")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} cannot be written to; another folder works.")
    path = folder / RUN_FILE
    asked = {
        "data": f"{pool.name} ({_digest(pool)})",
        "metric": f"{metric.name} ({_value_on_random_scores(metric, pool):.4g} on random scores)",
    }
    kept = json.loads(path.read_text(encoding="utf8")).get("asked", asked) if path.is_file() else asked
    for what, which in asked.items():
        if kept[what] != which:
            raise ValueError(
                f"{folder} has a run of another {what}: {kept[what]}, and now {which} came; "
                "take another folder, or remove this one."
            )
    facts = _facts(pool) | {"model that was trained": model_for(settings, pool)}
    content = {"command": list(command), "asked": asked, "versions": _versions(), "facts": facts}
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
    unfinished.replace(path)


def _digest(pool: Pool) -> str:
    digest = hashlib.sha256(pool.inputs.numpy().tobytes())
    digest.update(pool.targets.numpy().tobytes())
    return digest.hexdigest()[:12]


def _versions() -> dict[str, str]:
    return {"lossmith": version("lossmith"), "torch": version("torch"), "python": platform.python_version()}


def _facts(pool: Pool) -> dict[str, str]:
    """Of the data, in words, for the report."""
    shares = [(pool.targets == label).double().mean().item() for label in range(pool.num_classes)]
    classes = ", ".join(f"{name} {share:.1%}" for name, share in zip(class_names(pool)[:12], shares))
    facts = {"rows": f"{len(pool.targets):,}", "columns": f"{pool.inputs.shape[1]:,} as numbers", "classes": classes}
    return facts | ({"counts as yes": class_names(pool)[1]} if pool.kind is Kind.BINARY else {})


def data_in_words(pool: Pool) -> str:
    """What was made of the user's data, in one sentence."""
    facts = _facts(pool)
    yes = f"; {facts['counts as yes']} counts as yes" if "counts as yes" in facts else ""
    columns = facts["columns"].replace(" as", " columns as")
    return f"{pool.name}: {facts['rows']} rows, {columns}; classes {facts['classes']}{yes}."
