"""The writer: runs a group of transactions inside one SQLite transaction, each in a savepoint, and commits it.

A plain object, stepped by a driver: `execute(group)`, then `commit()`. A thread steps it in production, the simulator
in tests; nothing here waits for anything but the disk.

A savepoint alone does not isolate. Some errors make SQLite roll the whole transaction back (an interrupt, a full disk,
ON CONFLICT ROLLBACK): the group *vanishes*, and is run again without the culprit. The works after a culprit are tried
first, so that one pass finds all culprits. A work's effects are in the log only if its savepoint was released and the
commit returned; nothing is acknowledged before (D2).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

import apsw

from interlock.clock import Clock, Ids
from interlock.errors import ConstraintViolation, OutcomeUnknown, TransactionError, UnavailableError
from interlock.faultpoints import SEAL_POINT
from interlock.lanes import transact
from interlock.lanes.handover import Run, SealWait, find_tombstone, moved_error, sealed_too_long
from interlock.lanes.hot_rows import Contention, RowKey, TouchedRows
from interlock.lanes.idempotency_keys import SCHEMA as KEYS_SCHEMA
from interlock.lanes.idempotency_keys import Keys, MakeRow
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import GroupMemory, Prepare, Wall, translate_error

# --- Transaction -----------------------------------------------------------------------------------------------------
# A work may run more than once (a group that vanished is run again), and ends in exactly one of three ways: its value,
# its error, or cancelled before it was taken. G9: an error of class OutcomeUnknown is the only one after which the
# transaction may have happened.
#
# G8: a lane's own time never goes back, whatever the wall clock does. The writer logs it with the groups that asked for
# it. Reads cannot log, but `LaneTime` remembers the times they returned. So while the lane is open, no reader and no
# writer gets an earlier time than any before. Statements are timed by the monotonic clock.

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
        self.ends_s = float("inf")
        """When an interactive transaction ends, by the monotonic clock: its last statement is interrupted then."""
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
        self.memory: GroupMemory | None = None
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

    def lend(self, read: Callable[[apsw.Connection], ResultT], limit_s: float | None = None) -> ResultT:
        """Lend the connection to a read, for no longer than the limit; without one, than one statement may run."""
        self._deadline_s = self._clock.monotonic_s() + (self._timeout_s if limit_s is None else limit_s)
        return read(self.connection)

    def own(self, use: Callable[[Callable[..., apsw.Cursor]], ResultT]) -> ResultT:
        """Run Interlock's own statements, which users may not run, on its own tables. They are not timed.

        Nor are they cached: a cached statement is not asked for its rights again.
        """
        self.unlimited()
        with contextlib.nullcontext() if self.wall is None else self.wall.down():
            return use(partial(self._run, can_cache=False))

    def inspect(self, look: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a function of Interlock that reads the catalog and its own tables."""
        self.unlimited()
        with contextlib.nullcontext() if self.wall is None else self.wall.down():
            return look(self.connection)

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
        self.ends_s = float("inf")

    def unlimited(self) -> None:
        """Lift the time limit: only our own statements run now."""
        self._deadline_s = float("inf")

    def _overdue(self) -> bool:
        return self._clock.monotonic_s() > min(self._deadline_s, self.ends_s)


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

    def result(self) -> object:
        """Return its value, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value

    def cancelled(self) -> bool:
        """Whether its caller has cancelled it. Cancelling a task cancels the future it awaits immediately."""
        return self.future is not None and self.future.cancelled()


def settle(future: asyncio.Future[ResultT], value: ResultT, error: Exception | None) -> None:
    """Complete a waiter's future, or fail it, unless it is done. Runs in the waiter's event loop."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


