from __future__ import annotations

import pytest
import torch
from torch import Tensor

import lossmith
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


def test_gradients_that_half_precision_cannot_hold() -> None:
    """1e-9 is 0 in float16: a learned part so small would be taken for one that says nothing."""

    def tiny(outputs: Tensor, targets: Tensor) -> Tensor:
        return 1e-9 * outputs.sum()

    scores = torch.tensor([3.0], dtype=torch.float16, requires_grad=True)
    combine(squares, tiny)(scores, torch.zeros(1)).backward()
    assert scores.grad is not None
    assert scores.grad.item() == pytest.approx(12)


def test_a_training_loop_with_autocast_a_scaler_and_gradients_of_two_batches() -> None:
    """Steps are calls, of which an optimizer's step may take several; the scale of a scaler changes nothing."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 6), torch.randint(3, (64,))
    gradients = []
    for is_scaled in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Linear(6, 3)
        loss = combine(torch.nn.CrossEntropyLoss(), lossmith.load("accuracy"), warmup_steps=1)
        scaler = torch.amp.GradScaler("cpu", enabled=is_scaled, init_scale=2.0**10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for half in (slice(0, 32), slice(32, 64)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = loss(model(inputs[half]), targets[half]) / 2
            scaler.scale(value).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(optimizer)
        assert model.weight.grad is not None
        assert model.weight.grad.isfinite().all()
        gradients.append(model.weight.grad.clone())
        scaler.step(optimizer)
        scaler.update()
        assert int(loss.num_steps) == 2
    assert torch.allclose(gradients[0], gradients[1], rtol=0.02, atol=1e-4)


def test_a_batch_of_one_row_is_not_rounding_at_full_length() -> None:
    """What a learned loss says of one row is hardly more than that its scores should grow, which is taken out."""
    torch.manual_seed(0)
    for name, outputs, targets in (
        ("accuracy", torch.randn(1, 9), torch.tensor([3])),
        ("top5_accuracy", torch.randn(1, 9), torch.tensor([3])),
        ("f1", torch.randn(1), torch.tensor([1])),
    ):
        base = (
            torch.nn.CrossEntropyLoss()
            if outputs.dim() == 2
            else lambda scores, labels: torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.float())
        )
        outputs.requires_grad_()
        (alone,) = torch.autograd.grad(base(outputs, targets), outputs)
        (together,) = torch.autograd.grad(combine(base, lossmith.load(name), weight=8)(outputs, targets), outputs)
        assert float((together - alone).norm() / alone.norm()) == pytest.approx(8, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1}, "weight=-1 came; a number, 0 or more, works"),
        ({"weight": float("nan")}, "weight=nan came"),
        ({"weight": "1"}, "weight='1' came"),
        ({"warmup_steps": -1}, "warmup_steps=-1 came; a whole number of steps, 0 or more, works"),
        ({"warmup_steps": 0.3}, r"warmup_steps=0\.3 came; .* \(of a share of them: int\(0\.3 \* num_steps\)\)"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combine(squares, distances, **options)  # type: ignore[arg-type]


def test_a_name_is_no_loss() -> None:
    with pytest.raises(ValueError, match=r"learned came as 'accuracy'; a loss works: lossmith\.load"):
        combine(squares, "accuracy")  # type: ignore[arg-type]
