"""Metrics as people write them, none of them written for tracing: own code, torchmetrics, scikit-learn, lossmith."""
# ruff: noqa: E501 - one metric a line

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.metrics
import torch
import torch.nn.functional as F
import torchmetrics
import torchmetrics.functional as functional
import torchmetrics.functional.classification as classification
import torchmetrics.functional.retrieval as retrieval
from torch import Tensor

from lossmith.metrics import METRICS
from lossmith.metrics.ranking import precision_at_k
from lossmith.tracing.loss import _function_of

CLASSES = 4
SIZE = 20
Set = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[[Tensor, Tensor], Any]
    draw: Callable[[torch.Generator], Set]


# sets


def multiclass(generator: torch.Generator) -> Set:
    targets = torch.arange(SIZE) % CLASSES
    return torch.randn(SIZE, CLASSES, generator=generator) + F.one_hot(targets), targets


def binary(generator: torch.Generator) -> Set:
    targets = torch.arange(SIZE) % 3 // 2
    return torch.randn(SIZE, generator=generator) + targets, targets


def rare(generator: torch.Generator) -> Set:
    return torch.randn(SIZE, generator=generator), (torch.arange(SIZE) % 9 == 4).long()


def graded(generator: torch.Generator) -> Set:
    relevance = torch.arange(SIZE) % 4
    return torch.randn(SIZE, generator=generator) + relevance / 2, relevance


def continuous(generator: torch.Generator) -> Set:
    targets = torch.linspace(-1, 1, SIZE)
    return targets + torch.randn(SIZE, generator=generator), targets


def few(generator: torch.Generator) -> Set:
    targets = torch.linspace(-1, 1, 7)
    return targets + torch.randn(7, generator=generator), targets


def multilabel(generator: torch.Generator) -> Set:
    targets = (torch.arange(SIZE)[:, None] + torch.arange(CLASSES)) % 3 // 2
    return torch.randn(SIZE, CLASSES, generator=generator) + targets, targets


def heatmaps(generator: torch.Generator) -> Set:
    return torch.randn(6, 8, 8, generator=generator), torch.arange(12).view(6, 2).float() / 2 + 1


def sequences(generator: torch.Generator) -> Set:
    targets = (torch.arange(24).view(4, 6) * 7) % 5
    return torch.randn(4, 6, 5, generator=generator) + 2 * F.one_hot(targets, 5), targets


def images(generator: torch.Generator) -> Set:
    targets = torch.arange(2 * 6 * 6).view(2, 6, 6) % 3
    return torch.randn(2, 3, 6, 6, generator=generator) + F.one_hot(targets).movedim(-1, 1), targets


def queries(generator: torch.Generator) -> Set:
    relevance = torch.arange(3 * 8).view(3, 8) % 3
    return torch.randn(3, 8, generator=generator) + relevance / 2, relevance


# own code


def accuracy(outputs, targets):
    return (outputs.argmax(-1) == targets).float().mean()


def error_rate(outputs, targets):
    _, predicted = outputs.max(dim=1)
    return 1 - predicted.eq(targets).sum().float() / len(targets)


def accuracy_as_a_number(outputs, targets):
    predicted = torch.max(outputs.data, 1)[1]
    return (predicted == targets).sum().item() / targets.size(0)


def accuracy_as_a_float(outputs, targets):
    return float((F.softmax(outputs, dim=1).argmax(1) == targets).float().mean())


def accuracy_by_largest_value(outputs, targets):
    is_largest = outputs == outputs.max(-1, keepdim=True).values
    return is_largest.float().gather(1, targets[:, None]).mean()


@torch.no_grad()
def accuracy_under_no_grad(outputs, targets):
    return (outputs.detach().cpu().argmax(-1) == targets).double().mean()


def accuracy_in_numpy(outputs, targets):
    return float(np.mean(outputs.argmax(-1).cpu().numpy() == targets.numpy()))


