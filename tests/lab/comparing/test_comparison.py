"""The table and the verdict, from trials made up for the purpose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lossmith.lab.comparing.comparison import Comparison, cells, load_comparison
from lossmith.lab.comparing.records import Settings, Trial

SETTINGS = Settings("toy", "f1", ("ce", "ce_again", "soft_f1", "traced"), num_seeds=3)
NOISE = (0.0, 0.01, -0.01)


def runs(recipe: str, gain: float, *, validation_gain: float | None = None, fresh: bool = False) -> list[Trial]:
    """Three seeds at two learning rates, of which the second is worse."""
    better = gain if validation_gain is None else validation_gain
    return [
        Trial(
            recipe,
            "",
            seed + 10_000 * fresh,
            rate,
            fresh,
            ((50, 0.5), (100, 0.6 + better + noise - loss)),
            100,
            0.0,
            0.6 + better + noise - loss,
            0.6 + gain * (1 + noise * 10) + noise - loss,
            0.001,
        )
        for seed, noise in enumerate(NOISE)
        for rate, loss in ((0.01, 0.0), (0.1, 0.2))
    ]


EXPLORED = [*runs("ce", 0.0), *runs("ce_again", 0.0), *runs("soft_f1", 0.05), *runs("traced", 0.03)]


def test_rows() -> None:
    table = Comparison(SETTINGS, True, tuple(EXPLORED)).table
    assert [row.recipe for row in table][:2] == ["soft_f1", "traced"]
    best = table[0]
    assert best.mean == pytest.approx(0.65)
    assert best.learning_rate == 0.01
    assert best.paired is not None
    assert best.paired.mean == pytest.approx(0.05)
    assert best.paired.num_wins == 3
    assert best.rank == 1
    assert best.p_corrected is not None
    assert best.p_corrected > best.paired.p
    reference, control = (next(row for row in table if row.recipe == name) for name in ("ce", "ce_again"))
    assert reference.paired is None
    assert control.p_corrected is None  # no candidate, so no part of the correction
    assert cells(best)[:3] == ("soft_f1", "65.00 ± 1.50", "+5.00 ± 0.29")


def test_lower_is_better() -> None:
    trials = [replace(each, test=1 - each.test, validation=1 - each.validation) for each in EXPLORED]
    comparison = Comparison(SETTINGS, False, tuple(trials))
    assert comparison.table[0].recipe == "soft_f1"
    paired = comparison.table[0].paired
    assert paired is not None
    assert paired.mean == pytest.approx(0.05)
    assert comparison.candidate == "soft_f1"


def test_fresh_seeds_decide() -> None:
    borne_out = Comparison(
        SETTINGS, True, (*EXPLORED, *runs("ce", 0.0, fresh=True), *runs("soft_f1", 0.04, fresh=True))
    )
    assert borne_out.best() == "soft_f1"
    assert borne_out.verdict.startswith("Use soft_f1: +4.00 ± 0.23 points of f1")
    assert "soft_f1" in borne_out.snippet()
    assert borne_out.verdict.endswith("on 3 fresh seeds. While exploring, traced was significantly better, too.")
    alone = Comparison(SETTINGS, True, (*runs("ce", 0.0), *runs("soft_f1", 0.05), *runs("traced", -0.03)))
    assert alone.verdict.endswith("Nothing else is significantly better.")
    refuted = Comparison(SETTINGS, True, (*EXPLORED, *runs("ce", 0.0, fresh=True), *runs("soft_f1", -0.01, fresh=True)))
    assert refuted.best() == "ce"
    assert refuted.verdict.startswith("Use cross-entropy: soft_f1 was ahead")
    assert "but not on test rows: -1.00 ± 0.06 points of f1 on 3 fresh seeds." in refuted.verdict
    assert '"ce"' in refuted.snippet()


def test_the_candidate_is_chosen_on_validation_rows() -> None:
    lucky = [
        *runs("ce", 0.0),
        *runs("soft_f1", 0.05, validation_gain=-0.1),
        *runs("traced", 0.01, validation_gain=0.02),
    ]
    assert Comparison(SETTINGS, True, tuple(lucky)).candidate == "traced"
    worse = [*runs("ce", 0.0), *runs("soft_f1", 0.05, validation_gain=-0.1)]
    comparison = Comparison(SETTINGS, True, tuple(worse))
    assert comparison.candidate == "ce"
    assert comparison.verdict.startswith("Use cross-entropy: soft_f1 was not better on the validation rows")
    (least,) = (row for row in Comparison(SETTINGS, True, tuple(runs("ce", 0.0))).table)
    assert least.recipe == "ce"
    assert Comparison(SETTINGS, True, tuple(runs("ce", 0.0))).verdict.startswith("Nothing can be said yet")


def test_a_metric_of_ones_own_is_shown_as_it_is() -> None:
    money = replace(SETTINGS, metric="profit")
    comparison = Comparison(money, True, tuple(EXPLORED))
    assert cells(comparison.table[0], comparison.scale)[:3] == ("soft_f1", "0.6500 ± 0.0150", "+0.0500 ± 0.0029")
    assert "+0.0500 ± 0.0029 of profit against" in comparison.verdict
    rich = [replace(each, test=20_000 * each.test) for each in EXPLORED]
    assert Comparison(money, True, tuple(rich)).scale.plain(13_000.4) == "13000"


def test_the_control_is_no_candidate() -> None:
    trials = [*runs("ce", 0.0), *runs("ce_again", 0.2)]
    assert Comparison(SETTINGS, True, tuple(trials)).candidate == "ce"


def test_guard_rails_speak() -> None:
    (row, *_) = Comparison(SETTINGS, True, tuple(EXPLORED)).table
    assert any("learning rate" in warning for warning in row.warnings)  # 0.01 is the smallest of two
    assert any("last checkpoint" in warning for warning in row.warnings)
    middle = [
        replace(
            each,
            learning_rate=rate,
            validation=value,
            test=value,
            curve=((50, value), (100, value - 0.1)),
            best_step=50,
        )
        for each in EXPLORED
        if each.learning_rate == 0.01
        for rate, value in ((0.003, 0.5), (0.01, each.validation), (0.03, 0.4))
    ]
    assert all(not row.warnings for row in Comparison(SETTINGS, True, tuple(middle)).table)


def test_nothing_yet() -> None:
    empty = Comparison(SETTINGS, True, ())
    assert empty.table == ()
    assert "Nothing can be said yet" in empty.verdict
    assert empty.best() == "ce"


def test_saved_and_loaded(tmp_path: Path) -> None:
    comparison = Comparison(SETTINGS, True, tuple(EXPLORED), is_complete=False)
    comparison.save(tmp_path / "new")
    assert load_comparison(tmp_path / "new") == comparison
    assert comparison.verdict.startswith("So far, use soft_f1: ")
    assert comparison.verdict.endswith("(not yet confirmed). The time was up, and not everything was run.")
    cut = replace(comparison, trials=(*runs("ce", 0.0), *runs("soft_f1", 0.0, validation_gain=-0.1)))
    assert cut.verdict.startswith("So far, use cross-entropy: soft_f1 was not better")
    assert cut.verdict.endswith("The time was up, and ce_again, traced had no turn.")
    with pytest.raises(ValueError, match="is not there"):
        load_comparison(tmp_path)
    assert "<table>" in comparison._repr_html_()
    lines = repr(comparison).splitlines()
    assert lines[0] == "toy, f1 on test rows"
    assert lines[1].split()[:2] == ["loss", "f1"]
    assert lines[2].startswith("soft_f1 ")
    assert lines[-1] == comparison.verdict
