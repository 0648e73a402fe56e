"""Metrics of token sequences: outputs ``[N, T, V]`` scores, targets ``[N, T]`` ids, -100 for what is left out.

A model's hypothesis is the best token at every position. Where it ends:

- by default where its target does: it has the positions whose target is not left out, as for models that emit all
  positions at once and know the length;
- with ``end_token``, before its first end token. It may then be shorter than its reference, or go on behind it; the
  reference ends before its own end token.

A sequence with nothing but -100 is left out of its set; a set of such sequences is NaN.

>>> import torch
>>> targets = torch.tensor([[5, 6, 9, -100, -100]])
>>> outputs = 4.0 * torch.nn.functional.one_hot(torch.tensor([[5, 6, 7, 8, 9]]), 10)
>>> edit_distance()(outputs, targets), edit_distance(end_token=9)(outputs, targets)  # 567 and 569, 5678 and 56
(tensor(1.), tensor(2.))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor

from lossmith.metrics.counts import check_beta, ratio, value_dtype
from lossmith.metrics.ngrams import Smoothing, corpus_bleu
from lossmith.metrics.sequences import (
    TokenPairs,
    common_subsequence_lengths,
    count_common_ngrams,
    edit_distances,
    overlap_f_beta,
)
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric


def bleu(*, max_order: int = 4, smoothing: Smoothing = "exp", end_token: int | None = None) -> Metric:
    """Corpus BLEU of the set, from 0 to 1; n-grams are counted over all sequences before any ratio is taken.

    The default smoothing is sacrebleu's, because that is the BLEU people report; it only shows in sets so small that
    an order of n-grams has no match, as training batches often are. torchmetrics does not smooth by default.
    """
    if max_order < 1:
        raise ValueError(f"max_order={max_order}; the longest n-grams have 1 token or more.")
    if smoothing not in get_args(Smoothing):
        raise ValueError(f"smoothing={smoothing!r} is unknown; {', '.join(get_args(Smoothing))} work.")

    def score(pairs: TokenPairs) -> Tensor:
        return corpus_bleu(pairs, max_order=max_order, smoothing=smoothing)

    return _of_pairs("bleu", score, end_token)


def rouge_l(*, beta: float = 1.0, end_token: int | None = None) -> Metric:
    """Mean over sequences of the F-beta of their longest common subsequence; an empty sequence scores 0."""
    check_beta(beta)

    def score(pairs: TokenPairs) -> Tensor:
        common = common_subsequence_lengths(pairs)
        return overlap_f_beta(common, pairs.hypothesis_lengths, pairs.reference_lengths, beta=beta)

    return _mean_of_pairs("rouge_l", score, end_token)


def bag_f1(*, end_token: int | None = None) -> Metric:
    """Mean over sequences of the F1 of their tokens without order, each as often as it is there: SQuAD's F1 on ids.

    Two empty sequences agree: 1.
    """

    def score(pairs: TokenPairs) -> Tensor:
        (common,) = count_common_ngrams(pairs, max_order=1)
        return overlap_f_beta(common, pairs.hypothesis_lengths, pairs.reference_lengths, undefined=1.0)

    return _mean_of_pairs("bag_f1", score, end_token)


def edit_distance(*, end_token: int | None = None) -> Metric:
    """Total over the set of the Levenshtein distances, the TED of scene text recognition; lower is better.

    Grows with the set: compare sets of one size.
    """

    def score(pairs: TokenPairs) -> Tensor:
        return edit_distances(pairs).sum(-1)

    return _of_pairs("edit_distance", score, end_token, higher_is_better=False)


def normalized_edit_distance(*, end_token: int | None = None) -> Metric:
    """Mean over sequences of the Levenshtein distance over the length of the longer of the two; lower is better.

    Two empty sequences are equal: 0. Scene text recognition often reports 1 minus this as NED.
    """

    def score(pairs: TokenPairs) -> Tensor:
        longer = torch.maximum(pairs.hypothesis_lengths, pairs.reference_lengths)
        return ratio(edit_distances(pairs), longer)

    return _mean_of_pairs("normalized_edit_distance", score, end_token, higher_is_better=False)


def token_accuracy() -> Metric:
    """Share of the positions that have the right token, over all sequences of the set."""

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        is_right = (outputs.argmax(-1) == targets).to(value_dtype(outputs))
        return is_right.where(targets != IGNORE_INDEX, torch.nan).flatten(1).nanmean(-1)

    return Metric("token_accuracy", Kind.TOKENS, value)


def read_pairs(outputs: Tensor, targets: Tensor, *, end_token: int | None = None) -> TokenPairs:
    """Scores ``[..., T, V]`` and targets ``[..., T]`` as pairs; where all targets are left out, both are empty."""
    hypotheses = outputs.argmax(-1)
    is_reference = is_hypothesis = targets != IGNORE_INDEX
    if end_token is not None:
        comes_later = is_reference.flip(-1).cumsum(-1).flip(-1) > 0
        is_behind = ~comes_later & is_reference.any(-1, keepdim=True)
        is_hypothesis = _until_end(hypotheses, is_reference | is_behind, end_token)
        is_reference = _until_end(targets, is_reference, end_token)
    lengths = (is_token.sum(-1).to(value_dtype(outputs)) for is_token in (is_hypothesis, is_reference))
    return TokenPairs(_close_gaps(hypotheses, is_hypothesis), _close_gaps(targets, is_reference), *lengths)


def _until_end(ids: Tensor, is_token: Tensor, end_token: int) -> Tensor:
    return is_token & ((is_token & (ids == end_token)).cumsum(-1) == 0)


def _close_gaps(ids: Tensor, is_token: Tensor) -> Tensor:
    """The tokens move to the front of their row."""
    num_positions = ids.shape[-1]
    place = (is_token.cumsum(-1) - 1).where(is_token, num_positions)
    rows = torch.zeros_like(ids[..., :1]).expand(*ids.shape[:-1], num_positions + 1)
    return rows.scatter(-1, place, ids)[..., :-1]


def _of_pairs(
    name: str, score: Callable[[TokenPairs], Tensor], end_token: int | None, *, higher_is_better: bool = True
) -> Metric:
    """``score`` takes pairs ``[S, N]`` and gives ``[S]``."""

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        has_pairs = (targets != IGNORE_INDEX).flatten(1).any(-1)
        return score(read_pairs(outputs, targets, end_token=end_token)).where(has_pairs, torch.nan)

    return Metric(name, Kind.TOKENS, value, higher_is_better)


def _mean_of_pairs(
    name: str, score: Callable[[TokenPairs], Tensor], end_token: int | None, *, higher_is_better: bool = True
) -> Metric:
    """``score`` takes pairs ``[S, N]`` and gives ``[S, N]``."""

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        is_kept = (targets != IGNORE_INDEX).any(-1)
        return score(read_pairs(outputs, targets, end_token=end_token)).where(is_kept, torch.nan).nanmean(-1)

    return Metric(name, Kind.TOKENS, value, higher_is_better)


TABLE: dict[str, Metric] = {
    "bleu": bleu(),
    "rouge_l": rouge_l(),
    "bag_f1": bag_f1(),
    "edit_distance": edit_distance(),
    "normalized_edit_distance": normalized_edit_distance(),
    "token_accuracy": token_accuracy(),
}
