"""Training as a stack, on a table small enough for a second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

from lossmith.kinds import Kind
from lossmith.lab.comparing.recipes import RECIPES
from lossmith.lab.comparing.running import OptimizerName, Plan, StackResult, batch_steps, stack_steps
from lossmith.lab.datasets.splitting import Parts, Pool, split
from lossmith.metrics import METRICS


def toy_pool(num_rows: int = 200, num_classes: int = 2) -> Pool:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_rows, 3, generator=generator)
    score = inputs.sum(1) + 0.5 * torch.randn(num_rows, generator=generator)
    targets = (score > 0.5).long() if num_classes == 2 else torch.bucketize(score, torch.tensor([-1.0, 1.0]))
    return Pool("toy", Kind.BINARY if num_classes == 2 else Kind.MULTICLASS, inputs, targets, num_classes)


@pytest.fixture
def parts() -> Parts:
    return split(toy_pool(), [0, 1])


OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "descent")


def stack_of(parts: Parts, plan: Plan) -> torch.Tensor:
    """AUC on test rows after cross-entropy by this plan."""
    results: list[StackResult] = []

    def running() -> Iterator[float]:
        results.append(
            (yield from stack_steps(parts, plan, RECIPES["ce"], seeds=[0, 1], rates=(0.5,), metrics=[METRICS["auc"]]))
        )

    assert list(running())
    return results[0].looks["auc"][-1].test


def train(
    parts: Parts,
    recipe: str,
    metrics: Sequence[str] = ("f1",),
    *,
    rates: Sequence[float] = (0.01, 0.1),
    model: str = "linear",
    num_steps: int = 14,
) -> StackResult:
    steps = stack_steps(
        parts,
        Plan(model, num_steps=num_steps, batch_size=32),
        RECIPES[recipe],
        seeds=[0, 1],
        rates=rates,
        metrics=[METRICS[name] for name in metrics],
    )
    results: list[StackResult] = []

    def running() -> Iterator[float]:
        results.append((yield from steps))

    assert all(0 < share <= 1 for share in running())
    return results[0]


def test_models_learn(parts: Parts) -> None:
    looks = train(parts, "ce", ("f1", "auc"), num_steps=60).looks
    assert [look.step for look in looks["f1"]] == sorted({round(60 * k / 7) for k in range(1, 8)})
    assert float(looks["auc"][-1].test[1::2].min()) > 0.9  # at the larger learning rate
    assert looks["f1"][-1].thresholds is not None
    assert looks["auc"][-1].thresholds is None


def test_plain_descent(parts: Parts) -> None:
    looks = [
        stack_of(parts, Plan("linear", num_steps=20, batch_size=32, optimizer=optimizer)) for optimizer in OPTIMIZERS
    ]
    assert not torch.equal(*looks)
    assert float(looks[1].min()) > 0.8


def test_a_run_does_not_depend_on_its_neighbours(parts: Parts) -> None:
    both, alone = train(parts, "traced"), train(parts, "traced", rates=(0.1,))
    assert torch.allclose(both.looks["f1"][-1].test[1::2], alone.looks["f1"][-1].test, atol=1e-4)


def test_same_seed_same_result_and_no_trace_in_the_callers_randomness(parts: Parts) -> None:
    state = torch.random.get_rng_state()
    first, second = (train(parts, "ce", model="paper").looks["f1"][-1].test for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_control_differs_on_the_same_split(parts: Parts) -> None:
    first, second = (train(parts, name).looks["f1"][0].validation for name in ("ce", "ce_again"))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if Kind.BINARY in recipe.kinds])
def test_every_recipe_trains(recipe: str, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lossmith.lab.comparing.bilevel_stack.NUM_FIRST_STEPS", 2)
    result = train(parts, recipe, num_steps=4)
    assert result.num_runs == 4 * len(RECIPES[recipe].variants)
    assert bool(result.looks["f1"][-1].test.isfinite().all())


@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if Kind.MULTICLASS in recipe.kinds])
def test_recipes_of_classes_train(recipe: str) -> None:
    parts = split(toy_pool(num_classes=3), [0, 1])
    result = train(parts, recipe, ("accuracy",), num_steps=4)
    assert bool(result.looks["accuracy"][-1].test.isfinite().all())


def test_an_epoch_has_every_row_once(parts: Parts) -> None:
    batches = batch_steps(parts, [0, 1], batch_size=40, is_balanced=False)
    epoch = torch.cat([next(batches) for _ in range(parts.train.shape[1] // 40)], 1)
    assert all(len(places.unique()) == len(places) for places in epoch)


def test_balanced_batches(parts: Parts) -> None:
    places = next(batch_steps(parts, [0, 1], batch_size=40, is_balanced=True))
    assert parts.train_targets(places).sum(1).tolist() == [20, 20]
