"""Streams and shards of a database, each with a write stream of its own (D4, D5).

Those of a lane are lanes, at any depth, and one bound limits their total number. Those of a schema of PostgreSQL are
schemas beside it, on the same connections. They are closed with their parent, and are created where it lives. Each is
a database that moves by its own tombstone, alone or before its parent (see `inventory`); its handles
follow it.
"""

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from interlock.catalog.open_lane import closing_thread, opening_thread
from interlock.database.lane_engine import OnLane
from interlock.errors import MovedElsewhere, Overloaded, UnavailableError
from interlock.lanes import forks
from interlock.lanes.lane import Lane
from interlock.lanes.sqlite_connection import closed_error
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
FoundT = TypeVar("FoundT")
"""An open database with the place where it was found."""

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

    def at(self, engine: OnLane) -> "Streams[DatabaseT_co]":
        """Return the same for the lane of the database, which was opened again at the same place."""
        ...


def url_below(url: str, path: str) -> str:
    """Return the address of a stream or shard, at any depth, from the keys that lead to it."""
    for step in path.split(_THEN):
        kind, mark, rest = step.partition(":")
        url = stream_url(url, rest) if kind + mark == STREAM else shard_url(url, int(rest))
    return url


class Elsewhere(Generic[FoundT]):
    """Streams that were opened again at another place, each once for all handles and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Future[FoundT]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __contains__(self, key: str) -> bool:
        return key in self._found

    async def find(self, key: str, left: FoundT | None, opens: Callable[[], Awaitable[FoundT]]) -> FoundT:
        """Return what was opened since `left`; without it open it, or wait for a concurrent caller that does.

        The opening continues for others when this call is cancelled.
        """
        with self._lock:
            if self._closed:
                raise closed_error()
            flight = self._found.get(key)
            mine = flight is None or (flight.done() and flight.result() is left)
            if flight is None or mine:
                flight = self._found[key] = Future()
                _ = flight.set_running_or_notify_cancel()  # So that no waiting call can cancel it for the others.
        if mine:
            task = asyncio.ensure_future(self._open(key, flight, opens))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.wrap_future(flight)

    async def _open(self, key: str, flight: Future[FoundT], opens: Callable[[], Awaitable[FoundT]]) -> None:
        try:
            flight.set_result(await opens())
        except BaseException as error:
            with self._lock:
                del self._found[key]
            flight.set_exception(error if isinstance(error, Exception) else closed_error())
            if not isinstance(error, Exception):
                raise

    async def close(self, close: Callable[[FoundT], Awaitable[None]]) -> None:
        """Close everything that is open or being opened: another place may be about to open the same."""
        with self._lock:
            self._closed = True
            flights = list(self._found.values())
        for found in await asyncio.gather(*map(asyncio.wrap_future, flights), return_exceptions=True):
            if not isinstance(found, BaseException):
                await close(found)


class Follows(Protocol[DatabaseT_co, FoundT]):
    """Opens a stream that has left its place."""

    def open(self, path: str, moved: MovedElsewhere) -> Awaitable[FoundT]:
        """Open it where its tombstones lead."""
        ...

    def wrap(self, path: str, found: FoundT) -> DatabaseT_co:
        """Return a handle."""
        ...

    async def close(self, found: FoundT) -> None:
        """Close what was opened."""
        ...


class _OpenLane(Generic[DatabaseT]):
    __slots__ = ("done", "lane", "used_s")

    def __init__(self) -> None:
        self.done: Future[DatabaseT]
        self.lane: Lane | None = None
        """None while it is being opened."""
        self.used_s = 0.0


class LaneStreams(Generic[DatabaseT, FoundT]):
    """All lanes below a lane, at any depth: one per key for all event loops, closed together with their parent.

    The first call for a key opens its lane. One that failed to open, was closed or has died is opened again by the
    next call. G6: at most `streams_max` are open. One more closes the lane whose last call is longest ago, if it is
    idle and had no call within `idle_s`; otherwise the caller gets Overloaded. A lane in memory is never closed for
    another, because its rows would be lost.
    """

    def __init__(self, engine: OnLane, opens: Opens[DatabaseT], follows: Follows[DatabaseT, FoundT]) -> None:
        self._engine = engine
        self._opens = opens
        self._follows = follows
        self.elsewhere: Elsewhere[FoundT] = Elsewhere()
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
            if stream is None or (_is_dead(stream.lane) and key not in self.elsewhere):
                if stream is not None and stream.lane is not None:
                    self._leaving[key] = stream.lane
                elif len(self._known) >= self._settings.streams_max:
                    self._make_room()
                stream = _OpenLane[DatabaseT]()
                stream.done = opening_thread(partial(self._open, key, stream))
            stream.used_s = self._clock.monotonic_s()
            self._known.pop(key, None)
            self._known[key] = stream
        try:
            return await asyncio.wrap_future(stream.done)
        except MovedElsewhere as error:
            moved = error
        return self._adopt(key, await self.elsewhere.find(key, None, lambda: self._follows.open(key, moved)))

    def _adopt(self, key: str, found: FoundT) -> DatabaseT:
        """Return the one handle of a stream that had left when it was asked for."""
        with self._lock:
            stream = self._known.get(key)
            if stream is None or not stream.done.done() or stream.done.exception() is not None:
                stream = self._known[key] = _OpenLane[DatabaseT]()
                stream.done = Future()
                stream.done.set_result(self._follows.wrap(key, found))
            return stream.done.result()

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
        await asyncio.gather(self.elsewhere.close(self._follows.close), return_exceptions=True)
        closing.result()

    def at(self, engine: OnLane) -> "LaneStreams[DatabaseT, FoundT]":
        """Replace the engine of the parent, which was opened again at the same place."""
        self._engine = engine
        return self

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


class NestedStreams(Generic[DatabaseT, FoundT]):
    """The lanes below a stream. The parent database keeps them, because the stream may be closed and reopened."""

    def __init__(self, below: LaneStreams[DatabaseT, FoundT], path: str, engine: OnLane) -> None:
        self._below = below
        self._path = path
        self._engine = engine

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; open it if necessary."""
        return await self._below.get(f"{self._path}{_THEN}{key}")

    def at(self, engine: OnLane) -> "NestedStreams[DatabaseT, FoundT]":
        """Return the same for the stream that was opened again at the same place."""
        return NestedStreams(self._below, self._path, engine)

    async def close(self) -> None:
        """Close the stream only; the lanes below it are closed with the parent database."""
        await asyncio.wrap_future(closing_thread(self._engine.lane.close))


