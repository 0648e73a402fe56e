"""Losses of distances: eq. 9 and 10 by hand, gradients, edges, and what the controller sees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lossmith.baselines.triplets import margin_loss, relations, triplet_loss
from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.methods.ala.adjustable import AdjustableLoss
from lossmith.methods.ala.distances import Base, DistanceMixture, FocalWeighting, Sampling, of_alike, of_strangers

LOSSES = (DistanceMixture, FocalWeighting)
# two at the same place, one opposite
EMBEDDINGS, IDENTITIES = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]), torch.tensor([0, 0, 1])


def some(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(24, 8, generator=generator), torch.arange(24) % 6


def test_functions_rise_and_fall() -> None:
    distances = torch.linspace(0.15, 2, 50)
    assert (of_alike(distances).diff() > 0).all()
    assert (of_strangers(distances).diff() < 0).all()
    assert of_strangers(torch.zeros(1)).isfinite().all()
    torch.testing.assert_close(of_alike(torch.tensor([2.0]))[1], torch.tensor([4.0]))
    torch.testing.assert_close(of_strangers(torch.tensor([2.0]))[0], torch.tensor([0.25]))


def test_mixture_by_hand() -> None:
    """d+ = sqrt 2 twice; strangers of the first at 2, of the second at sqrt 2."""
    expected = 2 + (0.5 / 2 + 0.5 / math.sqrt(2)) / 2
    assert float(DistanceMixture(sampling="uniform")(EMBEDDINGS, IDENTITIES)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("base", ["triplet", "margin"])
@pytest.mark.parametrize("sampling", ["uniform", "distance_weighted"])
def test_is_its_base_until_it_is_moved(base: Base, sampling: Sampling, generator: torch.Generator) -> None:
    """The same values and gradients, over the same draws, call after call; from the first move on another loss."""
    outputs, targets = some(generator)
    fixed = {"triplet": triplet_loss, "margin": margin_loss}[base](Kind.EMBEDDING, sampling=sampling, seed=3)
    steered = DistanceMixture(base, sampling=sampling, seed=3)
    for _ in range(3):
        expected, found = (
            torch.autograd.grad(loss(scores, targets), scores)[0]
            for loss in (fixed, steered)
            for scores in [outputs.clone().requires_grad_()]
        )
        assert torch.equal(expected, found)
    steered.adjust(torch.tensor([1]), torch.tensor([1]))
    assert steered(outputs, targets) > fixed(outputs, targets)


def test_mixture_beside_its_base_by_hand() -> None:
    """Base: 2 - 4 + 0.2 is below 0, 2 - 2 + 0.2 is not; and a tenth of the mean d+², which is 2."""
    loss = DistanceMixture("triplet", sampling="uniform")
    loss.adjust(torch.tensor([1]), torch.tensor([1]))
    assert float(loss(EMBEDDINGS, IDENTITIES)) == pytest.approx(0.2 + 0.1 * 2, rel=1e-4)


def test_strangers_that_have_fallen_together_are_pushed_apart() -> None:
    distances = torch.tensor([0.05], requires_grad=True)
    for function in of_strangers(distances):
        (gradient,) = torch.autograd.grad(function.sum(), distances, retain_graph=True)
        assert gradient < 0


def test_refuses_other_bases() -> None:
    with pytest.raises(ValueError, match="'triplet', 'margin' or None"):
        DistanceMixture("contrastive")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'distance_weighted' or 'uniform'"):
        DistanceMixture("triplet", sampling="hard")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two values work"):
        FocalWeighting(initial=(1.0, 2.0, 3.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", LOSSES)
def test_refuses_other_shapes(make: type[DistanceMixture | FocalWeighting]) -> None:
    with pytest.raises(ValueError, match=r"shape \(5, 3\) and identities of shape \(4,\) came"):
        make()(torch.zeros(5, 3), torch.zeros(4))


def test_focal_by_hand() -> None:
    loss = FocalWeighting(initial=(2.0, 4.0))
    root = math.sqrt(2)
    own = math.log(1 + math.exp(2 * (root - 1))) / 2
    strangers = [[2.0], [root], [2.0, root]]
    far = [math.log(1 + sum(math.exp(-4 * (distance - 1)) for distance in each)) / 4 for each in strangers]
    assert float(loss(EMBEDDINGS, IDENTITIES)) == pytest.approx(own + sum(far) / 3, rel=1e-4)


@pytest.mark.parametrize("make", LOSSES)
def test_gradcheck(make: type[DistanceMixture | FocalWeighting], generator: torch.Generator) -> None:
    outputs, targets = some(generator)
    # a new loss each time: the same draws each time
    assert torch.autograd.gradcheck(lambda outputs: make()(outputs, targets), outputs.double().requires_grad_())


@pytest.mark.parametrize("make", LOSSES)
def test_finite_on_every_edge(make: type[DistanceMixture | FocalWeighting], generator: torch.Generator) -> None:
    outputs, targets = some(generator)
    for edge_outputs, edge_targets in [
        (torch.ones_like(outputs), targets),
        (torch.zeros_like(outputs), targets),
        (1e4 * outputs, targets),
        (outputs[:1], targets[:1]),
        (outputs, torch.zeros_like(targets)),
        (outputs, torch.arange(24)),
        (outputs, torch.full_like(targets, IGNORE_INDEX)),
    ]:
        scores = edge_outputs.clone().requires_grad_()
        loss = make()
        value = loss(scores, edge_targets)
        value.backward()
        assert value.isfinite()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        assert loss.statistics(edge_outputs, edge_targets).isfinite().all()
    assert make()(outputs, torch.full_like(targets, IGNORE_INDEX)) == 0


@pytest.mark.parametrize("make", LOSSES)
def test_going_down_brings_alike_together(
    make: type[DistanceMixture | FocalWeighting], generator: torch.Generator
) -> None:
    outputs, targets = some(generator)
    outputs.requires_grad_()
    loss, optimizer = make(), torch.optim.Adam([outputs], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss(outputs, targets).backward()
        optimizer.step()
    distances = torch.cdist(*(torch.nn.functional.normalize(outputs.detach(), dim=-1),) * 2)
    own, strangers = (distances[is_pair] for is_pair in relations(targets))
    assert own.max() < strangers.min()


@pytest.mark.parametrize("make", LOSSES)
def test_statistics_follow_the_distances(
    make: type[DistanceMixture | FocalWeighting], generator: torch.Generator
) -> None:
    outputs, targets = some(generator)
    centers = 4 * torch.eye(8)[targets]
    before, after = (make().statistics(each, targets)[:, 0] for each in (outputs, outputs / 4 + centers))
    assert ((before >= 0) & (before <= 1)).all()
    half = len(before) // 2
    assert (after[:half] < before[:half]).all()


def test_draws_go_on_where_they_were(generator: torch.Generator) -> None:
    outputs, targets = some(generator)
    loss = DistanceMixture(seed=1)
    values = [loss(outputs, targets) for _ in range(3)]
    assert values[0] != values[1]
    again: AdjustableLoss = DistanceMixture(seed=1)
    assert again(outputs, targets) == values[0]
    resumed = DistanceMixture(seed=1)
    resumed.load_state_dict(again.state_dict())
    assert resumed(outputs, targets) == values[1]
