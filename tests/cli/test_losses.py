from __future__ import annotations

from lossmith.baselines import LOSSES
from tests.cli.conftest import Run


def test_every_loss_is_listed(run: Run) -> None:
    listed = run("losses", "--json").json["losses"]
    assert [loss["name"] for loss in listed] == list(LOSSES)
    for loss in listed:
        assert loss["kinds"]
        assert 10 < len(loss["description"]) < 200
        assert "`" not in loss["description"]


def test_table(run: Run) -> None:
    lines = run("losses").out.splitlines()
    assert lines[0].strip() == f"{len(LOSSES)} losses"
    assert any(line.startswith("accuracy ") and "omniglot" in line for line in lines)
    assert any(line.startswith("ce ") and "multiclass" in line for line in lines)


def test_losses_that_are_compared(run: Run) -> None:
    from lossmith.lab.comparing import RECIPES

    listed = run("losses", "--compared", "--json").json["compared"]
    assert [loss["name"] for loss in listed] == list(RECIPES)
    assert "ap" in next(loss for loss in listed if loss["name"] == "smooth_ap")["tried_for"]
    lines = run("losses", "--compared", "--kind", "multiclass").out.splitlines()
    assert any(line.startswith("ce+traced ") for line in lines)
    assert not any(line.startswith("smooth_ap ") for line in lines)


def test_one_kind(run: Run) -> None:
    names = [loss["name"] for loss in run("losses", "--kind", "binary", "--json").json["losses"]]
    assert {"ce", "mse"} <= set(names)
    assert "ce" not in [loss["name"] for loss in run("losses", "--kind", "heatmap", "--json").json["losses"]]


def test_cards_of_learned_losses(run: Run) -> None:
    learned = run("losses", "--kind", "multiclass", "--json").json["learned"]
    cards = {loss["name"]: loss["card"] for loss in learned}
    assert "accuracy" in cards
    assert cards["accuracy"]["measured"]["mnist, never learned from"]["spearman"]["value"] > 0.98
    assert {loss["kind"] for loss in learned} == {"multiclass"}
