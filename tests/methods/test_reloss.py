"""Learned losses: better than cross-entropy and Brier on networks that they never saw, the same again from a seed or a
state, and no loss where there is nothing to learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import lossmith
from lossmith.alignment import Alignment, Estimate, measure_alignment
from lossmith.baselines import find_loss
from lossmith.cards import Card, Measured, share_of_rising_rows
from lossmith.lab.checkpoints import checkpoint_predictions
from lossmith.lab.datasets import DATASETS
from lossmith.lab.recipes import Recipe
from lossmith.learning import approximation_objective
from lossmith.methods.reloss import learn
from lossmith.metrics import METRICS, multiclass, wrap
from lossmith.predictions import random_predictions
from lossmith.surrogates import CountsNetwork, DeepSets, PairLoss, PointwiseSurrogate, RankLoss, margin_loss
from lossmith.surrogates.suiting import suiting_surrogates
from lossmith.training import predict, shuffled_batches, train_steps
from lossmith.vocabulary import Predictions


def stored(kind: str, *, num_sets: int = 30, num_classes: int = 4, seed: int = 0) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    return random_predictions(kind, num_sets=num_sets, set_size=240, num_classes=num_classes, generator=generator)


QUICK = {"num_steps": 30, "num_real_sets": 320, "num_random_sets": 320, "set_size": 32, "progress": False}


@pytest.fixture(scope="module")
def digits() -> Predictions:
    """Rows that the networks did not train on, early and late."""
    made = checkpoint_predictions(DATASETS["digits"].load(None), Recipe(batch_size=32, num_epochs=4), num_seeds=2)
    predictions, seed = made.predictions, made.seed
    assert predictions.is_held_out is not None
    picked = predictions[predictions.is_held_out]
    return Predictions(picked.outputs, picked.targets, seed[predictions.is_held_out] == 1)


def test_better_than_hand_made_losses_on_another_network(digits: Predictions) -> None:
    """Learned on one network and its rows, measured on another: the bar is cross-entropy *and* Brier."""
    loss = learn("accuracy", digits, surrogate=margin_loss("multiclass"), progress=False, num_steps=200)

    def aligned(one: object) -> Alignment:
        return measure_alignment(one, METRICS["accuracy"], digits, num_sets=500, set_size=128, num_bootstrap=50)  # type: ignore[arg-type]

    learned, ce, brier = (aligned(one) for one in (loss, find_loss("ce", loss.kind), find_loss("brier", loss.kind)))
    assert learned.spearman.value > max(ce.spearman.value, brier.spearman.value)
    assert learned.spearman.value > 0.97
    assert learned.kendall.value > 0.89
    assert loss.card.share_rising == 0


def test_shipped_accuracy_on_networks_it_never_saw(digits: Predictions) -> None:
    shipped = measure_alignment(
        lossmith.load("accuracy"), METRICS["accuracy"], digits, num_sets=500, set_size=128, num_bootstrap=50
    )
    ce = measure_alignment(
        find_loss("ce", "multiclass"), METRICS["accuracy"], digits, num_sets=500, set_size=128, num_bootstrap=50
    )
    assert shipped.spearman.value > ce.spearman.value + 0.01


@pytest.mark.parametrize(
    ("metric", "surrogates"),
    [
        ("binary_accuracy", (PointwiseSurrogate, CountsNetwork)),
        ("f1", (PointwiseSurrogate, CountsNetwork)),
        ("auc", (PairLoss, RankLoss)),
        ("ap", (PairLoss, RankLoss)),
        ("f1_macro", (PointwiseSurrogate, CountsNetwork)),
        ("multilabel_f1", (PointwiseSurrogate, CountsNetwork)),
    ],
)
def test_the_metric_tells_what_suits_it(metric: str, surrogates: tuple[type, ...]) -> None:
    kind = METRICS[metric].kind
    loss = learn(metric, stored(kind), **QUICK)  # type: ignore[arg-type]
    assert type(loss.surrogate) in surrogates
    assert loss.card.measured["predictions"].spearman.low > 0.5
    assert loss.card.metric == metric
    generator = torch.Generator().manual_seed(5)
    sets = random_predictions(kind, num_sets=1, set_size=32, num_classes=4, generator=generator)
    outputs = sets.outputs[0].requires_grad_()
    loss(outputs, sets.targets[0]).backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def calibration(outputs: Tensor, targets: Tensor) -> Tensor:
    """Sees probabilities and not decisions alone."""
    return (outputs.sigmoid() - targets).square().mean()


def test_a_metric_that_fits_no_pattern() -> None:
    metric = wrap(calibration, kind="binary", higher_is_better=False)
    loss = learn(metric, stored("binary"), **{**QUICK, "num_steps": 20})  # type: ignore[arg-type]
    assert loss.card.measured["predictions"].spearman.low > 0.3
    options = {**QUICK, "num_steps": 100, "gradient_penalty": 10.0}
    torch.manual_seed(0)  # of the network's first weights
    alone = learn(metric, stored("binary"), surrogate=DeepSets("binary", is_scaled=False), **options)  # type: ignore[arg-type]
    assert alone.card.measured["predictions"].spearman.low > 0.3


def test_same_seed_same_loss() -> None:
    first, second = (learn("f1", stored("binary"), **QUICK) for _ in range(2))  # type: ignore[arg-type]
    for one, other in zip(first.state_dict().values(), second.state_dict().values()):
        assert torch.equal(one, other)
    assert first.card == second.card
    assert first.scale == second.scale


def test_a_run_that_is_killed_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learn("f1", stored("binary"), **QUICK)  # type: ignore[arg-type]
    path = tmp_path / "state.safetensors"
    import lossmith.methods.reloss as module

    real, num_saved = module.save_learning, 0

    def save_and_die(*arguments: object) -> None:
        nonlocal num_saved
        real(*arguments)  # type: ignore[arg-type]
        num_saved += 1
        if num_saved in (4, 15):  # in the first surrogate, and in the second
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_learning", save_and_die)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            learn("f1", stored("binary"), resume_from=path, **QUICK)  # type: ignore[arg-type]
    resumed = learn("f1", stored("binary"), resume_from=path, **QUICK)  # type: ignore[arg-type]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert resumed.card == whole.card


def test_random_sets_alone() -> None:
    loss = learn("accuracy", **{**QUICK, "set_size": 64})  # type: ignore[arg-type]
    assert loss.card.learned_from == "random sets"
    assert loss.card.measured["random sets"].spearman.low > 0.9


def test_approximation_is_an_objective_too() -> None:
    loss = learn(
        "accuracy",
        stored("multiclass"),
        surrogate=margin_loss("multiclass"),
        objective=approximation_objective(),
        **QUICK,  # type: ignore[arg-type]
    )
    assert loss.card.measured["predictions"].spearman.value > 0


def test_gradient_is_as_long_as_that_of_cross_entropy() -> None:
    sets = stored("multiclass", num_sets=100)
    loss = learn("accuracy", sets, surrogate=margin_loss("multiclass"), **QUICK)  # type: ignore[arg-type]

    def norm(one: object, index: int) -> float:
        outputs = sets.outputs[index].clone().requires_grad_()
        one(outputs, sets.targets[index]).backward()  # type: ignore[operator]
        assert outputs.grad is not None
        return float(outputs.grad.norm())

    ratios = torch.tensor([norm(loss, i) / norm(find_loss("ce", "multiclass"), i) for i in range(100)])
    assert 0.3 < ratios.median() < 3


# sums with the loss of average precision do not run away, and it keeps its plain gradient
@pytest.mark.parametrize("name", [name for name in lossmith.shipped() if name != "ap"])
def test_gradient_tells_scores_neither_to_grow_nor_to_shrink(name: str) -> None:
    loss = lossmith.load(name)
    generator = torch.Generator().manual_seed(0)
    sets = random_predictions(loss.kind, num_sets=1, set_size=40, num_classes=9, generator=generator)
    outputs, targets = sets.outputs[0].requires_grad_(), sets.targets[0].clone()
    targets[:3] = -100
    (gradient,) = torch.autograd.grad(loss(outputs, targets), outputs)
    assert gradient.norm() > 0.001
    (plain,) = torch.autograd.grad(loss.surrogate(outputs[None], targets[None]).sum() * loss.scale, outputs)
    growth, of_plain = (torch.linalg.vecdot(each.flatten(), outputs.flatten()).abs() for each in (gradient, plain))
    assert growth < 0.002 * of_plain
    assert not gradient[:3].any()
    # the value is that of the surrogate, which the card is about
    assert torch.equal(loss(outputs, targets), loss.surrogate(outputs[None], targets[None])[0] * loss.scale)


def test_masked_classes_in_half_precision() -> None:
    """-inf is a usual way to rule a class out."""
    loss, targets = lossmith.load("accuracy"), torch.tensor([0, 1, 0, 1])
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).half()
    loss(outputs, targets)
    outputs[:, 2] = -torch.inf
    (gradient,) = torch.autograd.grad(loss(outputs.requires_grad_(), targets), outputs)
    assert gradient.isfinite().all()
    assert gradient[:, :2].any()


def test_a_strong_sum_does_not_blow_scores_up() -> None:
    """Before, each step made scores larger, mistakes dearer, and with the base's gradient the learned one longer."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 10, generator=generator)
    targets = (inputs[:, :3] + 0.5 * torch.randn(400, 3, generator=generator)).argmax(1)
    sizes = {}
    for weight in (0.0, 3.0):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
        loss = lossmith.combine(torch.nn.CrossEntropyLoss(), lossmith.load("accuracy"), weight=weight, warmup_steps=50)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        batches = shuffled_batches(inputs, targets, batch_size=64, num_epochs=60, generator=generator)
        for _ in train_steps(model, loss, batches, optimizer):
            pass
        sizes[weight] = float(predict(model, inputs).std())
    assert sizes[3.0] < 10 * sizes[0.0]  # it was 40 times as large


