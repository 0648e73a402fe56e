"""The hand-made losses that learned ones are compared with.

To add one: write a function of the kind that gives the loss, in a file of its own, and add a line to :data:`LOSSES`.

>>> find_loss("cross_entropie", "binary")
Traceback (most recent call last):
    ...
ValueError: there is no loss called 'cross_entropie'; did you mean ...
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from lossmith.baselines.cost_sensitive import POSITIVE_WEIGHTS, balanced_cross_entropy, cost_sensitive
from lossmith.baselines.cross_entropy import cross_entropy, label_smoothing
from lossmith.baselines.focal import focal
from lossmith.baselines.gaussian_heatmaps import heatmap_squared_error
from lossmith.baselines.global_objectives import aucpr_loss, precision_at_recall_loss, recall_at_precision_loss
from lossmith.baselines.hinge import hinge
from lossmith.baselines.lovasz import lovasz
from lossmith.baselines.ngrams import bag_of_ngrams
from lossmith.baselines.pairwise import pairwise_logistic, smooth_ap
from lossmith.baselines.rank_loss import rank_loss
from lossmith.baselines.soft_counts import soft_balanced_accuracy, soft_f1, soft_jaccard, soft_mcc
from lossmith.baselines.squared_error import brier, mean_squared_error
from lossmith.vocabulary import Kind, Loss, parse_kind

__all__ = [
    "LOSSES",
    "POSITIVE_WEIGHTS",
    "aucpr_loss",
    "bag_of_ngrams",
    "balanced_cross_entropy",
    "brier",
    "cost_sensitive",
    "cross_entropy",
    "find_loss",
    "focal",
    "heatmap_squared_error",
    "hinge",
    "label_smoothing",
    "lovasz",
    "mean_squared_error",
    "pairwise_logistic",
    "precision_at_recall_loss",
    "rank_loss",
    "recall_at_precision_loss",
    "smooth_ap",
    "soft_balanced_accuracy",
    "soft_f1",
    "soft_jaccard",
    "soft_mcc",
]

LOSSES: dict[str, Callable[[Kind], Loss]] = {
    "ce": cross_entropy,
    "label_smoothing": label_smoothing,
    "balanced_ce": balanced_cross_entropy,
    "cost_sensitive": cost_sensitive,
    "focal": focal,
    "mse": mean_squared_error,
    "brier": brier,
    "hinge": hinge,
    "soft_f1": soft_f1,
    "soft_jaccard": soft_jaccard,
    "soft_mcc": soft_mcc,
    "soft_balanced_accuracy": soft_balanced_accuracy,
    "lovasz": lovasz,
    "pairwise": pairwise_logistic,
    "smooth_ap": smooth_ap,
    "rank": rank_loss,
    "precision_at_recall": precision_at_recall_loss,
    "recall_at_precision": recall_at_precision_loss,
    "aucpr": aucpr_loss,
    "bag_of_ngrams": bag_of_ngrams,
    "heatmap_mse": heatmap_squared_error,
}


def find_loss(name: str, kind: Kind | str) -> Loss:
    """The loss of that name for predictions of that kind, or an error that says what works."""
    if name not in LOSSES:
        nearest = difflib.get_close_matches(name, LOSSES, n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no loss called {name!r}; did you mean {nearest!r}? All: {', '.join(LOSSES)}.")
    return LOSSES[name](parse_kind(kind))
