from __future__ import annotations

import math
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lossmith.metrics import counts
from lossmith.metrics.counts import Counts, Formula, OfCounts, average_over_classes, count

FORMULAS: dict[str, Formula] = {
    "accuracy": counts.accuracy,
    "error": counts.error,
    "precision": counts.precision,
    "recall": counts.recall,
    "f1": counts.f_beta,
    "f2": partial(counts.f_beta, beta=2.0),
    "jaccard": counts.jaccard,
    "balanced_accuracy": counts.balanced_accuracy,
    "mcc": counts.mcc,
    "kappa": counts.kappa,
}
each_formula = pytest.mark.parametrize("formula", FORMULAS.values(), ids=list(FORMULAS))


def test_values_worked_by_hand() -> None:
    tp, fp, fn, tn = 6.0, 2.0, 4.0, 8.0
    expected = {
        "accuracy": 14 / 20,
        "error": 6 / 20,
        "precision": 6 / 8,
        "recall": 6 / 10,
        "f1": 12 / 18,
        "f2": 30 / (30 + 16 + 2),
        "jaccard": 6 / 12,
        "balanced_accuracy": (6 / 10 + 8 / 10) / 2,
        "mcc": (48 - 8) / math.sqrt(8 * 12 * 10 * 10),
        "kappa": (14 / 20 - (8 * 10 + 12 * 10) / 400) / (1 - (8 * 10 + 12 * 10) / 400),
    }
    values = {name: formula(Counts(*torch.tensor([tp, fp, fn, tn]))) for name, formula in FORMULAS.items()}
    assert_close(values, {name: torch.tensor(value) for name, value in expected.items()})


@each_formula
def test_zero_by_zero_is_zero_and_never_infinite(formula: Formula) -> None:
    """Every pattern of absent decisions and classes: with none of them wrong or right, only kappa has no value."""
    patterns = torch.tensor(list(product([0.0, 3.0], repeat=4)))
    values = formula(Counts(*patterns.unbind(-1)))
    assert not values.isinf().any()
    undefined = patterns[values.isnan()].tolist()
    one_class = [[0, 0, 0, 0], [0, 0, 0, 3], [3, 0, 0, 0]]
    assert undefined == (one_class if formula is counts.kappa else [])


@each_formula
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e4])
def test_gradients_of_soft_counts_are_finite(formula: Formula, scale: float) -> None:
    """Also where a class is absent, or next to nothing is predicted: the root of MCC is 0 there."""
    patterns = torch.tensor(list(product([0.0, 1.0, 0.3], repeat=4)))
    tp, fp, fn, tn = patterns.unbind(-1)
    soft = torch.stack([scale * tp, scale * fp, fn, tn]).requires_grad_()
    formula(Counts(*soft)).nansum().backward()
    assert soft.grad is not None
    assert soft.grad.isfinite().all()


@each_formula
@pytest.mark.parametrize("score", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("targets", [[0, 0, 0], [1, 1, 1], [1, 0, -100], [-100, -100, -100]])
def test_gradients_of_scores_are_finite(formula: Formula, score: float, targets: list[int]) -> None:
    outputs = torch.full((3,), score, requires_grad=True)
    formula(count(outputs.sigmoid(), torch.tensor(targets))).nan_to_num().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


@each_formula
def test_gradients_are_right(formula: Formula, generator: torch.Generator) -> None:
    soft = torch.rand(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda each: formula(Counts(*each)), soft)


@each_formula
def test_soft_counts_of_hard_decisions_are_the_counts(formula: Formula, generator: torch.Generator) -> None:
    decisions = torch.rand(5, 40, generator=generator) < 0.4
    targets = torch.randint(2, (5, 40), generator=generator)
    targets[:, ::7] = -100
    assert_close(formula(count(decisions.float(), targets)), formula(count(decisions, targets)))


def test_count_along_another_dimension_and_without_what_is_left_out() -> None:
    decisions = torch.tensor([[True, False], [True, True], [False, True]])
    targets = torch.tensor([[1, 1], [0, -100], [0, 1]])
    assert [each.tolist() for each in count(decisions, targets, dim=0)] == [[1, 1], [1, 0], [0, 1], [1, 0]]


def test_properties_of_counts() -> None:
    given = Counts(*torch.tensor([1.0, 2.0, 3.0, 4.0]))
    properties = (given.positives, given.negatives, given.predicted, given.rejected, given.total, given.covariance)
    assert [each.item() for each in properties] == [4, 6, 3, 7, 10, 4 - 6]


def test_predicted_is_strictly_above_the_threshold() -> None:
    outputs, targets = torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([[1, 1, 1]])
    assert OfCounts(counts.recall, threshold=0.5)(outputs, targets).item() == pytest.approx(1 / 3)


def test_counts_beyond_what_float32_products_hold() -> None:
    many = Counts(*torch.tensor([4e9, 1e9, 2e9, 3e9]))
    few = Counts(*torch.tensor([4.0, 1.0, 2.0, 3.0]))
    for formula in FORMULAS.values():
        assert_close(formula(many), formula(few))


def test_averages() -> None:
    per_class = Counts(*torch.tensor([[4.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 2.0, 0.0], [2.0, 5.0, 8.0]]))

    def average(kind: str) -> Tensor:
        return average_over_classes(
            per_class,
            formula=counts.f_beta,
            average=kind,  # type: ignore[arg-type]
            is_member=lambda each: each.positives > 0,
        )

    assert_close(average("macro"), torch.tensor((0.8 + 0) / 2))
    assert_close(average("weighted"), torch.tensor((5 * 0.8 + 0) / 7))
    assert_close(average("micro"), torch.tensor(8 / (8 + 2 + 3)))
