from __future__ import annotations

import pytest
import torch

from lossmith.vocabulary import Kind, Metric, Predictions

MEAN = Metric("mean", Kind.BINARY, lambda outputs, targets: outputs.mean(-1))
PREDICTIONS = Predictions(
    torch.arange(12.0).view(4, 3), torch.ones(4, 3), is_held_out=torch.tensor([False, True, False, True])
)


def test_a_metric_checks_one_set_and_trusts_a_stack() -> None:
    outputs, targets = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[0, 1], [7, 7]])
    assert MEAN(outputs[0], targets[0]) == 1.5
    with pytest.raises(ValueError, match="targets go from 7 to 7"):
        MEAN(outputs[1], targets[1])
    assert MEAN.value(outputs, targets).tolist() == [1.5, 4.0]


def test_cost_knows_the_direction() -> None:
    outputs, targets = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.ones(2, 2)
    lower = Metric("mean", Kind.BINARY, MEAN.value, higher_is_better=False)
    assert MEAN.cost(outputs, targets).tolist() == [-1.5, -4.0]
    assert lower.cost(outputs, targets).tolist() == [1.5, 4.0]


def test_probabilities_pass_where_the_metric_reads_them() -> None:
    outputs, targets = torch.linspace(0, 1, 40), torch.ones(40)
    with pytest.raises(ValueError, match="these are probabilities"):
        MEAN(outputs, targets)
    assert Metric("mean", Kind.BINARY, MEAN.value, reads_probabilities=True)(outputs, targets) == 0.5


@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([1, 2]), torch.tensor([False, True, True, False])])
def test_sets_are_picked_with_all_that_belongs_to_them(index: torch.Tensor | slice) -> None:
    picked = PREDICTIONS[index]
    assert (picked.num_sets, picked.set_size) == (2, 3)
    assert torch.equal(picked.outputs, PREDICTIONS.outputs[1:3])
    assert torch.equal(picked.targets, PREDICTIONS.targets[1:3])
    assert picked.is_held_out is not None
    assert picked.is_held_out.tolist() == [True, False]


def test_what_does_not_belong_together_is_refused() -> None:
    outputs, targets = PREDICTIONS.outputs, PREDICTIONS.targets
    with pytest.raises(ValueError, match=r"4 sets of outputs came with targets of the shape \(3, 3\)"):
        Predictions(outputs, targets[:3])
    with pytest.raises(ValueError, match=r"4 sets of outputs came with is_held_out of the shape \(2,\)"):
        Predictions(outputs, targets, torch.tensor([True, False]))
    for marks in (torch.tensor([0, 1, 0, 1]), torch.ones(4, 3, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"is_held_out is .*; torch\.bool with one mark for each set works"):
            Predictions(outputs, targets, marks)
