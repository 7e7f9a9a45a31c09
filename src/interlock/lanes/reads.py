"""Reads on connections of their own, beside the writer, never showing what is not durable (G7).

SQLite publishes a commit to readers only after its log is synced, so a read of a local lane sees durable groups by
itself. A lane that hands its groups on (to a bucket) is durable later than that: there a read notes how many groups may
have been visible to it, and its answer is held until all of them are durable.

Threads are shared by all lanes of the process, fairly (`gate`); connections are the lane's own, opened when needed and
closed when idle. A read that nobody waits for any more ends within a millisecond, and gives both back.

The odd choice is that nothing interrupts SQLite for that: the connection asks, every few steps, whether the very read
that it runs was given up. An interrupt that comes a moment late would end the next read instead.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import apsw

from interlock.errors import UnavailableError
from interlock.lanes.connection import Prepare, Wall
from interlock.lanes.failures import translated
from interlock.lanes.file import LaneFile
from interlock.lanes.gate import Gate, Shares
from interlock.lanes.session import STEPS_BETWEEN_LOOKS
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

READ_THREADS_MAX = 16
"""Threads that read, for all lanes of the process. They are started when so many reads run at once."""

LOG_EXCESS_MAX = 4
"""How many times larger than `wal_bytes_max` the log may become before new reads wait."""

Read = Callable[[apsw.Connection], object]

_threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")
_shares = Shares(READ_THREADS_MAX)


class _Call:
    """One call of `Readers.run`."""

    __slots__ = ("given_up", "read")

    def __init__(self, read: Read) -> None:
        self.read = read
        self.given_up = False
        """Nobody waits for its answer."""


def _in_child() -> None:
    # Threads do not come through a fork: a pool that counts on them would let every read wait for ever.
    global _threads, _shares  # noqa: PLW0603 -- one pool per process.
    _threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")
    _shares = Shares(READ_THREADS_MAX)


os.register_at_fork(after_in_child=_in_child)


class _Reader:
    """One reading connection, with the time of the read that it runs."""

    def __init__(self, file: LaneFile, prepare: Prepare, clock: Clock, last_us: Callable[[], int]) -> None:
        self.connection = file.open_reader()
        self._clock = clock
        self._last_us = last_us
        self._now_us = 0
        self._deadline_s = 0.0
        self._call: _Call | None = None
        prepare(self.connection, self._now)
        self.connection.set_authorizer(Wall())
        self.connection.set_progress_handler(self._overdue, STEPS_BETWEEN_LOOKS)

    def run(self, call: _Call, timeout_s: float) -> object:
        self._now_us = max(self._last_us(), int(self._clock.wall_s() * 1_000_000))  # G8
        self._deadline_s = self._clock.monotonic_s() + timeout_s
        self._call = call
        try:
            return call.read(self.connection)
        finally:
            self._call = None  # An idle connection keeps nothing of its last read alive.

    def _now(self) -> int:
        return self._now_us

    def _overdue(self) -> bool:
        call = self._call
        return (call is not None and call.given_up) or self._clock.monotonic_s() > self._deadline_s


class Readers:
    """The reading connections of one lane."""

    def __init__(
        self, file: LaneFile, *, settings: LaneSettings, clock: Clock, prepare: Prepare, last_us: Callable[[], int]
    ) -> None:
        self._file = file
        self._settings = settings
        self._clock = clock
        self._prepare = prepare
        self._last_us = last_us
        """The lane's own time, which reads never show to have gone back (G8)."""
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()
        self._gate = Gate(settings.readers_max, waiting_max=settings.queue_max, shares=_shares)
        self._closed = False

    async def run(self, read: Read, left: Callable[[], None]) -> object:
        """Run the read in a thread of the process's own, which calls `left` when the connection is free again."""
        await self._gate.enter()
        call = _Call(read)
        try:
            reading = _threads.submit(self._read, call)
        except RuntimeError as error:
            call.given_up = True  # It may stand in the queue of the threads all the same.
            self._gate.leave()
            raise UnavailableError(f"the lane could not start a thread that reads: {error}.") from error

        def finished(_reading: object) -> None:
            left()
            self._gate.leave()

        reading.add_done_callback(finished)
        try:
            return await asyncio.wrap_future(reading)
        finally:
            call.given_up = True

    @property
    def idle(self) -> bool:
        """Whether there are open connections that nobody uses."""
        return bool(self._idle)

    @property
    def held(self) -> bool:
        """Whether new reads wait, so that the log can be folded."""
        return self._gate.held

    def make_way(self, log_bytes: int) -> None:
        """Told after every group how large the log is; 0 when all of it has been folded.

        SQLite starts its log anew only when no read needs it. Reads that overlap for ever would let it grow for ever,
        so when it is far too large new reads wait until those that run are over (G6).
        """
        if log_bytes > LOG_EXCESS_MAX * self._settings.wal_bytes_max:
            self._gate.hold()
        elif self._gate.held and (log_bytes or not self._gate.inside):
            self._gate.let_go()

    def close_idle(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for reader in idle:
            with contextlib.suppress(apsw.Error):
                reader.connection.close()
        self._gate.let_go()

    def close(self) -> None:
        """Close for good; a read that is running closes its own connection."""
        self._closed = True
        self.close_idle()

    def _read(self, call: _Call) -> object:
        reader: _Reader | None = None
        try:
            if call.given_up:
                return None  # Nobody is told: whoever wanted to know has gone.
            with self._lock:
                reader = self._idle.pop() if self._idle else None
            self._file.refuse_if_gone()
            if reader is None:
                reader = _Reader(self._file, self._prepare, self._clock, self._last_us)
            return reader.run(call, self._settings.statement_timeout_s)
        except BaseException as error:
            raise translated(error) from error
        finally:
            if reader is not None:
                self._put_back(reader)

    def _put_back(self, reader: _Reader) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(reader)
                return
        with contextlib.suppress(apsw.Error):
            reader.connection.close()
