"""The sets that a loss learns from, those that choose its best state, and those that judge it.

Learning sees the stored checkpoints (G_M of the paper) beside random predictions (G_R). The choice and the judgement
are made on held-out rows of stored predictions alone: the training stream is blind to what goes wrong on real ones.

>>> from lossmith.metrics import METRICS
>>> from lossmith.predictions import random_predictions
>>> generator = torch.Generator().manual_seed(0)
>>> stored = random_predictions("binary", num_sets=8, set_size=300, generator=generator)
>>> sets = learning_sets(METRICS["f1"], {"mine": stored}, generator, num_real_sets=64, num_random_sets=64)
>>> len(sets.learning), sets.judging["mine"].set_size  # two checkpoints of 32 sets, random ones of four sizes
(6, 50)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Generator

from lossmith.learning import SETS_PER_SOURCE
from lossmith.predictions import draw_sets, random_predictions
from lossmith.predictions.splitting import split
from lossmith.surrogates.suiting import count_classes
from lossmith.vocabulary import Kind, Metric, Predictions, check_predictions

NUM_JUDGING_SETS = 500
SMALLEST_SHARE_OF_POSITIVES = 0.03


@dataclass(frozen=True)
class LearningSets:
    learning: list[Predictions]
    """One stack for each stored set, so that sets of one checkpoint can be compared with each other."""
    choosing: dict[str, Predictions]
    judging: dict[str, Predictions]


def learning_sets(
    metric: Metric,
    stored: Mapping[str, Predictions],
    generator: Generator,
    *,
    num_real_sets: int = 2048,
    num_random_sets: int = 2048,
    set_size: int = 128,
    num_classes: Sequence[int] = (),
) -> LearningSets:
    learning: list[Predictions] = []
    choosing, judging = {}, {}
    class_counts = []

    def drawn(predictions: Predictions, num_sets: int) -> Predictions:
        size = min(set_size, predictions.set_size)
        return draw_sets(predictions, num_sets=num_sets, set_size=size, generator=generator)

    for where, predictions in stored.items():
        check_predictions(
            metric.kind,
            predictions.outputs,
            predictions.targets,
            is_stack=True,
            want_scores=not metric.reads_probabilities,
        )
        parts = split(predictions)
        # enough sets of a checkpoint to compare, even when that means not every checkpoint
        num_sets = num_real_sets // len(stored)
        num_checkpoints = max(1, min(parts.learning.num_sets, num_sets // SETS_PER_SOURCE))
        for checkpoint in torch.randperm(parts.learning.num_sets, generator=generator)[:num_checkpoints].split(1):
            whole = parts.learning[checkpoint]
            source = with_rare_positives(whole, set_size, generator) if metric.kind is Kind.BINARY else whole
            learning.append(drawn(source, max(1, num_sets // num_checkpoints)))
        choosing[where] = drawn(parts.choosing, NUM_JUDGING_SETS)
        judging[where] = drawn(parts.judging, NUM_JUDGING_SETS)
        class_counts.append(count_classes(metric.kind, predictions))
    # a user's last batch is smaller than the others, and a loss is asked for it all the same
    sizes = [max(2, set_size >> halvings) for halvings in range(4)]
    shapes = list(product(num_classes or class_counts or [10], sizes))
    for count, size in shapes if num_random_sets >= len(shapes) else []:
        num_sets = num_random_sets // len(shapes)
        learning.append(
            random_predictions(metric.kind, num_sets=num_sets, set_size=size, num_classes=count, generator=generator)
        )
    if not stored:
        for part in (choosing, judging):
            part["random sets"] = random_predictions(
                metric.kind, num_sets=NUM_JUDGING_SETS, set_size=set_size, generator=generator
            )
    return LearningSets(learning, choosing, judging)


def with_rare_positives(stored: Predictions, set_size: int, generator: Generator) -> Predictions:
    """One stored set, of which every other time some positives are left out.

    What a metric makes of an error depends on how rare the positives are, and a few data sets show a few rates.
    """
    share = float(torch.rand((), generator=generator) * math.log(SMALLEST_SHARE_OF_POSITIVES))
    is_left_out = (stored.targets[0] == 1) & (torch.rand(stored.set_size, generator=generator) > math.exp(share))
    if bool(torch.rand((), generator=generator) < 0.5) or int((~is_left_out).sum()) < 2 * set_size:
        return stored
    return Predictions(stored.outputs[:, ~is_left_out], stored.targets[:, ~is_left_out])


def in_words(stored: Mapping[str, Predictions], num_random_sets: int) -> str:
    words = [f"{where} ({predictions.num_sets} stored sets)" for where, predictions in stored.items()]
    return " and ".join([", ".join(words), "random sets"] if words and num_random_sets else words or ["random sets"])
