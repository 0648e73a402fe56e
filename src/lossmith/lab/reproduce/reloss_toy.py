"""ReLoss (Huang et al. 2022), Figure 2: a random network is the metric, and a loss learns it from limited observations.

Once by approximation (eq. 5) and once by rank correlation (eq. 7). Then inputs are moved down each loss, and down the
metric itself; what counts is the metric where they arrive. Where the paper is silent: 32 inputs, three layers of 64
with ELU for the metric and for the loss, 2,000 observations, 64 points to move.

>>> [unit.name for unit in TOY.units("smoke")]
['metric-seed0', 'approximation-seed0', 'correlation-seed0']
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import nn

from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict
from lossmith.learning import approximation_objective, rank_objective
from lossmith.ranking import spearman

NUM_INPUTS = 32
OBJECTIVES = {"approximation": approximation_objective, "correlation": rank_objective}


@dataclass(frozen=True)
class Toy:
    descended: str
    """``metric``, or the objective that the loss learned by."""
    seed: int
    num_observations: int = 2000
    num_learning_steps: int = 1000
    num_moves: int = 1000

    @property
    def unit(self) -> Unit:
        return Unit(f"{self.descended}-seed{self.seed}", asdict(self), lambda folder: _toy_steps(self))


def _toy_steps(toy: Toy) -> Generator[float, None, Result]:
    generator = torch.Generator().manual_seed(toy.seed)
    metric = _network(generator, gain=2.0)
    observed, unseen = (torch.randn(toy.num_observations, NUM_INPUTS, generator=generator) for _ in range(2))
    start = torch.randn(64, NUM_INPUTS, generator=generator)
    with torch.no_grad():
        costs, unseen_costs = metric(observed), metric(unseen)
    loss, result = metric, Result()
    if toy.descended != "metric":
        loss = _network(generator, gain=1.0)
        result["spearman by step"] = {}
        objective = OBJECTIVES[toy.descended]()
        optimizer = torch.optim.Adam(loss.parameters(), lr=3e-3, weight_decay=1e-4)
        for step in range(1, toy.num_learning_steps + 1):
            rows = torch.randint(toy.num_observations, (256,), generator=generator)
            optimizer.zero_grad()
            objective(loss(observed[rows]), costs[rows], step / toy.num_learning_steps).backward()
            optimizer.step()
            if step in (10, 30, 100, 300, toy.num_learning_steps):
                with torch.no_grad():
                    result["spearman by step"][str(step)] = float(spearman(loss(unseen), unseen_costs))
                yield 0.5 * step / toy.num_learning_steps
    points = start.clone().requires_grad_()
    moving = torch.optim.Adam([points], lr=0.01)
    curve = []
    for move in range(toy.num_moves + 1):
        if move % (toy.num_moves // 10) == 0:
            with torch.no_grad():
                curve.append(float(metric(points).mean()))
            yield 0.5 + 0.5 * move / toy.num_moves
        moving.zero_grad()
        loss(points).sum().backward()
        moving.step()
    return {**result, "metric on the way": curve}


def _network(generator: torch.Generator, *, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size, next_size in ((NUM_INPUTS, 64), (64, 64), (64, 64), (64, 1)):
        layer = nn.Linear(size, next_size)
        with torch.no_grad():
            layer.weight.copy_(gain * torch.randn(next_size, size, generator=generator) / size**0.5)
            layer.bias.zero_()
        layers += [layer, nn.ELU()]
    return nn.Sequential(*layers[:-1], nn.Flatten(0))


def _units(scale: str) -> list[Unit]:
    kinds = ("metric", *OBJECTIVES)
    if scale == "smoke":
        return [Toy(kind, 0, 300, 30, 20).unit for kind in kinds]
    return [Toy(kind, seed).unit for seed in range(5) for kind in kinds]


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    by_kind: dict[str, list[Result]] = {}
    for unit, result in results.items():
        by_kind.setdefault(unit.rpartition("-")[0], []).append(result)

    def mean(kind: str, place: int) -> float:
        return float(statistics.mean(result["metric on the way"][place] for result in by_kind[kind]))

    rows, last = [], {}
    for kind, runs in by_kind.items():
        by_step = [list(run.get("spearman by step", {}).values()) for run in runs]
        means = [statistics.mean(values) for values in zip(*by_step)]
        last[kind] = means[-1] if means else 1.0
        learned = " ".join(f"{100 * value:.1f}" for value in means)
        rows.append((kind, learned, *(f"{mean(kind, place):.3f}" for place in (0, 1, 5, -1))))
    columns = ("descended", "Spearman while learning", "metric at the start", "after a tenth", "half-way", "at the end")
    if scale == "smoke":
        return Verdict(columns, rows, [])
    bars = [
        Bar("lead of correlation in Spearman", last["correlation"] - last["approximation"], 0.0),
        Bar("lead of correlation in the metric", mean("approximation", -1) - mean("correlation", -1), 0.0),
    ]
    return Verdict(columns, rows, bars)


TOY = Experiment(
    "reloss-toy",
    "A random network as the metric: approximation against correlation (Figure 2).",
    {"smoke": "seconds", "cpu": "5 seeds, a minute"},
    _units,
    _judge,
    "Correlation is ahead while few steps are done and behind at the end. The paper tells no settings; with 300 "
    "observations, and with networks of larger weights as the metric, it was the same. A random network has no ties, "
    "no steps and no ceiling: moving inputs down it rewards whoever knows how steep it is where, and that is what a "
    "loss gives up that was learned from ranks. On accuracy, which is all steps and ties, correlation keeps a small "
    "lead (`reloss-objective`).",
)
