"""Transaction object of a user's function: `tx.query` and `tx.execute`, awaited inside the writer.

Nothing else may be used inside. Another database would make a transaction over two (D17), which is not atomic in a
crash. The database itself would wait for the running transaction. A statement that changes the schema of a lane is
stored as it was written, in the same transaction.
"""

import contextvars
from collections.abc import Awaitable, Callable
from typing import cast

import apsw

from interlock.database.translation import Translator
from interlock.errors import TransactionError
from interlock.lanes.connection import translated
from interlock.lanes.transact import Request, Requests, drive
from interlock.lanes.transaction import Session
from interlock.sql.values import Row

# --- Stored schema statements ----------------------------------------------------------------------------------------
# SQLite's catalog loses parts of a definition in PostgreSQL's dialect, which a move needs. A statement that changed
# nothing, such as CREATE TABLE IF NOT EXISTS at every start, is not stored, so the table does not grow with time.

DEFINITIONS_MAX = 100_000
"""Statements that are kept; the oldest go first. The very first has the number 1, so a gap is visible."""

_VERSION = "PRAGMA schema_version"
_MAKE = """
CREATE TABLE IF NOT EXISTS interlock_definitions (number INTEGER PRIMARY KEY AUTOINCREMENT, sql TEXT NOT NULL)
"""
_STORE = "INSERT INTO interlock_definitions (sql) VALUES (?1)"
_BOUND = "DELETE FROM interlock_definitions WHERE number <= (SELECT max(number) FROM interlock_definitions) - ?1"


def define(session: Session, text: str, *, written: str) -> None:
    """Run a statement on the schema, and store it as it was written if it has changed anything."""
    before = session.query(_VERSION)
    session.execute(text)
    if session.query(_VERSION) == before:
        return
    session.defined = True  # If a later statement fails, more than that one must be undone.
    session.own(lambda run: _store_definition(run, written))


def _store_definition(run: Callable[..., apsw.Cursor], written: str) -> None:
    run(_MAKE)
    run(_STORE, (written,))
    run(_BOUND, (DEFINITIONS_MAX,))


# --- Transactions ----------------------------------------------------------------------------------------------------

_inside: contextvars.ContextVar[tuple[str, object] | None] = contextvars.ContextVar("transaction", default=None)
"""The database whose transaction is running in this context."""


Performing = Callable[[str, tuple[object, ...]], Callable[[], object]]
"""Returns the call that a driver performs for a statement and its arguments."""


class Transaction:
    """The running transaction. Await only its methods; it may run more than once, so do nothing outside it."""

    def __init__(self, requests: Requests, *, query: Performing, execute: Performing) -> None:
        self._requests = requests
        self._query = query
        self._execute = execute

    def query(self, sql: str, /, *args: object) -> Request[list[Row]]:
        """Run one statement; return its rows."""
        return self._requests.ask("query", sql, self._query(sql, args))

    def execute(self, sql: str, /, *args: object) -> Request[int]:
        """Run one statement; return the number of changed rows."""
        return self._requests.ask("execute", sql, self._execute(sql, args))


def query_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> list[Row]:
    """Run one statement in the session; return its rows as Python values."""
    statement = translator.statement(sql, session.undone)
    values = statement.encode(args)
    if statement.kind == "schema":
        define(session, statement.text, written=sql)
        return []
    rows = session.query(statement.text, values)
    return [statement.decode(row) for row in rows]


def execute_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> int:
    """Run one statement in the session; return the number of rows that it changed or found."""
    statement = translator.statement(sql, session.undone)
    values = statement.encode(args)
    if statement.kind == "schema":
        define(session, statement.text, written=sql)
        return 0
    if statement.kind == "write" and not statement.returns_rows:
        return session.execute(statement.text, values)
    # A result that PostgreSQL could not return is an error here too, although it is discarded.
    return len([statement.decode(row) for row in session.query(statement.text, values)])


def _perform(
    run: Callable[[Session, Translator, str, tuple[object, ...]], object],
    session: Session,
    translator: Translator,
    sql: str,
    args: tuple[object, ...],
) -> object:
    """Run one statement of a user's function; errors of the driver become ours."""
    try:
        return run(session, translator, sql, args)
    except apsw.Error as error:
        raise translated(error) from error


def run_in(
    session: Session,
    translator: Translator,
    function: Callable[..., object],
    args: tuple[object, ...],
    context: contextvars.Context,
    database: tuple[str, object],
) -> object:
    """Drive the user's function inside the session."""

    def begin(requests: Requests) -> Awaitable[object]:
        tx = Transaction(
            requests,
            query=lambda sql, values: lambda: _perform(query_in, session, translator, sql, values),
            execute=lambda sql, values: lambda: _perform(execute_in, session, translator, sql, values),
        )
        return cast("Awaitable[object]", function(tx, *args))  # The driver refuses a result that is not awaitable.

    return drive(begin, inside_of(context, database))


def inside_of(context: contextvars.Context, database: tuple[str, object]) -> contextvars.Context:
    """Return a copy of the context for a transaction of this database, so that a second run starts anew."""
    inside = context.copy()
    inside.run(_inside.set, database)
    return inside


def schema_inside() -> str | None:
    """Return the schema of PostgreSQL whose transaction runs this code; None in a lane or outside a transaction."""
    found = _inside.get()
    schema: object = None if found is None else getattr(found[1], "schema", None)
    return schema if isinstance(schema, str) else None


def refuse_no_function(function: object) -> None:
    """Raise TransactionError unless the argument is callable."""
    if not callable(function):
        raise TransactionError(
            f"transact was given {type(function).__name__}, which cannot be called.",
            why="It runs a function inside the lane; for one statement there are execute and query.",
            fix="Write `async def function(tx, ...)` and pass the function itself, without calling it.",
        )


def refuse_inside(url: str, database: object = None) -> None:
    """Raise TransactionError inside a function given to `transact`: there only its tx may be used (D17)."""
    found = _inside.get()
    if found is None:
        return
    around, its_own = found
    if database is its_own:
        raise TransactionError(
            f"{url} was used inside a transaction of its own.",
            why="It would be a transaction beside the one that is running: a lane's single writer is busy with that, "
            "and in PostgreSQL each could commit without the other.",
            fix="Use tx.execute and tx.query inside the function, and helpers such as stock and counter outside of it.",
        )
    raise TransactionError(
        f"{url} was used inside a transaction of {around}; a transaction cannot span databases.",
        why="Each database commits alone: after a crash one of them could have happened without the other.",
        fix="Do one after the other, each with a key, so that a repeated one happens once; or keep rows that must "
        "change together in one database.",
    )
