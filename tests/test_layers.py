"""Imports go one way, methods never import each other, and importing lossmith stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lossmith

PACKAGE = Path(lossmith.__file__).parent
# from the ground up; a module may import from its own layer and from those below
LAYERS = (
    {"kinds"},
    {"vocabulary"},
    {"metrics", "ranking"},
    {"predictions", "surrogates", "baselines"},
    {"training", "learning", "learning_sets", "alignment", "combining", "normalising", "cards", "surfaces", "logs"},
    {"methods", "tracing"},
    {"weights", "distributed"},
    {"integrations", "lab"},
    {"cli", "__init__", "__main__"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """lossmith.metrics.binary -> metrics."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports_of(path: Path) -> set[str]:
    """Every module of lossmith that the file imports, at the top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "lossmith":
                # `from lossmith import metrics`: the name is a part, or else a public name of the package
                found |= {f"lossmith.{alias.name}" if alias.name in LEVEL else "lossmith" for alias in node.names}
            elif node.module and node.module.startswith("lossmith."):
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "lossmith"}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no place in LAYERS: give it one"
    for module in imports_of(path):
        other = part_of(module)
        assert LEVEL[other] <= LEVEL[own], f"{relative} imports {module}, which is above it"
        if own == "methods" and other == "methods":
            # a method may be a package of several modules
            method = relative.parts[1].removesuffix(".py")
            assert method in ("__init__", module.split(".")[2]), f"{relative} imports {module}: methods stay apart"


def test_import_is_light() -> None:
    """No lab, plot or data library at import, and no network library either."""
    code = "import sys, lossmith; print(*sorted(sys.modules))"
    modules = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {"sklearn", "scipy", "matplotlib", "optuna", "jinja2", "PIL", "pandas", "typer", "lossmith.lab"}
    assert not heavy & modules
