"""SQLite connections as a lane needs them, and the authorizer that confines user statements.

The writer's log is SQLite's own write-ahead log with `synchronous=FULL`: one fsync per group, and readers see a commit
only after that fsync (G7). An authorizer refuses what would break out of a savepoint: transaction control, ATTACH,
temporary objects, pragmas, extensions, and our own tables. It is asked when a statement is prepared, so it costs
nothing per execution.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path

import apsw

Prepare = Callable[[apsw.Connection, Callable[[], int]], None]
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
    _ON_A_TABLE
    | (_BESIDE_A_TABLE - {apsw.SQLITE_ALTER_TABLE})
    | {
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_DROP_VIEW,
    }
)
_CHANGES_TABLES = {apsw.SQLITE_CREATE_TABLE, apsw.SQLITE_ALTER_TABLE, apsw.SQLITE_DROP_TABLE}
_PRAGMAS_ALLOWED = {"schema_version", "table_info", "foreign_key_list", "quick_check"}
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


def make_folder(folder: Path) -> None:
    """Make the folder and make its name durable: SQLite syncs the folder of its files, not the folders above."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        descriptor = os.open(each.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
