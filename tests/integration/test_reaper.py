"""A test process that is killed leaves neither a server nor any other process running (tests/reaper.py)."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.tabs import ARGUMENTS, chromium
from tests.integration.objects.servers import SeaweedFS
from tests.integration.ops.test_prometheus import prometheus
from tests.integration.postgres.wheel import get_server
from tests.integration.redis import server as redis
from tests.integration.server.running import server
from tests.reaper import REAPER, all_processes, is_reaper, parent_of
from tests.unit.cli.running import plain_environment

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; from tests.integration.test_reaper import start_and_die; start_and_die(*sys.argv[1:])"
WORKER = (
    "import sys, signal; from tests.integration.test_reaper import start; start(sys.argv[1], sys.argv[2], signal.pause)"
)

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes are watched by descriptors of Linux")


@contextmanager
def postgres(folder: Path) -> Iterator[list[int]]:
    """It was restarted: its first process is another one than that of its first start."""
    data = folder / "data"
    made = get_server(data)
    owner = data.stat().st_uid if os.geteuid() == 0 else None
    control = [f"{made.bin_path}/pg_ctl", "-D", str(data), "-w", "-l", f"{data}/restarts.log", "restart"]
    subprocess.run(control, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner)
    yield [int((data / "postmaster.pid").read_text().split("\n", 1)[0])]


@contextmanager
def browser(_: Path) -> Iterator[None]:
    with sync_playwright() as playwright:
        playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield


SERVERS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "postgres": postgres,
    "redis": redis.Server,
    "seaweedfs": lambda _: SeaweedFS(),
    "interlock": lambda folder: server(f"lanes://{folder}/home"),
    "prometheus": lambda folder: prometheus(folder, "127.0.0.1:9"),
    "chromium": browser,
}
INSTALLED: dict[str, Callable[[], object]] = {
    "redis": redis.found,
    "prometheus": partial(shutil.which, "prometheus"),
    "chromium": chromium,
}


def start_worker_and_die(name: str, folder: str) -> None:
    """Start a worker that starts a server, as the tests do that run in several processes, and be killed."""
    REAPER.install()
    worker = subprocess.Popen([sys.executable, "-c", WORKER, name, folder], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    sys.stdout.write(f"{worker.pid} {worker.stdout.readline()}")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def start_and_die(name: str, folder: str) -> None:
    """Start a server as the tests do, say which processes that has started, and be killed."""
    start(name, folder, lambda: os.kill(os.getpid(), signal.SIGKILL))


def start_unread_and_die() -> None:
    """Start a process while the reaper does not run, say the numbers of both, and be killed."""
    REAPER.install()
    subprocess.run([sys.executable, "-c", ""], check=True)
    [reaper] = [number for number in all_processes() if parent_of(number) == os.getpid() and is_reaper(number)]
    os.kill(reaper, signal.SIGSTOP)
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdout=subprocess.DEVNULL)
    sys.stdout.write(f"{reaper} {process.pid}\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def start(name: str, folder: str, then: Callable[[], None]) -> None:
    """Start a server, say which processes that has started, and go on."""
    REAPER.install()
    with SERVERS[name](Path(folder)) as started:
        found = [os.getpid(), *(started if isinstance(started, list) else [])]
        for each in found:
            found += [number for number in all_processes() if parent_of(number) == each and number not in found]
        sys.stdout.write(f"{' '.join(map(str, found[1:]))}\n")
        sys.stdout.flush()
        then()


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_ends_with_the_test_process_that_started_it(name: str) -> None:
    if not INSTALLED.get(name, lambda: True)():
        pytest.skip(f"{name} is not installed")
    all_end(PROGRAM, name)


@pytest.mark.slow
def test_a_server_of_a_worker_ends_with_the_process_that_started_the_worker() -> None:
    all_end(PROGRAM.replace("start_and_die", "start_worker_and_die"), "postgres")


@pytest.mark.slow
def test_a_reaper_that_reads_after_the_test_process_has_ended_ends_what_it_started() -> None:
    with run_program("from tests.integration.test_reaper import start_unread_and_die; start_unread_and_die()") as child:
        assert child.stdout is not None
        reaper, process = map(int, child.stdout.readline().split())
        child.wait()
        os.kill(reaper, signal.SIGCONT)
        wait_for_end(process)
        wait_for_end(reaper)


def run_program(program: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        env=plain_environment(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, sys.path)])),
        text=True,
    )


def all_end(program: str, name: str) -> None:
    """Run the program until it is killed, and wait for the end of all processes that it names."""
    with (
        tempfile.TemporaryDirectory(prefix="interlock-reaper-") as folder,
        run_program(program, name, folder) as child,
    ):
        assert child.stdout is not None
        numbers = [int(word) for word in child.stdout.readline().split()]
        assert len(numbers) > 1, "the server, and the reaper"
        for number in numbers:
            wait_for_end(number)
    assert child.returncode == -signal.SIGKILL


def wait_for_end(number: int) -> None:
    """Without a bound but the limit of the test."""
    try:
        descriptor = os.pidfd_open(number)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)
