"""SQLite connections of a lane: how they are opened, what their authorizer refuses, how their errors are translated.

The writer's log is SQLite's own write-ahead log with `synchronous=FULL`: one fsync per group, and readers see a commit
only after that fsync (G7). An authorizer refuses what would break out of a savepoint: transaction control, ATTACH,
temporary objects, pragmas, extensions, and our own tables. It is asked when a statement is prepared, so it costs
nothing per execution.

A driver's exception never reaches a user: an error of SQLite gets our three parts, with the setting that would help.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import copy
import errno
import re
import resource
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, TypeVar

import apsw

from interlock.errors import (
    BadUsage,
    ConstraintViolation,
    CorruptionError,
    DialectError,
    Fenced,
    InterlockError,
    LaneOwned,
    MovedElsewhere,
    TargetNotFound,
    TransactionError,
    UnavailableError,
)


class GroupMemory(Protocol):
    """Memory of the layer above that belongs to the groups of a writer, and is written with them."""

    @property
    def pending(self) -> bool:
        """Whether there is something to write."""
        ...

    @property
    def mark(self) -> int:
        """The present, for `undo`."""
        ...

    def begin(self) -> int:
        """Begin a transaction; return its mark."""
        ...

    def undo(self, mark: int) -> None:
        """Restore what has to follow a rollback to that mark."""
        ...

    def write(self, run: Callable[..., object]) -> None:
        """Write what is pending, before the commit."""
        ...

    def define(self, run: Callable[..., object], text: str) -> None:
        """Write what is pending before the running transaction changes the schema."""
        ...


Prepare = Callable[[apsw.Connection, Callable[[], int]], GroupMemory | None]
"""Prepares every new connection for the layer above, such as by registering its SQL functions.

The second argument returns the running transaction's time, in microseconds since the epoch.
"""

Check = Callable[[apsw.Connection], None]
"""Raises when the file that was just opened is not the one that was meant."""

OWN_PREFIX = "interlock_"
WATCH_PREFIX = "interlock_watch_"
"""The prefix of a mover's triggers, which note every write."""

NOTES = "interlock_touched"
"""The table of their notes."""

STATEMENTS_CACHED = 500
BUSY_MS_MAX = 5_000

_REFUSED = {
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_PRAGMA,
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
    apsw.SQLITE_DROP_TEMP_INDEX,
    apsw.SQLITE_DROP_TEMP_TABLE,
    apsw.SQLITE_DROP_TEMP_TRIGGER,
    apsw.SQLITE_DROP_TEMP_VIEW,
    apsw.SQLITE_CREATE_VTABLE,
    apsw.SQLITE_DROP_VTABLE,
    apsw.SQLITE_ANALYZE,
}
_ON_A_TABLE = {
    apsw.SQLITE_INSERT,
    apsw.SQLITE_UPDATE,
    apsw.SQLITE_DELETE,
    apsw.SQLITE_READ,
    apsw.SQLITE_DROP_TABLE,
    apsw.SQLITE_CREATE_TABLE,
}
_BESIDE_A_TABLE = {
    apsw.SQLITE_ALTER_TABLE,
    apsw.SQLITE_CREATE_INDEX,
    apsw.SQLITE_CREATE_TRIGGER,
    apsw.SQLITE_DROP_INDEX,
    apsw.SQLITE_DROP_TRIGGER,
}
_NAMED_FIRST = (
    _ON_A_TABLE | (_BESIDE_A_TABLE - {apsw.SQLITE_ALTER_TABLE}) | {apsw.SQLITE_CREATE_VIEW, apsw.SQLITE_DROP_VIEW}
)
_CHANGES_TABLES = {apsw.SQLITE_CREATE_TABLE, apsw.SQLITE_ALTER_TABLE, apsw.SQLITE_DROP_TABLE}
_PRAGMAS_ALLOWED = {"schema_version", "table_info", "table_xinfo", "foreign_key_list", "quick_check"}
"""The pragmas that read the schema. `schema_version` could also be set, so only its plain form passes."""

_WRITES = ("foreign_keys = ON", "wal_autocheckpoint = 0", "fullfsync = ON", "recursive_triggers = ON")
"""Of every connection that writes. Recursive, because else the rows that OR REPLACE removes would not be noted."""

_FUNCTIONS_REFUSED = {"load_extension", "writefile", "readfile", "edit", "fts3_tokenizer"}


