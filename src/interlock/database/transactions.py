"""Transaction object of a user's function: `tx.query` and `tx.execute`, awaited inside the writer.

Nothing else may be used inside. Another database would make a transaction over two (D17), which is not atomic in a
crash. The database itself would wait for the running transaction.
"""

import contextlib
import contextvars
from collections.abc import Callable
from typing import Protocol

from interlock.errors import DialectError, TransactionError
from interlock.lanes.transact import Request, Requests
from interlock.sql.values import Row

_inside: contextvars.ContextVar[tuple[str, object] | None] = contextvars.ContextVar("transaction", default=None)
"""The database whose transaction is running in this context."""


class OpenBlock(Protocol):
    """An interactive transaction whose block may be left already."""

    @property
    def is_over(self) -> bool:
        """Whether it was committed or rolled back."""
        ...


_block: contextvars.ContextVar[tuple[object, OpenBlock] | None] = contextvars.ContextVar("block", default=None)
"""The engine and the interactive transaction of the innermost block in this context."""


class TransactionEnded(TransactionError):
    """The transaction is over, and nothing of it remains: it took too long, or its database was closed or moved."""

    retry = "now"


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


def enter_block(engine: object, transaction: OpenBlock) -> contextvars.Token[tuple[object, OpenBlock] | None]:
    """Record that this context is inside the block of an interactive transaction."""
    return _block.set((engine, transaction))


def leave_block(token: contextvars.Token[tuple[object, OpenBlock] | None]) -> None:
    """Take back what `enter_block` recorded. A block that is left by another task has recorded nothing there."""
    with contextlib.suppress(ValueError):
        _block.reset(token)


def schema_inside() -> str | None:
    """Return the schema of PostgreSQL whose transaction runs this code; None in a lane or outside a transaction."""
    found = _inside.get()
    schema: object = None if found is None else getattr(found[1], "schema", None)
    return schema if isinstance(schema, str) else None


def timed_out_error(limit_s: float) -> TransactionEnded:
    """Return the error for an interactive transaction that was open too long."""
    return TransactionEnded(
        f"the transaction was open for more than {limit_s:g} s (transaction_timeout_s) and was rolled back.",
        why="On a lane it holds the single writer while it is open, on PostgreSQL rows that others wait for.",
        fix="Repeat it, and do slow work before or after it; or raise transaction_timeout_s.",
    )


def over_error() -> TransactionEnded:
    """Return the error for an interactive transaction that is used after its end."""
    return TransactionEnded(
        "the transaction has ended.",
        why="It was committed or rolled back, or its database was closed.",
        fix="Begin another one.",
    )


def aborted_error() -> TransactionError:
    """Return the error for a statement after one that failed, as PostgreSQL has it."""
    return TransactionError(
        "the transaction is aborted; statements are ignored until it is rolled back.",
        why="One of its statements has failed.",
        fix="Roll it back, or back to a savepoint that was defined before the failed statement.",
    )


def rolled_back_instead() -> TransactionError:
    """Return the error for the commit of an aborted transaction."""
    return TransactionError(
        "the transaction was rolled back instead of committed.",
        why="One of its statements has failed, and it was not rolled back to a savepoint since.",
        fix="Handle the error of that statement; nothing needs to be undone.",
    )


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
    block = _block.get()
    if block is not None and block[0] is database and not block[1].is_over:
        raise TransactionError(
            f"{url} was used inside the block of a transaction of its own.",
            why="It would be a transaction beside the one of the block, and wait for its end.",
            fix="Use tx.execute and tx.query inside the block, or do this after it.",
        )
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
