"""Several processes that serve one port, on a home that may have many: `interlock serve --workers N`.

The supervisor has the socket and each worker inherits it, so there is one queue of connections and no worker takes a
part of it along when it ends. The supervisor accepts nothing and opens no engine: it starts workers, puts another one
in the place of one that has died, and passes the wish to stop on. SIGHUP replaces them one after the other, each when
its successor answers.

A worker has one more line to its supervisor, a pair of sockets: on it the worker says that it serves, and its end means
that the supervisor is gone, however that came about. So no worker outlives its supervisor.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path

from interlock.errors import BadUsage
from interlock.lanes.objects.addresses import redacted
from interlock.runtime.settings import Admission
from interlock.seams import SystemClock
from interlock.server.app import App
from interlock.server.running import FINISH_S, Listening, admission_from, bound_socket, serve
from interlock.server.security.binding import check_address
from interlock.server.security.guard import Guard
from interlock.server.security.opening import security_at
from interlock.server.siblings import Siblings, meeting_place
from interlock.signals import Observer
from interlock.sql.postgres.address import is_postgres

WORKERS_MAX = 64
SERVES = b"."
"""What a worker says when it serves."""

QUICK_S = 5.0
"""Whoever lives for less is replaced with a delay, which doubles."""

PAUSE_S, PAUSE_S_MAX = 0.5, 30.0
KILL_S = 30.0
"""After all that a worker may take to stop, so long it is waited for."""

INHERITED = "INTERLOCK_INHERITED"
"""In the environment of a worker: the numbers of its socket and of its line to the supervisor."""


def check_home(home: str, count: int) -> None:
    """Raise BadUsage where there cannot be so many processes."""
    if count > 1 and not is_postgres(home):
        raise BadUsage(
            f"{redacted(home)} cannot be served by {count} processes.",
            why="A folder, a bucket and memory have one owner at a time; only PostgreSQL is shared.",
            fix="Leave --workers out, or move the home to PostgreSQL.",
        )


async def _shared_socket(home: str, host: str, port: int) -> socket.socket:
    """The socket of all workers. Raises BadUsage for an address that must not or cannot be listened on."""
    security = security_at(home, clock=SystemClock())
    guard = Guard(security.keys, clock=SystemClock())
    try:
        await guard.fresh()
        check_address(host, keyed=guard.has_keys)
        return bound_socket(host, port)
    finally:
        await guard.close()
        await security.audit.close()


def part_of(admission: Admission, count: int) -> dict[str, str]:
    """The environment that gives each of some workers its part of what the server takes in (C7)."""
    assert admission.rate_per_s is not None
    assert admission.burst is not None
    if os.environ.get("INTERLOCK_REDIS"):
        count = 1  # They have the rate in common there: what each is given is that of all.
    rate, burst = max(1.0, admission.rate_per_s / count), max(1.0, admission.burst / count)
    return {"INTERLOCK_RATE_PER_S": repr(rate), "INTERLOCK_BURST": repr(burst)}


class _Worker:
    """A process that serves, or is about to."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket, begun_s: float) -> None:
        self.process = process
        self.begun_s = begun_s
        self._line = line
        self.ended = asyncio.ensure_future(process.wait())

    async def serves(self) -> bool:
        """Wait until it serves; False when it ends before that."""
        with contextlib.suppress(OSError):
            return await asyncio.get_running_loop().sock_recv(self._line, len(SERVES)) == SERVES
        return False

    def tell(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def forget(self) -> None:
        """It has ended."""
        self._line.close()


class Supervisor:
    """Keeps some workers running. Belongs to one event loop."""

    def __init__(
        self,
        command: Sequence[str],
        found: socket.socket,
        *,
        count: int,
        environment: Mapping[str, str],
        leave_s: float = 0.0,
        meeting: Path | None = None,
        tell: Callable[[str], None],
    ) -> None:
        self._command = command
        self._socket = found
        self._count = count
        self._environment = dict(environment)
        self._meeting = meeting
        self._patience_s = leave_s + FINISH_S + KILL_S
        self._tell = tell
        self._stopping = asyncio.Event()
        self._rolling: asyncio.Task[None] | None = None
        self._places: list[_Worker] = []
        self._alive: set[_Worker] = set()

    async def run(self, listening: Callable[[Listening], None]) -> int:
        """Serve until a signal comes; returns 0, or what a worker has ended with that could not begin or not stop."""
        with self._signals():
            try:
                code = await self._begin()
                if code is None:
                    name = self._socket.getsockname()
                    listening(Listening(host=str(name[0]), port=int(name[1])))
                    await self._keep_all()
            finally:
                self.stop()
                ended = await self._ended()
        return ended if code is None else code

    def stop(self) -> None:
        """Tell all workers to stop; told again, they stop at once."""
        self._stopping.set()
        for worker in self._alive:
            worker.tell(signal.SIGTERM)

    def roll(self) -> None:
        """Replace the workers one after the other, unless that is under way."""
        if self._rolling is None and not self._stopping.is_set():
            self._rolling = asyncio.ensure_future(self._roll())

    @contextlib.contextmanager
    def _signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        # Whoever closes the terminal wants an end; a service has no terminal, and is told to begin anew.
        hung_up = self.stop if sys.stdin is not None and sys.stdin.isatty() else self.roll
        heard = {signal.SIGINT: self.stop, signal.SIGTERM: self.stop, signal.SIGHUP: hung_up}
        for number, act in heard.items():
            loop.add_signal_handler(number, act)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    async def _begin(self) -> int | None:
        """Start all workers: the first alone, so that what is wrong is told once. None, or how one has ended."""
        while len(self._places) < self._count and not self._stopping.is_set():
            begun = [await self._start(place) for place in range(len(self._places), self._count if self._places else 1)]
            self._places += begun
            for worker in begun:
                if not await worker.serves() and not self._stopping.is_set():
                    return await worker.ended or 1
        return None

    async def _start(self, place: int) -> _Worker:
        told = Siblings(self._meeting, place, self._count).for_environment() if self._meeting else {}
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 -- as the standard library has it.
        with contextlib.ExitStack() as undone, theirs:
            undone.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                env={**self._environment, **told, INHERITED: f"{self._socket.fileno()} {theirs.fileno()}"},
                pass_fds=(self._socket.fileno(), theirs.fileno()),
                # Ctrl-C reaches all processes of a terminal's group: a worker would be told twice, and stop at once.
                start_new_session=True,
            )
            undone.pop_all()
        worker = _Worker(process, ours, asyncio.get_running_loop().time())
        self._alive.add(worker)
        if self._stopping.is_set():
            worker.tell(signal.SIGTERM)
        return worker

    async def _keep_all(self) -> None:
        keeping = [asyncio.ensure_future(self._keep(place)) for place in range(len(self._places))]
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in keeping:
                task.cancel()

    async def _keep(self, place: int) -> None:
        """Have a worker in a place until the server stops."""
        pause_s = 0.0
        while True:
            worker = self._places[place]
            code = await asyncio.shield(worker.ended)
            if self._stopping.is_set():
                return
            if self._places[place] is not worker:
                continue  # It was replaced.
            self._gone(worker)
            quick = asyncio.get_running_loop().time() - worker.begun_s < QUICK_S
            pause_s = min(max(2 * pause_s, PAUSE_S), PAUSE_S_MAX) if quick else 0.0
            self._tell(f"Worker {worker.process.pid} ended with {code}; another takes its place.")
            if await self._stops_within(pause_s):
                return
            successor = await self._successor(place, worker)
            if successor is not None and await successor.serves():
                self._tell(f"Worker {successor.process.pid} serves.")

    async def _successor(self, place: int, worker: _Worker) -> _Worker | None:
        """Start another worker in the place of one that has ended, however long that takes; None when one is there."""
        pause_s = PAUSE_S
        while self._places[place] is worker and not self._stopping.is_set():
            try:
                successor = await self._start(place)
            except OSError as error:
                # The machine is short of something; that is no reason to end those that serve.
                self._tell(f"No worker could be started: {error.strerror or error}. It is tried again.")
                await self._stops_within(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            if self._places[place] is worker:
                self._places[place] = successor
                return successor
            successor.tell(signal.SIGTERM)  # The place was taken meanwhile, by one that replaces them all.
            async with self._bounded(successor):
                await asyncio.shield(successor.ended)
            self._gone(successor)
        return None

    async def _stops_within(self, pause_s: float) -> bool:
        """Wait for so long; True when the server stops meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause_s)
        return self._stopping.is_set()

    async def _roll(self) -> None:
        try:
            for place in range(len(self._places)):
                if self._stopping.is_set():
                    return
                successor = await self._start(place)
                if not await successor.serves():
                    await successor.ended
                    self._gone(successor)
                    if not self._stopping.is_set():
                        self._tell("A new worker did not begin to serve; the old ones go on.")
                    return
                worker, self._places[place] = self._places[place], successor
                worker.tell(signal.SIGTERM)
                async with self._bounded(worker):
                    await asyncio.shield(worker.ended)
                self._gone(worker)
            self._tell("All workers were replaced.")
        except OSError as error:
            self._tell(f"No worker could be started: {error.strerror or error}. The old ones go on.")
        finally:
            self._rolling = None

    async def _ended(self) -> int:
        """Wait until all have ended; returns the worst code."""
        if self._rolling is not None:
            await self._rolling
        worst = 0
        for worker in [*self._alive]:
            async with self._bounded(worker):
                code = await asyncio.shield(worker.ended)
                # One that was told before it could hear is ended by the signal itself.
                worst = worst or (0 if code in {0, -signal.SIGTERM} else code)
            self._gone(worker)
        return abs(worst)

    @contextlib.asynccontextmanager
    async def _bounded(self, worker: _Worker) -> AsyncGenerator[None, None]:
        try:
            async with asyncio.timeout(self._patience_s):
                yield
        except TimeoutError:
            self._tell(f"Worker {worker.process.pid} has not stopped for {self._patience_s:g} s; it is killed.")
            worker.tell(signal.SIGKILL)
            await worker.ended

    def _gone(self, worker: _Worker) -> None:
        worker.forget()
        self._alive.discard(worker)


async def supervise(
    command: Sequence[str],
    home: str,
    *,
    count: int,
    host: str,
    port: int,
    leave_s: float,
    listening: Callable[[Listening], None],
    tell: Callable[[str], None],
) -> int:
    """Run a command so many times, as workers, until a signal comes; returns 0, or how one of them has failed."""
    # The home may hold a password: the environment of a process is read by its user alone, its words by everybody.
    environment = {**os.environ, **part_of(admission_from(), count), "INTERLOCK_HOME": home, "INTERLOCK_WORKERS": "1"}
    with await _shared_socket(home, host, port) as found, meeting_place() as meeting:
        supervisor = Supervisor(
            command, found, count=count, environment=environment, leave_s=leave_s, meeting=meeting, tell=tell
        )
        return await supervisor.run(listening)


def inherited() -> tuple[int, int] | None:
    """What a worker has from its supervisor; None for a process that is none. Said once: steps may start programs."""
    told = os.environ.pop(INHERITED, None)
    if told is None:
        return None
    try:
        socket_fd, line_fd = map(int, told.split())
    except ValueError:
        raise BadUsage(
            f"{INHERITED} is {told!r:.100}.",
            why="A server with several workers sets it for each of them, and nobody else does.",
            fix=f"Unset {INHERITED}.",
        ) from None
    return socket_fd, line_fd


async def work(
    app: App,
    home: str,
    given: tuple[int, int],
    *,
    host: str,
    leave_s: float,
    worker: bool,
    observers: Sequence[Observer | str] | None = None,
) -> None:
    """Serve as one of several, until the supervisor says so or is gone."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    siblings = Siblings.from_environment()
    socket_fd, line_fd = given
    with socket.socket(fileno=line_fd) as line, socket.socket(fileno=socket_fd) as found:
        line.setblocking(False)  # noqa: FBT003 -- as the standard library has it.
        found.setblocking(False)  # noqa: FBT003 -- as the standard library has it.

        def gone() -> None:
            loop.remove_reader(line)
            stop.set()
            if siblings is not None:
                siblings.forget()

        def serves(where: Listening) -> None:
            del where
            with contextlib.suppress(OSError):
                line.send(SERVES)

        loop.add_reader(line, gone)
        try:
            await serve(
                app,
                home,
                host=host,
                given=found,
                leave_s=leave_s,
                worker=worker,
                observers=observers,
                siblings=siblings,
                listening=serves,
                stop=stop,
            )
        finally:
            loop.remove_reader(line)
