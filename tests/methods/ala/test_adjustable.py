"""Adjustable losses: eq. 6 by hand, cross-entropy at the start, gradients, edges, statistics, bounds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lossmith.kinds import IGNORE_INDEX
from lossmith.methods.ala.adjustable import (
    FORMS,
    ClassCorrelationLoss,
    Form,
    ParametricLoss,
    mean_log_loss,
    weighted_losses,
)


def steered(num_classes: int, form: Form = "bounded") -> ClassCorrelationLoss:
    """With correlations of both signs."""
    loss = ClassCorrelationLoss(num_classes, form=form)
    loss.values.copy_(torch.linspace(-0.2, 0.2, len(loss.values)))
    return loss


def rows(generator: torch.Generator, num_rows: int = 40, num_classes: int = 5) -> tuple[Tensor, Tensor]:
    outputs = 2 * torch.randn(num_rows, num_classes, generator=generator)
    return outputs, torch.randint(num_classes, (num_rows,), generator=generator)


@pytest.mark.parametrize("form", FORMS)
def test_value_by_hand(form: Form) -> None:
    """Two classes, p = (3/4, 1/4), a correlation of -0.2: z = log 3/4 - 0.2 log 1/4."""
    loss = ClassCorrelationLoss(2, form=form)
    loss.values.fill_(-0.2)
    outputs, targets = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([0])
    z = math.log(0.75) - 0.2 * math.log(0.25)
    sigmoid = 1 / (1 + math.exp(-z))
    # bounded: -log p of the target, and -0.2 log(1 - p) of the other
    expected = {
        "bounded": -1.2 * math.log(0.75),
        "bounded_sigmoid": -1 / (1 + math.exp(-1.2 * math.log(0.75))),
        "sigmoid": -sigmoid,
        "log_sigmoid": -math.log(sigmoid),
    }
    assert float(loss(outputs, targets)) == pytest.approx(expected[form], rel=1e-5)


def test_starts_as_cross_entropy(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    targets[::7] = IGNORE_INDEX
    torch.testing.assert_close(ClassCorrelationLoss(5)(outputs, targets), F.cross_entropy(outputs, targets))


def test_positive_correlations_are_soft_labels(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    loss = ClassCorrelationLoss(5)
    loss.values.fill_(0.1)
    soft = F.one_hot(targets, 5) * 0.9 + 0.1
    torch.testing.assert_close(loss(outputs, targets), -(soft * outputs.log_softmax(-1)).sum(-1).mean())


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form: Form, generator: torch.Generator) -> None:
    outputs, targets = rows(generator, 6)
    outputs = outputs.double().requires_grad_()
    loss = steered(5, form).double()
    assert torch.autograd.gradcheck(lambda outputs: loss(outputs, targets), outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_finite_on_every_edge(form: Form, dtype: torch.dtype, generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    loss = steered(5, form)
    for edge_outputs, edge_targets in [
        (1e4 * outputs.sign(), targets),
        (torch.zeros_like(outputs), targets),
        (outputs[:1], targets[:1]),
        (outputs, torch.zeros_like(targets)),
        (outputs, torch.full_like(targets, IGNORE_INDEX)),
    ]:
        scores = edge_outputs.to(dtype).requires_grad_()
        value = loss(scores, edge_targets)
        value.backward()
        assert value.dtype == dtype
        assert value.isfinite()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
    assert loss(outputs, torch.full_like(targets, IGNORE_INDEX)) == 0


@pytest.mark.parametrize("form", FORMS)
def test_lower_on_better_predictions(form: Form, generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    better = outputs + 2 * F.one_hot(targets, 5)
    loss = ClassCorrelationLoss(5, form=form)
    assert loss(better, targets) < loss(outputs, targets)


def test_within_the_bounds_the_best_answer_is_the_target() -> None:
    """Where every correlation is as high as it may be, going down the loss still ends at the targets."""
    loss = ClassCorrelationLoss(10)
    loss.values.fill_(loss.high)
    targets = torch.arange(10)
    outputs = torch.zeros(10, 10, requires_grad=True)
    optimizer = torch.optim.Adam([outputs], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        loss(outputs, targets).backward()
        optimizer.step()
    assert (outputs.argmax(-1) == targets).all()


def test_why_the_papers_form_collapses() -> None:
    """A negative correlation under the sigmoid is paid for driving one class down, whatever becomes of the target."""
    loss = ClassCorrelationLoss(3, form="sigmoid", bound=1.0)
    loss.values.copy_(torch.tensor([-1.0, 0.0, 0.0]))  # 0 is held apart from 1
    target = torch.tensor([0])
    right = torch.tensor([[6.0, 0.0, 0.0]])
    wrong = torch.tensor([[0.0, -30.0, 6.0]])  # class 2, with all confidence
    assert loss(wrong, target) < loss(right, target)
    for form, lead in (("bounded", 5), ("bounded_sigmoid", 0.4)):
        bounded = ClassCorrelationLoss(3, bound=1.0, form=form)  # type: ignore[arg-type]
        bounded.load_state_dict(loss.state_dict())
        assert bounded(right, target) < bounded(wrong, target) - lead


def test_at_the_identity_the_bounded_sigmoid_is_the_papers_loss(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    papers, ours = (ClassCorrelationLoss(5, form=form)(outputs, targets) for form in ("sigmoid", "bounded_sigmoid"))
    torch.testing.assert_close(ours, papers)


def test_adjusting_stays_within_bounds() -> None:
    loss = ClassCorrelationLoss(4)
    index = torch.tensor([0, 5])
    for _ in range(20):
        loss.adjust(index, torch.tensor([1, -1]))
    matrix = loss.matrix
    assert matrix[0, 1] == matrix[1, 0] == pytest.approx(0.2)
    assert matrix[2, 3] == matrix[3, 2] == pytest.approx(-0.2)
    assert (matrix.diagonal() == 1).all()
    assert matrix[0, 2] == 0


def test_many_classes_take_small_steps_of_few_pairs(generator: torch.Generator) -> None:
    loss = ClassCorrelationLoss(100)
    assert loss.step_size == pytest.approx(0.005)
    assert loss.high == pytest.approx(0.02)
    outputs, targets = rows(generator, 300, 100)
    chosen = loss.choose(loss.statistics(outputs, targets))
    assert len(chosen) == len(chosen.unique()) == 100


def test_statistics_are_of_confusion(generator: torch.Generator) -> None:
    outputs, targets = rows(generator, 400)
    outputs = outputs + 4 * F.one_hot(targets, 5)
    outputs[:, 3] += 5 * (targets == 1)
    outputs[:, 1] += 5 * (targets == 3)
    confusion = mean_log_loss(outputs, targets)
    by_hand = -outputs[targets == 1].log_softmax(-1)[:, 3].mean()
    torch.testing.assert_close(confusion[1, 3], by_hand)
    loss = ClassCorrelationLoss(5, num_moves=1)
    statistics = loss.statistics(outputs, targets)
    (pair,) = loss.choose(statistics).tolist()
    assert (int(loss.first[pair]), int(loss.second[pair])) == (1, 3)
    assert (statistics[pair] < 0.5).all()
    # without units: colder scores change little
    assert (loss.statistics(2 * outputs, targets) - statistics).abs().max() < 1


def test_free_diagonal(generator: torch.Generator) -> None:
    loss = ClassCorrelationLoss(4, has_free_diagonal=True, num_moves=2)
    outputs, targets = rows(generator, 60, 4)
    torch.testing.assert_close(loss(outputs, targets), F.cross_entropy(outputs, targets))
    chosen = loss.choose(loss.statistics(outputs, targets))
    assert len(chosen) == 2 + 4
    own = chosen[2:]
    assert torch.equal(loss.first[own], loss.second[own])
    loss.adjust(own[:1], torch.tensor([1]))
    assert loss.matrix[0, 0] == pytest.approx(1.05)
    assert loss.identities().sum(0).tolist() == [6, 4]
    assert ClassCorrelationLoss(4).identities().shape == (6, 0)


def test_missing_class_has_statistics(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    statistics = ClassCorrelationLoss(5).statistics(outputs, targets.clamp(max=3))
    assert statistics.isfinite().all()


def test_weighted_losses(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    parts = (F.cross_entropy, F.multi_margin_loss)
    loss = weighted_losses(parts)
    torch.testing.assert_close(loss(outputs, targets), F.cross_entropy(outputs, targets))
    loss.adjust(torch.tensor([0, 1]), torch.tensor([-1, 1]))
    values = [part(outputs, targets) for part in parts]
    torch.testing.assert_close(loss(outputs, targets), 0.9 * values[0] + 0.1 * values[1])
    # the slope along a weight is the loss that it weighs
    slopes = loss.statistics(outputs, targets)[:, 1]
    torch.testing.assert_close(slopes, torch.stack([value / (1 + value) for value in values]))


def test_any_function_of_parameters(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    loss = ParametricLoss(lambda outputs, targets, values: outputs.sum() * 0, initial=[0.5, 0.5])
    assert loss.statistics(outputs, targets).tolist() == [[0, 0], [0, 0]]


def test_losses_without_a_gradient_to_their_parameters(generator: torch.Generator) -> None:
    """torch has no gradient of ``pos_weight``, and a threshold has none at all: the controller sees differences."""
    outputs, targets = torch.randn(50, generator=generator), torch.arange(50) % 2

    def weighted(outputs: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets.float(), pos_weight=values[0])

    def hard(outputs: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        return (outputs.sigmoid() > values[0]).float().mean()

    slope = F.softplus(-outputs[targets == 1]).sum() / 50
    found = ParametricLoss(weighted, initial=[0.5]).statistics(outputs, targets)[0, 1]
    torch.testing.assert_close(found, slope / (1 + slope))
    assert ParametricLoss(hard, initial=[0.5]).statistics(outputs, targets)[0, 1] < -0.1
    # at a bound the difference is to one side, and an infinite loss is a large one
    assert ParametricLoss(weighted, initial=[1.0]).statistics(outputs, targets)[0, 1] == pytest.approx(
        float(found), rel=1e-4
    )
    without_end = ParametricLoss(lambda outputs, targets, values: values.sum() * torch.inf, initial=[0.5])
    assert without_end.statistics(outputs, targets)[0, 0] == 1


def test_state_of_weighted_losses_is_in_a_checkpoint() -> None:
    loss = weighted_losses([F.cross_entropy, nn.CrossEntropyLoss(torch.ones(3))])
    assert "function.modules_of_losses.0.weight" in loss.state_dict()


def test_refuses_weights_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="2 losses and 1 weights came"):
        weighted_losses([F.cross_entropy, F.multi_margin_loss], initial=[1.0])
    with pytest.raises(ValueError, match="0 losses and 1 weights"):
        weighted_losses([])
    with pytest.raises(ValueError, match="'ce' is among the losses"):
        weighted_losses(["ce"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="step_size=0"):
        ClassCorrelationLoss(4, step_size=0.0)
    with pytest.raises(ValueError, match="bounds, which lie apart"):
        ClassCorrelationLoss(4, bound=0.0)
    with pytest.raises(ValueError, match="one parameter or more"):
        ParametricLoss(lambda outputs, targets, values: outputs.sum(), initial=[])
    with pytest.raises(ValueError, match="num_moves=0"):
        ClassCorrelationLoss(4, num_moves=0)


def test_refuses_functions_that_are_no_losses() -> None:
    for function, found in ((lambda o, t, v: o * v, r"shape \(16, 1\)"), (lambda o, t, v: 1.0, "float")):
        with pytest.raises(ValueError, match=f"gave .*{found}; a scalar tensor works"):
            ParametricLoss(function, initial=[0.5])(torch.zeros(16, 1), torch.zeros(16))


def test_refuses_what_does_not_work(generator: torch.Generator) -> None:
    outputs, targets = rows(generator)
    with pytest.raises(ValueError, match="5 classes came; this loss is for 4"):
        ClassCorrelationLoss(4)(outputs, targets.clamp(max=3))
    with pytest.raises(ValueError, match="5 classes came; this loss is for 4"):
        ClassCorrelationLoss(4).statistics(outputs, targets)
    with pytest.raises(ValueError, match="form='sigmoids' came"):
        ClassCorrelationLoss(4, form="sigmoids")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside the bounds"):
        ParametricLoss(lambda outputs, targets, values: outputs.sum(), initial=[2.0])
    with pytest.raises(ValueError, match="every row of outputs is a probability"):
        ClassCorrelationLoss(5)(outputs.softmax(-1), targets)
