from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
import torchmetrics.functional.classification as functional
from sklearn import metrics as sklearn_metrics
from torch import Tensor
from torchmetrics import classification as modules
from torchmetrics.functional.retrieval import retrieval_average_precision
from torchmetrics.regression import MeanSquaredError
from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalNormalizedDCG

from lossmith import metrics
from lossmith.kinds import Kind
from lossmith.metrics.wrap import wrap
from lossmith.vocabulary import Metric
from tests.metrics.samples import sample

SET_BY_SET = pytest.mark.filterwarnings("ignore:.*set by set.*:UserWarning")


def hit_rate(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == targets).float().mean()


def margin(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.gather(-1, targets[:, None]).mean()


def test_own_function(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.BINARY, generator=generator)
    metric = wrap(hit_rate, kind="binary", higher_is_better=True)
    assert metric.name == "hit_rate"
    assert metric.kind is Kind.BINARY
    expected = ((outputs > 0) == targets).float().mean(-1)
    torch.testing.assert_close(metric.value(outputs, targets), expected)
    torch.testing.assert_close(metric.cost(outputs, targets), -expected)
    torch.testing.assert_close(metric(outputs[0], targets[0]), expected[0])


def test_left_out_targets_do_not_reach_the_function(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.MULTICLASS, generator=generator, ignored_share=0.4)
    metric = wrap(margin, kind="multiclass", higher_is_better=True)
    with pytest.warns(UserWarning, match="targets are left out"):
        values = metric.value(outputs, targets)
    for one, (scores, labels) in zip(values, zip(outputs, targets)):
        kept = labels != -100
        torch.testing.assert_close(one, margin(scores[kept], labels[kept]))


@SET_BY_SET
def test_nothing_left_is_nan(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.MULTICLASS, generator=generator)
    targets[2] = -100
    values = wrap(margin, kind="multiclass", higher_is_better=True).value(outputs, targets)
    assert values.isnan().tolist() == [False, False, True, False, False, False]
    assert wrap(margin, kind="multiclass", higher_is_better=True)(outputs[2], targets[2]).isnan()


@SET_BY_SET
def test_rows_left_out_in_part(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.TOKENS, generator=generator, ignored_share=0.3)

    def accuracy(labels: Tensor, targets: Tensor) -> Tensor:
        return (labels == targets).float().mean()

    def masked_accuracy(labels: Tensor, targets: Tensor) -> Tensor:
        return ((labels == targets) * (targets != -100)).sum() / (targets != -100).sum()

    options = {"kind": "tokens", "higher_is_better": True, "takes": "labels"}
    with pytest.raises(ValueError, match=r"left out in part .*flatten=True .* or handles_ignored=True"):
        wrap(accuracy, **options).value(outputs, targets)
    hits = (outputs.argmax(-1) == targets).flatten(1).sum(1)
    expected = hits / (targets != -100).flatten(1).sum(1)
    torch.testing.assert_close(wrap(accuracy, **options, flatten=True).value(outputs, targets), expected)
    handled = wrap(masked_accuracy, **options, handles_ignored=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a function that handles them vectorises
        torch.testing.assert_close(handled.value(outputs, targets), expected)


@pytest.mark.parametrize("kind", [Kind.MULTILABEL, Kind.RANKING, Kind.SEGMENTATION, Kind.TOKENS])
def test_flatten_keeps_scores_beside_their_targets(kind: Kind, generator: torch.Generator) -> None:
    outputs, targets = sample(kind, generator=generator)
    seen = []

    def see(scores: Tensor, flat_targets: Tensor) -> float:
        seen.append((scores, flat_targets))
        return 0.0

    wrap(see, kind=kind, higher_is_better=True, flatten=True)(outputs[0], targets[0])
    scores, flat_targets = seen[0]
    assert torch.equal(flat_targets, targets[0].flatten())
    if kind in (Kind.MULTILABEL, Kind.RANKING):
        assert torch.equal(scores, outputs[0].flatten())
    else:
        hits = scores.argmax(-1) == flat_targets
        class_dim = 1 if kind is Kind.SEGMENTATION else 2
        assert torch.equal(hits, (outputs[0].argmax(class_dim) == targets[0]).flatten())


@SET_BY_SET
@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (functional.binary_auroc, "binary"),
        (functional.binary_average_precision, "binary"),
        (functional.binary_f1_score, "binary"),
        (partial(functional.multiclass_f1_score, num_classes=7), "multiclass"),
        (partial(functional.multiclass_auroc, num_classes=7), "multiclass"),
        (partial(functional.multilabel_f1_score, num_labels=5), "multilabel"),
        (partial(functional.multiclass_jaccard_index, num_classes=3), "segmentation"),
    ],
)
def test_torchmetrics_functional(fn: object, kind: str, generator: torch.Generator) -> None:
    outputs, targets = sample(Kind(kind), set_size=80, generator=generator)  # every class in every set
    metric = wrap(fn, kind=kind, higher_is_better=True)
    expected = torch.stack([fn(scores, labels) for scores, labels in zip(outputs, targets)])
    torch.testing.assert_close(metric.value(outputs, targets), expected)
    assert metric.name == getattr(fn, "func", fn).__name__


