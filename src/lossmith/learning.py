"""Learning a surrogate is a generator, too: one :class:`~lossmith.vocabulary.Step` for each step of its optimizer.

A surrogate learns from stacks of sets. Stored stacks become a pool: their summaries and the metric's costs are
computed once, and each step draws sets from it. A stream gives a fresh stack for each step.

Each step compares sets across all sources (early and late checkpoints, random ones), and by the share ``within`` sets
that come from one stack alone and differ only by their rows: across checkpoints everything improves together, so a loss
that tracks confidence looks good there; inside one checkpoint only the decisions differ.

>>> import torch
>>> from lossmith.surrogates import margin_loss
>>> from lossmith.predictions import random_predictions
>>> from lossmith.metrics import accuracy
>>> generator = torch.Generator().manual_seed(0)
>>> stack = random_predictions("multiclass", num_sets=512, set_size=64, generator=generator)
>>> surrogate = margin_loss("multiclass")
>>> optimizer = torch.optim.Adam(surrogate.parameters(), lr=0.01)
>>> steps = surrogate_steps(
...     surrogate, accuracy(), [stack], rank_objective(), optimizer, num_steps=50, generator=generator
... )
>>> losses = [float(step.loss) for step in steps]
>>> losses[-1] < -0.9
True
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Generator, Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lossmith.ranking import soft_spearman
from lossmith.surrogates.surrogate import Surrogate
from lossmith.vocabulary import Metric, Predictions, Step

Objective = Callable[[Tensor, Tensor, float], Tensor]
"""``(losses [..., n], costs [..., n], progress 0 to 1) -> [...]``, to be minimised."""

# sets of one source that are compared with each other in a step
SETS_PER_SOURCE = 32


def rank_objective(*, start: float = 1.0, end: float = 0.05) -> Objective:
    """The negative soft Spearman correlation of losses and costs (paper, eq. 7).

    Soft at first and sharper with every step: a sort that is steep from the start has no gradient for a loss of the
    wrong sign, and leaves it there.
    """

    def objective(losses: Tensor, costs: Tensor, progress: float) -> Tensor:
        return -soft_spearman(losses, costs, temperature=start * (end / start) ** progress)

    return objective


def approximation_objective() -> Objective:
    """Mean squared distance of losses and costs: what earlier work minimised (paper, eq. 5)."""

    def objective(losses: Tensor, costs: Tensor, progress: float) -> Tensor:
        return (losses - costs).square().mean(-1)

    return objective


@dataclass(frozen=True)
class Pool:
    """Stored sets as a surrogate sees them; undefined costs are left out."""

    summary: tuple[Tensor, ...]
    costs: Tensor
    first: Tensor
    """``[num_sources]``: where each source's sets begin,"""
    size: Tensor
    """and how many it has."""

    def draw(self, num_sets: int, generator: Generator) -> tuple[tuple[Tensor, ...], Tensor]:
        """Sets of all sources."""
        return self._pick(torch.randint(len(self.costs), (num_sets,), generator=generator))

    def draw_within(self, num_sources: int, generator: Generator) -> tuple[tuple[Tensor, ...], Tensor]:
        """``num_sources x SETS_PER_SOURCE`` sets, source after source."""
        rich = (self.size >= SETS_PER_SOURCE).nonzero().squeeze(-1)
        source = rich[torch.randint(len(rich), (num_sources, 1), generator=generator)]
        place = torch.rand(num_sources, SETS_PER_SOURCE, generator=generator)
        return self._pick((self.first[source] + (place * self.size[source]).long()).flatten())

    def _pick(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        index = index.to(self.costs.device)
        return tuple(part[index] for part in self.summary), self.costs[index]


@torch.no_grad()
def pool_of(surrogate: Surrogate, metric: Metric, stacks: Sequence[Predictions]) -> Pool:
    """Every stack is one source."""
    summaries, costs = [], []
    for stack in stacks:
        cost = metric.cost(stack.outputs, stack.targets)
        is_defined = ~cost.isnan()
        summaries.append([part[is_defined] for part in surrogate.summarize(stack.outputs, stack.targets)])
        costs.append(cost[is_defined].float())
    size = torch.tensor([len(cost) for cost in costs])
    if not size.sum():
        raise ValueError(f"{metric.name} is defined on none of the sets that came: there is nothing to learn from.")
    summary = tuple(torch.cat(_padded(parts)) for parts in zip(*summaries))
    return Pool(summary, torch.cat(costs), size.cumsum(0) - size, size)


def _padded(parts: Sequence[Tensor]) -> list[Tensor]:
    """Sources may differ in the number of classes or rows: zeros, which count for nothing, fill them up."""
    widest = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts))]
    pads = [[pad for wide, size in zip(widest, part.shape[1:]) for pad in (wide - size, 0)][::-1] for part in parts]
    return [torch.nn.functional.pad(part, pad) for part, pad in zip(parts, pads)]


