"""The hand-over of a lane to another place: tombstone and seal at the source, draft at the target, notes of changes.

The tombstone decides. Before its commit nothing has moved and the target is a draft, which no other process can open.
After it everything has: no process reads or writes the source any more, and the draft is the truth.

The owner serves while the mover copies. Triggers note the keys of the rows that it writes; for the last of them the
mover seals the lane with SQLite's write lock, at which the owner's writer waits. The lock vanishes with the mover.

The odd choice is that the mover never notifies the owner: the owner finds the tombstone inside its next transaction. It
must do so anyway when the mover or the owner dies.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, cast

import apsw

from interlock.clock import Clock
from interlock.errors import MovedElsewhere, OutcomeUnknown, UnavailableError
from interlock.faultpoints import reach
from interlock.lanes import forks
from interlock.lanes.sqlite_connection import WATCH_PREFIX, Prepare, no_lane_error, open_beside, opening, with_room
from interlock.urls import redact_url

# --- Tombstone -------------------------------------------------------------------------------------------------------
# It names the place where everything that was in the file lives now: one row in a table of its own, written by the last
# transaction that the file ever has. Because it makes a table, SQLite's schema version moves with it. So every user of
# the file compares that number inside its own transaction, for about half a microsecond, and looks for the table only
# when the number has moved: inside a transaction nothing can come between the look and the commit.

_TOMBSTONE_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_moved'"
_TOMBSTONE_FIND = "SELECT url, epoch, time_us FROM interlock_moved"
_TOMBSTONE_MAKE = """
CREATE TABLE interlock_moved (
    id INTEGER PRIMARY KEY CHECK (id = 1), url TEXT NOT NULL, epoch INTEGER NOT NULL, time_us INTEGER NOT NULL
)
"""
_TOMBSTONE_WRITE = "INSERT INTO interlock_moved (id, url, epoch, time_us) VALUES (1, ?1, ?2, ?3)"

Run = Callable[..., apsw.Cursor]
"""Runs one of our own statements on a connection."""


class Tombstone(NamedTuple):
    """The tombstone at a place that was left."""

    url: str
    """The new place."""
    epoch: int
    """The number of the move that left."""
    time_us: int
    """When that was, by the clock of the mover; for people."""


def tombstone_of(connection: apsw.Connection) -> Tombstone | None:
    """Return the tombstone in the file of this connection; None when everything still lives there."""
    with one_snapshot(connection):
        return find_tombstone(connection.cursor().execute)


@contextlib.contextmanager
def one_snapshot(connection: apsw.Connection) -> Generator[None]:
    """Let all reads of the block see one state of the file, whether or not a transaction is open.

    A mark is a table: between the look at the schema and the read of it, an arrival could commit and drop it.
    """
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def write_tombstone(run: Run, stone: Tombstone) -> None:
    """Write the tombstone inside the caller's transaction, whose commit decides."""
    run(_TOMBSTONE_MAKE)
    run(_TOMBSTONE_WRITE, stone)


def moved_error(stone: Tombstone) -> MovedElsewhere:
    """Return the error for a process that comes to the old place."""
    return MovedElsewhere(
        f"it lives at {redact_url(stone.url)} since move {stone.epoch}; this did not happen.",
        url=stone.url,
        epoch=stone.epoch,
    )


def find_tombstone(run: Run) -> Tombstone | None:
    """Return the tombstone, looked up inside the caller's transaction."""
    if run(_TOMBSTONE_EXISTS).get is None:
        return None
    for url, epoch, time_us in run(_TOMBSTONE_FIND):
        return Tombstone(str(url), int(str(epoch)), int(str(time_us)))
    return None


# --- Draft -----------------------------------------------------------------------------------------------------------
# The transaction that makes the lane also makes the mark, so no other process can take a draft for a database. The
# mover opens its draft with a permission of its own, and removes the mark once the source has its tombstone. If the
# mover died first, the next process that has read the tombstone removes it.

