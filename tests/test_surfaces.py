"""Surfaces are the loss and the metric at every pair of scores; what cannot be drawn is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lossmith.baselines import find_loss
from lossmith.metrics import METRICS
from lossmith.surfaces import opposite_places, plot_surfaces, surfaces_of
from lossmith.vocabulary import Kind

OUTPUTS = torch.tensor([0.5, -0.5, 1.0, -1.0])
TARGETS = torch.tensor([1, 0, 1, 0])


def test_heights_are_those_of_single_calls() -> None:
    loss = find_loss("ce", "binary")
    cost, height = surfaces_of({"ce": loss}, METRICS["f1"], OUTPUTS, TARGETS, reach=2.0, num_values=3)
    for a, first in enumerate((-2.0, 0.0, 2.0)):
        for b, second in enumerate((-2.0, 0.0, 2.0)):
            moved = torch.tensor([second, first, 1.0, -1.0])  # the first negative is row 1, the first positive row 0
            assert torch.isclose(height.heights[a, b], loss(moved, TARGETS))
            assert torch.isclose(-cost.heights[a, b], METRICS["f1"](moved, TARGETS))


def test_places_of_each_kind() -> None:
    assert opposite_places(Kind.BINARY, OUTPUTS, TARGETS) == (1, 0)
    assert opposite_places(Kind.MULTILABEL, torch.zeros(2, 2), torch.tensor([[1, 0], [0, 1]])) == (1, 0)
    assert opposite_places(Kind.RANKING, torch.zeros(1, 3), torch.tensor([[-100, 2, 0]])) == (2, 1)
    assert opposite_places(Kind.MULTICLASS, torch.zeros(3, 3), torch.tensor([-100, 2, 0])) == (5, 6)


def test_losses_of_several_classes() -> None:
    outputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    cost, height = surfaces_of({"ce": find_loss("ce", "multiclass")}, METRICS["accuracy"], outputs, targets)
    assert cost.heights.unique().numel() <= 7
    assert bool((height.heights.diff(dim=0) < 0).all())  # both scores are those of the true class


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"surface.{suffix}"
    plot_surfaces(surfaces_of({}, METRICS["ap"], OUTPUTS, TARGETS, num_values=5), path)
    assert path.stat().st_size > 5000


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reach=0 and num_values=5 came"):
        surfaces_of({}, METRICS["ap"], OUTPUTS, TARGETS, reach=0, num_values=5)
    with pytest.raises(ValueError, match="this set has no two"):
        surfaces_of({}, METRICS["ap"], OUTPUTS, torch.ones(4).long())
    with pytest.raises(ValueError, match="takes two rows or more"):
        opposite_places(Kind.MULTICLASS, torch.zeros(2, 3), torch.tensor([-100, 1]))
    with pytest.raises(ValueError, match="name two places"):
        opposite_places(Kind.TOKENS, torch.zeros(2, 3, 4), torch.zeros(2, 3).long())
    with pytest.raises(ValueError, match="two different ones from 0 to 3 work"):
        surfaces_of({}, METRICS["ap"], OUTPUTS, TARGETS, places=(0, 4))
    with pytest.raises(ValueError, match="there is no surface to plot"):
        plot_surfaces([], tmp_path / "x.png")
    with pytest.raises(ValueError, match="cannot be written"):
        plot_surfaces(surfaces_of({}, METRICS["ap"], OUTPUTS, TARGETS, num_values=3), tmp_path / "x.xyz")
