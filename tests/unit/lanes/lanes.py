"""Small lanes for tests: a counter table, works that count, a clock that can be set."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.clock import Clock, SystemClock
from interlock.lanes.handover import Permission
from interlock.lanes.lane import HandedOff, HandOff, Lane, OpenLog
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import Prepare
from interlock.lanes.writer import Session, Work

COUNTER = "CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0))"


class SetClock:
    """A clock that says what it is told."""

    def __init__(self, wall_s: float = 1_000.0) -> None:
        self.now_wall_s = wall_s
        self.now_monotonic_s = 0.0

    def wall_s(self) -> float:
        return self.now_wall_s

    def monotonic_s(self) -> float:
        return self.now_monotonic_s


@contextmanager
def opened(
    path: Path | None,
    *,
    clock: Clock | None = None,
    hand_off: HandOff | None = None,
    open_log: OpenLog | None = None,
    vfs: str | None = None,
    prepare: Prepare = lambda _connection, _now: None,
    permission: Permission = None,
    **knobs: float,
) -> Iterator[Lane]:
    """A lane with an empty counter table (made if it is not there)."""
    lane = Lane(
        path,
        settings=LaneSettings(**knobs),  # type: ignore[arg-type]  # LaneSettings checks them itself.
        clock=clock or SystemClock(),
        prepare=prepare,
        open_log=open_log if hand_off is None else lambda _path: HandedOff(hand_off),
        vfs=vfs,
        permission=permission,
    )
    try:
        yield lane
    finally:
        lane.close()


def sql(text: str, *values: str | bytes | float | None, key: str | None = None, digest: bytes = b"") -> Work:
    """One statement as a work."""
    return Work(lambda session: session.execute(text, values), key=key, digest=digest)


def rows(text: str, *values: str | bytes | float | None) -> Work:
    """One query as a work."""
    return Work(lambda session: session.query(text, values))


def increment(row: int = 1) -> Work:
    """Count one up in one statement."""
    return sql("UPDATE counter SET n = n + 1 WHERE id = ?1", row)


def read_then_write(row: int = 1) -> Work:
    """Count one up the naive way: read, add, write."""

    def function(session: Session) -> object:
        [(n,)] = session.query("SELECT n FROM counter WHERE id = ?1", (row,))
        assert isinstance(n, int)
        return session.execute("UPDATE counter SET n = ?1 WHERE id = ?2", (n + 1, row))

    return Work(function)


async def make_counter(lane: Lane) -> None:
    """The table with one row at zero."""
    await lane.run(sql(COUNTER))
    await lane.run(sql("INSERT INTO counter VALUES (1, 0)"))


async def count(lane: Lane, row: int = 1) -> int:
    """The counter's value."""
    found = await lane.run(rows("SELECT n FROM counter WHERE id = ?1", row))
    assert isinstance(found, list)
    [(n,)] = found
    assert isinstance(n, int)
    return n


async def group(lane: Lane, *works: Work) -> list[object]:
    """Run works in one group; each answers with its value or its exception."""
    return await asyncio.gather(*(lane.run(work) for work in works), return_exceptions=True)


async def rested(lane: Lane) -> None:
    """Wait until the driver has gone."""

    def wait() -> None:
        with lane._arrived:
            lane._arrived.wait_for(lambda: not lane._driving)

    await asyncio.to_thread(wait)


async def at_rest(lane: Lane) -> None:
    """Wait until the driver waits for work, which it says without notifying anybody, or has gone."""

    def wait() -> None:
        pause = threading.Event()
        while lane._driving and not lane._resting:
            pause.wait(0.001)

    await asyncio.to_thread(wait)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run an async scenario to its end."""

    async def main() -> None:
        await scenario()

    asyncio.run(main())
