"""Against scikit-learn's curves; ties, one class, size 1, ignored, many predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sklearn
from torch import Tensor
from torchmetrics.functional import classification as torchmetrics

from lossmith.metrics import curves

Array = NDArray[np.float64]


def sklearn_auc(targets: Array, scores: Array) -> float:
    return sklearn.roc_auc_score(targets, scores) if len(set(targets)) == 2 else math.nan


def sklearn_ap(targets: Array, scores: Array) -> float:
    return sklearn.average_precision_score(targets, scores) if targets.any() else math.nan


def sklearn_partial_auc(targets: Array, scores: Array, share: float) -> float:
    return sklearn.roc_auc_score(targets, scores, max_fpr=share) if len(set(targets)) == 2 else math.nan


def sklearn_eer(targets: Array, scores: Array) -> float:
    if len(set(targets)) == 1:
        return math.nan
    fpr, tpr, _ = sklearn.roc_curve(targets, scores, drop_intermediate=False)
    closest = np.argmin(np.abs(fpr - (1 - tpr)).round(12))
    return float(fpr[closest] + 1 - tpr[closest]) / 2


def sklearn_precision_at_recall(targets: Array, scores: Array, share: float) -> float:
    if not targets.any():
        return math.nan
    precision, recall, _ = sklearn.precision_recall_curve(targets, scores)
    return max(precision[recall >= share])


def sklearn_recall_at_precision(targets: Array, scores: Array, share: float) -> float:
    if not targets.any():
        return math.nan
    precision, recall, _ = sklearn.precision_recall_curve(targets, scores)
    return max(recall[precision >= share])


Value = Callable[[Tensor, Tensor], Tensor]
PAIRS: dict[str, tuple[Value, Callable[[Array, Array], float]]] = {
    "auc": (curves.auc, sklearn_auc),
    "average_precision": (curves.average_precision, sklearn_ap),
    "equal_error_rate": (curves.equal_error_rate, sklearn_eer),
}
for share in (0.1, 0.5, 0.9, 1.0):
    PAIRS |= {
        f"precision_at_recall {share}": (
            partial(curves.precision_at_recall, recall=share),
            partial(sklearn_precision_at_recall, share=share),
        ),
        f"recall_at_precision {share}": (
            partial(curves.recall_at_precision, precision=share),
            partial(sklearn_recall_at_precision, share=share),
        ),
        f"partial_auc {share}": (
            partial(curves.partial_auc, max_false_positive_rate=share),
            partial(sklearn_partial_auc, share=share),
        ),
    }
each_pair = pytest.mark.parametrize(("value", "oracle"), PAIRS.values(), ids=list(PAIRS))


def check(value: Value, oracle: Callable[[Array, Array], float], outputs: Tensor, targets: Tensor) -> None:
    """A stack against the oracle one set at a time, without what is left out."""
    expected = []
    for scores, truth in zip(outputs, targets):
        is_kept = truth != -100
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of one class
            expected.append(oracle(truth[is_kept].double().numpy(), scores[is_kept].double().numpy()))
    values = value(outputs, targets)
    torch.testing.assert_close(values.double(), torch.tensor(expected).double(), rtol=0, atol=1e-6, equal_nan=True)


@each_pair
@pytest.mark.parametrize("num_levels", [2, 7, 10_000], ids="{} levels".format)
@pytest.mark.parametrize("positive_share", [0.02, 0.5, 0.97])
def test_equals_scikit_learn(
    value: Value,
    oracle: Callable[[Array, Array], float],
    num_levels: int,
    positive_share: float,
    generator: torch.Generator,
) -> None:
    targets = (torch.rand(12, 60, generator=generator) < positive_share).long()
    outputs = torch.randint(num_levels, (12, 60), generator=generator) / num_levels + 0.2 * targets
    targets[torch.rand(12, 60, generator=generator) < 0.15] = -100
    targets[:, 0] = 0
    check(value, oracle, outputs, targets)


@each_pair
@given(
    rows=st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 0, 1, 1, -100])), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=25)
def test_small_sets_in_any_order(
    value: Value, oracle: Callable[[Array, Array], float], rows: list[tuple[int, int]], order: np.random.Generator
) -> None:
    rows = [*rows, (0, 0)]
    shuffled = list(rows)
    order.shuffle(shuffled)
    outputs, targets = torch.tensor([rows, shuffled]).unbind(-1)
    check(value, oracle, outputs.float(), targets)


@each_pair
def test_many_predictions(value: Value, oracle: Callable[[Array, Array], float], generator: torch.Generator) -> None:
    targets = (torch.rand(1, 100_000, generator=generator) < 0.01).long()
    outputs = torch.randn(1, 100_000, generator=generator) + targets
    check(value, oracle, outputs, targets)


@each_pair
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(
    value: Value, oracle: Callable[[Array, Array], float], dtype: torch.dtype, generator: torch.Generator
) -> None:
    targets = torch.randint(2, (3, 200), generator=generator)
    outputs = (torch.randn(3, 200, generator=generator) + targets).to(dtype)
    check(value, oracle, outputs, targets)
    if dtype == torch.float64:
        assert value(outputs, targets).dtype == dtype


def test_the_equal_error_rate_of_torchmetrics(generator: torch.Generator) -> None:
    targets = torch.randint(2, (20, 101), generator=generator)
    outputs = torch.rand(20, 101, generator=generator)
    expected = torch.stack([torchmetrics.binary_eer(scores, truth) for scores, truth in zip(outputs, targets)])
    torch.testing.assert_close(curves.equal_error_rate(outputs, targets), expected, rtol=0, atol=1e-6)


def test_of_two_equally_close_rates_the_higher_threshold() -> None:
    # from the top: rates (0, 1/4) with three positives let in, then (1/2, 1/4) with a negative
    outputs, targets = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 1, 1, 0, 1, 0])
    assert curves.equal_error_rate(outputs, targets).item() == (0 + 1 / 4) / 2


@each_pair
def test_only_the_order_counts(
    value: Value, oracle: Callable[[Array, Array], float], generator: torch.Generator
) -> None:
    outputs, targets = torch.randn(4, 50, generator=generator), torch.randint(2, (4, 50), generator=generator)
    expected = value(outputs, targets)
    torch.testing.assert_close(value(outputs.exp(), targets), expected, rtol=0, atol=0)
    torch.testing.assert_close(value(1e4 * outputs - 3, targets), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "equal_error_rate"])
@given(
    rows=st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=2, max_size=8), raised=st.integers(0, 7)
)
@settings(deadline=None, max_examples=25)
def test_a_higher_score_for_a_positive_is_never_worse(name: str, rows: list[tuple[int, int]], raised: int) -> None:
    value, _ = PAIRS[name]
    rows = [*rows, (0, 0), (0, 1)]
    outputs, targets = torch.tensor(rows).unbind(-1)
    targets[raised % len(rows)] = 1
    better = outputs.clone()
    better[raised % len(rows)] = 4  # above all: joining negatives at their score may cost precision
    before, after = value(torch.stack([outputs, better]).float(), targets.expand(2, -1))
    assert after.isnan() if before.isnan() else after >= before - 1e-6


def test_the_same_under_vmap_and_in_either_precision(generator: torch.Generator) -> None:
    """numpy sorts where it can see the numbers, torch where not."""
    scores = torch.randn(6, 40, generator=generator).round(decimals=1)  # with ties
    targets = torch.randint(2, (6, 40), generator=generator)
    expected = curves.auc(scores, targets)
    assert torch.equal(torch.vmap(curves.auc)(scores, targets), expected)
    assert torch.equal(curves.auc(scores.double(), targets).float(), expected)
    assert torch.equal(curves.auc(scores.mT.contiguous().mT, targets), expected)
    nothing_learned = curves.auc(scores.clone().requires_grad_(), targets)
    assert torch.equal(nothing_learned, expected)
    assert not nothing_learned.requires_grad
