from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lossmith.lab.statistics import compare_paired, holm, mean_ranks, rank_over_datasets, wilcoxon


def test_paired_is_scipys_t_test() -> None:
    own, reference = [0.8, 0.9, 0.85, 0.95, 0.7], [0.78, 0.86, 0.86, 0.9, 0.69]
    paired = compare_paired(own, reference)
    assert paired.p == pytest.approx(stats.ttest_rel(own, reference).pvalue)
    assert paired.num_wins == 4
    assert paired.low < paired.mean < paired.high


@pytest.mark.parametrize("num", [5, 16])
def test_the_interval_covers(num: int) -> None:
    """As often as it says, of five seeds too."""
    drawn = np.random.default_rng(0).normal(0.3, 1.0, size=(200, num))
    found = [compare_paired(row, np.zeros(num)) for row in drawn]
    assert 0.91 <= np.mean([each.low <= 0.3 <= each.high for each in found]) <= 0.99


def test_as_scipy_on_random_pairs() -> None:
    random = np.random.default_rng(1)
    for num in range(6, 30):
        own, reference = random.normal(size=(2, num))
        paired = compare_paired(own, reference)
        assert paired.p == pytest.approx(stats.ttest_rel(own, reference).pvalue)
        assert paired.standard_error == pytest.approx(stats.sem(own - reference))
        assert wilcoxon(own, reference) == pytest.approx(stats.wilcoxon(own, reference).pvalue)
    # of thirty pairs the interval is nearly scipy's own bootstrap
    expected = stats.bootstrap(
        (own - reference,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(2)
    ).confidence_interval
    assert paired.high - paired.low == pytest.approx(expected.high - expected.low, rel=0.1)


def test_what_is_undefined_is_no_difference() -> None:
    paired = compare_paired([0.9, 0.8, math.nan, 0.9, 0.9, 0.8], [0.5] * 6)
    assert math.isnan(paired.mean)
    assert paired.p == 1


def test_equal_values_are_no_difference() -> None:
    paired = compare_paired([1.0, 2.0], [1.0, 2.0])
    assert (paired.mean, paired.p, paired.num_wins) == (0.0, 1.0, 1.0)
    # the same difference every time is no certainty
    assert compare_paired([2.0, 3.0], [1.0, 2.0]).p == 0.5


def test_pairs_are_needed() -> None:
    with pytest.raises(ValueError, match="two pairs or more"):
        compare_paired([1.0], [2.0])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.02, 0.9]) == [0.03, 0.04, 0.9]
    assert holm([0.6, 0.5]) == [1.0, 1.0]


def test_critical_difference_is_nemenyis() -> None:
    """Demsar 2006, table 5: q = 2.569 for four methods; 14 data sets as in his table 6."""
    values = {name: np.random.default_rng(number).normal(size=14).tolist() for number, name in enumerate("abcd")}
    found = rank_over_datasets(values)
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert sum(found.average_ranks) == pytest.approx(10)
    assert found.friedman_p == pytest.approx(stats.friedmanchisquare(*values.values()).pvalue)


def test_all_equal_everywhere() -> None:
    assert math.isnan(rank_over_datasets({name: [0.5, 0.7] for name in "abc"}).friedman_p)


def test_groups_are_those_that_do_not_differ() -> None:
    better = {"a": [3.0] * 20, "b": [2.0] * 20, "c": [1.0 + 0.0 * k for k in range(20)]}
    assert rank_over_datasets(better).groups == ()
    close = {"a": [3.0, 2.0] * 10, "b": [2.0, 3.0] * 10, "c": [1.0] * 20}
    assert rank_over_datasets(close).groups == (("a", "b"),)


def test_ranks_and_wilcoxon() -> None:
    assert mean_ranks({"a": [3.0, 1.0], "b": [1.0, 1.0]}) == {"a": 1.25, "b": 1.75}
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert wilcoxon([2.0, 3.0, 4.0, 5.0, 6.0], [1.0] * 5) == pytest.approx(0.0625)
