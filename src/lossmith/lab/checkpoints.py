"""Predictions as a model makes them on its way: a loss is learned and judged on early and late checkpoints.

A model is trained with its ordinary loss, from several seeds. At steps 1, 4, 16, ... of the first epoch and at the end
of each epoch its outputs are taken, for rows that it trains on and for rows that are held out. Each checkpoint is one
file (outputs, weights, optimizer, random state), so a run that is killed goes on from its last checkpoint and ends
with the same numbers, bit for bit, on the same machine with the same number of threads.

>>> from lossmith.lab.datasets import DATASETS
>>> stored = checkpoint_predictions(DATASETS["digits"].load(256), Recipe(num_epochs=2), num_seeds=1, num_rows=64)
>>> stored.predictions.outputs.shape  # 3 checkpoints, each on rows of training and on held-out rows
torch.Size([6, 64, 10])
>>> stored.epoch[stored.predictions.is_held_out]
tensor([0.5000, 1.0000, 2.0000])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from lossmith.baselines import find_loss
from lossmith.lab.datasets import Dataset
from lossmith.lab.recipes import Recipe, new_model, new_optimizer, new_scheduler
from lossmith.training import predict, shuffled_batches, train_steps
from lossmith.vocabulary import Predictions, Step


@dataclass(frozen=True)
class StoredPredictions:
    """A stack with two sets for each checkpoint, and where each set comes from: ``seed [S]``, ``epoch [S]``."""

    predictions: Predictions
    seed: Tensor
    epoch: Tensor


@dataclass(frozen=True)
class CheckpointRun:
    """What is trained and what is stored of it; ``folder`` holds the checkpoints."""

    dataset: Dataset
    recipe: Recipe
    folder: Path
    num_seeds: int = 3
    num_rows: int = 5000
    """As many rows of each part, or all where there are fewer."""
    first_seed: int = 0

    def __post_init__(self) -> None:
        if self.num_seeds < 1 or self.num_rows < 1:
            raise ValueError(f"{self.num_seeds} seeds and {self.num_rows} rows came; 1 or more of each works.")

    @property
    def seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.num_seeds)

    @property
    def steps_per_epoch(self) -> int:
        num_rows = len(self.dataset.train_targets)
        return num_rows // min(self.recipe.batch_size, num_rows)

    @property
    def steps_per_seed(self) -> int:
        return self.steps_per_epoch * self.recipe.num_epochs

    @property
    def num_steps(self) -> int:
        return self.steps_per_seed * self.num_seeds

    @property
    def saved_steps(self) -> list[int]:
        """Steps of one seed after which a checkpoint is written: early ones are far more unlike each other."""
        early = [4**power for power in range(16) if 4**power < self.steps_per_epoch]
        return early + [self.steps_per_epoch * epoch for epoch in range(1, self.recipe.num_epochs + 1)]

    @property
    def row_numbers(self) -> tuple[Tensor, Tensor]:
        """Rows of the training part and of the held-out part: the same for every seed and checkpoint."""
        sizes = len(self.dataset.train_targets), len(self.dataset.test_targets)
        generator = torch.Generator().manual_seed(0)
        num_rows = min(self.num_rows, *sizes)
        train, held_out = (torch.randperm(size, generator=generator)[:num_rows].sort().values for size in sizes)
        return train, held_out

    def path(self, seed: int, step: int) -> Path:
        return self.folder / f"seed{seed}-step{step:07d}.safetensors"

    @property
    def settings(self) -> dict[str, str]:
        """Kept in each checkpoint, so that checkpoints of another run are never taken for this one's."""
        sizes = {"train_rows": len(self.dataset.train_targets), "stored_rows": len(self.row_numbers[0])}
        settings = {"dataset": self.dataset.name, **sizes, **asdict(self.recipe)}
        return {name: str(value) for name, value in settings.items()}


def checkpoint_predictions(
    dataset: Dataset, recipe: Recipe, *, num_seeds: int = 3, num_rows: int = 5000
) -> StoredPredictions:
    """Train, store and collect in one call, without a folder to go on from."""
    with TemporaryDirectory() as folder:
        run = CheckpointRun(dataset, recipe, Path(folder), num_seeds, num_rows)
        for _ in checkpoint_steps(run):
            pass
        return collect_checkpoints(run)


def checkpoint_steps(run: CheckpointRun) -> Iterator[Step]:
    """Train what is not yet stored, seed after seed; the steps are numbered from the first seed's first."""
    run.folder.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(run.seeds):
        for step in _seed_steps(run, seed):
            yield replace(step, number=index * run.steps_per_seed + step.number)


