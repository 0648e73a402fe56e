from __future__ import annotations

import pytest
import torch
from torch import Tensor

import lossmith
from lossmith.lab.comparing.stack_losses import Normalised, Pairs, misordered
from lossmith.normalising import normalise


def distances(outputs: Tensor, targets: Tensor) -> Tensor:
    return 1000 * (outputs - targets).abs().sum()


def flat(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.sum() * 0


def auc_of_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[targets == 1].unsqueeze(-1) > outputs[targets == 0]).float().mean()


def gradient(loss: torch.nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
    scores = outputs.clone().requires_grad_()
    loss(scores, targets).backward()
    assert scores.grad is not None
    return scores.grad


def test_by_hand() -> None:
    loss = normalise(distances, penalty=0.5)
    outputs = torch.tensor([3.0, -4.0, 0.0, 0.0])
    # 1000 (1, -1) has the length 1414; brought to 1 / 2 it is .3536 each; the penalty's is 2 * .5 * s / 4
    expected = [0.3536 + 0.75, -0.3536 - 1, 0, 0]
    assert gradient(loss, outputs, torch.zeros(4)).tolist() == pytest.approx(expected, abs=1e-4)
    # the value is the loss's own, and the penalty
    assert loss(outputs, torch.zeros(4)).item() == pytest.approx(7000 + 0.5 * 25 / 4)


def test_the_gradient_does_not_depend_on_the_unit_of_the_loss(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(30, generator=generator), torch.randn(30, generator=generator)
    one, other = (
        gradient(normalise(lambda o, t, k=k: k * (o - t).pow(4).mean()), outputs, targets) for k in (1e-6, 1e6)
    )
    torch.testing.assert_close(one, other)


def test_what_is_left_out_has_no_gradient() -> None:
    traced = lossmith.trace("f1")
    outputs = torch.tensor([3.0, -1.0, 2.0, 0.5])
    targets = torch.tensor([1, 0, -100, 1])
    of_all, of_kept = (
        gradient(normalise(traced), outputs, targets),
        gradient(normalise(traced), outputs[[0, 1, 3]], targets[[0, 1, 3]]),
    )
    assert of_all[2] == 0
    torch.testing.assert_close(of_all[[0, 1, 3]], of_kept)


def test_classes_have_rows_of_scores(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(6, 3, generator=generator), torch.tensor([0, 1, 2, 0, -100, 1])
    found = gradient(normalise(torch.nn.CrossEntropyLoss(), penalty=0), outputs, targets)
    assert float(found.norm()) == pytest.approx(5**-0.5)
    assert not found[4].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes_and_saturated_scores(dtype: torch.dtype) -> None:
    outputs = torch.tensor([1e4, -1e4, 1e4, -1e4], dtype=dtype)
    for targets in (torch.tensor([1, 0, 1, 0]), torch.tensor([0, 1, 0, 1]), torch.tensor([1, 1, -100, -100])):
        assert (
            gradient(
                normalise(torch.nn.functional.binary_cross_entropy_with_logits, penalty=0.01),
                outputs,
                targets.to(dtype),
            )
            .isfinite()
            .all()
        )
    everything = gradient(normalise(flat), outputs, torch.full((4,), -100))
    assert not everything.any()


def test_a_loss_that_says_nothing() -> None:
    assert gradient(normalise(flat, penalty=0), torch.ones(3), torch.zeros(3)).tolist() == [0, 0, 0]


def test_without_gradients_there_is_no_graph() -> None:
    with torch.no_grad():
        value = normalise(distances)(torch.ones(2, requires_grad=True), torch.zeros(2))
    assert not value.requires_grad


def test_a_stack_of_runs_has_the_same_gradients(generator: torch.Generator) -> None:
    """What the experiments train with is what a user gets."""
    outputs, targets = torch.randn(20, generator=generator), torch.tensor([0, 1] * 10)
    stacked = outputs[None].clone().requires_grad_()
    Normalised(Pairs(misordered).of_stack).of_stack(stacked, targets[None]).sum().backward()
    assert stacked.grad is not None
    ours = gradient(normalise(lossmith.trace(auc_of_pairs, link=1)), outputs, targets)
    torch.testing.assert_close(ours, stacked.grad[0], atol=1e-5, rtol=1e-4)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="penalty=-1"):
        normalise(distances, penalty=-1)
    with pytest.raises(ValueError, match=r"outputs \(4, 3\) came with targets \(3,\)"):
        normalise(distances)(torch.zeros(4, 3), torch.zeros(3))
