"""Cards: every shipped loss falls wherever its metric rises, and its plot is there and small."""

from __future__ import annotations

from pathlib import Path

import pytest

from lossmith.lab.loss_cards import card_in_words, improvement_curve, write_page
from lossmith.vocabulary import Kind
from lossmith.weights import load, shipped

DOCS = Path(__file__).parents[2] / "docs"


SHAPES = [
    (name, set_size, num_classes)
    for name in shipped()
    # a choice among classes exists from 2 on, one among the best 5 from 6 on
    for num_classes in {Kind.BINARY: [1]}.get(load(name).kind, [6 if "top5" in name else 2, 10, 100])
    for set_size in ([8, 32, 128, 512] if num_classes <= 10 else [128])
]


@pytest.mark.parametrize(("name", "set_size", "num_classes"), SHAPES)
def test_falls_wherever_the_metric_rises(name: str, set_size: int, num_classes: int) -> None:
    curve = improvement_curve(
        load(name),
        num_sets=40 if set_size * num_classes < 2000 else 8,
        set_size=set_size,
        num_classes=num_classes,
        seed=1,
    )
    is_rising = curve.values.diff() > 0
    assert is_rising.sum() > 10
    assert (curve.losses.diff()[is_rising] < 0).all()


@pytest.mark.parametrize("name", shipped())
def test_the_page_shows_what_is_shipped(name: str) -> None:
    page = (DOCS / "reference" / "cards.md").read_text(encoding="utf8")
    assert card_in_words(name, load(name)) in page
    assert 1_000 < (DOCS / "images" / "cards" / f"{name}.svg").stat().st_size < 100_000


def test_the_page_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "reference").mkdir()
    write_page(tmp_path)
    assert (tmp_path / "reference" / "cards.md").read_text(encoding="utf8").count("## ") == len(shipped())
    for name in shipped():
        committed = DOCS / "images" / "cards" / f"{name}.svg"
        assert (tmp_path / "images" / "cards" / f"{name}.svg").stat().st_size == pytest.approx(
            committed.stat().st_size, rel=0.1
        )