_ARRIVING_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_arriving'"
_ARRIVING_FIND = "SELECT epoch, source FROM interlock_arriving"
_ARRIVING_MAKE = """
CREATE TABLE interlock_arriving (
    id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, source TEXT NOT NULL
)
"""
_ARRIVING_WRITE = "INSERT INTO interlock_arriving (id, epoch, source) VALUES (1, ?1, ?2)"
_ARRIVING_REMOVE = "DROP TABLE IF EXISTS interlock_arriving"
_TOMBSTONE_REMOVE = "DROP TABLE IF EXISTS interlock_moved"
_ARRIVED_MAKE = "CREATE TABLE IF NOT EXISTS interlock_arrived (epoch INTEGER PRIMARY KEY)"
_ARRIVED_WRITE = "INSERT OR IGNORE INTO interlock_arrived VALUES (?1)"
_FILE_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)"


class Draft(NamedTuple):
    """A mover's permission, and the content of the mark: the move of this epoch fills the lane from `source`."""

    epoch: int
    source: str


class Arrived(NamedTuple):
    """The permission of a process that has read a move's tombstone: with that epoch the draft is the truth."""

    epoch: int


Permission = Draft | Arrived | None
"""None is the permission of every other process: a draft is refused."""


def draft_of(connection: apsw.Connection) -> Draft | None:
    """Return the draft mark in the file of this connection; None when the file is not a draft."""
    run = connection.cursor().execute
    with one_snapshot(connection):
        if run(_ARRIVING_EXISTS).get is None:
            return None
        for epoch, source in run(_ARRIVING_FIND):
            return Draft(int(str(epoch)), str(source))
    return None


def left_for(connection: apsw.Connection, permission: Permission) -> Tombstone | None:
    """Return the tombstone that redirects a process opening this file, or None.

    A draft at a place that was left before keeps that tombstone until it arrives. A process that the end of the move
    sent here ignores it, and so does the mover of a later move, whose draft replaces what was left.
    """
    with one_snapshot(connection):
        mark, stone = draft_of(connection), tombstone_of(connection)
        if mark is not None and isinstance(permission, Arrived) and permission.epoch == mark.epoch:
            return None
        if stone is not None and isinstance(permission, Draft) and stone.epoch < permission.epoch:
            return None
        return stone


def admit(connection: apsw.Connection, permission: Permission, what: object) -> None:
    """Check the permission to open this file, and make or remove its mark.

    Call it inside a write transaction if the permission changes the mark. Raises UnavailableError for another's draft.
    """
    run, mark = connection.cursor().execute, draft_of(connection)
    if isinstance(permission, Draft):
        stone = find_tombstone(run)
        if mark is None and (run(_FILE_EMPTY).get or (stone is not None and stone.epoch < permission.epoch)):
            run(_TOMBSTONE_REMOVE)
            _write_mark(run, permission)
        elif mark is None:
            raise _not_empty(what, permission)
        elif mark != permission:
            raise _not_arrived(what, mark)
    elif mark is not None:
        if permission is None or permission.epoch != mark.epoch:
            raise _not_arrived(what, mark)
        run(_ARRIVING_REMOVE)
        run(_TOMBSTONE_REMOVE)
        run(_ARRIVED_MAKE)  # So the next move gets a higher epoch, even if this mover has died.
        run(_ARRIVED_WRITE, (mark.epoch,))


def mark_again(connection: apsw.Connection, draft: Draft) -> None:
    """Mark this empty draft as filled by another move. Runs inside a transaction of the mover."""
    run = connection.cursor().execute
    run(_ARRIVING_REMOVE)
    _write_mark(run, draft)


def _write_mark(run: Run, draft: Draft) -> None:
    run(_ARRIVING_MAKE)
    run(_ARRIVING_WRITE, draft)


def _not_arrived(what: object, mark: Draft) -> UnavailableError:
    return UnavailableError(
        f"{what} is arriving: move {mark.epoch} from {redact_url(mark.source)} is filling it.",
        why="Until the move is over everything lives at the place that it comes from; what is here is a draft.",
        fix="Open it by its name at the home, or at the address it comes from. If the mover has died, run the same "
        "`interlock route` again: it goes on.",
    )


