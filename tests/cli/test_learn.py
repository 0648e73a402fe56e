"""Learning from the command line: the file, the card, going on, and one sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import lossmith
from lossmith.learning import save_learning
from lossmith.predictions import load_predictions, random_predictions, save_predictions
from tests.cli.conftest import Run

QUICK = ("--steps", 20, "--set-size", 32)


@pytest.fixture
def binary_file(tmp_path: Path, generator: torch.Generator) -> Path:
    path = tmp_path / "p.npz"
    save_predictions(path, random_predictions("binary", num_sets=40, set_size=300, generator=generator))
    return path


def test_a_loss_in_a_file(run: Run, binary_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "loss.safetensors"
    result = run("learn", "f1", "--predictions", binary_file, "--out", out, *QUICK, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["metric"] == "f1"
    assert result.json["measured"]["p.npz"]["spearman"]["value"] > 0.7
    assert lossmith.load(out).card.metric == "f1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loss.safetensors", "p.npz"]

    aligned = run(
        "align", "--metric", "f1", "--loss", out, "--loss", "ce", "--predictions", binary_file, "--sets", 100, "--json"
    ).json["losses"]
    assert aligned[str(out)]["spearman"]["value"] > aligned["ce"]["spearman"]["value"]


def test_table(run: Run, binary_file: Path, tmp_path: Path) -> None:
    out = run("learn", "mcc", "--predictions", binary_file, "--out", tmp_path / "l.safetensors", *QUICK).out
    assert "Spearman" in out
    assert "p.npz" in out


def test_a_metric_of_ones_own(run: Run, binary_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_metrics.py").write_text(
        "def cost_of_errors(outputs, targets):\n"
        "    missed = ((outputs <= 0) & (targets == 1)).sum()\n"
        "    alarms = ((outputs > 0) & (targets == 0)).sum()\n"
        "    return (5 * missed + alarms) / len(targets)\n"
    )
    monkeypatch.chdir(tmp_path)
    own = ("--metric-fn", "my_metrics:cost_of_errors", "--kind", "binary", "--lower-is-better")
    result = run("learn", *own, "--predictions", binary_file, "--out", "loss.safetensors", *QUICK, "--json")
    assert result.json["metric"] == "cost_of_errors"
    assert result.json["measured"]["p.npz"]["spearman"]["low"] > 0.5


def test_mistakes(run: Run, binary_file: Path, tmp_path: Path) -> None:
    def sentence(*arguments: object) -> str:
        return run("learn", *arguments, "--predictions", binary_file, *QUICK).sentence

    out = tmp_path / "loss.safetensors"
    assert "end in .safetensors" in sentence("f1", "--out", tmp_path / "loss.pt")
    assert "there is no folder" in sentence("f1", "--out", tmp_path / "nowhere" / "loss.safetensors")
    assert "did you mean 'f1'" in sentence("f11", "--out", out)
    assert sentence("--out", out).startswith("name one metric")
    assert "one set is outputs [N, C]" in sentence("accuracy", "--out", out)
    save_learning(Path(f"{out}.unfinished"), {0: {"step": torch.tensor(3)}}, {"metric": "mcc"})
    assert "is of another run (other metric" in sentence("f1", "--out", out)


def test_a_run_that_is_stopped_says_how_to_go_on(
    run: Run, binary_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lossmith.methods.reloss as module

    def save_and_stop(*arguments: object) -> None:
        save_learning(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    out = tmp_path / "loss.safetensors"
    command = ("learn", "f1", "--predictions", binary_file, "--out", out, *QUICK)
    monkeypatch.setattr(module, "save_learning", save_and_stop)
    stopped = run(*command)
    assert stopped.code == 130
    assert stopped.err == f"Stopped. The same command goes on from {out}.unfinished.\n"
    monkeypatch.undo()
    assert f"Use it: lossmith.load({str(out)!r})" in run(*command).out


def test_a_loss_of_another_kind(run: Run, tmp_path: Path, generator: torch.Generator) -> None:
    path = tmp_path / "p.npz"
    save_predictions(path, random_predictions("binary", num_sets=4, set_size=50, generator=generator))
    sentence = run("align", "--metric", "f1", "--loss", "accuracy", "--predictions", path).sentence
    assert sentence == "accuracy is a loss for multiclass predictions; these are binary."
    assert np.isfinite(load_predictions(path, kind="binary").outputs.numpy()).all()
