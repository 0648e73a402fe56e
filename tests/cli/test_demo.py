"""The demo with shorter training, and from another folder: it needs nothing but what is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from lossmith.predictions import load_predictions
from lossmith.weights import load
from tests.cli.conftest import Run


def test_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOSSMITH_DATA", raising=False)
    for name, value in (("NUM_SEEDS", 2), ("NUM_TRIALS", 1), ("NUM_STEPS", 20)):
        monkeypatch.setattr(sys.modules["lossmith.cli.demo"], name, value)  # the package has a function of that name
    result = run("demo")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].strip() == "digit 8 against the rest: average precision on 1000 held-out sets"
    assert any(line.startswith("ce ") for line in lines)
    # the best of all is the one that was learned for the metric
    assert lines[2].split()[0] == "learned"
    loss = load("runs/demo/loss.safetensors")
    assert loss(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])) < loss(torch.tensor([-2.0, 2.0]), torch.tensor([1, 0]))
    assert Path("runs/demo/alignment.png").read_bytes().startswith(b"\x89PNG")
    assert load_predictions("runs/demo/predictions.npz", kind="binary").num_sets > 20
    # the comparison ends with a verdict, and the page that it rests on
    assert any(line.startswith("Use ") for line in lines)
    assert "Report: runs/demo/report.html" in lines
    assert "smooth_ap" in Path("runs/demo/report.html").read_text(encoding="utf8")
