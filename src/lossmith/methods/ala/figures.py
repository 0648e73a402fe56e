"""What became of a steered run: pictures of the loss parameters, the rewards and the policy, and the loss landscape.

Nothing here is needed to train; :func:`draw_run` takes matplotlib, which comes with ``lossmith[lab]``.

Shape legend: ``U`` parameters of the loss, ``F`` statistics of each, ``R`` rounds, ``G`` points of a grid.

>>> import torch
>>> from lossmith.methods.ala import ALA, ClassCorrelationLoss
>>> loss = ClassCorrelationLoss(10)
>>> confusion, progress = torch.linspace(0, 2, 5), torch.tensor([0.2, 0.8])
>>> expected_moves(ALA(loss), loss, confusion[:, None].expand(-1, 2), progress).shape
torch.Size([5, 2])
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lossmith.methods.ala.adjustable import AdjustableLoss, ClassCorrelationLoss
from lossmith.methods.ala.controller import ALA, LARGEST_FEATURE
from lossmith.methods.ala.steering import AdaptiveStep
from lossmith.training import predict
from lossmith.vocabulary import Loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# rows of the heat map: of more parameters, those that moved most
MAX_SHOWN = 50
COLOURS, BLUE, ORANGE = "RdBu_r", "#3a6ea5", "#c2571a"


def expected_moves(controller: ALA, loss: AdjustableLoss, statistics: Tensor, progress: Tensor) -> Tensor:
    """``[n, F]`` statistics and ``[P]`` points of the run ``-> [n, P]``: the chance to go up less that to go down.

    As the policy would move a parameter in the middle of its bounds whose statistics have not changed for a while. Row
    i is parameter i where the controller tells parameters apart; else all rows are any parameter.
    """
    identities = loss.identities()
    if identities.shape[1] and len(statistics) != len(identities):
        raise ValueError(
            f"statistics of {len(statistics)} parameters came; this loss tells its {len(identities)} apart."
        )
    length = controller.layout["history"]
    fixed = torch.cat([statistics.repeat(1, length), torch.zeros(len(statistics), statistics.shape[1] + 1)], -1)
    own = identities if identities.shape[1] else torch.empty(len(statistics), 0)
    columns = []
    for share in progress.tolist():
        states = torch.cat([fixed, torch.full((len(fixed), 1), share), own], -1)
        probabilities = controller.probabilities(states.clamp(-LARGEST_FEATURE, LARGEST_FEATURE))
        columns.append(probabilities[:, 2] - probabilities[:, 0])
    return torch.stack(columns, 1)


def draw_run(
    steps: Sequence[AdaptiveStep], controller: ALA, loss: AdjustableLoss, path: str | Path, *, child: int = 0
) -> None:
    """Four panels: parameters over time, where they ended, rewards and entropy, and what the controller learned.

    Args:
        steps: all that :func:`adaptive_steps` yielded.
        controller: that steered.
        loss: of the child that is shown.
        path: of the picture; its ending says the format.
        child: the number of the child.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ValueError("pictures take matplotlib, which comes with: pip install 'lossmith[lab]'.") from None
    if not steps or not 0 <= child < len(steps[0].details["values"]):
        count = len(steps[0].details["values"]) if steps else 0
        raise ValueError(f"{len(steps)} rounds of {count} children came, and child={child}; one of the children works.")
    figure = Figure(figsize=(9.6, 7.2), layout="constrained")
    panels = figure.subplots(2, 2).flatten()
    values = torch.stack([step.details["values"][child] for step in steps])  # [R, U]
    _draw_values(panels[0], values, [step.number for step in steps])
    _draw_end(panels[1], loss, values[-1])
    _draw_rewards(panels[2], steps, child)
    _draw_policy(panels[3], controller, loss, steps[-1].details["statistics"][child])
    figure.savefig(path, dpi=80, metadata={"Date": None} if str(path).endswith(".svg") else None)


def _draw_values(axes: Axes, values: Tensor, numbers: Sequence[int]) -> None:
    changes = values - values[0]
    # by where they came to, so that neighbours are alike; of many those that moved most
    most = changes.abs().sum(0).topk(min(MAX_SHOWN, values.shape[1])).indices
    shown = most[changes[-1, most].argsort(descending=True)]
    _heat_map(axes, changes[:, shown].T, (0, numbers[-1], len(shown), 0))
    axes.set_title(f"{len(shown)} of {values.shape[1]} parameters, change since the start", fontsize=9)
    axes.set(xlabel="training steps", ylabel="parameter", yticks=[])


def _draw_end(axes: Axes, loss: AdjustableLoss, values: Tensor) -> None:
    if isinstance(loss, ClassCorrelationLoss):
        last = copy.deepcopy(loss)
        last.values.copy_(values)
        matrix = last.matrix.cpu() - torch.eye(loss.num_classes)
        _heat_map(axes, matrix, (-0.5, loss.num_classes - 0.5, loss.num_classes - 0.5, -0.5))
        axes.set_title("the matrix at the end, less the identity", fontsize=9)
        axes.set(xlabel="class", ylabel="class of the target")
    else:
        axes.barh(range(len(values)), values.tolist(), color=BLUE)
        axes.set_title("parameters at the end", fontsize=9)
        axes.set(xlim=(min(0.0, loss.low), loss.high), ylabel="parameter")
        axes.invert_yaxis()


