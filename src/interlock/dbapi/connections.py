"""Connections and cursors of PEP 249 over `Database`, and the open databases of the process.

A connection begins an interactive transaction with its first statement, unless it is in autocommit; then each statement
is a transaction of its own and joins a group. The same classes serve threads and SQLAlchemy's greenlets: they call
coroutines through the function `wait` that their connection was made with.

Sections: open databases, connections, cursors.
"""

import asyncio
import atexit
import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

import apsw

from interlock.database.database import Database
from interlock.database.transactions import InteractiveTransaction
from interlock.dbapi.pep249 import EXCEPTIONS, InterfaceError, ProgrammingError, translate_errors, type_code
from interlock.engine.blocking_engine import Portal
from interlock.errors import InterlockError
from interlock.relocate.lane_shape import read_shape
from interlock.relocate.shape import Shape
from interlock.sql.stored_values import Answer, Row
from interlock.urls import redact_secrets, resolve_url

ResultT = TypeVar("ResultT")

# --- Open databases --------------------------------------------------------------------------------------------------
# A lane has one owner, so all connections of the process to one address share one open database. It is closed with the
# last connection. One event loop in one thread opens and closes all of them, and runs the statements of connections
# that block. After a fork the child starts without any; a lane that its parent had open is refused there.


class _Address(NamedTuple):
    url: str
    home: str | None
    cache: str | None


class _OpenDatabase:
    """An open database and the number of its connections."""

    def __init__(self, address: _Address, settings: dict[str, float]) -> None:
        self.address = address
        self.settings = settings
        self.ready = asyncio.Event()
        """Set unless it is being opened or closed."""
        self.database: Database | None = None
        self.connections = 0


class _OpenDatabases:
    """All databases that connections of this process have open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._open: dict[_Address, _OpenDatabase] = {}

    @property
    def portal(self) -> Portal:
        """The event loop, in its thread. It starts with the first connection."""
        with self._lock:
            if self._portal is None:
                self._portal = Portal("interlock-dbapi", of="database")
                atexit.register(self.close_all)
            return self._portal

    async def acquire(self, address: _Address, settings: dict[str, float]) -> tuple[_OpenDatabase, Database]:
        """Open the database, or share the open one. Runs in the portal's loop, as `release` does."""
        while (found := self._open.get(address)) is not None:
            if settings and settings != found.settings:
                raise ProgrammingError(
                    f"{redact_secrets(address.url)} is open in this process with other settings.\n"
                    "why: all connections to one address share one open database.\n"
                    "fix: connect with the same settings everywhere, or set them in interlock.toml."
                )
            if found.database is None:
                await found.ready.wait()  # If its opening fails, this one opens it, and says why.
            elif not found.database.is_lost:
                found.connections += 1
                return found, found.database
            else:
                with contextlib.suppress(InterlockError):  # It has released its file even if the close failed.
                    await self._close(found, found.database)
        found = self._open[address] = _OpenDatabase(address, settings)
        found.connections = 1
        try:
            options = cast("dict[str, Any]", settings)
            found.database = await Database.open(address.url, home=address.home, cache=address.cache, **options)
        except BaseException:
            del self._open[address]
            raise
        finally:
            found.ready.set()
        return found, found.database

    async def release(self, found: _OpenDatabase) -> None:
        """Close the database with its last connection, unless it was lost and closed before."""
        found.connections -= 1
        if found.connections == 0 and found.database is not None:
            await self._close(found, found.database)

    async def _close(self, found: _OpenDatabase, database: Database) -> None:
        """Close it. A connection that comes meanwhile waits for the end, and opens it again."""
        found.database = None
        found.ready.clear()

        async def close() -> None:
            try:
                await database.close()
            finally:
                del self._open[found.address]
                found.ready.set()

        await asyncio.shield(asyncio.ensure_future(close()))

    def close_all(self) -> None:
        """Close what is open when the program ends, so that leases are released."""
        portal = self._portal
        if portal is None or portal.is_forked or portal.is_stopped:
            return

        async def close() -> None:
            for found in list(self._open.values()):
                if found.database is not None:
                    with contextlib.suppress(Exception):
                        await found.database.close()

        with contextlib.suppress(Exception):
            portal.call(close)


_databases = _OpenDatabases()