class Wall:
    """The authorizer of one connection. Our own statements pass while it is down."""

    def __init__(self, tables_change: Callable[[], None] = lambda: None) -> None:
        self.up = True
        self._tables_change = tables_change
        """Called when a statement is about to make, change or drop a table: it is prepared anew each time, because the
        schema has changed since, so this is never missed."""
        self._dropped: str | None = None

    @contextlib.contextmanager
    def down(self) -> Generator[None]:
        """Let our own statements pass."""
        self.up = False
        try:
            yield
        finally:
            self.up = True

    def __call__(
        self, action: int, first: str | None, second: str | None, _database: str | None, by: str | None
    ) -> int:
        """Decide whether a statement may do this, as SQLite's authorizer callback."""
        if not self.up:
            return apsw.SQLITE_OK
        if action in _CHANGES_TABLES:
            self._tables_change()
        if action == apsw.SQLITE_PRAGMA and first in _PRAGMAS_ALLOWED and (second is None or first != "schema_version"):
            return apsw.SQLITE_OK
        if action in _REFUSED:
            return apsw.SQLITE_DENY
        if (action in _NAMED_FIRST and _ours(first)) or (action in _BESIDE_A_TABLE and _ours(second)):
            return apsw.SQLITE_OK if self._by_watch(action, first, second, by) else apsw.SQLITE_DENY
        if action == apsw.SQLITE_DROP_TABLE:
            self._dropped = first
        if action == apsw.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS_REFUSED:
            return apsw.SQLITE_DENY
        return apsw.SQLITE_OK

    def _by_watch(self, action: int, first: str | None, second: str | None, by: str | None) -> bool:
        """Whether a mover's trigger is at work, or is dropped with its table.

        Only a trigger inserts under a name; to read under one, a common table expression would be enough.
        """
        if action in {apsw.SQLITE_INSERT, apsw.SQLITE_DELETE}:
            return first == NOTES and (by or "").startswith(WATCH_PREFIX)
        if action == apsw.SQLITE_READ:
            return first == NOTES and (by or "").startswith(WATCH_PREFIX) and second in {"table", "key"}
        return action == apsw.SQLITE_DROP_TRIGGER and second == self._dropped


def _ours(name: str | None) -> bool:
    return name is not None and name.lower().startswith(OWN_PREFIX)


def open_writer(
    path: Path | None, *, vfs: str | None = None, check: Check | None = None, sync: bool = True
) -> apsw.Connection:
    """Open the single writing connection of a lane; None is a database in memory.

    With `check` the file must exist, and is not changed before the check has passed. Without `sync` it is only a cache
    of what is durable elsewhere.
    """
    with _connected(path, vfs=vfs, make=check is None) as connection:
        if check is not None:
            check(connection)
        if path is not None:
            mode = connection.execute("PRAGMA journal_mode = WAL").get
            if mode != "wal":
                raise apsw.CantOpenError(f"the file system cannot keep a write-ahead log (journal mode {mode!r})")
        synchronous = f"synchronous = {'FULL' if sync else 'OFF'}"
        for pragma in (synchronous, *_WRITES):
            connection.execute(f"PRAGMA {pragma}")
        _harden(connection)
    return connection


def open_beside(path: Path) -> apsw.Connection:
    """Open a connection of a mover, which reads and writes beside the owner. The file must exist.

    It folds the log only as the last connection of the file, when that disturbs no other.
    """
    with _connected(path, vfs=None, make=False) as connection:
        for pragma in ("synchronous = FULL", *_WRITES):
            connection.execute(f"PRAGMA {pragma}")
        _harden(connection)
    return connection


def open_reader(path: Path, *, check: Check) -> apsw.Connection:
    """Open a connection that can only read, beside the writer. The file must exist and pass the check."""
    with _connected(path, vfs=None, make=False) as connection:
        connection.execute("PRAGMA query_only = ON")
        _harden(connection)
        # SQLite opens its log only now: here it is known what to do when that fails.
        check(connection)
    return connection


@contextlib.contextmanager
def _connected(path: Path | None, *, vfs: str | None, make: bool) -> Generator[apsw.Connection]:
    """Yield a new connection, which is closed again when preparing it fails."""
    connection = apsw.Connection(
        ":memory:" if path is None else str(path),
        flags=apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if make else 0),
        statementcachesize=STATEMENTS_CACHED,
        vfs=vfs,
    )
    try:
        # No other process writes, but a reader that recovers or closes the file may hold it for a moment.
        connection.set_busy_timeout(BUSY_MS_MAX)
        yield connection
    except BaseException:
        connection.close()
        raise


