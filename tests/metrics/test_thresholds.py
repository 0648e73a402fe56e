from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc, binary_f1_score

from lossmith import metrics
from lossmith.metrics.counts import OfCounts
from lossmith.metrics.thresholds import tune_threshold
from lossmith.metrics.wrap import wrap
from lossmith.vocabulary import Kind, Metric

MAKERS = {
    "binary_accuracy": metrics.binary_accuracy,
    "binary_error": metrics.binary_error,
    "f1": metrics.f1,
    "fbeta": metrics.fbeta,
    "mcc": metrics.mcc,
    "jaccard": metrics.jaccard,
    "balanced_accuracy": metrics.balanced_accuracy,
    "kappa": metrics.kappa,
}


def f1_in_a_row(outputs: Tensor, targets: Tensor) -> Tensor:
    """F1 written by a user, without counts."""
    hits = ((outputs > 0) & (targets == 1)).sum()
    return 2 * hits / ((outputs > 0).sum() + (targets == 1).sum()).clamp(min=1)


@pytest.mark.parametrize("name", list(MAKERS))
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-3.0, -1.0, -0.5, 0.0, 2.0, 2.25, 7.0]), st.sampled_from([0, 1, 1, -100])),
        max_size=12,
    )
)
@settings(deadline=None, max_examples=25)
def test_no_threshold_is_better(name: str, rows: list[tuple[float, int]]) -> None:
    maker = MAKERS[name]
    scores, truth = zip(*rows, (0.0, 0), (1.0, 1))
    outputs, targets = torch.tensor(scores), torch.tensor(truth)
    tuned = maker(threshold=tune_threshold(maker(), outputs, targets))
    candidates = torch.linspace(-8, 8, 129).tolist()  # every gap, and both ends
    costs = torch.stack([maker(threshold=t).cost(outputs[None], targets[None])[0] for t in candidates])
    assert tuned.cost(outputs[None], targets[None])[0] <= costs.nan_to_num(nan=math.inf).min() + 1e-6


def test_the_widest_of_equally_good_gaps() -> None:
    # F1 is 2/3 in two gaps: one of two positives found and nothing wrong, or both found and two wrong
    outputs, targets = torch.tensor([6.0, 5.0, 4.0, 1.0, 0.9]), torch.tensor([1, 0, 0, 1, 0])
    assert tune_threshold(metrics.f1(), outputs, targets) == 5.5
    assert tune_threshold(metrics.f1(), torch.tensor([6.0, 5.9, 5.8, 1.0, -3.0]), targets) == -1.0


def test_an_end_is_taken_where_no_gap_is_as_good() -> None:
    outputs = torch.tensor([3.0, 4.0])
    assert tune_threshold(metrics.binary_accuracy(), outputs, torch.tensor([1, 1])) == (3 - 3 + 3) / 2
    assert tune_threshold(metrics.binary_accuracy(), outputs, torch.tensor([0, 0])) == (4 + 4 + 4) / 2
    # 2 of 3 are right below all scores, and also in the narrower gap between the upper two
    assert tune_threshold(metrics.binary_accuracy(), torch.tensor([1.0, 1.5, 2.0]), torch.tensor([1, 0, 1])) == 1.75


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("score", [1.0, -1.0, 3e4, 0.0])
def test_neighbouring_numbers_are_told_apart(dtype: torch.dtype, score: float) -> None:
    """Their middle is rounded to one of them; a far score is there to offer a wider gap."""
    low, far = torch.tensor([score, 6e4], dtype=dtype)
    middle = torch.nextafter(low, far)
    for neighbours in ((low, middle), (middle, torch.nextafter(middle, far))):
        outputs, targets = torch.stack([*neighbours, far]), torch.tensor([0, 1, 1])
        threshold = tune_threshold(metrics.binary_accuracy(), outputs, targets)
        assert metrics.binary_accuracy(threshold=threshold).value(outputs[None], targets[None]).item() == 1