def _in_child() -> None:
    global _databases  # noqa: PLW0603 -- one per process.
    _databases = _OpenDatabases()


os.register_at_fork(after_in_child=_in_child)


# --- Connections -----------------------------------------------------------------------------------------------------

Wait = Callable[[Callable[[], Coroutine[object, object, object]]], object]
"""Runs a coroutine function to its end and returns its result: in the portal, or in the event loop of a greenlet."""

_SAVEPOINT: Final = re.compile(
    r"\s*(?P<word>SAVEPOINT|ROLLBACK\s+TO(?:\s+SAVEPOINT)?|RELEASE(?:\s+SAVEPOINT)?)\s+"
    r'(?P<name>"(?:[^"]|"")+"|[a-zA-Z_][a-zA-Z0-9_$]*)\s*;?\s*',
    re.IGNORECASE,
)


def connect(
    url: str,
    *,
    autocommit: bool = False,
    read_only: bool = False,
    home: str | None = None,
    cache: str | None = None,
    **settings: float,
) -> "Connection":
    """Open a connection to a database, for code that blocks. Settings are those of `Database.open`."""
    databases, address = _databases, _Address(_canonical(url), home, cache)
    portal = databases.portal
    with translate_errors():
        found, database = portal.call(databases.acquire, address, settings)

    def wait(function: Callable[[], Coroutine[object, object, object]]) -> object:
        return portal.call(function)

    def close() -> None:
        portal.call(databases.release, found)

    return Connection(database, wait, close, terminate=close, autocommit=autocommit, read_only=read_only)


async def connect_in_loop(
    wait: Wait,
    url: str,
    *,
    autocommit: bool = False,
    read_only: bool = False,
    home: str | None = None,
    cache: str | None = None,
    **settings: float,
) -> "Connection":
    """Open a connection whose statements run in the caller's event loop; `wait` is called in its greenlet."""
    databases, address = _databases, _Address(_canonical(url), home, cache)
    portal = databases.portal
    thread = ThreadPoolExecutor(1, "interlock-connect")
    opening = thread.submit(portal.call, databases.acquire, address, settings)
    thread.shutdown(wait=False)
    try:
        with translate_errors():
            found, database = await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda done: _start(_give_back, portal, databases, done))
        raise

    def release() -> None:
        portal.call(databases.release, found)

    async def close() -> None:
        await asyncio.to_thread(release)

    return Connection(
        database, wait, lambda: wait(close), terminate=release, autocommit=autocommit, read_only=read_only
    )