def top2_accuracy(outputs, targets):
    return (outputs.topk(2, dim=-1)[1] == targets[:, None]).any(-1).float().mean()


def top2_as_in_imagenet_examples(outputs, targets):
    _, predicted = outputs.topk(2, 1, True, True)
    correct = predicted.t().eq(targets.view(1, -1).expand_as(predicted.t()))
    return correct[:2].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / targets.size(0))


def mean_iou(outputs, targets):
    predicted = outputs.argmax(-1)
    ious = []
    for label in range(outputs.shape[-1]):
        is_predicted, is_true = predicted == label, targets == label
        ious.append((is_predicted & is_true).sum().float() / (is_predicted | is_true).sum().clamp(min=1))
    return torch.stack(ious).mean()


def one_hot_agreement(outputs, targets):
    return (F.one_hot(outputs.argmax(-1), CLASSES) * F.one_hot(targets, CLASSES)).sum() / len(targets)


def confusion_by_index_put(outputs, targets):
    confusion = torch.zeros(CLASSES, CLASSES)
    confusion.index_put_((targets, outputs.argmax(-1)), torch.ones(len(targets)), accumulate=True)
    return confusion.diag().sum() / confusion.sum()


def confusion_in_a_loop(outputs, targets):
    confusion = torch.zeros(CLASSES, CLASSES)
    for truth, predicted in zip(targets, outputs.argmax(-1)):
        confusion[truth, predicted] += 1
    return (confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag()).clamp(min=1)).mean()


def confusion_by_bincount(outputs, targets):
    counts = torch.bincount(targets * CLASSES + outputs.argmax(1), minlength=CLASSES**2).view(CLASSES, CLASSES)
    recall = counts.diag().float() / counts.sum(1).clamp(min=1)
    return recall.mean()


def sure_and_right(outputs, targets):
    sure, predicted = outputs.softmax(-1).max(-1)
    return ((sure > 0.5) & (predicted == targets)).float().mean()


def f1(outputs, targets):
    predicted = (outputs > 0).float()
    hits = (predicted * targets).sum()
    return 2 * hits / (predicted.sum() + targets.sum()).clamp(min=1)


def f1_of_rounded_probabilities(outputs, targets):
    predicted = torch.round(torch.sigmoid(outputs))
    hits = (predicted * targets).sum()
    return 2 * hits / (predicted.sum() + targets.sum() + 1e-9)


def iou_by_where(outputs, targets):
    mask = torch.where(outputs > 0, torch.ones_like(outputs), torch.zeros_like(outputs))
    return (mask * targets).sum() / torch.clamp(mask + targets, max=1).sum()


def precision_by_selection(outputs, targets):
    chosen = targets[outputs > 0]
    return chosen.float().sum() / max(1, len(chosen))


def recall_in_python(outputs, targets):
    hits = 0
    for i in range(len(outputs)):
        if outputs[i] > 0 and targets[i] == 1:
            hits += 1
    return torch.tensor(hits / max(1, int(targets.sum())))


def accuracy_of_a_list(outputs, targets):
    scores = outputs.tolist()
    return sum((score > 0) == (target == 1) for score, target in zip(scores, targets.tolist())) / len(scores)


def accuracy_by_assignment(outputs, targets):
    predicted = torch.zeros_like(outputs)
    predicted[outputs > 0] = 1.0
    return (predicted == targets).float().mean()


def accuracy_in_place(outputs, targets):
    scores = outputs.clone()
    scores[scores > 0] = 1.0
    scores[scores <= 0] = 0.0
    return (scores == targets).float().mean()


def accuracy_by_sign(outputs, targets):
    return 1 - ((outputs.sign() + 1) / 2 - targets).abs().mean()


def accuracy_by_margin(outputs, targets):
    return 1 - ((outputs * (2 * targets - 1)) < 0).float().mean()


def accuracy_by_heaviside(outputs, targets):
    return (torch.heaviside(outputs, torch.tensor(0.0)) == targets).float().mean()


