from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import brier_score_loss

from lossmith.baselines import brier, mean_squared_error
from lossmith.kinds import Kind
from tests.metrics.samples import sample


def test_by_hand() -> None:
    outputs, targets = torch.tensor([[0.0, math.log(2), 0.0]]), torch.tensor([1])  # q = 1/4, 1/2, 1/4
    assert float(brier(Kind.MULTICLASS)(outputs, targets)) == pytest.approx(1 / 16 + 1 / 4 + 1 / 16)
    assert float(mean_squared_error(Kind.MULTICLASS)(outputs, targets)) == pytest.approx(3 / 8 / 3)


def test_binary_is_the_brier_score(generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.BINARY, generator=generator))
    expected = brier_score_loss(targets.numpy(), outputs.sigmoid().numpy())
    for make in (brier, mean_squared_error):
        assert float(make(Kind.BINARY)(outputs, targets)) == pytest.approx(expected)


def test_multiclass_is_the_brier_score(generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.MULTICLASS, generator=generator))
    one_hot = torch.nn.functional.one_hot(targets, outputs.shape[-1])
    expected = ((outputs.softmax(-1) - one_hot) ** 2).sum(-1).mean()
    torch.testing.assert_close(brier(Kind.MULTICLASS)(outputs, targets), expected)
