"""Pages of results say what the committed results say."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from lossmith.lab.reproduce import EXPERIMENTS, pages
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict


def _at_once() -> Generator[float, None, Result]:
    yield 1.0
    return {"f1": 0.75}


FOLDER = Path(__file__).parent.parent.parent / "docs" / "results"
TOY = Experiment(
    "ala-toy",
    "A toy.",
    {"smoke": "at once", "cpu": "a second", "paper": "a year"},
    units=lambda scale: [Unit("a", {}, lambda folder: _at_once())],
    judge=lambda scale, results: Verdict(
        ("loss", "f1"), [("ce", str(results["a"]["f1"]))], [Bar("gain", 0.5, 0.4), Bar("error", 0.3, 0.1, False)]
    ),
    notes="Errors are large, because the toy is small.",
)


def test_pages_are_up_to_date(tmp_path: Path) -> None:
    for made in pages.write_pages(tmp_path):
        assert (FOLDER / made.name).read_text(encoding="utf8") == made.read_text(encoding="utf8"), (
            f"{made.name} is out of date: python -m lossmith.lab.reproduce.pages docs/results"
        )
    assert {path.name for path in FOLDER.glob("*.md")} == {path.name for path in tmp_path.iterdir()}


def test_every_experiment_has_a_page_in_the_nav() -> None:
    nav = (FOLDER.parent.parent / "mkdocs.yml").read_text(encoding="utf8")
    assert {pages.page_of(experiment) for experiment in EXPERIMENTS.values()} == set(pages.TITLES)
    for page in ("index", *pages.TITLES):
        assert f"results/{page}.md" in nav


def test_page_of_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lossmith.lab.reproduce.COMMITTED", tmp_path)
    monkeypatch.setattr(pages, "EXPERIMENTS", {"ala-toy": TOY})
    versions = '{"lossmith": "0.1.0", "torch": "2.13.0"}'
    (tmp_path / "ala-toy-cpu.json").write_text(f'{{"versions": {versions}, "results": {{"a": {{"f1": 0.75}}}}}}')
    text = pages.experiments_page("ala")
    assert "`lossmith reproduce ala-toy --scale cpu --show` (a second; lossmith 0.1.0, torch 2.13.0):" in text
    assert "| loss | f1 |\n|---|---|\n| ce | 0.75 |" in text
    assert "| gain | 0.5000 | ≥ 0.4 | met |\n| error | 0.3000 | ≤ 0.1 | **missed** |" in text
    assert text.endswith(f"{TOY.notes}\n\nNot run: `paper` (a year).\n")
    assert "| [`ala-toy`](ala.md#ala-toy) | A toy. | cpu | 1 of 2 met |" in pages.index_page()
    (tmp_path / "ala-toy-cpu.json").unlink()
    assert "| [`ala-toy`](ala.md#ala-toy) | A toy. | not run yet |  |" in pages.index_page()
