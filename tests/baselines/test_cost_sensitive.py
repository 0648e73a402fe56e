from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lossmith.baselines import balanced_cross_entropy, cost_sensitive
from lossmith.kinds import Kind


def test_cost_sensitive_is_torchs_pos_weight() -> None:
    scores, targets = torch.tensor([0.5, -2.0, 3.0, 1.0]), torch.tensor([1, 1, 0, 0])
    expected = F.binary_cross_entropy_with_logits(scores, targets.float(), pos_weight=torch.tensor(8.1))
    assert torch.allclose(cost_sensitive("binary", positive_weight=8.1)(scores, targets), expected)


def test_ignored_rows_do_not_count() -> None:
    loss = cost_sensitive(Kind.BINARY, positive_weight=3)
    assert torch.equal(loss(torch.tensor([0.0, 9.0]), torch.tensor([1, -100])), torch.tensor(3 * math.log(2)))


@pytest.mark.parametrize(
    ("kind", "weight", "message"), [("multiclass", 1.0, "no positive class"), ("binary", 0.0, "more than 0")]
)
def test_cost_sensitive_says_what_works(kind: str, weight: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost_sensitive(kind, positive_weight=weight)


def test_balanced_by_hand() -> None:
    scores, targets = torch.tensor([2.0, 0.0, -1.0, 1.0]), torch.tensor([1, 0, 0, 0])
    positive = math.log(1 + math.exp(-2))
    negative = (math.log(2) + math.log(1 + math.exp(-1)) + math.log(1 + math.exp(1))) / 3
    value = balanced_cross_entropy(Kind.BINARY)(scores, targets)
    assert float(value) == pytest.approx((positive + negative) / 2, abs=1e-6)


def test_balanced_of_classes_is_torchs_weighted_mean() -> None:
    scores, targets = torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 0, 0, 1, 1, 2])
    weight = 1 / torch.bincount(targets)
    expected = F.cross_entropy(scores, targets, weight=weight)  # the weighted mean over rows is that over classes
    assert torch.allclose(balanced_cross_entropy(Kind.MULTICLASS)(scores, targets), expected)


def test_balanced_of_one_class_and_of_none() -> None:
    loss, scores = balanced_cross_entropy(Kind.BINARY), torch.zeros(2, requires_grad=True)
    assert float(loss(scores, torch.tensor([1, 1])).detach()) == pytest.approx(math.log(2))
    nothing = loss(scores, torch.tensor([-100, -100]))
    nothing.backward()
    assert float(nothing.detach()) == 0
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(2))


@pytest.mark.parametrize("kind", [Kind.BINARY, Kind.MULTICLASS])
def test_gradients(kind: Kind) -> None:
    shape = (4,) if kind is Kind.BINARY else (4, 3)
    scores = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets = torch.tensor([1, 0, 0, 1])
    assert torch.autograd.gradcheck(lambda outputs: balanced_cross_entropy(kind)(outputs, targets), (scores,))