class Lookout:
    """Detects a tombstone. Belongs to one connection."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._version_seen: object = None

    def look(self) -> None:
        """Raise MovedElsewhere when there is a tombstone. Called inside a transaction, with the wall down."""
        version = self._run("PRAGMA schema_version").get
        if version != self._version_seen:
            stone = find_tombstone(self._run)
            if stone is not None:
                raise moved_error(stone)
            self._version_seen = version


# --- Sampling --------------------------------------------------------------------------------------------------------
# To measure the rows of every group would cost too much. The first group is always chosen, and after it one of every
# block, each as likely as the other. A chosen one counts for its block, so in the mean everything counts once. A fixed
# place in each block would not do: work comes in rhythms, and a rhythm that fits the block would always show the same
# part of itself, or nothing.
#
# The choice is a fixed pseudo-random sequence, the same in every run: nothing here needs chance.

_FACTOR, _STEP, _BITS = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, 64
"""Knuth's linear congruential generator. Its high bits are good ones, its low bits are not."""


class Turns:
    """A sampler that chooses one of every `block` groups."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._number = 0
        self._left = 0
        self._chosen = 0
        self._weight = 0.0
        self._first = True

    def weight(self) -> float:
        """Return for how many the next one counts; 0.0 when it is not chosen."""
        if self._left == 0:
            first, self._first = self._first, False
            self._begin(self._block - first)
            if first:
                return 1.0  # It stands for itself, and one of the rest of its block for that rest.
        self._left -= 1
        return self._weight if self._left == self._chosen else 0.0

    def _begin(self, size: int) -> None:
        self._number = (self._number * _FACTOR + _STEP) % (1 << _BITS)
        self._left, self._weight = size, float(size)
        self._chosen = self._number * size >> _BITS


# --- Writer ----------------------------------------------------------------------------------------------------------

LARGE_GROUP = 8
LARGE_GROUPS_PER_LOOK = 16
"""The contention signal costs about three microseconds a transaction: a third of all that a transaction costs in a
large group. So one of sixteen large groups is looked at."""

PASSES_MAX = 8
"""How often a group is run because works of it ended it. Two passes suffice unless works end the group only after
others ran before them; then this bounds their cost (G6)."""

PAGE_BYTES = 4_096

LOG_TIME = "UPDATE interlock_lane SET time_us = ?1 WHERE id = 1"

LANE_SCHEMA = """
CREATE TABLE IF NOT EXISTS interlock_lane (id INTEGER PRIMARY KEY CHECK (id = 1), time_us INTEGER NOT NULL);
INSERT OR IGNORE INTO interlock_lane (id, time_us) VALUES (1, 0);
"""
HAS_TABLES = "SELECT count(*) = 2 FROM sqlite_schema WHERE name IN ('interlock_lane', 'interlock_keys')"


class Writer:
    """Executes groups on one connection. A lane has one driver at a time, so this is never run by two threads."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        settings: LaneSettings,
        clock: Clock,
        time: LaneTime,
        ids: Ids,
        prepare: Prepare,
        contention: Contention | None,
        make_row: MakeRow = lambda _names, values: values,
    ) -> None:
        self.connection = connection
        self._clock = clock
        self._contention = contention
        self._rows = TouchedRows(connection)
        self._own = connection.cursor().execute
        # Our control statements share SQLite's statement cache with the user's, and a cached statement is not asked
        # for its rights again. The mark makes their texts ones that no other code can write.
        mark = f" -- {ids.new()}"
        self._keys = Keys(settings, mark=mark, make_row=make_row)
        self._begin, self._commit = f"BEGIN IMMEDIATE{mark}", f"COMMIT{mark}"
        self._save, self._release = f"SAVEPOINT work{mark}", f"RELEASE work{mark}"
        self._undo, self._abandon, self._log_time = f"ROLLBACK TO work{mark}", f"ROLLBACK{mark}", f"{LOG_TIME}{mark}"
        self.session = Session(connection, clock=clock, time=time, statement_timeout_s=settings.statement_timeout_s)
        self._log_frames = 0
        self.frames = 0
        """SQLite's frame count at the last commit, or 0 when that commit had nothing to write."""
        self.folds_failed = 0
        connection.set_wal_hook(self._logged)
        self._seal_wait_s = settings.seal_wait_s
        self._seal = SealWait(settings.seal_wait_s, point=SEAL_POINT)
        connection.set_busy_handler(self._seal)
        self._begun = False
        """Whether the next group has begun already."""
        self._lookout = Lookout(self._own)
        self._make_tables()
        self.session.time_us = time.at_least(int(str(self._own("SELECT time_us FROM interlock_lane").get)))
        self.session.memory = prepare(connection, self.session.now_us)
        self._wall = Wall(self._rows.forget_keys)
        connection.set_authorizer(self._wall)
        self.session.wall = self._wall
        self._careful = False
        """Whether every work of this group gets a savepoint, because one without has ended it."""
        self._weight = 0.0
        self._turns = Turns(LARGE_GROUPS_PER_LOOK)
        self._written: list[tuple[set[RowKey], float, float]] = []

    def begin_now(self) -> bool:
        """Begin the next group, unless another process has locked the lane, or the file cannot be used."""
        self._seal.patient = False
        try:
            self._control(self._begin)
        except apsw.Error:
            return False
        finally:
            self._seal.patient = True
        self._begun = True
        return True

    def execute(self, works: Sequence[Work]) -> None:
        """Run the group up to, but not including, its commit. Every work has its value or its error afterwards."""
        alive = list(works)
        self._watch(len(alive))
        self._careful = False
        for _ in range(PASSES_MAX):
            culprits = self._run_group(alive)
            if not culprits:
                self._report()
                return
            alive = [work for work in alive if work not in culprits]
        for work in alive:
            work.value, work.error = None, _ended_too_often()
        self._open_group()

    def _run_group(self, works: Sequence[Work]) -> set[Work]:
        """Run all works in one transaction; return those that ended it. If there are any, nothing has happened."""
        culprits: set[Work] = set()
        self._written.clear()
        self._open_group()
        for work in works:
            if not self._run(work):
                # The work has ended the group, which rolls back the works before it. The works after it are still run,
                # in a new group: one that ends this group, too, does so by its own error, and is a culprit as well.
                culprits.add(work)
                self._vanished()
                self._open_group()
        if culprits:
            self._control(self._abandon)
            self._vanished()
        return culprits

    def _open_group(self) -> None:
        """Begin the group, waiting at a seal. Raises MovedElsewhere when the lane was left."""
        begun, self._begun = self._begun, False
        try:
            if not begun:
                self._control(self._begin)
        except apsw.BusyError as error:
            raise sealed_too_long(self._seal_wait_s) from error
        self._wall.up = False
        try:
            self._lookout.look()
        except BaseException:
            self._control(self._abandon)
            raise
        finally:
            self._wall.up = True

    def _vanished(self) -> None:
        self._careful = True
        self.session.undone += 1
        if self.session.memory is not None:
            self.session.memory.undo(0)
        self._rows.forget_keys()  # Of tables that are gone with the group.

    def commit(self) -> None:
        """Make the group durable. Any failure here is final for the lane: it cannot know what is on the disk."""
        session = self.session
        self.frames = 0
        try:
            if session.time_asked:
                session.time_asked = False
                self._control(self._log_time, (session.time_us,))
            if session.memory is not None and session.memory.pending:
                session.unlimited()
                session.memory.write(self._own)
            self._control(self._commit)
        except apsw.Error as error:
            raise OutcomeUnknown(
                f"the commit of a group failed: {error}.",
                why="After a failed write or fsync it cannot be known what reached the disk; the lane stops (G9).",
                fix="Open the lane again and repeat the transaction with the same key: it is applied at most once.",
            ) from error

    def fold_log(self, bytes_max: int) -> bool:
        """Fold the log into the database file once it is larger than `bytes_max`; then it is written over again."""
        if self.log_bytes < bytes_max:
            return False
        try:
            frames, folded = self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            # Nothing is lost, it is all in the log: tried again after the next group.
            self.folds_failed += 1
            return False
        if folded == frames:
            self._log_frames = 0
        return True

    @property
    def log_bytes(self) -> int:
        """How large the log is; 0 when all of it has been folded."""
        return self._log_frames * PAGE_BYTES

    def close(self) -> None:
        """Close the connection; SQLite folds its log into the database file first."""
        self.connection.close()

    def _watch(self, size: int) -> None:
        """Watch the rows of every small group, and of large ones in turn: a hot row is hot in every group."""
        weight = 0.0
        if self._contention is not None:
            weight = 1.0 if size < LARGE_GROUP else self._turns.weight()
        if bool(weight) != bool(self._weight):
            self.connection.preupdate_hook(self._rows.record if weight else None)
        self._weight = weight

    def _run(self, work: Work) -> bool:
        """Run one work, in a savepoint of its own unless SQLite isolates it anyway.

        False when the whole group vanished with it.
        """
        connection, session = self.connection, self.session
        changes = connection.total_changes()
        single = work.single and not self._careful
        if not single:
            self._control(self._save)
        if self._weight:
            self._rows.clear()
        session.begin_transaction()
        mark = 0 if session.memory is None else session.memory.begin()
        work.error, work.value = None, None
        try:
            work.value = self._result(work)
        except BaseException as error:  # noqa: BLE001 -- whatever a user's function raises ends its own work only.
            work.error = translate_error(error)
        if not connection.in_transaction:
            work.error = work.error or TransactionError("the transaction ended the group it was part of.")
            return False
        if work.error is None and connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
            work.error = ConstraintViolation("a deferred foreign key is still violated at the end of the transaction.")
        if work.error is not None and session.memory is not None:
            session.memory.undo(mark)
        if single:
            if work.error is not None and not self._undone(changes):
                return False
        else:
            if work.error is not None:
                self._control(self._undo)
                session.undone += 1
            self._control(self._release)
        if self._weight and self._contention is not None and work.error is None:
            self._written.append((self._rows.take(), work.waiting_since_s, self._clock.monotonic_s()))
            if self._rows.unknown:
                session.unlimited()
                with self._wall.down():
                    self._contention.learn_key_types(self._rows.learn())
        return True

    def _report(self) -> None:
        # Only now: what vanished with a group was not written, and its second run would wait for its first.
        if self._contention is not None:
            for rows, waiting_since_s, now_s in self._written:
                self._contention.wrote(rows, waiting_since_s=waiting_since_s, now_s=now_s, weight=self._weight)
        self._written.clear()

    def _undone(self, changes: int) -> bool:
        """Return True when SQLite has undone a single failed statement by itself.

        A failure after the statement (a result that cannot be decoded, a deferred foreign key) is not undone. Then the
        group is given up, to be run again without this work.
        """
        connection, defined = self.connection, self.session.defined
        if (
            not defined
            and connection.total_changes() == changes
            and not connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]
        ):
            return True
        self._control(self._abandon)
        return False

    def _result(self, work: Work) -> object:
        if work.key is not None:
            with self._wall.down():
                known, value = self._keys.first_result(self.session.query, work.key, work.digest)
            if known:
                return value
        if work.limit_s is None:
            value = work.function(self.session, *work.arguments)
        else:
            call = partial(work.function, self.session, *work.arguments)
            value = transact.run_watched(work.limit_s, self.connection.interrupt, call)
        if work.key is not None:
            with self._wall.down():
                self._keys.remember(self.session.query, self.session.now_us(), work.key, work.digest, value)
        return value

    def _control(self, sql: str, values: tuple[int, ...] = ()) -> None:
        self.session.unlimited()  # Whatever the user's last statement was allowed.
        # The wall is asked when a statement is prepared; ours are prepared once and then come from the cache.
        self._wall.up = False
        try:
            self._own(sql, values)
        finally:
            self._wall.up = True

    def _make_tables(self) -> None:
        # Only what is not there: while a mover holds the lock a lane can be opened, but not written.
        if not self._own(HAS_TABLES).get or not self._own("SELECT count(*) FROM interlock_lane").get:
            self._own(LANE_SCHEMA + KEYS_SCHEMA)

    def _logged(self, _connection: apsw.Connection, _database: str, frames: int) -> int:
        self._log_frames = self.frames = frames
        return apsw.SQLITE_OK


def _ended_too_often() -> UnavailableError:
    return UnavailableError(
        f"the group of this transaction was ended by others {PASSES_MAX} times; it did not happen.",
        why="Statements that run too long or find the disk full take the whole group with them; it was run again "
        "without them, and others ended it again.",
        fix="Repeat the transaction. Look for statements that time out, and at the disk.",
    )
