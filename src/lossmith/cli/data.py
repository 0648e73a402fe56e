"""``lossmith data``: what there is to learn from and to measure on."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lossmith.cli.console import print_json, print_table, progress_bar, spinner


def list_datasets(as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False) -> None:
    """List the data sets, and which of them are here."""
    from lossmith.lab.datasets import DATA_VARIABLE, DATASETS

    if as_json:
        listed = [
            {"name": name, "description": source.description, "is_here": source.is_here}
            for name, source in DATASETS.items()
        ]
        print_json({"datasets": listed})
        return
    rows = [(name, "yes" if source.is_here else "no", source.description) for name, source in DATASETS.items()]
    print_table("data sets", ("name", "here", "what it is"), rows)
    if not all(source.is_here for source in DATASETS.values()):
        print(f"{DATA_VARIABLE} names the folder that holds the files of the others.")


def make_predictions(
    dataset: Annotated[str, Argument(help="A name from `lossmith data list`.")],
    out: Annotated[Path, Option(help="File to write (.npz or .safetensors).")],
    seeds: Annotated[int, Option(min=1, help="Models to train.")] = 3,
    epochs: Annotated[int | None, Option(min=1, help="Epochs for each; the data set has a default.")] = None,
    rows: Annotated[int, Option(min=1, help="Rows stored of each part, or all where there are fewer.")] = 5000,
    max_rows: Annotated[int | None, Option(min=1, help="Use no more rows of each part of the data set.")] = None,
    positive_class: Annotated[int | None, Option(help="Ask one question: this class, or another? (binary)")] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Train models with their ordinary loss and store what they predict on the way, early and late.

    Each checkpoint gives two sets: rows of the training part, and rows that are held out. A run that was stopped goes
    on from its last checkpoint when the same command is given again.
    """
    from lossmith.lab.checkpoints import CheckpointRun, checkpoint_steps, collect_checkpoints
    from lossmith.lab.datasets import find_dataset, one_against_rest
    from lossmith.lab.recipes import recipe_for
    from lossmith.predictions import save_predictions
    from lossmith.predictions.files import SUFFIXES

    if out.suffix not in SUFFIXES:  # now, and not after the training
        raise ValueError(f"{out}: predictions live in files that end in {' or '.join(SUFFIXES)}.")
    source = find_dataset(dataset)
    recipe = recipe_for(dataset)
    if epochs is not None:
        recipe = replace(recipe, num_epochs=epochs)
    with spinner(f"reading {dataset}"):
        data = source.load(max_rows)
    if positive_class is not None:
        data = one_against_rest(data, positive_class)
    run = CheckpointRun(data, recipe, Path(f"{out}.checkpoints"), num_seeds=seeds, num_rows=rows)
    with progress_bar(f"training {recipe.model}", run.num_steps) as advance:
        for step in checkpoint_steps(run):
            advance(step.number)
    stored = collect_checkpoints(run)
    save_predictions(out, stored.predictions, seed=stored.seed, epoch=stored.epoch)
    shutil.rmtree(run.folder)
    num_sets, set_size = stored.predictions.num_sets, stored.predictions.set_size
    if as_json:
        print_json({"out": str(out), "kind": data.kind, "num_sets": num_sets, "set_size": set_size})
    else:
        print(f"{out}: {num_sets} sets of {set_size} {data.kind} predictions, half of them held out.")
