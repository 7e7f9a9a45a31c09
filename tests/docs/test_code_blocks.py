"""Every Python block of the documentation runs, every `interlock` command it shows is one, and the reference is whole.

A command is parsed by the real command line, whose commands do nothing here: a missing argument, an unknown choice or a
word for a number is refused as it would be for the reader. What is shown with a machine that ships with Interlock needs
nothing of the reader's own and is also run, line after line, in a folder of the page.
"""

import contextlib
import inspect
import io
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

import interlock
from interlock.cli.program import program_for
from tests.docs.blocks import Command, PageFailed, read_blocks, read_commands, read_exports, run_page
from tests.docs.sessions import is_session

ROOT = Path(__file__).resolve().parents[2]
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
PAGES = [path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *DOCS]]


def as_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that is importable while the test runs: dataclasses and type hints look their module up by name."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.campaign
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = as_module("page_" + "".join(c if c.isalnum() else "_" for c in page), monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    try:
        run_page(ROOT / page, page, module, tmp_path)
    except PageFailed as failure:
        pytest.fail(str(failure), pytrace=False)
    finally:
        for path in tmp_path.glob("*.py"):  # What the page has saved and imported is nobody else's.
            sys.modules.pop(path.stem, None)


def disarm(command: Any) -> None:  # noqa: ANN401 - Typer has its own click, untyped.
    """Take the function out of a command, and of every command below it."""
    command.callback = lambda **_: None
    for below in getattr(command, "commands", {}).values():
        disarm(below)


def refusal(arguments: tuple[str, ...]) -> str:
    """What the command line says against these arguments; nothing when it understands them. No command acts."""
    # A tree of commands that is made anew for every question, so that the program itself keeps its functions.
    program = get_command(program_for())
    disarm(program)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as left:
        program.main(list(arguments), prog_name="interlock")
    return "" if left.value.code == 0 else said.getvalue() or f"exit {left.value.code}"


def failure(arguments: tuple[str, ...], folder: Path) -> str:
    """What the real program says when it does not succeed in that folder; nothing when it does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "interlock", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr or done.stdout or f"exit {done.returncode}"


def objection(command: Command, folder: Path, *, run: bool = False) -> str:
    """What is wrong with a command that a page shows, or nothing."""
    said = refusal(command.arguments)
    if not said and (run or any(word.startswith("interlock.examples") for word in command.arguments)):
        said = failure(command.arguments, folder)
    return said


@pytest.mark.campaign
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    commands = read_commands(text)
    # A page that makes a home of its own in the reader's folder is run as a whole; one that serves, by test_sessions.
    for name, value in (exports := read_exports(text, tmp_path)).items():
        monkeypatch.setenv(name, value)
    session = is_session(text)
    whole = not session and any(str(tmp_path) in value for value in exports.values())
    wrong = [
        f"{page}:{command.line}: interlock {' '.join(command.arguments)}\n{said}"
        for command in commands
        if (said := refusal(command.arguments) if session else objection(command, tmp_path, run=whole))
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
    assert run_page(page, "page.md", module, tmp_path) == 2
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
        run_page(write(tmp_path, text), "page.md", module, tmp_path)
    assert str(failure.value).startswith(place)


def test_a_block_may_be_excused_with_a_reason() -> None:
    excused = "<!-- not executed: needs a bucket -->\n```python\nx\n```\n"
    without_reason = "<!-- not executed: -->\n```python\nx\n```\n"
    elsewhere = "<!-- not executed: needs a bucket -->\n\nSome text.\n\n```python\nx\n```\n"
    assert [block.executed for block in read_blocks(excused + without_reason + elsewhere)] == [False, True, True]


def test_what_a_page_exports_is_known_to_its_commands(tmp_path: Path) -> None:
    text = '```console\n$ export INTERLOCK_HOME="lanes://$PWD/shop"\n$ interlock show o-1\n```\n'
    assert read_exports(text, tmp_path) == {"INTERLOCK_HOME": f"lanes://{tmp_path}/shop"}


SAVED = "<!-- saved as: hello.py -->\n```python\nprint('hello')\nprint('key 17')\n```\n"


def test_a_file_of_a_page_is_saved_and_run_where_the_page_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write(tmp_path, SAVED + "```console\n$ python hello.py\nhello\nkey …\n$ python other.py\n```\n")
    assert run_page(page, "page.md", as_module("page_sample", monkeypatch), tmp_path) == 0
    assert (tmp_path / "hello.py").read_text().startswith("print")


@pytest.mark.parametrize("shown", ["key …\nhello", "good-bye", "key 18"])
def test_a_page_that_shows_what_is_not_printed_is_noticed(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write(tmp_path, SAVED + f"```console\n$ python hello.py\n{shown}\n```\n")
    with pytest.raises(PageFailed, match=r"page\.md:7: \$ python hello\.py: exit 0"):
        run_page(page, "page.md", as_module("page_sample", monkeypatch), tmp_path)


def test_a_program_of_a_page_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = write(tmp_path, "<!-- saved as: bad.py -->\n```python\n1 / 0\n```\n```console\n$ python bad.py\n```\n")
    with pytest.raises(PageFailed, match="ZeroDivisionError"):
        run_page(page, "page.md", as_module("page_sample", monkeypatch), tmp_path)


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no-such-command", "No such command"),
        ("", "Usage"),
        ("check", "Missing argument"),
        ("plan onlyone", "Missing argument"),
        ("plan one two three", "unexpected extra argument"),
        ("diagram x:y --format png", "Invalid value"),
        ("diagram x:y --fromat svg", "No such option"),
        ("demo --orders abc", "Invalid value"),
        ("demo --orders 0", "Invalid value"),
        ("demo --seed", "requires an argument"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(line: str, said: str, tmp_path: Path) -> None:
    assert said in objection(Command(tuple(line.split()), 1), tmp_path)


@pytest.mark.parametrize(
    "line", ["demo --orders 10", "plan one two --rename a=b", "check x:y -o ids", "--version", "-h"]
)
def test_a_command_of_a_machine_of_the_readers_own_is_not_run(line: str, tmp_path: Path) -> None:
    assert not objection(Command(tuple(line.split()), 1), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_command_of_a_shipped_machine_is_run(tmp_path: Path) -> None:
    good = Command(("diagram", "interlock.examples.order:order", "--file", "order.md"), 1)
    assert not objection(good, tmp_path)
    assert (tmp_path / "order.md").exists()
    misspelt = Command(("diagram", "interlock.examples.order:oder"), 1)
    assert "oder" in objection(misspelt, tmp_path)


# --- the Python reference ------------------------------------------------------------------------------------------


def in_code(text: str) -> set[str]:
    """The words of a page that stand in backticks or in a Python block."""
    code = [block.text for block in read_blocks(text) if block.language == "python"]
    code += re.findall(r"`([^`\n]+)`", text)
    return {word for piece in code for word in re.findall(r"\w+", piece)}


def parameters(*functions: Callable[..., object]) -> set[str]:
    """What functions, or the constructors of classes, can be given; a name with an underscore is for refusals."""
    names = {name for each in functions for name in inspect.signature(each).parameters} - {"self"}
    return {name for name in names if not name.startswith("_")}


def surface(*classes: type) -> set[str]:
    """The public members of classes, their own and inherited ones, and every parameter of their methods."""
    found: set[str] = set()
    for cls in classes:
        members = {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}
        found |= set(members) | parameters(*filter(inspect.isfunction, members.values()))
    return found


def test_the_python_reference_names_everything_public() -> None:
    words = in_code((ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))
    assert not set(interlock.__all__) - words
    assert not surface(interlock.Machine, interlock.Pipeline, interlock.Step) - words
    constructors = interlock.Machine, interlock.Pipeline, interlock.Codec, interlock.step, interlock.pipeline
    assert not parameters(*constructors, interlock.plan) - words
    values = interlock.Snapshot, interlock.Decision, interlock.Record, interlock.Allowed, interlock.Finding
    policies = interlock.Retry, interlock.Breaker, interlock.Budget, interlock.Dependency
    assert not parameters(*values, *policies, interlock.StepContext, interlock.StepFailure) - words
    assert not surface(interlock.Engine, interlock.Workflows, interlock.AlertWebhook, interlock.PagerDuty) - words
    answers = interlock.View, interlock.Moved, interlock.Refused, interlock.HistoryRow, interlock.Page, interlock.Counts
    assert not parameters(*answers, interlock.DeadLetter, interlock.Compensation) - words
    assert not parameters(interlock.AlertWebhook, interlock.PagerDuty, interlock.Admission) - words
    assert not parameters(*(each for each in interlock.Signal.__args__)) - words
    assert not {"State", "Begin", "Cancel"} - words


def test_the_python_reference_names_everything_of_the_harness() -> None:
    words = in_code((ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))
    harness = import_module("interlock.testing").Harness
    assert not (surface(harness) | parameters(harness)) - words


def test_the_python_reference_names_everything_of_servers_and_clients() -> None:
    words = in_code((ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))
    assert not parameters(interlock.asgi) - words
    assert not (surface(interlock.App, interlock.Webhook) | parameters(interlock.App, interlock.Webhook)) - words
    assert not (surface(interlock.Client) | parameters(interlock.Client, interlock.BlockingClient)) - words


def test_the_python_reference_names_everything_of_databases() -> None:
    words = in_code((ROOT / "docs/reference/python.md").read_text(encoding="utf-8"))
    named = ["counters:Counter", "counters:Shards", "stock:Stock", "stock:Reservation", "stock:Counts"]
    named += ["balances:Balance", "window_quotas:Quota", "parents:Parent", "parents:Touched"]
    classes = [interlock.Database, *(pkgutil.resolve_name(f"interlock.hotrow.{name}") for name in named)]
    inside = {"end", "confirmed", "count", "index"}  # What a reservation calls, and what every tuple has.
    assert not surface(*classes) - inside - words
    hot_row = import_module("interlock.lanes.hot_rows").HotRow
    assert not parameters(interlock.Tool, hot_row, interlock.Database.open) - words


def limits() -> dict[str, float]:
    """The named limits of what this release does with a workflow, and their values."""
    places = {
        "interlock.core.codec": ["CONTEXT_BYTES_MAX", "DEPTH_MAX"],
        "interlock.core.decide": ["UNDO_LOG_MAX"],
        "interlock.core.machine": ["EFFECT_TIMEOUT_S"],
        "interlock.core.definition_errors": ["NAME_CHARACTERS_MAX"],
        "interlock.core.pipeline": ["PENDING_DWELL_S", "UNDOING_DWELL_S"],
        "interlock.testing.explore": ["PATH_DEPTH", "PATHS_MAX", "TRIAL_DEPTH", "SNAPSHOTS_MAX"],
        "interlock.testing.strategies": ["WALK_LENGTH_MAX"],
    }
    return {name: getattr(import_module(place), name) for place, names in places.items() for name in names}


def test_the_python_reference_tells_the_limits() -> None:
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+)", page, flags=re.MULTILINE))
    assert {name: float(value.replace(",", "")) for name, value in told.items()} == limits()


def test_a_name_that_the_reference_forgets_is_noticed() -> None:
    class Sample:
        def __init__(self, size: int) -> None: ...

        def grow(self, by: int) -> None: ...

    assert surface(Sample) == {"grow", "by"}
    assert parameters(Sample) == {"size"}
    assert in_code("Text, `grow(by=1)`\n\n```python\nsize = 1\n```\n\n```text\nother\n```\n") == {
        "grow",
        "by",
        "1",
        "size",
    }
