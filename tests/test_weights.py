"""Files of learned losses: the same loss comes back, and whatever is no such file is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import lossmith
from lossmith.alignment import Estimate
from lossmith.cards import Card, Measured
from lossmith.methods.reloss import ReLoss
from lossmith.surrogates import SURROGATES, CountsNetwork, DeepSets, PairLoss, RankLoss, Surrogate, margin_loss
from lossmith.vocabulary import Kind
from lossmith.weights import load, save, shipped
from tests.metrics.samples import sample

GOOD = Measured(Estimate(0.9, 0.8, 0.95), Estimate(0.7, 0.6, 0.8), None, None)


def loss_of(surrogate: Surrogate, *, measured: Measured = GOOD, share_rising: float | None = 0.0) -> ReLoss:
    card = Card("accuracy", {"mine": measured}, share_rising, "nothing", num_steps=1, seed=0, version="0")
    return ReLoss(surrogate, card, scale=1.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: margin_loss("multiclass", floor=0.2, top=2),
        lambda: CountsNetwork("binary"),
        lambda: PairLoss("multilabel"),
        lambda: RankLoss("binary"),
        lambda: DeepSets("multiclass", num_classes=7),
    ],
)
def test_the_same_loss_comes_back(make: Callable[[], Surrogate], tmp_path: Path, generator: torch.Generator) -> None:
    loss = loss_of(make())
    save(loss, tmp_path / "mine.safetensors")
    again = load(tmp_path / "mine.safetensors")
    outputs, targets = sample(loss.kind, num_sets=1, generator=generator)
    assert torch.equal(again(outputs[0], targets[0]), loss(outputs[0], targets[0]))
    assert again.card == loss.card
    assert not any(parameter.requires_grad for parameter in again.parameters())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.safetensors"]


def test_a_loss_that_points_the_wrong_way_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    wrong = Measured(Estimate(-0.5, -0.6, -0.4), Estimate(-0.4, -0.5, -0.3), None, None)
    with pytest.raises(ValueError, match="does not rank held-out sets of mine as accuracy does"):
        save(loss_of(margin_loss("binary"), measured=wrong), path)
    with pytest.raises(ValueError, match=r"rises on 20.0% of held-out rows"):
        save(loss_of(margin_loss("binary"), share_rising=0.2), path)
    assert not path.exists()


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    loss = loss_of(margin_loss("binary"))
    with pytest.raises(ValueError, match=r"end in \.safetensors"):
        save(loss, tmp_path / "mine.pt")
    with pytest.raises(ValueError, match="there is no folder"):
        save(loss, tmp_path / "nowhere" / "mine.safetensors")
    with pytest.raises(ValueError, match="CrossEntropyLoss came"):
        save(torch.nn.CrossEntropyLoss(), tmp_path / "mine.safetensors")  # type: ignore[arg-type]


def contents(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("lossmith_format", "99", r"was written by a newer lossmith \(format 99\); update"),
        ("lossmith_format", "new", "is damaged: its format is 'new'"),
        ("surrogate", "unheard_of", "is damaged: 'unheard_of'"),
        ("settings", "{", "is damaged"),
        ("settings", json.dumps({"kind": "binary", "depth": 3}), "is damaged"),
        ("settings", json.dumps({"kind": "heatmap"}), "is damaged"),
        ("card", json.dumps({"metric": "accuracy"}), "is damaged"),
        ("card", "[]", "is damaged"),
        ("scale", "big", "is damaged"),
    ],
)
def test_a_spoilt_card(tmp_path: Path, key: str, value: str, words: str) -> None:
    path = tmp_path / "mine.safetensors"
    save(loss_of(margin_loss("binary")), path)
    weights, metadata = contents(path)
    save_file(weights, path, metadata | {key: value})
    with pytest.raises(ValueError, match=words) as raised:
        load(path)
    assert "\n" not in str(raised.value)


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    save(loss_of(margin_loss("binary")), path)
    whole = path.read_bytes()
    weights, metadata = contents(path)
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="cannot be read"):
            load(path)
    save_file(weights | {"curve.raw_heights": torch.full((8,), torch.nan)}, path, metadata)
    with pytest.raises(ValueError, match="NaN or infinite"):
        load(path)
    save_file({name: tensor for name, tensor in weights.items() if name != "curve.raw_heights"}, path, metadata)
    with pytest.raises(ValueError, match=r"is damaged: .*heights"):
        load(path)
    save_file({"layer.weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"is not a loss of lossmith: it holds layer\.weight"):
        load(path)
    with pytest.raises(ValueError, match="there is no such file"):
        load(tmp_path / "other.safetensors")


def test_names() -> None:
    with pytest.raises(ValueError, match=r"no shipped loss 'acuracy' \(did you mean 'accuracy'\?\)"):
        load("acuracy")


@pytest.mark.parametrize("name", shipped())
def test_shipped_losses(name: str, generator: torch.Generator) -> None:
    """Better than cross-entropy on every source of their cards; falling; small; ready for their kind."""
    path = shipped()[name]
    loss = load(path)
    assert path.stat().st_size < 20_000
    assert loss.card.metric == name
    assert loss.kind is lossmith.metrics.METRICS[name].kind
    assert type(loss.surrogate) in SURROGATES.values()
    assert loss.card.share_rising is not None
    assert loss.card.share_rising < 0.01
    assert any("never learned from" in where for where in loss.card.measured)
    for measured in loss.card.measured.values():
        assert measured.base_spearman is not None
        assert measured.spearman.value > measured.base_spearman.value
    outputs, targets = sample(loss.kind, num_sets=1, set_size=60, generator=generator)
    outputs = outputs[0].requires_grad_()
    loss(outputs, targets[0]).backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert outputs.grad.any()


def test_shipped_losses_refuse_another_kind() -> None:
    loss = load("accuracy")
    with pytest.raises(ValueError, match=r"one set is outputs \[N, C\]"):
        loss(torch.zeros(3), torch.zeros(3))
    loss(torch.randn(3, 4), torch.zeros(3).long())
    with pytest.raises(ValueError, match="this loss of accuracy takes multiclass predictions"):
        loss(torch.zeros(3), torch.zeros(3))


def test_kind_is_that_of_the_surrogate() -> None:
    assert loss_of(margin_loss("tokens")).kind is Kind.TOKENS
    assert replace(loss_of(margin_loss("tokens")).card, seed=3).seed == 3
