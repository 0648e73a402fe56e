"""Every loss that is written out for stacks equals, run by run, the loss that a user gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lossmith.baselines import find_loss
from lossmith.combining import combine
from lossmith.kinds import Kind
from lossmith.lab.comparing.stack_losses import (
    AtThreshold,
    EachItsOwn,
    Mapped,
    Mix,
    Normalised,
    Pairs,
    SmoothAp,
    Then,
    TracedApOfPairs,
    TracedCounts,
    TracedRanking,
    any_of,
    equal_error_thresholds,
    gradient_norms,
    logistic,
    misordered,
    on_stack,
    sweep_thresholds,
)
from lossmith.metrics import METRICS, tune_threshold
from lossmith.metrics.counts import OfCounts
from lossmith.tracing import trace


@pytest.fixture
def stack(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = (torch.rand(3, 24, generator=generator) < torch.tensor([[0.2], [0.5], [0.8]])).long()
    return torch.randn(3, 24, generator=generator), targets


def with_gradient(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    outputs = outputs.clone().requires_grad_()
    values = loss(outputs, targets)
    return values.detach(), torch.autograd.grad(values.sum(), outputs)[0]


def check_same(
    of_stack: Callable[[Tensor, Tensor], Tensor],
    of_set: Callable[[Tensor, Tensor], Tensor],
    stack: tuple[Tensor, Tensor],
) -> None:
    found = with_gradient(of_stack, *stack)
    each = [with_gradient(of_set, *pair) for pair in zip(*stack)]
    for own, expected in zip(found, zip(*each)):
        assert torch.allclose(own, torch.stack(expected), atol=1e-5)
    assert bool((found[1] != 0).any())


@pytest.mark.parametrize("link", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ["f1", "mcc", "jaccard", "binary_error", "balanced_accuracy"])
def test_traced_counts(name: str, link: float, stack: tuple[Tensor, Tensor]) -> None:
    metric = METRICS[name]
    assert isinstance(metric.value, OfCounts)
    own = TracedCounts(metric.value.formula, link, metric.higher_is_better)
    check_same(own.of_stack, trace(metric, link=link), stack)


@pytest.mark.parametrize("link", [0.5, 1.0])
@pytest.mark.parametrize("name", ["auc", "ap"])
def test_traced_rankings(name: str, link: float, stack: tuple[Tensor, Tensor]) -> None:
    check_same(TracedRanking(name, link).of_stack, trace(METRICS[name], link=link), stack)


def test_pairs_and_smooth_ap(stack: tuple[Tensor, Tensor]) -> None:
    check_same(Pairs(logistic).of_stack, find_loss("pairwise", "binary"), stack)
    check_same(SmoothAp().of_stack, find_loss("smooth_ap", "binary"), stack)


def test_traced_pairs_are_auc_traced(stack: tuple[Tensor, Tensor]) -> None:
    def auc_of_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[targets == 1].unsqueeze(-1) > outputs[targets == 0]).float().mean()

    check_same(Pairs(misordered).of_stack, trace(auc_of_pairs, link=1), stack)


@pytest.mark.parametrize("link", [0.5, 1.0])
def test_traced_ap_of_pairs_is_ap_traced(link: float, stack: tuple[Tensor, Tensor]) -> None:
    def ap_of_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
        above = (outputs > outputs[targets == 1].unsqueeze(-1)).float()
        return (((above * (targets == 1)).sum(-1) + 1) / (above.sum(-1) + 1)).mean()

    for outputs, targets in zip(*stack):
        assert torch.allclose(ap_of_pairs(outputs, targets), METRICS["ap"](outputs, targets))
    check_same(TracedApOfPairs(link).of_stack, trace(ap_of_pairs, link=link), stack)


def test_pairs_by_hand() -> None:
    outputs, targets = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1, 0, 0]])
    assert torch.allclose(Pairs(misordered).of_stack(outputs, targets), torch.tensor([1.0]).neg().sigmoid())


def test_scaled_smooth_ap_does_not_see_the_scale(stack: tuple[Tensor, Tensor]) -> None:
    loss = SmoothAp(is_standardised=True)
    assert torch.allclose(loss.of_stack(*stack), loss.of_stack(100 * stack[0], stack[1]), atol=1e-5)


def test_runs_of_one_class_say_nothing(stack: tuple[Tensor, Tensor]) -> None:
    outputs, targets = stack[0], torch.ones_like(stack[1])
    targets[0] = 0
    targets[1, :3] = 0
    for loss in (Pairs(logistic), SmoothAp(), TracedRanking("auc"), TracedRanking("ap"), TracedApOfPairs()):
        values, gradient = with_gradient(loss.of_stack, outputs, targets)
        assert bool(values.isfinite().all())
        assert bool(gradient.isfinite().all())
        assert not bool(gradient[0].any())
        assert bool(gradient[1].any())


@pytest.mark.parametrize("name", ["ce", "focal", "lovasz", "soft_f1", "balanced_ce", "hinge"])
def test_mapped_baselines(name: str, stack: tuple[Tensor, Tensor]) -> None:
    check_same(on_stack(find_loss(name, "binary")), find_loss(name, "binary"), stack)


def test_code_that_reads_numbers_is_looped(stack: tuple[Tensor, Tensor]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean() if float(outputs.detach().sum()) > 0 else outputs.abs().mean()

    check_same(Mapped(loss), loss, stack)


def test_each_run_has_its_own_weights(stack: tuple[Tensor, Tensor]) -> None:
    loss = find_loss("aucpr", "binary")
    assert isinstance(loss, torch.nn.Module)
    own = EachItsOwn(loss, 3)
    check_same(own.of_stack, loss, stack)
    own.of_stack(*stack)[1].backward()
    gradients = [weights.grad for weights in own.parameters()]
    assert all(each is not None and bool(each[1].any()) and not bool(each[0].any()) for each in gradients)


def test_mix_is_combine(stack: tuple[Tensor, Tensor]) -> None:
    ce, traced = find_loss("ce", "binary"), TracedCounts(METRICS["f1"].value.formula, 0.5)  # type: ignore[attr-defined]
    check_same(
        Mix(on_stack(ce), traced.of_stack, weight=0.5).of_stack,
        lambda outputs, targets: combine(ce, trace(METRICS["f1"], link=0.5), weight=0.5)(outputs, targets),
        stack,
    )


def test_then_changes_over(stack: tuple[Tensor, Tensor]) -> None:
    ce, other = on_stack(find_loss("ce", "binary")), on_stack(find_loss("soft_f1", "binary"))
    loss = Then(ce, other, num_steps=1)
    first, second = (with_gradient(loss.of_stack, *stack)[1] for _ in range(2))
    of_ce, of_other = (with_gradient(each, *stack)[1] for each in (ce, other))
    assert torch.allclose(first, of_ce)
    assert torch.allclose(
        second / second.norm(dim=1, keepdim=True), of_other / of_other.norm(dim=1, keepdim=True), atol=1e-5
    )
    assert torch.allclose(second.norm(dim=1), of_ce.norm(dim=1))


def test_normalised_gradients_have_one_length(stack: tuple[Tensor, Tensor]) -> None:
    loss = Normalised(lambda outputs, targets: 1000 * (outputs * targets).sum(1), penalty=0.0)
    _, gradient = with_gradient(loss.of_stack, *stack)
    assert torch.allclose(gradient.norm(dim=1), torch.full((3,), 24**-0.5))
    outputs = stack[0].clone().requires_grad_()
    assert torch.allclose(gradient_norms((outputs * 2).sum(1), outputs), torch.full((3,), 2 * 24**0.5))


@pytest.mark.parametrize("name", ["f1", "mcc", "binary_error"])
def test_sweep_finds_what_tune_threshold_finds(name: str, stack: tuple[Tensor, Tensor]) -> None:
    metric = METRICS[name]
    assert isinstance(metric.value, OfCounts)
    outputs = stack[0].round(decimals=1)  # ties
    values, thresholds = sweep_thresholds(
        metric.value.formula, outputs, stack[1], higher_is_better=metric.higher_is_better
    )
    for value, threshold, scores, targets in zip(values, thresholds, outputs, stack[1]):
        best = tune_threshold(metric, scores, targets)
        at = metric.value(torch.stack([scores - best, scores - threshold]), targets.expand(2, -1))
        assert torch.allclose(at, value.expand(2))


def test_threshold_is_followed(stack: tuple[Tensor, Tensor]) -> None:
    metric = METRICS["balanced_accuracy"]
    assert isinstance(metric.value, OfCounts)
    plain = TracedCounts(metric.value.formula, 0.5)
    tracked = AtThreshold(plain, equal_error_thresholds)
    thresholds = equal_error_thresholds(*stack)
    expected = plain.of_stack(stack[0] - thresholds[:, None], stack[1])
    assert torch.allclose(tracked.of_stack(*stack), expected)
    # shifted scores a second time: a tenth of the way to their threshold
    again = tracked.of_stack(stack[0] + 1, stack[1])
    assert torch.allclose(again, plain.of_stack(stack[0] + 1 - (thresholds + 0.1)[:, None], stack[1]), atol=1e-5)


def test_any_of_gives_each_run_its_loss(stack: tuple[Tensor, Tensor]) -> None:
    loss = any_of([lambda outputs, targets: outputs.sum(1), lambda outputs, targets: -outputs.sum(1)], [0, 1, 0])
    assert torch.allclose(loss(*stack), stack[0].sum(1) * torch.tensor([1, -1, 1]))


def test_kinds_of_classes(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(2, 9, 4, generator=generator), torch.randint(4, (2, 9), generator=generator)
    check_same(on_stack(find_loss("ce", Kind.MULTICLASS)), find_loss("ce", Kind.MULTICLASS), (outputs, targets))
