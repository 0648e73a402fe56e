"""What every pointwise loss promises, on every kind it reads."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch

from lossmith.baselines import find_loss
from lossmith.kinds import CLASS_DIM, IGNORE_INDEX, Kind
from lossmith.vocabulary import Loss
from tests.metrics.samples import sample

NAMES = ("ce", "label_smoothing", "focal", "mse", "brier", "hinge")
CASES = [
    *itertools.product(NAMES, CLASS_DIM),
    *itertools.product(("cost_sensitive",), (Kind.BINARY, Kind.MULTILABEL)),
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_what_is_left_out_has_no_say(name: str, kind: Kind, generator: torch.Generator) -> None:
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator, ignored_share=0.4))
    before = loss(outputs, targets)
    class_dim = CLASS_DIM[kind]
    ignored = targets == IGNORE_INDEX
    assert ignored.any()
    ignored = ignored if class_dim is None else ignored.unsqueeze(class_dim)
    torch.testing.assert_close(loss(outputs.masked_fill(ignored, 7.0), targets), before)
    scores = outputs.clone().requires_grad_()
    loss(scores, targets).backward()
    assert scores.grad is not None
    assert (scores.grad[ignored.expand_as(outputs)] == 0).all()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_lower_on_better_predictions(name: str, kind: Kind, generator: torch.Generator) -> None:
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator))
    better = outputs.clone()
    class_dim = CLASS_DIM[kind]
    if class_dim is None:
        better += 0.5 * (2 * targets - 1)
    else:
        better.scatter_add_(class_dim, targets.unsqueeze(class_dim), torch.full_like(outputs, 0.5))
    assert loss(better, targets) < loss(outputs, targets)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finite_everywhere(name: str, kind: Kind, dtype: torch.dtype, generator: torch.Generator) -> None:
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator, ignored_share=0.3))
    all_ignored = torch.full_like(targets, IGNORE_INDEX)
    cases = [
        (outputs, targets),
        (1e4 * outputs.sign(), targets),
        (torch.zeros_like(outputs), targets),
        (outputs[:1], targets[:1]),
        (outputs, all_ignored),
    ]
    for scores, labels in cases:
        scores = scores.to(dtype, copy=True).requires_grad_()
        value = loss(scores, labels)
        value.backward()
        assert value.isfinite()
        assert value.dtype == dtype
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        if labels is all_ignored:
            assert value == 0
            assert (scores.grad == 0).all()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_gradient(name: str, kind: Kind, generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(kind, set_size=2, generator=generator, ignored_share=0.2))
    if kind is Kind.SEGMENTATION:
        outputs, targets = outputs[..., :2], targets[..., :2]
    loss = find_loss(name, kind)
    assert torch.autograd.gradcheck(lambda scores: loss(scores, targets), outputs.double().requires_grad_())


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_vectorises_over_sets(name: str, kind: Kind, generator: torch.Generator) -> None:
    outputs, targets = sample(kind, generator=generator, ignored_share=0.3)
    loss = find_loss(name, kind)
    alone = torch.stack([loss(*one) for one in zip(outputs, targets)])
    torch.testing.assert_close(torch.vmap(loss)(outputs, targets), alone)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_travels_to_other_processes(name: str, kind: Kind, generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator))
    loss: Loss = find_loss(name, kind)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(outputs, targets), loss(outputs, targets))


@pytest.mark.parametrize("kind", [Kind.RANKING, Kind.EMBEDDING, Kind.HEATMAP])
def test_refuses_other_kinds(kind: Kind) -> None:
    with pytest.raises(
        ValueError, match=f"a pointwise loss cannot read {kind} predictions; binary, multilabel, .* work"
    ):
        find_loss("ce", kind)


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"no loss called 'brie'; did you mean 'brier'\? All: ce, "):
        find_loss("brie", "binary")
    with pytest.raises(ValueError, match="'binry' is not a kind"):
        find_loss("ce", "binry")
