"""The controller: it learns what is rewarded, forgets nothing on the way through a file, and fits other tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lossmith.methods.ala import ALA, ClassCorrelationLoss, DistanceMixture
from lossmith.methods.ala.controller import Experience, History


def practise(controller: ALA, states: torch.Tensor, num_rounds: int) -> None:
    """A world that wants parameters of high statistics up and those of low ones down."""
    for _ in range(num_rounds):
        moves, log_p = controller.act(states)
        rewards = torch.sign(moves * states[:, 0].sign())
        controller.learn(
            [
                Experience(states[row : row + 1], moves[row : row + 1], log_p[row : row + 1], float(rewards[row]))
                for row in range(len(states))
            ]
        )


def states_of(controller: ALA) -> torch.Tensor:
    sides = torch.tensor([2.0, 2.0, -2.0, -2.0])
    return sides[:, None].expand(-1, controller.num_features).contiguous()


def test_learns_a_rule_of_the_state() -> None:
    controller = ALA(ClassCorrelationLoss(4), learning_rate=3e-3)
    states = states_of(controller)
    before = controller.entropy(states)
    practise(controller, states, 60)
    chances = controller.probabilities(states)
    assert (chances[:2, 2] > 0.9).all()
    assert (chances[2:, 0] > 0.9).all()
    assert controller.entropy(states) < before


def test_does_not_learn_when_told_not_to() -> None:
    controller = ALA(ClassCorrelationLoss(4), is_learning=False)
    states = states_of(controller)
    before = controller.probabilities(states)
    practise(controller, states, 3)
    assert torch.equal(controller.probabilities(states), before)


def test_a_baseline_takes_out_what_every_move_gets() -> None:
    """Constant reward: nothing to learn from."""
    controller = ALA(ClassCorrelationLoss(4), entropy_bonus=0.0)
    states = states_of(controller)
    before = controller.probabilities(states)
    for _ in range(5):
        controller.learn([Experience(states, *controller.act(states), reward=1.0)])
    torch.testing.assert_close(controller.probabilities(states), before)


def test_the_step_is_that_of_the_objective() -> None:
    """The gradient that is written out by hand, beside autograd's of the same objective."""
    controller = ALA(ClassCorrelationLoss(4), entropy_bonus=0.3, clip=0.1)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(64, controller.num_features, generator=generator)
    moves = torch.randint(-1, 2, (64,), generator=generator)
    then = torch.randn(64, 3, generator=generator).log_softmax(-1)[:, 0]
    advantages = torch.randn(64, generator=generator)
    log_p = controller.network(states).log_softmax(-1)
    ratio = (log_p.gather(-1, moves[:, None] + 1)[:, 0] - then).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.9, 1.1) * advantages).mean()
    entropy = torch.special.entr(log_p.exp()).sum(-1).mean()
    expected = torch.autograd.grad(-gain - 0.3 * entropy, list(controller.network.parameters()))
    controller._update(states, moves, then, advantages)
    torch.testing.assert_close([weight.grad for weight in controller.network.parameters()], list(expected))


def test_memory_is_bounded() -> None:
    controller = ALA(ClassCorrelationLoss(4), memory=10)
    states = states_of(controller)
    for reward in (1.0, -1.0, 1.0, -1.0):
        controller.learn([Experience(states, *controller.act(states), reward)])
    assert {len(tensor) for tensor in controller.remembered.values()} == {10}


def test_goes_on_as_if_nothing_had_happened() -> None:
    controller = ALA(ClassCorrelationLoss(4), seed=3)
    states = states_of(controller)
    practise(controller, states, 3)
    contents = controller.tensors()
    practise(controller, states, 3)
    resumed = ALA(ClassCorrelationLoss(4), seed=9)
    resumed.restore(contents)
    practise(resumed, states, 3)
    assert all(torch.equal(mine, resumed.tensors()[name]) for name, mine in controller.tensors().items())


def test_the_same_seed_gives_the_same_moves() -> None:
    one, same, other = (ALA(ClassCorrelationLoss(4), seed=seed) for seed in (1, 1, 2))
    states = torch.randn(200, one.num_features)
    assert torch.equal(one.act(states)[0], same.act(states)[0])
    assert not torch.equal(one.act(states)[0], other.act(states)[0])


def test_a_policy_of_ten_classes_steers_a_hundred(tmp_path: Path) -> None:
    controller = ALA(ClassCorrelationLoss(10), history=4)
    controller.save(tmp_path / "policy.safetensors")
    loaded = ALA.load(tmp_path / "policy.safetensors", ClassCorrelationLoss(100))
    assert not loaded.is_learning
    states = torch.randn(5, controller.num_features)
    assert torch.equal(loaded.probabilities(states), controller.probabilities(states))
    assert [path.name for path in tmp_path.iterdir()] == ["policy.safetensors"]


def test_refuses_other_losses_and_files(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    ALA(ClassCorrelationLoss(10)).save(path)
    with pytest.raises(ValueError, match="Losses of one family share policies"):
        ALA.load(path, DistanceMixture())
    with pytest.raises(ValueError, match="there is no folder"):
        ALA(ClassCorrelationLoss(10)).save(tmp_path / "none" / "policy.safetensors")
    with pytest.raises(ValueError, match="cannot be read"):
        ALA.load(tmp_path / "none.safetensors", DistanceMixture())
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="not a policy of lossmith"):
        ALA.load(path, DistanceMixture())


def test_states() -> None:
    loss, history = ClassCorrelationLoss(3), History(3)
    for value in (1.0, 1.0, 2.0):
        history.add(torch.full((3, 2), value))
    loss.adjust(torch.tensor([1]), torch.tensor([1]))
    states = history.states(loss, torch.tensor([1]), progress=0.25)
    average = 0.9 * 1.0 + 0.1 * 2.0
    change = (2 - average) / (average + 1e-3)
    expected = [1, 1, 1, 1, 2, 2, change, change, 0.05 / 0.2, 0.25]
    torch.testing.assert_close(states, torch.tensor([expected]))
    assert states.shape[1] == ALA(loss, history=3).num_features
    history.add(torch.full((3, 2), 1e9))
    assert history.states(loss, torch.arange(3), 0.5).abs().max() == 5


def test_parameters_that_differ_are_told_apart() -> None:
    loss, history = DistanceMixture(), History(2)
    history.add(torch.zeros(10, 1))
    states = history.states(loss, loss.choose(torch.zeros(10, 1)), 0.0)
    assert torch.equal(states[:, -10:], torch.eye(10))
