from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import LCSseq
from torch import Tensor
from torch.testing import assert_close

from lossmith.metrics import span
from lossmith.vocabulary import IGNORE_INDEX, Kind
from tests.metrics.samples import sample


def best_of_all(starts: list[float], ends: list[float], max_length: int | None) -> list[int]:
    """Every legal span, tried out; of equal ones the earliest end, then the earliest start."""
    positions = range(len(starts))
    legal = [(e, s) for e, s in product(positions, positions) if s <= e and e - s < (max_length or len(starts))]
    end, start = max(legal, key=lambda pair: starts[pair[1]] + ends[pair[0]])
    return [start, end]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=9),
    st.one_of(st.none(), st.integers(1, 11)),
)
def test_best_span(scores: list[tuple[float, float]], max_length: int | None) -> None:
    outputs = torch.tensor(scores, dtype=torch.float32)
    starts, ends = map(list, zip(*scores))
    assert span.best_span(outputs[None], max_length=max_length)[0].tolist() == best_of_all(starts, ends, max_length)


def expected_scores(predicted: list[int], actual: list[int]) -> dict[str, float]:
    """The published definitions on lists of positions."""
    left, right = (list(range(first, last + 1)) for first, last in (predicted, actual))
    same = len(set(left) & set(right))
    common = LCSseq.similarity(left, right)
    precision, recall = common / len(left), common / len(right)
    # as in the ROUGE-L of the scripts of DuReader and MS MARCO
    rouge = (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision) if common else 0.0
    return {
        "exact_match": float(predicted == actual),
        "token_f1": 2 * same / (len(left) + len(right)),
        "span_rouge_l": rouge,
    }


@pytest.mark.parametrize("set_size", [1, 24])
@pytest.mark.parametrize("name", span.TABLE)
def test_equal_to_the_definition(name: str, set_size: int, generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.SPAN, set_size=set_size, generator=generator)
    if set_size > 1:
        targets[:, 3] = IGNORE_INDEX
        targets[:, 5, 1] = IGNORE_INDEX  # half a target is none
    metric = span.TABLE[name]
    values = metric.value(outputs, targets)
    for value, one_outputs, one_targets in zip(values, outputs, targets):
        scores = [
            expected_scores(best_of_all(*each.T.tolist(), None), target.tolist())[name]
            for each, target in zip(one_outputs, one_targets)
            if IGNORE_INDEX not in target
        ]
        assert value.item() == pytest.approx(sum(scores) / len(scores), abs=1e-6)


def scores_of(spans: list[list[int]], num_positions: int = 8) -> Tensor:
    """Scores whose best spans are these."""
    return 5.0 * torch.nn.functional.one_hot(torch.tensor(spans), num_positions).mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_worked_by_hand(dtype: torch.dtype) -> None:
    outputs = scores_of([[2, 5], [0, 0], [1, 2]]).to(dtype)
    targets = torch.tensor([[2, 5], [0, 3], [6, 7]])
    assert span.exact_match()(outputs, targets).item() == pytest.approx(1 / 3)
    assert span.token_f1()(outputs, targets).item() == pytest.approx((1 + 2 / 5 + 0) / 3)
    assert_close(span.span_rouge_l(beta=1.0)(outputs, targets), span.token_f1()(outputs, targets))
    assert span.token_f1()(outputs, targets).dtype == torch.promote_types(dtype, torch.float32)


def test_targets_in_sixteen_bits_change_nothing(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.SPAN, generator=generator, ignored_share=0.2)
    for metric in span.TABLE.values():
        assert_close(metric.value(outputs, targets.half()), metric.value(outputs, targets), rtol=0, atol=0)


def test_max_length() -> None:
    outputs = scores_of(
        [[2, 5]]
    )  # no span of at most 3 has both ends: start 2 alone, end 5 alone, the earlier end wins
    assert span.best_span(outputs, max_length=3).tolist() == [[2, 2]]
    assert span.exact_match(max_length=3)(outputs, torch.tensor([[2, 2]])).item() == 1
    with pytest.raises(ValueError, match="max_length=0"):
        span.exact_match(max_length=0)


def test_a_target_that_runs_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="a target starts at 4 and ends at 3; start <= end works"):
        span.exact_match()(scores_of([[2, 5]]), torch.tensor([[4, 3]]))