@pytest.mark.parametrize("name", ["accuracy", "f1", "auc", "ap"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_precision_and_autocast_give_one_value(name: str, dtype: torch.dtype) -> None:
    """Where autocast reaches into a loss, products of bfloat16 round its value to three digits."""
    generator = torch.Generator().manual_seed(0)
    kind = lossmith.load(name).kind
    sets = random_predictions(kind, num_sets=1, set_size=40, num_classes=5, generator=generator)
    outputs, targets = sets.outputs[0].to(dtype), sets.targets[0]
    expected = lossmith.load(name)(outputs.float(), targets)
    for is_enabled in (False, True):
        scores = outputs.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_enabled):
            value = lossmith.load(name)(scores, targets)
        value.backward()
        assert value.dtype == torch.float32
        assert torch.equal(value, expected)
        assert scores.grad is not None
        assert scores.grad.dtype == dtype
        assert scores.grad.isfinite().all()
        assert scores.grad.any()


@pytest.mark.parametrize("name", ["accuracy", "f1", "auc", "ap"])
@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e300), (torch.float32, 3e38), (torch.bfloat16, 3e38)])
def test_scores_of_any_size(name: str, dtype: torch.dtype, size: float) -> None:
    loss = lossmith.load(name)
    scores = torch.tensor([size, -size, 3.0, 2.0], dtype=dtype)
    if loss.kind == "multiclass":
        scores = torch.stack([scores, -scores], -1)
    scores.requires_grad_()
    value = loss(scores, torch.tensor([0, 1, 1, 0]))
    value.backward()
    assert value.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_a_set_that_says_nothing_is_told_once() -> None:
    loss, scores = lossmith.load("auc"), torch.randn(5, requires_grad=True)
    loss(scores, torch.tensor([0, 1, 0, 1, 0]))
    with pytest.warns(UserWarning, match="the loss of auc came upon a set that says nothing"):
        value = loss(scores, torch.ones(5))
    value.backward()
    assert value == 0
    assert scores.grad is not None
    assert not scores.grad.any()
    loss(scores, torch.full((5,), -100))  # pytest turns a second warning into an error


