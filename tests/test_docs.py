"""Every block of the documentation runs: Python alone, printing what the comment behind a print says; commands on files
made for the purpose, and with little to do.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# optional: what is not installed is not tried
EXTRAS = ("lightning", "transformers", "skorch", "tensorboard")
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```", re.S | re.M)
FENCES = [(page, fence) for page in PAGES for fence in FENCE.finditer(page.read_text(encoding="utf8"))]
BLOCKS = [
    pytest.param(fence["code"], id=f"{page.relative_to(ROOT)}-{number}")
    for number, (page, fence) in enumerate(FENCES)
    if fence["language"] == "python"
]
COMMANDS = {
    line: page.name
    for page, fence in FENCES
    if not fence["language"]
    for line in fence["code"].splitlines()
    if line.startswith("lossmith ")
}
LITTLE = {"compare": "--seeds 2 --trials 1 --steps 5 --no-insights", "data": "--rows 300 --seeds 1 --epochs 1"}
# of real images, which are not in every clone; and what changes the shell of whoever runs the tests
NOT_RUN = ("mnist", "cifar10", "--install-completion")
PROMISE = re.compile(r"^print\(.*\)  # (?P<output>.+)$", re.M)


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs_and_prints_what_it_says(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in EXTRAS:
        if re.search(rf"^(from|import) {extra}\b", block, re.M):
            pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pages show what is said once, such as a loop in place of vmap
        exec(compile(block, "block", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    for promise in PROMISE.finditer(block):
        assert promise["output"] in printed


@pytest.fixture
def files_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands on the pages read."""
    from tests.lab.comparisons import made_up

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [f"{k % 7},{'cat' if k % 3 else 'dog'}," for k in range(120)]
    for name in ("table", "customers"):
        Path(f"{name}.csv").write_text("age,pet,bought\n" + "".join(f"{row}{k % 2}\n" for k, row in enumerate(rows)))
    Path("spoiled.csv").write_text("age,pet,label\n" + "".join(f"{row}{k % 3}\n" for k, row in enumerate(rows)))
    Path("tumours.csv").write_text("size,diagnosis\n" + "1.5,benign\n2.5,malignant\n" * 40)
    generator = np.random.default_rng(0)
    np.savez("p.npz", outputs=generator.normal(size=(8, 200, 4)), targets=generator.integers(4, size=(8, 200)))
    np.savez("binary.npz", outputs=generator.normal(size=(8, 200)), targets=generator.integers(2, size=(8, 200)))
    accuracy = "    return ((outputs > 0) == targets).float().mean()\n"
    for module, functions in {"my_metrics": ("f1", "profit"), "mymodule": ("my_metric", "my_loss")}.items():
        text = "".join(f"def {function}(outputs, targets):\n{accuracy}\n" for function in functions)
        Path(f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)  # another test's, of the same name
    for name in ("a-f1", "b-f1", "c-f1"):
        made_up(data=name, metric="f1").save(Path("runs") / name)


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.usefixtures("files_of_the_pages")
def test_command_runs(line: str, run: Run, tmp_path: Path) -> None:
    if any(word in line for word in NOT_RUN):
        pytest.skip("changes a shell, or takes data sets that are not in every clone")
    arguments = shlex.split(line, comments=True)[1:]
    if "mymodule:my_loss" in arguments:
        arguments[arguments.index("p.npz")] = "binary.npz"
    result = run(*arguments, *LITTLE.get(arguments[0], "").split())
    assert result.code == 0, result.err
    assert result.out


def test_pages_have_blocks() -> None:
    num_run = sum(not any(word in line for word in NOT_RUN) for line in COMMANDS)
    print(
        f"{len(BLOCKS)} Python blocks and {num_run} of {len(COMMANDS)} commands run, on {len(PAGES)} pages"
    )  # with -s
    assert len(BLOCKS) >= 35
    assert num_run >= 8
    languages = {fence["language"] for _, fence in FENCES}
    assert languages <= {"", "python"}, "a block in a language that nothing here runs"
    without = [
        page.name for page in (ROOT / "docs" / "how-to").glob("*.md") if "```" not in page.read_text(encoding="utf8")
    ]
    assert not without, f"how-tos that show nothing to type: {without}"


def test_no_page_names_a_machine() -> None:
    pattern = re.compile(r"(^|[^\w.])/(work|root|home|tmp)/")
    for page in PAGES:
        assert not pattern.search(page.read_text(encoding="utf8")), page


def test_every_command_is_in_the_reference() -> None:
    from lossmith.cli import app, data

    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf8")
    names = [command.name for command in app.registered_commands]
    for name in (*names, *(f"data {command.name}" for command in data.registered_commands)):
        assert f"`lossmith {name}" in page, name


def test_targets_of_make_on_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for page, fence in FENCES:
        for target in re.findall(r"^make (\w+)", fence["code"], re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"