def accuracy_by_int(outputs, targets):
    return (torch.sigmoid(outputs).mul(2).int().clamp(max=1) == targets).float().mean()


def above_the_median(outputs, targets):
    return ((outputs > outputs.median()).long() == targets).float().mean()


def top_five_by_kth_value(outputs, targets):
    return ((outputs >= outputs.kthvalue(len(outputs) - 5)[0]).long() * targets).sum() / 5.0


def average_precision(outputs, targets):
    hits = targets[torch.argsort(outputs, descending=True)].float()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum() / hits.sum()


def auc_of_pairs(outputs, targets):
    return ((outputs[targets == 1][:, None] - outputs[targets == 0][None]) > 0).float().mean()


def auc_of_ranks(outputs, targets):
    ranks = torch.argsort(torch.argsort(outputs)).float() + 1
    num_positives = targets.sum()
    num_negatives = len(targets) - num_positives
    return (ranks[targets == 1].sum() - num_positives * (num_positives + 1) / 2) / (num_positives * num_negatives)


def ndcg(outputs, relevance):
    order = outputs.sort(descending=True)[1]
    discounts = 1 / torch.log2(torch.arange(len(outputs)) + 2.0)
    gains = 2.0**relevance - 1
    return (gains[order] * discounts).sum() / (gains.sort(descending=True)[0] * discounts).sum()


def precision_at_5(outputs, targets):
    return targets[outputs.topk(5)[1]].float().mean()


def reciprocal_rank(outputs, targets):
    hits = targets[outputs.argsort(descending=True)]
    return 1 / (hits.nonzero()[0, 0] + 1)


def kendall(outputs, targets):
    return (torch.sign(outputs[:, None] - outputs[None]) * torch.sign(targets[:, None] - targets[None])).mean()


def spearman_of_ranks(outputs, targets):
    ranks = torch.empty(len(outputs))
    ranks[outputs.argsort()] = torch.arange(len(outputs)).float()
    return torch.corrcoef(torch.stack([ranks, targets.argsort().argsort().float()]))[0, 1]


def rounded_absolute_error(outputs, targets):
    return -(torch.round(outputs) - targets).abs().mean()


def bucket_accuracy(outputs, targets):
    return (torch.bucketize(outputs, torch.tensor([0.0, 0.7, 1.4])) == targets).float().mean()


def pck(outputs, targets):
    index = outputs.flatten(1).argmax(1)
    points = torch.stack([index % 8, torch.div(index, 8, rounding_mode="floor")], 1).float()
    return ((points - targets).norm(dim=1) < 2.5).float().mean()


def edit_similarity(outputs, targets):
    total = 0.0
    for predicted, truth in zip(outputs.argmax(-1).tolist(), targets.tolist()):
        row = list(range(len(truth) + 1))
        for i, token in enumerate(predicted, 1):
            previous, row[0] = row[0], i
            for j, other in enumerate(truth, 1):
                previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (token != other))
        total += row[-1] / len(truth)
    return torch.tensor(1 - total / len(outputs))


def exact_match(outputs, targets):
    return (outputs.argmax(-1) == targets).all(-1).float().mean()


def score_by_dictionary(outputs, targets):
    reward = {0: 1.0, 1: 0.5, 2: 0.25}
    total = 0.0
    for row, truth in zip(outputs, targets):
        guess = int(row.argmax())
        if guess == int(truth):
            total += reward.get(guess, 0.1)
    return total / len(outputs)


def sklearn_f1(outputs, targets):
    return torch.tensor(sklearn.metrics.f1_score(targets.numpy(), (outputs > 0).numpy()))


def sklearn_macro_f1(outputs, targets):
    return sklearn.metrics.f1_score(targets.numpy(), outputs.argmax(1).numpy(), average="macro", zero_division=0)


def sklearn_average_precision(outputs, targets):
    return sklearn.metrics.average_precision_score(targets.numpy(), outputs.detach().numpy())


