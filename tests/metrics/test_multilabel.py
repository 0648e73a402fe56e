"""Against scikit-learn and torchmetrics; ties, labels without positives, size 1, ignored."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn import metrics as sklearn
from torch import Tensor
from torchmetrics.functional import classification as torchmetrics

from lossmith.metrics import multilabel
from lossmith.metrics.counts import Counts
from lossmith.metrics.multilabel import OfLabelCounts
from lossmith.vocabulary import Metric

Array = NDArray[np.float64]
Oracle = Callable[[Array, Array], float]


def of_labels(function: Callable[..., float], **options: object) -> Oracle:
    return lambda targets, scores: function(targets, scores > 0, **options)


def over_labels(function: Oracle, num_values: int, targets: Array, scores: Array) -> float:
    """Of the labels with positives, and with negatives where the function needs them."""
    columns = [c for c in range(targets.shape[1]) if targets[:, c].any() and len(set(targets[:, c])) >= num_values]
    return float(np.mean([function(targets[:, c], scores[:, c]) for c in columns])) if columns else math.nan


PAIRS: dict[str, tuple[Metric, Oracle]] = {
    "multilabel_hamming": (multilabel.multilabel_hamming(), of_labels(sklearn.hamming_loss)),
    "multilabel_map": (multilabel.multilabel_map(), partial(over_labels, sklearn.average_precision_score, 1)),
    "multilabel_auc": (multilabel.multilabel_auc(), partial(over_labels, sklearn.roc_auc_score, 2)),
}
for average in ("macro", "micro", "weighted", "samples"):
    PAIRS |= {
        f"f1 {average}": (
            multilabel.multilabel_f1(average=average),
            of_labels(sklearn.f1_score, average=average, zero_division=0),
        ),
        f"fbeta {average}": (
            multilabel.multilabel_fbeta(beta=0.5, average=average),
            of_labels(sklearn.fbeta_score, beta=0.5, average=average, zero_division=0),
        ),
        f"jaccard {average}": (
            multilabel.multilabel_jaccard(average=average),
            of_labels(sklearn.jaccard_score, average=average, zero_division=0),
        ),
    }
each_pair = pytest.mark.parametrize(("metric", "oracle"), PAIRS.values(), ids=list(PAIRS))


def check(metric: Metric, oracle: Oracle, outputs: Tensor, targets: Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of labels without positives
        expected = [oracle(truth.numpy(), scores.double().numpy()) for scores, truth in zip(outputs, targets)]
    values = metric.value(outputs, targets)
    torch.testing.assert_close(values.double(), torch.tensor(expected).double(), rtol=0, atol=1e-6, equal_nan=True)


@each_pair
@pytest.mark.parametrize("positive_share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("set_size", [1, 2, 30])
def test_equals_scikit_learn(
    metric: Metric, oracle: Oracle, positive_share: float, set_size: int, generator: torch.Generator
) -> None:
    targets = (torch.rand(10, set_size, 6, generator=generator) < positive_share).long()
    outputs = (2 * torch.randn(10, set_size, 6, generator=generator)).round() + targets - 0.5
    check(metric, oracle, outputs, targets)


@each_pair
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_many_predictions_and_other_precisions(
    metric: Metric, oracle: Oracle, dtype: torch.dtype, generator: torch.Generator
) -> None:
    targets = (torch.rand(1, 20_000, 3, generator=generator) < 0.02).long()
    outputs = (torch.randn(1, 20_000, 3, generator=generator) + 4 * targets - 2).to(dtype)
    check(metric, oracle, outputs, targets)


@pytest.mark.parametrize(
    ("metric", "peer"),
    [
        (multilabel.multilabel_f1(threshold=0.5), torchmetrics.multilabel_f1_score),
        (
            multilabel.multilabel_f1(average="micro", threshold=0.5),
            partial(torchmetrics.multilabel_f1_score, average="micro"),
        ),
        (
            multilabel.multilabel_f1(average="weighted", threshold=0.5),
            partial(torchmetrics.multilabel_f1_score, average="weighted"),
        ),
        (multilabel.multilabel_jaccard(threshold=0.5), torchmetrics.multilabel_jaccard_index),
        (
            multilabel.multilabel_hamming(threshold=0.5),
            partial(torchmetrics.multilabel_hamming_distance, average="micro"),
        ),
        (multilabel.multilabel_map(), torchmetrics.multilabel_average_precision),
        (multilabel.multilabel_auc(), torchmetrics.multilabel_auroc),
    ],
    ids=lambda each: each.name if isinstance(each, Metric) else "",
)
def test_equals_torchmetrics_also_where_single_targets_are_left_out(
    metric: Metric, peer: Callable[..., Tensor], generator: torch.Generator
) -> None:
    targets = torch.randint(2, (6, 50, 4), generator=generator)
    # between 0 and 1 the peer takes no sigmoid, which makes and breaks ties by rounding
    outputs = torch.randint(50, (6, 50, 4), generator=generator) / 64 + 0.2 * targets
    targets[torch.rand(6, 50, 4, generator=generator) < 0.2] = -100
    expected = torch.stack([peer(*one, num_labels=4, ignore_index=-100) for one in zip(outputs, targets)])
    torch.testing.assert_close(metric.value(outputs, targets), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("metric", [metric for metric, _ in PAIRS.values()], ids=list(PAIRS))
def test_a_label_that_is_left_out_is_not_there(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = torch.randn(3, 20, 4, generator=generator), torch.randint(2, (3, 20, 4), generator=generator)
    expected = metric.value(outputs[..., 1:], targets[..., 1:])
    targets[..., 0] = -100
    torch.testing.assert_close(metric.value(outputs, targets), expected)


@pytest.mark.parametrize("metric", multilabel.TABLE.values(), ids=list(multilabel.TABLE))
def test_nothing_is_better_than_perfect(metric: Metric, generator: torch.Generator) -> None:
    targets = torch.randint(2, (20, 9, 3), generator=generator)
    targets[:, :2] = torch.tensor([[0], [1]])
    outputs = torch.randn(20, 9, 3, generator=generator)
    perfect = metric.cost(2.0 * targets - 1, targets)
    assert (perfect <= metric.cost(outputs, targets) + 1e-6).all()
    torch.testing.assert_close(perfect, torch.full_like(perfect, -1.0 if metric.higher_is_better else 0.0))


def test_the_formula_takes_soft_counts() -> None:
    for metric in multilabel.TABLE.values():
        if isinstance(metric.value, OfLabelCounts):
            soft = torch.tensor([[2.0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 3, 5]], requires_grad=True)
            metric.value.formula(Counts(*soft)).backward()
            assert soft.grad is not None
            assert soft.grad.isfinite().all()


@pytest.mark.parametrize("metric", multilabel.TABLE.values(), ids=list(multilabel.TABLE))
def test_metrics_travel_between_processes(metric: Metric) -> None:
    outputs, targets = torch.randn(2, 30, 3), torch.randint(2, (2, 30, 3))
    copy = pickle.loads(pickle.dumps(metric))
    torch.testing.assert_close(copy.value(outputs, targets), metric.value(outputs, targets))


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="average='none' is unknown; 'macro', 'micro', 'weighted', 'samples' work"):
        multilabel.multilabel_f1(average="none")  # type: ignore[arg-type]
