"""Streams and shards of a database, each with a write stream of its own (D4, D5).

Those of a lane are lanes, at any depth, and one bound limits their total number. Those of a schema of PostgreSQL are
schemas beside it, on the same connections. They are closed with their parent, and are created where it lives. A
database that has some is not moved (see `relocate.database.mover`).
"""

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from interlock.catalog.open_lane import closing_thread, opening_thread
from interlock.database.lane_engine import OnLane
from interlock.errors import Overloaded, UnavailableError
from interlock.lanes import forks
from interlock.lanes.connection import closed_error
from interlock.lanes.lane import Lane
from interlock.urls import shard_url, stream_url

if TYPE_CHECKING:
    from interlock.database.postgres_engine import OnPostgres

RETRY_AFTER_S_MIN = 0.1
CLOSING_THREADS = 16
"""Streams of one database that are closed concurrently: each may wait for a bucket that does not answer."""

STREAM: Final = "stream:"
SHARD: Final = "shard:"
"""Prefixes that keep the keys of streams and shards apart."""

_THEN = "\x00"
"""Separator between a stream and its own streams; no key contains it."""

DatabaseT = TypeVar("DatabaseT")
DatabaseT_co = TypeVar("DatabaseT_co", covariant=True)
Opens = Callable[[str], tuple[Lane, DatabaseT]]
"""Opens the stream of a key, and returns its lane and its database. Blocks."""


class Streams(Protocol[DatabaseT_co]):
    """The streams and shards of one database."""

    async def get(self, key: str) -> DatabaseT_co:
        """Return the database of this key; open it if necessary."""
        ...

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        ...


def url_below(url: str, path: str) -> str:
    """Return the address of a stream or shard, at any depth, from the keys that lead to it."""
    for step in path.split(_THEN):
        kind, mark, rest = step.partition(":")
        url = stream_url(url, rest) if kind + mark == STREAM else shard_url(url, int(rest))
    return url


class _OpenLane(Generic[DatabaseT]):
    __slots__ = ("done", "lane", "used_s")

    def __init__(self) -> None:
        self.done: Future[DatabaseT]
        self.lane: Lane | None = None
        """None while it is being opened."""
        self.used_s = 0.0


class LaneStreams(Generic[DatabaseT]):
    """All lanes below a lane, at any depth: one per key for all event loops, closed together with their parent.

    The first call for a key opens its lane. One that failed to open, was closed or has died is opened again by the
    next call. G6: at most `streams_max` are open. One more closes the lane whose last call is longest ago, if it is
    idle and had no call within `idle_s`; otherwise the caller gets Overloaded. A lane in memory is never closed for
    another, because its rows would be lost.
    """

    def __init__(self, engine: OnLane, opens: Opens[DatabaseT]) -> None:
        self._engine = engine
        self._opens = opens
        self._settings = engine.settings
        self._clock = engine.clock
        self._lock = threading.Lock()
        self._known: dict[str, _OpenLane[DatabaseT]] = {}
        """Open streams, the least recently used first."""
        self._leaving: dict[str, Lane] = {}
        """Streams to be closed before the next one is opened."""
        self._closed = False
        forks.watch(self)

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; open it if necessary."""
        with self._lock:
            if self._closed:
                raise closed_error()
            stream = self._known.get(key)
            if stream is None or _is_dead(stream.lane):
                if stream is not None and stream.lane is not None:
                    self._leaving[key] = stream.lane
                elif len(self._known) >= self._settings.streams_max:
                    self._make_room()
                stream = _OpenLane[DatabaseT]()
                stream.done = opening_thread(partial(self._open, key, stream))
            stream.used_s = self._clock.monotonic_s()
            self._known.pop(key, None)
            self._known[key] = stream
        return await asyncio.wrap_future(stream.done)

    async def close(self) -> None:
        """Close all of them, then the database itself. This completes even if the call is cancelled."""
        with self._lock:
            self._closed = True
            streams, self._known = list(self._known.values()), {}
            lanes = [stream.lane for stream in streams if stream.lane is not None] + list(self._leaving.values())
            parent = self._engine.lane
        closing = asyncio.wrap_future(closing_thread(lambda: _close(lanes, parent)))
        # A stream that is still being opened closes itself as soon as it is open.
        opening = (asyncio.wrap_future(stream.done) for stream in streams if stream.lane is None)
        await asyncio.gather(closing, *opening, return_exceptions=True)
        closing.result()

    def replace_engine(self, engine: OnLane) -> None:
        """Replace the engine of the parent, which was opened again at the same place."""
        self._engine = engine

    def forked(self) -> None:
        """Replace the lock and drop the streams in the child of a fork: a thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        self._closed = True
        self._known, self._leaving = {}, {}

    def _make_room(self) -> None:
        since_s = self._clock.monotonic_s() - self._settings.idle_s
        for key, known in self._known.items():
            lane = known.lane
            if lane is not None and lane.path is not None and lane.state != "busy" and known.used_s <= since_s:
                self._leaving[key] = lane
                del self._known[key]
                return
        raise Overloaded(
            max(self._settings.idle_s, RETRY_AFTER_S_MIN),
            f"{len(self._known):,} streams of this database are in use already (streams_max).",
        )

    def _open(self, key: str, stream: _OpenLane[DatabaseT]) -> DatabaseT:
        try:
            self._close_leaving()
            lane, database = self._opens(key)
        except BaseException:
            with self._lock:
                if self._known.get(key) is stream:
                    del self._known[key]
            raise
        with self._lock:
            stream.lane = lane
            late = self._closed
        if late:
            lane.close()
            raise closed_error()
        return database

    def _close_leaving(self) -> None:
        """Close the leaving streams before an opening: one of them may own the file that is about to be opened."""
        with self._lock:
            leaving = dict(self._leaving)
        for key, lane in leaving.items():
            with contextlib.suppress(Exception):  # It has released its file even if the close failed.
                lane.close()
            with self._lock:
                if self._leaving.get(key) is lane:
                    del self._leaving[key]


