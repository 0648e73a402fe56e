"""A child: a model on its way, with an adjustable loss. An interval of its training is a function of its state.

Random numbers begin anew with each interval, from the child's seed and the step, and batches can begin at any step. So
an interval gives the same result wherever it runs, and a child that died goes on from its last checkpoint.

>>> import torch
>>> batches = EpochBatches(torch.arange(6.0), torch.arange(6), batch_size=2, seed=0)
>>> from itertools import islice
>>> all_at_once = [targets.tolist() for _, targets in islice(batches(0), 7)]
>>> all_at_once[5:] == [targets.tolist() for _, targets in islice(batches(5), 2)]
True
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from lossmith.methods.ala.adjustable import AdjustableLoss
from lossmith.training import predict, train_steps
from lossmith.vocabulary import Loss, Metric, check_predictions

Batch = tuple[Tensor, Tensor]
# Held-out rows go through the model in parts like those that it trains on. In parts of a thousand, what a small
# convolution gives is memory that the system hands out and takes back each time: nearly half of the seconds went there,
# and two processes wait for one another over it.
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class EpochBatches:
    """``batches(first_step)``: shuffled batches from that step on, without end.

    ``change(inputs, generator)`` is applied to the inputs of each batch, with random numbers of its step.
    """

    inputs: Tensor
    targets: Tensor
    batch_size: int
    seed: int
    change: Callable[[Tensor, torch.Generator], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not len(self.inputs) or len(self.inputs) != len(self.targets):
            raise ValueError(
                f"{len(self.inputs)} inputs, {len(self.targets)} targets and batch_size={self.batch_size} came; as "
                "many inputs as targets, and 1 or more of all three, work."
            )

    def __call__(self, first_step: int) -> Iterator[Batch]:
        steps_per_epoch = max(1, len(self.inputs) // self.batch_size)
        order = torch.empty(0)
        for step in count(first_step):
            epoch, place = divmod(step, steps_per_epoch)
            if place == 0 or step == first_step:
                order = torch.randperm(len(self.inputs), generator=_generator(self.seed, epoch))
            index = order[place * self.batch_size : (place + 1) * self.batch_size]
            inputs = self.inputs[index]
            if self.change is not None:
                inputs = self.change(inputs, _generator(self.seed + 1, step))
            yield inputs, self.targets[index]


@dataclass
class Child:
    """What is trained, and how. Of several children each needs a model, a loss and an optimizer of its own."""

    model: nn.Module
    loss: AdjustableLoss
    optimizer: Optimizer
    batches: Callable[[int], Iterable[Batch]]
    """From the step of that number (0, 1, ...) on; :class:`EpochBatches` is one."""
    learning_rate: Callable[[int], float] | None = None
    """By the number of the step; without, the optimizer's own."""
    warmup_loss: Loss | None = None
    """Until the controller begins; without, the adjustable loss as it starts."""
    autocast_dtype: torch.dtype | None = None
    seed: int = 0


@dataclass(frozen=True)
class Interval:
    """The steps between two moves of the controller, and what is looked at."""

    first_step: int
    num_steps: int
    is_warmup: bool
    metric: Metric
    validation: Batch
    selection: Batch | None
    num_evaluations: int
    discount: float

    @property
    def evaluated_steps(self) -> list[int]:
        """Where the metric is looked at: midpoints of equal parts of the weights of eq. 4.

        With a discount of 0.9 two thirds of the weight lie on the last ten steps, whatever the length of the interval.
        """
        parts = [(number + 0.5) / self.num_evaluations for number in range(self.num_evaluations)]
        if self.discount == 1:  # all steps weigh the same
            return sorted({self.num_steps - int(part * self.num_steps) for part in parts})
        back = [
            int(math.log(1 - part * (1 - self.discount**self.num_steps)) / math.log(self.discount)) for part in parts
        ]
        return sorted({self.num_steps - each for each in back})


@dataclass(frozen=True)
class Report:
    """What came of an interval. Costs are lower for better, and NaN where the metric is undefined throughout;
    ``selection`` is NaN where there is no such split.
    """

    loss: Tensor
    cost: Tensor
    selection: Tensor
    statistics: Tensor
    training_seconds: Tensor
    evaluation_seconds: Tensor


