"""Whichever way sorts: the same numbers, in the same places."""

from __future__ import annotations

import pytest
import torch

from lossmith.metrics import METRICS
from lossmith.metrics.sorting import MAX_SORTED_WHOLE, ascending, highest

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def with_ties(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(shape, generator=generator).mul(4).round().to(dtype)
    values[..., ::7] = -torch.inf  # what is left out
    return values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 30, MAX_SORTED_WHOLE + 100])
def test_ascending(size: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    values = with_ties((3, 2, size), dtype, generator)
    ordered, order = ascending(values)
    assert torch.equal(ordered, values.sort(-1).values)
    assert torch.equal(values.gather(-1, order), ordered)
    assert torch.equal(order.sort(-1).values, torch.arange(size).expand(values.shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 30, MAX_SORTED_WHOLE + 100])
@pytest.mark.parametrize("k", [1, 10, 30, 10_000])
def test_highest(size: int, k: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    values = with_ties((3, 2, size), dtype, generator)
    first, order = highest(values, k)
    assert torch.equal(first, values.sort(-1, descending=True).values[..., :k])
    assert torch.equal(values.gather(-1, order), first)
    assert all(len(set(row)) == min(k, size) for row in order.flatten(0, -2).tolist())


def test_strided_values(generator: torch.Generator) -> None:
    values = torch.randn(30, 8, generator=generator).mT[:, ::2]
    assert torch.equal(ascending(values)[0], values.sort(-1).values)
    assert torch.equal(highest(values, 3)[0], values.topk(3).values)


@pytest.mark.parametrize("name", ["ndcg", "map", "auc", "ap"])
def test_under_vmap(name: str, generator: torch.Generator) -> None:
    metric = METRICS[name]
    targets = torch.randint(2, (5, 4, 3, 20), generator=generator)
    outputs = torch.randn(5, 4, 3, 20, generator=generator) + targets
    if metric.kind == "binary":
        outputs, targets = outputs[:, :, 0], targets[:, :, 0]
    expected = torch.stack([metric.value(*stack) for stack in zip(outputs, targets)])
    torch.testing.assert_close(torch.vmap(metric.value)(outputs, targets), expected)


def test_outputs_with_a_graph(generator: torch.Generator) -> None:
    targets = torch.randint(3, (2, 3, 20), generator=generator)
    outputs = torch.randn(2, 3, 20, generator=generator)
    expected = METRICS["ndcg"].value(outputs, targets)
    assert torch.equal(METRICS["ndcg"].value(outputs.requires_grad_(), targets), expected)
