"""Loaders of the network, on what lies here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lossmith.kinds import Kind
from lossmith.lab.datasets import fetching


def test_what_scikit_learn_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments that are asked for, and the form that comes."""
    asked = {}

    def fetch_openml(**arguments: object) -> dict[str, object]:
        asked.update(arguments)
        return {
            "data": np.array([[1.0, 0.0], [2.0, np.nan], [3.0, 1.0], [4.0, 1.0]] * 10),
            "target": np.array(["a", "b", "c", "c"] * 10),
            "feature_names": ["age", "kind"],
            "categories": {"kind": ["cat", "dog"]},
        }

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    pool = fetching.fetch_openml_table(37)
    assert asked["data_id"] == 37
    assert pool.kind is Kind.MULTICLASS
    assert pool.columns == ("age", "kind=cat", "kind=dog", "kind=is missing")
    fetching.fetch_openml_table("adult")
    assert asked["name"] == "adult"


def test_local_files_of_the_hub(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    path = tmp_path / "a.csv"
    path.write_text("age,ill\n" + "1,no\n2,yes\n" * 20, encoding="utf8")
    assert fetching.fetch_hub_table("csv", data_files=str(path), target="ill").classes == ("no", "yes")


def test_the_hub_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ValueError, match="pip install 'lossmith\\[hub\\]'"):
        fetching.fetch_hub_table("csv")
