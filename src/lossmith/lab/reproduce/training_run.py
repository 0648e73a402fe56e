"""One training run of an experiment, as papers describe theirs: SGD, and steps down of the learning rate.

A checkpoint is written after each epoch. Random numbers begin anew with each epoch, from the seed and its number, so a
run that is killed goes on from its last epoch and ends with the same numbers, on the same machine with the same number
of threads. The first training rows are for validation, by default a tenth of them, and no epoch is chosen by them:
tests are of the last one (:mod:`~lossmith.lab.reproduce.rate_choice` chooses learning rates by them).

>>> from tempfile import TemporaryDirectory
>>> run = TrainingRun("digits", "mlp", "ce", num_epochs=2, learning_rate=0.1)
>>> with TemporaryDirectory() as folder:
...     list(training_run_steps(run, Path(folder)))
[0.5, 1.0]
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from lossmith.lab.datasets import Dataset, find_dataset, one_against_rest
from lossmith.lab.models import MODELS
from lossmith.lab.reproduce.compared_losses import compared_loss
from lossmith.lab.reproduce.experiment import Result, Unit
from lossmith.methods.uniloss import UniLoss
from lossmith.metrics import find_metric
from lossmith.normalising import normalise
from lossmith.tracing.loss import trace
from lossmith.training import predict, shuffled_batches, train_steps
from lossmith.vocabulary import Loss

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class TrainingRun:
    """Plain values: they are kept beside the result, and say what it belongs to."""

    dataset: str
    model: str
    loss: str
    """``uniloss`` or ``traced``, of the metric, a name from ``lossmith losses``, or a sum: ``ce+accuracy``."""
    metric: str = "accuracy"
    num_epochs: int = 30
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    milestones: tuple[float, ...] = ()
    """Shares of the epochs after which the learning rate falls to a tenth."""
    positive_class: int | None = None
    """The question is whether a row is of this class."""
    num_anchors: int = 16
    """Of UniLoss."""
    link: float = 0.5
    """Of the traced loss."""
    warmup_share: float = 0.3
    """Of the epochs, before a learned loss joins its base loss."""
    is_normalised: bool = False
    """The loss has gradients of one length and a penalty on large scores."""
    is_augmented: bool = False
    """Images are padded by 4 and cropped at random, and half of them mirrored."""
    is_bfloat16: bool = False
    max_rows: int | None = None
    first_row: int = 0
    """Of both parts of the data: what another experiment has looked at may lie before it."""
    num_validation: int | None = None
    """Of the training rows; None: a tenth."""
    seed: int = 0

    def unit(self, name: str) -> Unit:
        return Unit(name, asdict(self), lambda folder: training_run_steps(self, folder))


def training_run_steps(run: TrainingRun, folder: Path) -> Generator[float, None, Result]:
    """Share of the epochs that is done; returns the metric on the test rows, and the curve of training."""
    model, curve = yield from trained_steps(run, folder)
    dataset = _load_dataset(run.dataset, run.positive_class, run.max_rows, run.first_row)
    return {"test": _evaluate(run, model, dataset.test_inputs, dataset.test_targets), "curve": curve}


def trained_steps(run: TrainingRun, folder: Path) -> Generator[float, None, tuple[nn.Module, list[Any]]]:
    """Share of the epochs that is done; returns the model and the curve of training. Test rows are not looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint.safetensors"
    dataset = _load_dataset(run.dataset, run.positive_class, run.max_rows, run.first_row)
    model = _new_model(run, dataset)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=run.learning_rate, momentum=run.momentum, weight_decay=run.weight_decay
    )
    curve = _restore(path, run, model, optimizer) if path.is_file() else []
    for epoch in range(len(curve), run.num_epochs):
        curve.append(_train_epoch(run, epoch, dataset, model, optimizer))
        _save(path, run, model, optimizer, curve)
        yield (epoch + 1) / run.num_epochs
    return model, curve


def _train_epoch(
    run: TrainingRun, epoch: int, dataset: Dataset, model: nn.Module, optimizer: torch.optim.SGD
) -> dict[str, float]:
    start = time.perf_counter()
    seed = 1_000_003 * run.seed + epoch
    generator = torch.Generator().manual_seed(seed)
    for group in optimizer.param_groups:
        group["lr"] = run.learning_rate * 0.1 ** sum(epoch >= share * run.num_epochs for share in run.milestones)
    num_validation = len(dataset.train_inputs) // 10 if run.num_validation is None else run.num_validation
    inputs, targets = dataset.train_inputs[num_validation:], dataset.train_targets[num_validation:]
    batches: Batches = shuffled_batches(inputs, targets, batch_size=run.batch_size, num_epochs=1, generator=generator)
    if run.is_augmented:
        batches = augmented(batches, generator)
    steps = train_steps(
        model, _new_loss(run, dataset, seed, epoch), batches, optimizer, autocast_dtype=_autocast_dtype(run)
    )
    losses = torch.stack([step.loss for step in steps])
    return {
        "loss": float(losses.mean()),
        "validation": _evaluate(
            run, model, dataset.train_inputs[:num_validation], dataset.train_targets[:num_validation]
        ),
        "seconds": round(time.perf_counter() - start, 1),
    }