def train_interval(child: Child, interval: Interval) -> Report:
    """Train for some steps, and look at the held-out predictions near their end."""
    losses: list[Tensor] = []
    costs: list[Tensor] = []
    start, evaluating = time.perf_counter(), 0.0
    outputs = torch.empty(0)
    evaluated = set(interval.evaluated_steps) | {interval.num_steps}
    loss = child.warmup_loss if interval.is_warmup and child.warmup_loss is not None else child.loss
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1_000_003 * child.seed + interval.first_step)
        _set_learning_rate(child, interval.first_step)
        batches = islice(child.batches(interval.first_step), interval.num_steps)
        for step in train_steps(child.model, loss, batches, child.optimizer, autocast_dtype=child.autocast_dtype):
            losses.append(step.loss)
            _set_learning_rate(child, interval.first_step + step.number)
            if step.number in evaluated:
                now = time.perf_counter()
                outputs = _outputs_of(child, interval.validation[0])
                if not costs:
                    _check(interval, outputs)
                costs.append(interval.metric.cost(outputs[None], interval.validation[1][None])[0])
                evaluating += time.perf_counter() - now
    if len(losses) < interval.num_steps:
        raise ValueError(
            f"the batches of a child ended after {len(losses)} of the {interval.num_steps} steps from step "
            f"{interval.first_step} on; batches without end, as of EpochBatches, work."
        )
    now = time.perf_counter()
    statistics = child.loss.statistics(outputs, interval.validation[1])
    if not bool(statistics.isfinite().all()):
        raise ValueError(
            f"{type(child.loss).__name__} gives {int((~statistics.isfinite()).sum())} statistics that are NaN or "
            "infinite on the validation rows; a loss that is finite there works."
        )
    selection = torch.tensor(torch.nan)
    if interval.selection is not None:
        chosen_by = _outputs_of(child, interval.selection[0])
        selection = interval.metric.cost(chosen_by[None], interval.selection[1][None])[0]
    evaluating += time.perf_counter() - now
    total = time.perf_counter() - start
    return Report(
        torch.stack(losses).double().mean().cpu(),
        # a metric may be undefined at some of the points (no positive was predicted): the others count
        torch.stack(costs).double().nanmean().cpu(),
        selection.double().cpu(),
        statistics.cpu(),
        torch.tensor(total - evaluating, dtype=torch.float64),
        torch.tensor(evaluating, dtype=torch.float64),
    )


def _outputs_of(child: Child, inputs: Tensor) -> Tensor:
    return predict(child.model, inputs, ROWS_AT_ONCE, autocast_dtype=child.autocast_dtype)


def _check(interval: Interval, outputs: Tensor) -> None:
    if not bool(outputs.isfinite().all()):
        raise ValueError(
            f"outputs are NaN or infinite within {interval.num_steps} steps from step {interval.first_step} on: the "
            "training of a child diverged, where a lower learning rate may work, or the validation inputs are so."
        )
    check_predictions(interval.metric.kind, outputs, interval.validation[1], want_scores=False)


def _set_learning_rate(child: Child, step: int) -> None:
    if child.learning_rate is not None:
        for group in child.optimizer.param_groups:
            group["lr"] = child.learning_rate(step)


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(1_000_003 * seed + number)


# ------------------------------------------------------------------------------------------------------- checkpoints


def save_child(path: Path, child: Child, report: Report) -> None:
    """What the next interval depends on, and the report of the last; the file appears whole or not at all."""
    contents = {f"model.{name}": tensor for name, tensor in child.model.state_dict().items()}
    contents |= {f"loss.{name}": tensor for name, tensor in child.loss.state_dict().items()}
    for index, state in child.optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                contents[f"optimizer.{index}.{name}"] = value
            elif isinstance(value, int | float):
                contents[f"number.{index}.{name}"] = torch.tensor(value, dtype=torch.float64)
            elif value is not None:
                raise ValueError(
                    f"the optimizer keeps {name!r} as {type(value).__name__}, which no checkpoint holds; tensors and "
                    "numbers work."
                )
    contents |= {f"report.{name}": tensor for name, tensor in vars(report).items()}
    save_tensors(path, contents)


def restore_child(path: Path, child: Child) -> None:
    contents = load_tensors(path)
    child.model.load_state_dict(under("model.", contents))
    child.loss.load_state_dict(under("loss.", contents))
    states: dict[int, dict[str, Tensor | float]] = {}
    kept: dict[str, Tensor | float] = dict(under("optimizer.", contents))
    kept |= {name: number.item() for name, number in under("number.", contents).items()}
    for name, value in kept.items():
        index, _, key = name.partition(".")
        states.setdefault(int(index), {})[key] = value
    child.optimizer.load_state_dict({**child.optimizer.state_dict(), "state": states})


def read_report(path: Path) -> Report:
    with safe_open(path, framework="pt") as file:
        return Report(**{name: file.get_tensor(f"report.{name}") for name in Report.__dataclass_fields__})


def save_tensors(path: Path, contents: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    # clones: weights that are shared would be refused
    save_file(
        {name: tensor.detach().cpu().clone().contiguous() for name, tensor in contents.items()}, unfinished, metadata
    )
    unfinished.replace(path)


def load_tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)


def under(prefix: str, contents: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {name.removeprefix(prefix): value for name, value in contents.items() if name.startswith(prefix)}
