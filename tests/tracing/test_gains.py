"""Every gain that makes a gradient is what the metric says when that one decision is really taken otherwise."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from lossmith.tracing.gains import GainsOfSome, Subject
from lossmith.tracing.plan import find, survey
from tests.tracing.unmodified import LIBRARIES, OWN, Case

NUM_CHECKS = 40
# of the value of the metric: no gain can be told from zero below
NOISE = 1e-6


def true_gains(subject: Subject, numbers: tuple[int, ...], option: Tensor, row: Tensor) -> Tensor:
    """By plain runs, one decision changed in each: no lanes anywhere."""
    before = float(subject.goodness(subject.run()[0]))
    found = []
    for each in range(len(row)):

        def override(number, decision, leaders=[], index=slice(each, each + 1)):  # noqa: B006
            if number not in numbers:
                return None
            outcome = decision.single_options(option[index], row[index], *leaders[:1])[0]
            leaders.append(decision)
            return outcome

        with torch.no_grad():
            found.append(float(subject.goodness(subject.run(override=override)[0])) - before)
    return torch.tensor(found, dtype=torch.float64).nan_to_num(0)


@pytest.mark.parametrize("case", OWN + LIBRARIES, ids=lambda case: case.name)
def test_gains_are_true(case: Case, generator: torch.Generator) -> None:
    expected, found = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what metrics themselves complain about
        for _ in range(2):
            outputs, targets = case.draw(generator)
            subject = Subject(case.fn, outputs.requires_grad_(), targets, sign=1)
            plan = survey(subject, generator)
            assert not plan.black_box
            _, all_gains = find(plan, subject, 1.0, generator)
            for numbers, gains in all_gains.items():
                if isinstance(gains, GainsOfSome):
                    option, row, claimed = gains.option, gains.row, gains.gains
                else:
                    num_rows = gains.decision.rows.numel()
                    number = torch.randint(gains.decision.num_options * num_rows, (NUM_CHECKS,), generator=generator)
                    option, row = number // num_rows, number % num_rows
                    claimed = gains.at(option, row)
                option, row, claimed = option[:NUM_CHECKS], row[:NUM_CHECKS], claimed[:NUM_CHECKS]
                expected.append(true_gains(subject, numbers, option, row))
                found.append(claimed.double())
    true, claimed = torch.cat(expected), torch.cat(found)
    is_worth = true.abs() > NOISE
    assert is_worth.any()
    assert (true.sign() == claimed.sign())[is_worth].double().mean() >= 0.99
    is_constant = (true - true.mean()).abs().max() < NOISE
    assert is_constant or torch.corrcoef(torch.stack((true, claimed)))[0, 1] >= 0.99