def _harden(connection: apsw.Connection) -> None:
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    # A double-quoted name that does not exist must be an error, never a text.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


# --- Limit of open files ---------------------------------------------------------------------------------------------
# An idle lane holds one open file, its lock, and most systems let a process have 1,024 of them until it asks for more.
# A process with thousands of lanes asks here, once it has to, up to the hard limit that the system allows.

OpenedT = TypeVar("OpenedT")


def with_room(opens: Callable[[], OpenedT]) -> OpenedT:
    """Open something; when the process has too many open files already, raise its limit and try once more."""
    try:
        return opens()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        refused: Exception = error
    except apsw.CantOpenError as error:
        # SQLite does not say why it could not open one of its files.
        refused = error
    if not _raise_limit():
        raise UnavailableError(
            f"a file of the lane could not be opened: {refused}.",
            why=f"The file cannot be opened, or the process has its {_limits()[0]:,} open files already.",
            fix="Check the folder and its permissions, close databases, or raise the hard limit (ulimit -Hn).",
        ) from refused
    return opens()


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _raise_limit() -> bool:
    soft, hard = _limits()
    if soft in {hard, resource.RLIM_INFINITY}:
        return False
    # Without a hard limit the system still has one, which it does not report: so double the soft one, each time.
    most = 2 * soft if hard == resource.RLIM_INFINITY else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):
        return False
    return True


# --- Errors ----------------------------------------------------------------------------------------------------------

ErrorT = TypeVar("ErrorT", bound=InterlockError)

TYPE_CHECK_PREFIX = "interlock_type_"
"""Constraints of this name stand for a column's type; breaking one is a wrong value, not a broken rule."""

_DAMAGES = (apsw.CorruptError, apsw.NotADBError)


def translate_error(error: BaseException) -> Exception:
    """Return our error for the exception that ended a transaction; a user's own exception is returned unchanged."""
    if isinstance(error, apsw.ConstraintError):
        return _constraint(error)
    if isinstance(error, apsw.Error):
        return _from_sqlite(error)
    # A StopIteration cannot be handed to a waiting coroutine: to Python it means that one has ended.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return TransactionError(f"the transaction was ended by {type(error).__name__}.")


@contextlib.contextmanager
def opening(what: Path | str | None) -> Generator[None]:
    """Raise our error for whatever keeps a lane, or something that it needs, from being opened."""
    try:
        yield
    except InterlockError:
        raise
    except (apsw.Error, OSError, ValueError) as error:
        raise _unopened(error, what) from error


def not_executed(error: Exception) -> InterlockError:
    """Return our error for one work of a group that could not be executed; each work gets its own."""
    if isinstance(error, InterlockError):
        return copy_error(error)
    if isinstance(error, _DAMAGES):
        return _from_sqlite(error)
    return UnavailableError(
        f"the group could not be executed: {error}.",
        why="The disk or the file failed before the commit.",
        fix="Repeat the transaction; it did not happen.",
    )


def no_lane_error(path: Path) -> TargetNotFound:
    """Return the error for a path without a lane."""
    return TargetNotFound(
        f"there is no lane at {path}.",
        why="A lane lanes:///folder/name is kept in the file /folder/name.lane.",
        fix="Check the address; a lane exists once it has been opened for the first time.",
    )


def overdue_read() -> TransactionError:
    """The error for a read beside the writer that ran too long."""
    return TransactionError(
        "a read ran longer than statement_timeout_s and was ended.",
        why="Only a few reads run at a time (readers_max), and the log cannot be folded while one of them needs it.",
        fix="Make it touch fewer rows, add an index, or raise statement_timeout_s. Nothing was changed.",
    )


def closed_error() -> UnavailableError:
    """The error for using a lane that was closed."""
    return UnavailableError("the lane is closed.", fix="Open the database again.")


def stopped_error(error: InterlockError) -> UnavailableError:
    """The error for using a lane that this one has killed."""
    if isinstance(error, Fenced | MovedElsewhere):
        return error
    return UnavailableError(
        f"this lane has stopped: {error.what}",
        why="After a failed commit it cannot know what is on the disk, and does not guess.",
        fix="Open the database again; what was acknowledged is there.",
    )


