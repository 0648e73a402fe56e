from __future__ import annotations

import pytest
import torch

from lossmith.kinds import Kind, check_predictions


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
def test_unsigned_targets_are_refused(dtype: torch.dtype) -> None:
    """-100 wraps around to 156 there, and class 156 would silently be left out."""
    targets = torch.tensor([156, 3]).to(dtype)
    with pytest.raises(ValueError, match=r"targets are torch\.uint\d+; signed integers work: targets\.long\(\)"):
        check_predictions(Kind.MULTICLASS, torch.randn(2, 200), targets)


def test_bool_targets_are_labels() -> None:
    check_predictions(Kind.BINARY, torch.tensor([2.0, -1.0]), torch.tensor([True, False]))
