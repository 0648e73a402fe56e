"""Metrics over a stack of sets, against one call of the peer per set: how many times as fast.

    python benchmarks/metrics.py [--json]

Every comparison first checks that both give the same values. To add rows: a function that returns them, and its name
in ``GROUPS``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torchmetrics.functional.classification as peer
from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics.bleu import BLEU
from timing import Row, best_seconds_of, report
from torch import Tensor
from torchmetrics.functional.retrieval import retrieval_normalized_dcg
from torchmetrics.functional.text import rouge_score

from lossmith.metrics import binary, multiclass, ranking
from lossmith.metrics.ngrams import corpus_bleu
from lossmith.metrics.sequences import TokenPairs, common_subsequence_lengths, edit_distances, overlap_f_beta
from lossmith.vocabulary import Metric

NUM_SETS, SET_SIZE, NUM_CLASSES = 256, 128, 10


def compare(
    name: str, metric: Metric, one_set: Callable[..., Tensor], outputs: Tensor, targets: Tensor, *, bar: float | None
) -> Row:
    """``one_set`` is what a user calls in a loop over the sets."""

    def ours() -> Tensor:
        return metric.value(outputs, targets)

    def loop() -> Tensor:
        return torch.stack([one_set(scores, truth) for scores, truth in zip(outputs, targets)])

    torch.testing.assert_close(ours(), loop(), rtol=0, atol=1e-5)
    our_seconds, loop_seconds = best_seconds_of([ours, loop], max_calls=40)
    note = f"{our_seconds * 1e3:.2f} ms against {loop_seconds * 1e3:.1f} ms"
    return Row(name, loop_seconds / our_seconds, "times as fast", bar, note=note)


def binary_sets() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(NUM_SETS, SET_SIZE, generator=generator) < 0.3).long()
    return torch.randn(NUM_SETS, SET_SIZE, generator=generator) + targets, targets


def binary_rows() -> list[Row]:
    """The peer as users call it, and without its checks of the input."""
    outputs, targets = binary_sets()
    pairs = (
        (binary.binary_accuracy(), peer.binary_accuracy, 50),
        (binary.f1(), peer.binary_f1_score, 50),
        (binary.mcc(), peer.binary_matthews_corrcoef, 50),
        (binary.jaccard(), peer.binary_jaccard_index, 50),
        (binary.auc(), peer.binary_auroc, 20),
        (binary.ap(), peer.binary_average_precision, 20),
    )
    rows = []
    for metric, function, bar in pairs:

        def unchecked(outputs: Tensor, targets: Tensor, function: Callable[..., Tensor] = function) -> Tensor:
            return function(outputs, targets, validate_args=False)

        rows.append(compare(metric.name, metric, function, outputs, targets, bar=bar))
        rows.append(compare(f"{metric.name}, peer unchecked", metric, unchecked, outputs, targets, bar=None))
    return rows


def multiclass_rows() -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(NUM_CLASSES, (NUM_SETS, SET_SIZE), generator=generator)
    outputs = torch.randn(NUM_SETS, SET_SIZE, NUM_CLASSES, generator=generator)

    def micro(outputs: Tensor, targets: Tensor, validate_args: bool = True) -> Tensor:
        return peer.multiclass_accuracy(outputs, targets, NUM_CLASSES, average="micro", validate_args=validate_args)

    def unchecked(outputs: Tensor, targets: Tensor) -> Tensor:
        return micro(outputs, targets, validate_args=False)

    metric = multiclass.accuracy()
    return [
        compare(metric.name, metric, micro, outputs, targets, bar=8),
        compare(f"{metric.name}, peer unchecked", metric, unchecked, outputs, targets, bar=None),
    ]


def ranking_rows() -> list[Row]:
    """One query per set: its first 10 positions, the default of METRICS, and all of them, which takes a full sort."""
    outputs, targets = (each[:, None] for each in binary_sets())

    def first_ten(scores: Tensor, relevance: Tensor) -> Tensor:
        return retrieval_normalized_dcg(scores[0], relevance[0], top_k=10)

    def all_positions(scores: Tensor, relevance: Tensor) -> Tensor:
        return retrieval_normalized_dcg(scores[0], relevance[0])

    return [
        compare("ndcg", ranking.ndcg(), first_ten, outputs, targets, bar=20),
        compare("ndcg, all positions", ranking.ndcg(k=SET_SIZE), all_positions, outputs, targets, bar=20),
    ]


def token_rows() -> list[Row]:
    """64 sets of 32 sequences of 24 ids, half of them right. The peers get words, lists or strings made beforehand."""
    generator = torch.Generator().manual_seed(0)
    references, others = torch.randint(1000, (2, 64, 32, 24), generator=generator)
    hypotheses = references.where(torch.rand(references.shape, generator=generator) < 0.5, others)
    lengths = torch.full(references.shape[:2], 24.0)
    pairs = TokenPairs(hypotheses, references, lengths, lengths)
    words = [
        [[" ".join(map(str, ids)) for ids in one_set] for one_set in each.tolist()] for each in (hypotheses, references)
    ]
    lists = [each.flatten(0, 1).tolist() for each in (hypotheses, references)]
    # ids as characters, which rapidfuzz need not hash
    strings = [["".join(chr(0x1000 + token) for token in ids) for ids in each] for each in lists]
    sacrebleu = BLEU(tokenize="none", force=True)

    def rouge_l() -> Tensor:
        return overlap_f_beta(common_subsequence_lengths(pairs), lengths, lengths).mean(-1)

    def distances() -> Tensor:
        return edit_distances(pairs).flatten()

    comparisons: tuple[tuple[str, Callable[[], Tensor], Callable[[], list[float]], float | None], ...] = (
        (
            "bleu, sacrebleu",
            lambda: corpus_bleu(pairs),
            lambda: [sacrebleu.corpus_score(left, [right]).score / 100 for left, right in zip(*words)],
            10,
        ),
        (
            "rouge_l, torchmetrics",
            rouge_l,
            lambda: [rouge_score(*each, rouge_keys="rougeL")["rougeL_fmeasure"].item() for each in zip(*words)],
            10,
        ),
        (
            "edit_distance, rapidfuzz on lists of ids",
            distances,
            lambda: [Levenshtein.distance(left, right) for left, right in zip(*lists)],
            1,
        ),
        (
            "edit_distance, rapidfuzz on strings",
            distances,
            lambda: [Levenshtein.distance(left, right) for left, right in zip(*strings)],
            None,
        ),
    )
    rows = []
    for name, ours, loop, bar in comparisons:
        torch.testing.assert_close(ours(), torch.tensor(loop(), dtype=torch.float32), rtol=0, atol=1e-6)
        our_seconds, loop_seconds = best_seconds_of([ours, loop], max_calls=10 if bar == 10 else 200)
        note = f"{our_seconds * 1e3:.2f} ms against {loop_seconds * 1e3:.1f} ms"
        rows.append(Row(name, loop_seconds / our_seconds, "times as fast", bar, note=note))
    return rows


GROUPS: tuple[Callable[[], list[Row]], ...] = (binary_rows, multiclass_rows, ranking_rows, token_rows)


def measure() -> list[Row]:
    return [row for group in GROUPS for row in group()]


if __name__ == "__main__":
    report(measure, "Metrics over stacks of sets against the peer in a loop.")
