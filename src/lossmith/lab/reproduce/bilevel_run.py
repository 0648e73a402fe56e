"""One model trained by Algorithm 1 of *Learning Surrogate Losses*, as long as the paper's, and killed at any time.

The network, batches and split are those of section 4.1. A run is cut into stretches; after each the model is judged on
the test rows and a checkpoint is written. Random numbers begin anew with every stretch, so a run that is killed goes on
from its last one and ends with the same numbers.

>>> from tempfile import TemporaryDirectory
>>> run = BilevelRun("phoneme", "auc", num_iterations=4, num_stretches=2, num_first_steps=10)
>>> paper_network(5)(torch.zeros(3, 5)).shape
torch.Size([3])
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lossmith.lab.datasets import find_dataset
from lossmith.lab.datasets.splitting import Parts, pool_of, split
from lossmith.lab.reproduce.experiment import Result, Unit
from lossmith.methods.bilevel import BilevelSurrogate, bilevel_steps, stratified_batches, universal_steps
from lossmith.metrics import find_metric
from lossmith.training import predict

BATCH_SIZE = 100
SHARES = (0.7, 0.1, 0.2)
# a share is told so often within a stretch
ITERATIONS_BETWEEN_YIELDS = 20


@dataclass(frozen=True)
class BilevelRun:
    """Plain values: they are kept beside the result. By default SL-R in the fast setting."""

    dataset: str
    metric: str
    num_iterations: int
    num_stretches: int = 20
    learning_rate: float = 1e-2
    surrogate_rate: float = 1e-3
    max_gradient_norm: float | None = None
    num_copies: int = 3
    num_first_steps: int = 1000
    is_paper: bool = False
    """The surrogate's own gradient, universal sets as in section 4.2, and no schedule; else half a cosine."""
    seed: int = 0

    @property
    def stretch(self) -> int:
        """Iterations from one look to the next."""
        return max(self.num_iterations // self.num_stretches, 1)

    def unit(self, name: str) -> Unit:
        return Unit(name, asdict(self), lambda folder: bilevel_run_steps(self, folder))


def paper_network(num_features: int) -> nn.Module:
    """[100, 30, 10, 1] with batch norm, leaky ReLU and dropout (section 4.1)."""
    sizes = (num_features, 100, 30, 10)
    hidden: list[nn.Module] = []
    for size, width in itertools.pairwise(sizes):
        hidden += [nn.Linear(size, width), nn.BatchNorm1d(width), nn.LeakyReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], 1), nn.Flatten(0))


