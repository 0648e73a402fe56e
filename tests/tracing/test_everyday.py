"""Code of all sorts gives a loss that trains a model, or is refused with a sentence that names the line."""

from __future__ import annotations

import warnings

import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score
from torch import Tensor, nn

from lossmith import trace
from tests.tracing.everyday import BINARY, BLACK_BOXES, CLASSES, MULTICLASS, largest_in_numpy, threshold_in_numpy
from tests.tracing.unmodified import accuracy

NUM_STEPS = 12


def name_of(metric) -> str:
    return getattr(metric, "__name__", type(metric).__name__)


def threshold_of_probabilities_in_numpy(outputs: Tensor, targets: Tensor) -> float:
    return float(((outputs.sigmoid().detach().numpy() > 0.6) == targets.numpy()).mean())


def train(metric, targets: Tensor, num_outputs: int, generator: torch.Generator) -> tuple[float, float]:
    """The metric before and after a few steps of a linear model."""
    centers = torch.randn(int(targets.max()) + 1, 6, generator=generator)
    inputs = centers[targets] + torch.randn(len(targets), 6, generator=generator)
    torch.manual_seed(0)
    model = nn.Linear(6, num_outputs) if num_outputs > 1 else nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    loss, optimizer = trace(metric), torch.optim.Adam(model.parameters(), lr=0.1)

    def value() -> float:
        with torch.no_grad():
            return float(metric(model(inputs), targets))

    before = value()
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters())
        optimizer.step()
    return before, value()


@pytest.mark.parametrize("metric", MULTICLASS, ids=name_of)
def test_choices(metric, generator: torch.Generator) -> None:
    before, after = train(metric, torch.arange(24) % CLASSES, CLASSES, generator)
    assert after > before + 0.05


