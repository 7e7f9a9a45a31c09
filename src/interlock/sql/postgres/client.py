"""A connection for statements of users: any text, in one schema at a time, without state after a call.

It differs from the store's own connections in three ways. The planner keeps its settings: these are not our statements.
Names are looked up in the schema of the database only. And the number of prepared statements is bounded, because a
program may have any number of texts.

Where a connection is shared by several schemas, or by a pooler, the settings go with each transaction instead.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

import contextlib
from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from interlock.errors import ConstraintViolation, InterlockError, OutcomeUnknown, TransactionError
from interlock.sql.postgres.address import Address
from interlock.sql.postgres.exchange import Receive, Send, receives, sends, sent
from interlock.sql.postgres.extra import asyncpg
from interlock.sql.postgres.failures import (
    CONNECTION_STATES,
    LostConnection,
    is_stale,
    state_of,
    told,
)
from interlock.sql.postgres.link import Driver, Link, driver_of
from interlock.sql.rows import Row, row_class

PLAIN_TEXTS: Final = {"standard_conforming_strings": "on"}
"""A backslash is a letter, as everywhere: another reading would let a query hide in a text (`plans`)."""

STATEMENTS_MAX: Final = 256
"""Prepared statements that one connection keeps; the one that was used longest ago goes first."""

CONFLICT_STATES: Final = ("40001", "40P01")
"""Serialization failure and deadlock: the server has undone the transaction, and it may work the next time."""

DENIED: Final = "42501"
"""The user may not do it, whenever it was prepared."""

Isolation = Literal["READ COMMITTED", "SERIALIZABLE"]


class Conflict(Exception):
    """The transaction met another one and was undone by the server."""


class Answer(NamedTuple):
    """The result of a statement."""

    rows: list[Row]
    changed: int
    """Rows that it changed, or found."""


class _Statement(Protocol):
    async def fetch(self, *values: object, timeout: float) -> list[Any]: ...  # noqa: ASYNC109 -- the driver's.
    def get_attributes(self) -> Sequence[Any]: ...
    def get_parameters(self) -> Sequence[Any]: ...
    def get_statusmsg(self) -> str: ...


class _Known(NamedTuple):
    statement: _Statement
    sends: tuple[Send | None, ...]
    receives: tuple[Receive | None, ...] | None
    row: type[Row]


class Client(Link):
    """A connection that runs what users write."""

    def __init__(self, driver: Driver, address: Address) -> None:
        super().__init__(driver, address)
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._timeout = address.statement_timeout_s
        self.pooled = address.pgbouncer
        self._begun = False
        self._unsettled = False
        self._names = 0

    async def run(self, sql: str, args: Sequence[object], *, schema: str, writing: bool) -> Answer:
        """Run one statement, in the transaction that is open or as one of its own.

        Raises Conflict when the server has undone it because of another one, and OutcomeUnknown when it is `writing`,
        a transaction of its own, and its outcome cannot be known.
        """
        kept = (schema, sql) in self._known
        try:
            return await self._run(sql, args, schema, writing=writing)
        except TransactionError as error:
            cause = error.__cause__
            state = None if cause is None else state_of(cause)
            old = cause is not None and is_stale(cause)
            if not old and (state is None or not state.startswith("42") or state == DENIED):
                raise
            # The table may have changed since the statement was prepared, and the server has rolled it back.
            self._known.pop((schema, sql), None)
            if not kept:
                raise
            if old:
                self._known.clear()
            if self._begun:
                raise Conflict from error
        return await self._run(sql, args, schema, writing=writing)

    async def begin(self, isolation: Isolation, *, first: str = "", read_only: bool = False, schema: str = "") -> None:
        """Begin a transaction; `first` is run before anything is looked at. A schema is set for it alone."""
        local = f"; SET LOCAL search_path = \"{schema}\"; SET LOCAL timezone = 'UTC'" if schema else ""
        mode = " READ ONLY" if read_only else ""
        self._begun = True
        with said(writing=False):
            await self.driver.execute(
                f"BEGIN ISOLATION LEVEL {isolation}{mode}{local}{first and f'; {first}'}", timeout=self._timeout
            )

    async def commit(self) -> None:
        """Commit. Raises Conflict when the server has rolled back instead, OutcomeUnknown when it cannot be known."""
        self._refuse_lost("a commit")
        self._begun = False
        with said(writing=True):
            await self.driver.execute("COMMIT", timeout=self._timeout)

    async def rollback(self) -> None:
        """Undo what is open. A connection on which that fails is not used again, and its end undoes it."""
        self._begun = False
        if self.driver.is_closed():
            return
        try:
            await self.driver.execute("ROLLBACK", timeout=self._timeout)
        except BaseException as error:
            self.spent = True
            if not isinstance(error, Exception):
                raise

    async def _run(self, sql: str, args: Sequence[object], schema: str, *, writing: bool) -> Answer:
        try:
            with said(writing=False):
                # To prepare a statement is not to run it: what breaks here has changed nothing.
                known, values = await self._ready(sql, args, schema)
            self._refuse_lost("a statement")
            with said(writing=writing), _decoded(writing=writing):
                rows = await known.statement.fetch(*values, timeout=self._timeout)
        except Exception:
            if self._unsettled:
                await self._settle()
            raise
        self._unsettled = False
        read, row = known.receives, known.row
        if read is None:
            made = [row(each) for each in rows]
        else:
            made = [
                row([value if how is None else how(value) for how, value in zip(read, each, strict=True)])
                for each in rows
            ]
        return Answer(made, _count(known.statement.get_statusmsg(), len(made)))

    def _refuse_lost(self, what: str) -> None:
        if self.driver.is_closed():
            raise LostConnection(f"the connection to PostgreSQL was lost before {what} was sent.")

    async def _settle(self) -> None:
        """End what a statement has begun that was prepared and not run: the driver leaves that to its run.

        Otherwise the next transaction would be a part of it, and could not choose its isolation.
        """
        self._unsettled = False
        if self.driver.is_closed():
            return
        try:
            await self.driver.execute("SELECT", timeout=self._timeout)
        except Exception:  # noqa: BLE001 -- whatever it is, the connection is not used again.
            self.spent = True

    async def _ready(self, sql: str, args: Sequence[object], schema: str) -> tuple[_Known, list[object]]:
        """The statement as the server knows it, and the values for it."""
        kept = (schema, sql) in self._known
        known = await self._prepared_for(sql, schema)
        try:
            return known, sent(args, known.sends)
        except TransactionError:
            # The parameters may have other types by now.
            self._known.pop((schema, sql), None)
            if not kept:
                raise
        known = await self._prepared_for(sql, schema)
        return known, sent(args, known.sends)

    async def _prepared_for(self, sql: str, schema: str) -> _Known:
        known = self._known.get((schema, sql))
        if known is not None:
            self._known.move_to_end((schema, sql))
            return known
        # Without a name the driver would send the text again each time, and read the answer by what it knew before: if
        # the table has changed, the values are wrong. With a pooler a name may be another client's, so none is kept.
        self._names += 1
        name = "" if self.pooled else f"interlock_{self._names}"
        statement = await self.driver.prepare(sql, name=name, timeout=self._timeout)
        self._unsettled = not self._begun
        attributes = cast("_Statement", statement).get_attributes()
        known = _Known(
            cast("_Statement", statement),
            sends(cast("_Statement", statement).get_parameters()),
            receives([attribute.type for attribute in attributes]),
            row_class(tuple([str(attribute.name) for attribute in attributes])),
        )
        if not self.pooled:
            self._known[schema, sql] = known
            if len(self._known) > STATEMENTS_MAX:
                self._known.popitem(last=False)
        return known


def _count(status: str, found: int) -> int:
    word, *numbers = status.split()
    if word in {"INSERT", "UPDATE", "DELETE", "MERGE"}:
        return int(numbers[-1])
    return found


@contextlib.contextmanager
def _decoded(*, writing: bool) -> Generator[None]:
    """Translate errors of decoding (the year 20000): the server has run the statement by then."""
    try:
        yield
    except (asyncpg.InterfaceError, asyncpg.PostgresError):
        raise  # It is about the arguments, which were not sent, or said by the server.
    except (ArithmeticError, BufferError, LookupError, ValueError) as error:
        if writing:
            raise OutcomeUnknown(
                f"a statement was run, and a value that it returned cannot be read: {error}.",
                why="PostgreSQL has values that Python has not, such as a time after the year 9999.",
                fix="Return it as text, or leave it out of RETURNING; look whether the statement has happened.",
            ) from None  # A chained error would be reported as an error of the arguments.
        raise TransactionError(
            f"a value that a statement returned cannot be read: {error}.",
            why="PostgreSQL has values that Python has not, such as a time after the year 9999.",
            fix="Return it as text.",
        ) from None


@contextlib.contextmanager
def said(*, writing: bool) -> Generator[None]:
    """As `told`, in the words of a database: what a statement of the user does wrong is a TransactionError."""
    try:
        with told(writing=writing):
            yield
    except InterlockError as error:
        cause = error.__cause__
        state = None if cause is None else state_of(cause)
        if state in CONFLICT_STATES:
            raise Conflict from cause
        if state is not None and state.startswith(CONNECTION_STATES):
            raise
        refused = None if cause is None else _refused(cause, state)
        if refused is None:
            raise
        raise refused from cause


def _refused(cause: BaseException, state: str | None) -> TransactionError | None:
    """Return the error for a mistake in the statement or its values; None for everything else."""
    first = str(cause).partition("\n")[0].rstrip(".")
    if state is not None and state.startswith("23"):
        return ConstraintViolation(f"the transaction violates a constraint: {first}.")
    if state is not None and not state.startswith(("53", "55", "57", "58", "XX", "26", "25P")):
        return TransactionError(f"a statement failed: {first}.")
    if state is None and isinstance(cause, (ValueError, TypeError, OverflowError, asyncpg.DataError)):
        return TransactionError(
            f"a value cannot be passed to PostgreSQL: {first}.", fix="Pass a value of the parameter's type."
        )
    return None


async def opened(address: Address) -> Client:
    """Open a connection for statements of users."""
    settings = {"search_path": address.schema, "timezone": "UTC", "jit": "off", **PLAIN_TEXTS}
    return Client(await driver_of(address, settings), address)
