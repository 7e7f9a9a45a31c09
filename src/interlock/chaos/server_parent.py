"""Parent program of one server, which leaves none of its processes: `server_parent.py READY LOG USER GROUP COMMAND...`.

It reads commands from standard input, one word per line (`kill`, or the number of a signal for the server alone), and
prints `started PID`, `ready`, `ended CODE`. At the end of its input, because the experiment was killed, it kills the
server and exits.

The odd choice is a process between the two. Only a parent knows that a PID still means the process it started. Only a
parent can reap all processes of a server: PostgreSQL puts each into a group of its own, and on Linux they become
children of this one. And the end of a mere thread of the experiment must not end the server. It uses the standard
library only, so that it starts fast.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

READ_BYTES_MAX = 65_536
SET_PARENT_DEATH_SIGNAL = 1
SET_CHILD_SUBREAPER = 36
"""Numbers of prctl(2)."""


class ServerParent:
    """One server, from its start to the end of its last process."""

    def __init__(self, command: list[str], *, ready: bytes, log: BinaryIO, user: int, group: int) -> None:
        self._ready = ready
        self._log = log
        self._line = b""
        self._wake, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        _process_control(SET_CHILD_SUBREAPER, 1)
        other = user != os.geteuid()
        self._server = subprocess.Popen(  # noqa: S603 -- the server that the experiment has chosen.
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user if other else None,
            group=group if other else None,
            extra_groups=[] if other else None,
            # After the change of the user, which would undo it.
            preexec_fn=die_with_parent,  # noqa: PLW1509 -- this process has one thread.
        )
        assert self._server.stdout is not None
        self._output = self._server.stdout.fileno()
        os.set_blocking(self._output, False)

    def serve(self) -> int:
        """Execute commands until the server has ended; return its exit code."""
        _print_line(f"started {self._server.pid}")
        listening = [self._wake, self._output, sys.stdin.fileno()]
        while True:
            able, _, _ = select.select(listening, [], [])
            if self._output in able and not self._copy_output():
                listening.remove(self._output)
            if self._wake in able:
                os.read(self._wake, READ_BYTES_MAX)
                if (code := self._reap()) is not None:
                    self._copy_output()
                    return code
            if sys.stdin.fileno() in able:
                data = os.read(sys.stdin.fileno(), READ_BYTES_MAX)
                for word in data.split():
                    self._do(word.decode())
                if not data:
                    listening.remove(sys.stdin.fileno())
                    self._do("kill")

    def _copy_output(self) -> bool:
        """Copy the server's output to the log; return False at its end."""
        while True:
            try:
                data = os.read(self._output, READ_BYTES_MAX)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._log.write(data)
            self._log.flush()
            if self._ready:
                *lines, self._line = (self._line + data).split(b"\n")
                if any(self._ready in line for line in lines):
                    self._ready = b""
                    _print_line("ready")

    def _do(self, word: str) -> None:
        server = self._server.pid
        if word != "kill":
            _signal(server, signal.Signals(int(word)))
            return
        _signal(server, signal.SIGSTOP)  # A stopped process cannot start another.
        for each in (*_descendants(server), server):
            _signal(each, signal.SIGKILL)

    def _reap(self) -> int | None:
        """Reap ended processes. After the server, kill its orphans, which are children of this process by then."""
        code: int | None = None
        with contextlib.suppress(ChildProcessError):
            while True:
                number, status = os.waitpid(-1, os.WNOHANG if code is None else 0)
                if number == 0:
                    return None
                if number == self._server.pid:
                    code = self._server.returncode = os.waitstatus_to_exitcode(status)
                    for each in _descendants(os.getpid()):
                        _signal(each, signal.SIGKILL)
        return code


def die_with_parent() -> None:
    """Have this process killed when the thread that forked it ends. Works on Linux; elsewhere nothing happens."""
    _process_control(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _descendants(number: int) -> list[int]:
    """Return all descendants of a process."""
    parents = _parents()
    found = [number]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _parents() -> dict[int, int]:
    """Return the parent of every process, by PID."""
    if not sys.platform.startswith("linux"):
        listed = subprocess.run(
            ["/bin/ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True
        ).stdout
        return {int(number): int(parent) for number, parent in (line.split() for line in listed.splitlines())}
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # It has just ended.
                # The name in parentheses may have spaces and parentheses itself.
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def _signal(number: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, what)


def _process_control(what: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(what, *map(ctypes.c_ulong, (value, 0, 0, 0)))


def _print_line(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # The experiment has ended; the end of the input shows that, too.
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main(ready: str, log: str, user: str, group: str, *command: str) -> None:
    """Run one server to its end."""
    with Path(log).open("ab") as written:
        parent = ServerParent(list(command), ready=ready.encode(), log=written, user=int(user), group=int(group))
        _print_line(f"ended {parent.serve()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
