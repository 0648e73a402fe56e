from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from lossmith.metrics.stacking import OverSets, sets_at_once

OUTPUTS = torch.tensor([[1.0, 3.0], [5.0, 2.0], [-1.0, 0.0]])
TARGETS = torch.tensor([[1, 1], [0, 1], [1, 0]])


def mean_of_kept(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs * targets).mean()


def test_vectorises_what_vmap_can() -> None:
    calls = []

    def count(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(outputs.shape)
        return mean_of_kept(outputs, targets)

    over_sets = OverSets(count, "count")
    assert over_sets(OUTPUTS, TARGETS).tolist() == [2.0, 1.0, -0.5]
    num_first = len(calls)
    over_sets(OUTPUTS, TARGETS)
    assert len(calls) == num_first + 1, "once checked, a stack is one call"


def test_one_set_is_a_plain_call() -> None:
    def needs_a_number(outputs: Tensor, targets: Tensor) -> float:
        return float(outputs.max())

    assert OverSets(needs_a_number, "max")(OUTPUTS[:1], TARGETS[:1]).tolist() == [3.0]


def test_loops_with_one_warning() -> None:
    def needs_a_number(outputs: Tensor, targets: Tensor) -> float:
        return float(outputs.max())

    over_sets = OverSets(needs_a_number, "largest")
    with pytest.warns(UserWarning, match=r"largest is evaluated set by set, which is slow: torch\.vmap failed"):
        assert over_sets(OUTPUTS, TARGETS).tolist() == [3.0, 5.0, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert over_sets(OUTPUTS, TARGETS).tolist() == [3.0, 5.0, 0.0]


def test_catches_what_vmap_gets_wrong() -> None:
    def asks_for_the_batch(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum() * torch._C._functorch.is_batchedtensor(outputs)

    with pytest.warns(UserWarning, match="other results than alone"):
        values = OverSets(asks_for_the_batch, "odd")(OUTPUTS, TARGETS)
    assert values.tolist() == [0.0, 0.0, 0.0]


def test_falls_back_when_a_later_stack_refuses() -> None:
    def refuses_long_sets(outputs: Tensor, targets: Tensor) -> Tensor | float:
        return outputs.sum() if len(outputs) < 3 else float(outputs.sum())

    over_sets = OverSets(refuses_long_sets, "sum")
    assert over_sets(OUTPUTS, TARGETS).tolist() == [4.0, 7.0, -1.0]
    with pytest.warns(UserWarning, match="set by set"):
        assert over_sets(OUTPUTS.mT, TARGETS.mT).tolist() == [5.0, 5.0]


def test_a_fault_of_the_function_is_its_own() -> None:
    def broken(outputs: Tensor, targets: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        OverSets(broken, "broken")(OUTPUTS, TARGETS)


@pytest.mark.parametrize("result", [0.5, np.float32(0.5), np.array(0.5), torch.tensor([[0.5]]), np.float64(0.5)])
def test_takes_any_single_number(result: object) -> None:
    values = OverSets(lambda outputs, targets: result, "half", loops_because="it is a test")(OUTPUTS[:1], TARGETS[:1])
    assert values.tolist() == [0.5]
    assert values.dtype == torch.float32


@pytest.mark.parametrize("result", [torch.ones(2), None, "1", {"f1": 1.0}, 1j, np.ones(2), torch.tensor(1j)])
def test_refuses_anything_else(result: object) -> None:
    with pytest.raises(ValueError, match=r"odd gave .* for one set; a single real number works"):
        OverSets(lambda outputs, targets: result, "odd")(OUTPUTS[:1], TARGETS[:1])


def test_a_function_that_writes_to_its_arguments_writes_to_copies() -> None:
    def highest_after_one_more(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.add_(1).max()

    outputs, over_sets = OUTPUTS.clone(), OverSets(highest_after_one_more, "odd")
    for _ in range(2):
        assert over_sets(outputs, TARGETS).tolist() == [4.0, 6.0, 1.0]
    with pytest.warns(UserWarning, match="set by set"):
        assert over_sets.loop(zip(outputs, TARGETS)).tolist() == [4.0, 6.0, 1.0]
    assert torch.equal(outputs, OUTPUTS)


def test_keeps_gradients() -> None:
    outputs = OUTPUTS.clone().requires_grad_()
    OverSets(mean_of_kept, "mean")(outputs, TARGETS).sum().backward()
    assert outputs.grad is not None
    assert torch.equal(outputs.grad, TARGETS / 2)


def test_half_precision_gives_float32() -> None:
    assert OverSets(mean_of_kept, "mean")(OUTPUTS.bfloat16(), TARGETS).dtype == torch.float32


def test_large_sets_go_in_portions() -> None:
    assert sets_at_once(torch.empty(9, 10**5, device="meta")) == 1
    assert sets_at_once(torch.empty(9, 128, device="meta")) == 1024
