from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor

from lossmith.alignment import Alignment, losses_of_sets, measure_alignment, plot_alignment
from lossmith.baselines import find_loss
from lossmith.kinds import Kind
from lossmith.metrics import METRICS
from lossmith.vocabulary import Metric, Predictions
from tests.metrics.samples import sample

CE = find_loss("ce", "binary")


def accuracy_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == targets).double().mean(-1)


ACCURACY = Metric("accuracy", Kind.BINARY, accuracy_of)
ERROR = Metric("error", Kind.BINARY, lambda outputs, targets: 1 - accuracy_of(outputs, targets), higher_is_better=False)


@pytest.fixture
def predictions(generator: torch.Generator) -> Predictions:
    """Sets of a model that gets better and better."""
    targets = torch.randint(2, (150, 40), generator=generator)
    skill = torch.linspace(-0.5, 1.5, 150)[:, None]
    return Predictions(skill * (2 * targets - 1) + torch.randn(150, 40, generator=generator), targets)


def test_equals_scipy(predictions: Predictions) -> None:
    alignment = measure_alignment(CE, ACCURACY, predictions)
    losses = [float(CE(*one)) for one in zip(predictions.outputs, predictions.targets)]
    costs = (-accuracy_of(predictions.outputs, predictions.targets)).tolist()
    assert alignment.spearman.value == pytest.approx(stats.spearmanr(losses, costs).statistic)
    assert alignment.kendall.value == pytest.approx(stats.kendalltau(losses, costs).statistic)
    assert alignment.losses.tolist() == pytest.approx(losses)
    assert alignment.costs.tolist() == costs
    assert (alignment.metric, alignment.num_sets, alignment.num_sets_left_out, alignment.sign) == (
        "accuracy",
        150,
        0,
        1,
    )
    pairs = [(i, j) for i in range(150) for j in range(i) if losses[i] != losses[j] and costs[i] != costs[j]]
    num_discordant = sum((losses[i] < losses[j]) != (costs[i] < costs[j]) for i, j in pairs)
    assert alignment.discordant_share == pytest.approx(num_discordant / len(pairs))


def test_intervals(predictions: Predictions) -> None:
    alignment = measure_alignment(CE, ACCURACY, predictions)
    for estimate in (alignment.spearman, alignment.kendall):
        assert estimate.low < estimate.value < estimate.high
    # Fisher's z: an independent interval for Spearman
    half_width = 1.96 * math.sqrt(1.06 / (150 - 3))
    low, high = (math.tanh(math.atanh(alignment.spearman.value) + side * half_width) for side in (-1, 1))
    assert alignment.spearman.low == pytest.approx(low, abs=0.02)
    assert alignment.spearman.high == pytest.approx(high, abs=0.02)
    narrower = measure_alignment(CE, ACCURACY, predictions, confidence=0.5)
    assert alignment.spearman.low < narrower.spearman.low < narrower.spearman.high < alignment.spearman.high


def test_perfect_wrong_and_indifferent(predictions: Predictions) -> None:
    def miss_rate(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs > 0) != targets).float().mean()

    for metric in (ACCURACY, ERROR):
        perfect = measure_alignment(miss_rate, metric, predictions)
        assert (perfect.spearman.value, perfect.spearman.low, perfect.kendall.value) == pytest.approx((1, 1, 1))
        assert (perfect.sign, perfect.discordant_share) == (1, 0)
        wrong = measure_alignment(lambda outputs, targets: -miss_rate(outputs, targets), metric, predictions)
        assert (wrong.spearman.value, wrong.spearman.high, wrong.kendall.value) == pytest.approx((-1, -1, -1))
        assert (wrong.sign, wrong.discordant_share) == (-1, 1)
    indifferent = measure_alignment(lambda outputs, targets: outputs.sum() * 0, ACCURACY, predictions)
    assert math.isnan(indifferent.spearman.value)
    assert math.isnan(indifferent.discordant_share)
    assert indifferent.sign == 0


