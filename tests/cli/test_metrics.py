from __future__ import annotations

from lossmith.metrics import METRICS
from tests.cli.conftest import Run


def test_every_metric_is_listed(run: Run) -> None:
    listed = run("metrics", "--json").json["metrics"]
    assert [metric["name"] for metric in listed] == list(METRICS)
    for metric in listed:
        assert metric["kind"] == METRICS[metric["name"]].kind
        assert metric["higher_is_better"] is METRICS[metric["name"]].higher_is_better
        assert 10 < len(metric["description"]) < 160
        assert "\n" not in metric["description"]
        assert "`" not in metric["description"]


def test_table(run: Run) -> None:
    lines = run("metrics").out.splitlines()
    assert lines[0].strip() == f"{len(METRICS)} metrics"
    (row,) = [line.split() for line in lines if line.startswith("edit_distance ")]
    assert row[1:3] == ["tokens", "lower"]


def test_one_kind(run: Run) -> None:
    listed = run("metrics", "--kind", "binary", "--json").json["metrics"]
    assert {metric["kind"] for metric in listed} == {"binary"}
    assert {"ap", "auc", "f1"} <= {metric["name"] for metric in listed}


def test_unknown_kind(run: Run) -> None:
    assert run("metrics", "--kind", "binry").sentence.startswith("'binry' is not a kind of predictions; kinds are bin")