def _not_empty(what: object, draft: Draft) -> UnavailableError:
    return UnavailableError(
        f"{what} is a database already; move {draft.epoch} from {redact_url(draft.source)} cannot fill it.",
        why="A move makes its target itself, so that nothing that is there is ever mixed with what comes.",
        fix="Name another address, or put the database that is there aside.",
    )


# --- Wait at a seal --------------------------------------------------------------------------------------------------
# SQLite's busy timeout would look at the lock again after up to a tenth of a second, which is as long as a whole seal.
# Here the looks are a millisecond apart, so that writers go on immediately. The wait is bounded: past it the group is
# refused, nothing of it happened, and the lane lives on.

SEAL_LOOK_S = 0.001
"""Between two looks at the lock."""


class SealWait:
    """The busy handler of one connection."""

    def __init__(self, wait_s: float, *, look_s: float = SEAL_LOOK_S, point: str | None = None) -> None:
        self._looks_max = max(1, int(wait_s / look_s))
        self._look_s = look_s
        self._point = point
        self._pause = threading.Event()
        self.patient = True
        """Whether it waits at all."""

    def __call__(self, looks: int) -> bool:
        """Wait as SQLite's busy handler: called with the number of previous attempts; return False to stop waiting."""
        if not self.patient:
            return False
        if looks == 0 and self._point is not None:
            reach(self._point)
        if looks >= self._looks_max:
            return False
        self._pause.wait(self._look_s)
        return True


def sealed_too_long(wait_s: float) -> UnavailableError:
    """Return the error for a group that has waited at a seal for too long."""
    return UnavailableError(
        f"the lane was locked by another process for {wait_s:g} s (seal_wait_s); this did not happen.",
        why="A mover seals a lane while it hands over the last of it, or something that is not Interlock writes there.",
        fix="Repeat the transaction. If it stays so, find out what else has the file open.",
    )


# --- Change notes ----------------------------------------------------------------------------------------------------
# Triggers at the source record the key of every row that is written. They run inside the owner's own transactions, so a
# note exists exactly when the write does. A note names the row, not the change: the mover reads the current state of
# the row, so the order does not matter and a note may be read twice. A row that is written again gets a new number and
# loses its old note: there are never more notes than rows.
#
# The odd choice is a DELETE before each INSERT instead of OR REPLACE: the conflict clause of the statement that
# fires a trigger overrides those inside it, and under OR IGNORE a row would not be noted again.

Note = tuple[int, str, tuple[object, ...]]
"""The number of a note, the table, and the key of the row."""

_NOTES_MAKE = """
CREATE TABLE IF NOT EXISTS interlock_touched (
    number INTEGER PRIMARY KEY AUTOINCREMENT, "table" TEXT NOT NULL, key TEXT NOT NULL, UNIQUE ("table", key)
)
"""
_NOTES_EXISTS = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'interlock_touched'"
_TRIGGERS = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'interlock_watch_*'"
_NOTES_AFTER = 'SELECT number, "table", key FROM interlock_touched WHERE number > ?1 ORDER BY number LIMIT ?2'
_NOTES_FORGET = """
DELETE FROM interlock_touched
WHERE number IN (SELECT number FROM interlock_touched WHERE number <= ?1 ORDER BY number LIMIT ?2)
"""
_TRIGGER = """
CREATE TRIGGER {name} AFTER {event} ON {table} {condition} BEGIN
    DELETE FROM interlock_touched WHERE "table" = {literal} AND key = {key};
    INSERT INTO interlock_touched ("table", key) VALUES ({literal}, {key});
END
"""
_TRIGGER_EVENTS: tuple[tuple[str, str, Literal["old", "new"]], ...] = (
    ("insert", "INSERT", "new"),
    ("update", "UPDATE", "new"),
    ("rekey", "UPDATE", "old"),
    ("delete", "DELETE", "old"),
)


def watch(connection: apsw.Connection, tables: Mapping[str, Sequence[str]]) -> None:
    """Note every write to these tables, each with the columns of its key; stop watching all other tables.

    A table without a key is noted as a whole, by an empty key.

    Runs inside the caller's transaction. A second call changes nothing, so no statement has to be prepared again.
    """
    wanted = dict(each for table, key in tables.items() for each in _triggers_of(table, key))
    there = {str(name): str(sql) for name, sql in connection.execute(_TRIGGERS)}
    connection.execute(_NOTES_MAKE)
    for name, sql in there.items():
        if sql != wanted.get(name):
            connection.execute(f"DROP TRIGGER {_quoted(name)}")
    for name, sql in wanted.items():
        if there.get(name) != sql:
            connection.execute(sql)