def test_draws_sets_by_seed(predictions: Predictions) -> None:
    first, second, other = (
        measure_alignment(CE, ACCURACY, predictions, num_sets=70, set_size=20, seed=seed, num_bootstrap=20)
        for seed in (1, 1, 2)
    )
    assert first.num_sets == len(first.losses) == 70
    assert torch.equal(first.losses, second.losses)
    assert first.kendall == second.kendall
    assert not torch.equal(first.losses, other.losses)


def test_held_out_sets_alone(predictions: Predictions) -> None:
    is_held_out = torch.arange(150) % 3 == 0
    expected = measure_alignment(CE, ACCURACY, predictions[is_held_out])
    assert measure_alignment(CE, ACCURACY, replace(predictions, is_held_out=is_held_out)).kendall == expected.kendall
    none_marked = replace(predictions, is_held_out=torch.zeros(150, dtype=torch.bool))
    assert measure_alignment(CE, ACCURACY, none_marked).num_sets == 150


def test_sets_without_a_value_are_left_out(predictions: Predictions) -> None:
    metric = Metric(
        "sometimes",
        Kind.BINARY,
        lambda outputs, targets: accuracy_of(outputs, targets).masked_fill(targets[:, 0] == 1, torch.nan),
    )
    is_defined = predictions.targets[:, 0] == 0
    alignment = measure_alignment(CE, metric, predictions)
    assert alignment.num_sets == int(is_defined.sum())
    assert alignment.num_sets_left_out == 150 - alignment.num_sets
    assert alignment.spearman == measure_alignment(CE, ACCURACY, predictions[is_defined]).spearman


def test_losses_that_do_not_vectorise(predictions: Predictions) -> None:
    def stubborn(outputs: Tensor, targets: Tensor) -> Tensor:
        return CE(outputs, targets) + float(outputs.sum()) * 0

    with pytest.warns(UserWarning, match="stubborn is evaluated set by set"):
        losses = losses_of_sets(stubborn, predictions)
    torch.testing.assert_close(losses, losses_of_sets(CE, predictions))


def test_modules_leave_no_graph(predictions: Predictions) -> None:
    scale = torch.nn.Linear(1, 1)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return CE(scale(outputs[:, None])[:, 0], targets)

    assert not losses_of_sets(loss, predictions).requires_grad


