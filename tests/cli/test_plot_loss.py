"""Surfaces from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("metric", ["ap", "accuracy", "multilabel_f1", "ndcg"])
def test_a_picture_of_a_random_batch(run: Run, tmp_path: Path, metric: str) -> None:
    result = run("plot-loss", "--metric", metric, "--loss", "ce", "--out", tmp_path / "p.png")
    assert (result.code, result.err) == (0, "") or metric == "ndcg"
    if metric == "ndcg":  # no cross-entropy of rankings: the sentence names the kind
        assert "ranking" in result.sentence
    else:
        assert result.out == f"{tmp_path / 'p.png'}: cost of {metric}, ce\n"
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_json_of_a_stored_batch(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, outputs=np.array([[2.0, -1.0, 0.5]]), targets=np.array([[1, 0, 1]]))
    arguments = ("--loss", "ce", "--predictions", path, "--out", tmp_path / "p.svg", "--json")
    result = run("plot-loss", "--metric", "auc", *arguments)
    assert list(result.json["heights"]) == ["cost of auc", "ce"]
    assert len(result.json["heights"]["ce"]) == len(result.json["values"]) == 41


def test_mistakes(run: Run, tmp_path: Path) -> None:
    assert "two places" in run("plot-loss", "--metric", "miou", "--loss", "ce", "--out", tmp_path / "p.png").sentence
    assert "name one metric" in run("plot-loss", "--out", tmp_path / "p.png").sentence