def _draw_rewards(axes: Axes, steps: Sequence[AdaptiveStep], child: int) -> None:
    steered = [step for step in steps if "entropy" in step.details]
    numbers = [step.number for step in steered]
    totals = torch.tensor([float(step.details["rewards"][child]) for step in steered]).cumsum(0)
    entropies = [float(step.details["entropy"]) / math.log(3) for step in steered]
    axes.plot(numbers, totals.tolist(), color=BLUE, label="sum of rewards")
    axes.set(xlabel="training steps")
    axes.tick_params(axis="y", colors=BLUE)
    right = axes.twinx()
    right.plot(numbers, entropies, color=ORANGE, label="entropy of the moves (1 is chance)")
    right.set_ylim(0, 1.05)
    right.tick_params(axis="y", colors=ORANGE)
    axes.set_title("sum of rewards (blue), entropy (orange; 1 is chance)", fontsize=9)


def _draw_policy(axes: Axes, controller: ALA, loss: AdjustableLoss, statistics: Tensor) -> None:
    progress = torch.linspace(0, 1, 21)
    if isinstance(loss, ClassCorrelationLoss) and not loss.identities().shape[1]:
        confusion = torch.linspace(0, 2, 41)
        moves = expected_moves(controller, loss, confusion[:, None].expand(-1, loss.num_statistics), progress)
        _heat_map(axes, moves, (0, 1, 2, 0), largest=1.0)
        axes.set(ylabel="-log p of a pair, of its class's mean 1")
    else:
        moves = expected_moves(controller, loss, statistics, progress)
        _heat_map(axes, moves, (0, 1, len(moves), 0), largest=1.0)
        axes.set(ylabel="parameter")
    axes.set_title("what the controller learned: up (red) or down (blue)", fontsize=9)
    axes.set(xlabel="share of the training that is done")


def _heat_map(
    axes: Axes, values: Tensor, extent: tuple[float, float, float, float], *, largest: float | None = None
) -> None:
    bound = largest or max(float(values.abs().max()), 1e-6)
    image = axes.imshow(
        values.tolist(), cmap=COLOURS, vmin=-bound, vmax=bound, aspect="auto", extent=extent, interpolation="nearest"
    )
    axes.figure.colorbar(image, ax=axes, shrink=0.9)


# ------------------------------------------------------------------------------------------------- the loss landscape


def loss_surface(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    span: float = 0.5,
    num_points: int = 15,
    seed: int = 0,
) -> Tensor:
    """``[G, G]``: the loss around a model, along two random directions of filters as long as its own (Figure 4).

    Biases and norms stay (Li et al. 2018). ``span`` is how far the outermost points lie, in lengths of the filters.
    """
    if span <= 0 or num_points < 3:
        raise ValueError(f"span={span} and num_points={num_points} came; above 0, and 3 or more, work.")
    generator = torch.Generator().manual_seed(seed)
    moved = copy.deepcopy(model)
    weights = [(weight, weight.detach().clone()) for weight in moved.parameters() if weight.ndim > 1]
    directions = [tuple(_like_filters(start, generator) for _ in range(2)) for _, start in weights]
    places = torch.linspace(-span, span, num_points).tolist()
    rows = []
    with torch.no_grad():
        for down in places:
            for right in places:
                for (weight, start), (first, second) in zip(weights, directions):
                    weight.copy_(start + down * first + right * second)
                rows.append(loss(predict(moved, inputs), targets).detach())
    return torch.stack(rows).view(num_points, num_points)


def _like_filters(weight: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(weight.shape, generator=generator).to(weight)
    across = tuple(range(1, weight.ndim))
    scaled: Tensor = drawn * weight.norm(dim=across, keepdim=True) / drawn.norm(dim=across, keepdim=True)
    return scaled


def mean_gaussian_curvature(surface: Tensor, span: float) -> Tensor:
    """Of a surface over a square from ``-span`` to ``span``, by central differences, over its inner points.

    >>> import torch
    >>> across = torch.linspace(-1, 1, 21, dtype=torch.float64)
    >>> bowl, saddle = (across[:, None] ** 2 + sign * across**2 for sign in (1, -1))
    >>> bool(mean_gaussian_curvature(bowl, 1.0) > 0), bool(mean_gaussian_curvature(saddle, 1.0) < 0)
    (True, True)
    """
    step = 2 * span / (surface.shape[0] - 1)
    middle = surface[1:-1, 1:-1]
    down, right = (surface[2:, 1:-1] - surface[:-2, 1:-1]) / 2, (surface[1:-1, 2:] - surface[1:-1, :-2]) / 2
    twice_down = surface[2:, 1:-1] - 2 * middle + surface[:-2, 1:-1]
    twice_right = surface[1:-1, 2:] - 2 * middle + surface[1:-1, :-2]
    mixed = (surface[2:, 2:] - surface[2:, :-2] - surface[:-2, 2:] + surface[:-2, :-2]) / 4
    slope = 1 + (down.square() + right.square()) / step**2
    return ((twice_down * twice_right - mixed.square()) / step**4 / slope.square()).mean()
