"""Every Python block of the documentation runs, and every `interlock` command it shows exists."""

import functools
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import Command, PageFailed, read_blocks, read_commands, run_python

ROOT = Path(__file__).resolve().parents[2]
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
PAGES = [path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *DOCS]]


def as_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that is importable while the test runs: dataclasses and type hints look their module up by name."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = as_module("page_" + "".join(c if c.isalnum() else "_" for c in page), monkeypatch)
    monkeypatch.chdir(tmp_path)
    try:
        run_python(ROOT / page, page, module)
    except PageFailed as failure:
        pytest.fail(str(failure), pytrace=False)


@functools.cache
def refusal(arguments: tuple[str, ...]) -> str:
    """What the command line says against these arguments; nothing when it knows them. `--help` keeps it from acting."""
    done = subprocess.run(
        [sys.executable, "-m", "interlock", *arguments, "--help"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr or done.stdout or f"exit {done.returncode}"


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page: str) -> None:
    commands = read_commands((ROOT / page).read_text(encoding="utf-8"))
    wrong = [
        f"{page}:{command.line}: interlock {' '.join(command.arguments)}\n{said}"
        for command in commands
        if (said := refusal(command.arguments))
    ]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def test_blocks_of_a_page_share_one_namespace_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = write(tmp_path, "# T\n```python\nx = 1\n```\ntext\n```python\nx += 1\n```\n```text\nnot python\n```\n")
    module = as_module("page_sample", monkeypatch)
    assert run_python(page, "page.md", module) == 2
    assert vars(module)["x"] == 2


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("# T\n\n```python\nx = 1\n\nassert x == 2\n```\n", "page.md:6: AssertionError"),
        ("# T\n\n```python\nx = 1\nx = = 2\n```\n", "page.md:5: SyntaxError"),
        ("```python\ndef f():\n    raise ValueError(1)\n```\n\n```python\nf()\n```\n", "page.md:3: ValueError"),
        ("```python\nraise SystemExit(3)\n```\n", "page.md:2: SystemExit"),
    ],
)
def test_a_broken_block_is_reported_with_its_line(
    text: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = as_module("page_sample", monkeypatch)
    with pytest.raises(PageFailed) as failure:
        run_python(write(tmp_path, text), "page.md", module)
    assert str(failure.value).startswith(place)


def test_a_block_may_be_excused_with_a_reason() -> None:
    excused = "<!-- not executed: needs a bucket -->\n```python\nx\n```\n"
    without_reason = "<!-- not executed: -->\n```python\nx\n```\n"
    elsewhere = "<!-- not executed: needs a bucket -->\n\nSome text.\n\n```python\nx\n```\n"
    assert [block.executed for block in read_blocks(excused + without_reason + elsewhere)] == [False, True, True]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("$ interlock demo --orders 10", [("demo", "--orders", "10")]),
        ("$ interlock find order -o ids | interlock show -", [("find", "order", "-o", "ids"), ("show", "-")]),
        ("$ INTERLOCK_HOME=memory: interlock find order > ids.txt", [("find", "order")]),
        ("$ interlock check shop:order  # the machine", [("check", "shop:order")]),
        ("$ interlock check \\\n    shop:order", [("check", "shop:order")]),
        ("interlock: what a command printed", []),
        ("$ pip install interlock", []),
    ],
)
def test_commands_are_read_from_console_blocks(line: str, commands: list[tuple[str, ...]]) -> None:
    assert read_commands(f"# T\n```console\n{line}\n```\n") == [Command(arguments, 3) for arguments in commands]


def test_an_unknown_command_is_refused() -> None:
    assert refusal(("no-such-command",))
