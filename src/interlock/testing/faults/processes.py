"""Real processes that run a workload and are killed, kill -9, where it hurts most.

    with Processes() as processes:
        process = processes.start("shop.load:buy", "/var/shop", die_at=At("group.committed", 3))
        for line in process.lines():          # what it said before it died
            ...

A workload is a plain function `f(say, *args)` in an importable module. What it says goes through a pipe, one line per
call, written whole: everything said before the kill can be read after it. Nobody sleeps: one waits for lines.

The odd choice is that processes are forked by one helper process that has imported the workload already: a life costs
milliseconds instead of half a second of imports, so hundreds of crashes fit into a test run. The helper has no threads.
Only processes started here are ever killed, by their number, and a number cannot be given away before it is reaped.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from interlock.seams import Clock, SystemClock

LIFETIME_S_MAX = 600
"""No process lives longer than this, whatever becomes of the one that started it. Nobody who works comes near it."""

Argument = str | int | float | bool | None | Sequence["Argument"]


class At(NamedTuple):
    """The n-th time that a named point is reached (`interlock.lanes.points`)."""

    point: str
    reached: int = 1


class Process:
    """One life of a workload."""

    def __init__(self, owner: "Processes", number: int, pipe: int) -> None:
        self.number = number
        self._owner = owner
        self._pipe: int | None = pipe
        self._rest = b""
        self._ended: int | None = None

    def lines(self, count: int | None = None) -> Iterator[str]:
        """The next lines, up to `count`, or all until it is dead. A line that was not finished was not said."""
        while count is None or count > 0:
            line = self._next_line(None)
            if line is None:
                return
            yield line
            count = None if count is None else count - 1

    def lines_for(self, seconds: float, clock: Clock | None = None) -> Iterator[str]:
        """What it says within so many seconds: the way to an instant that nothing in the workload has chosen."""
        clock = clock or SystemClock()
        until_s = clock.monotonic_s() + seconds
        while (left_s := until_s - clock.monotonic_s()) > 0:
            line = self._next_line(left_s)
            if line is None:
                return
            yield line

    def kill(self) -> None:
        """Kill it now, kill -9. What it said before is still there for `lines`."""
        if self._ended is None:
            os.kill(self.number, signal.SIGKILL)

    def end(self) -> int:
        """Wait until it is dead; returns 0, its exit code, or minus the signal. Raises when the workload failed."""
        while self._read(None):  # A process that cannot say what it has to say would never end.
            pass
        if self._ended is None:
            self._ended = self._owner.reap(self.number)
        if self._ended > 0:
            told = "\n".join(line for line in self.lines() if line.startswith("!"))
            raise RuntimeError(f"the workload failed with exit code {self._ended}:\n{told}")
        return self._ended

    def close(self) -> None:
        """Kill it if it lives, and forget what it said. A second time does nothing."""
        self.kill()
        if self._ended is None:
            self._ended = self._owner.reap(self.number)
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
            self._rest = b""

    def _next_line(self, timeout_s: float | None) -> str | None:
        while b"\n" not in self._rest:
            if not self._read(timeout_s):
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def _read(self, timeout_s: float | None) -> bool:
        """Wait for more of what it says; False when there is nothing more, or nothing in time."""
        if self._pipe is None or not select.select([self._pipe], [], [], timeout_s)[0]:
            return False
        data = os.read(self._pipe, 65_536)
        self._rest += data
        return bool(data)


class Processes:
    """Starts processes, and leaves none behind."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._helper: subprocess.Popen[bytes] | None = None
        self._living: dict[int, Process] = {}

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._helper = subprocess.Popen(  # noqa: S603 -- our own module, our own interpreter.
                [sys.executable, "-m", "interlock.testing.faults.forking", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self._socket = ours
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self._living.values()):
            process.close()
        assert self._socket is not None
        assert self._helper is not None
        self._socket.close()  # The helper ends when nobody can ask it any more.
        self._helper.wait()

    def start(self, workload: str, *args: Argument, die_at: At | None = None) -> Process:
        """Run `module:function` in a process of its own; `die_at` makes it kill itself at a named point."""
        assert self._socket is not None, "enter the context first"
        asked = {"workload": workload, "args": args, "die_at": die_at, "lifetime_s": LIFETIME_S_MAX}
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], [writing])
        finally:
            os.close(writing)
        answer = self._answer()
        if "number" not in answer:
            os.close(reading)
            raise RuntimeError(f"{workload} cannot be started: {answer['error']}")
        process = Process(self, int(answer["number"]), reading)
        self._living[process.number] = process
        return process

    def reap(self, number: int) -> int:
        """Wait until a process is dead; its number is free afterwards. Used by `Process`."""
        assert self._socket is not None
        self._socket.send(json.dumps({"reap": number}).encode())
        del self._living[number]
        return int(self._answer()["ended"])

    def _answer(self) -> dict[str, str]:
        assert self._socket is not None
        data = self._socket.recv(65_536)
        if not data:
            raise RuntimeError("the helper process is gone; its error output says why.")
        answer: dict[str, str] = json.loads(data)
        return answer
