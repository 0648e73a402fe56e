"""Against scikit-learn and torchmetrics; the curves have a test of their own."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sklearn
from torch import Tensor
from torchmetrics.functional import classification as torchmetrics

from lossmith.metrics import binary, curves
from lossmith.metrics.counts import OfCounts
from lossmith.vocabulary import Metric

Maker = Callable[..., Metric]
Oracle = Callable[[NDArray[np.int64], NDArray[np.bool_]], float]
BOTH = [0, 1]  # scikit-learn's kappa of one class is the correlation of a 1x1 table otherwise

THRESHOLDED: dict[str, tuple[Maker, Oracle]] = {
    "binary_accuracy": (binary.binary_accuracy, sklearn.accuracy_score),
    "binary_error": (binary.binary_error, sklearn.zero_one_loss),
    "f1": (binary.f1, partial(sklearn.f1_score, zero_division=0)),
    "fbeta": (binary.fbeta, partial(sklearn.fbeta_score, beta=2, zero_division=0)),
    "fbeta .5": (partial(binary.fbeta, beta=0.5), partial(sklearn.fbeta_score, beta=0.5, zero_division=0)),
    "mcc": (binary.mcc, sklearn.matthews_corrcoef),
    "jaccard": (binary.jaccard, partial(sklearn.jaccard_score, zero_division=0)),
    "balanced_accuracy": (binary.balanced_accuracy, sklearn.balanced_accuracy_score),
    "kappa": (binary.kappa, partial(sklearn.cohen_kappa_score, labels=BOTH)),
}
each_thresholded = pytest.mark.parametrize(("maker", "oracle"), THRESHOLDED.values(), ids=list(THRESHOLDED))


def check(maker: Maker, oracle: Oracle, outputs: Tensor, targets: Tensor, threshold: float) -> None:
    expected = []
    for scores, truth in zip(outputs, targets):
        is_kept = truth != -100
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of one class
            expected.append(oracle(truth[is_kept].numpy(), (scores[is_kept] > threshold).long().numpy()))
    values = maker(threshold=threshold).value(outputs, targets)
    torch.testing.assert_close(values.double(), torch.tensor(expected).double(), rtol=0, atol=1e-6, equal_nan=True)


@each_thresholded
@pytest.mark.parametrize("threshold", [0.0, 0.5])
@pytest.mark.parametrize("positive_share", [0.02, 0.5, 0.97])
def test_equals_scikit_learn(
    maker: Maker, oracle: Oracle, threshold: float, positive_share: float, generator: torch.Generator
) -> None:
    targets = (torch.rand(12, 60, generator=generator) < positive_share).long()
    outputs = (4 * torch.randn(12, 60, generator=generator)).round() / 2 + targets
    targets[torch.rand(12, 60, generator=generator) < 0.15] = -100
    targets[:, 0] = 1
    check(maker, oracle, outputs, targets, threshold)


@each_thresholded
def test_every_set_of_up_to_three_decisions(maker: Maker, oracle: Oracle) -> None:
    """One class, no positives, nothing predicted, size 1: all of them."""
    for size in (1, 2, 3):
        scores, truth = zip(*product(product([-1.0, 1.0], repeat=size), product([0, 1], repeat=size)))
        check(maker, oracle, torch.tensor(scores), torch.tensor(truth), 0.0)


@each_thresholded
@pytest.mark.parametrize("positive_share", [0.5, 0.001])
def test_many_predictions(maker: Maker, oracle: Oracle, positive_share: float, generator: torch.Generator) -> None:
    targets = (torch.rand(1, 100_000, generator=generator) < positive_share).long()
    outputs = torch.randn(1, 100_000, generator=generator) + 5 * targets - 3
    check(maker, oracle, outputs, targets, 0.0)


@pytest.mark.parametrize(
    ("metric", "peer"),
    [
        (binary.binary_accuracy(threshold=0.5), torchmetrics.binary_accuracy),
        (binary.f1(threshold=0.5), torchmetrics.binary_f1_score),
        (binary.fbeta(threshold=0.5), partial(torchmetrics.binary_fbeta_score, beta=2.0)),
        (binary.mcc(threshold=0.5), torchmetrics.binary_matthews_corrcoef),
        (binary.jaccard(threshold=0.5), torchmetrics.binary_jaccard_index),
        (binary.kappa(threshold=0.5), torchmetrics.binary_cohen_kappa),
        (binary.auc(), torchmetrics.binary_auroc),
        (binary.ap(), torchmetrics.binary_average_precision),
        (binary.eer(), torchmetrics.binary_eer),
        (binary.partial_auc(), partial(torchmetrics.binary_auroc, max_fpr=0.1)),
        (binary.precision_at_recall(), lambda *both, **rest: at_share("precision", *both, **rest)),
        (binary.recall_at_precision(), lambda *both, **rest: at_share("recall", *both, **rest)),
    ],
    ids=lambda each: each.name if isinstance(each, Metric) else "",
)
def test_equals_torchmetrics(metric: Metric, peer: Callable[..., Tensor], generator: torch.Generator) -> None:
    targets = torch.randint(2, (10, 64), generator=generator)
    # between 0 and 1 the peer takes no sigmoid, which makes and breaks ties by rounding
    outputs = torch.randint(50, (10, 64), generator=generator) / 64 + 0.2 * targets
    targets[torch.rand(10, 64, generator=generator) < 0.1] = -100
    expected = torch.stack([peer(scores, truth, ignore_index=-100) for scores, truth in zip(outputs, targets)])
    torch.testing.assert_close(metric.value(outputs, targets), expected, rtol=0, atol=1e-6)


def at_share(what: str, outputs: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    if what == "recall":
        return torchmetrics.binary_recall_at_fixed_precision(outputs, targets, 0.9, ignore_index=ignore_index)[0]
    return torchmetrics.binary_precision_at_fixed_recall(outputs, targets, 0.9, ignore_index=ignore_index)[0]


def test_sets_without_a_value() -> None:
    outputs = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-1.0, -2.0]])
    targets = torch.tensor([[1, 1], [0, 0], [0, 0]])
    defined = {name: (~metric.value(outputs, targets).isnan()).tolist() for name, metric in binary.TABLE.items()}
    for name in ("auc", "eer", "partial_auc"):
        assert defined[name] == [False, False, False], "pairs need both classes"
    for name in ("ap", "precision_at_recall", "recall_at_precision"):
        assert defined[name] == [True, False, False], "without positives there is no recall"
    assert defined["kappa"] == [False, True, False], "chance agrees fully where there is one class only"
    for name in ("binary_accuracy", "binary_error", "f1", "fbeta", "mcc", "jaccard", "balanced_accuracy"):
        assert all(defined[name])


@pytest.mark.parametrize("metric", binary.TABLE.values(), ids=list(binary.TABLE))
@given(rows=st.lists(st.tuples(st.floats(-3, 3, width=32), st.integers(0, 1)), min_size=1, max_size=9))
@settings(deadline=None, max_examples=25)
def test_nothing_is_better_than_perfect(metric: Metric, rows: list[tuple[float, int]]) -> None:
    rows = [*rows, (0.5, 0), (-0.5, 1)]
    outputs, targets = torch.tensor([score for score, _ in rows]), torch.tensor([truth for _, truth in rows])
    given_cost, perfect, inverted = metric.cost(
        torch.stack([outputs, 2.0 * targets - 1, 1 - 2.0 * targets]), targets.expand(3, -1)
    )
    assert perfect <= given_cost + 1e-6
    assert given_cost <= inverted + 1e-6 or metric.name in ("ap", "precision_at_recall")
    assert perfect.item() == pytest.approx(-1 if metric.higher_is_better else 0)


@given(
    rows=st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 1)), min_size=1, max_size=8), raised=st.integers(0, 7)
)
@settings(deadline=None, max_examples=60)
def test_a_higher_score_for_a_positive_is_never_worse(rows: list[tuple[int, int]], raised: int) -> None:
    outputs, targets = torch.tensor(rows).unbind(-1)
    targets[raised % len(rows)] = 1
    better = outputs.clone()
    better[raised % len(rows)] += 3
    for maker, _ in THRESHOLDED.values():
        before, after = maker().cost(torch.stack([outputs, better]).float(), targets.expand(2, -1))
        assert before.isnan() or after.isnan() or after <= before + 1e-6


def test_the_formula_is_at_hand() -> None:
    value = binary.f1(threshold=0.3).value
    assert isinstance(value, OfCounts)
    assert value.threshold == 0.3
    assert value == binary.f1(threshold=0.3).value


def test_probabilities_are_welcome_where_they_make_sense() -> None:
    probabilities, targets = torch.linspace(0, 1, 40), torch.arange(40) > 20
    assert binary.auc()(probabilities, targets).item() == 1
    assert binary.f1(threshold=0.5)(probabilities, targets.long()).item() > 0.9
    with pytest.raises(ValueError, match="these are probabilities"):
        binary.f1()(probabilities, targets.long())


@pytest.mark.parametrize("metric", binary.TABLE.values(), ids=list(binary.TABLE))
def test_metrics_travel_between_processes(metric: Metric) -> None:
    outputs, targets = torch.randn(2, 30), torch.randint(2, (2, 30))
    copy = pickle.loads(pickle.dumps(metric))
    torch.testing.assert_close(copy.value(outputs, targets), metric.value(outputs, targets), equal_nan=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: binary.precision_at_recall(recall=90),
        lambda: binary.recall_at_precision(precision=0),
        lambda: binary.partial_auc(max_false_positive_rate=math.nan),
    ],
)
def test_a_share_is_a_share(make: Callable[[], Metric]) -> None:
    with pytest.raises(ValueError, match="a share above 0 and up to 1 works"):
        make()


@pytest.mark.parametrize("beta", [-1, math.nan, math.inf])
def test_a_weight_is_not_negative(beta: float) -> None:
    with pytest.raises(ValueError, match=f"beta={beta}; 0"):
        binary.fbeta(beta=beta)


def test_a_threshold_is_a_number() -> None:
    with pytest.raises(ValueError, match="threshold=nan"):
        binary.f1(threshold=math.nan)


def test_values_need_no_gradient_and_give_none() -> None:
    outputs = torch.randn(2, 30, requires_grad=True)
    for metric in binary.TABLE.values():
        assert not metric.value(outputs, torch.randint(2, (2, 30))).requires_grad
    assert curves.sweep(outputs, torch.ones(2, 30)).scores.grad_fn is None
