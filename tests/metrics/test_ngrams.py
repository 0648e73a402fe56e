from __future__ import annotations

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from torch.testing import assert_close
from torchmetrics.functional.text import bleu_score

from lossmith.metrics.ngrams import Smoothing, corpus_bleu
from tests.metrics.test_sequences import Sequences, pad

SMOOTHINGS: tuple[Smoothing, ...] = ("exp", "floor", "add-k", "none")

# name -> hypotheses, references
EDGES: dict[str, tuple[Sequences, Sequences]] = {
    "equal": ([[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5]]),
    "repeats are clipped": ([[7, 7, 7, 7, 7, 7, 7]], [[7, 8, 7, 9, 4, 3, 2]]),
    "no common token": ([[1, 2, 3, 4]], [[5, 6, 7, 8]]),
    "no common bigram": ([[1, 9, 2, 8, 3]], [[1, 2, 3, 4, 5]]),
    "shorter than four tokens": ([[1, 2], [3]], [[1, 2], [3]]),
    "one token": ([[1]], [[1]]),
    "too short": ([[1, 2, 3, 4]], [[1, 2, 3, 4, 5, 6, 7, 8, 9]]),
    "too long": ([[1, 2, 3, 4, 5, 6, 7, 8, 9]], [[1, 2, 3, 4]]),
    "an empty hypothesis": ([[], [1, 2, 3, 4, 5]], [[1, 2, 3], [1, 2, 3, 4, 5]]),
    "an empty reference": ([[1, 2, 3], [1, 2, 3, 4, 5]], [[], [1, 2, 3, 4, 5]]),
    "only empty hypotheses": ([[], []], [[1, 2], [3]]),
    "only empty references": ([[1, 2], [3]], [[], []]),
    "nothing at all": ([[]], [[]]),
}


def as_text(sequences: Sequences) -> list[str]:
    return [" ".join(map(str, each)) for each in sequences]


def check(hypotheses: Sequences, references: Sequences, max_order: int, smoothing: Smoothing) -> None:
    oracle = BLEU(tokenize="none", smooth_method=smoothing, max_ngram_order=max_order, force=True)
    expected = oracle.corpus_score(as_text(hypotheses), [as_text(references)]).score / 100
    value = corpus_bleu(pad(hypotheses, references), max_order=max_order, smoothing=smoothing)
    assert value.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("max_order", [1, 2, 4, 6])
@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, max_order: int, smoothing: Smoothing) -> None:
    check(*EDGES[name], max_order, smoothing)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("vocabulary", [3, 40, 1000])
def test_random_sets(vocabulary: int, smoothing: Smoothing, generator: torch.Generator) -> None:
    for size in (1, 2, 5, 32):
        references, noise = torch.randint(vocabulary, (2, size, 20), generator=generator)
        hypotheses = references.where(torch.rand(size, 20, generator=generator) < 0.7, noise)
        lengths = torch.randint(21, (2, size), generator=generator).tolist()
        cut = [[ids[:n] for ids, n in zip(of.tolist(), ns)] for of, ns in zip((hypotheses, references), lengths)]
        check(cut[0], cut[1], 4, smoothing)


def test_without_smoothing_equal_to_torchmetrics() -> None:
    hypotheses, references = [[1, 2, 3, 4, 5, 6], [4, 4, 5]], [[1, 2, 3, 4, 6, 6], [4, 5, 5, 5]]
    expected = bleu_score(as_text(hypotheses), [[each] for each in as_text(references)])
    assert_close(corpus_bleu(pad(hypotheses, references), smoothing="none"), expected)
