"""The training generator: what a step does, what it leaves alone, and what the caller may do between steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lossmith.training import predict, shuffled_batches, train_steps


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).mean()


def one_weight(value: float) -> nn.Module:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, value)
    return layer


def test_steps_worked_by_hand() -> None:
    """Loss (w x - y)^2 at w = 1, x = 2, y = 0 is 4, its slope 8; a rate of 0.1 goes to w = 0.2, where it is 0.16."""
    model = one_weight(1.0)
    batch = torch.tensor([[2.0]]), torch.tensor([[0.0]])
    steps = train_steps(model, squared_error, [batch, batch], torch.optim.SGD(model.parameters(), lr=0.1))
    first = next(steps)
    assert (first.number, first.loss.item()) == (1, 4.0)
    assert model.weight.item() == pytest.approx(0.2)
    assert model.weight.grad.item() == 8.0  # still there for the loop body
    second = next(steps)
    assert (second.number, second.loss.item()) == (2, pytest.approx(0.16))
    assert not first.loss.requires_grad
    assert next(steps, None) is None


def test_scheduler_steps_with_the_optimizer() -> None:
    model = one_weight(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    batch = torch.zeros(1, 1), torch.zeros(1, 1)
    rates = [
        scheduler.get_last_lr()[0]
        for _ in train_steps(model, squared_error, [batch] * 3, optimizer, scheduler=scheduler)
    ]
    assert rates == [0.5, 0.25, 0.125]


def test_nothing_leaks_into_the_loop_body() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Linear(2, 1))
    model[1].eval()  # frozen by the caller
    batch = torch.randn(8, 2), torch.zeros(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in train_steps(model, squared_error, [batch] * 2, optimizer, autocast_dtype=torch.bfloat16):
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        predict(model, batch[0])
        assert [module.training for module in model] == [True, False, True, True]
        assert torch.is_grad_enabled()


def test_an_unfinished_loop_keeps_what_it_did() -> None:
    model = one_weight(1.0)
    batch = torch.tensor([[2.0]]), torch.tensor([[0.0]])
    for _ in train_steps(model, squared_error, [batch] * 10, torch.optim.SGD(model.parameters(), lr=0.1)):
        break
    assert model.weight.item() == pytest.approx(0.2)


def test_loss_sees_float32_under_autocast() -> None:
    seen: list[torch.dtype] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(outputs.dtype)
        return squared_error(outputs, targets)

    model = nn.Linear(4, 1)
    batch = torch.randn(8, 4), torch.zeros(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert len(list(train_steps(model, loss, [batch], optimizer, autocast_dtype=torch.bfloat16))) == 1
    assert seen == [torch.float32]
    assert predict(model, batch[0], autocast_dtype=torch.bfloat16).dtype == torch.float32


def test_float16_needs_what_is_not_here() -> None:
    model = one_weight(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="bfloat16 works"):
        next(train_steps(model, squared_error, [], optimizer, autocast_dtype=torch.float16))


def test_loss_with_weights_learns_too() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0))

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return self.scale * squared_error(outputs, targets)

    model, loss = one_weight(1.0), Scaled()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    next(train_steps(model, loss, [(torch.tensor([[2.0]]), torch.tensor([[0.0]]))], optimizer))
    assert loss.scale.item() == pytest.approx(0.6)


def test_predict_in_evaluation_mode_batch_by_batch() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9))
    inputs = torch.randn(10, 3)
    outputs = predict(model, inputs, 4)
    assert torch.allclose(outputs, model[0](inputs))
    assert not outputs.requires_grad
    assert model.training
    assert predict(model, inputs[:0]).shape == (0, 2)


def test_predict_restores_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9))
    with pytest.raises(RuntimeError, match="shape"):
        predict(model, torch.randn(10, 4))
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()


def test_shuffled_batches(generator: torch.Generator) -> None:
    rows = torch.arange(10)
    batches = list(shuffled_batches(rows[:, None], rows, batch_size=4, num_epochs=3, generator=generator))
    assert [len(targets) for _, targets in batches] == [4] * 6
    assert all(torch.equal(inputs[:, 0], targets) for inputs, targets in batches)
    epochs = [torch.cat([targets for _, targets in batches[start : start + 2]]) for start in (0, 2, 4)]
    assert all(len(epoch.unique()) == 8 for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    again = shuffled_batches(rows, rows, batch_size=4, num_epochs=3, generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(one[1], other[1]) for one, other in zip(batches, again))


def test_data_smaller_than_a_batch_come_whole(generator: torch.Generator) -> None:
    rows = torch.arange(3)
    ((inputs, _),) = shuffled_batches(rows, rows, batch_size=128, num_epochs=1, generator=generator)
    assert sorted(inputs.tolist()) == [0, 1, 2]
