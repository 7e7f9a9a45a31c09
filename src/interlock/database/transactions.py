"""Transaction object of a user's function: `tx.query` and `tx.execute`, awaited inside the writer.

Nothing else may be used inside. Another database would make a transaction over two (D17), which is not atomic in a
crash. The database itself would wait for the running transaction.
"""

import contextvars
from collections.abc import Callable

from interlock.errors import DialectError, TransactionError
from interlock.lanes.transact import Request, Requests
from interlock.sql.values import Row

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


def not_a_text(sql: object, on: str) -> DialectError:
    """Return the error for a statement that is not a text; `on` is the object that runs it, for the example."""
    return DialectError(
        f"the statement is {type(sql).__name__}, not a text.",
        why="A statement is SQL as text; its values are passed beside it.",
        fix=f'Write {on}.execute("UPDATE counter SET n = $1", n).',  # noqa: S608 -- an example.
    )


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
