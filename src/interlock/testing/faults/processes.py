"""Real processes that run a workload and are killed with SIGKILL at chosen points.

    with Processes() as processes:
        process = processes.start("shop.load:buy", "/var/shop", die_at=At("group.committed", 3))
        for line in process.lines():          # the lines that it wrote before it died
            ...

A workload is a plain function `f(say, *args)` in an importable module. `say` writes one whole line to a pipe, so lines
written before a kill can be read after it. Tests wait for lines and never sleep.

The odd choice is that processes are forked by one helper process that has imported the workload already: a life costs
milliseconds instead of half a second of imports, so hundreds of crashes fit into a test run. The helper has no threads.
Only processes started here are killed, by their number; the kernel cannot reuse a number before it is reaped.
"""

import asyncio
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

from interlock.clock import SystemClock

LIFETIME_S_MAX = 600
"""The alarm that ends a process even if its parent is dead. No workload comes near it."""

Argument = str | int | float | bool | None | Sequence["Argument"]


class At(NamedTuple):
    """The n-th time that a named point is reached (`interlock.faultpoints`)."""

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
        """Yield the next lines, up to `count`, or all until it is dead. An unfinished line is dropped."""
        while count is None or count > 0:
            line = self._next_line(None)
            if line is None:
                return
            yield line
            count = None if count is None else count - 1

    def lines_for(self, seconds: float) -> Iterator[str]:
        """Yield its lines for this time: a way to kill it at an instant independent of the workload."""
        clock = SystemClock()
        until_s = clock.monotonic_s() + seconds
        while (left_s := until_s - clock.monotonic_s()) > 0:
            line = self._next_line(left_s)
            if line is None:
                return
            yield line

    def kill(self) -> None:
        """Kill it with SIGKILL. Lines that it wrote before stay readable with `lines`."""
        if self._ended is None:
            os.kill(self.number, signal.SIGKILL)

    def end(self) -> int:
        """Wait until it is dead; return its exit code, or minus the signal. Raises when the workload failed."""
        while self._read(None):  # A process that blocks on a full pipe would never end.
            pass
        if self._ended is None:
            self._ended = self._owner.reap(self.number)
        if self._ended > 0:
            error = "\n".join(line for line in self.lines() if line.startswith("!"))
            raise RuntimeError(f"the workload failed with exit code {self._ended}:\n{error}")
        return self._ended

    def close(self) -> None:
        """Kill it if it lives, and drop its unread lines. A second call does nothing."""
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
        """Wait for more output; return False at its end or after the timeout."""
        if self._pipe is None or not select.select([self._pipe], [], [], timeout_s)[0]:
            return False
        data = os.read(self._pipe, 65_536)
        self._rest += data
        return bool(data)


class Processes:
    """Starts processes, and kills the remaining ones at the end."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._helper: subprocess.Popen[bytes] | None = None
        self._living: dict[int, Process] = {}

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._helper = subprocess.Popen(  # noqa: S603 -- our own module, our own interpreter.
                [sys.executable, "-m", "interlock.testing.faults.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                process_group=0,  # A terminal's Ctrl-C must reach this process alone.
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
        self._socket.close()  # The helper ends when its socket is closed.
        self._helper.wait()

    def start(
        self, workload: str, *args: Argument, die_at: At | None = None, descriptors: Sequence[int] = ()
    ) -> Process:
        """Run `module:function` in a process of its own; `die_at` makes it kill itself at a named point.

        Descriptors are passed on: their numbers in the new process are the last arguments of the workload.
        """
        assert self._socket is not None, "enter the context first"
        request = {"workload": workload, "args": args, "die_at": die_at, "lifetime_s": LIFETIME_S_MAX}
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [writing, *descriptors])
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


TURNS = 10
"""Turns of the event loop to wait; an accepted connection has its transport after two or three."""


async def stop_listening(server: asyncio.Server) -> None:
    """Stop accepting connections, and close the server. Existing connections stay open; the caller closes them.

    A connection that arrives in the loop turn in which an asyncio server is closed is accepted and dropped: creating
    its transport fails, and the garbage collector reports its socket in a later test. So accepting stops first, then
    accepted connections get their transports, then the server is closed.
    """
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    server.close()
