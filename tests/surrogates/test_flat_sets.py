"""Gradients that are written out are those of autograd; a set has no order, and what is left out does not count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX
from lossmith.surrogates.flat_sets import FlatDeepSets
from tests.metrics.samples import sample

NUM_CLASSES = {"binary": 1, "multilabel": 1, "multiclass": 7}


def made(kind: str, generator: torch.Generator) -> tuple[FlatDeepSets, Tensor, Tensor]:
    network = FlatDeepSets(kind, num_classes=NUM_CLASSES[kind], generator=generator).double()
    outputs, targets = sample(network.kind, num_sets=5, set_size=20, generator=generator, ignored_share=0.2)
    return network, outputs.double(), targets


@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_gradients_are_those_of_autograd(kind: str, generator: torch.Generator) -> None:
    network, outputs, targets = made(kind, generator)
    rows, share = network.summarize(outputs, targets)
    costs = torch.rand(5, generator=generator, dtype=torch.float64)
    costs[1] = torch.nan

    distances = (network.losses(rows, share) - costs)[[0, 2, 3, 4]].abs().sum() / 5
    (expected,) = torch.autograd.grad(distances, network.weights)
    torch.testing.assert_close(network.fit(rows, share, costs), distances.detach())
    torch.testing.assert_close(network.weights.grad, expected)

    rows.requires_grad_()
    losses = network.losses(rows, share)
    (expected,) = torch.autograd.grad(losses.sum(), rows)
    values, slopes = network.slopes(rows.detach(), share)
    torch.testing.assert_close(values, losses.detach())
    torch.testing.assert_close(slopes, expected[..., : network.num_classes])


@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_gradcheck(kind: str, generator: torch.Generator) -> None:
    network, outputs, targets = made(kind, generator)
    outputs.requires_grad_()
    torch.autograd.gradcheck(lambda outputs: network(outputs, targets), outputs, fast_mode=True)


@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_a_set_has_no_order_and_what_is_left_out_does_not_count(kind: str, generator: torch.Generator) -> None:
    network, outputs, targets = made(kind, generator)
    values = network(outputs, targets)
    order = torch.randperm(20, generator=generator)
    torch.testing.assert_close(network(outputs[:, order], targets[:, order]), values)
    is_left_out = targets == IGNORE_INDEX
    if outputs.dim() > targets.dim():
        is_left_out = is_left_out.unsqueeze(-1)
    torch.testing.assert_close(network(outputs.masked_fill(is_left_out, 7.0), targets), values)


def test_a_set_of_nothing_is_zero_and_has_a_graph() -> None:
    outputs = torch.randn(2, 6, requires_grad=True)
    values = FlatDeepSets("binary")(outputs, torch.full((2, 6), IGNORE_INDEX))
    assert values.tolist() == [0, 0]
    values.sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.abs().max() == 0


def test_sets_do_not_look_alike_to_a_young_network(generator: torch.Generator) -> None:
    """Those of torch's own first weights do: a surrogate that starts so has nothing to begin with."""
    outputs, targets = sample(FlatDeepSets("binary").kind, num_sets=200, set_size=100, generator=generator)
    scales = torch.logspace(-1, 1, 200).unsqueeze(1)
    for _ in range(5):
        network = FlatDeepSets("binary", generator=generator)
        assert network(scales * outputs, targets).std() > 0.1


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="not judged row by row"):
        FlatDeepSets("heatmap")
    with pytest.raises(ValueError, match="num_classes=1 does not go with multiclass"):
        FlatDeepSets("multiclass")
    with pytest.raises(ValueError, match="was made for 3 classes; 4 came"):
        FlatDeepSets("multiclass", num_classes=3)(torch.zeros(1, 5, 4), torch.zeros(1, 5, dtype=torch.long))