class PostgresStreams(Generic[DatabaseT, FoundT]):
    """The schemas beside a schema of PostgreSQL. They share its connections and need no close.

    G6: at most `streams_max` are cached; others are looked up again.
    """

    def __init__(
        self,
        engine: "OnPostgres",
        make: "Callable[[OnPostgres, str], DatabaseT]",
        follows: Follows[DatabaseT, FoundT],
    ) -> None:
        self._engine = engine
        self._make = make
        self._follows = follows
        self.elsewhere: Elsewhere[FoundT] = Elsewhere()
        self._known: OrderedDict[str, tuple[OnPostgres | None, DatabaseT]] = OrderedDict()
        """By key, with the engine; None for a stream that lives elsewhere."""

    async def get(self, key: str) -> DatabaseT:
        """Return the database of this key; create its schema if necessary."""
        found = self._known.get(key)
        if found is None or (found[0] is not None and found[0].is_closed and key not in self.elsewhere):
            found = self._known[key] = await self._open(key)
            if len(self._known) > self._engine.settings.streams_max:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return found[1]

    async def _open(self, key: str) -> "tuple[OnPostgres | None, DatabaseT]":
        engine = await self._engine.part(key)
        try:
            engine = await engine.create_missing()
        except MovedElsewhere as error:
            moved = error
        else:
            return engine, self._make(engine, key)
        opened = await self.elsewhere.find(key, None, lambda: self._follows.open(key, moved))
        return self._known.get(key) or (None, self._follows.wrap(key, opened))

    def at(self, engine: OnLane) -> "PostgresStreams[DatabaseT, FoundT]":
        """Do nothing: there is no lane."""
        del engine
        return self

    async def close(self) -> None:
        """Close all of them, then the database itself."""
        await self.elsewhere.close(self._follows.close)
        for engine, _ in self._known.values():
            if engine is not None:
                await engine.close()
        await self._engine.close()