def test_a_threshold_that_the_metric_has_plays_no_part(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(50, generator=generator), torch.randint(2, (50,), generator=generator)
    assert tune_threshold(metrics.f1(threshold=0.7), outputs, targets) == tune_threshold(metrics.f1(), outputs, targets)


@pytest.mark.parametrize(
    "metric",
    [
        wrap(f1_in_a_row, kind="binary", higher_is_better=True),
        wrap(binary_f1_score, kind="binary", higher_is_better=True),
    ],
    ids=["own", "torchmetrics"],
)
def test_any_metric_that_cuts_at_zero(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = torch.randn(60, generator=generator), torch.randint(2, (60,), generator=generator)
    targets[::9] = -100
    outputs = (4 * (outputs + targets.clamp(min=0))).round() / 4
    if metric.name == "binary_f1_score":  # torchmetrics is not vectorised: keep the set whole
        outputs, targets = outputs[targets >= 0], targets[targets >= 0]
    with pytest.warns(UserWarning, match="evaluated set by set"):
        found = tune_threshold(metric, outputs, targets)
    assert found == tune_threshold(metrics.f1(), outputs, targets)


@pytest.mark.filterwarnings("ignore:.*evaluated set by set")
def test_a_threshold_that_a_wrapped_metric_has_plays_no_part(generator: torch.Generator) -> None:
    outputs, targets = torch.rand(40, generator=generator), torch.randint(2, (40,), generator=generator)
    metric = wrap(f1_score, kind="binary", higher_is_better=True, order="targets_first", takes="labels", threshold=0.3)
    assert tune_threshold(metric, outputs, targets) == tune_threshold(metrics.f1(), outputs, targets)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "samples"])
@pytest.mark.parametrize("maker", [metrics.multilabel_f1, metrics.multilabel_jaccard])
def test_multilabel(maker: type, average: str, generator: torch.Generator) -> None:
    targets = torch.randint(2, (15, 4), generator=generator)
    outputs = (2 * torch.randn(15, 4, generator=generator) + targets).round() / 2
    targets[torch.rand(15, 4, generator=generator) < 0.2] = -100
    threshold = tune_threshold(maker(average=average, threshold=0.3), outputs, targets)
    candidates = torch.linspace(-4, 4, 129).tolist()
    best = max(maker(average=average, threshold=t).value(outputs[None], targets[None]).item() for t in candidates)
    assert maker(average=average, threshold=threshold)(outputs, targets).item() == pytest.approx(best)


def test_multilabel_hamming_is_lower_better(generator: torch.Generator) -> None:
    targets = torch.randint(2, (40, 3), generator=generator)
    outputs = torch.randn(40, 3, generator=generator) + 6 * targets + 3
    threshold = tune_threshold(metrics.multilabel_hamming(), outputs, targets)
    assert metrics.multilabel_hamming(threshold=threshold)(outputs, targets) < 0.02


def test_a_large_set_takes_one_sort(generator: torch.Generator) -> None:
    """10^5 scores, of which a quadratic search would compare 10^10."""
    targets = (torch.rand(100_000, generator=generator) < 0.1).long()
    outputs = torch.randn(100_000, generator=generator) + 2 * targets
    threshold = tune_threshold(metrics.f1(), outputs, targets)
    tuned = metrics.f1(threshold=threshold)(outputs, targets)
    assert all(tuned >= metrics.f1(threshold=t)(outputs, targets) for t in torch.linspace(-2, 4, 61).tolist())


@pytest.mark.parametrize(
    "metric",
    [
        metrics.auc(),
        metrics.ap(),
        metrics.multilabel_map(),
        wrap(binary_auroc, kind="binary", higher_is_better=True, name="auroc"),
        wrap(lambda outputs, targets: (outputs - targets).square().mean(), kind="binary", higher_is_better=False),
    ],
    ids=lambda metric: metric.name,
)
@pytest.mark.filterwarnings("ignore:.*evaluated set by set")
def test_a_metric_without_a_threshold(metric: Metric, generator: torch.Generator) -> None:
    shape = (30, 3) if metric.kind is Kind.MULTILABEL else (30,)
    outputs, targets = torch.randn(shape, generator=generator), torch.randint(2, shape, generator=generator)
    with pytest.raises(ValueError, match="has no threshold to tune"):
        tune_threshold(metric, outputs, targets)


def test_mistakes_get_a_plain_sentence() -> None:
    scores = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match=r"the metric came as str; a Metric works: f1\(\)"):
        tune_threshold("f1", scores, torch.tensor([0, 1]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accuracy is a multiclass metric; binary and multilabel ones"):
        tune_threshold(metrics.accuracy(), torch.randn(3, 4), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="every target is -100"):
        tune_threshold(metrics.f1(), scores, torch.tensor([-100, -100]))
    with pytest.raises(ValueError, match="differ in N"):
        tune_threshold(metrics.f1(), scores, torch.tensor([1]))
    undefined = Metric("undefined", Kind.BINARY, OfCounts(lambda counts: counts.total * math.nan))
    with pytest.raises(ValueError, match="undefined is not defined on this set"):
        tune_threshold(undefined, scores, torch.tensor([0, 1]))