def test_torchmetrics_does_not_mistake_small_scores_for_probabilities() -> None:
    # all in [0, 1]: alone, torchmetrics would cut them at 0.5
    outputs, targets = torch.tensor([0.2, 0.4]), torch.tensor([1, 1])
    assert functional.binary_accuracy(outputs, targets) == 0
    assert wrap(functional.binary_accuracy, kind="binary", higher_is_better=True)(outputs, targets) == 1


@SET_BY_SET
def test_torchmetrics_module_starts_every_set_clean(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.BINARY, generator=generator)
    module = modules.BinaryF1Score()
    module.update(torch.ones(50), torch.zeros(50))
    metric = wrap(module, kind="binary")
    assert metric.higher_is_better
    assert metric.name == "BinaryF1Score"
    expected = torch.stack([functional.binary_f1_score(*one) for one in zip(outputs, targets)])
    for _ in range(2):
        torch.testing.assert_close(metric.value(outputs, targets), expected)
    assert module.compute() == 0, "the caller's module keeps its own state"


def test_torchmetrics_module_knows_its_direction() -> None:
    assert not wrap(MeanSquaredError(), kind="binary").higher_is_better
    assert wrap(MeanSquaredError(), kind="binary", higher_is_better=True).higher_is_better
    with pytest.raises(ValueError, match=r"wrap\(BinaryConfusionMatrix\): say higher_is_better"):
        wrap(modules.BinaryConfusionMatrix(), kind="binary")


