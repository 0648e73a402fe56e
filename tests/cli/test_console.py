"""Progress only where somebody watches, colours only where they are wanted, JSON that every reader takes."""

from __future__ import annotations

import json
import math
import sys

import pytest

from lossmith.cli.console import first_sentence, print_json, print_table, progress_bar, spinner


def look_like_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def work() -> None:
    with spinner("reading"), progress_bar("training", 3) as advance:
        advance(3)


def test_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    work()
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    look_like_a_terminal(monkeypatch)
    with progress_bar("training", 3) as advance:
        advance(3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "training" in err
    assert "3/3" in err
    assert "\x1b[38" in err
    monkeypatch.setenv("NO_COLOR", "1")
    with progress_bar("training", 3) as advance:
        advance(3)
    err = capsys.readouterr().err
    assert "training" in err
    assert "\x1b[38" not in err


def test_silent_when_the_result_goes_into_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_like_a_terminal(monkeypatch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    work()
    assert capsys.readouterr() == ("", "")


def test_json_without_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.nan, "b": [1.5, {"c": math.inf}], "d": "x"})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, {"c": None}], "d": "x"}


def test_tables_keep_every_cell_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a sentence that is longer than a narrow terminal, and which a reader wants in full nevertheless"
    print_table("title", ("name", "what"), [("[x]", long)])
    assert f"[x]   {long}" in capsys.readouterr().out


def test_first_sentence() -> None:
    docstring = ":func:`lossmith.ce` of :data:`p` and ``q``\n    and more.\n\n    Details."
    assert first_sentence(docstring) == "ce of p and q and more."
    assert first_sentence(None) == ""
