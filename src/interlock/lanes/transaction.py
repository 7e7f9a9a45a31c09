"""One transaction of a lane: its function and result (`Work`), the session that runs it, its time, and the counters.

A work may run more than once (a group that vanished is run again), and ends in exactly one of three ways: its value,
its error, or cancelled before it was taken. G9: an error of class OutcomeUnknown is the only one after which the
transaction may have happened.

G8: a lane's own time never goes back, whatever the wall clock does. The writer logs it with the groups that asked for
it. Reads cannot log, but `LaneTime` remembers the times they returned. So while the lane is open, no reader and no
writer gets an earlier time than any before. Statements are timed by the monotonic clock.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

import apsw
import msgspec

from interlock.clock import Clock
from interlock.lanes.connection import Wall

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")
SqliteValue = None | int | float | str | bytes

STEPS_BETWEEN_LOOKS = 20_000
"""SQLite's virtual machine steps between two looks at the clock: about a millisecond."""


class LaneTime:
    """The lane's own time: the latest that was returned. For any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.shown_us = 0

    def now_us(self) -> int:
        """Return the current time, in microseconds since the epoch."""
        return self.at_least(int(self._clock.wall_s() * 1_000_000))

    def at_least(self, time_us: int) -> int:
        """Raise the lane's time to at least this one; return the latest."""
        with self._lock:
            self.shown_us = max(self.shown_us, time_us)
            return self.shown_us


class Session:
    """The statements and the time of the running transaction. A lane has one session, for one transaction at a time."""

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


class Work:
    """One transaction in the lane."""

    __slots__ = (
        "arguments",
        "digest",
        "error",
        "function",
        "future",
        "key",
        "limit_s",
        "single",
        "value",
        "waiting_since_s",
    )

    def __init__(
        self,
        function: Callable[[Session, *ArgumentsT], object],
        *arguments: *ArgumentsT,
        key: str | None = None,
        digest: bytes = b"",
        limit_s: float | None = None,
        single: bool = False,
    ) -> None:
        self.function: Callable[..., object] = function
        self.arguments: tuple[object, ...] = arguments
        """The arguments of the function after the session."""
        self.key = key
        self.digest = digest
        self.single = single and key is None
        """True when the function runs one statement and nothing else: SQLite undoes a failing one by itself."""
        self.limit_s = limit_s
        """How long the function may hold the lane, when it runs code of the user."""
        self.future: asyncio.Future[object] | None = None
        self.waiting_since_s = 0.0
        self.value: object = None
        self.error: Exception | None = None

    def cancelled(self) -> bool:
        """Whether its caller has cancelled it. Cancelling a task cancels the future it awaits immediately."""
        return self.future is not None and self.future.cancelled()

    def finish(self) -> None:
        """Complete the waiter's future. Runs in the waiter's own event loop."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is None:
            future.set_result(self.value)
        else:
            future.set_exception(self.error)


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a lane since it was opened."""

    groups: int
    transactions: int
    failed: int
    waiting: int
    largest_group: int
    log_bytes: int
    folds_failed: int
    """How often the log could not be folded into the database file; it grows until that works again."""
    upkeep_failed: int = 0
    """On a bucket: how often a snapshot or a collection failed; it is tried again after a while."""


class Counts:
    """The counters of a lane's groups, counted by its driver."""

    def __init__(self) -> None:
        self.groups = self.transactions = self.failed = self.largest = 0

    def count(self, group: Sequence[Work]) -> None:
        """Count one more durable group."""
        self.groups += 1
        self.transactions += len(group)
        self.failed += sum(work.error is not None for work in group)
        self.largest = max(self.largest, len(group))
