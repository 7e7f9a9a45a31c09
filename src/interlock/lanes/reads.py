"""Reads on connections of their own, beside the writer, never showing what is not durable (G7).

SQLite publishes a commit to readers only after its log is synced, so a read of a local lane sees durable groups by
itself. A lane that hands its groups on (to a bucket) is durable later than that: there a read notes how many groups may
have been visible to it, and its answer is held until all of them are durable.

Threads are shared by all lanes of the process; connections are the lane's own, opened when needed and closed when idle.
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

from interlock.lanes.connection import Prepare, Wall
from interlock.lanes.failures import translated
from interlock.lanes.file import LaneFile
from interlock.lanes.gate import Gate
from interlock.lanes.session import STEPS_BETWEEN_LOOKS
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

READ_THREADS_MAX = 8
LOG_EXCESS_MAX = 4
"""How many times larger than `wal_bytes_max` the log may become before new reads wait."""

Read = Callable[[apsw.Connection], object]

_threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")


def _in_child() -> None:
    # Threads do not come through a fork: a pool that counts on them would let every read wait for ever.
    global _threads  # noqa: PLW0603 -- one pool per process.
    _threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")


os.register_at_fork(after_in_child=_in_child)


class _Reader:
    """One reading connection, with the time of the read that it runs."""

    def __init__(self, file: LaneFile, prepare: Prepare, clock: Clock, last_us: Callable[[], int]) -> None:
        self.connection = file.open_reader()
        self._clock = clock
        self._last_us = last_us
        self._now_us = 0
        self._deadline_s = 0.0
        prepare(self.connection, self._now)
        self.connection.set_authorizer(Wall())
        self.connection.set_progress_handler(self._overdue, STEPS_BETWEEN_LOOKS)

    def run(self, read: Read, timeout_s: float) -> object:
        self._now_us = max(self._last_us(), int(self._clock.wall_s() * 1_000_000))  # G8
        self._deadline_s = self._clock.monotonic_s() + timeout_s
        return read(self.connection)

    def _now(self) -> int:
        return self._now_us

    def _overdue(self) -> bool:
        return self._clock.monotonic_s() > self._deadline_s


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
        self._gate = Gate(settings.readers_max, waiting_max=settings.queue_max)
        self._closed = False

    async def run(self, read: Read) -> object:
        """Run the read in a thread of the process's own."""
        await self._gate.enter()
        reading = _threads.submit(self._read, read)
        reading.add_done_callback(lambda _: self._gate.leave())
        return await asyncio.wrap_future(reading)

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

    def _read(self, read: Read) -> object:
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        try:
            self._file.refuse_if_gone()
            if reader is None:
                reader = _Reader(self._file, self._prepare, self._clock, self._last_us)
            return reader.run(read, self._settings.statement_timeout_s)
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
