"""The repository names no machine and no index, and pins versions in one place."""

from pathlib import Path

import pytest

from tests.tidy import files
from tests.tidy.source import ROOT, Offence, report, tracked_files


def readable() -> list[tuple[str, str]]:
    texts: list[tuple[str, str]] = []
    for path in tracked_files():
        try:
            texts.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # A picture.
    return texts


@pytest.mark.slow
def test_no_tracked_file_names_an_index_or_a_machine() -> None:
    texts = readable()
    rules = (files.index_addresses, files.machine_paths)
    offences: list[Offence] = [offence for path, text in texts for rule in rules for offence in rule(path, text)]
    assert "pyproject.toml" in dict(texts)
    assert not offences, report(offences)


def test_there_is_no_lock_file() -> None:
    offences = files.lock_files(path.relative_to(ROOT).as_posix() for path in tracked_files())
    assert not offences, report(offences)


def test_constraints_are_names_and_versions() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    offences = files.loose_constraints("constraints.txt", text)
    assert "==" in text
    assert not offences, report(offences)


@pytest.mark.parametrize(
    "line",
    [
        "pip install --index" + "-url https://example.org/simple x",
        "extra-index" + "-url = https://example.org",
        "https://pypi." + "org/simple/",
        "https://files.python" + "hosted.org/packages/x.whl",
        "--find" + "-links wheels",
        "https://registry.npm" + "js.org/x",
    ],
)
def test_an_index_is_caught(line: str) -> None:
    [offence] = files.index_addresses("Makefile", f"first\n{line}\n")
    assert offence.line == 2


def test_the_page_of_a_project_is_not_an_index() -> None:
    assert not files.index_addresses("README.md", "https://pypi.org/project/interlock")


@pytest.mark.parametrize("path", ["/ro" + "ot/x", "cd /wo" + "rk/main", '"/ho' + 'me/me/x"', "file:/ho" + "me/x"])
def test_a_path_of_one_machine_is_caught(path: str) -> None:
    assert files.machine_paths("README.md", path)


@pytest.mark.parametrize("path", ["/var/shop", "docs/how-to/home/", "~/home/x", "${X}/home/x", "https://a.org/home/x"])
def test_other_paths_are_fine(path: str) -> None:
    assert not files.machine_paths("README.md", path)


@pytest.mark.parametrize("path", ["uv.lock", "ui/package-lock.json", "poetry.lock", "ui/pnpm-lock.yaml", "pylock.toml"])
def test_a_lock_file_is_caught(path: str) -> None:
    assert files.lock_files([path])


def test_a_module_about_locks_is_not_a_lock_file() -> None:
    assert not files.lock_files(["src/interlock/lanes/lock.py", "docs/lock.md"])


@pytest.mark.parametrize(
    "line",
    ["msgspec", "msgspec>=0.19", "msgspec @ https://example.org/x.whl", "-e .", "x==1 --hash=sha256:0", "x==1 ; y"],
)
def test_a_loose_constraint_is_caught(line: str) -> None:
    assert files.loose_constraints("constraints.txt", f"# Comment.\nrich==15.0.0\n{line}\n")


def test_without_git_the_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept.py").write_text("")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "foreign.py").write_text("")
    monkeypatch.setenv("PATH", "")
    assert tracked_files(tmp_path) == [tmp_path / "kept.py"]