def bilevel_run_steps(run: BilevelRun, folder: Path) -> Generator[float, None, Result]:
    """Share of the iterations that is done; returns the metric on test rows after each stretch."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint.safetensors"
    state = _State(run)
    curve = state.restore(path) if path.is_file() else []
    while len(curve) < run.num_stretches:
        start = time.process_time()
        for share in state.train(len(curve)):
            yield (len(curve) + share) / run.num_stretches
        curve.append(
            {
                "iteration": (len(curve) + 1) * run.stretch,
                "test": round(state.test(), 6),
                "seconds": round(time.process_time() - start, 1),
            }
        )
        state.save(path, curve)
    return {"curve": curve}


class _State:
    """The model, its surrogate and their optimizers: all that a checkpoint has to hold."""

    def __init__(self, run: BilevelRun) -> None:
        self.run, self.metric = run, find_metric(run.metric)
        self.parts = _parts(run.dataset, run.seed)
        generator = torch.Generator().manual_seed(run.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.seed)
            self.model = paper_network(self.parts.pool.inputs.shape[1])
        if run.is_paper:
            self.surrogate = BilevelSurrogate(
                generator=generator, is_normalised=False, is_monotone=False, score_penalty=0.0
            )
        else:
            self.surrogate = BilevelSurrogate(generator=generator)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=run.learning_rate, fused=True)
        self.surrogate_optimizer = torch.optim.Adam(self.surrogate.parameters(), lr=run.surrogate_rate, fused=True)
        self._generator = generator

    def train(self, stretch: int) -> Generator[float, None, None]:
        run = self.run
        if stretch == 0:
            self._learn_universally()
        generator = torch.Generator().manual_seed(1_000_003 * (run.seed + 1) + stretch)
        # torch's own random numbers are for dropout; a caller's are given back at every yield
        dropout = torch.Generator().manual_seed(1_000_003 * (run.seed + 1) + stretch).get_state()
        first = stretch * run.stretch
        steps = bilevel_steps(
            self.model,
            self.surrogate,
            self.metric,
            stratified_batches(*self._rows(), batch_size=BATCH_SIZE, generator=generator),
            self.optimizer,
            self.surrogate_optimizer,
            generator=generator,
            num_copies=run.num_copies,
            num_first_steps=run.num_first_steps,
            max_gradient_norm=run.max_gradient_norm,
            first_step=first,
        )
        for begin in range(first, first + run.stretch, ITERATIONS_BETWEEN_YIELDS):
            with torch.random.fork_rng(devices=[]):
                torch.random.set_rng_state(dropout)
                for number in range(begin, min(begin + ITERATIONS_BETWEEN_YIELDS, first + run.stretch)):
                    if not run.is_paper:
                        factor = 0.5 * (1 + math.cos(math.pi * number / run.num_iterations))
                        self.optimizer.param_groups[0]["lr"] = run.learning_rate * factor
                    next(steps)
                dropout = torch.random.get_rng_state()
            yield (begin - first) / run.stretch

    def test(self) -> float:
        outputs = predict(self.model, self.parts.test_rows[0])
        return float(self.metric(outputs, self.parts.targets(self.parts.test)[0]))

    def save(self, path: Path, curve: list[dict[str, float]]) -> None:
        contents = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        contents |= {f"surrogate.{name}": tensor for name, tensor in self.surrogate.state_dict().items()}
        for which, optimizer in (("model", self.optimizer), ("surrogate", self.surrogate_optimizer)):
            for number, of_weights in optimizer.state_dict()["state"].items():
                contents |= {f"{which} adam.{number}.{name}": tensor for name, tensor in of_weights.items()}
        unfinished = path.with_suffix(".unfinished")
        metadata = {"settings": json.dumps(asdict(self.run)), "curve": json.dumps(curve)}
        save_file({name: tensor.contiguous() for name, tensor in contents.items()}, unfinished, metadata)
        unfinished.replace(path)

    def restore(self, path: Path) -> list[dict[str, float]]:
        with safe_open(path, framework="pt") as checkpoint:
            metadata = checkpoint.metadata()
            if metadata["settings"] != json.dumps(asdict(self.run)):
                raise ValueError(f"{path} belongs to a run with other settings; delete it, or run in another folder.")
            contents = {name: checkpoint.get_tensor(name) for name in checkpoint.keys()}  # noqa: SIM118
        self.model.load_state_dict(_below(contents, "model."))
        self.surrogate.load_state_dict(_below(contents, "surrogate."))
        for which, optimizer in (("model", self.optimizer), ("surrogate", self.surrogate_optimizer)):
            state: dict[int, dict[str, Tensor]] = {}
            for name, tensor in _below(contents, f"{which} adam.").items():
                number, _, field = name.partition(".")
                state.setdefault(int(number), {})[field] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        curve: list[dict[str, float]] = json.loads(metadata["curve"])
        return curve

    def _learn_universally(self) -> None:
        optimizer = torch.optim.Adam(self.surrogate.parameters(), lr=1e-2)
        for _ in universal_steps(
            self.surrogate, self.metric, optimizer, generator=self._generator, is_paper=self.run.is_paper
        ):
            pass

    def _rows(self) -> tuple[Tensor, Tensor]:
        return self.parts.rows(self.parts.train)[0], self.parts.targets(self.parts.train)[0]


def _below(contents: dict[str, Tensor], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in contents.items() if name.startswith(prefix)}


@lru_cache(maxsize=1)
def _parts(name: str, seed: int) -> Parts:
    return split(pool_of(find_dataset(name).load(None)), [seed], shares=SHARES)
