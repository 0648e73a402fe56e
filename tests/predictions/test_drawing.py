from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lossmith.predictions import draw_sets
from lossmith.vocabulary import Predictions


def stored(num_sets: int, num_rows: int) -> Predictions:
    """Every row is told by its number; targets hold the number of the set."""
    outputs = torch.arange(num_sets * num_rows, dtype=torch.float32).view(num_sets, num_rows)
    targets = torch.arange(num_sets)[:, None].expand(-1, num_rows)
    return Predictions(outputs, targets, torch.arange(num_sets) % 2 == 0)


@settings(deadline=None, max_examples=30)
@given(
    num_rows=st.integers(1, 40),
    share=st.floats(0, 1),
    num_stored=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_rows_of_one_stored_set_each_once(num_rows: int, share: float, num_stored: int, seed: int) -> None:
    set_size = max(1, round(share * num_rows))
    source = stored(num_stored, num_rows)
    drawn = draw_sets(source, num_sets=9, set_size=set_size, generator=torch.Generator().manual_seed(seed))
    assert drawn.outputs.shape == drawn.targets.shape == (9, set_size)
    for rows, numbers in zip(drawn.outputs, drawn.targets):
        assert len(rows.unique()) == set_size
        assert set((rows // num_rows).tolist()) == set(numbers.tolist())
        assert len(numbers.unique()) == 1
    assert drawn.is_held_out is not None
    assert torch.equal(drawn.is_held_out, drawn.targets[:, 0] % 2 == 0)


@pytest.mark.parametrize("set_size", [2, 4])  # drawn again where rows repeat, and by random keys
def test_every_choice_of_rows_is_as_likely(set_size: int, generator: torch.Generator) -> None:
    drawn = draw_sets(stored(1, 6), num_sets=30_000, set_size=set_size, generator=generator)
    choice = (2 ** drawn.outputs.long()).sum(1)
    _, counts = choice.unique(return_counts=True)
    assert len(counts) == 15  # 6 over 2, 6 over 4
    # 2000 expected, a standard deviation of 43
    assert counts.min() > 1800
    assert counts.max() < 2200


def test_same_seed_same_sets() -> None:
    first, second = (
        draw_sets(stored(3, 50), num_sets=5, set_size=7, generator=torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(first.outputs, second.outputs)


def test_all_rows_and_more_dimensions(generator: torch.Generator) -> None:
    predictions = Predictions(torch.randn(2, 5, 3, generator=generator), torch.randint(3, (2, 5), generator=generator))
    drawn = draw_sets(predictions, num_sets=4, set_size=5, generator=generator)
    assert drawn.outputs.shape == (4, 5, 3)
    for outputs, targets in zip(drawn.outputs, drawn.targets):
        source = next(s for s in range(2) if torch.equal(outputs, predictions.outputs[s]))
        assert torch.equal(targets, predictions.targets[source])


def test_plain_errors(generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match="set_size=9 rows without replacement cannot come from stored sets of 5 rows"):
        draw_sets(stored(2, 5), num_sets=1, set_size=9, generator=generator)
    with pytest.raises(ValueError, match="num_sets=0 and set_size=2 came; both are 1 or more"):
        draw_sets(stored(2, 5), num_sets=0, set_size=2, generator=generator)
    with pytest.raises(ValueError, match="no stored sets"):
        draw_sets(stored(2, 5)[:0], num_sets=1, set_size=2, generator=generator)
