"""Pictures of a run, the policy by what it sees, and the landscape around a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lossmith.methods.ala import ALA, AdaptiveStep, Child, ClassCorrelationLoss, adaptive_steps, weighted_losses
from lossmith.methods.ala.controller import Experience
from lossmith.methods.ala.figures import draw_run, expected_moves, loss_surface, mean_gaussian_curvature
from lossmith.metrics import METRICS
from tests.methods.ala.toys import make_child, rows


def finished(child: Child) -> tuple[list[AdaptiveStep], ALA]:
    controller = ALA(child.loss)
    steps = adaptive_steps([child], controller, METRICS["accuracy"], rows(1), num_steps=40, interval=10)
    return list(steps), controller


@pytest.mark.parametrize("is_matrix", [True, False])
def test_a_run_is_drawn(is_matrix: bool, tmp_path: Path) -> None:
    child = make_child(0)
    if not is_matrix:
        child.loss = weighted_losses([F.cross_entropy, F.multi_margin_loss])
    steps, controller = finished(child)
    draw_run(steps, controller, child.loss, tmp_path / "run.png")
    assert 10_000 < (tmp_path / "run.png").stat().st_size < 150_000
    draw_run(steps, controller, child.loss, tmp_path / "run.svg")
    assert "what the controller" not in (tmp_path / "run.svg").read_text(encoding="utf8")[:100]


def test_refuses_children_that_are_not_there(tmp_path: Path) -> None:
    child = make_child(0)
    steps, controller = finished(child)
    with pytest.raises(ValueError, match="4 rounds of 1 children came, and child=1"):
        draw_run(steps, controller, child.loss, tmp_path / "run.png", child=1)
    with pytest.raises(ValueError, match="0 rounds of 0 children"):
        draw_run([], controller, child.loss, tmp_path / "run.png")


def test_moves_are_those_that_were_rewarded(generator: torch.Generator) -> None:
    """In this world a confused pair is to be held apart, and another to be brought together."""
    loss = ClassCorrelationLoss(4)
    controller = ALA(loss, learning_rate=1e-2)
    for _ in range(100):
        confusion = 2 * torch.rand(8, 1, generator=generator)
        states = torch.cat([confusion.expand(8, 20), torch.zeros(8, 3), torch.rand(8, 1, generator=generator)], 1)
        moves, log_p = controller.act(states)
        rewards = moves * torch.sign(confusion[:, 0] - 1)
        controller.learn(
            [
                Experience(*each, float(reward))
                for *each, reward in zip(states.split(1), moves.split(1), log_p.split(1), rewards)
            ]
        )
    moves = expected_moves(controller, loss, torch.tensor([[0.2, 0.2], [1.8, 1.8]]), torch.tensor([0.1, 0.9]))
    assert (moves[0] < -0.3).all()
    assert (moves[1] > 0.3).all()


def test_parameters_that_differ_are_asked_about_one_by_one() -> None:
    loss = weighted_losses([F.cross_entropy, F.multi_margin_loss])
    with pytest.raises(ValueError, match="statistics of 3 parameters came; this loss tells its 2 apart"):
        expected_moves(ALA(loss), loss, torch.zeros(3, 2), torch.zeros(1))


class Bowl(nn.Module):
    """``outputs`` are the weights: the loss of them is what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[3.0], [4.0]], dtype=torch.float64))
        self.bias = nn.Parameter(torch.ones(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.weight[:, 0].expand(len(inputs), -1)


def test_surface_lies_around_the_model_and_leaves_it() -> None:
    model = Bowl()
    inputs, targets = torch.zeros(5, 1), torch.zeros(5)

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[0] - torch.tensor([3.0, 4.0])).square().sum()

    surface = loss_surface(model, loss, inputs, targets, span=0.5, num_points=5)
    assert surface.shape == (5, 5)
    assert surface[2, 2] == 0
    assert model.weight.tolist() == [[3.0], [4.0]]
    # filters of one weight: each direction moves it by its own length
    assert surface[0, 2] == pytest.approx(0.25 * (9 + 16))
    with pytest.raises(ValueError, match="num_points=2 came"):
        loss_surface(model, loss, inputs, targets, num_points=2)


def test_curvature_by_hand() -> None:
    """``f = a x² + b y²`` has the curvature 4ab at its middle; a plane has none."""
    across = torch.linspace(-0.01, 0.01, 3, dtype=torch.float64)
    bowl = 3 * across[:, None] ** 2 + 2 * across**2
    assert float(mean_gaussian_curvature(bowl, 0.01)) == pytest.approx(24)
    assert float(mean_gaussian_curvature(across[:, None] + 2 * across, 0.01)) == pytest.approx(0, abs=1e-9)
    twisted = across[:, None] * across
    assert float(mean_gaussian_curvature(twisted, 0.01)) == pytest.approx(-1)
