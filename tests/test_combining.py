from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lossmith.combining import combine


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum()


def distances(outputs: Tensor, targets: Tensor) -> Tensor:
    return 1000 * (outputs - targets).abs().sum()


def flat(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.sum() * 0


def gradient(loss: torch.nn.Module, outputs: list[float]) -> list[float]:
    scores = torch.tensor(outputs, requires_grad=True)
    loss(scores, torch.zeros(len(outputs))).backward()
    assert scores.grad is not None
    return scores.grad.tolist()


def test_gradients_of_one_length() -> None:
    # 2 * 3 = 6 of the squares; the distances' 1000, brought to 6
    assert gradient(combine(squares, distances), [3.0]) == pytest.approx([12.0])
    assert gradient(combine(squares, distances, weight=0.5), [3.0]) == pytest.approx([9.0])
    assert gradient(combine(squares, distances, weight=0), [3.0]) == pytest.approx([6.0])
    # (6, 8) has length 10; (1000, 1000) has it as (7.07, 7.07)
    assert gradient(combine(squares, distances), [3.0, 4.0]) == pytest.approx([13.0711, 15.0711], abs=1e-3)


def test_a_learned_part_that_says_nothing() -> None:
    assert gradient(combine(squares, flat), [3.0]) == pytest.approx([6.0])
    assert gradient(combine(flat, distances), [3.0]) == [0.0]


def test_warm_up_and_going_on() -> None:
    loss = combine(squares, distances, warmup_steps=2)
    assert [gradient(loss, [3.0])[0] for _ in range(4)] == pytest.approx([6, 6, 12, 12])
    again = combine(squares, distances, warmup_steps=6)
    again.load_state_dict(loss.state_dict())
    assert [gradient(again, [3.0])[0] for _ in range(3)] == pytest.approx([6, 6, 12])


def test_evaluation_counts_no_steps_and_keeps_no_graph() -> None:
    loss = combine(squares, distances, warmup_steps=1).eval()
    for _ in range(3):
        assert loss(torch.tensor([3.0]), torch.zeros(1)) == 9
    loss.train()
    gradient(loss, [3.0])
    with torch.no_grad():
        value = loss(torch.tensor([3.0], requires_grad=True), torch.zeros(1))
    assert not value.requires_grad
    assert value.item() == pytest.approx(9 + 6 / 1000 * 3000)


def test_weights_of_either_part_learn() -> None:
    layer = torch.nn.Linear(1, 1)

    def with_weights(outputs: Tensor, targets: Tensor) -> Tensor:
        return squares(layer(outputs), targets)

    loss = combine(with_weights, distances)
    loss(torch.ones(1, requires_grad=True), torch.zeros(1)).backward()
    assert layer.weight.grad is not None


def test_half_precision() -> None:
    scores = torch.tensor([3.0, 1.0], dtype=torch.bfloat16, requires_grad=True)
    combine(squares, distances)(scores, torch.zeros(2)).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_negative_numbers() -> None:
    with pytest.raises(ValueError, match="weight=-1"):
        combine(squares, distances, weight=-1)
