from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run

CODE = """
import torch

def profit(outputs, targets):
    is_called = outputs > 0
    return (10 * (is_called & (targets == 1)).sum() - is_called.sum()) / len(targets)

def noisy(outputs, targets):
    return (outputs > torch.randn(())).float().mean()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "metrics_to_explain.py").write_text(CODE, encoding="utf8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "metrics_to_explain"


def test_a_metric_of_ones_own_line_by_line(run: Run, own: str) -> None:
    result = run("explain", f"{own}:profit", "--kind", "binary", "--json").json
    (decision,) = result["decisions"]
    assert decision["operation"] == "gt"
    (source,) = decision["sources"]
    assert source.endswith(f"{own}.py:5")
    assert (decision["num_rows"], decision["num_options"], decision["error"]) == (64, 1, 0)
    assert decision["form"].startswith("generalised binary cross-entropy")
    assert result["num_runs"] >= 1
    assert not result["black_box"]


def test_a_metric_by_name_as_a_table(run: Run) -> None:
    out = run("explain", "ap", "--link", "0").out
    assert "ap on 64 binary predictions" in " ".join(out.split())
    assert "LambdaRank" in out
    assert "runs of the metric" in out


def test_predictions_of_ones_own(run: Run, own: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", outputs=np.array([0.5, -1.0, 2.0], dtype="float32"), targets=np.array([1, 1, 0]))
    result = run("explain", f"{own}:profit", "--kind", "binary", "--predictions", "p.npz", "--json").json
    assert result["value"] == pytest.approx(8 / 3)
    assert result["decisions"][0]["num_rows"] == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["profit"], "say what .* reads: --kind binary"),
        (["nothing", "--kind", "binary"], "nothing"),
        (["noisy", "--kind", "binary"], r"draws lots \(it calls randn at .*\.py:9\)"),
    ],
)
def test_mistakes_get_a_sentence(run: Run, own: str, arguments: list[str], sentence: str) -> None:
    name, *options = arguments
    assert re.search(sentence, run("explain", f"{own}:{name}", *options).sentence)


def test_direction_and_kind_are_known_of_a_metric_of_ours(run: Run) -> None:
    assert "knows its kind and its direction" in run("explain", "f1", "--kind", "binary").sentence
