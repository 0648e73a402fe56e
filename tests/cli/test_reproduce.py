"""Experiments from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lossmith.lab import reproduce
from tests.cli.conftest import Run


def test_list(run: Run) -> None:
    result = run("reproduce")
    assert result.code == 0
    assert all(name in result.out for name in reproduce.EXPERIMENTS)
    listed = run("reproduce", "--json").json["experiments"]
    assert [each["name"] for each in listed] == list(reproduce.EXPERIMENTS)


def test_run_and_run_again(run: Run, tmp_path: Path) -> None:
    command = ("reproduce", "uniloss-mnist-ap", "--scale", "smoke", "--folder", tmp_path, "--json")
    result = run(*command)
    assert (result.code, result.err) == (0, "")
    assert result.json["met"] is True
    assert [(row["loss"], row["learning rate"].endswith("chosen")) for row in result.json["rows"]] == [
        ("ce", True),
        ("uniloss", True),
        ("traced", True),
        ("ce, normalised", True),
        ("traced, normalised", True),
        ("ce", False),
        ("uniloss", False),
        ("traced link 0.5", False),
    ]
    assert (tmp_path / "uniloss-mnist-ap-smoke.json").is_file()
    assert run(*command).out == result.out


def test_show_and_a_missed_bar(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "COMMITTED", tmp_path)
    command = ("reproduce", "uniloss-mnist-ap", "--show", "--json")
    assert "no result of uniloss-mnist-ap at the scale cpu is kept" in run(*command).sentence
    names = [unit.name for unit in reproduce.find_experiment("uniloss-mnist-ap").units("cpu")]
    run_of_seed = {"test": 0.99, "curve": [{"validation": 0.98}]}
    results = {
        name: {"rate": 0.1, "validation": 0.98, "runs": [run_of_seed]} if "chosen" in name else run_of_seed
        for name in names
    }
    (tmp_path / "uniloss-mnist-ap-cpu.json").write_text(json.dumps({"results": results}))
    result = run(*command)
    assert result.code == 1
    assert result.json["met"] is False
    assert "test AP of uniloss: 0.9900 ≥ 0.9988, MISSED" in result.out


def test_mistakes(run: Run) -> None:
    assert "did you mean 'uniloss-mnist-ap'" in run("reproduce", "uniloss-mnist").sentence
    sentence = run("reproduce", "uniloss-cifar10", "--scale", "huge").sentence
    assert "uniloss-cifar10 has no scale 'huge'" in sentence
    assert sentence.endswith("smoke, short, cpu, paper work.")
