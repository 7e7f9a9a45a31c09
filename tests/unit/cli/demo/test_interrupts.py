"""Ctrl-C anywhere in the demo is clean: no traceback, no process, no folder is left behind."""

import os
import pty
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.unit.cli.running import ESCAPE, heeding, plain_environment

MANY = 5_000


def started(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """A demo in a process group of its own, as a terminal makes one."""
    (folder / "temporary").mkdir()
    return subprocess.Popen(
        heeding("demo", *arguments),
        cwd=folder,
        env=plain_environment(TMPDIR=str(folder / "temporary"), PYTHONUNBUFFERED="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def in_a_shell(code: int) -> int:
    """The exit code as a shell tells it: of a program that a signal has ended, too."""
    return code if code >= 0 else 128 - code


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("orders", "told"),
    [
        (200, "The bank is down"),
        (MANY, "Walking 5,000 orders"),
        (MANY, "orders done"),
        (200, "The breaker of payments is open"),
        (200, "Killed the worker"),
        (200, "Another worker"),
        (200, "Stalled"),
        (150, "Verifying every order"),
        (100, "Summary"),
    ],
)
def test_ctrl_c_leaves_no_process_and_no_folder_behind(folder: Path, orders: int, told: str) -> None:
    with started(folder, "--orders", str(orders), "--headless") as running:
        assert running.stdout is not None
        assert next(line for line in running.stdout if told in line)
        os.killpg(running.pid, signal.SIGINT)
        _, complaints = running.communicate()  # The worker has the same stderr: this is its end too.
    code = in_a_shell(running.returncode)
    if orders < MANY and not complaints:
        assert code in {0, 130}  # It was over before it heard.
    else:
        assert (code, complaints) == (130, "Interrupted.\n")
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.slow
def test_an_impatient_second_ctrl_c_is_clean_as_well(folder: Path) -> None:
    with started(folder, "--orders", "200", "--headless") as running:
        assert running.stdout is not None
        assert next(line for line in running.stdout if "orders done" in line)
        for _ in range(3):
            os.killpg(running.pid, signal.SIGINT)
        _, complaints = running.communicate()
    assert (in_a_shell(running.returncode), complaints) == (130, "Interrupted.\n")
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.slow
def test_the_dashboard_stays_up_until_ctrl_c(folder: Path) -> None:
    """The address of the first line still answers when everything is over, with the orders as they are then."""
    with started(folder, "--orders", "100", "--stay") as running:
        assert running.stdout is not None
        url = next(line for line in running.stdout if line.startswith("Dashboard: ")).split()[1]
        assert f"The dashboard stays up at {url} until Ctrl-C.\n" in iter(running.stdout.readline, "")
        with urllib.request.urlopen(url) as page:
            assert b"<title>" in page.read()
        with urllib.request.urlopen(f"{url}v1/workflows/order-000001") as found:
            assert b'"delivered"' in found.read()
        with urllib.request.urlopen(f"{url}v1/breakers") as found:
            assert b'"payments"' in found.read()
        os.killpg(running.pid, signal.SIGINT)
        _, complaints = running.communicate()
    assert (running.returncode, complaints) == (130, "Interrupted.\n")
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.slow
def test_when_the_demo_itself_is_killed_its_worker_does_not_outlive_it(folder: Path) -> None:
    with started(folder, "--orders", str(MANY), "--headless") as running:
        assert running.stdout is not None
        assert next(line for line in running.stdout if "orders done" in line)
        running.kill()
        _, complaints = running.communicate()
    assert (running.returncode, complaints) == (-9, "")


@pytest.mark.slow
def test_ctrl_c_gives_the_terminal_back(folder: Path) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        heeding("demo", "--orders", str(MANY)),
        cwd=folder,
        env=plain_environment(TERM="xterm-256color"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    interrupted = False
    try:
        while piece := _read(ours):
            shown += piece
            if not interrupted and b"orders now" in shown:
                interrupted = True
                os.killpg(running.pid, signal.SIGINT)
    finally:
        os.close(ours)
    assert running.wait() == 130
    text = shown.decode()
    hidden, visible = f"{ESCAPE}[?25l", f"{ESCAPE}[?25h"
    assert text.rindex(visible) > text.rindex(hidden)
    assert text.endswith("Interrupted.\r\n")
    assert "Traceback" not in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so when the other side is closed.
        return b""