def test_the_simplest_of_what_fits_equally_well_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    import lossmith.methods.reloss as module

    sets, options = stored("multiclass"), {**QUICK, "num_steps": 60}
    assert type(learn("accuracy", sets, **options).surrogate) is PointwiseSurrogate  # type: ignore[arg-type]
    monkeypatch.setattr(module, "NEGLIGIBLE", 2.0)
    options["num_steps"] = 5
    assert type(learn("f1", stored("binary"), **options).surrogate) is PointwiseSurrogate  # type: ignore[arg-type]


def test_predictions_in_double_precision() -> None:
    sets = stored("binary")
    single, double = (
        learn("f1", Predictions(sets.outputs.to(dtype), sets.targets), **{**QUICK, "num_steps": 5})  # type: ignore[arg-type]
        for dtype in (torch.float32, torch.float64)
    )
    assert single.card == double.card


def test_progress_shows_what_there_is_to_beat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    learn("f1", stored("binary"), **{**QUICK, "num_steps": 10, "progress": True})  # type: ignore[arg-type]
    shown = capsys.readouterr().err
    assert "learning f1 (2 of 2): Spearman 0." in shown
    assert "(cross-entropy 0." in shown


def test_nothing_to_learn() -> None:
    constant = wrap(lambda outputs, targets: outputs.new_tensor(1.0), kind="binary", higher_is_better=True, name="one")
    with pytest.raises(ValueError, match="one is the same on all"):
        learn(constant, stored("binary"), **QUICK)  # type: ignore[arg-type]
    sets = stored("binary")
    with pytest.raises(ValueError, match="every set is held out"):
        learn("f1", Predictions(sets.outputs, sets.targets, torch.ones(30).bool()), **QUICK)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="5 rows each"):
        learn("f1", Predictions(sets.outputs[:, :5], sets.targets[:, :5]), **QUICK)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="auc is defined on none of the held-out sets"):
        learn("auc", Predictions(sets.outputs, torch.ones_like(sets.targets)), **QUICK)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no surrogate is made for ranking"):
        learn("ndcg", stored("ranking", num_sets=8), **{**QUICK, "set_size": 8})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((calibration, None), {}, r"metric came as function; .*lossmith\.metrics\.wrap"),
        (("f1", torch.zeros(3, 9)), {}, r"predictions came as Tensor; lossmith\.Predictions\(outputs, targets\) works"),
        (("f1", (torch.zeros(3, 9), torch.zeros(3, 9))), {}, "predictions came as tuple"),
        (("f1", None), {"num_steps": 0}, "num_steps=0"),
        (("f1", None), {"within": 2.0}, "within=2.0"),
        (("f1", None), {"set_size": 1}, "set_size=1"),
    ],
)
def test_arguments_that_cannot_work(arguments: tuple[object, object], options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        learn(*arguments, progress=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "num_classes"), [("top5_accuracy", 5), ("top5_accuracy", 3), ("f1_macro", 1)])
def test_too_few_classes_to_choose_among(name: str, num_classes: int) -> None:
    with pytest.raises(ValueError, match="or more work"):
        lossmith.load(name)(torch.randn(4, num_classes), torch.zeros(4).long())


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_best_k_are_found_out(k: int) -> None:
    sets = stored("multiclass", num_classes=6)
    first, *_ = suiting_surrogates(multiclass.top_k_accuracy(k=k), [sets])
    assert isinstance(first, PointwiseSurrogate)
    assert first.top == k


def test_rising_rows_are_counted() -> None:
    surrogate = PointwiseSurrogate("binary")
    sets = stored("binary")
    assert share_of_rising_rows(surrogate, sets) == 0

    class Rising(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    surrogate.curve = Rising()
    share = share_of_rising_rows(surrogate, sets)
    assert share is not None
    assert share > 0.99


def test_a_card_that_fails_its_check() -> None:
    good, bad = (Measured(Estimate(v, v - 0.1, v + 0.1), Estimate(v, v, v)) for v in (0.9, 0.05))
    Card("f1", {"a": good}, 0.0, "", 1, 0, "0").check()
    with pytest.raises(ValueError, match="held-out sets of b as f1 does"):
        Card("f1", {"a": good, "b": bad}, 0.0, "", 1, 0, "0").check()
    with pytest.raises(ValueError, match=r"rises on 20.0%"):
        Card("f1", {"a": good}, 0.2, "", 1, 0, "0").check()
