"""A newcomer's first five minutes: a project, its two commands, an event by curl, and the page that shows it (B13).

What is typed is read from where a newcomer reads it: the project's own README, and what `make run` prints. So none of
them can say what does not work. The environment of the project is the one of these tests: nothing is installed.
"""

import json
import os
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.tabs import ARGUMENTS, Tab, chromium
from tests.docs.sessions import SHOWN, Shell, consoles, furnish, typed_in
from tests.docs.test_sessions import need_curl

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    """A shell in a project that was just made."""
    need_curl()
    with Shell(tmp_path / "newcomer") as opened:
        succeed(opened, "interlock new shop")
        succeed(opened, "cd shop")
        furnish(opened.here)
        yield opened


def succeed(shell: Shell, command: str) -> str:
    """Type a command that has to do; what it prints."""
    code, output, complaint = shell.type(command)
    assert code == 0, f"$ {command}: exit {code}\n{output}{complaint}"
    return output


def told_to_type(said: str) -> list[str]:
    """The curl commands that `make run` prints."""
    found = re.findall(r"^ +(curl .*)$", said, re.MULTILINE)
    assert len(found) == 3, said
    return found


@contextmanager
def browsed(url: str) -> Generator[Tab]:
    """A tab of a real browser. At the end, nothing went wrong in it and no other server was asked."""
    program = chromium()
    if program is None:
        reason = "there is no Chromium here: `make browser` installs it, INTERLOCK_CHROMIUM names one"
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        tab = Tab(browser, f"{url}/")
        yield tab
        tab.check()
        browser.close()


@pytest.mark.slow
def test_the_two_commands_of_a_new_project_work_and_curl_gets_an_order_shipped(shell: Shell) -> None:
    typed = [each.command for block in consoles((shell.here / "README.md").read_text()) for each in typed_in(block)]
    assert typed[:2] == ["make test", "make run"]
    assert " passed" in succeed(shell, typed[0])
    start, submit, look = told_to_type(shell.type(typed[1])[1])
    assert json.loads(succeed(shell, f"{start} -s"))["state"] == "draft"
    assert json.loads(succeed(shell, f"{submit} -s"))["state"] == "charging"
    assert json.loads(succeed(shell, f"curl -s {SHOWN}/v1/workflows/o-1/wait"))["state"] == "shipped"
    assert json.loads(succeed(shell, f"{look} -s"))["context"]["cents"] == 999
    # The README does the same by the command line, here with an order of its own.
    start, submit, history = (command.replace("o-1", "o-2") for command in typed[2:])
    assert "o-2" in succeed(shell, start)
    succeed(shell, submit)
    succeed(shell, f"curl -s {SHOWN}/v1/workflows/o-2/wait")
    assert "SHIPPED" in succeed(shell, history)


@pytest.mark.slow
def test_the_page_shows_an_order_and_what_happens_to_it_meanwhile(shell: Shell) -> None:
    start, submit, _ = told_to_type(shell.type("make run")[1])
    with browsed(shell.url) as tab:
        tab.open()
        tab.shows("order")
        succeed(shell, f"{start} -s")
        tab.open("#/workflows/o-1")
        tab.shows("draft")
        succeed(shell, f"{submit} -s")
        tab.shows("SHIPPED")
        tab.shows("receipt-")


@pytest.mark.slow
def test_an_order_outlives_the_server_that_took_it(shell: Shell) -> None:
    start, submit, look = told_to_type(shell.type("make run")[1])
    succeed(shell, f"{start} -s")
    succeed(shell, f"{submit} -s")
    shell.stop(signal.SIGKILL)
    succeed(shell, "make run")
    assert json.loads(succeed(shell, f"curl -s {SHOWN}/v1/workflows/o-1/wait"))["state"] == "shipped"
    assert json.loads(succeed(shell, f"{look} -s"))["context"]["receipt"].startswith("receipt-")


@pytest.mark.slow
def test_the_demo_of_the_readme_works_in_small(tmp_path: Path) -> None:
    assert "$ make demo" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "$(BIN)/interlock demo $(ARGS)" in (ROOT / "Makefile").read_text(encoding="utf-8")
    with Shell(tmp_path / "newcomer") as shell:
        assert "Verified: " in succeed(shell, "interlock demo --headless --orders 200")
