"""Every Python block of the documentation runs, alone, and prints what the comment behind a print says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf8"), re.S | re.M), 1
    )
]
PROMISE = re.compile(r"^print\(.*\)  # (?P<output>.+)$", re.M)


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs_and_prints_what_it_says(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pages show what is said once, such as a loop in place of vmap
        exec(compile(block, "block", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    for promise in PROMISE.finditer(block):
        assert promise["output"] in printed


def test_pages_have_blocks() -> None:
    print(f"{len(BLOCKS)} Python blocks on {len(PAGES)} pages")  # seen with -s
    assert len(BLOCKS) >= 30
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


def test_commands_on_pages_exist() -> None:
    """`lossmith WORD` in the documentation is a command."""
    from lossmith.cli import app

    names = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    for page in PAGES:
        shell_blocks = re.findall(r"^```\n(.*?)^```", page.read_text(encoding="utf8"), re.S | re.M)
        for name in re.findall(r"^lossmith ([a-z][a-z-]*)", "\n".join(shell_blocks), re.M):
            assert name in names, f"{page}: lossmith {name}"
