"""Pairs of token sequences, compared without a loop over pairs: common subsequence, edit distance, common n-grams.

Everything starts from one table of bits, which says where the tokens of a pair are equal. The classical dynamic
programs then handle a whole column of their table in a few operations on words, for all pairs at once: 2,048 pairs of
24 tokens take about a millisecond.

The programs read both sequences from the end, which changes none of the numbers and brings the padding to the front,
where it leaves the edge of the table as it was.

Shape legend: ``T`` positions, ``P`` pairs (all leading dimensions in one), ``W`` words (see ``bits.py``).

>>> import torch
>>> pairs = TokenPairs(torch.tensor([[5, 6, 7, 8]]), torch.tensor([[6, 7, 8, 0]]), torch.tensor([4]), torch.tensor([3]))
>>> common_subsequence_lengths(pairs), edit_distances(pairs)
(tensor([3]), tensor([1]))
>>> count_common_ngrams(pairs, max_order=2)
tensor([[3],
        [2]])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lossmith.metrics.bits import WORD_BITS, add, bit_range, count_bits, lowest_bit, shift_up
from lossmith.metrics.counts import ratio


@dataclass(frozen=True)
class TokenPairs:
    """Token ids ``[..., T]``, each sequence at the front of its row; what stands behind its length is not read.

    Results have the type of the lengths ``[...]``: integer or floating point.
    """

    hypotheses: Tensor
    references: Tensor
    hypothesis_lengths: Tensor
    reference_lengths: Tensor


def common_subsequence_lengths(pairs: TokenPairs) -> Tensor:
    """``[...]``: length of the longest common subsequence (Hyyrö 2004)."""
    equal, _, is_reference = _compare(pairs)
    is_flat = is_reference  # where the table does not grow from the row before
    for equal_here in reversed(equal.unbind(1)):
        grows = is_flat & equal_here
        is_flat = add(is_flat, grows) | (is_flat - grows)
    return pairs.reference_lengths - count_bits(is_flat & is_reference).view_as(pairs.reference_lengths)


def edit_distances(pairs: TokenPairs) -> Tensor:
    """``[...]``: least number of insertions, deletions and substitutions (Levenshtein; Myers 1999, Hyyrö 2003).

    The bits are differences between neighbours in the table: down a column (vertical), along a row (horizontal).
    """
    # small integers, no gradient: what autograd adds to every operation would be a sixth of the time
    with torch.inference_mode():
        equal, is_hypothesis, is_reference = _compare(pairs)
        equal = (
            equal | (is_hypothesis - 1) & ~is_reference[:, None]
        )  # padding is equal to padding, and so costs nothing
        vertical_up = is_reference
        vertical_down = torch.zeros_like(is_reference)
        nothing = torch.zeros_like(is_hypothesis[0])
        for equal_here, is_token in zip(reversed(equal.unbind(1)), reversed(is_hypothesis.unbind())):
            equal_or_down = equal_here | vertical_down
            is_diagonal_flat = add(equal_or_down & vertical_up, vertical_up)
            is_diagonal_flat.bitwise_xor_(vertical_up).bitwise_or_(equal_or_down)
            horizontal_up = (is_diagonal_flat | vertical_up).bitwise_not_().bitwise_or_(vertical_down)
            # the edge of the table grows with every token of the hypothesis, and not with padding
            horizontal_up = shift_up(horizontal_up, is_token)
            horizontal_down = shift_up(is_diagonal_flat & vertical_up, nothing)
            vertical_up = (is_diagonal_flat | horizontal_up).bitwise_not_().bitwise_or_(horizontal_down)
            vertical_down = is_diagonal_flat & horizontal_up
        up, down = count_bits(torch.stack((vertical_up, vertical_down), 1) & is_reference[:, None]).unbind()
    return pairs.hypothesis_lengths + (up - down).view_as(pairs.hypothesis_lengths)


def count_common_ngrams(pairs: TokenPairs, *, max_order: int) -> Tensor:
    """``[max_order, ...]``: n-grams of the hypothesis that the reference has, each at most as often as it is there.

    Every n-gram of the hypothesis, in turn, takes an equal one of the reference that is not yet taken.
    """
    equal, _, is_reference = _compare(pairs)
    nothing = torch.zeros_like(equal[0])
    by_order = [equal]
    while len(by_order) < max_order:
        rest_is_equal = shift_up(F.pad(by_order[-1][:, 1:], (0, 0, 0, 1)), nothing)
        by_order.append(equal & rest_is_equal)
    is_free = is_reference[:, None].expand(-1, max_order, -1)
    for equal_here in torch.stack(by_order, 1).unbind(2):
        is_free = is_free ^ lowest_bit(equal_here & is_free)
    return pairs.reference_lengths - count_bits(is_free).view(max_order, *pairs.reference_lengths.shape)


def overlap_f_beta(
    common: Tensor, num_predicted: Tensor, num_actual: Tensor, *, beta: float = 1.0, undefined: float = 0.0
) -> Tensor:
    """F-beta of the precision ``common / num_predicted`` and the recall ``common / num_actual``."""
    weight = beta * beta
    return ratio((1 + weight) * common, num_predicted + weight * num_actual, undefined=undefined)


def _compare(pairs: TokenPairs) -> tuple[Tensor, Tensor, Tensor]:
    """Where tokens are equal ``[W, T, P]``, and what is a token: hypotheses 0 or 1 ``[T, P]``, references ``[W, P]``.

    In the words, positions of the reference count from the end of the row.
    """
    hypotheses, references = (
        ids.reshape(-1, ids.shape[-1]).t().to(torch.int32, memory_format=torch.contiguous_format)
        for ids in (pairs.hypotheses, pairs.references)
    )
    words = []
    for stop in range(len(references), 0, -WORD_BITS):
        word = torch.zeros_like(hypotheses)
        for token in references[max(0, stop - WORD_BITS) : stop]:
            # `eq_` and not `==`: into its own type it is vectorised, into bool it takes 6 times as long
            word = (hypotheses ^ token).eq_(0).add_(word, alpha=2)
        words.append(word)
    positions = torch.arange(len(hypotheses), dtype=torch.int32, device=hypotheses.device)
    is_hypothesis = (pairs.hypothesis_lengths.reshape(-1).int() - positions[:, None]).clamp(0, 1)
    is_reference = bit_range(len(references) - pairs.reference_lengths.reshape(-1).int(), len(references))
    return torch.stack(words) * is_hypothesis & is_reference[:, None], is_hypothesis, is_reference