@SET_BY_SET
@pytest.mark.parametrize(
    ("fn", "takes"),
    [
        (sklearn_metrics.f1_score, "labels"),
        (sklearn_metrics.matthews_corrcoef, "labels"),
        (sklearn_metrics.roc_auc_score, "scores"),
        (sklearn_metrics.average_precision_score, "scores"),
        (sklearn_metrics.log_loss, "probabilities"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sklearn(fn: object, takes: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.BINARY, generator=generator, ignored_share=0.2)
    outputs = outputs.to(dtype)
    metric = wrap(fn, kind="binary", higher_is_better=True, order="targets_first", takes=takes)
    for one, (scores, labels) in zip(metric.value(outputs, targets), zip(outputs, targets)):
        kept = labels != -100
        convert = {"labels": lambda s: s > 0, "scores": lambda s: s, "probabilities": torch.sigmoid}[takes]
        predicted = convert(scores[kept])
        predicted = predicted if takes == "labels" else predicted.float()
        assert float(one) == pytest.approx(fn(labels[kept].numpy(), predicted.numpy()), abs=1e-6)


@SET_BY_SET
def test_sklearn_classes_and_flattened(generator: torch.Generator) -> None:
    macro = partial(sklearn_metrics.f1_score, average="macro")
    for kind, class_dim, flatten in ((Kind.MULTICLASS, -1, False), (Kind.SEGMENTATION, 1, True)):
        outputs, targets = sample(kind, generator=generator)
        metric = wrap(macro, kind=kind, higher_is_better=True, order="targets_first", takes="labels", flatten=flatten)
        assert metric.name == "f1_score"
        expected = macro(targets[0].flatten().numpy(), outputs[0].argmax(class_dim).flatten().numpy())
        assert float(metric(outputs[0], targets[0])) == pytest.approx(expected)


def test_sklearn_is_never_guessed() -> None:
    for options in ({}, {"takes": "labels"}, {"order": "targets_first"}, {"takes": "labels", "order": "outputs_first"}):
        with pytest.raises(ValueError, match=r"scikit-learn's f1_score takes the targets first.*takes='labels'"):
            wrap(partial(sklearn_metrics.f1_score, beta=1), kind="binary", higher_is_better=True, **options)


def test_threshold_makes_labels() -> None:
    def share(labels: Tensor, targets: Tensor) -> Tensor:
        return labels.float().mean()

    outputs, targets = torch.tensor([0.1, 0.5, 0.7, 0.9]), torch.tensor([0, 1, 1, 1])
    metric = wrap(share, kind="binary", higher_is_better=True, takes="labels", threshold=0.5)
    assert metric(outputs, targets) == 0.5
    assert metric.reads_probabilities, "whoever gives a threshold knows the scale"


def test_torchmetrics_labels_vectorise(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.BINARY, generator=generator)
    fn = partial(functional.binary_f1_score, validate_args=False)
    metric = wrap(fn, kind="binary", higher_is_better=True, takes="labels")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = metric.value(outputs, targets)
    torch.testing.assert_close(values, torch.stack([fn(*one) for one in zip(outputs, targets)]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "binry"}, "'binry' is not a kind"),
        ({"kind": "binary", "order": "preds_first"}, "order='preds_first' came; 'outputs_first' or 'targets_first'"),
        ({"kind": "binary", "takes": "logits"}, "takes='logits' came; 'scores' or 'probabilities' or 'labels' works"),
        ({"kind": "embedding", "takes": "labels"}, "embedding predictions have no labels; takes='scores' works"),
        ({"kind": "binary", "threshold": 1.0}, "it goes with takes='labels'"),
        ({"kind": "multiclass", "takes": "labels", "threshold": 1.0}, "binary or multilabel"),
        ({"kind": "binary", "flatten": True}, "nothing to take apart in binary predictions; multilabel"),
        ({"kind": "binary", "higher_is_better": None}, r"wrap\(hit_rate\): say higher_is_better=True or"),
    ],
)
def test_plain_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(hit_rate, **{"higher_is_better": True, **options})


def test_what_is_no_function() -> None:
    for fn in (modules.BinaryF1Score, partial(modules.BinaryF1Score()), "f1"):
        with pytest.raises(ValueError, match="a function, or an instance of a torchmetrics module, works"):
            wrap(fn, kind="binary", higher_is_better=True)


def test_torchmetrics_takes_outputs_first() -> None:
    for fn in (modules.BinaryF1Score(), functional.binary_f1_score):
        with pytest.raises(ValueError, match="torchmetrics takes the outputs first"):
            wrap(fn, kind="binary", higher_is_better=True, order="targets_first")


def test_functions_written_in_c(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(3, 4, 5, generator=generator), torch.ones(3, 4, 5, dtype=torch.long)
    metric = wrap(torch.dist, kind="multilabel", higher_is_better=False)
    torch.testing.assert_close(metric.value(outputs, targets), (outputs - 1).flatten(1).norm(dim=1))


@SET_BY_SET
def test_torchmetrics_retrieval_finds_scores_below_zero_too(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.BINARY, generator=generator, ignored_share=0.1)
    targets[:, 0] = 1
    for fn in (retrieval_average_precision, RetrievalMAP()):
        metric = wrap(fn, kind="binary", higher_is_better=True)
        torch.testing.assert_close(metric.value(outputs, targets), metrics.ap().value(outputs, targets))


class OwnReciprocalRank(RetrievalMRR):
    pass


@SET_BY_SET
@pytest.mark.parametrize(
    ("module", "ours"),
    [
        (RetrievalMAP(), metrics.map(empty_query="zero")),
        (OwnReciprocalRank(), metrics.mrr(empty_query="zero")),
        (RetrievalNormalizedDCG(top_k=3), metrics.ndcg(k=3, empty_query="zero")),
    ],
    ids=["map", "own", "ndcg"],
)
def test_torchmetrics_retrieval_modules_read_all_queries(
    module: object, ours: Metric, generator: torch.Generator
) -> None:
    outputs, targets = sample(Kind.RANKING, generator=generator)
    targets = (targets > 2).long()
    torch.testing.assert_close(wrap(module, kind="ranking").value(outputs, targets), ours.value(outputs, targets))


def test_torchmetrics_retrieval_functions_read_one_query(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.RANKING, generator=generator)
    metric = wrap(retrieval_average_precision, kind="ranking", higher_is_better=True)
    with pytest.raises(ValueError, match=r"reads one query, and takes a set of 24 for one; its module .* our own map"):
        metric(outputs[0], targets[0])
    assert metric(torch.tensor([[-1.0, -2.0]]), torch.tensor([[0, 1]])) == 0.5
    with pytest.raises(ValueError, match="takes='scores' works"):
        wrap(retrieval_average_precision, kind="binary", higher_is_better=True, takes="labels")


def test_a_scorer_takes_a_model() -> None:
    scorer = sklearn_metrics.make_scorer(sklearn_metrics.f1_score)
    with pytest.raises(ValueError, match="a scorer of scikit-learn takes a model"):
        wrap(scorer, kind="binary", higher_is_better=True, order="targets_first", takes="labels")


def test_torchmetrics_tokens_say_where_classes_are(generator: torch.Generator) -> None:
    fn = partial(functional.multiclass_accuracy, num_classes=11, average="micro")
    with pytest.raises(ValueError, match="second dimension; flatten=True works"):
        wrap(fn, kind="tokens", higher_is_better=True)
    outputs, targets = sample(Kind.TOKENS, generator=generator)
    metric = wrap(fn, kind="tokens", higher_is_better=True, flatten=True)
    torch.testing.assert_close(metric(outputs[0], targets[0]), (outputs[0].argmax(-1) == targets[0]).float().mean())


def test_import_brings_no_metric_library() -> None:
    code = "import sys, lossmith.metrics.wrap; print('sklearn' in sys.modules, 'torchmetrics' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]
