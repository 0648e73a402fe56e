"""Commands run in this process, as the entry point runs them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lossmith.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def sentence(self) -> str:
        """All that a user is told about a mistake: one line on stderr, nothing on stdout, exit code 2."""
        assert (self.code, self.out) == (2, "")
        (line,) = self.err.splitlines()
        assert line.startswith("lossmith: ")
        return line.removeprefix("lossmith: ")


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run_command(*arguments: object) -> Result:
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command changes it
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(stopped.value.code or 0, captured.out, captured.err)

    return run_command