def augmented(batches: Batches, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Images padded by 4 and cropped at random, and half of them mirrored (He et al. 2015, section 4.2)."""
    for images, targets in batches:
        num_images, _, height, width = images.shape
        down, right = torch.randint(9, (2, num_images, 1), generator=generator)
        is_mirrored = torch.rand(num_images, 1, generator=generator) < 0.5
        columns = torch.arange(width).expand(num_images, -1)
        rows, columns = torch.arange(height) + down, columns.where(~is_mirrored, width - 1 - columns) + right
        picked = F.pad(images, (4, 4, 4, 4)).permute(0, 2, 3, 1)[
            torch.arange(num_images)[:, None, None], rows[:, :, None], columns[:, None, :]
        ]
        yield picked.permute(0, 3, 1, 2), targets


def _evaluate(run: TrainingRun, model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    outputs = predict(model, inputs, autocast_dtype=_autocast_dtype(run))
    return float(find_metric(run.metric).value(outputs[None], targets[None]))


def _new_loss(run: TrainingRun, dataset: Dataset, seed: int, epoch: int) -> Loss:
    loss = _plain_loss(run, dataset, seed, epoch)
    return normalise(loss) if run.is_normalised else loss


def _plain_loss(run: TrainingRun, dataset: Dataset, seed: int, epoch: int) -> Loss:
    if run.loss == "uniloss":
        return UniLoss(run.metric, num_anchors=run.num_anchors, seed=seed)
    if run.loss == "traced":
        return _nan_of_nan(trace(find_metric(run.metric), link=run.link))
    # what is added to a base loss waits for a model that has learned something
    name = run.loss if epoch >= run.warmup_share * run.num_epochs else run.loss.partition("+")[0]
    return compared_loss(name, dataset.kind)


def _nan_of_nan(traced: Loss) -> Loss:
    """A rate that is too high makes scores NaN. A traced loss refuses them, and the run is to end as with any other."""
    return lambda outputs, targets: (
        traced(outputs, targets) if bool(outputs.isfinite().all()) else (outputs * torch.nan).sum()
    )


def _new_model(run: TrainingRun, dataset: Dataset) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        model = MODELS[run.model](dataset.input_shape, dataset.num_outputs)
    # the format that convolutions on a CPU are fastest in; torch's type stubs do not know it
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _autocast_dtype(run: TrainingRun) -> torch.dtype | None:
    return torch.bfloat16 if run.is_bfloat16 else None


@lru_cache(maxsize=1)
def _load_dataset(name: str, positive_class: int | None, max_rows: int | None, first_row: int) -> Dataset:
    dataset = find_dataset(name).load(None if max_rows is None else first_row + max_rows)
    parts = ("train_inputs", "train_targets", "test_inputs", "test_targets")
    dataset = replace(dataset, **{part: getattr(dataset, part)[first_row:] for part in parts})
    return dataset if positive_class is None else one_against_rest(dataset, positive_class)


def _save(path: Path, run: TrainingRun, model: nn.Module, optimizer: torch.optim.SGD, curve: list[Any]) -> None:
    contents = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    if run.momentum:
        for number, weights in enumerate(model.parameters()):
            contents[f"momentum.{number}"] = optimizer.state[weights]["momentum_buffer"]
    unfinished = path.with_suffix(".unfinished")
    metadata = {"settings": json.dumps(asdict(run)), "curve": json.dumps(curve)}
    save_file({name: tensor.contiguous() for name, tensor in contents.items()}, unfinished, metadata)
    unfinished.replace(path)


def _restore(path: Path, run: TrainingRun, model: nn.Module, optimizer: torch.optim.SGD) -> list[Any]:
    with safe_open(path, framework="pt") as checkpoint:
        metadata = checkpoint.metadata()
        if metadata["settings"] != json.dumps(asdict(run)):
            raise ValueError(f"{path} belongs to a run with other settings; delete it, or run in another folder.")
        model.load_state_dict({name: checkpoint.get_tensor(f"model.{name}") for name in model.state_dict()})
        if run.momentum:
            for number, weights in enumerate(model.parameters()):
                buffer = torch.empty_like(weights).copy_(checkpoint.get_tensor(f"momentum.{number}"))
                optimizer.state[weights]["momentum_buffer"] = buffer
        curve: list[Any] = json.loads(metadata["curve"])
        return curve