def is_watching(connection: apsw.Connection, tables: Mapping[str, Sequence[str]]) -> bool:
    """Return whether exactly these tables are watched: then `watch` would change nothing."""
    wanted = dict(each for table, key in tables.items() for each in _triggers_of(table, key))
    return is_watched(connection) and {str(name): str(sql) for name, sql in connection.execute(_TRIGGERS)} == wanted


def notes_after(connection: apsw.Connection, after: int, limit: int) -> list[Note]:
    """Return the notes above number `after`, in order: (number, table, key). A row has one, of its last write."""
    if not is_watched(connection):
        return []
    rows = connection.execute(_NOTES_AFTER, (after, limit)).fetchall()
    return [(int(str(number)), str(table), _decode_key(str(key))) for number, table, key in rows]


def unwatch(connection: apsw.Connection) -> None:
    """Stop noting, and delete all notes. Runs inside the caller's transaction."""
    for name, _ in connection.execute(_TRIGGERS).fetchall():
        connection.execute(f"DROP TRIGGER {_quoted(str(name))}")
    connection.execute("DROP TABLE IF EXISTS interlock_touched")


def is_watched(connection: apsw.Connection) -> bool:
    """Whether writes are noted in this file."""
    return connection.execute(_NOTES_EXISTS).get is not None


def _triggers_of(table: str, key: Sequence[str]) -> Iterator[tuple[str, str]]:
    changed = " OR ".join(f"old.{_quoted(column)} COLLATE BINARY IS NOT new.{_quoted(column)}" for column in key)
    for what, event, row in _TRIGGER_EVENTS:
        if what == "rekey" and not key:
            continue
        name = f"{WATCH_PREFIX}{what}_{table}"
        yield (
            name,
            _TRIGGER.strip().format(
                name=_quoted(name),
                event=event,
                table=_quoted(table),
                condition=f"WHEN {changed}" if what == "rekey" else "",
                literal=_literal(table),
                key=_key_sql(row, key),
            ),
        )


def _key_sql(row: Literal["old", "new"], key: Sequence[str]) -> str:
    """SQL that makes the key of a row: a JSON array, in which bytes and numbers with a fraction are written out.

    JSON has no bytes, and SQLite's own writes 15 digits of a number where 17 may be needed to find the row again.
    """
    if not key:
        return "'[]'"
    return "'[' || " + " || ',' || ".join(_value_sql(f"{row}.{_quoted(column)}") for column in key) + " || ']'"


def _value_sql(value: str) -> str:
    return (
        f"CASE typeof({value}) WHEN 'blob' THEN '{{\"$hex\":\"' || hex({value}) || '\"}}' "
        f"WHEN 'real' THEN '{{\"$real\":\"' || quote({value}) || '\"}}' ELSE json_quote({value}) END"
    )


def _decode_key(text: str) -> tuple[object, ...]:
    return tuple(_decode_value(each) for each in cast("list[object]", json.loads(text)))


def _decode_value(value: object) -> object:
    if not isinstance(value, dict):
        return value
    [(kind, written)] = cast("dict[str, str]", value).items()
    return bytes.fromhex(written) if kind == "$hex" else float(written)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# --- Mover's connection ----------------------------------------------------------------------------------------------

WRITE_WAIT_S = 10.0
"""How long a short write of the mover waits for the owner's groups."""

LOOK_S = 0.0002
"""Between two looks at the owner's lock: a busy owner lets go of it for a tenth of a millisecond at a time."""

FORGOTTEN_AT_ONCE = 5_000

ResultT = TypeVar("ResultT")


