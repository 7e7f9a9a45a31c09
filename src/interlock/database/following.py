"""Switch of an open database to its current place after a move.

The chain of tombstones decides: each place that was left names the next one, with the epoch of the move. Each hop must
have a higher epoch, so that following ends; any other chain is refused.

A call that got MovedElsewhere has not happened, so it is repeated at the new place, with the same key if it has one.
The first call that finds the move opens the new place, in its event loop; all other calls wait for it.
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
"""Maximum number of places that one opening visits. A move back removes the tombstone there, so chains stay short."""

LOOK_S: Final = 0.02
"""Interval of the check whether a mover has released the new place."""

_LOOKS: dict[EngineName, str] = {"lane": "SELECT 1", "postgres": "SELECT 1 FROM interlock_gate LIMIT 1"}
"""A statement per engine that detects a move. A move takes the gate away; a lane checks its tombstone at every read."""

ResultT = TypeVar("ResultT")
_Flight = Future[Exception | None]
"""The exception is the result: asyncio would log an exception that no task retrieves."""


class Hop(NamedTuple):
    """One place of the chain."""

    url: str
    epoch: int = 0
    """Epoch of the move that leads here; 0 if there was none."""
    sent: bool = False
    """Whether a tombstone names this place: then the move has happened, and a draft here counts as arrived."""


async def followed(
    start: Hop, opens: Callable[[Hop], Awaitable[ResultT]], moved: MovedElsewhere | None = None, *, wait_s: float = 0.0
) -> ResultT:
    """Open a place, or the place to which its tombstones lead. Raises CorruptionError for a chain that does not end.

    The mover may still own a lane at the new place for its last steps: this waits for the mover's release.
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
            why="None of the places that the moves lead to has the database.",
            fix="Open it at the last of these addresses.",
        ) from moved
    return hop


async def look_whether_left(engine: DatabaseEngine) -> None:
    """Make the smallest call that detects a move; the engine then follows the database."""
    # A user without the right to make tables has no gate, and a lane at the new place has no such table.
    with contextlib.suppress(TransactionError, DialectError):
        _ = await engine.query(_LOOKS[engine.name], (), None)


class Reopening:
    """One reopening at a time, shared by all waiting calls of any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flight: _Flight | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def once(self, reopen: Callable[[], Awaitable[None]]) -> None:
        """Begin a reopening, or wait for the running one. It continues for others when this call is cancelled."""
        with self._lock:
            flight, mine = self._flight, self._flight is None
            if flight is None:
                flight = self._flight = Future()
                _ = flight.set_running_or_notify_cancel()
        if mine:
            task = asyncio.ensure_future(self._run_reopening(flight, reopen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        failed = await asyncio.shield(asyncio.wrap_future(flight))
        if failed is not None:
            raise again(failed) if isinstance(failed, InterlockError) else failed

    async def over(self) -> None:
        """Wait until no reopening is running."""
        flight = self._flight
        if flight is not None:
            _ = await asyncio.shield(asyncio.wrap_future(flight))

    async def _run_reopening(self, flight: _Flight, reopen: Callable[[], Awaitable[None]]) -> None:
        # If this event loop ends, the calls of other loops must get an error, or they would wait forever.
        failed: Exception | None = UnavailableError(
            "a database that was moved was about to be opened, and the event loop that did so has ended.",
            fix="Repeat the call: it did not happen.",
        )
        try:
            await reopen()
            failed = None
        except Exception as error:  # noqa: BLE001 -- any error is passed to the waiting calls.
            failed = error
        finally:
            with self._lock:
                self._flight = None
            flight.set_result(failed)


class Followed:
    """An engine that repeats calls at the current place of its database.

    For PostgreSQL, where a round trip costs a thousand times more than this wrapper. A lane does it by itself.
    """

    def __init__(self, engine: DatabaseEngine) -> None:
        self.follow: Follow | None = None
        self.inside: object = engine
        self._inner = engine

    @property
    def name(self) -> EngineName:
        """Kind of the engine."""
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
        """The clock of the database."""
        return self._inner.clock

    async def execute(self, sql: str, args: tuple[object, ...], key: str | None) -> int:
        """Run one statement as one durable transaction."""
        try:
            return await self._inner.execute(sql, args, key)
        except UnavailableError as error:
            return await (await self._after(error)).execute(sql, args, key)

    async def query(self, sql: str, args: tuple[object, ...], key: str | None) -> list[Row]:
        """Run one statement; return its rows."""
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
        """Return the rows with the most contention between writers, worst first."""
        return await self._inner.contention()

    def stats(self) -> LaneStats:
        """Return the statistics since it was opened."""
        return self._inner.stats()

    async def _after(self, error: UnavailableError) -> DatabaseEngine:
        if self.follow is None:
            raise error
        return await self.follow(self, error)
