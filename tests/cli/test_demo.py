"""The demo, as it is, and from another folder: it needs nothing but what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lossmith.predictions import load_predictions
from lossmith.weights import load
from tests.cli.conftest import Run


def test_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOSSMITH_DATA", raising=False)
    result = run("demo")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].strip() == "digit 8 against the rest: average precision on 1000 held-out sets"
    assert any(line.startswith("ce ") for line in lines)
    # the best of all is the one that was learned for the metric
    assert lines[2].split()[0] == "learned"
    loss = load("runs/demo/loss.safetensors")
    assert loss(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])) < loss(torch.tensor([-2.0, 2.0]), torch.tensor([1, 0]))
    assert lines[-1] == "    lossmith align --metric f1 --predictions runs/demo/predictions.npz"
    assert Path("runs/demo/alignment.png").read_bytes().startswith(b"\x89PNG")
    assert load_predictions("runs/demo/predictions.npz", kind="binary").num_sets > 20
    # what it advises works
    assert run(*lines[-1].split()[1:], "--sets", 50).code == 0
