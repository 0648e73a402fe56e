from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lossmith.learning import (
    LearningState,
    approximation_objective,
    load_learning,
    pool_of,
    rank_objective,
    save_learning,
    surrogate_steps,
)
from lossmith.metrics import accuracy, auc, f1
from lossmith.predictions import random_predictions
from lossmith.ranking import spearman
from lossmith.surrogates import CountsNetwork, PairLoss, margin_loss, probability_network
from lossmith.surrogates.surrogate import Surrogate
from lossmith.vocabulary import Metric, Predictions


def stack(kind: str, num_sets: int = 400, *, seed: int = 0, num_classes: int = 5) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    return random_predictions(kind, num_sets=num_sets, set_size=48, num_classes=num_classes, generator=generator)


def agreement(surrogate: Surrogate, metric: Metric, sets: Predictions) -> float:
    with torch.no_grad():
        return float(spearman(surrogate(sets.outputs, sets.targets), metric.cost(sets.outputs, sets.targets)))


def learn(surrogate: Surrogate, metric: Metric, sets: list[Predictions], **options: float) -> list[float]:
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    steps = surrogate_steps(
        surrogate,
        metric,
        sets,
        rank_objective(),
        optimizer,
        num_steps=80,
        generator=generator,
        **options,  # type: ignore[arg-type]
    )
    return [float(step.loss) for step in steps]


@pytest.mark.parametrize("within", [0.0, 0.5])
def test_learning_raises_the_correlation(within: float) -> None:
    torch.manual_seed(0)
    surrogate, metric = CountsNetwork("binary"), f1()
    before = agreement(surrogate, metric, stack("binary", seed=1))
    values = learn(surrogate, metric, [stack("binary")], within=within)
    assert values[-1] < -0.9
    assert agreement(surrogate, metric, stack("binary", seed=1)) > max(before, 0.9)


@pytest.mark.parametrize("seed", range(3))
def test_a_free_network_does_not_invert(seed: int) -> None:
    """With a penalty that knows the direction, whatever the start: rank correlation alone has two ways to be steep."""
    torch.manual_seed(seed)
    surrogate, metric = probability_network("multiclass", width=16, num_hidden=2), accuracy()
    learn(surrogate, metric, [stack("multiclass")], gradient_penalty=10.0)
    assert agreement(surrogate, metric, stack("multiclass", seed=1)) > 0.5
    assert (surrogate.curve(torch.linspace(0, 1, 50)).diff() < 0).all()


def test_stacks_of_other_class_counts_and_sizes_are_one_pool() -> None:
    generator = torch.Generator().manual_seed(0)
    stacks = [stack("multiclass", 20, num_classes=3), stack("multiclass", 30, num_classes=8)]
    for surrogate in (CountsNetwork("multiclass"), PairLoss("multiclass"), margin_loss("multiclass")):
        pool = pool_of(surrogate, accuracy(), stacks)
        expected = torch.cat([surrogate(each.outputs, each.targets) for each in stacks])
        assert torch.allclose(
            surrogate.losses(*pool.summary), expected, atol=0.02 * float(expected.detach().abs().max())
        )
        assert pool.first.tolist() == [0, 20]
        summary, costs = pool.draw(7, generator)
        assert len(costs) == len(summary[0]) == 7


def test_sets_of_one_source_are_compared_with_each_other() -> None:
    pool = pool_of(margin_loss("binary"), f1(), [stack("binary", 10), stack("binary", 40), stack("binary", 50)])
    pool = type(pool)((torch.arange(100.0),), torch.arange(100.0), pool.first, pool.size)
    _, costs = pool.draw_within(50, torch.Generator().manual_seed(0))
    sources = (costs >= 10).int() + (costs >= 50).int()
    assert (sources.view(50, -1) == sources.view(50, -1)[:, :1]).all()
    assert set(sources.tolist()) == {1, 2}  # ten sets are too few to compare


def test_sets_without_a_value_are_left_out() -> None:
    sets = stack("binary", 10)
    sets.targets[:4] = 1
    assert len(pool_of(margin_loss("binary"), auc(), [sets]).costs) <= 6
    sets.targets[:] = 1
    with pytest.raises(ValueError, match="auc is defined on none of the sets"):
        pool_of(margin_loss("binary"), auc(), [sets])


def test_a_stream_gives_one_stack_for_each_step() -> None:
    surrogate = margin_loss("binary")
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=0.01)
    stream = (stack("binary", 30, seed=seed) for seed in range(5))
    steps = surrogate_steps(
        surrogate, f1(), stream, approximation_objective(), optimizer, num_steps=5, generator=torch.Generator()
    )
    assert [step.number for step in steps] == [1, 2, 3, 4, 5]


def test_objectives_by_hand() -> None:
    losses, costs = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-3.0, -2.0, 1.0])
    assert rank_objective(end=1e-4)(losses, costs, 1.0).item() == pytest.approx(-1, abs=1e-3)
    assert rank_objective(end=1e-4)(-losses, costs, 1.0).item() == pytest.approx(1, abs=1e-3)
    assert approximation_objective()(losses, costs, 0.5).item() == pytest.approx((16 + 16 + 4) / 3)


def test_states_come_back(tmp_path: Path) -> None:
    surrogate = margin_loss("binary")
    optimizer = torch.optim.Adam(surrogate.parameters())
    surrogate.losses(
        *surrogate.summarize(*(lambda sets: (sets.outputs, sets.targets))(stack("binary", 4)))
    ).sum().backward()
    optimizer.step()
    state = LearningState(surrogate, optimizer, torch.Generator().manual_seed(3))
    state.consider(0.25)
    state.consider(0.125)
    path = tmp_path / "state"
    save_learning(path, {1: state.tensors(7)}, {"seed": 3})
    again = LearningState(margin_loss("binary"), torch.optim.Adam(surrogate.parameters()), torch.Generator())
    again.restore(load_learning(path, {"seed": 3})[1])
    assert (again.step, again.best_agreement) == (7, 0.25)
    assert torch.equal(again.generator.get_state(), state.generator.get_state())
    for name, tensor in state.tensors(7).items():
        assert torch.equal(again.tensors(7)[name], tensor), name
    assert load_learning(tmp_path / "nothing", {}) == {}
    with pytest.raises(ValueError, match=r"of another run \(other seed\)"):
        load_learning(path, {"seed": 4})
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match="cannot be read, so learning cannot go on"):
        load_learning(path, {"seed": 3})
