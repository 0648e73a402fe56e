"""What every command shares: help at once, versions, exit codes, and errors that are not hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lossmith
from lossmith import cli
from tests.cli.conftest import Run

COMMANDS = tuple(
    command.split()
    for command in (
        "demo",
        "metrics",
        "losses",
        "learn",
        "align",
        "explain",
        "compare",
        "report",
        "plot-loss",
        "reproduce",
        "data",
        "data list",
        "data predictions",
    )
)


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_help_shows_an_example(run: Run, command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.code == 0
    assert "Example: lossmith " + " ".join(command[:1]) in result.out


def test_help_and_errors_of_the_parser_load_nothing_heavy() -> None:
    code = "import sys; from lossmith.cli import main\ntry: main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "numpy", "sklearn", "scipy", "matplotlib"} & set(printed.splitlines()[-1].split())


def test_version(run: Run) -> None:
    assert run("--version").out == f"lossmith {lossmith.__version__}\n"


def test_completion_for_a_shell() -> None:
    """What the shell asks for at a tab; ``lossmith --show-completion`` prints how it asks."""
    command = Path(sys.executable).with_name("lossmith")
    asked = {"_LOSSMITH_COMPLETE": "complete_bash", "COMP_WORDS": "lossmith com", "COMP_CWORD": "1"}
    finished = subprocess.run([command], capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert finished.stdout.split() == ["compare"]


def test_every_command_but_help_speaks_json() -> None:
    from typer.main import get_command

    def all_of(group: Any, names: tuple[str, ...] = ()) -> dict[str, set[str]]:
        found = {}
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                found |= all_of(command, (*names, name))
            else:
                found[" ".join((*names, name))] = {option for each in command.params for option in each.opts}
        return found

    options = all_of(get_command(cli.app))
    assert len(options) == 12
    assert [name for name, each in options.items() if "--json" not in each] == []


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("lossmith")
    finished = subprocess.run([command, "losses", "--knd", "binary"], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("lossmith: No such option: --knd")
    assert len(finished.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [[], ["data"]])
def test_a_bare_command_shows_its_help(run: Run, command: list[str]) -> None:
    result = run(*command)
    assert result.code == 2
    assert "Usage: lossmith" in result.out + result.err


def test_unknown_command(run: Run) -> None:
    assert run("algn").sentence.startswith("No such command 'algn'")


@pytest.mark.parametrize("error", [ValueError("from elsewhere"), KeyError("x"), ModuleNotFoundError("y", name="y")])
def test_unexpected_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> bool:
        raise error

    monkeypatch.setattr("lossmith.cli.losses._can_read", fail)
    with pytest.raises(type(error)):
        cli.main(["losses"])


def test_a_missing_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "sklearn.datasets", raising=False)
    assert run("data", "predictions", "digits", "--out", "p.npz").sentence == (
        "this takes sklearn, which comes with an extra: pip install 'lossmith[lab]'."
    )
