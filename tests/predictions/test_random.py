from __future__ import annotations

import pytest
import torch

from lossmith.predictions.random import random_predictions
from lossmith.vocabulary import Kind, check_predictions


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_gives_valid_sets(kind: Kind, generator: torch.Generator) -> None:
    predictions = random_predictions(kind, num_sets=5, set_size=6, num_classes=4, length=7, generator=generator)
    assert predictions.num_sets == 5
    assert predictions.set_size == 6
    check_predictions(kind, predictions.outputs, predictions.targets, is_stack=True)


@pytest.mark.parametrize("kind", list(Kind))
def test_same_seed_same_sets(kind: Kind) -> None:
    first, second = (
        random_predictions(kind, num_sets=2, set_size=3, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(first.outputs, second.outputs)
    assert torch.equal(first.targets, second.targets)


def test_sets_span_the_metric(generator: torch.Generator) -> None:
    predictions = random_predictions("multiclass", num_sets=500, set_size=64, generator=generator)
    accuracy = (predictions.outputs.argmax(-1) == predictions.targets).float().mean(-1)
    assert accuracy.min() < 0.1
    assert accuracy.max() > 0.95
    binary = random_predictions("binary", num_sets=500, set_size=64, generator=generator)
    share = binary.targets.float().mean(-1)
    assert share.min() < 0.05
    assert share.max() > 0.9
    assert (binary.outputs > 0).float().mean(-1).std() > 0.1


@pytest.mark.parametrize("kind", list(Kind))
def test_the_smallest_sets(kind: Kind, generator: torch.Generator) -> None:
    predictions = random_predictions(kind, num_sets=1, set_size=1, num_classes=1, length=1, generator=generator)
    check_predictions(kind, predictions.outputs, predictions.targets, is_stack=True)
    with pytest.raises(ValueError, match="num_classes=0 came; 1 or more works"):
        random_predictions(kind, num_sets=1, set_size=1, num_classes=0, generator=generator)


def test_unknown_kind() -> None:
    with pytest.raises(ValueError, match="kinds are binary"):
        random_predictions("regression", num_sets=1, set_size=1, generator=torch.Generator())
