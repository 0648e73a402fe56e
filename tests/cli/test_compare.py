"""A comparison from the command line, run for real on little, stopped, gone on with, and reported."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lossmith.cli.compare import follow, seconds_of
from lossmith.lab.comparing.asking import News
from tests.cli.conftest import Run
from tests.lab.comparisons import made_up

LITTLE = ("--seeds", 2, "--trials", 1, "--steps", 15)
DIGITS = ("digits", "--positive-class", 8)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_ends_with_a_verdict_lines_of_python_and_a_report(run: Run) -> None:
    command = ("compare", *DIGITS, "--metric", "ap", "--losses", "smooth_ap, ce_again", *LITTLE)
    result = run(*command)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == (
        "digits, 8 against the rest: 1,797 rows, 64 columns as numbers; classes others 90.3%, 8 9.7%; 8 counts as yes."
    )
    assert re.match(r" +\d+%  ce\b", lines[1])  # plain lines: nobody watches
    assert re.match(r" +\d+%  smooth_ap: ap \d+\.\d+ ± \d+\.\d+ [+-]\d+\.\d+ ± \d+\.\d+", lines[2])
    table = next(number for number, line in enumerate(lines) if line.startswith("loss "))
    assert {line.split()[0] for line in lines[table + 1 : table + 4]} == {"ce", "ce_again", "smooth_ap"}
    assert any(line.startswith("Use ") for line in lines)
    assert any(line.startswith("What ") and "a larger model (linear → mlp32) " in line for line in lines)
    page = Path("runs/digits-8-against-the-rest-ap/report.html")
    assert lines[-1] == f"Report: {page}"
    assert "lossmith" in page.read_text(encoding="utf8")
    # the snippet is Python that works
    snippet = "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))
    names: dict[str, object] = {}
    exec(snippet, names)
    assert callable(names["loss"])
    # nothing is left to do: the same numbers, at once
    again = run(*command, "--json")
    assert (again.code, again.err) == (0, "")
    assert again.json["is_complete"] is True
    assert again.json["verdict"] in result.out
    assert [row["recipe"] for row in again.json["table"]] == [line.split()[0] for line in lines[table + 1 : table + 4]]


def test_stopped_and_gone_on_with(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from lossmith.lab.comparing import studying

    command = ("compare", *DIGITS, "--metric", "auc", "--losses", "focal,hinge", "--no-insights", *LITTLE)
    train, done = studying.stack_steps, []

    def interrupted(*arguments: object, **options: object) -> Iterator[float]:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(arguments)
        return train(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(studying, "stack_steps", interrupted)
    stopped = run(*command)
    assert stopped.code == 130
    assert (
        stopped.err
        == "Stopped. What is done is kept in runs/digits-8-against-the-rest-auc: the same command goes on.\n"
    )
    assert Path("runs/digits-8-against-the-rest-auc/report.html").is_file()
    monkeypatch.setattr(studying, "stack_steps", train)
    finished = run(*command, "--json").json
    monkeypatch.chdir(Path.cwd().parent)
    at_once = run(*command, "--out", "at-once", "--json").json
    drop = ("seconds_per_step",)
    for table in ("table", "confirmation"):
        rows = [
            [{k: v for k, v in row.items() if k not in drop} for row in each[table]] for each in (finished, at_once)
        ]
        assert rows[0] == rows[1]
    assert finished["verdict"] == at_once["verdict"]


def test_ctrl_c_of_a_real_process(tmp_path: Path) -> None:
    import signal

    lossmith = str(Path(sys.executable).with_name("lossmith"))
    of_two_runs = ("--losses", "focal,hinge,mse", "--seeds", "2", "--trials", "1", "--steps", "1500")
    command = [lossmith, "compare", *map(str, DIGITS), "--metric", "auc", *of_two_runs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    assert "8 counts as yes" in process.stdout.readline()
    assert "%  ce" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "the same command goes on" in err


def test_arrays_of_ones_own(run: Run) -> None:
    generator = np.random.default_rng(0)
    targets = generator.integers(3, size=90)
    np.savez("features.npz", inputs=generator.normal(size=(90, 4)) + targets[:, None], targets=targets)
    command = ("compare", "features.npz", "--metric", "accuracy", "--losses", "traced", "--no-insights", *LITTLE)
    result = run(*command, "--json").json
    assert {row["recipe"] for row in result["table"]} == {"ce", "traced"}
    assert result["data"] == "features"


def test_report_of_several_runs(run: Run, tmp_path: Path) -> None:
    for number in range(2):
        made_up(data=f"data {number}").save(tmp_path / f"run{number}")
    result = run("report", "run0", "run1", "-o", "both.html", "--json")
    assert result.code == 0
    assert result.json["report"] == "both.html"
    assert len(result.json["verdicts"]) == 2
    assert "data 1" in Path("both.html").read_text(encoding="utf8")
    assert "comparison.json is not there" in run("report", "nowhere").sentence


def test_a_live_table_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    comparison = made_up(data="[red]data")
    follow(iter([News("ce explore 0.1", 0.1, comparison, True), News("ce explore 0.1", 0.5, comparison)]))
    out, err = capsys.readouterr()
    assert out == ""
    assert "smooth_ap" in err
    assert "[red]data" in err
    assert "50%" in err


@pytest.mark.parametrize(("budget", "seconds"), [("90s", 90), ("5m", 300), ("1.5h", 5400), ("7", 7)])
def test_budgets(budget: str, seconds: float) -> None:
    assert seconds_of(budget) == seconds


def test_a_budget_is_kept_to(run: Run) -> None:
    result = run("compare", *DIGITS, "--metric", "ap", "--budget", "1s", "--steps", 20_000, "--json")
    assert result.code == 0
    assert result.json["is_complete"] is False
    assert "Nothing can be said yet" in result.json["verdict"]


def test_mistakes(run: Run) -> None:
    assert "--budget soon is no time to spend" in run("compare", *DIGITS, "--metric", "ap", "--budget", "soon").sentence
    assert "did you mean" in run("compare", "digts", "--metric", "accuracy").sentence
    assert "accuracy works" in run("compare", "digits", "--metric", "binary_accuracy").sentence
    assert "auc works" in run("compare", *DIGITS, "--metric", "auc_ovr").sentence
    assert "judge those are" in run("compare", *DIGITS, "--metric", "ndcg").sentence
    assert run("compare", *DIGITS, "--metric", "ap", "--losses", "focl").sentence == (
        "there is no loss 'focl' to compare; did you mean 'focal'? `lossmith losses --compared` lists all."
    )
    assert "there is no model 'gpt'" in run("compare", *DIGITS, "--metric", "ap", "--model", "gpt").sentence
    assert "goes with a table" in run("compare", "digits", "--target", "y", "--metric", "accuracy").sentence
    Path("pets.csv").write_bytes(bytes(range(256)))
    assert "did you mean pets.csv" in run("compare", "pets", "--target", "y", "--metric", "f1").sentence
    Path("one.csv").write_text("age,kind\n" + "3,cat\n4,dog\n" * 20)
    assert run("compare", "one.csv", "--metric", "f1").sentence == (
        "say which column of one is to be predicted (target): age, kind."
    )
    np.savez("p.npz", outputs=np.zeros(60), targets=np.arange(60) % 2)
    assert "`lossmith align` says" in run("compare", "p.npz", "--metric", "f1").sentence
    assert "the array called targets" in run("compare", "p.npz", "--target", "y", "--metric", "f1").sentence
    two = ("--target", "kind", "--metric", "f1")
    assert run("compare", "one.csv", *two, "--positive-class", "cow").sentence == (
        "one has no class cow; its classes are cat, dog."
    )
    assert "numbers from 0 to 9; eight came" in run("compare", "digits", "--positive-class", "eight", *two[2:]).sentence
    assert run("compare", "one.csv", *two, "--out", "one.csv").sentence == (
        "one.csv is a file; a folder to keep the run in works."
    )
    assert "pets.csv cannot be read" in run("compare", "pets.csv", "--target", "y", "--metric", "f1").sentence
    assert run("compare", ".", *two).sentence == ". is a folder; a table in a file works."


def test_a_metric_that_raises(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("mine.py").write_text("def away(outputs, targets):\n    raise RuntimeError('the database is away')\n")
    Path("one.csv").write_text("age,kind\n" + "3,cat\n4,dog\n" * 20)
    own = ("--metric-fn", "mine:away", "--kind", "binary", "--higher-is-better")
    assert run("compare", "one.csv", "--target", "kind", *own).sentence == (
        "your code failed with RuntimeError: the database is away (mine.py, line 2)"
    )