def of_labels(fn, **options):
    return lambda outputs, targets: fn(targets.numpy(), outputs.argmax(1).numpy(), **options)


def with_options(fn, **options):
    return lambda outputs, targets: fn(outputs, targets, **options)


def pixel_accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def mean_ndcg(outputs, relevance):
    gains = (2.0**relevance - 1).gather(1, outputs.argsort(dim=1, descending=True))
    discounts = 1 / torch.log2(torch.arange(gains.shape[1]) + 2.0)
    best = (2.0**relevance - 1).sort(dim=1, descending=True)[0]
    return ((gains * discounts).sum(1) / (best * discounts).sum(1)).mean()


OWN = [
    Case(fn.__name__, fn, draw)
    for draw, fns in {
        multiclass: (
            accuracy, error_rate, accuracy_as_a_number, accuracy_as_a_float, accuracy_by_largest_value,
            accuracy_under_no_grad, accuracy_in_numpy, top2_accuracy, top2_as_in_imagenet_examples, mean_iou,
            one_hot_agreement, confusion_by_index_put, confusion_in_a_loop, confusion_by_bincount, sure_and_right,
            score_by_dictionary,
        ),
        binary: (
            f1, f1_of_rounded_probabilities, iou_by_where, precision_by_selection, recall_in_python, accuracy_of_a_list,
            accuracy_by_assignment, accuracy_in_place, accuracy_by_sign, accuracy_by_margin, accuracy_by_heaviside,
            accuracy_by_int, above_the_median, top_five_by_kth_value, average_precision, auc_of_pairs, auc_of_ranks,
            precision_at_5,
        ),
        rare: (reciprocal_rank,),
        graded: (ndcg, rounded_absolute_error, bucket_accuracy),
        continuous: (kendall, spearman_of_ranks),
        heatmaps: (pck,),
        sequences: (edit_similarity, exact_match),
        images: (pixel_accuracy,),
        queries: (mean_ndcg,),
    }.items()
    for fn in fns
]  # fmt: skip

