from __future__ import annotations

import pytest
import torch
from sklearn.metrics import hinge_loss

from lossmith.baselines import hinge
from lossmith.kinds import Kind
from tests.metrics.samples import sample


def test_by_hand() -> None:
    outputs, targets = torch.tensor([3.0, 0.5, -0.5, 9.0]), torch.tensor([1, 1, 1, -100])
    assert float(hinge(Kind.BINARY)(outputs, targets)) == pytest.approx((0 + 0.5 + 1.5) / 3)
    outputs = torch.tensor([[2.0, 1.5, -1.0]])
    assert float(hinge(Kind.MULTICLASS)(outputs, torch.tensor([0]))) == pytest.approx(0.5)
    assert float(hinge(Kind.MULTICLASS)(outputs, torch.tensor([2]))) == pytest.approx(4.0)


def test_equals_sklearn(generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.MULTICLASS, generator=generator))
    expected = hinge_loss(targets.numpy(), outputs.numpy(), labels=list(range(7)))
    assert float(hinge(Kind.MULTICLASS)(outputs, targets)) == pytest.approx(expected)
    outputs, targets = (stack[0] for stack in sample(Kind.BINARY, generator=generator))
    assert float(hinge(Kind.BINARY)(outputs, targets)) == pytest.approx(hinge_loss(targets.numpy(), outputs.numpy()))
