"""Triplet and margin losses: by hand, reproducible draws, and what is drawn."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lossmith.baselines.triplets import (
    FARTHEST,
    draw_triplets,
    margin_loss,
    pairwise_distances,
    relations,
    triplet_loss,
)
from lossmith.vocabulary import Kind

NUM_DIMENSIONS = 8


def at_angles(*degrees: float) -> Tensor:
    """Points of the unit circle: two of them at an angle a are 2 sin(a / 2) apart."""
    angles = torch.tensor(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], -1)


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(24, NUM_DIMENSIONS, generator=generator), torch.arange(24) % 6


def test_triplet_by_hand() -> None:
    # the only stranger of both anchors is the third; squared distances: own 2 - 2 cos 60 = 1, strangers 2 - 2 cos 90
    # and 2 - 2 cos 30
    outputs, targets = at_angles(0, 60, 90), torch.tensor([1, 1, 2])
    first, second = 1 - 2 + 0.2, 1 - (2 - math.sqrt(3)) + 0.2
    assert first < 0 < second
    # the mean over those that are not zero
    assert float(triplet_loss(Kind.EMBEDDING)(outputs, targets)) == pytest.approx(second, abs=1e-6)


def test_margin_by_hand() -> None:
    outputs, targets = at_angles(0, 90, 120), torch.tensor([1, 1, 2])
    near, far, farther = math.sqrt(2), 2 * math.sin(math.radians(15)), 2 * math.sin(math.radians(60))
    # the pair is too far apart by near - 1.2 + 0.2, twice (each of it is an anchor); strangers are 1.2 - far + 0.2 too
    # near, and one is far enough
    terms = [near - 1.0, near - 1.0, 1.4 - far]
    assert farther > 1.4
    value = margin_loss(Kind.EMBEDDING, sampling="uniform")(outputs, targets)
    assert float(value) == pytest.approx(sum(terms) / 3, abs=1e-6)


def test_length_of_embeddings_has_no_say(generator: torch.Generator) -> None:
    outputs, targets = batch(generator)
    scales = torch.rand(len(outputs), 1, generator=generator) + 0.5
    for make in (triplet_loss, margin_loss):
        torch.testing.assert_close(
            make(Kind.EMBEDDING)(outputs, targets), make(Kind.EMBEDDING)(outputs * scales, targets)
        )


def test_distances_are_torchs(generator: torch.Generator) -> None:
    outputs, _ = batch(generator)
    unit = torch.nn.functional.normalize(outputs)
    expected = torch.cdist(unit, unit)
    off_diagonal = ~torch.eye(len(outputs), dtype=torch.bool)
    torch.testing.assert_close(pairwise_distances(outputs)[off_diagonal], expected[off_diagonal])


@pytest.mark.parametrize("sampling", ["uniform", "distance_weighted"])
def test_triplets_are_of_two_and_a_stranger(sampling: str, generator: torch.Generator) -> None:
    outputs, targets = batch(generator)
    targets[:3] = -100
    distances = pairwise_distances(outputs)
    anchors, own, strangers = draw_triplets(
        distances,
        targets,
        sampling,  # type: ignore[arg-type]
        generator,
        num_dimensions=NUM_DIMENSIONS,
    )
    assert bool((targets[anchors] == targets[own]).all())
    assert bool((anchors != own).all())
    assert bool((targets[anchors] != targets[strangers]).all())
    assert int(torch.cat([anchors, own, strangers]).min()) >= 3  # nothing that is left out
    # every ordered pair of one identity, once
    is_own, _ = relations(targets)
    assert len(anchors) == int(is_own.sum()) == len({*zip(anchors.tolist(), own.tolist())})


def test_near_strangers_are_drawn_more_often_than_their_number() -> None:
    """Wu et al. figure 2: on a sphere nearly all strangers are √2 away, and drawn by distance they are not."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(400, 64, generator=generator)
    outputs[200:] += 1.5 * outputs[0]  # some are nearer to the first
    targets = torch.cat([torch.zeros(2), torch.arange(1, 399)]).long()
    distances = pairwise_distances(outputs)
    drawn = {
        sampling: torch.cat(
            [
                distances[0, strangers[anchors == 0]]
                for _ in range(100)
                for anchors, _, strangers in [
                    draw_triplets(distances, targets, sampling, generator, num_dimensions=64)  # type: ignore[arg-type]
                ]
            ]
        )
        for sampling in ("uniform", "distance_weighted")
    }
    assert float(drawn["distance_weighted"].mean()) < float(drawn["uniform"].mean()) - 0.1
    assert float(drawn["distance_weighted"].max()) <= FARTHEST < float(drawn["uniform"].max())


def test_draws_go_on_from_their_state(generator: torch.Generator) -> None:
    outputs, targets = batch(generator)
    first = margin_loss(Kind.EMBEDDING, seed=3)
    first(outputs, targets)
    second = margin_loss(Kind.EMBEDDING, seed=3)
    second.load_state_dict(first.state_dict())  # type: ignore[attr-defined]
    value = first(outputs, targets)
    assert torch.equal(value, second(outputs, targets))
    assert not torch.equal(value, margin_loss(Kind.EMBEDDING, seed=4)(outputs, targets))


@pytest.mark.parametrize("make", [triplet_loss, margin_loss])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finite_everywhere(make: object, dtype: torch.dtype, generator: torch.Generator) -> None:
    outputs, targets = batch(generator)
    same = torch.ones_like(outputs)
    for scores, labels in (
        (outputs, targets),
        (outputs * 1e4, targets),
        (same, targets),  # all at one place
        (outputs * 0, targets),
        (outputs, torch.zeros(24).long()),  # no stranger
        (outputs, torch.arange(24)),  # no pair
        (outputs, torch.full((24,), -100)),
        (outputs[:1], targets[:1]),
    ):
        scores = scores.to(dtype).requires_grad_()
        value = make(Kind.EMBEDDING)(scores, labels)  # type: ignore[operator]
        (gradient,) = torch.autograd.grad(value, scores)
        assert bool(value.isfinite())
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("make", [triplet_loss, margin_loss])
def test_gradient(make: object, generator: torch.Generator) -> None:
    outputs, targets = batch(generator)
    outputs = outputs[:10].double().requires_grad_()

    def value(scores: Tensor) -> Tensor:  # the same draw at every call
        loss: Tensor = make(Kind.EMBEDDING)(scores, targets[:10])  # type: ignore[operator]
        return loss

    assert torch.autograd.gradcheck(value, outputs)


def test_a_step_down_the_gradient_is_better(generator: torch.Generator) -> None:
    outputs, targets = batch(generator)
    outputs.requires_grad_()
    (gradient,) = torch.autograd.grad(triplet_loss(Kind.EMBEDDING)(outputs, targets), outputs)
    after = triplet_loss(Kind.EMBEDDING)(outputs - 0.01 * gradient, targets)
    assert after < triplet_loss(Kind.EMBEDDING)(outputs, targets)


@pytest.mark.parametrize("make", [triplet_loss, margin_loss])
def test_wrong_kind(make: object) -> None:
    with pytest.raises(ValueError, match="triplets are of embeddings; binary predictions came"):
        make(Kind.BINARY)  # type: ignore[operator]
