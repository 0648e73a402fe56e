"""The page: everything is on it, nothing on it is taken for markup, nothing of it is elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from lossmith.alignment import Alignment, Estimate
from lossmith.lab.comparing.insights import FILE_NAME, Help, Insights, Shape, as_json
from lossmith.lab.report import Run, read_run, write_report
from lossmith.lab.report.page import render
from lossmith.lab.statistics import compare_paired
from tests.lab.comparisons import made_up

EVIL = '<script>alert(1)</script><img src=x onerror=alert(2)> "quoted" $\\alpha$ & co'


def insights() -> Insights:
    values = torch.linspace(0, 1, 300)
    estimate = Estimate(0.91, 0.9, 0.92)
    alignment = Alignment("ap", estimate, estimate, 1, 0.1, 300, 0, values, values)
    shape = Shape(values, 1 - values.round(), {"ce": 1 - values, "smooth_ap": (1 - values) ** 2})
    gain = compare_paired([0.9, 0.91, 0.92], [0.8, 0.82, 0.83])
    return Insights((Help("a larger model", gain),), {"ce": alignment, "smooth_ap": alignment}, shape)


def a_run(data: str = "made up", **options: object) -> Run:
    return Run(
        made_up(data=data, **options),  # type: ignore[arg-type]
        ("lossmith", "compare", "table.csv", "--target", "a column"),
        {"lossmith": "0.1.0"},
        {"rows": "1,797"},
        insights(),
    )


class Texts(HTMLParser):
    """What a reader sees, and which elements there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def test_everything_is_on_the_page() -> None:
    run = a_run()
    seen = Texts(render([run]))
    assert run.comparison.verdict in seen.text
    assert run.comparison.verdict.startswith("Use smooth_ap: +")
    for title in ("Is it more than noise?", "Learning curves", "Ranks", "Alignment", "Shape", "How it was made"):
        assert title in seen.texts
    assert sum(tag == "svg" for tag, _ in seen.tags) == 5
    assert "lossmith compare table.csv --target 'a column'" in seen.text
    for words in ("a larger model", "1,797", "10000, 10001, 10002, 10003, 10004", 'find_loss("smooth_ap", "binary")'):
        assert words in seen.text
    rows = [attributes["data-value"] for tag, attributes in seen.tags if tag == "td" and "data-value" in attributes]
    assert rows[::9] == ["smooth_ap", "traced", "ce", "ce_again", "focal"]


def test_a_warning_is_given_once() -> None:
    seen = Texts(render([a_run(warning="it was late")]))
    (late,) = (text for text in seen.texts if "it was late" in text)
    assert late == "traced: it was late"
    (last,) = (text for text in seen.texts if "the last checkpoint is the best" in text)
    assert last.startswith("smooth_ap, traced, ce, ")


def test_what_was_typed_is_text() -> None:
    run = Run(
        made_up(data=EVIL, metric=EVIL, warning=EVIL),
        (EVIL,),
        {EVIL: EVIL},
        {EVIL: EVIL},
        Insights((Help(EVIL, insights().helps[0].gain),)),
    )
    page = render([run, run])
    seen = Texts(page)
    assert sum(tag == "script" for tag, _ in seen.tags) == 1
    assert not any(tag == "img" for tag, _ in seen.tags)
    assert not any(name.startswith("on") for _, attributes in seen.tags for name in attributes)
    # in a picture, too, and not as mathematics
    (label,) = {text for text in seen.texts if "on validation rows" in text and "alert(1)" in text}
    assert label.strip() == f"{EVIL} on validation rows"


def test_nothing_is_elsewhere() -> None:
    page = render([a_run()])
    addresses = set(re.findall(r"(?:href|src|url)\s*[=(]\s*['\"]?([^'\")\s>]+)", page))
    assert all(address.startswith("#") for address in addresses), addresses
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_the_same_trials_give_the_same_page() -> None:
    assert render([a_run()]) == render([a_run()])


def test_several_runs(tmp_path: Path) -> None:
    runs = [a_run(f"data {number}", noise=0.01 * number) for number in range(4)]
    page = write_report(runs, tmp_path / "report.html")
    assert page.stat().st_size < 2_000_000
    seen = Texts(page.read_text(encoding="utf8"))
    assert (
        sum(attributes.get("aria-label") == "Critical-difference diagram over data sets" for _, attributes in seen.tags)
        == 1
    )
    assert "Friedman's test" in seen.text
    # of different metrics there are no common ranks
    seen = Texts(render([a_run(), a_run(metric="auc")]))
    assert not any(attributes.get("aria-label", "").endswith("over data sets") for _, attributes in seen.tags)


def test_a_run_that_has_only_begun() -> None:
    comparison = made_up(gains={"ce": 0.0}, with_confirmation=False)
    seen = Texts(render([Run(comparison)]))
    assert comparison.verdict in seen.text
    empty = made_up(gains={"ce": 0.0}, num_seeds=2, with_confirmation=False)
    nothing = type(empty)(empty.settings, True, (), is_complete=False)
    assert "Nothing can be said yet" in Texts(render([Run(nothing)])).text


def test_a_metric_of_which_less_is_better() -> None:
    run = Run(made_up(metric="eer", higher_is_better=False))
    page = render([run])
    assert 'aria-sort="ascending"' in page
    assert run.comparison.table[0].recipe == "smooth_ap"


def test_folders(tmp_path: Path) -> None:
    run = a_run()
    run.comparison.save(tmp_path)
    (tmp_path / FILE_NAME).write_text(json.dumps(as_json(run.insights)), encoding="utf8")
    content = {"command": list(run.command), "versions": dict(run.versions), "facts": dict(run.facts)}
    (tmp_path / "run.json").write_text(json.dumps(content), encoding="utf8")
    assert Texts(render([read_run(tmp_path)])).texts == Texts(render([run])).texts


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run to report"):
        write_report([], tmp_path / "x.html")
    with pytest.raises(ValueError, match="there is no folder"):
        write_report([a_run()], tmp_path / "no" / "x.html")
    with pytest.raises(ValueError, match=r"comparison\.json is not there"):
        read_run(tmp_path)


def test_a_candidate_without_fresh_seeds_is_judged_by_the_corrected_p() -> None:
    whole = made_up(gains={"ce": 0.0, "smooth_ap": 0.01, "traced": 0.004, "focal": 0.0}, noise=0.006)
    cut = replace(whole, trials=tuple(t for t in whole.trials if not t.is_confirmation or t.recipe == "ce"))
    assert whole.is_confirmed
    assert not cut.is_confirmed
    assert "fresh" not in cut.verdict
    row = next(row for row in cut.table if row.recipe == cut.candidate)
    assert (cut.best() == row.recipe) == (row.p_corrected < 0.05)
    assert "fresh seeds won" not in render([Run(cut)])


def test_the_lines_of_a_metric_of_ones_own() -> None:
    comparison = made_up(metric="profit", gains={"ce": 0.0, "traced": 0.05})
    assert comparison.snippet() == "import lossmith\nloss = lossmith.trace(metric, link=0.5)"