class Seal:
    """The write lock of a lane, held by a mover."""

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self.connection = connection
        """Reads the last state there is, inside the transaction that holds the lock."""
        self.left: Tombstone | None = None
        self._clock = clock

    def leave(self, url: str, epoch: int) -> Tombstone:
        """Write the tombstone and commit, durably: from here on everything has moved.

        Raises OutcomeUnknown when the commit fails; opening the file again shows whether it has happened.
        """
        stone = Tombstone(url, epoch, int(self._clock.wall_s() * 1_000_000))
        unwatch(self.connection)
        write_tombstone(self.connection.execute, stone)
        try:
            self.connection.execute("COMMIT")
        except apsw.Error as error:
            raise OutcomeUnknown(
                f"the commit that ends move {epoch} failed: {error}.",
                why="After a failed write or fsync it cannot be known what reached the disk (G9).",
                fix="Run the same `interlock route` again: it looks, and goes on from what it finds.",
            ) from error
        self.left = stone
        return stone


class Leaving:
    """A mover's connection to the file of a local lane, beside its owner in any process, or without an owner.

    For one thread at a time; close it.
    """

    def __init__(self, path: Path, *, clock: Clock, prepare: Prepare) -> None:
        self.path = path
        self._clock = clock
        forks.refuse_inherited(path)
        if not path.exists():
            raise no_lane_error(path)
        with opening(path):
            self.connection = with_room(lambda: open_beside(path))
            try:
                prepare(self.connection, self._now_us)
            except BaseException:
                self.connection.close()
                raise
        self._closed = False
        forks.watch(self)

    def tombstone(self) -> Tombstone | None:
        """Return the tombstone, if a move has left."""
        return tombstone_of(self.connection)

    def write(self, function: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Run a short function in a transaction of its own, between two groups of the owner."""
        with self._immediate(WRITE_WAIT_S):
            result = function(self.connection)
            self.connection.execute("COMMIT")
            return result

    def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Note every write to these tables from now on, each with the columns of its key. Repeating it is harmless.

        Raises MovedElsewhere when nothing lives here any more.
        """

        def begin(connection: apsw.Connection) -> None:
            self._refuse_if_moved()
            watch(connection, tables)

        self.write(begin)

    def touched(self, after: int, limit: int) -> list[Note]:
        """Return the notes above number `after`, in order (see `notes_after`)."""
        return notes_after(self.connection, after, limit)

    def forget(self, upto: int) -> None:
        """Delete the notes up to this number."""

        def forget_some(connection: apsw.Connection) -> int:
            if not is_watched(connection):
                return 0
            connection.execute(_NOTES_FORGET, (upto, FORGOTTEN_AT_ONCE))
            return connection.changes()

        while self.write(forget_some) == FORGOTTEN_AT_ONCE:
            pass

    def unwatch(self) -> None:
        """Stop noting writes: the move is given up."""
        self.write(unwatch)

    @contextlib.contextmanager
    def sealed(self, wait_s: float) -> Generator[Seal]:
        """Hold the lane's write lock, so that its writer waits. Without `leave` nothing has happened when it ends.

        Raises UnavailableError if the lock was not acquired within `wait_s`, MovedElsewhere if the lane has left.
        """
        with self._immediate(wait_s):
            self._refuse_if_moved()
            yield Seal(self.connection, self._clock)

    def close(self) -> None:
        """Close the connection. SQLite folds its log only if no other connection has the file open."""
        self._closed = True
        self.connection.close()

    def forked(self) -> None:
        """Disable the connection in the child of a fork: it and SQLite's locks on the file are the parent's."""
        forks.leak(self.connection)
        if not self._closed:
            forks.inherit(self.path)

    @contextlib.contextmanager
    def _immediate(self, wait_s: float) -> Generator[None]:
        self.connection.set_busy_handler(SealWait(wait_s, look_s=LOOK_S))
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise UnavailableError(
                f"lane {self.path} could not be locked for {wait_s:g} s.",
                why="Its owner writes all the time, or something else holds the lock.",
                fix="Try again; if it stays so, wait longer, or move it at a quieter time.",
            ) from error
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _refuse_if_moved(self) -> None:
        stone = self.tombstone()
        if stone is not None:
            raise moved_error(stone)

    def _now_us(self) -> int:
        return int(self._clock.wall_s() * 1_000_000)