_c = classification
LIBRARIES = [
    Case("torchmetrics accuracy, micro", with_options(_c.multiclass_accuracy, num_classes=CLASSES, average="micro"), multiclass),
    Case("torchmetrics accuracy, macro", with_options(_c.multiclass_accuracy, num_classes=CLASSES), multiclass),
    Case("torchmetrics accuracy, top 2", with_options(_c.multiclass_accuracy, num_classes=CLASSES, top_k=2), multiclass),
    Case("torchmetrics F1, macro", with_options(_c.multiclass_f1_score, num_classes=CLASSES), multiclass),
    Case("torchmetrics Jaccard", with_options(_c.multiclass_jaccard_index, num_classes=CLASSES), multiclass),
    Case("torchmetrics MCC", with_options(_c.multiclass_matthews_corrcoef, num_classes=CLASSES), multiclass),
    Case("torchmetrics kappa", with_options(_c.multiclass_cohen_kappa, num_classes=CLASSES), multiclass),
    Case("torchmetrics hamming", with_options(_c.multiclass_hamming_distance, num_classes=CLASSES), multiclass),
    Case("torchmetrics AUROC, one against rest", with_options(_c.multiclass_auroc, num_classes=CLASSES), multiclass),
    Case("torchmetrics binary accuracy", _c.binary_accuracy, binary),
    Case("torchmetrics binary F1", _c.binary_f1_score, binary),
    Case("torchmetrics binary F2", with_options(_c.binary_fbeta_score, beta=2.0), binary),
    Case("torchmetrics binary MCC", _c.binary_matthews_corrcoef, binary),
    Case("torchmetrics binary Jaccard", _c.binary_jaccard_index, binary),
    Case("torchmetrics binary precision", _c.binary_precision, binary),
    Case("torchmetrics binary recall", _c.binary_recall, binary),
    Case("torchmetrics specificity", _c.binary_specificity, binary),
    Case("torchmetrics AUROC", _c.binary_auroc, binary),
    Case("torchmetrics AUROC, 10 thresholds", with_options(_c.binary_auroc, thresholds=10), binary),
    Case("torchmetrics AP", _c.binary_average_precision, binary),
    Case("torchmetrics AP, 10 thresholds", with_options(_c.binary_average_precision, thresholds=10), binary),
    Case("torchmetrics multilabel F1", with_options(_c.multilabel_f1_score, num_labels=CLASSES), multilabel),
    Case("torchmetrics multilabel accuracy", with_options(_c.multilabel_accuracy, num_labels=CLASSES), multilabel),
    Case("torchmetrics exact match", with_options(_c.multilabel_exact_match, num_labels=CLASSES), multilabel),
    Case("torchmetrics Spearman", functional.spearman_corrcoef, continuous),
    Case("torchmetrics Kendall", functional.kendall_rank_corrcoef, few),
    Case("torchmetrics NDCG", retrieval.retrieval_normalized_dcg, graded),
    Case("torchmetrics retrieval AP", retrieval.retrieval_average_precision, binary),
    Case("torchmetrics reciprocal rank", retrieval.retrieval_reciprocal_rank, rare),
    Case("torchmetrics hit rate", with_options(retrieval.retrieval_hit_rate, top_k=3), rare),
    Case("torchmetrics precision at 5", with_options(retrieval.retrieval_precision, top_k=5), binary),
    Case("torchmetrics recall at 5", with_options(retrieval.retrieval_recall, top_k=5), binary),
    Case("module BinaryF1Score", _function_of(torchmetrics.classification.BinaryF1Score()), binary),
    Case("module BinaryAveragePrecision", _function_of(torchmetrics.classification.BinaryAveragePrecision()), binary),
    Case("module BinaryCohenKappa", _function_of(torchmetrics.classification.BinaryCohenKappa()), binary),
    Case("module MulticlassAccuracy", _function_of(torchmetrics.classification.MulticlassAccuracy(CLASSES, average="micro")), multiclass),
    Case("module MulticlassF1Score", _function_of(torchmetrics.classification.MulticlassF1Score(CLASSES)), multiclass),
    Case("module MulticlassJaccardIndex", _function_of(torchmetrics.classification.MulticlassJaccardIndex(3)), images),
    Case("module MulticlassConfusionMatrix", lambda o, t: _function_of(torchmetrics.classification.MulticlassConfusionMatrix(CLASSES))(o, t).diag().sum(), multiclass),
    Case("scikit-learn F1", sklearn_f1, binary),
    Case("scikit-learn macro F1", sklearn_macro_f1, multiclass),
    Case("scikit-learn kappa, quadratic", of_labels(sklearn.metrics.cohen_kappa_score, weights="quadratic"), multiclass),
    Case("scikit-learn AP on scores", sklearn_average_precision, binary),
    *(Case(f"lossmith {name}", _function_of(METRICS[name]), binary) for name in ("f1", "auc", "ap", "mcc", "eer", "partial_auc")),
    *(Case(f"lossmith {name}", _function_of(METRICS[name]), multiclass) for name in ("accuracy", "f1_macro", "multiclass_mcc", "auc_ovr")),
    *(Case(f"lossmith {name}", _function_of(METRICS[name]), queries) for name in ("ndcg", "map", "mrr")),
    Case("lossmith precision_at_k", _function_of(precision_at_k(k=3)), queries),
    *(Case(f"lossmith {name}", _function_of(METRICS[name]), images) for name in ("miou", "dice", "pixel_accuracy")),
    Case("lossmith multilabel_map", _function_of(METRICS["multilabel_map"]), multilabel),
    Case("lossmith token_accuracy", _function_of(METRICS["token_accuracy"]), sequences),
    Case("lossmith edit_distance", _function_of(METRICS["edit_distance"]), sequences),
    Case("lossmith bleu", _function_of(METRICS["bleu"]), sequences),
]  # fmt: skip