def surrogate_steps(
    surrogate: Surrogate,
    metric: Metric,
    predictions: Sequence[Predictions] | Iterable[Predictions],
    objective: Objective,
    optimizer: Optimizer,
    *,
    num_steps: int,
    generator: Generator,
    sets_per_step: int = 256,
    gradient_penalty: float = 0.0,
    within: float = 0.0,
    scheduler: LRScheduler | None = None,
    max_gradient_norm: float = 10.0,
    first_step: int = 0,
) -> Iterator[Step]:
    """Learn ``surrogate`` to order sets as ``metric`` does (paper, Algorithm 1).

    ``predictions`` is a list of stacks, from which each step draws, or an iterator that gives one stack for each step.
    ``gradient_penalty`` is the paper's lambda; ``first_step`` goes on with a run that was stopped there.
    """
    pool = pool_of(surrogate, metric, predictions) if isinstance(predictions, Sequence) else None
    stream = iter(predictions)
    num_sources = sets_per_step // SETS_PER_SOURCE
    has_rich_source = pool is not None and bool((pool.size >= SETS_PER_SOURCE).any())
    share_within = within if has_rich_source and num_sources else 0.0
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    for number in range(first_step + 1, num_steps + 1):
        progress = (number - 1) / num_steps
        if pool is None:
            stack = next(stream)
            with torch.no_grad():
                summary = surrogate.summarize(stack.outputs, stack.targets)
                costs = metric.cost(stack.outputs, stack.targets)
            is_defined = ~costs.isnan()
            summary, costs = tuple(part[is_defined] for part in summary), costs[is_defined].float()
        else:
            summary, costs = pool.draw(sets_per_step, generator)
        value = (1 - share_within) * objective(surrogate.losses(*summary), costs, progress)
        if gradient_penalty:
            value = value + gradient_penalty * surrogate.penalty(*summary).mean()
        if pool is not None and share_within:
            summary, costs = pool.draw_within(num_sources, generator)
            losses = surrogate.losses(*summary)
            by_source = (num_sources, SETS_PER_SOURCE)
            value = value + share_within * objective(losses.view(by_source), costs.view(by_source), progress).mean()

        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(weights, max_gradient_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        yield Step(number, value.detach())


# ---- going on with a run that was killed


class LearningState:
    """A surrogate on its way: its best weights so far, and all that the next step depends on."""

    def __init__(self, surrogate: Surrogate, optimizer: Optimizer, generator: Generator) -> None:
        self.surrogate = surrogate
        self.optimizer = optimizer
        self.generator = generator
        self.step = 0
        self.best_agreement = -2.0
        self.best = _copy_of(surrogate.state_dict())

    def consider(self, agreement: float) -> None:
        """Keep the present weights if they are the best."""
        if agreement > self.best_agreement:
            self.best_agreement, self.best = agreement, _copy_of(self.surrogate.state_dict())

    def use_best(self) -> None:
        self.surrogate.load_state_dict(self.best)

    def tensors(self, step: int) -> dict[str, Tensor]:
        """Everything after ``step``, for a file."""
        contents = {
            "step": torch.tensor(step),
            "best_agreement": torch.tensor(self.best_agreement, dtype=torch.float64),
            "generator": self.generator.get_state(),
        }
        contents |= {f"now.{name}": tensor for name, tensor in self.surrogate.state_dict().items()}
        contents |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            contents |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        return _copy_of(contents)

    def restore(self, contents: Mapping[str, Tensor]) -> None:
        """Put everything back where :meth:`tensors` took it."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in contents.items() if name.startswith(prefix)}

        self.step, self.best_agreement = int(contents["step"]), float(contents["best_agreement"])
        self.generator.set_state(contents["generator"])
        self.surrogate.load_state_dict(under("now."))
        self.best = under("best.")
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in under("optimizer.").items():
            index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})


def save_learning(path: Path, states: Mapping[int, Mapping[str, Tensor]], settings: Mapping[str, object]) -> None:
    """The states of several surrogates in one file, which appears whole or not at all."""
    contents = {f"{index}.{name}": tensor for index, state in states.items() for name, tensor in state.items()}
    unfinished = path.with_name(path.name + ".unfinished")
    save_file(contents, unfinished, {"settings": json.dumps(settings)})
    unfinished.replace(path)


def load_learning(path: Path, settings: Mapping[str, object]) -> dict[int, dict[str, Tensor]]:
    """Nothing where there is no file yet; an error where the file is of another run."""
    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            found = json.loads((file.metadata() or {}).get("settings", "{}"))
            contents = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read, so learning cannot go on from it: {error}; delete it.") from None
    wanted = json.loads(json.dumps(settings))
    if found != wanted:
        changed = ", ".join(name for name in wanted if found.get(name) != wanted[name])
        raise ValueError(f"{path} is of another run (other {changed}); go on with its settings, or delete it.")
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in contents.items():
        index, _, rest = name.partition(".")
        states.setdefault(int(index), {})[rest] = tensor
    return states


def _copy_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
