"""What every metric of the table must fulfil, whatever it measures."""

from __future__ import annotations

import warnings

import pytest
import torch

from lossmith import metrics
from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics import METRICS, find_metric
from lossmith.vocabulary import Metric
from tests.metrics.samples import sample

# scripts rely on these
NAMES = {
    Kind.BINARY: "binary_accuracy binary_error f1 fbeta auc ap eer mcc jaccard balanced_accuracy kappa "
    "precision_at_recall recall_at_precision partial_auc",
    Kind.MULTICLASS: "accuracy top5_accuracy f1_macro f1_micro f1_weighted multiclass_mcc multiclass_kappa "
    "multiclass_balanced_accuracy auc_ovr ap_ovr",
    Kind.MULTILABEL: "multilabel_f1 multilabel_map multilabel_auc multilabel_jaccard multilabel_hamming",
    Kind.RANKING: "ndcg map mrr precision_at_k recall_at_k",
    Kind.EMBEDDING: "retrieval_recall_at_k retrieval_map verification_accuracy",
    Kind.SEGMENTATION: "miou dice pixel_accuracy",
    Kind.HEATMAP: "pck pckh oks",
    Kind.SPAN: "exact_match token_f1 span_rouge_l",
    Kind.TOKENS: "bleu rouge_l edit_distance normalized_edit_distance token_accuracy",
}
LOWER_IS_BETTER = {
    "binary_error",
    "eer",
    "multilabel_hamming",
    "verification_eer",
    "edit_distance",
    "normalized_edit_distance",
}

each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


@pytest.mark.parametrize("kind", list(Kind))
def test_names(kind: Kind) -> None:
    missing = set(NAMES[kind].split()) - {name for name, metric in METRICS.items() if metric.kind is kind}
    assert not missing


def test_no_name_comes_twice() -> None:
    files = (getattr(metrics, str(kind)) for kind in Kind)
    assert len(METRICS) == sum(len(file.TABLE) for file in files)


def test_direction() -> None:
    assert {name for name, metric in METRICS.items() if not metric.higher_is_better} == LOWER_IS_BETTER


def test_nearest_name() -> None:
    assert find_metric("ndcg") is METRICS["ndcg"]
    with pytest.raises(ValueError, match="no metric called 'ncdg'; did you mean 'ndcg'"):
        find_metric("ncdg")


@each_metric
def test_better_than_chance_predictions_have_a_value(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = sample(metric.kind, generator=generator)
    values = metric.value(outputs, targets)
    assert values.shape == (len(outputs),)
    assert values.dtype == torch.float32
    assert values.isfinite().all()
    shuffled = outputs[:, torch.randperm(outputs.shape[1], generator=generator)]
    if metric.kind is not Kind.RANKING:
        assert metric.cost(outputs, targets).mean() < metric.cost(shuffled, targets).mean()


@each_metric
@pytest.mark.parametrize("ignored_share", [0.0, 0.3])
def test_a_set_has_the_same_value_in_a_stack_as_alone(
    metric: Metric, ignored_share: float, generator: torch.Generator
) -> None:
    outputs, targets = sample(metric.kind, generator=generator, ignored_share=ignored_share)
    alone = torch.stack([metric(*one) for one in zip(outputs, targets)])
    torch.testing.assert_close(metric.value(outputs, targets), alone, equal_nan=True)


@each_metric
def test_a_row_left_out_is_a_row_that_is_not_there(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = sample(metric.kind, generator=generator)
    is_kept = torch.arange(outputs.shape[1]) % 3 != 1
    expected = metric.value(outputs[:, is_kept], targets[:, is_kept])
    targets[:, ~is_kept] = IGNORE_INDEX
    torch.testing.assert_close(metric.value(outputs, targets), expected, equal_nan=True)


@each_metric
def test_everything_left_out_is_nan(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = sample(metric.kind, generator=generator)
    before = metric.value(outputs, targets)
    targets[1] = IGNORE_INDEX
    values = metric.value(outputs, targets)
    assert values.isnan().tolist() == [False, True, False, False, False, False]
    torch.testing.assert_close(values[2:], before[2:])
    assert metric(outputs[1], targets[1]).isnan()


@each_metric
def test_other_precisions(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = sample(metric.kind, generator=generator)
    rounded = outputs.bfloat16()
    expected = metric.value(rounded.double(), targets)
    assert expected.dtype == torch.float64
    values = metric.value(rounded, targets)
    assert values.dtype == torch.float32, "a value in bfloat16 has three digits"
    # embeddings are compared by sums of products, which bfloat16 rounds
    tolerance = 0.05 if metric.kind is Kind.EMBEDDING else 1e-5
    torch.testing.assert_close(values.double(), expected, atol=tolerance, rtol=tolerance)


@each_metric
def test_sets_that_say_little(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = sample(metric.kind, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for some_outputs, some_targets in (
            (torch.zeros_like(outputs), targets),  # all ties
            (outputs, targets[:, :1].expand_as(targets)),  # one class
            (outputs[:, :1], targets[:, :1]),  # one row
            (1e4 * outputs.sign(), targets),
        ):
            values = metric.value(some_outputs, some_targets)
            assert values.shape == (len(outputs),)
            assert not values.isinf().any()


@each_metric
def test_order_of_rows_does_not_matter(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = sample(metric.kind, generator=generator, ignored_share=0.1)
    outputs = outputs.round()  # with ties
    order = torch.randperm(outputs.shape[1], generator=generator)
    expected = metric.value(outputs, targets)
    torch.testing.assert_close(metric.value(outputs[:, order], targets[:, order]), expected, equal_nan=True)
