"""`interlock new`: the project passes its own tests, its own checks, a linter and a type checker; it serves."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli import new
from interlock.cli.new import FILES, package_of, source_requirement
from interlock.errors import BadUsage
from tests.unit.cli.lasting import lasting
from tests.unit.cli.running import SOURCE, Interlock, plain_environment, run_program

RULES = "ALL"
LEFT_OUT = "D203,D213,D401,COM812,CPY,S101,PLR2004,INP001,D103,ARG001,ARG002,E501"


@pytest.fixture
def project(interlock: Interlock, folder: Path) -> Path:
    done = interlock("new", "my-shop")
    assert done.code == 0, done.err
    assert "make test" in done.out
    assert "make run" in done.out
    return folder / "my-shop"


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=project,
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_file_is_there_and_no_mark_is_left(project: Path) -> None:
    for path in FILES.values():
        text = (project / path.format(package="my_shop")).read_text(encoding="utf-8")
        assert text
        assert not re.search(r"@[A-Z]+@", text)
    assert {each.name for each in project.iterdir()} == {
        ".gitignore",
        "Makefile",
        "README.md",
        "interlock.toml",
        "my_shop",
        "pyproject.toml",
        "tests",
    }


@pytest.mark.slow
def test_its_tests_pass(project: Path) -> None:
    done = run(project, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


def test_the_checks_find_nothing(project: Path) -> None:
    done = run_program("check", "my_shop.app:app", folder=project)
    assert (done.code, done.out) == (0, "order (version 1): nothing found\n")


@pytest.mark.slow
def test_a_linter_and_a_type_checker_find_nothing(project: Path) -> None:
    ruff = run(project, "ruff", "check", "--no-cache", "--select", RULES, "--ignore", LEFT_OUT, ".")
    assert ruff.returncode == 0, ruff.stdout
    shaped = run(project, "ruff", "format", "--no-cache", "--check", ".")
    assert shaped.returncode == 0, shaped.stdout
    typed = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "my_shop", "tests"],
        cwd=project,
        env=plain_environment(MYPYPATH=str(SOURCE)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert typed.returncode == 0, typed.stdout


@pytest.mark.slow
def test_it_is_served_with_its_own_settings(project: Path) -> None:
    """The home beside interlock.toml is used; an order that is sent by its name arrives."""
    with lasting("serve", "my_shop.app:app", "--port", "0", folder=project) as running:
        found = re.search(r"at (http://\S+) ", running.first)
        assert found, running.first
        words = ("--server", found[1])
        assert f"Dashboard: {found[1]}/" in running.line()
        assert run_program("start", "order", "o-1", '{"customer": "ada"}', *words, folder=project).code == 0
        assert run_program("send", "order", "o-1", "SUBMIT", '{"cents": 999}', *words, folder=project).code == 0
        assert running.stop() == (0, "Stopped in order: nothing is lost, and the home is free.\n")
    assert (project / "data").is_dir()
    shown = run_program("show", "o-1", "-o", "ids", folder=project)
    assert (shown.code, shown.out) == (0, "o-1\n")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_says_what_it_would_run(project: Path) -> None:
    """Without an index nothing is installed; but the commands are those that work."""
    done = subprocess.run(
        ["make", "-n", "test", "run", "INTERLOCK=/src/interlock[server]", "PORT=8123"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'pip install --quiet --disable-pip-version-check "/src/interlock[server]" "pytest>=8.3"' in done.stdout
    assert ".venv/bin/python -m pytest" in done.stdout
    assert ".venv/bin/interlock serve my_shop.app:app --port 8123" in done.stdout
    assert "curl -X POST http://127.0.0.1:8123/v1/machines/order/workflows" in done.stdout


def test_no_file_names_a_place_of_this_machine(project: Path) -> None:
    """The Makefile asks the Interlock on the PATH where it came from, when it installs one."""
    texts = [path.read_text(encoding="utf-8") for path in project.rglob("*") if path.is_file()]
    assert len(texts) >= 10
    for place in (Path(__file__).parents[3], Path.home(), project, Path(sys.prefix)):
        assert not [text for text in texts if f"{place}" in text]


def test_the_requirement_is_all_that_it_prints(interlock: Interlock, folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = interlock("new", "--requirement")
    assert (done.code, done.out, done.err) == (0, f"{source_requirement()}\n", "")
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "name", ["", "1shop", "my shop", "../x", "-x", "shop-", "class", "json", "interlock", "ä", "x" * 61]
)
def test_a_name_that_cannot_be_a_package_is_refused(interlock: Interlock, folder: Path, name: str) -> None:
    before = sorted(folder.iterdir())
    done = interlock("new", "--", name)
    assert done.code == 2
    assert "cannot be the name of a project" in done.err
    assert "fix:" in done.err
    assert sorted(folder.iterdir()) == before


def test_a_package_is_named_as_python_wants_it() -> None:
    assert package_of("My-Shop_2") == "my_shop_2"
    with pytest.raises(BadUsage):
        package_of("tests")


def test_a_folder_that_is_used_is_left_alone(interlock: Interlock, folder: Path) -> None:
    (folder / "shop").mkdir()
    assert interlock("new", "shop").code == 0
    done = interlock("new", "shop")
    assert done.code == 2
    assert "nothing is overwritten" in done.err
    (folder / "file").write_text("mine")
    assert interlock("new", "other", "--directory", "file").code == 2
    assert interlock("new", "other", "--directory", "deep/below").code == 0
    assert (folder / "deep/below/other/orders.py").exists()


def test_a_folder_that_cannot_be_written_is_told(
    interlock: Interlock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("mine")
    done = interlock("new", "other", "--directory", "file/below")
    assert done.code == 1
    assert "cannot be" in done.err
    assert "Traceback" not in done.err

    def refuses(_folder: Path) -> None:
        raise BadUsage("refused.")

    monkeypatch.setattr(new, "_refuse_used", refuses)
    assert interlock("new", "third").code == 2
