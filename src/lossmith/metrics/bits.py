"""Sets of positions as bits of integers: one operation on a word handles 30 positions of every sequence at once.

*Words* ``[W, ...]`` hold ``30 * W`` bits, the lowest word first. They are int32, the fastest integer on a CPU, and use
30 bits of it so that a sum of two words keeps its carry. What stands above the 30 bits is undefined until it is masked.

>>> import torch
>>> words = bit_range(torch.tensor([1, 28]), 32)  # positions 1 to 31, and 28 to 31: two words each
>>> count_bits(words), count_bits(lowest_bit(words))
(tensor([31,  4]), tensor([1, 1]))
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD_BITS = 30
_ALL_BITS = (1 << WORD_BITS) - 1


def bit_range(start: Tensor, stop: int) -> Tensor:
    """``start`` ``[...]`` to words ``[W, ...]`` in which the bits from ``start`` to ``stop - 1`` are set."""
    offsets = torch.arange(0, max(stop, 1), WORD_BITS, device=start.device).view(-1, *(1 for _ in start.shape))
    one = torch.ones((), dtype=torch.int32, device=start.device)
    below_start, below_stop = (one << (end - offsets).clamp(0, WORD_BITS).int() for end in (start, stop))
    return below_stop - below_start


def add(left: Tensor, right: Tensor) -> Tensor:
    if left.shape[0] == 1:
        return left + right  # what is carried out of the last word is never read
    words = []
    carry = torch.zeros_like(left[0])
    for left_word, right_word in zip(left & _ALL_BITS, right & _ALL_BITS):
        total = left_word + right_word + carry
        words.append(total)
        carry = total >> WORD_BITS
    return torch.stack(words)


def shift_up(words: Tensor, lowest: Tensor) -> Tensor:
    """Every bit moves one position up; ``lowest``, 0 or 1, becomes the first."""
    if words.shape[0] == 1:
        return torch.add(lowest, words, alpha=2)
    carries = torch.cat((lowest.expand_as(words[:1]), words[:-1] >> (WORD_BITS - 1) & 1))
    return torch.add(carries, words, alpha=2)


def lowest_bit(words: Tensor) -> Tensor:
    """The lowest of the bits that are set, alone; the words come masked."""
    lowest = words & -words
    if words.shape[0] == 1:
        return lowest
    return lowest * ((words != 0).cumsum(0) <= 1)  # that of the first word which has any


def count_bits(words: Tensor) -> Tensor:
    """``[W, ...]`` to ``[...]``: how many bits are set, by adding neighbours, pairs of neighbours, and so on."""
    words = words & _ALL_BITS
    words = words - (words >> 1 & 0x55555555)
    words = (words & 0x33333333) + (words >> 2 & 0x33333333)
    words = words + (words >> 4) & 0x0F0F0F0F
    words = words + (words >> 8)
    return (words + (words >> 16) & 0x3F).sum(0)
