"""From a place that was left to the place where a database lives now, while nobody notices.

What is true is the chain of tombstones: each place that was left names the next one, with the epoch of the move. So a
hop goes only ever to a higher epoch, which is why following ends; a chain that does not is refused by name.

A call that got MovedElsewhere has not happened, so it is made again at the new place, with the same key if it has one.
It is opened once, by the first who finds that out, whichever event loop that is in; everybody else waits for it.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar

from interlock.catalog.secrets import shown, with_secrets
from interlock.database.engines import DatabaseEngine, Follow
from interlock.errors import (
    CorruptionError,
    DialectError,
    InterlockError,
    LaneOwned,
    MovedElsewhere,
    TransactionError,
    UnavailableError,
)
from interlock.lanes.contention import HotRow
from interlock.lanes.failures import again
from interlock.lanes.settings import LaneSettings
from interlock.lanes.stats import LaneStats
from interlock.seams import Clock
from interlock.sql.executor import EngineName
from interlock.sql.rows import Row

HOPS_MAX: Final = 32
"""Places that one opening looks at. A place that is moved back to forgets that it was left, so nothing comes near."""

LOOK_S: Final = 0.02
"""Between two looks whether a mover has let go of what it has filled."""

_LOOKS: dict[EngineName, str] = {"lane": "SELECT 1", "postgres": "SELECT 1 FROM interlock_gate LIMIT 1"}
"""The gate leaves a schema with its tables; a lane looks for its tombstone with every read."""

ResultT = TypeVar("ResultT")
_Flight = Future[Exception | None]
"""What has come of it is its result: an exception that nobody waits for any more would be complained about."""


class Hop(NamedTuple):
    """A place on the way."""

    url: str
    epoch: int = 0
    """Of the move that leads here; 0 where nobody knows of one."""
    sent: bool = False
    """Whether a tombstone has sent us here: then the move has happened, and what is still arriving has arrived."""


async def followed(
    start: Hop, opens: Callable[[Hop], Awaitable[ResultT]], moved: MovedElsewhere | None = None, *, wait_s: float = 0.0
) -> ResultT:
    """Open at a place, or where it sends us, or has sent us. Raises CorruptionError for a chain that does not end.

    A lane that we are sent to may still be held by its mover, which has a few things to tidy up: that is waited for.
    """
    chain = [start] if moved is None else [start, _next([start], moved)]
    while True:
        try:
            return await _opened(chain[-1], opens, wait_s)
        except MovedElsewhere as error:
            chain.append(_next(chain, error))


async def _opened(hop: Hop, opens: Callable[[Hop], Awaitable[ResultT]], wait_s: float) -> ResultT:
    looks = int(wait_s / LOOK_S) if hop.sent else 0
    for _ in range(looks):
        with contextlib.suppress(LaneOwned):
            return await opens(hop)
        await asyncio.sleep(LOOK_S)
    return await opens(hop)


def _next(chain: list[Hop], moved: MovedElsewhere) -> Hop:
    if not moved.url:
        raise moved
    hop = Hop(with_secrets(moved.url, *(each.url for each in reversed(chain))), moved.epoch, sent=True)
    named = " → ".join(f"{shown(each.url)} (epoch {each.epoch})" for each in (*chain, hop))
    if hop.epoch <= chain[-1].epoch:
        raise CorruptionError(
            f"a database that was moved cannot be found, because a move leads back in time: {named}.",
            why="Each move of a database has a higher epoch than the one before; a file or a table was put back from "
            "a copy that was made before a move.",
            fix="Put away the copy that is too old, and open the database again.",
        ) from moved
    if len(chain) >= HOPS_MAX:
        raise CorruptionError(
            f"a database was moved more than {HOPS_MAX} times, and is still not found: {named}.",
            why="So many places are looked at; none of them has the database.",
            fix="Open it at the last of these addresses.",
        ) from moved
    return hop


async def look_whether_left(engine: DatabaseEngine) -> None:
    """Make the smallest call that finds out; what follows the database then has followed it."""
    # A user who may not make tables has no gate, and a lane that it was followed to takes no such statement.
    with contextlib.suppress(TransactionError, DialectError):
        _ = await engine.query(_LOOKS[engine.name], (), None)


class Reopening:
    """One reopening at a time, for everybody who needs it, from any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flight: _Flight | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def once(self, reopen: Callable[[], Awaitable[None]]) -> None:
        """Begin it, or wait for the one that is under way. Cancelled, it goes on for the others."""
        with self._lock:
            flight, mine = self._flight, self._flight is None
            if flight is None:
                flight = self._flight = Future()
                _ = flight.set_running_or_notify_cancel()
        if mine:
            task = asyncio.ensure_future(self._fly(flight, reopen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        failed = await asyncio.shield(asyncio.wrap_future(flight))
        if failed is not None:
            raise again(failed) if isinstance(failed, InterlockError) else failed

    async def over(self) -> None:
        """Wait until none is under way."""
        flight = self._flight
        if flight is not None:
            _ = await asyncio.shield(asyncio.wrap_future(flight))

    async def _fly(self, flight: _Flight, reopen: Callable[[], Awaitable[None]]) -> None:
        # An event loop that ends while it waits has to say so: those of other loops would wait for ever.
        failed: Exception | None = UnavailableError(
            "a database that was moved was about to be opened, and the event loop that did so has ended.",
            fix="Repeat the call: it did not happen.",
        )
        try:
            await reopen()
            failed = None
        except Exception as error:  # noqa: BLE001 -- whatever it is, it belongs to those who wait.
            failed = error
        finally:
            with self._lock:
                self._flight = None
            flight.set_result(failed)


class Followed:
    """An engine whose calls are made again where its database lives now.

    For PostgreSQL, where a round trip costs a thousand times more than this: a lane looks after it itself.
    """

    def __init__(self, engine: DatabaseEngine) -> None:
        self.follow: Follow | None = None
        self.inside: object = engine
        self._inner = engine

    @property
    def name(self) -> EngineName:
        """Which one it is."""
        return self._inner.name

    @property
    def url(self) -> str:
        """The address, without its secrets."""
        return self._inner.url

    @property
    def settings(self) -> LaneSettings:
        """The settings that it was opened with."""
        return self._inner.settings

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self._inner.clock

    async def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> int:
        """Run one statement as one durable transaction."""
        try:
            return await self._inner.execute(sql, args, key)
        except UnavailableError as error:
            return await (await self._after(error)).execute(sql, args, key)

    async def query(self, sql: str, args: tuple[object, ...], key: str | None) -> list[Row]:
        """Run one statement; its rows."""
        try:
            return await self._inner.query(sql, args, key)
        except UnavailableError as error:
            return await (await self._after(error)).query(sql, args, key)

    async def transact(self, function: Callable[..., object], args: tuple[object, ...], key: str | None) -> object:
        """Run a function as one serialized durable transaction."""
        try:
            return await self._inner.transact(function, args, key)
        except UnavailableError as error:
            return await (await self._after(error)).transact(function, args, key)

    async def contention(self) -> list[HotRow]:
        """The rows that writers wait for each other on, worst first."""
        return await self._inner.contention()

    def stats(self) -> LaneStats:
        """What it has done since it was opened."""
        return self._inner.stats()

    async def _after(self, error: UnavailableError) -> DatabaseEngine:
        if self.follow is None:
            raise error
        return await self.follow(self, error)