@pytest.mark.parametrize("metric", BINARY, ids=name_of)
def test_thresholds_and_orders(metric, generator: torch.Generator) -> None:
    before, after = train(metric, torch.arange(24) % 3 // 2, 1, generator)
    assert after > before + 0.05


@pytest.mark.parametrize(("metric", "operation"), BLACK_BOXES.items(), ids=lambda each: getattr(each, "__name__", each))
def test_random_steps_come_with_one_warning(metric, operation: str, generator: torch.Generator) -> None:
    with pytest.warns(UserWarning, match="random steps") as told:
        before, after = train(metric, torch.arange(24) % 3 // 2, 1, generator)
    assert after > before + 0.05
    (warning,) = told
    assert f"{operation} at " in str(warning.message)
    assert "everyday.py:" in str(warning.message)


@pytest.mark.parametrize("scale", [0.02, 0.3, 1.0])
def test_numbers_are_not_taken_for_an_order_by_chance(scale: float, generator: torch.Generator) -> None:
    """As of a model at its start, whose scores are all on one side of a threshold."""
    for metric in (threshold_in_numpy, threshold_of_probabilities_in_numpy):
        for _ in range(5):
            loss = trace(metric)
            with pytest.warns(UserWarning, match=r"numpy at .*\.py:\d+"):
                loss(scale * torch.randn(24, generator=generator), torch.arange(24) % 3 // 2)


def test_what_leaves_torch_is_taken_for_what_the_code_reads(generator: torch.Generator) -> None:
    scores, relevance = torch.randn(6, 8, generator=generator), torch.randint(3, (6, 8), generator=generator)
    targets = torch.arange(24) % CLASSES
    for metric, outputs, truth, rows, form in (
        (largest_in_numpy, torch.randn(24, CLASSES, generator=generator), targets, 24, "better alternatives"),
        (lambda o, t: ndcg_score(t.numpy(), o.numpy(), k=3), scores, relevance, 6, "logistic loss of pairs"),
        (
            lambda o, t: average_precision_score(t.numpy(), o.sigmoid().detach().numpy(), average="macro"),
            torch.randn(24, 3, generator=generator),
            (torch.arange(24)[:, None] + torch.arange(3)) % 3 // 2,
            3,
            "logistic loss of pairs",
        ),
    ):
        (decision,) = trace(metric).explain(outputs, truth).decisions
        assert (decision.operation, decision.num_rows) == ("numpy", rows)
        assert form in decision.form


def test_numbers_that_the_code_checks_are_not_moved_about(generator: torch.Generator) -> None:
    def one_against_rest(outputs: Tensor, targets: Tensor) -> float:
        return roc_auc_score(targets.numpy(), outputs.softmax(1).detach().double().numpy(), multi_class="ovr")

    outputs = torch.randn(24, CLASSES, generator=generator, requires_grad=True)
    with pytest.warns(UserWarning, match=r"numpy at .*test_everyday.py:\d+"):
        trace(one_against_rest)(outputs, torch.arange(24) % CLASSES).backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_a_gradient_of_its_own_beside_numbers_out_of_sight_is_followed_by_random_steps(
    generator: torch.Generator,
) -> None:
    def distance_and_largest(outputs: Tensor, targets: Tensor) -> Tensor:
        return -(outputs - targets).abs().mean() - float(outputs.detach().numpy().max())

    with pytest.warns(UserWarning, match=r"scores leave torch by numpy at .*test_everyday.py:\d+"):
        trace(distance_and_largest)(torch.randn(8, generator=generator), torch.zeros(8))


def test_part_of_a_continuous_metric_that_has_no_gradient_is_not_lost(generator: torch.Generator) -> None:
    def distance_and_histogram(outputs: Tensor, targets: Tensor) -> Tensor:
        return -(outputs - targets).abs().mean() - torch.histc(outputs, 4, -2, 2)[0]

    with pytest.warns(UserWarning, match=r"nothing is known of histc at .*test_everyday.py:\d+"):
        trace(distance_and_histogram)(torch.randn(8), torch.zeros(8))


def test_more_decisions_than_can_be_followed_one_by_one() -> None:
    def by_bubbles(outputs: Tensor, targets: Tensor) -> float:
        return sum(bool(one > other) for one in outputs for other in outputs) / len(outputs) + float(targets[0])

    outputs = torch.randn(33, requires_grad=True)
    with pytest.warns(UserWarning, match=r"gt at .*test_everyday.py:\d+ decides 1,089 times, one by one"):
        trace(by_bubbles)(outputs, torch.zeros(33)).backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_rows_that_look_alike_while_nothing_is_worth_anything(generator: torch.Generator) -> None:
    """A token is worth something in the few answers that it alone makes wrong, and nothing in all others."""

    def exact(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).all(-1).float().mean()

    targets = torch.arange(24).view(6, 4) % 3
    outputs = torch.randn(6, 4, 3, generator=generator)
    outputs[0] = nn.functional.one_hot(targets[0])
    outputs[0, 1] = -outputs[0, 1]  # one token short of a right answer
    outputs.requires_grad_()
    trace(exact)(outputs, targets).backward()
    assert outputs.grad is not None
    is_close = torch.zeros(6, 4, dtype=torch.bool)
    is_close[0, 1] = True
    assert torch.equal(outputs.grad.abs().sum(-1) > 0, is_close)


def test_where_no_single_decision_counts_it_is_said_once() -> None:
    def all_or_nothing(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).float().prod()

    loss, outputs = trace(all_or_nothing), torch.zeros(8, 4, requires_grad=True)
    for _ in range(2):
        loss(outputs, torch.arange(8) % 4).backward()
    with pytest.warns(UserWarning, match="on the first 3 sets no single decision changes the metric"):
        loss(outputs, torch.arange(8) % 4)
    assert outputs.grad is not None
    assert (outputs.grad == 0).all()
    loss(outputs, torch.arange(8) % 4)  # a second warning would be an error


def test_what_remembers_earlier_calls_is_refused() -> None:
    seen = []

    def running(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(len(targets))
        return (outputs > 0).float().sum() / sum(seen)

    with pytest.raises(ValueError, match="remembers earlier calls"):
        trace(running)(torch.ones(4), torch.ones(4))


def test_debugging_output_changes_nothing(generator: torch.Generator) -> None:
    def with_a_look(outputs: Tensor, targets: Tensor) -> Tensor:
        assert outputs.isfinite().all()
        assert f"{float(outputs.max()):.2f} {outputs.shape}"
        return accuracy(outputs, targets)

    outputs, targets = torch.randn(8, 4, generator=generator), torch.arange(8) % 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(trace(with_a_look)(outputs, targets), trace(accuracy)(outputs, targets))


def test_a_loop_over_rows_takes_a_bounded_number_of_runs(generator: torch.Generator) -> None:
    num_runs = 0

    def of_rows(outputs: Tensor, targets: Tensor) -> float:
        nonlocal num_runs
        num_runs += 1
        total = 0.0
        for row, truth in zip(outputs, targets):
            if row.softmax(0).max() < 0.3:
                total += 0.2
            elif int(row.argmax()) == int(truth):
                total += 1.0
        return total / len(outputs)

    loss = trace(of_rows)
    outputs, targets = torch.randn(40, 4, generator=generator, requires_grad=True), torch.arange(40) % 4
    loss(outputs, targets)
    total, num_runs = torch.zeros(40, 4), 0
    for _ in range(3):
        (gradient,) = torch.autograd.grad(loss(outputs, targets), outputs)
        total += gradient
    assert num_runs <= 3 * 130  # each has 200 options
    # options are drawn, and weighted: on the mean it is the gradient of all
    is_target = nn.functional.one_hot(targets, 4) == 1
    assert total[is_target].mean() < 0 < total[~is_target].mean()