def collect_checkpoints(run: CheckpointRun) -> StoredPredictions:
    """Everything that the finished run stored, as one stack."""
    train_rows, held_out_rows = run.row_numbers
    targets = [run.dataset.train_targets[train_rows], run.dataset.test_targets[held_out_rows]]
    outputs, seeds, epochs = [], [], []
    for seed in run.seeds:
        for step in run.saved_steps:
            checkpoint = _load(run, seed, step)
            outputs += [checkpoint["train_outputs"], checkpoint["held_out_outputs"]]
            seeds += [seed] * 2
            epochs += [step / run.steps_per_epoch] * 2
    num_checkpoints = len(seeds) // 2
    is_held_out = torch.tensor([False, True]).repeat(num_checkpoints)
    predictions = Predictions(torch.stack(outputs), torch.stack(targets * num_checkpoints), is_held_out)
    return StoredPredictions(predictions, torch.tensor(seeds), torch.tensor(epochs))


def _seed_steps(run: CheckpointRun, seed: int) -> Iterator[Step]:
    dataset, recipe = run.dataset, run.recipe
    first_step = max((step for step in run.saved_steps if run.path(seed, step).is_file()), default=0)
    if first_step == run.steps_per_seed:
        return
    # torch's global random numbers are ours while a step runs and the caller's between steps
    callers_state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = new_model(recipe, dataset)
    optimizer = new_optimizer(recipe, model)
    if first_step:
        _restore(_load(run, seed, first_step), model, optimizer)
    scheduler = new_scheduler(optimizer, num_steps=run.steps_per_seed, first_step=first_step)
    batches = shuffled_batches(
        dataset.train_inputs,
        dataset.train_targets,
        batch_size=recipe.batch_size,
        num_epochs=recipe.num_epochs,
        generator=torch.Generator().manual_seed(seed),
    )
    steps = train_steps(
        model,
        find_loss("ce", dataset.kind),
        islice(batches, first_step, None),
        optimizer,
        scheduler=scheduler,
        autocast_dtype=recipe.autocast_dtype,
    )
    saved_steps = set(run.saved_steps)
    for step in steps:
        number = first_step + step.number
        if number in saved_steps:
            _save(run, seed, number, model, optimizer)
        callers_state = _exchange_random_state(callers_state)
        yield replace(step, number=number)
        callers_state = _exchange_random_state(callers_state)
    torch.set_rng_state(callers_state)


def _exchange_random_state(state: Tensor) -> Tensor:
    previous = torch.get_rng_state()
    torch.set_rng_state(state)
    return previous


def _save(run: CheckpointRun, seed: int, step: int, model: nn.Module, optimizer: Optimizer) -> None:
    train_rows, held_out_rows = run.row_numbers

    def outputs(inputs: Tensor) -> Tensor:
        return predict(model, inputs, autocast_dtype=run.recipe.autocast_dtype)

    contents = {
        "train_outputs": outputs(run.dataset.train_inputs[train_rows]),
        "held_out_outputs": outputs(run.dataset.test_inputs[held_out_rows]),
        "random_state": torch.get_rng_state(),
    }
    contents |= {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        contents |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
    path = run.path(seed, step)
    unfinished = path.with_suffix(".unfinished")
    save_file({name: tensor.contiguous() for name, tensor in contents.items()}, unfinished, run.settings)
    unfinished.replace(path)


def _load(run: CheckpointRun, seed: int, step: int) -> dict[str, Tensor]:
    with safe_open(run.path(seed, step), framework="pt") as checkpoint:
        found = checkpoint.metadata() or {}
        changes = [
            f"{name} was {found.get(name)} and is {value}"
            for name, value in run.settings.items()
            if found.get(name) != value
        ]
        if changes:
            raise ValueError(
                f"{run.folder} holds checkpoints of another run ({', '.join(changes)}); "
                "go on with its settings, or delete that folder."
            )
        return {name: checkpoint.get_tensor(name) for name in checkpoint.keys()}  # noqa: SIM118 (it is no dict)


def _restore(checkpoint: dict[str, Tensor], model: nn.Module, optimizer: Optimizer) -> None:
    """Put weights, optimizer and random numbers back where :func:`_save` took them."""
    weights = {name.removeprefix("model."): tensor for name, tensor in checkpoint.items() if name.startswith("model.")}
    model.load_state_dict(weights)
    parameters = list(model.parameters())
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            # in the memory format of its parameter: the same numbers, added in the same order
            like = parameters[int(index)]
            if tensor.shape == like.shape:
                tensor = torch.empty_like(like).copy_(tensor)
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    torch.set_rng_state(checkpoint["random_state"])
