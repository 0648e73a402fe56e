"""Exact metrics over stacks of sets.

:data:`METRICS` has every metric by name, with its defaults; the function that makes it takes parameters.

>>> import torch
>>> outputs, targets = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1, 1, 0])
>>> METRICS["f1"](outputs, targets), f1(threshold=-2.0)(outputs, targets)
(tensor(0.5000), tensor(0.8000))
>>> find_metric("binary_acuracy")
Traceback (most recent call last):
    ...
ValueError: there is no metric called 'binary_acuracy'; did you mean 'binary_accuracy'? `lossmith metrics` lists all.

To add one: write the function that makes it in the file of its kind, add a line to the ``TABLE`` at the end of that
file and the function to the list below. ``tests/metrics/test_table.py`` then checks what every metric must fulfil; a
comparison with an independent oracle goes into the test of the file.
"""

from __future__ import annotations

import difflib

from lossmith.metrics import binary, embedding, heatmap, multiclass, multilabel, ranking, segmentation, span, tokens
from lossmith.metrics.binary import (
    ap,
    auc,
    balanced_accuracy,
    binary_accuracy,
    binary_error,
    eer,
    f1,
    fbeta,
    jaccard,
    kappa,
    mcc,
    partial_auc,
    precision_at_recall,
    recall_at_precision,
)
from lossmith.metrics.embedding import retrieval_map, retrieval_recall_at_k, verification_accuracy, verification_eer
from lossmith.metrics.heatmap import oks, pck, pckh
from lossmith.metrics.multiclass import (
    accuracy,
    ap_ovr,
    auc_ovr,
    f1_macro,
    f1_micro,
    f1_weighted,
    multiclass_balanced_accuracy,
    multiclass_fbeta,
    multiclass_kappa,
    multiclass_mcc,
    top_k_accuracy,
)
from lossmith.metrics.multilabel import (
    multilabel_auc,
    multilabel_f1,
    multilabel_fbeta,
    multilabel_hamming,
    multilabel_jaccard,
    multilabel_map,
)
from lossmith.metrics.ranking import map, mrr, ndcg, precision_at_k, recall_at_k
from lossmith.metrics.segmentation import dice, miou, pixel_accuracy
from lossmith.metrics.span import exact_match, span_rouge_l, token_f1
from lossmith.metrics.thresholds import tune_threshold
from lossmith.metrics.tokens import (
    bag_f1,
    bleu,
    edit_distance,
    normalized_edit_distance,
    rouge_l,
    token_accuracy,
)
from lossmith.metrics.wrap import wrap
from lossmith.vocabulary import Metric

__all__ = [
    "METRICS",
    "accuracy",
    "ap",
    "ap_ovr",
    "auc",
    "auc_ovr",
    "bag_f1",
    "balanced_accuracy",
    "binary_accuracy",
    "binary_error",
    "bleu",
    "dice",
    "edit_distance",
    "eer",
    "exact_match",
    "f1",
    "f1_macro",
    "f1_micro",
    "f1_weighted",
    "fbeta",
    "find_metric",
    "jaccard",
    "kappa",
    "map",
    "mcc",
    "miou",
    "mrr",
    "multiclass_balanced_accuracy",
    "multiclass_fbeta",
    "multiclass_kappa",
    "multiclass_mcc",
    "multilabel_auc",
    "multilabel_f1",
    "multilabel_fbeta",
    "multilabel_hamming",
    "multilabel_jaccard",
    "multilabel_map",
    "ndcg",
    "normalized_edit_distance",
    "oks",
    "partial_auc",
    "pck",
    "pckh",
    "pixel_accuracy",
    "precision_at_k",
    "precision_at_recall",
    "recall_at_k",
    "recall_at_precision",
    "retrieval_map",
    "retrieval_recall_at_k",
    "rouge_l",
    "span_rouge_l",
    "token_accuracy",
    "token_f1",
    "top_k_accuracy",
    "tune_threshold",
    "verification_accuracy",
    "verification_eer",
    "wrap",
]

METRICS: dict[str, Metric] = {
    **binary.TABLE,
    **multiclass.TABLE,
    **multilabel.TABLE,
    **ranking.TABLE,
    **embedding.TABLE,
    **segmentation.TABLE,
    **heatmap.TABLE,
    **span.TABLE,
    **tokens.TABLE,
}


def find_metric(name: str) -> Metric:
    """The metric of that name in :data:`METRICS`, or an error that names the nearest."""
    if name not in METRICS:
        nearest = difflib.get_close_matches(name, METRICS, n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no metric called {name!r}; did you mean {nearest!r}? `lossmith metrics` lists all.")
    return METRICS[name]
