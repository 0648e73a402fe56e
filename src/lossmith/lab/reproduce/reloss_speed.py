"""ReLoss (Huang et al. 2022), Table 15: what a learned loss adds to a training step, in time and in memory.

Memory is what autograd keeps for the backward pass: counted tensor by tensor, so that it is the same each time.

>>> kept = bytes_kept(lambda: torch.ones(1000, requires_grad=True).exp().sum())
>>> kept  # the result of exp: 1,000 numbers of 4 bytes
4000
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from lossmith.lab.models import MODELS
from lossmith.lab.reproduce.compared_losses import compared_loss
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.vocabulary import Kind, Loss

BATCH_SIZE, NUM_CLASSES = 128, 10
BASE, SUM = "ce", "ce+accuracy"


def bytes_kept(forward: Callable[[], Tensor]) -> int:
    """Of storage that the graph of ``forward()`` holds on to, each piece counted once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = forward()
    del value
    return sum(kept.values())


def _turns(model_name: str, num_steps: int) -> Generator[float, None, Result]:
    """Both losses train in turns, so that a neighbour on the machine slows both; the fastest step of each counts."""
    images, targets = torch.randn(BATCH_SIZE, 3, 32, 32), torch.randint(NUM_CLASSES, (BATCH_SIZE,))
    losses = {name: compared_loss(name, Kind.MULTICLASS) for name in (BASE, SUM)}
    models = {name: MODELS[model_name](torch.Size([3, 32, 32]), NUM_CLASSES) for name in losses}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    for number in range(num_steps):
        for name, loss in losses.items():
            start = time.process_time()
            optimizers[name].zero_grad()
            loss(models[name](images), targets).backward()
            optimizers[name].step()
            seconds[name].append(time.process_time() - start)
        yield number / num_steps
    return {
        name: {
            "seconds": min(seconds[name]),
            "bytes": bytes_kept(partial(_forward, models[name], loss, images, targets)),
        }
        for name, loss in losses.items()
    }


def _forward(model: nn.Module, loss: Loss, images: Tensor, targets: Tensor) -> Tensor:
    return loss(model(images), targets)


def _units(scale: str) -> list[Unit]:
    model, num_steps = {"smoke": ("small_cnn", 2), "cpu": ("resnet20", 40), "paper": ("resnet56", 100)}[scale]
    return [Unit("in turns", {"model": model, "num_steps": num_steps}, lambda folder: _turns(model, num_steps))]


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    measured = results["in turns"]
    rows = [
        (loss, f"{1 / found['seconds']:.2f}", f"{found['bytes'] / 2**20:.2f} MiB") for loss, found in measured.items()
    ]
    time_added, memory_added = (100 * (measured[SUM][what] / measured[BASE][what] - 1) for what in ("seconds", "bytes"))
    bars = [
        Bar("added to a step, % of its time", time_added, 3.0, is_at_least=False),
        Bar("added memory, %", memory_added, 1.0, is_at_least=False),
    ]
    return Verdict(("loss", "batches a second", "kept for the backward pass"), rows, [] if scale == "smoke" else bars)


SPEED = Experiment(
    "reloss-speed",
    "Time and memory of a training step with the learned loss (Table 15).",
    {"smoke": "a small network, seconds", "cpu": "ResNet-20, a minute", "paper": "ResNet-56"},
    _units,
    _judge,
)
