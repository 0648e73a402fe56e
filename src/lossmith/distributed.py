"""A set is the group of predictions on which a metric is one number; here it reaches over processes, and over steps.

With data-parallel training each process sees a part of the batch, and a metric of the part is another metric: there
are fewer positives to rank, and a rare class may be missing. :class:`WholeSet` gathers the parts first, so that every
process computes the loss of the whole batch, and gradients are those of one process with that batch. ``memory`` adds
earlier batches, without gradients, where one batch is too small to say much about the metric. A metric is gathered as a
loss is: ``metric(*gather_set(outputs, targets))``.

>>> from lossmith.baselines import find_loss
>>> loss = WholeSet(find_loss("pairwise", "binary"), memory=1)
>>> positives, negatives = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0])
>>> float(loss(torch.tensor([2.0, 3.0]), positives))  # one process, one class: nothing to compare
0.0
>>> round(float(loss(torch.tensor([0.0, 1.0]), negatives)), 3)  # with the batch before
0.154
"""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as processes
from torch import Tensor, nn

from lossmith.vocabulary import Loss


def gather_set(
    outputs: Tensor,
    targets: Tensor,
    *,
    averages_gradients: bool = True,
    group: processes.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """Rows of all processes, in the order of their ranks; the number of rows may differ.

    The gradient goes to this process' own rows: the others compute the same loss and take care of theirs.
    DistributedDataParallel and FSDP then *average* gradients over processes where one process would have the sum;
    ``averages_gradients`` makes up for that. Every process of the group must call this, or the others wait.
    """
    if not (processes.is_available() and processes.is_initialized()):
        return outputs, targets
    num_processes = processes.get_world_size(group)
    if num_processes == 1:
        return outputs, targets
    num_rows = _rows_of_each(outputs, targets, num_processes, group)
    if averages_gradients and outputs.requires_grad:
        outputs = outputs.view_as(outputs)  # the hook is for this use of the outputs alone
        outputs.register_hook(lambda gradient: gradient * num_processes)
    return _gather(outputs, num_rows, group), _gather(targets, num_rows, group)


class WholeSet(nn.Module):
    """``loss`` on the rows of all processes and of the ``memory`` batches before, in training mode.

    After ``eval()`` it is the loss of what it is given: a process that evaluates alone does not wait for the others.
    It goes around everything else, :func:`lossmith.combine` included. Give a memory to it or to a traced loss inside,
    not to both: they would hold the same rows twice.
    """

    def __init__(
        self,
        loss: Loss,
        *,
        memory: int = 0,
        averages_gradients: bool = True,
        group: processes.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if memory < 0:
            raise ValueError(f"memory={memory} came; a number of earlier batches, 0 or more, works.")
        self.loss = loss
        self.averages_gradients = averages_gradients
        self.group = group
        self._earlier: deque[tuple[Tensor, Tensor]] = deque(maxlen=memory)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not self.training:
            return self.loss(outputs, targets)
        outputs, targets = gather_set(outputs, targets, averages_gradients=self.averages_gradients, group=self.group)
        earlier = tuple(self._earlier)
        self._earlier.append((outputs.detach(), targets))
        return self.loss(
            torch.cat((outputs, *(scores for scores, _ in earlier))),
            torch.cat((targets, *(truth for _, truth in earlier))),
        )

    def extra_repr(self) -> str:
        return f"memory={self._earlier.maxlen}"


def _rows_of_each(
    outputs: Tensor, targets: Tensor, num_processes: int, group: processes.ProcessGroup | None
) -> list[int]:
    """Number of rows; and whether the rows are alike, because tensors that are not would be read as garbage."""
    if len(outputs) != len(targets):
        raise ValueError(f"{len(outputs)} rows of outputs came with {len(targets)} rows of targets.")
    own = torch.tensor([len(outputs), outputs.shape[1:].numel(), targets.shape[1:].numel()], device=outputs.device)
    shapes = [torch.empty_like(own) for _ in range(num_processes)]
    processes.all_gather(shapes, own, group=group)
    num_rows, *sizes = torch.stack(shapes).T.tolist()
    for name, size in zip(("outputs", "targets"), sizes):
        if len(set(size)) > 1:
            raise ValueError(f"a row of {name} has {size} numbers in the processes; the same number works.")
    return [int(number) for number in num_rows]


def _gather(own: Tensor, num_rows: list[int], group: processes.ProcessGroup | None) -> Tensor:
    rank, width = processes.get_rank(group), max(num_rows)
    # collectives take tensors of one shape: the rest is padding
    padded = own.new_zeros(width, *own.shape[1:])
    padded[: len(own)] = own.detach()
    parts = [torch.empty_like(padded) for _ in num_rows]
    processes.all_gather(parts, padded, group=group)
    # its own rows with their graph
    return torch.cat([own if at == rank else part[:size] for at, (part, size) in enumerate(zip(parts, num_rows))])
