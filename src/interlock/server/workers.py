"""Supervisor and workers of `interlock serve --workers N`: several processes serve one port of a shared home.

The supervisor opens the socket and each worker inherits it: there is one queue of connections, and a worker that ends
loses none of it. The supervisor accepts no connection and opens no engine. It starts workers, replaces one that has
died, and forwards stop signals. SIGHUP replaces the workers one after another, each when its successor serves.

A worker is also connected to its supervisor by a pair of sockets. The worker reports on it that it serves. Its end
means that the supervisor has died, so no worker outlives its supervisor.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path

from interlock.engine.engine_settings import Admission
from interlock.errors import BadUsage
from interlock.server.app_declaration import App
from interlock.server.lifecycle import FINISH_S, Listening, admission_from, bound_socket, open_guard, serve
from interlock.server.worker_metrics import Siblings, meeting_place
from interlock.signals import Observer
from interlock.urls import is_postgres_url, redact_url

WORKERS_MAX = 64
SERVES = b"."
"""The byte that a worker sends when it serves."""

QUICK_S = 5.0
"""A worker that lives for less is replaced after a delay, which doubles."""

PAUSE_S, PAUSE_S_MAX = 0.5, 30.0
KILL_S = 30.0
"""How much longer than its own timeouts a worker may take to stop before it is killed."""

INHERITED = "INTERLOCK_INHERITED"
"""Environment variable of a worker: the descriptors of its socket and of its connection to the supervisor."""


def check_home(home: str, count: int) -> None:
    """Raise BadUsage for a home that cannot be opened by `count` processes."""
    if count > 1 and not is_postgres_url(home):
        raise BadUsage(
            f"{redact_url(home)} cannot be served by {count} processes.",
            why="A folder, a bucket and memory have one owner at a time; only PostgreSQL is shared.",
            fix="Leave --workers out, or move the home to PostgreSQL.",
        )


async def _shared_socket(home: str, host: str, port: int) -> socket.socket:
    """Return the socket of all workers. Raises BadUsage for an address that is not permitted or not available."""
    async with contextlib.AsyncExitStack() as stack:
        await open_guard(home, host, stack)
        return bound_socket(host, port)


def part_of(admission: Admission, count: int) -> dict[str, str]:
    """Return environment variables that give each of `count` workers its share of the admission limits (C7)."""
    assert admission.rate_per_s is not None
    assert admission.burst is not None
    if os.environ.get("INTERLOCK_REDIS"):
        count = 1  # Workers share the rate through Redis: each gets the limit of all.
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

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still running."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def forget(self) -> None:
        """Close its connection after it has ended."""
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
        """Serve until a signal arrives; returns 0, or the exit code of a worker that failed to start or to stop."""
        with self._signals():
            try:
                code = await self._begin()
                if code is None:
                    listening(Listening.at(self._socket))
                    await self._keep_all()
            finally:
                self.stop()
                ended = await self._wait_all()
        return ended if code is None else code

    def stop(self) -> None:
        """Send all workers the stop signal; a second call makes them stop immediately."""
        self._stopping.set()
        for worker in self._alive:
            worker.send_signal(signal.SIGTERM)

    def roll(self) -> None:
        """Replace the workers one after the other, unless that is under way."""
        if self._rolling is None and not self._stopping.is_set():
            self._rolling = asyncio.ensure_future(self._roll())

    @contextlib.contextmanager
    def _signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        # A closed terminal means stop; a service has no terminal, and SIGHUP asks it to replace its workers.
        hung_up = self.stop if sys.stdin is not None and sys.stdin.isatty() else self.roll
        handlers = {signal.SIGINT: self.stop, signal.SIGTERM: self.stop, signal.SIGHUP: hung_up}
        for number, act in handlers.items():
            loop.add_signal_handler(number, act)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    async def _begin(self) -> int | None:
        """Start all workers, the first alone, so that an error is reported once. Returns None, or an exit code."""
        while len(self._places) < self._count and not self._stopping.is_set():
            begun = [await self._start(place) for place in range(len(self._places), self._count if self._places else 1)]
            self._places += begun
            for worker in begun:
                if not await worker.serves() and not self._stopping.is_set():
                    return await worker.ended or 1
        return None

    async def _start(self, place: int) -> _Worker:
        siblings = Siblings(self._meeting, place, self._count).for_environment() if self._meeting else {}
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 -- as the standard library has it.
        with contextlib.ExitStack() as undone, theirs:
            undone.callback(ours.close)
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                env={**self._environment, **siblings, INHERITED: f"{self._socket.fileno()} {theirs.fileno()}"},
                pass_fds=(self._socket.fileno(), theirs.fileno()),
                # Ctrl-C reaches all processes of a terminal's group: a worker would get two signals, and stop
                # immediately.
                start_new_session=True,
            )
            undone.pop_all()
        worker = _Worker(process, ours, asyncio.get_running_loop().time())
        self._alive.add(worker)
        if self._stopping.is_set():
            worker.send_signal(signal.SIGTERM)
        return worker

    async def _keep_all(self) -> None:
        keeping = [asyncio.ensure_future(self._keep(place)) for place in range(len(self._places))]
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in keeping:
                task.cancel()

    async def _keep(self, place: int) -> None:
        """Keep a worker running in a place until the server stops."""
        pause_s = 0.0
        while True:
            worker = self._places[place]
            code = await asyncio.shield(worker.ended)
            if self._stopping.is_set():
                return
            if self._places[place] is not worker:
                continue  # It was replaced by `_roll`.
            self._remove(worker)
            quick = asyncio.get_running_loop().time() - worker.begun_s < QUICK_S
            pause_s = min(max(2 * pause_s, PAUSE_S), PAUSE_S_MAX) if quick else 0.0
            self._tell(f"Worker {worker.process.pid} ended with {code}; another takes its place.")
            if await self._stops_within(pause_s):
                return
            successor = await self._successor(place, worker)
            if successor is not None and await successor.serves():
                self._tell(f"Worker {successor.process.pid} serves.")

    async def _successor(self, place: int, worker: _Worker) -> _Worker | None:
        """Replace a worker that has ended, retrying until it succeeds; returns None if the place has another worker."""
        pause_s = PAUSE_S
        while self._places[place] is worker and not self._stopping.is_set():
            try:
                successor = await self._start(place)
            except OSError as error:
                # The machine lacks a resource; the workers that serve must not end because of it.
                self._tell(f"No worker could be started: {error.strerror or error}. Trying again.")
                await self._stops_within(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            if self._places[place] is worker:
                self._places[place] = successor
                return successor
            successor.send_signal(signal.SIGTERM)  # `_roll` has filled the place meanwhile.
            async with self._bounded(successor):
                await asyncio.shield(successor.ended)
            self._remove(successor)
        return None

    async def _stops_within(self, pause_s: float) -> bool:
        """Wait for `pause_s`; return True if the server stops meanwhile."""
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
                    self._remove(successor)
                    if not self._stopping.is_set():
                        self._tell("A new worker did not begin to serve; the old workers continue.")
                    return
                worker, self._places[place] = self._places[place], successor
                worker.send_signal(signal.SIGTERM)
                async with self._bounded(worker):
                    await asyncio.shield(worker.ended)
                self._remove(worker)
            self._tell("All workers were replaced.")
        except OSError as error:
            self._tell(f"No worker could be started: {error.strerror or error}. The old workers continue.")
        finally:
            self._rolling = None

    async def _wait_all(self) -> int:
        """Wait until all workers have ended; return the worst exit code."""
        if self._rolling is not None:
            await self._rolling
        worst = 0
        for worker in [*self._alive]:
            async with self._bounded(worker):
                code = await asyncio.shield(worker.ended)
                # A worker that has not installed its handler yet is ended by the signal itself.
                worst = worst or (0 if code in {0, -signal.SIGTERM} else code)
            self._remove(worker)
        return abs(worst)

    @contextlib.asynccontextmanager
    async def _bounded(self, worker: _Worker) -> AsyncGenerator[None, None]:
        try:
            async with asyncio.timeout(self._patience_s):
                yield
        except TimeoutError:
            self._tell(f"Worker {worker.process.pid} has not stopped for {self._patience_s:g} s; it is killed.")
            worker.send_signal(signal.SIGKILL)
            await worker.ended

    def _remove(self, worker: _Worker) -> None:
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
    """Run `count` workers until a signal arrives; returns 0, or the exit code of one that failed."""
    # The home may hold a password: only its user can read a process's environment, but every user its arguments.
    environment = {**os.environ, **part_of(admission_from(), count), "INTERLOCK_HOME": home, "INTERLOCK_WORKERS": "1"}
    with await _shared_socket(home, host, port) as found, meeting_place() as meeting:
        supervisor = Supervisor(
            command, found, count=count, environment=environment, leave_s=leave_s, meeting=meeting, tell=tell
        )
        return await supervisor.run(listening)


def inherited_descriptors() -> tuple[int, int] | None:
    """Return the descriptors a worker inherited; None in other processes. Unsets them: steps may start programs."""
    text = os.environ.pop(INHERITED, None)
    if text is None:
        return None
    try:
        socket_fd, line_fd = map(int, text.split())
    except ValueError:
        raise BadUsage(
            f"{INHERITED} is {text!r:.100}.",
            why="Only a server with several workers sets it, for each worker.",
            fix=f"Unset {INHERITED}.",
        ) from None
    return socket_fd, line_fd


async def serve_worker(
    app: App,
    home: str,
    descriptors: tuple[int, int],
    *,
    host: str,
    leave_s: float,
    worker: bool,
    observers: Sequence[Observer | str] | None = None,
) -> None:
    """Serve as one of several workers, until the supervisor asks to stop or has ended."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    siblings = Siblings.from_environment()
    socket_fd, line_fd = descriptors
    with socket.socket(fileno=line_fd) as line, socket.socket(fileno=socket_fd) as found:
        line.setblocking(False)  # noqa: FBT003 -- as the standard library has it.
        found.setblocking(False)  # noqa: FBT003 -- as the standard library has it.

        def supervisor_ended() -> None:
            loop.remove_reader(line)
            stop.set()
            if siblings is not None:
                siblings.forget()

        def serves(where: Listening) -> None:
            del where
            with contextlib.suppress(OSError):
                line.send(SERVES)

        loop.add_reader(line, supervisor_ended)
        try:
            await serve(
                app,
                home,
                host=host,
                listener=found,
                leave_s=leave_s,
                worker=worker,
                observers=observers,
                siblings=siblings,
                listening=serves,
                stop=stop,
            )
        finally:
            loop.remove_reader(line)
