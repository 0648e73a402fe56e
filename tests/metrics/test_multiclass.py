"""Against scikit-learn and torchmetrics; ties, absent classes, size 1, ignored, many predictions."""

from __future__ import annotations

import math
import pickle
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

from lossmith.metrics import multiclass
from lossmith.metrics.multiclass import OfClassCounts
from lossmith.vocabulary import Metric

Array = NDArray[np.float64]


def of_labels(function: Callable[..., float], **options: object) -> Callable[[Array, Array], float]:
    return lambda targets, scores: function(targets, scores.argmax(-1), **options)


def kappa(targets: Array, scores: Array) -> float:
    return sklearn.cohen_kappa_score(targets, scores.argmax(-1), labels=range(scores.shape[-1]))


def top_k(targets: Array, scores: Array, k: int) -> float:
    """scikit-learn's prefers the last of equal classes."""
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    return float(np.mean([truth in row for truth, row in zip(targets, best)]))


def one_vs_rest(function: Callable[[Array, Array], float], targets: Array, scores: Array) -> float:
    probabilities = torch.from_numpy(scores).float().softmax(-1).numpy()
    values = [function(targets == c, probabilities[:, c]) for c in np.unique(targets) if (targets != c).any()]
    return float(np.mean(values)) if values else math.nan


def ap_of_classes(targets: Array, scores: Array) -> float:
    if len(set(targets)) == 1:
        return 1.0
    return one_vs_rest(sklearn.average_precision_score, targets, scores)


PAIRS: dict[str, tuple[Metric, Callable[[Array, Array], float]]] = {
    "accuracy": (multiclass.accuracy(), of_labels(sklearn.accuracy_score)),
    "top1_accuracy": (multiclass.top_k_accuracy(k=1), partial(top_k, k=1)),
    "top5_accuracy": (multiclass.TABLE["top5_accuracy"], partial(top_k, k=5)),
    "top3_accuracy": (multiclass.top_k_accuracy(k=3), partial(top_k, k=3)),
    "f1_macro": (multiclass.f1_macro(), of_labels(sklearn.f1_score, average="macro")),
    "f1_micro": (multiclass.f1_micro(), of_labels(sklearn.f1_score, average="micro")),
    "f1_weighted": (multiclass.f1_weighted(), of_labels(sklearn.f1_score, average="weighted")),
    "f2_macro": (multiclass.multiclass_fbeta(), of_labels(sklearn.fbeta_score, beta=2, average="macro")),
    "multiclass_mcc": (multiclass.multiclass_mcc(), of_labels(sklearn.matthews_corrcoef)),
    "multiclass_kappa": (multiclass.multiclass_kappa(), kappa),
    "multiclass_balanced_accuracy": (
        multiclass.multiclass_balanced_accuracy(),
        of_labels(sklearn.balanced_accuracy_score),
    ),
    "auc_ovr": (multiclass.auc_ovr(), partial(one_vs_rest, sklearn.roc_auc_score)),
    "ap_ovr": (multiclass.ap_ovr(), ap_of_classes),
}
each_pair = pytest.mark.parametrize(("metric", "oracle"), PAIRS.values(), ids=list(PAIRS))


def check(metric: Metric, oracle: Callable[[Array, Array], float], outputs: Tensor, targets: Tensor) -> None:
    expected = []
    for scores, truth in zip(outputs, targets):
        is_kept = truth != -100
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of absent classes
            expected.append(oracle(truth[is_kept].numpy(), scores[is_kept].double().numpy()))
    values = metric.value(outputs, targets)
    torch.testing.assert_close(values.double(), torch.tensor(expected).double(), rtol=0, atol=1e-6, equal_nan=True)


@each_pair
@pytest.mark.parametrize("num_classes", [2, 5, 30])
@pytest.mark.parametrize("has_ties", [False, True])
def test_equals_the_oracle(
    metric: Metric,
    oracle: Callable[[Array, Array], float],
    num_classes: int,
    has_ties: bool,
    generator: torch.Generator,
) -> None:
    """30 classes in 40 predictions: some are absent from the targets, some also from the predictions."""
    targets = torch.randint(num_classes, (8, 40), generator=generator)
    outputs = 2 * torch.randn(8, 40, num_classes, generator=generator)
    outputs += 2 * torch.nn.functional.one_hot(targets, num_classes)
    targets[torch.rand(8, 40, generator=generator) < 0.15] = -100
    targets[:, 0] = 0
    check(metric, oracle, outputs.round() if has_ties else outputs, targets)


@each_pair
@given(
    rows=st.lists(
        st.tuples(st.integers(-1, 1), st.integers(-1, 1), st.integers(-1, 1), st.sampled_from([0, 1, 2, -100])),
        max_size=5,
    )
)
@settings(deadline=None, max_examples=25)
def test_small_sets(
    metric: Metric, oracle: Callable[[Array, Array], float], rows: list[tuple[int, int, int, int]]
) -> None:
    table = torch.tensor([*rows, (1, 0, 0, 0)])[None]
    check(metric, oracle, table[..., :3].float(), table[..., 3])


@each_pair
def test_many_predictions(metric: Metric, oracle: Callable[[Array, Array], float], generator: torch.Generator) -> None:
    """One class has nearly all targets: 1 - chance agreement cancels in float32."""
    targets = (torch.rand(1, 100_000, generator=generator) ** 8 * 4).long()
    outputs = torch.randn(1, 100_000, 4, generator=generator) + 4 * torch.nn.functional.one_hot(targets, 4)
    check(metric, oracle, outputs, targets)


