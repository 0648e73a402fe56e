"""What a loss looks like: its surface over the scores of two predictions, beside the metric's (paper 003, Figure 1).

All other predictions of a batch stay as they are. Metrics are flat steps with cliffs between them, and nothing says
downhill; a loss that can be trained with has a slope almost everywhere, and should fall where the metric's cost does.

>>> import torch
>>> from lossmith.baselines import find_loss
>>> from lossmith.metrics import METRICS
>>> outputs, targets = torch.tensor([0.5, -0.5, 1.0, -1.0]), torch.tensor([0, 1, 1, 0])
>>> surfaces = surfaces_of({"ce": find_loss("ce", "binary")}, METRICS["ap"], outputs, targets, num_values=5)
>>> {surface.name: len(surface.heights.unique()) for surface in surfaces}
{'cost of ap': 5, 'ce': 15}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.alignment import losses_of_sets
from lossmith.vocabulary import Kind, Loss, Metric, Predictions, check_predictions


@dataclass(frozen=True)
class Surface:
    """``heights[a, b]``: with the first score at ``values[a]`` and the second at ``values[b]``; lower is better."""

    name: str
    scores: tuple[str, str]
    """What the two scores are, for the axes."""
    values: Tensor
    heights: Tensor


def surfaces_of(
    losses: Mapping[str, Loss],
    metric: Metric,
    outputs: Tensor,
    targets: Tensor,
    *,
    reach: float = 3.0,
    num_values: int = 41,
    places: tuple[int, int] | None = None,
) -> list[Surface]:
    """The metric's cost first, then each loss, on one set in which two scores go from ``-reach`` to ``reach``.

    ``places`` are two places in ``outputs.flatten()``; without them they are the scores of the first two predictions
    that should move in opposite directions.
    """
    if not reach > 0 or num_values < 2:
        raise ValueError(f"reach={reach} and num_values={num_values} came; above 0, and 2 or more work.")
    check_predictions(metric.kind, outputs, targets, want_scores=not metric.reads_probabilities)
    scores = ("first score", "second score")
    if places is None:
        places = opposite_places(metric.kind, outputs, targets)
        is_true_class = metric.kind is Kind.MULTICLASS
        scores = (
            ("score of a true class", "score of another")
            if is_true_class
            else ("score of a negative", "score of a positive")
        )
    first, second = places
    if not (0 <= first < outputs.numel() and 0 <= second < outputs.numel() and first != second):
        raise ValueError(f"places={places} came; two different ones from 0 to {outputs.numel() - 1} work.")
    values = torch.linspace(-reach, reach, num_values)
    num_sets = num_values**2
    moved = outputs.flatten().expand(num_sets, -1).clone()
    moved[:, first] = values.repeat_interleave(num_values)
    moved[:, second] = values.repeat(num_values)
    sets = Predictions(moved.view(num_sets, *outputs.shape), targets.expand(num_sets, *targets.shape).contiguous())
    heights = {f"cost of {metric.name}": metric.cost(sets.outputs, sets.targets)}
    heights |= {name: losses_of_sets(loss, sets) for name, loss in losses.items()}
    return [Surface(name, scores, values, each.view(num_values, num_values)) for name, each in heights.items()]


def opposite_places(kind: Kind, outputs: Tensor, targets: Tensor) -> tuple[int, int]:
    """Of a score that should fall and one that should rise; of two classes, the true class of two rows."""
    if kind in (Kind.BINARY, Kind.MULTILABEL, Kind.RANKING):
        flat = targets.flatten()
        falling, rising = (flat == 0).nonzero(), (flat > 0).nonzero()
        if len(falling) and len(rising):
            return int(falling[0]), int(rising[0])
        raise ValueError(f"{kind} predictions: a surface takes a target of 0 and one above it; this set has no two.")
    if kind is Kind.MULTICLASS:
        is_kept = targets >= 0
        rows = is_kept.nonzero().flatten()[:2].tolist()
        if len(rows) == 2:
            num_classes = outputs.shape[-1]
            first, second = (row * num_classes + int(targets[row]) for row in rows)
            return first, second
        raise ValueError("multiclass predictions: a surface takes two rows or more.")
    raise ValueError(f"which scores of {kind} predictions belong to which target is not plain: name two places.")


def plot_surfaces(surfaces: list[Surface], path: str | os.PathLike[str]) -> None:
    """One picture for each surface, three in a row. The suffix picks the format."""
    if not surfaces:
        raise ValueError("there is no surface to plot.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots take matplotlib, which comes with the extra: pip install 'lossmith[lab]'.") from None
    num_columns = min(3, len(surfaces))
    num_rows = -(-len(surfaces) // num_columns)
    figure = Figure(figsize=(3.9 * num_columns, 3.7 * num_rows))
    figure.subplots_adjust(left=0.02, right=0.96, bottom=0.08, top=0.94, wspace=0.08)
    for number, surface in enumerate(surfaces, start=1):
        axes = figure.add_subplot(num_rows, num_columns, number, projection="3d")
        second, first = torch.meshgrid(surface.values, surface.values, indexing="xy")
        # every value is drawn: a coarser mesh would turn the metric's cliffs into slopes
        axes.plot_surface(
            first, second, surface.heights, rcount=len(first), ccount=len(first), cmap="viridis", linewidth=0.15
        )
        axes.set_title(surface.name)
        axes.set_xlabel(surface.scores[0])
        axes.set_ylabel(surface.scores[1])
        axes.tick_params(labelsize=7)
        axes.view_init(elev=28, azim=-125)
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise ValueError(f"the plot cannot be written to {path}: {error}") from None