def test_probabilities(predictions: Predictions) -> None:
    """Their order is that of the scores, so the metric is right; a loss of scores would be another one, unsaid."""
    as_probabilities = replace(predictions, outputs=predictions.outputs.sigmoid())

    def loss_of_probabilities(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy(outputs, targets.to(outputs.dtype))

    expected = measure_alignment(CE, METRICS["auc"], predictions)
    with pytest.warns(UserWarning, match=r"these are probabilities; .* auc takes them as they are; the loss is given"):
        alignment = measure_alignment(loss_of_probabilities, METRICS["auc"], as_probabilities)
    assert torch.equal(alignment.costs, expected.costs)
    assert alignment.losses.tolist() == pytest.approx(expected.losses.tolist(), rel=1e-4)
    with pytest.raises(ValueError, match=r"these are probabilities; raw scores \(logits\) work"):
        measure_alignment(loss_of_probabilities, METRICS["f1"], as_probabilities)
    with pytest.raises(ValueError, match="targets go from 0 to 2"):
        measure_alignment(CE, METRICS["auc"], replace(as_probabilities, targets=2 * predictions.targets))


@pytest.mark.parametrize(
    ("target", "message"),
    [(1, "binary predictions: every target is 1; targets of several classes"), (-100, "every target is -100")],
)
def test_targets_that_say_nothing(predictions: Predictions, target: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_alignment(CE, METRICS["f1"], replace(predictions, targets=torch.full_like(predictions.targets, target)))


def test_plain_errors(predictions: Predictions) -> None:
    cases = [
        (CE, predictions, {"num_sets": 5}, "num_sets and set_size belong together"),
        (CE, predictions, {"confidence": 95}, "confidence=95 and num_bootstrap=1000 came"),
        (CE, predictions, {"num_sets": 5, "set_size": 41}, "stored sets of 40 rows"),
        (CE, predictions[:1], {}, "defined on 1 of 1 sets; a rank correlation takes 3 or more: num_sets and set_size"),
        (lambda outputs, targets: outputs.sum() * torch.nan, predictions, {}, "NaN or infinite on 150 of 150 sets"),
        (CE, Predictions(torch.ones(9, 4), torch.tensor([0, 1, 0, 1]).expand(9, 4)), {}, "the same on all 9 sets"),
        (CE, Predictions(torch.ones(9, 5, 2), torch.ones(9, 5)), {}, "outputs have the shape"),
        (CE, Predictions(predictions.outputs.sigmoid(), predictions.targets), {}, "raw scores"),
    ]
    for loss, some, options, message in cases:
        with pytest.raises(ValueError, match=message):
            measure_alignment(loss, ACCURACY, some, **options)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_loss_that_reads_what_is_left_out(kind: Kind, generator: torch.Generator) -> None:
    outputs, targets = sample(kind, num_sets=8, set_size=9, generator=generator, ignored_share=0.3)
    metric = next(metric for metric in METRICS.values() if metric.kind is kind)

    def reads_all(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.pow(3).mean()

    def reads_targets(outputs: Tensor, targets: Tensor) -> Tensor:
        return targets.double().mean()

    with pytest.raises(ValueError, match="the loss changes with predictions whose target is -100"):
        measure_alignment(reads_all, metric, Predictions(outputs, targets), num_bootstrap=5)
    measure_alignment(reads_targets, metric, Predictions(outputs, targets), num_bootstrap=5)


def test_a_loss_that_draws_numbers_is_not_suspected(predictions: Predictions, generator: torch.Generator) -> None:
    targets = predictions.targets.masked_fill(predictions.outputs > 2, -100)

    def random(outputs: Tensor, targets: Tensor) -> float:
        return torch.rand((), generator=generator).item()

    with pytest.warns(UserWarning, match="set by set"):
        measure_alignment(random, ACCURACY, replace(predictions, targets=targets), num_bootstrap=5)


def test_arguments_of_another_type(predictions: Predictions) -> None:
    for loss, metric, some, message in (
        (CE, "auc", predictions, "the metric came as str; a Metric works"),
        ("ce", ACCURACY, predictions, "the loss came as 'ce'; a function"),
        (torch.nn.BCELoss, ACCURACY, predictions, "the loss came as BCELoss; .* an instance of a loss"),
        (CE, ACCURACY, (predictions.outputs, predictions.targets), r"came as tuple; Predictions\(outputs, targets\)"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_alignment(loss, metric, some)  # type: ignore[arg-type]


@pytest.fixture
def alignment(predictions: Predictions) -> Alignment:
    return measure_alignment(CE, ACCURACY, predictions, num_bootstrap=10)


def test_plot(alignment: Alignment, tmp_path: Path) -> None:
    plot_alignment({"ce": alignment, "again": alignment}, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    plot_alignment({"ce": alignment}, tmp_path / "out.svg")
    svg = (tmp_path / "out.svg").read_text(encoding="utf8")
    assert "<svg" in svg


def test_plot_errors(alignment: Alignment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no alignment"):
        plot_alignment({}, tmp_path / "out.png")
    for path in (tmp_path / "out.xyz", tmp_path / "nowhere" / "out.png"):
        with pytest.raises(ValueError, match="cannot be written"):
            plot_alignment({"ce": alignment}, path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install 'lossmith\[lab\]'"):
        plot_alignment({"ce": alignment}, tmp_path / "out.png")
