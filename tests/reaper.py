"""The process that ends what a killed test process leaves running. Loaded by the conftest of all tests.

A test process that is killed, or ended by the watchdog of `tests.limits`, runs no fixture to its end. It holds a pipe
to this program (`reaper.py`), and writes to it every process that `subprocess` starts, and the folder of every
PostgreSQL, which is started by a program that ends. When the pipe closes, the reaper kills the processes that still
run, with everything below them. There is one reaper for each test process; it starts with the first process.

The odd choice is to hook into `subprocess` itself: no server, present or future, has to be remembered. The death
signal of Linux would not do: it fires when a thread ends, and a change of the user takes it back. A process is held by
a descriptor, and named by its number and the time of its start, so that its number cannot mean another one. On systems
without such descriptors the reaper does nothing.
"""

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

READ_BYTES_MAX = 65_536
SHUTDOWN_S_MAX = 10.0
"""How long a PostgreSQL may take to end in order: what it shares with its processes is given back then."""


class Reaper:
    """The end of the pipe that the test process holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._start_process: Callable[..., None] = subprocess.Popen.__init__

    def install(self) -> None:
        """Watch every process that `subprocess` starts from now on. A second time does nothing."""
        if subprocess.Popen.__init__ is not self._start_process or not hasattr(os, "pidfd_open"):
            return

        @functools.wraps(self._start_process)
        def start_process(process: "subprocess.Popen[bytes]", *words: object, **named: object) -> None:
            self._start_process(process, *words, **named)
            # The reaper may read this after both processes have ended: only the start time tells them from successors.
            self._tell(f"process {process.pid} {start_time_of(process.pid)}")

        subprocess.Popen.__init__ = start_process  # type: ignore[method-assign, assignment]
        os.register_at_fork(after_in_child=self._forget)

    def watch_postgres(self, data: Path) -> None:
        """Watch the PostgreSQL whose data are in this folder, whichever process of it runs at the end."""
        self.install()
        self._tell(f"postgres {data}")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._pipe is None:
                self._pipe = self._start()
            os.write(self._pipe, f"{line}\n".encode())

    def _start(self) -> int:
        reading, writing = os.pipe()
        program = object.__new__(subprocess.Popen)
        self._start_process(
            program,
            [sys.executable, "-I", "-S", __file__],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests.
        )
        os.close(reading)
        program.returncode = 0  # It ends after this process, so it is not waited for.
        return writing

    def _forget(self) -> None:
        """A forked process would keep the pipe open when the test process has ended."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


REAPER = Reaper()


def pytest_configure() -> None:
    REAPER.install()


# --- the program ------------------------------------------------------------------------------------------------------


def watch() -> None:
    """Read what is started until the test process has ended; then end what is left."""
    processes: dict[int, int] = {}
    folders: set[str] = set()
    unread = b""
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    while True:
        for ready, _ in waiting.poll():
            if ready:
                waiting.unregister(ready)
                os.close(ready)
                del processes[ready]
                continue
            data = os.read(0, READ_BYTES_MAX)
            if not data:
                end_processes(processes)
                for folder in folders:
                    end_postgres(folder)
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                kind, _, name = line.decode().partition(" ")
                if kind == "postgres":
                    folders.add(name)
                elif (descriptor := _opened(*map(int, name.split()))) is not None:
                    processes[descriptor] = int(name.split()[0])
                    waiting.register(descriptor, select.POLLIN)


def end_processes(processes: dict[int, int]) -> None:
    """Kill these processes, numbers by descriptor, and all below them: from the top, none may start another.

    A reaper below them is left: it ends what its own process has started, which need not be below that process.
    """
    # By descriptor: one that has ended since may have left its number to a process that is none of ours.
    found = [number for descriptor, number in processes.items() if _signal_descriptor(descriptor, signal.SIGSTOP)]
    parents = {number: parent_of(number) for number in all_processes()}
    for each in found:
        for child in [number for number, parent in parents.items() if parent == each and number not in found]:
            if is_reaper(child):
                continue
            _signal(child, signal.SIGSTOP)
            found.append(child)
    for each in found:
        _signal(each, signal.SIGKILL)


def end_postgres(folder: str) -> None:
    """End the server that works in this folder, and remove its data."""
    with contextlib.suppress(OSError, ValueError):
        number = int(Path(folder, "postmaster.pid").read_text().split("\n", 1)[0])
        descriptor = os.pidfd_open(number)
        if Path(f"/proc/{number}/cwd").samefile(folder):  # The file may be of an earlier life.
            _signal(number, signal.SIGQUIT)
            _signal(number, signal.SIGCONT)
            if not select.select([descriptor], [], [], SHUTDOWN_S_MAX)[0]:
                _signal(number, signal.SIGKILL)
                select.select([descriptor], [], [])
    shutil.rmtree(folder, ignore_errors=True)


def _opened(number: int, start_time: int) -> int | None:
    try:
        descriptor = os.pidfd_open(number)
    except OSError:
        return None  # It has ended.
    if start_time_of(number) == start_time:
        return descriptor
    os.close(descriptor)
    return None


def parent_of(number: int) -> int:
    """The process that has started this one; 0 when it has ended."""
    return _stat(number, 4)


def start_time_of(number: int) -> int:
    """When this process was started, in clock ticks since boot; 0 when it has ended."""
    return _stat(number, 22)


def _stat(number: int, field: int) -> int:
    """A field of /proc/PID/stat, counted from 1 as proc(5) does."""
    with contextlib.suppress(OSError):
        # The name in parentheses, field 2, may have spaces and parentheses itself.
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[field - 3])
    return 0


def is_reaper(number: int) -> bool:
    """Whether the process runs this program."""
    with contextlib.suppress(OSError):
        return os.fsencode(__file__) in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    return False


def all_processes() -> list[int]:
    """The numbers of all processes of this system."""
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _signal_descriptor(descriptor: int, what: signal.Signals) -> bool:
    """Send a signal to a process; return whether it has not been reaped yet."""
    try:
        signal.pidfd_send_signal(descriptor, what)
    except OSError:
        return False
    return True


def _signal(number: int, what: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(number, what)


if __name__ == "__main__":
    watch()