@each_pair
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(
    metric: Metric, oracle: Callable[[Array, Array], float], dtype: torch.dtype, generator: torch.Generator
) -> None:
    targets = torch.randint(4, (3, 50), generator=generator)
    outputs = torch.randn(3, 50, 4, generator=generator).bfloat16().to(dtype)
    check(metric, oracle, outputs, targets)


@pytest.mark.parametrize(
    ("metric", "peer"),
    [
        (multiclass.accuracy(), partial(torchmetrics.multiclass_accuracy, average="micro")),
        (multiclass.f1_macro(), partial(torchmetrics.multiclass_f1_score, average="macro")),
        (multiclass.f1_micro(), partial(torchmetrics.multiclass_f1_score, average="micro")),
        (multiclass.f1_weighted(), partial(torchmetrics.multiclass_f1_score, average="weighted")),
        (multiclass.multiclass_mcc(), torchmetrics.multiclass_matthews_corrcoef),
        (multiclass.multiclass_kappa(), torchmetrics.multiclass_cohen_kappa),
        (multiclass.auc_ovr(), torchmetrics.multiclass_auroc),
        (multiclass.ap_ovr(), torchmetrics.multiclass_average_precision),
        (multiclass.top_k_accuracy(k=3), partial(torchmetrics.multiclass_accuracy, average="micro", top_k=3)),
    ],
    ids=lambda each: each.name if isinstance(each, Metric) else "",
)
def test_equals_torchmetrics(metric: Metric, peer: Callable[..., Tensor], generator: torch.Generator) -> None:
    targets = torch.randint(5, (10, 64), generator=generator)
    outputs = torch.randn(10, 64, 5, generator=generator)
    targets[torch.rand(10, 64, generator=generator) < 0.1] = -100
    expected = torch.stack([peer(*one, num_classes=5, ignore_index=-100) for one in zip(outputs, targets)])
    torch.testing.assert_close(metric.value(outputs, targets), expected, rtol=0, atol=1e-6)


def test_an_absent_class_is_left_out_of_one_vs_rest(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(1, 30, 4, generator=generator), torch.randint(3, (1, 30), generator=generator)
    with pytest.warns(UserWarning, match="Ignoring these classes"):
        expected = torchmetrics.multiclass_average_precision(outputs[0], targets[0], num_classes=4)
    torch.testing.assert_close(multiclass.ap_ovr().value(outputs, targets)[0], expected, rtol=0, atol=1e-6)
    only_class = torch.zeros(1, 30, dtype=torch.long)
    assert multiclass.auc_ovr().value(outputs, only_class).isnan()
    assert multiclass.ap_ovr().value(outputs, only_class).item() == 1


def test_of_equal_scores_the_first_class_wins() -> None:
    outputs = torch.zeros(4, 4)
    targets = torch.arange(4)
    assert multiclass.accuracy()(outputs, targets).item() == 1 / 4
    assert [multiclass.top_k_accuracy(k=k)(outputs, targets).item() for k in (1, 2, 3, 4, 9)] == [0.25, 0.5, 0.75, 1, 1]


def test_two_classes_are_the_binary_metrics(generator: torch.Generator) -> None:
    from lossmith.metrics import binary

    scores, targets = torch.randn(5, 30, generator=generator), torch.randint(2, (5, 30), generator=generator)
    outputs = torch.stack([torch.zeros_like(scores), scores], dim=-1)
    for ours, same in (
        (multiclass.accuracy(), binary.binary_accuracy()),
        (multiclass.multiclass_mcc(), binary.mcc()),
        (multiclass.multiclass_kappa(), binary.kappa()),
        (multiclass.multiclass_balanced_accuracy(), binary.balanced_accuracy()),
        (multiclass.auc_ovr(), binary.auc()),
    ):
        torch.testing.assert_close(ours.value(outputs, targets), same.value(scores, targets))


@pytest.mark.parametrize("metric", multiclass.TABLE.values(), ids=list(multiclass.TABLE))
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=20)
def test_nothing_is_better_than_perfect(metric: Metric, rows: list[tuple[int, int]]) -> None:
    predicted, targets = torch.tensor([*rows, (0, 0), (0, 1)]).unbind(-1)
    given_outputs, perfect_outputs = (torch.nn.functional.one_hot(each, 3).float() for each in (predicted, targets))
    given_value, perfect = metric.value(torch.stack([given_outputs, perfect_outputs]), targets.expand(2, -1))
    assert given_value <= perfect + 1e-6
    assert perfect.item() == pytest.approx(1)


@pytest.mark.parametrize("metric", multiclass.TABLE.values(), ids=list(multiclass.TABLE))
def test_metrics_travel_between_processes(metric: Metric) -> None:
    outputs, targets = torch.randn(2, 30, 6), torch.randint(6, (2, 30))
    copy = pickle.loads(pickle.dumps(metric))
    torch.testing.assert_close(copy.value(outputs, targets), metric.value(outputs, targets))


def test_the_formula_takes_soft_counts() -> None:
    """Every formula over classes has finite gradients, also where nothing is ever predicted."""
    for metric in multiclass.TABLE.values():
        if isinstance(metric.value, OfClassCounts):
            soft = torch.tensor([[2.0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 3, 5]], requires_grad=True)
            metric.value.formula(multiclass.Counts(*soft)).backward()
            assert soft.grad is not None
            assert soft.grad.isfinite().all()


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="average='samples' is unknown; 'macro', 'micro', 'weighted' work"):
        multiclass.multiclass_fbeta(average="samples")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k=0"):
        multiclass.top_k_accuracy(k=0)
