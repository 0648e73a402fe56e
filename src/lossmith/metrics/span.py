"""Metrics of spans of a text: outputs ``[N, T, 2]`` scores of start and end, targets ``[N, 2]`` their positions.

The predicted span is the best legal one: the pair of a start and an end, not before it and at most ``max_length``
positions long, with the highest sum of scores. Of equal sums the earliest end wins, then the earliest start. An example
with a target of -100 is left out; a set of such examples is NaN. Positions stand for themselves: where a word occurs
twice in a text, these metrics tell its places apart, and those of strings (:mod:`lossmith.metrics.text`) do not.

>>> import torch
>>> starts, ends = torch.tensor([[0.0, 2.0, 0.0, 3.0], [3.5, 0.0, 2.0, 0.0]])
>>> outputs = torch.stack([starts, ends], -1)[None]  # start 3 with end 0 is no span: the best is 1 to 2
>>> exact_match()(outputs, torch.tensor([[1, 3]])), token_f1()(outputs, torch.tensor([[1, 3]]))
(tensor(0.), tensor(0.8000))
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lossmith.metrics.counts import check_beta, value_dtype
from lossmith.metrics.sequences import overlap_f_beta
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric

# predicted and true spans, two of [S, N, 2] -> [S, N]
SpanScore = Callable[[Tensor, Tensor], Tensor]


def exact_match(*, max_length: int | None = None) -> Metric:
    """Share of the examples whose predicted span is the true one."""

    def score(predicted: Tensor, actual: Tensor) -> Tensor:
        return (predicted == actual).all(-1)

    return _mean_of_spans("exact_match", score, max_length)


def token_f1(*, max_length: int | None = None) -> Metric:
    """Mean over examples of the F1 between the positions of the predicted and of the true span."""
    return _mean_of_spans("token_f1", _overlap_score(beta=1.0), max_length)


def span_rouge_l(*, beta: float = 1.2, max_length: int | None = None) -> Metric:
    """Mean over examples of the ROUGE-L of the two spans; recall counts ``beta`` times as much as precision.

    The longest common subsequence of two intervals of one text is their overlap, position by position: with ``beta=1``
    this is :func:`token_f1`. 1.2 is the value of the scripts of DuReader and MS MARCO.
    """
    check_beta(beta)
    return _mean_of_spans("span_rouge_l", _overlap_score(beta=beta), max_length)


def best_span(outputs: Tensor, *, max_length: int | None = None) -> Tensor:
    """Scores ``[..., N, T, 2]`` to the first and last position ``[..., N, 2]`` of the best legal span."""
    starts, ends = outputs.to(value_dtype(outputs)).unbind(-1)
    num_positions = starts.shape[-1]
    if max_length is None or max_length >= num_positions:
        max_length = num_positions
        best_start = starts.cummax(-1).values
    else:
        best_start = F.max_pool1d(F.pad(starts, (max_length - 1, 0), value=-torch.inf), max_length, stride=1)
    end = (best_start + ends).argmax(-1, keepdim=True)
    positions = torch.arange(num_positions, device=outputs.device)
    is_legal = (positions <= end) & (positions > end - max_length)
    start = starts.where(is_legal, -torch.inf).argmax(-1, keepdim=True)
    return torch.cat((start, end), -1)


def _overlap_score(beta: float) -> SpanScore:
    def score(predicted: Tensor, actual: Tensor) -> Tensor:
        (first, last), (true_first, true_last) = predicted.unbind(-1), actual.unbind(-1)
        overlap = (torch.minimum(last, true_last) - torch.maximum(first, true_first) + 1).clamp(min=0)
        return overlap_f_beta(overlap, last - first + 1, true_last - true_first + 1, beta=beta)

    return score


def _mean_of_spans(name: str, score: SpanScore, max_length: int | None) -> Metric:
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length}; a span has 1 position or more.")

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        is_kept = (targets != IGNORE_INDEX).all(-1)
        # positions in 16 bits would be summed in 16 bits
        actual = targets.to(value_dtype(outputs))
        scores = score(best_span(outputs, max_length=max_length), actual).to(actual.dtype)
        return scores.where(is_kept, torch.nan).nanmean(-1)

    return Metric(name, Kind.SPAN, value)


TABLE: dict[str, Metric] = {"exact_match": exact_match(), "token_f1": token_f1(), "span_rouge_l": span_rouge_l()}
