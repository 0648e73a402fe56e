from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lossmith.baselines import cross_entropy, label_smoothing
from lossmith.kinds import Kind
from tests.metrics.samples import sample


def test_by_hand() -> None:
    # -log sigmoid(0) and -log(1 - sigmoid(log 3)), whose sigmoid is 3/4
    outputs, targets = torch.tensor([0.0, math.log(3), 5.0]), torch.tensor([1, 0, -100])
    expected = (math.log(2) + math.log(4)) / 2
    assert float(cross_entropy(Kind.BINARY)(outputs, targets)) == pytest.approx(expected)
    # a tenth of the label goes to the two classes alike: 0.95 and 0.05
    smoothed = -0.95 * math.log(0.75) - 0.05 * math.log(0.25)
    assert float(label_smoothing(Kind.BINARY)(outputs[1:2], torch.tensor([1]))) == pytest.approx(smoothed)
    two_classes = torch.tensor([[0.0, math.log(3)]])
    assert float(label_smoothing(Kind.MULTICLASS)(two_classes, torch.tensor([1]))) == pytest.approx(smoothed)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_equals_torch(smoothing: float, generator: torch.Generator) -> None:
    for kind in (Kind.MULTICLASS, Kind.SEGMENTATION, Kind.TOKENS, Kind.SPAN):
        outputs, targets = (stack[0] for stack in sample(kind, generator=generator, ignored_share=0.3))
        # torch wants the classes in the second dimension
        classes_second = outputs.movedim(-1, 1) if kind is Kind.TOKENS else outputs
        expected = F.cross_entropy(classes_second, targets, label_smoothing=smoothing)
        torch.testing.assert_close(cross_entropy(kind, smoothing=smoothing)(outputs, targets), expected)
    for kind in (Kind.BINARY, Kind.MULTILABEL):
        outputs, targets = (stack[0] for stack in sample(kind, generator=generator))
        soft = targets * (1 - smoothing) + smoothing / 2
        expected = F.binary_cross_entropy_with_logits(outputs, soft)
        torch.testing.assert_close(cross_entropy(kind, smoothing=smoothing)(outputs, targets), expected)


def test_smoothing_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"smoothing=1\.0 came"):
        cross_entropy(Kind.BINARY, smoothing=1.0)