def _is_dead(lane: Lane | None) -> bool:
    # A stream in memory that died stays: a new one would be empty.
    return lane is not None and (lane.state == "closed" or (lane.state == "dead" and lane.path is not None))


def _close(lanes: Sequence[Lane], parent: Lane) -> None:
    failed = _close_concurrently(lanes)
    _close_one(parent, failed)
    if failed:
        raise UnavailableError(
            f"a database was closed, but something failed on the way: {failed[-1]}.",
            why="What was acknowledged is durable; the log may not have been folded into the file.",
            fix="Nothing needs to be done: the next owner folds it.",
        ) from failed[-1]


def _close_concurrently(lanes: Sequence[Lane]) -> list[Exception]:
    waiting = deque(lanes)
    failed: list[Exception] = []

    def work() -> None:
        with contextlib.suppress(IndexError):  # The queue is empty.
            while True:
                _close_one(waiting.popleft(), failed)

    helpers = [
        threading.Thread(target=work, name="interlock-close", daemon=True)
        for _ in range(min(CLOSING_THREADS, len(lanes)) - 1)
    ]
    started: list[threading.Thread] = []
    with contextlib.suppress(RuntimeError):  # The system allows no more threads: the existing ones do all the work.
        for helper in helpers:
            helper.start()
            started.append(helper)
    work()
    for helper in started:
        helper.join()
    return failed


def _close_one(lane: Lane, failed: list[Exception]) -> None:
    try:
        lane.close()
    except Exception as error:  # noqa: BLE001 -- a failed close must not keep the others open.
        failed.append(error)


class NestedStreams(Generic[DatabaseT]):
    """The lanes below a stream. The parent database keeps them, because the stream may be closed and reopened."""

    def __init__(self, below: LaneStreams[DatabaseT], path: str, engine: OnLane) -> None:
        self._below = below
        self._path = path
        self._engine = engine

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; open it if necessary."""
        return await self._below.get(f"{self._path}{_THEN}{key}")

    async def close(self) -> None:
        """Close the stream only; the lanes below it are closed with the parent database."""
        await asyncio.wrap_future(closing_thread(self._engine.lane.close))


class PostgresStreams(Generic[DatabaseT]):
    """The schemas beside a schema of PostgreSQL. They share its connections and need no close.

    G6: at most `streams_max` are cached; others are looked up again.
    """

    def __init__(self, engine: "OnPostgres", make: "Callable[[OnPostgres, Streams[DatabaseT]], DatabaseT]") -> None:
        self._engine = engine
        self._make = make
        self._known: OrderedDict[str, tuple[OnPostgres, DatabaseT]] = OrderedDict()

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; create its schema if necessary."""
        found = self._known.get(key)
        if found is None or found[0].is_closed:
            engine = await self._engine.stream(key.removeprefix(STREAM)).create_missing()
            found = self._known[key] = engine, self._make(engine, PostgresStreams(engine, self._make))
            if len(self._known) > engine.settings.streams_max:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return found[1]

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        for engine, _ in self._known.values():
            await engine.close()
        await self._engine.close()
