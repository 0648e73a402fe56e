"""Stored checkpoints: which, of what, and that a run which stops anywhere ends with the same numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from lossmith.kinds import Kind, check_predictions
from lossmith.lab.checkpoints import (
    CheckpointRun,
    StoredPredictions,
    checkpoint_predictions,
    checkpoint_steps,
    collect_checkpoints,
)
from lossmith.lab.datasets import DATASETS, Dataset, one_against_rest
from lossmith.lab.recipes import RECIPES, Recipe, new_optimizer, new_scheduler, recipe_for

DIGITS = DATASETS["digits"].load(None)
SHORT = Recipe(num_epochs=3)


@pytest.fixture
def images() -> Dataset:
    """A few random images, for the path of convolutions in bfloat16 and channels_last."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(48, 3, 16, 16, generator=generator)
    targets = torch.randint(4, (48,), generator=generator)
    return Dataset("images", Kind.MULTICLASS, inputs[:32], targets[:32], inputs[32:], targets[32:], num_classes=4)


CONVOLUTIONAL = Recipe("resnet20", num_epochs=2, batch_size=8, autocast_dtype=torch.bfloat16, is_channels_last=True)


def finish(run: CheckpointRun) -> StoredPredictions:
    for _ in checkpoint_steps(run):
        pass
    return collect_checkpoints(run)


def assert_same(one: StoredPredictions, other: StoredPredictions) -> None:
    assert torch.equal(one.predictions.outputs, other.predictions.outputs)
    assert torch.equal(one.predictions.targets, other.predictions.targets)
    assert torch.equal(one.seed, other.seed)
    assert torch.equal(one.epoch, other.epoch)


def test_layout() -> None:
    stored = checkpoint_predictions(DIGITS, SHORT, num_seeds=2, num_rows=200)
    predictions = stored.predictions
    check_predictions(Kind.MULTICLASS, predictions.outputs, predictions.targets, is_stack=True)
    # 9 steps an epoch: after steps 1 and 4, and after epochs 1, 2, 3
    assert predictions.outputs.shape == (2 * 5 * 2, 200, 10)
    assert stored.seed.tolist() == [0] * 10 + [1] * 10
    held_out = predictions.is_held_out
    assert held_out is not None
    assert held_out.tolist() == [False, True] * 10
    assert torch.allclose(stored.epoch[held_out][:5], torch.tensor([1 / 9, 4 / 9, 1, 2, 3]))
    accuracy = (predictions.outputs.argmax(-1) == predictions.targets).float().mean(-1)
    last = stored.epoch == 3
    assert accuracy[stored.epoch < 0.2].max() < 0.4
    assert accuracy[last & held_out].min() > 0.65
    assert not torch.equal(predictions.outputs[9], predictions.outputs[19])  # another seed


def test_every_row_where_there_are_fewer() -> None:
    stored = checkpoint_predictions(DIGITS, replace(SHORT, num_epochs=1), num_seeds=1)
    assert torch.equal(stored.predictions.targets[1], DIGITS.test_targets)


def test_yes_or_no_question() -> None:
    stored = checkpoint_predictions(one_against_rest(DIGITS, 8), Recipe(num_epochs=15), num_seeds=1)
    outputs, targets = stored.predictions.outputs, stored.predictions.targets
    check_predictions(Kind.BINARY, outputs, targets, is_stack=True)
    assert ((outputs > 0) == targets.bool())[-1].float().mean() > 0.93


@pytest.mark.parametrize("num_steps", [0, 1, 3, 10, 29, 53])
def test_stopped_anywhere_ends_the_same(tmp_path: Path, num_steps: int) -> None:
    run = CheckpointRun(DIGITS, SHORT, tmp_path / "stopped", num_seeds=2, num_rows=50)
    for _ in islice(checkpoint_steps(run), num_steps):
        torch.rand(3)  # the caller's random numbers are the caller's
    numbers = [step.number for step in checkpoint_steps(run)]
    assert numbers[-1] == run.num_steps == 54
    assert numbers[0] <= num_steps + 1
    assert_same(collect_checkpoints(run), finish(replace(run, folder=tmp_path / "whole")))


def test_stopped_with_channels_last_and_bfloat16(tmp_path: Path, images: Dataset) -> None:
    run = CheckpointRun(images, CONVOLUTIONAL, tmp_path / "stopped", num_seeds=1)
    for _ in islice(checkpoint_steps(run), 2):
        pass
    assert next(checkpoint_steps(run)).number == 2
    assert_same(finish(run), finish(replace(run, folder=tmp_path / "whole")))


def test_resume_draws_the_same_dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lossmith.lab import models

    def with_dropout(shape: torch.Size, num_outputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(shape.numel(), num_outputs))

    monkeypatch.setitem(models.MODELS, "dropout", with_dropout)
    run = CheckpointRun(DIGITS, replace(SHORT, model="dropout"), tmp_path / "stopped", num_seeds=1, num_rows=20)
    for _ in islice(checkpoint_steps(run), 6):
        torch.rand(3)
    assert_same(finish(run), finish(replace(run, folder=tmp_path / "whole")))


def test_global_random_numbers_stay_the_callers(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(12)
    torch.manual_seed(7)
    run = CheckpointRun(DIGITS, replace(SHORT, num_epochs=1), tmp_path, num_seeds=1, num_rows=20)
    drawn = [torch.rand(1) for _ in checkpoint_steps(run)]
    assert torch.equal(torch.cat([*drawn, torch.rand(3)]), expected)


def test_more_seeds_go_on_from_fewer(tmp_path: Path) -> None:
    run = CheckpointRun(DIGITS, SHORT, tmp_path, num_seeds=1, num_rows=20)
    first = finish(run)
    both = finish(replace(run, num_seeds=2))
    assert torch.equal(both.predictions.outputs[: first.predictions.num_sets], first.predictions.outputs)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run = CheckpointRun(DIGITS, SHORT, tmp_path, num_seeds=1, num_rows=20)
    next(checkpoint_steps(run))
    with pytest.raises(ValueError, match="another run \\(num_epochs was 3 and is 4\\); go on with its settings"):
        next(checkpoint_steps(replace(run, recipe=replace(SHORT, num_epochs=4))))


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="0 seeds"):
        checkpoint_predictions(DIGITS, SHORT, num_seeds=0)
    with pytest.raises(ValueError, match="0 epochs"):
        Recipe(num_epochs=0)


def test_recipes_name_data_sets() -> None:
    assert set(RECIPES) <= set(DATASETS)
    assert recipe_for("a set without a line of its own") == Recipe()


def test_learning_rate_rises_and_falls() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = new_optimizer(Recipe(learning_rate=1.0), model)
    scheduler = new_scheduler(optimizer, num_steps=40)
    rates = []
    for _ in range(40):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[21] == pytest.approx(0.5)
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-9)
    assert new_scheduler(optimizer, num_steps=40, first_step=21).get_last_lr()[0] == rates[21]
