"""The losses that the documentation shows are those that come out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from lossmith import trace
from tests.tracing import unmodified
from tests.tracing.gallery import GALLERY, Piece

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "tracing.md"


@pytest.mark.parametrize("piece", GALLERY, ids=lambda piece: f"{piece.metric}, link {piece.link:g}")
def test_the_loss_is_the_one_by_hand(piece: Piece, generator: torch.Generator) -> None:
    loss = trace(piece.code, link=piece.link, higher_is_better=piece.higher_is_better)
    for _ in range(2):
        outputs, targets = getattr(unmodified, piece.kind)(generator)
        outputs.requires_grad_()
        (found,) = torch.autograd.grad(loss(outputs, targets), outputs)
        (expected,) = torch.autograd.grad(piece.by_hand(outputs, targets), outputs)
        assert expected.abs().sum() > 0
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_the_page_shows_what_is_tested() -> None:
    shown = re.findall(r"^\| .* \| [\d.]+ \| .* \|$", PAGE.read_text(encoding="utf8"), re.M)
    assert shown == [piece.row for piece in GALLERY]
    assert len({piece.metric for piece in GALLERY}) >= 20
