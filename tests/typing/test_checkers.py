"""The promise at the top of the API: both checkers accept a correct program and reject these mistakes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
MARK = re.compile(r"# wrong(?: for (?P<only>\w+))?:")


def mypy_lines(path: Path) -> set[int]:
    """The lines that mypy --strict reports."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--output=json"]
    done = subprocess.run([*command, str(path)], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(Path(one["file"]).name == path.name for one in found), done.stdout
    return {one["line"] for one in found if one["severity"] == "error"}


def basedpyright_lines(path: Path) -> set[int]:
    """The lines that basedpyright reports as errors at its standard level."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", "-p", str(HERE)]
    command += ["--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


CHECKERS = {"mypy": mypy_lines, "basedpyright": basedpyright_lines}


def wrong_lines(path: Path, checker: str) -> set[int]:
    """The lines of the sample that this checker has to report."""
    marks = {number: MARK.search(line) for number, line in enumerate(path.read_text().splitlines(), start=1)}
    return {number for number, mark in marks.items() if mark and mark["only"] in (None, checker)}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_correct_program_is_accepted(checker: str) -> None:
    assert CHECKERS[checker](HERE / "good.py") == set()


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_every_mistake_is_rejected_and_nothing_else(checker: str) -> None:
    expected = wrong_lines(HERE / "bad.py", checker)
    assert expected
    assert CHECKERS[checker](HERE / "bad.py") == expected


def test_mypy_misses_one_mistake_and_basedpyright_none() -> None:
    """What docs/decisions/0002 says, without numbers that age."""
    marked = {checker: wrong_lines(HERE / "bad.py", checker) for checker in CHECKERS}
    assert len(marked["basedpyright"] - marked["mypy"]) == 1
    assert marked["basedpyright"] > marked["mypy"]
