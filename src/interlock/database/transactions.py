"""What a user's transaction function sees: `tx.query` and `tx.execute`, awaited inside the writer."""

import contextvars
from collections.abc import Awaitable, Callable

from interlock.database.translation import Translator
from interlock.lanes.coroutines import Request, drive
from interlock.lanes.session import Session
from interlock.sql.rows import Row


class Transaction:
    """The running transaction. Await only its methods; it may run more than once, so do nothing outside it."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    def query(self, sql: str, /, *args: object) -> Request[list[Row]]:
        """Run one statement; returns its rows."""
        return Request(lambda session: query_in(session, self._translator, sql, args))

    def execute(self, sql: str, /, *args: object) -> Request[int]:
        """Run one statement; returns the number of rows it changed."""
        return Request(lambda session: execute_in(session, self._translator, sql, args))


def query_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> list[Row]:
    """Run one statement in the session; returns its rows as Python values."""
    statement = translator.statement(sql)
    rows = session.query(statement.text, statement.encode(args))
    return [statement.decode(row) for row in rows]


def execute_in(session: Session, translator: Translator, sql: str, args: tuple[object, ...]) -> int:
    """Run one statement in the session; returns the rows it changed, or found."""
    statement = translator.statement(sql)
    values = statement.encode(args)
    if statement.kind == "write":
        return session.execute(statement.text, values)
    rows = session.query(statement.text, values)
    return len(rows)


def run_in(
    session: Session,
    translator: Translator,
    function: Callable[..., Awaitable[object]],
    args: tuple[object, ...],
    context: contextvars.Context,
) -> object:
    """Drive the user's function inside the session. The context is copied, so that a second run starts afresh."""
    transaction = Transaction(translator)
    return drive(lambda: function(transaction, *args), session, context.copy())
