"""Reads on connections of their own, beside the writer, never showing what is not durable (G7).

SQLite publishes a commit to readers only after its log is synced, so a read of a local lane sees durable groups by
itself. A lane that hands its groups on (to a bucket) is durable later than that: there a read notes how many groups may
have been visible to it, and its answer is held until all of them are durable.

Threads are shared by all lanes of the process; connections are the lane's own, opened when needed and closed when idle.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from interlock.lanes.connection import Prepare, open_reader
from interlock.lanes.failures import translated
from interlock.lanes.session import STEPS_BETWEEN_LOOKS
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

READ_THREADS_MAX = 8

Read = Callable[[apsw.Connection], object]

_threads = ThreadPoolExecutor(READ_THREADS_MAX, thread_name_prefix="interlock-read")


class Readers:
    """The reading connections of one lane."""

    def __init__(self, path: Path, *, settings: LaneSettings, clock: Clock, prepare: Prepare) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._prepare = prepare
        self._idle: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(settings.readers_max)
        self._closed = False

    async def run(self, read: Read) -> object:
        """Run the read in a thread, inside one read transaction."""
        return await asyncio.get_running_loop().run_in_executor(_threads, self._read, read)

    def close_idle(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close for good; a read that is running closes its own connection."""
        self._closed = True
        self.close_idle()

    def _read(self, read: Read) -> object:
        with self._slots:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = open_reader(self._path, self._prepare)
            try:
                return self._limited(connection, read)
            except BaseException as error:
                raise translated(error) from error
            finally:
                with self._lock:
                    keep = not self._closed
                    if keep:
                        self._idle.append(connection)
                if not keep:
                    with contextlib.suppress(apsw.Error):
                        connection.close()

    def _limited(self, connection: apsw.Connection, read: Read) -> object:
        deadline_s = self._clock.monotonic_s() + self._settings.statement_timeout_s
        connection.set_progress_handler(lambda: self._clock.monotonic_s() > deadline_s, STEPS_BETWEEN_LOOKS)
        return read(connection)