def _give_back(portal: Portal, databases: _OpenDatabases, opening: "Future[tuple[_OpenDatabase, Database]]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        portal.call(databases.release, opening.result()[0])


def _start(function: Callable[..., object], *args: object) -> None:
    if not sys.is_finalizing():  # A thread that is started later never runs, and everything was closed.
        threading.Thread(target=function, args=args, name="interlock-terminate", daemon=True).start()


class Connection:
    """A connection of PEP 249. Make one with `connect`."""

    Warning: type[Exception]
    Error: type[Exception]
    InterfaceError: type[Exception]
    DatabaseError: type[Exception]
    DataError: type[Exception]
    OperationalError: type[Exception]
    IntegrityError: type[Exception]
    InternalError: type[Exception]
    ProgrammingError: type[Exception]
    NotSupportedError: type[Exception]

    def __init__(
        self,
        database: Database,
        wait: Wait,
        release: Callable[[], object],
        *,
        terminate: Callable[[], object],
        autocommit: bool,
        read_only: bool,
    ) -> None:
        self._database = database
        self._wait = wait
        self._release = release
        self._terminate = terminate
        self._autocommit = autocommit
        self._read_only = read_only
        self._transaction: InteractiveTransaction | None = None
        self._calls = asyncio.Lock()
        """One call at a time, whatever the number of threads. Used in the loop only."""
        self._closing = threading.Lock()
        self._closed = False
        self._process = os.getpid()

    @property
    def autocommit(self) -> bool:
        """Whether each statement is a transaction of its own."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._refuse_inside("autocommit")
        self._autocommit = bool(value)

    @property
    def read_only(self) -> bool:
        """Whether transactions only read: on a lane they run beside the writer then."""
        return self._read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        self._refuse_inside("read_only")
        self._read_only = bool(value)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. It holds the writer of a lane, unless it is read-only."""
        return self._transaction is not None

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._closed

    @property
    def database(self) -> Database:
        """The open database, which all connections to its address share."""
        return self._database

    def cursor(self) -> "Cursor":
        """Return a new cursor. Cursors of one connection share its transaction."""
        self._refuse_closed()
        return Cursor(self)

    def commit(self) -> None:
        """Return when the changes are durable. Without an open transaction it does nothing."""
        _ = self._call(lambda: self._end(lambda transaction: transaction.commit()))

    def rollback(self) -> None:
        """Undo the changes of the open transaction, if there is one."""
        _ = self._call(lambda: self._end(lambda transaction: transaction.rollback()))

    def close(self) -> None:
        """Roll back what is open, and close the connection; the last one closes the database. Idempotent."""
        if not self._becomes_closed():
            return
        try:
            self._one_at_a_time(lambda: self._end(lambda transaction: transaction.rollback()))
        finally:
            with translate_errors():
                _ = self._release()

    def terminate(self) -> None:
        """Close the connection from any thread, without waiting: its caller has vanished."""
        if self._becomes_closed():
            if self._transaction is not None:
                self._transaction.abandon()
            _start(self._terminate)

    def __del__(self) -> None:
        """Release the writer when the last reference is lost."""
        self.terminate()

    def read_shape(self) -> Shape:
        """Return the tables, columns, constraints and indexes, as the open transaction sees them.

        Expressions have PostgreSQL's text. Raises ProgrammingError if the database is not on a lane.
        """
        return self.inspect(read_shape)

    def inspect(self, read: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Return what a function reads from a lane's file, as the open transaction sees it."""

        async def inspect() -> ResultT:
            if self._transaction is None or self._read_only:
                return await self._database.inspect(read)
            return await self._transaction.inspect(read)

        return self._call(inspect)

    def run(self, sql: str, args: Sequence[object] = ()) -> Answer:
        """Run one statement, in the open transaction or as one of its own."""
        if not isinstance(sql, str):
            raise ProgrammingError(f"the statement is {type(sql).__name__}, not a text. Pass SQL as a text.")
        savepoint = _SAVEPOINT.fullmatch(sql)
        if savepoint is not None:
            return self._call(lambda: self._run_savepoint(savepoint["word"], savepoint["name"]))
        return self._call(lambda: self._run(sql, args))

    def run_many(self, sql: str, many: Sequence[Sequence[object]]) -> int:
        """Run one statement with each of several arguments; return the number of changed rows.

        In autocommit all of them are one transaction.
        """

        async def run() -> int:
            if not self._autocommit:
                return await self._opened().run_many(sql, many)
            async with self._database.transaction(read_only=self._read_only) as transaction:
                return await transaction.run_many(sql, many)

        return self._call(run)

    def __enter__(self) -> Self:
        """Return the connection. Leaving the block commits, or rolls back after an error; it stays open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back after an error in the block."""
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _call(self, function: Callable[[], Coroutine[object, object, ResultT]]) -> ResultT:
        async def unless_closed() -> ResultT:
            self._refuse_closed()
            return await function()

        self._refuse_closed()
        return self._one_at_a_time(unless_closed)

    def _one_at_a_time(self, function: Callable[[], Coroutine[object, object, ResultT]]) -> ResultT:
        async def one_at_a_time() -> ResultT:
            async with self._calls:
                return await function()

        with translate_errors():
            return cast("ResultT", self._wait(one_at_a_time))

    async def _run(self, sql: str, args: Sequence[object]) -> Answer:
        if self._autocommit and not self._read_only:
            return await self._database.run(sql, *args)
        if not self._autocommit:
            return await self._opened().run(sql, *args)
        async with self._database.transaction(read_only=True) as transaction:
            return await transaction.run(sql, *args)

    async def _run_savepoint(self, word: str, name: str) -> Answer:
        if self._autocommit:
            raise ProgrammingError(f"{word.upper()} is only allowed inside a transaction. Set autocommit to False.")
        transaction = self._opened()
        plain = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
        match word.upper().split():
            case ["SAVEPOINT"]:
                await transaction.define_savepoint(plain)
            case ["ROLLBACK", *_]:
                await transaction.rollback_to(plain)
            case _:
                await transaction.release(plain)
        return Answer([], 0)

    def _opened(self) -> InteractiveTransaction:
        if self._transaction is None:
            self._transaction = self._database.transaction(read_only=self._read_only)
        return self._transaction

    async def _end(self, end: Callable[[InteractiveTransaction], Coroutine[object, object, None]]) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await end(transaction)

    def _becomes_closed(self) -> bool:
        """Mark it as closed; return whether it must be released: once, and not in a forked child."""
        if os.getpid() != self._process:
            self._closed = True
            return False
        with self._closing:
            was_closed, self._closed = self._closed, True
        return not was_closed

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed. Open another one.")

    def _refuse_inside(self, what: str) -> None:
        self._refuse_closed()
        if self._transaction is not None:
            raise ProgrammingError(f"{what} cannot change inside a transaction. Commit or roll back first.")


for _exception in EXCEPTIONS:
    setattr(Connection, _exception.__name__, _exception)  # An extension of PEP 249.


# --- Cursors ---------------------------------------------------------------------------------------------------------

Description = tuple[str, int, None, None, None, None, None]
_NO_ROWS: Final = "the last statement of the cursor has returned no rows. Execute a query first."


class Cursor:
    """A cursor of PEP 249. All rows of a result are in memory. Made by `Connection.cursor`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: list[Description] | None = None
        """Name and type code of each column, in the form of PEP 249; None for a statement without a result."""
        self.rowcount = -1
        """Rows that the last statement changed or found; -1 before the first one."""
        self._rows: Iterator[Row] | None = None
        self._closed = False

    def execute(self, operation: str, parameters: Sequence[object] | None = None) -> Self:
        """Run one statement with its values for `$1`, `$2` and so on."""
        answer = self._connected().run(operation, _checked(parameters))
        self.rowcount = answer.changed
        if answer.columns:
            self.description = [(name, type_code(kind), None, None, None, None, None) for name, kind in answer.columns]
            self._rows = iter(answer.rows)
        else:
            self.description = self._rows = None
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Sequence[object]]) -> None:
        """Run one statement with each of several lists of values. It has no result but its `rowcount`."""
        many = [_checked(parameters) for parameters in seq_of_parameters]
        self.rowcount = self._connected().run_many(operation, many) if many else 0
        self.description = self._rows = None

    def fetchone(self) -> Row | None:
        """Return the next row; None after the last one."""
        return next(self._result(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next `size` rows, or `arraysize`; fewer at the end."""
        rows = self._result()
        return [row for _, row in zip(range(self.arraysize if size is None else size), rows, strict=False)]

    def fetchall(self) -> list[Row]:
        """Return the rows that are left."""
        return list(self._result())

    def __iter__(self) -> Iterator[Row]:
        return self._result()

    def close(self) -> None:
        """Forget the result. Idempotent."""
        self._closed = True
        self._rows = None

    async def _async_soft_close(self) -> None:
        """Do nothing: SQLAlchemy calls it after a streamed result."""

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing: types come from the statement."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: rows are whole."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> Connection:
        if self._closed:
            raise InterfaceError("the cursor is closed. Make another one.")
        return self.connection

    def _result(self) -> Iterator[Row]:
        _ = self._connected()
        if self._rows is None:
            raise ProgrammingError(_NO_ROWS)
        return self._rows


def _checked(parameters: object) -> Sequence[object]:
    if parameters is None:
        return ()
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise ProgrammingError(
            f"the parameters are {type(parameters).__name__}, not a sequence. Pass a list with one value for each $n."
        )
    return cast("Sequence[object]", parameters)


def _canonical(url: str) -> str:
    """Return one spelling for all addresses of one local lane."""
    if not isinstance(url, str):
        raise ProgrammingError(f"the address is {type(url).__name__}, not a text. Write lanes:///var/shop/stock.")
    url = resolve_url(url)
    try:
        parts = urlsplit(url)
        path = quote(os.path.realpath(unquote(parts.path)))
    except ValueError:
        return url  # No address: the opening says why.
    is_plain = url.isprintable() and parts.path.startswith("/") and not (parts.netloc or parts.query or parts.fragment)
    return f"lanes://{path}" if parts.scheme == "lanes" and is_plain else url
