from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import LCSseq, Levenshtein
from torch import Tensor

from lossmith.metrics.sequences import TokenPairs, common_subsequence_lengths, count_common_ngrams, edit_distances

Sequences = list[list[int]]


def pad(hypotheses: Sequences, references: Sequences, *, padding: int = 1) -> TokenPairs:
    """Padding is a token that occurs: it must not be read."""

    def rows(sequences: Sequences) -> Tensor:
        width = max(1, *map(len, sequences)) + padding
        return torch.tensor([each + [1] * (width - len(each)) for each in sequences])

    lengths = (torch.tensor([len(each) for each in sequences]) for sequences in (hypotheses, references))
    return TokenPairs(rows(hypotheses), rows(references), *lengths)


def ngrams(sequence: list[int], order: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sequence[i : i + order]) for i in range(len(sequence) - order + 1))


def check_against_oracles(hypotheses: Sequences, references: Sequences) -> None:
    pairs = pad(hypotheses, references)
    both = list(zip(hypotheses, references))
    assert edit_distances(pairs).tolist() == [Levenshtein.distance(*pair) for pair in both]
    assert common_subsequence_lengths(pairs).tolist() == [LCSseq.similarity(*pair) for pair in both]
    for order, counts in enumerate(count_common_ngrams(pairs, max_order=4).tolist(), start=1):
        assert counts == [(ngrams(left, order) & ngrams(right, order)).total() for left, right in both]


# few different tokens, so that n-grams repeat and counts are clipped
sequences = st.lists(st.integers(0, 3), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(sequences, sequences), min_size=1, max_size=5))
def test_equal_to_the_oracles(pairs: list[tuple[list[int], list[int]]]) -> None:
    hypotheses, references = map(list, zip(*pairs))
    check_against_oracles(hypotheses, references)


# around one word of 30 bits, and several
@pytest.mark.parametrize("max_length", [1, 24, 28, 29, 30, 58, 59, 60, 130])
@pytest.mark.parametrize("vocabulary", [2, 5, 1000])
def test_equal_to_the_oracles_at_any_length(max_length: int, vocabulary: int, generator: torch.Generator) -> None:
    def draw(count: int, shortest: int) -> Sequences:
        lengths = torch.randint(shortest, max_length + 1, (count,), generator=generator).tolist()
        return [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths]

    references = draw(40, 0)
    # an unrelated hypothesis, and one that shares much with its reference
    edited = [reference[2:] + other[:2] for reference, other in zip(references, draw(40, 0))]
    check_against_oracles(draw(40, max_length) + edited, references + references)


def test_leading_dimensions_and_types(generator: torch.Generator) -> None:
    hypotheses, references = torch.randint(6, (2, 3, 4, 9), generator=generator)
    lengths = torch.randint(10, (2, 3, 4), generator=generator)
    pairs = TokenPairs(hypotheses, references, lengths[0].double(), lengths[1].double())
    distances = edit_distances(pairs)
    assert distances.shape == (3, 4)
    assert distances.dtype == torch.float64
    assert count_common_ngrams(pairs, max_order=2).shape == (2, 3, 4)
    one_by_one = [edit_distances(TokenPairs(h, r, *n)) for h, r, n in zip(hypotheses, references, lengths.unbind(1))]
    assert torch.equal(distances, torch.stack(one_by_one).double())


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "function", [edit_distances, common_subsequence_lengths, lambda p: count_common_ngrams(p, max_order=3)[2]]
)
def test_works_under_vmap(function: Callable[[TokenPairs], Tensor], generator: torch.Generator) -> None:
    """Hypotheses alone are vectorised, as when decisions of a model are tried out."""
    hypotheses = torch.randint(3, (4, 5, 9), generator=generator)
    references = torch.randint(3, (5, 9), generator=generator)
    lengths = torch.randint(10, (2, 5), generator=generator)
    values = torch.vmap(lambda ids: function(TokenPairs(ids, references, *lengths)))(hypotheses)
    assert torch.equal(values, torch.stack([function(TokenPairs(ids, references, *lengths)) for ids in hypotheses]))


def test_distances_do_not_disturb_autograd() -> None:
    """A metric's value is often a factor in a loss: it must not be an inference tensor."""
    length = torch.tensor([2])
    distance = edit_distances(TokenPairs(torch.tensor([[1, 2]]), torch.tensor([[3, 4]]), length, length))
    weight = torch.ones(1, requires_grad=True)
    (weight * distance).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0]
