"""Words against Python's integers of any size."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from lossmith.metrics.bits import WORD_BITS, add, bit_range, count_bits, lowest_bit, shift_up

WIDTHS = (1, WORD_BITS - 1, WORD_BITS, WORD_BITS + 1, 2 * WORD_BITS, 3 * WORD_BITS + 5)


def to_words(numbers: list[int], width: int) -> Tensor:
    offsets = range(0, width, WORD_BITS)
    mask = (1 << WORD_BITS) - 1
    return torch.tensor([[number >> offset & mask for number in numbers] for offset in offsets], dtype=torch.int32)


def to_numbers(words: Tensor, width: int) -> list[int]:
    mask = (1 << WORD_BITS) - 1
    numbers = [sum((word & mask) << WORD_BITS * i for i, word in enumerate(column)) for column in words.T.tolist()]
    return [number % (1 << width) for number in numbers]


@pytest.fixture
def draw() -> random.Random:
    return random.Random(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_arithmetic_is_that_of_integers(width: int, draw: random.Random) -> None:
    full = (1 << width) - 1
    left = [0, 0, full, full, *(draw.getrandbits(width) for _ in range(50))]
    right = [0, full, 1, full, *(draw.getrandbits(width) for _ in range(50))]
    left_words, right_words = to_words(left, width), to_words(right, width)
    assert to_numbers(add(left_words, right_words), width) == [(a + b) & full for a, b in zip(left, right)]
    # bits above the 30, as `~` leaves them, do no harm
    assert to_numbers(add(~left_words, right_words), width) == [(~a & full) + b & full for a, b in zip(left, right)]
    low = torch.tensor([draw.getrandbits(1) for _ in left], dtype=torch.int32)
    assert to_numbers(shift_up(~left_words, low), width) == [((~a << 1) | b) & full for a, b in zip(left, low.tolist())]
    assert to_numbers(lowest_bit(left_words), width) == [a & -a for a in left]
    assert count_bits(left_words).tolist() == [a.bit_count() for a in left]


@pytest.mark.parametrize("width", WIDTHS)
def test_bit_range(width: int) -> None:
    starts = torch.arange(width + 1)
    assert to_numbers(bit_range(starts, width), width + 1) == [
        (1 << width) - (1 << start) for start in range(width + 1)
    ]
