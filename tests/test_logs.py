"""Logs pass every step on, write what is asked for, and only in the first process."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from lossmith.logs import jsonl_log, log_steps, tensorboard_log
from lossmith.vocabulary import Step

STEPS = [
    Step(number, torch.tensor(float(number)), {"rate": torch.tensor(0.5), "anchors": torch.zeros(3)})
    for number in range(1, 8)
]


def read(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for _ in range(2):  # a second run goes on in the same file
        with jsonl_log(path) as log:
            assert list(log_steps(STEPS, log, every=3)) == STEPS
    assert read(path) == [{"step": step, "loss": step, "rate": 0.5} for step in (3, 6)] * 2


def test_a_killed_run_keeps_its_lines_and_json_knows_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with jsonl_log(path) as log:
        log(1, {"loss": math.nan})
        assert read(path) == [{"step": 1, "loss": None}]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard_log(tmp_path) as log:
        list(log_steps(STEPS, log, every=2))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss", "rate"]
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(2, 2.0), (4, 4.0), (6, 6.0)]


def test_other_processes_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    with jsonl_log(tmp_path / "run.jsonl") as lines, tensorboard_log(tmp_path / "board") as board:
        assert list(log_steps(STEPS, lines, board)) == STEPS
        lines(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every=0; 1 or more works"):
        next(log_steps(STEPS, every=0))
