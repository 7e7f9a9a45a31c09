"""The pages on the code name files and methods that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, ROOT

TOUR = ROOT / "docs" / "explanation" / "code-tour.md"
PAGES = [TOUR, ROOT / "ARCHITECTURE.md"]

_FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
_STEP = re.compile(r"^\| \d+ \| `([a-z_/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


def definitions(text: str) -> set[str]:
    """The functions and the methods of a module."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_of_a_page_exist(page: Path) -> None:
    named = _FILE.findall(page.read_text(encoding="utf-8"))
    missing = [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()]
    assert named
    assert not missing, f"{page.name} names files that do not exist: {', '.join(missing)}"


def test_the_methods_of_the_tour_exist() -> None:
    steps = _STEP.findall(TOUR.read_text(encoding="utf-8"))
    missing = [
        f"{file}: {name}" for file, name in steps if name not in definitions((PACKAGE / file).read_text("utf-8"))
    ]
    assert len(steps) > 20
    assert not missing, "\n" + "\n".join(missing)


def test_functions_and_methods_are_found() -> None:
    text = "def f(): ...\nclass C:\n  async def m(self): ...\n  def _n(self): ...\n"
    assert definitions(text) == {"f", "C.m", "C._n"}
