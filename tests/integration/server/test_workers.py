"""`interlock serve --workers N` as real processes: one port, one wish to stop, and nobody left behind."""

import os
import re
import select
import signal
from pathlib import Path

import httpx
import pytest

from interlock.cli.program import main
from tests.integration.server.running import END_S, Server, server
from tests.unit.server import shop

COUNT = 2


def children(pid: int) -> set[int]:
    """The processes that a process has started."""
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def heard(running: Server, text: str) -> str:
    """Read what the server says until it says this."""
    assert running.process.stderr is not None
    said = ""
    for line in running.process.stderr:
        said += line
        if text in line:
            return line
    raise AssertionError(said)


def ended(pid: int) -> bool:
    """Wait until a process that is not ours has ended; False when it does not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], END_S)[0])
    finally:
        os.close(descriptor)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_workers_serve_one_port_and_all_stop(postgres_url: str, number: int) -> None:
    with server(postgres_url, "--workers", str(COUNT)) as running:
        pids = children(running.process.pid)
        assert len(pids) == COUNT
        for each in range(10):
            path = f"{running.url}/v1/machines/ticket/workflows"
            assert httpx.post(path, json={"id": f"t-{each}"}, timeout=END_S).status_code == 201
        code, said = running.stop(number)
        assert (code, "Traceback" in said) == (0, False), said
        assert said.endswith("Stopped in order: nothing is lost, and the home is free.\n")
        assert all(ended(pid) for pid in pids)


@pytest.mark.slow
def test_a_worker_that_was_killed_is_replaced_and_nobody_notices(postgres_url: str) -> None:
    with server(postgres_url, "--workers", str(COUNT)) as running:
        before = children(running.process.pid)
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        assert f"Worker {killed} ended with -9" in heard(running, "another takes its place")
        fresh = int(re.findall(r"Worker (\d+) serves", heard(running, "serves"))[0])
        assert children(running.process.pid) == before - {killed} | {fresh}
        assert httpx.get(f"{running.url}/readyz", timeout=END_S).status_code == 200
        assert running.stop()[0] == 0


@pytest.mark.slow
def test_no_worker_outlives_a_supervisor_that_was_killed(postgres_url: str) -> None:
    """Nothing can be told by a process that was killed: the end of its line is told by the kernel."""
    with server(postgres_url, "--workers", str(COUNT)) as running:
        pids = children(running.process.pid)
        running.process.kill()
        assert all(ended(pid) for pid in pids)


@pytest.mark.slow
def test_all_workers_are_replaced_one_after_the_other(postgres_url: str) -> None:
    with server(postgres_url, "--workers", str(COUNT)) as running:
        before = children(running.process.pid)
        running.process.send_signal(signal.SIGHUP)
        heard(running, "All workers were replaced.")
        after = children(running.process.pid)
        assert len(after) == COUNT
        assert not before & after
        assert httpx.get(f"{running.url}/readyz", timeout=END_S).status_code == 200
        assert running.stop()[0] == 0


@pytest.mark.parametrize("home", ["memory:", "lanes:///nowhere/shop", "s3://bucket/shop"])
def test_a_home_with_one_owner_has_one_process(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", shop.NAME, "--home", home, "--port", "0", "--workers", "2"]) == 2
    told = capsys.readouterr().err
    assert "one owner" in " ".join(told.split())


def test_an_address_that_needs_keys_is_refused_before_anything_starts(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", shop.NAME, "--home", postgres_url, "--port", "0", "--workers", "2", "--host", "0.0.0.0"]
    assert main(words) == 2
    assert "keys create" in capsys.readouterr().err
