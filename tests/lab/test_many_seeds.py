"""Many models at once are what they would be one by one."""

from __future__ import annotations

import pytest
import torch

from lossmith.lab.reproduce.compared_losses import compared_loss, compared_on_stack
from lossmith.lab.reproduce.many_seeds import Task, one_for_each, train_seeds
from lossmith.vocabulary import Kind

TASK = Task("digits", num_rows=200, num_epochs=3, batch_size=20, is_test_drawn=True)


@pytest.mark.parametrize("name", ["ce", "2ce", "label_smoothing", "accuracy", "ce+8accuracy"])
def test_losses_on_a_stack_are_losses_one_by_one(name: str) -> None:
    seeds = range(3)
    together = train_seeds(
        TASK,
        lambda num_steps, num_models: compared_on_stack(name, Kind.MULTICLASS, warmup_steps=num_steps // 2),
        learning_rate=0.05,
        seeds=seeds,
    )
    each = one_for_each(lambda num_steps: compared_loss(name, Kind.MULTICLASS, warmup_steps=num_steps // 2))
    one_by_one = train_seeds(TASK, each, learning_rate=0.05, seeds=seeds)
    assert torch.allclose(together.test, one_by_one.test, atol=0.002)
    assert torch.allclose(together.validation, one_by_one.validation, atol=0.02)


def test_rows_of_the_test_are_drawn_for_nothing_else() -> None:
    from lossmith.lab.datasets import find_dataset
    from lossmith.lab.reproduce.many_seeds import _draw_rows, _test_rows

    dataset = find_dataset("digits").load(None)
    rows, _ = _draw_rows(TASK, dataset, torch.Generator().manual_seed(7))
    inputs, targets = _test_rows(TASK, dataset, rows[None], [7])
    everything = torch.cat([dataset.train_inputs, dataset.test_inputs]).flatten(1)
    assert inputs.shape[1] == targets.shape[1] == len(everything) - len(rows)
    drawn = {tuple(row) for row in everything[rows].tolist()}
    assert not drawn & {tuple(row) for row in inputs[0].tolist()}
    assert not torch.equal(targets, _test_rows(TASK, dataset, rows[None], [8])[1])
