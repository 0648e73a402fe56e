"""Training is a generator: one :class:`~lossmith.vocabulary.Step` for each step of the optimizer.

What happens between steps (progress, logging, evaluation, early stopping) is the body of the caller's ``for`` loop.
Nothing here waits for the device, and nothing is left behind in the caller: no autocast, no ``no_grad``, no mode of
the model outlives a ``yield``.

>>> import torch
>>> _ = torch.manual_seed(0)
>>> inputs = torch.randn(512, 2)
>>> targets = (inputs.sum(1) > 0).long()
>>> model = torch.nn.Linear(2, 2)
>>> optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
>>> batches = shuffled_batches(inputs, targets, batch_size=64, num_epochs=5, generator=torch.Generator())
>>> for step in train_steps(model, torch.nn.CrossEntropyLoss(), batches, optimizer):
...     if step.number % 20 == 0:
...         accuracy = (predict(model, inputs).argmax(1) == targets).float().mean()
...         print(step.number, bool(accuracy > 0.95))
20 True
40 True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lossmith.vocabulary import Loss, Step


def train_steps(
    model: nn.Module,
    loss: Loss,
    batches: Iterable[tuple[Tensor, Tensor]],
    optimizer: Optimizer,
    *,
    scheduler: LRScheduler | None = None,
    autocast_dtype: torch.dtype | None = None,
) -> Iterator[Step]:
    """One optimizer step (and one scheduler step) for each ``(inputs, targets)``, until the batches end.

    The model trains in the mode that it is in: a frozen batch norm stays frozen, and a caller who switches to
    ``eval()`` between steps switches back. Gradients are cleared before ``backward`` and not after the step, so the
    loop body may look at them. A loss with weights of its own learns when the optimizer has them.
    """
    if autocast_dtype is torch.float16:
        raise ValueError(
            "autocast_dtype is torch.float16, whose gradients vanish without scaling; torch.bfloat16 works."
        )
    for number, (inputs, targets) in enumerate(batches, start=1):
        value = loss(_forward(model, inputs, autocast_dtype), targets)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        yield Step(number, value.detach())


def predict(
    model: nn.Module, inputs: Tensor, batch_size: int = 1024, *, autocast_dtype: torch.dtype | None = None
) -> Tensor:
    """Outputs for all ``inputs``, in evaluation mode and without gradients; every module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return torch.cat([_forward(model, batch, autocast_dtype) for batch in inputs.split(batch_size)])
    finally:
        # one by one: `model.train()` would thaw what the caller had frozen
        for module, is_training in modes:
            module.training = is_training


def shuffled_batches(
    inputs: Tensor, targets: Tensor, *, batch_size: int, num_epochs: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of one size from data in memory, in a new order each epoch.

    An epoch leaves out the remainder (others each time): a set metric on a rest of three rows would be another metric.
    Data smaller than a batch come whole.
    """
    num_rows = len(inputs)
    batch_size = min(batch_size, num_rows)
    for _ in range(num_epochs):
        order = torch.randperm(num_rows, generator=generator)[: num_rows // batch_size * batch_size]
        for index in order.to(inputs.device).split(batch_size):
            yield inputs[index], targets[index]


def _forward(model: nn.Module, inputs: Tensor, autocast_dtype: torch.dtype | None) -> Tensor:
    if autocast_dtype is None:
        outputs: Tensor = model(inputs)
        return outputs
    with torch.autocast(inputs.device.type, dtype=autocast_dtype):
        outputs = model(inputs)
    # losses and metrics sort and sum: in half precision they would not see the differences they are about
    return outputs.float()
