from __future__ import annotations

import pytest
import torch

from lossmith.kinds import Kind
from lossmith.lab.datasets import find_dataset, splitting
from lossmith.lab.datasets.splitting import Pool, pool_of, split


def pool(num_rows: int = 100) -> Pool:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.cat([3 * torch.randn(num_rows, 2, generator=generator) + 5, torch.ones(num_rows, 1)], 1)
    return Pool("toy", Kind.BINARY, inputs, (torch.arange(num_rows) % 5 == 0).long(), 2)


def test_parts_have_no_row_in_common_and_each_its_share_of_positives() -> None:
    parts = split(pool(), [0, 1, 2])
    assert (parts.train.shape, parts.validation.shape, parts.test.shape) == ((3, 60), (3, 20), (3, 20))
    for seed in range(3):
        rows = torch.cat([parts.train[seed], parts.validation[seed], parts.test[seed]])
        assert sorted(rows.tolist()) == list(range(100))
        assert float(parts.targets(parts.test)[seed].float().mean()) == pytest.approx(0.2)
    assert not torch.equal(parts.train[0], parts.train[1])


def test_columns_are_standardised_by_the_training_rows() -> None:
    parts = split(pool(), [0, 1])
    rows = parts.train_rows(torch.arange(60).expand(2, -1))
    assert torch.allclose(rows[..., :2].mean(1), torch.zeros(2, 2), atol=1e-5)
    assert torch.allclose(rows[..., :2].std(1, correction=0), torch.ones(2, 2), atol=1e-4)
    assert not bool(rows[..., 2].any())  # a constant column
    assert not torch.allclose(parts.test_rows[..., :2].mean(1), torch.zeros(2, 2), atol=1e-3)


def test_columns_from_0_to_1() -> None:
    parts = split(pool(), [0, 1], scaling="range")
    rows = parts.train_rows(torch.arange(60).expand(2, -1))[..., :2]
    assert torch.allclose(rows.amin(1), torch.zeros(2, 2), atol=1e-6)
    assert torch.allclose(rows.amax(1), torch.ones(2, 2), atol=1e-6)
    assert not bool(parts.test_rows[..., 2].any())  # a constant column
    with_gaps = pool()
    with_gaps.inputs[:, 0] = torch.nan
    with_gaps.inputs[::3, 1] = torch.nan
    rows = split(with_gaps, [0], scaling="range").train_rows(torch.arange(60).unsqueeze(0))
    assert not bool(rows[..., 0].any())  # nothing is known
    assert rows.isfinite().all()
    assert (float(rows.min()), float(rows.max())) == pytest.approx((0, 1), abs=1e-6)


def test_large_tables_are_read_row_by_row_to_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    place = torch.tensor([[3, 1], [0, 2]])
    kept = split(pool(), [0, 1]).train_rows(place)
    monkeypatch.setattr(splitting, "MAX_NUMBERS_KEPT", 0)
    assert torch.equal(split(pool(), [0, 1]).train_rows(place), kept)


def test_limits() -> None:
    parts = split(pool(1000), [0], max_rows=50, max_validation=20, max_test=30)
    assert (parts.train.shape[1], parts.validation.shape[1], parts.test.shape[1]) == (50, 20, 30)
    with pytest.raises(ValueError, match="too few"):
        split(pool(2), [0])


def test_same_seed_same_rows() -> None:
    assert torch.equal(split(pool(), [7]).train, split(pool(), [6, 7]).train[1:])


def test_a_dataset_is_pooled() -> None:
    digits = find_dataset("digits").load(50)
    pooled = pool_of(digits)
    assert pooled.inputs.shape == (100, 64)
    assert (pooled.kind, pooled.num_outputs) == (Kind.MULTICLASS, 10)