def copy_error(error: ErrorT) -> ErrorT:
    """The same error for one more caller: raised twice, one object would collect the frames of every caller."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


def _unopened(error: Exception, what: Path | str | None) -> InterlockError:
    text = _error_text(error)
    if isinstance(error, UnicodeError) or "null" in text:
        return BadUsage(
            f"{str(what)!r} cannot be opened: {text}.",
            why="No file can have such a name.",
            fix="Use a name without NUL characters and lone surrogates.",
        )
    if isinstance(error, (*_DAMAGES, apsw.SQLError, ValueError)):
        return CorruptionError(
            f"{what} is not a lane, or it is damaged: {text}.",
            why="Its bytes are not those that a lane writes; going on could spread the damage.",
            fix="Check the address. If it is the lane: keep its files, run `interlock doctor`, and restore a backup.",
        )
    if isinstance(error, apsw.BusyError):
        return LaneOwned(
            f"{what} stayed locked by a program that is not the owner of the lane.",
            why="Something that is not Interlock has the file open, and writes.",
            fix="Find out what else has the file open, and end it.",
        )
    if isinstance(error, apsw.FullError):
        return UnavailableError(
            f"{what} cannot grow: {text}.",
            why="There is no room left on its disk. Nothing of what was begun happened.",
            fix="Make room on that disk, then repeat it.",
        )
    return UnavailableError(
        f"{what} cannot be opened: {getattr(error, 'strerror', None) or text}.",
        why="The system refused: the folder, its permissions, the length of the name, or the disk.",
        fix="Check that the folder can be made and written by this user, and that no part of the path is a file.",
    )


def _constraint(error: apsw.ConstraintError) -> TransactionError:
    text = _error_text(error)
    if TYPE_CHECK_PREFIX not in text:
        return ConstraintViolation(f"the transaction violates a constraint: {text}.")
    return TransactionError(
        f"the value for column {text.rpartition(TYPE_CHECK_PREFIX)[2]!r} is of another type, or out of its range.",
        why="A column takes only values of its own type, as PostgreSQL does.",
        fix="Convert the value, or make the column wider.",
    )


_DAMAGED = (CorruptionError, "the lane's file is damaged: {}.", "", "")
_UNREADABLE = (
    UnavailableError,
    "a file of the lane could not be read or written: {}.",
    "The disk failed, or another program removed the file.",
    "Look at the disk and the folder; the transaction did not happen.",
)
_KINDS: dict[type[apsw.Error], tuple[type[InterlockError], str, str, str]] = {
    apsw.InterruptError: (
        TransactionError,
        "a statement ran longer than statement_timeout_s and was ended.",
        "One writer serves all clients: a statement that does not end would stop the lane.",
        "Make it touch fewer rows, add an index, or raise statement_timeout_s.",
    ),
    apsw.FullError: (
        TransactionError,
        "the disk is full; the transaction was rolled back.",
        "SQLite could not write its log.",
        "Free space; nothing needs to be undone.",
    ),
    apsw.AuthError: (
        TransactionError,
        "the statement is not allowed in a lane: {}.",
        (
            "Transaction control, ATTACH, temporary objects, pragmas and Interlock's own tables would break the "
            "isolation of the transactions that share a group."
        ),
        "Use transact for several statements; everything else is not needed in a lane.",
    ),
    apsw.CorruptError: _DAMAGED,
    apsw.NotADBError: _DAMAGED,
    apsw.IOError: _UNREADABLE,
    apsw.CantOpenError: _UNREADABLE,
    apsw.Error: (TransactionError, "a statement failed: {}.", "", ""),
}
"""Our class and the three parts of its text, for each error of SQLite; `{}` is SQLite's own text."""


_LIMITS = re.compile(r"too (?:many|deep|large|long|complex)|at most [0-9]+ tables|parser stack overflow", re.IGNORECASE)
"""What SQLite says of a statement beyond its limits, which PostgreSQL does not have."""


def _from_sqlite(error: apsw.Error) -> InterlockError:
    if isinstance(error, apsw.SQLError) and _LIMITS.search(str(error)):
        return DialectError(f"the statement is too large: {_error_text(error)}.", fix="Split it into several.")
    kind, what, why, fix = next(made for known, made in _KINDS.items() if isinstance(error, known))
    return kind(what.format(_error_text(error)), why=why, fix=fix)


def _error_text(error: BaseException) -> str:
    return str(error).removeprefix(f"{type(error).__name__}: ").rstrip(".") or type(error).__name__
