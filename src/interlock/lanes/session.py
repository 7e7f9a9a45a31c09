"""The session of a transaction inside the writer: runs statements, and knows the time.

One session per lane; it is lent to one transaction after the other and means nothing outside of them. It keeps the two
clocks apart: statements are timed by the monotonic clock, and `now()` is the lane's own time, which is logged with the
group and therefore never goes back, whatever the wall clock does (G8).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import functools
from collections.abc import Callable
from typing import TypeVar

import apsw

from interlock.lanes.connection import Wall
from interlock.lanes.lanetime import LaneTime
from interlock.seams import Clock

ResultT = TypeVar("ResultT")
SqliteValue = None | int | float | str | bytes

STEPS_BETWEEN_LOOKS = 20_000
"""SQLite's virtual machine steps between two looks at the clock: about a millisecond."""


class Session:
    """The statements and the time of the running transaction."""

    def __init__(
        self, connection: apsw.Connection, *, clock: Clock, time: LaneTime, statement_timeout_s: float
    ) -> None:
        self.connection = connection
        self._run = connection.cursor().execute
        self._clock = clock
        self._timeout_s = statement_timeout_s
        self._deadline_s = float("inf")
        self._time = time
        self.time_us = 0
        self.time_asked = False
        self._time_stands = False
        self.undone = 0
        """How often anything was rolled back: a memory of the database's state is stale after a change."""
        self.defined = False
        """Whether the running transaction has changed the schema."""
        self.wall: Wall | None = None
        """The authorizer, which `own` lets down."""
        connection.set_progress_handler(self._overdue, STEPS_BETWEEN_LOOKS)

    def execute(self, sql: str, values: tuple[SqliteValue, ...] = ()) -> int:
        """Run one statement; returns the rows it changed."""
        self._deadline_s = self._clock.monotonic_s() + self._timeout_s
        for _ in self._run(sql, values):
            # To its end: a statement that is still running when its savepoint ends would take the group with it.
            pass
        return self.connection.changes()

    def query(self, sql: str, values: tuple[SqliteValue, ...] = ()) -> list[tuple[SqliteValue, ...]]:
        """Run one statement; returns its rows."""
        self._deadline_s = self._clock.monotonic_s() + self._timeout_s
        return self._run(sql, values).fetchall()

    def lend(self, read: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Lend the connection to a read, for no longer than one statement may run."""
        self._deadline_s = self._clock.monotonic_s() + self._timeout_s
        return read(self.connection)

    def own(self, use: Callable[[Callable[..., apsw.Cursor]], ResultT]) -> ResultT:
        """Run Interlock's own statements, which users may not run, on its own tables. They are not timed.

        Nor are they cached: a cached statement is not asked for its rights again.
        """
        self.unlimited()
        with contextlib.nullcontext() if self.wall is None else self.wall.down():
            return use(functools.partial(self._run, can_cache=False))

    def now_us(self) -> int:
        """Return the transaction's time: microseconds since the epoch, the same all through, never going back (G8).

        The wall clock is looked at when a transaction asks for the first time: most never do.
        """
        if not self._time_stands:
            self._time_stands = self.time_asked = True
            self.time_us = self._time.now_us()
        return self.time_us

    def begin_transaction(self) -> None:
        """Begin the next transaction, with a time of its own."""
        self._time_stands = self.defined = False

    def unlimited(self) -> None:
        """Lift the time limit: only our own statements run now."""
        self._deadline_s = float("inf")

    def _overdue(self) -> bool:
        return self._clock.monotonic_s() > self._deadline_s
