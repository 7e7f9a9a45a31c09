"""`engine.transaction(connection)`: a block in which events are sent inside the caller's own transaction.

async with engine.transaction(connection) as tx:    # `with`, and no await, for a connection without an event loop
    await tx.send("o-1", Submit(cents=5))
    await tx.start(order, "o-2", Order())

The block commits nothing that is not its own: a transaction that is open, or that the connection begins by itself, is
the caller's. Only a connection that would commit each statement by itself gets a transaction for the block. Nothing
begins in it: what is owed is due immediately, and workers take it up after the commit. Observers get no signals.

The caller's connection is one of asyncpg, psycopg 3 or SQLAlchemy 2, with or without an event loop. Its kind is
recognised by the name of its class or of a base class, together with the top-level module. So no driver is imported,
and two drivers may give their classes the same names. An adapter opens a transaction only where a statement would
otherwise be one for itself: asyncpg outside of a transaction, and psycopg in autocommit mode.

Sections: calls of a transaction, placeholders, SQLAlchemy, connections without an event loop, connections in one,
choice of the adapter, transactions.
"""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from enum import Enum
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from interlock.clock import Ids
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import ContextT, StateT
from interlock.engine.bound_machine import AnyMachine, BoundMachine, LoadedWorkflow
from interlock.engine.check_definitions import compare_version
from interlock.engine.dependencies.wait_queue import Places
from interlock.engine.internals import EngineParts
from interlock.engine.path.caller_commands import Beginning, SendEvent, Start, check_id, start_of
from interlock.engine.path.commit_pipeline import machine_of
from interlock.engine.path.staged_group import DecisionContext, Group, Staged
from interlock.engine.views import Moved, View
from interlock.errors import BadUsage, UserCodeError, VersionConflict
from interlock.store.protocol import StatementGenerator, Store, Transactional, Transactions
from interlock.store.records import Delivered, Row

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")

# --- Calls of a transaction ------------------------------------------------------------------------------------------

ATTEMPTS_MAX = 5
"""How often a start is decided again because another process has just started or removed the workflow."""


class TransactionCalls:
    """The calls of a caller's transaction on the workflows of one engine, without any input or output of their own.

    This is the data path for a group of one: the workflow is loaded, and locked if it is to be moved; the same commands
    decide; the same change is written. Statements are yielded, and the rows come back. So the connection may be used in
    any thread, with or without an event loop.
    """

    def __init__(self, parts: EngineParts, ids: Ids, bound: Callable[[AnyMachine], BoundMachine]) -> None:
        self._parts = parts
        self._ids = ids
        self._bound = bound
        self._requests = _transactions(parts.store)
        self.over = False
        """Whether the block has ended."""

    def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None,
        if_allowed: bool,
        expect_version: int | None,
        start: Beginning | None,
        by: str | None,
    ) -> StatementGenerator[Moved[Enum]]:
        """Apply the event, or raise the refusal; before that nothing is written."""
        self._refuse_ended()
        check_id(workflow, "the id of a workflow")
        first = None
        if start is not None:
            machine, context = start_of(start)
            first = Start(self._bound(machine), workflow, context, by=by)
        command = SendEvent(
            workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version, first=first, by=by
        )
        return cast("StatementGenerator[Moved[Enum]]", self._decide(command))

    def start(
        self, machine: AnyMachine, workflow: str, context: object, by: str | None
    ) -> StatementGenerator[View[Enum, object]]:
        """Start the workflow, or find that it has begun."""
        self._refuse_ended()
        command = Start(self._bound(machine), workflow, context, by=by)
        return cast("StatementGenerator[View[Enum, object]]", self._decide(command))

    def _refuse_ended(self) -> None:
        if self.over:
            raise BadUsage(
                "a transaction was used after the end of its block.",
                why="Its connection is its owner's again, and may be in another transaction.",
                fix="Send inside the block: async with engine.transaction(connection) as tx: await tx.send(…).",
            )

    def _decide(self, command: SendEvent | Start) -> StatementGenerator[object]:
        self._parts.refuse_if_closed()
        command.look = True
        for _ in range(ATTEMPTS_MAX):
            group = yield from self._group(command)
            try:
                answer = command.decide(group)
            except UserCodeError as error:
                self._parts.log_bug(command.workflow, error)
                raise
            staged = group.staged.get(command.workflow)
            if staged is not None and isinstance(answer, Moved) and (answer.duplicate or answer.ignored):
                staged.touch()  # The row is locked already, so the count is written immediately.
            if staged is None or not staged.touched:
                return answer
            written = yield from self._requests.write(staged.change(), hint=_due(staged, group.now_us))
            if written:
                self._parts.charts.count_from_thread(staged, group.now_us)
                return answer
        raise VersionConflict(
            f"workflow {command.workflow!r} kept coming and going while this was decided, {ATTEMPTS_MAX} times."
        )

    def _group(self, command: SendEvent | Start) -> StatementGenerator[Group]:
        workflow, key = command.workflow, command.key
        # A start that finds the workflow changes nothing, and need not lock it.
        now_us, row = yield from self._requests.load(workflow, lock=not command.begins)
        live: dict[str, LoadedWorkflow] = {}
        delivered: dict[tuple[str, str], Delivered] = {}
        if row is not None:
            live[workflow] = yield from self._read(row)
            if key is not None:
                found = yield from self._requests.delivered(workflow, key)
                if found is not None:
                    delivered[workflow, key] = found
        means = DecisionContext(self._ids, Places(0, 0, 0), shared=True)
        # History does not go back in time, also where the database's clock was set back.
        means.now_us = now_us if row is None else max(now_us, row.updated_us)
        return Group(means, live, delivered)

    def _read(self, row: Row) -> StatementGenerator[LoadedWorkflow]:
        bound = machine_of(row, self._parts.machines)
        if not bound.is_compared(row):
            notes = yield from self._requests.notes()
            compare_version(bound, row.machine_version, row.state, notes)
        return bound.decidable(row)


def _due(staged: Staged, now_us: int) -> bool:
    wake_us = staged.live.row.wake_us
    return bool(staged.effects) or (wake_us is not None and wake_us <= now_us)


def _transactions(store: Store) -> Transactions:
    if isinstance(store, Transactional):
        return store.transactions()
    raise BadUsage(
        "this engine's store is not PostgreSQL.",
        why="Only there the tables of workflows can be written by a transaction of yours.",
        fix="Open the engine with postgresql://…, in the database that your own tables are in; or use engine.send.",
    )


# --- Placeholders: `$1` as PostgreSQL and asyncpg have them, `%(p1)s` for psycopg ------------------------------------
# A parameter may occur in a statement twice, so it gets a name. The types stand in the statement itself
# (`$1::text[]`), so that nothing depends on what a driver makes of a list that contains only None.

STATEMENTS_MAX = 1_000
"""Cached translations: a few dozen for each schema that this process uses."""

_PLACE = re.compile(r"\$(\d+)")


@lru_cache(maxsize=STATEMENTS_MAX)
def with_named_placeholders(sql: str) -> str:
    """Return the statement for psycopg."""
    return _PLACE.sub(r"%(p\1)s", sql.replace("%", "%%"))


def named_values(values: Sequence[object]) -> dict[str, object]:
    """Return the values of such a statement."""
    return {f"p{place}": value for place, value in enumerate(values, 1)}


# --- SQLAlchemy: its driver and the owner of the commit --------------------------------------------------------------
# A connection of SQLAlchemy begins a transaction by itself and leaves it to its owner, except on the isolation level
# AUTOCOMMIT, where there is nothing to roll back with: that is refused.

DRIVERS = ("asyncpg", "psycopg")


class SqlalchemyDialectNames(Protocol):
    """The attributes of SQLAlchemy's dialect that are used here."""

    name: str
    driver: str


def for_driver(dialect: SqlalchemyDialectNames, sql: str, values: Sequence[object]) -> tuple[str, object]:
    """Return the statement and its values as the driver takes them. Raises BadUsage for a driver that is not known."""
    if dialect.name != "postgresql" or dialect.driver not in DRIVERS:
        raise BadUsage(
            f"the connection of SQLAlchemy goes to {dialect.name} by {dialect.driver}.",
            why="An event is written into the tables of workflows in PostgreSQL, with asyncpg or psycopg 3.",
            fix="Make its engine with postgresql+psycopg://… or postgresql+asyncpg://…, to the store's database.",
        )
    if dialect.driver == "asyncpg":
        return sql, tuple(values)
    return with_named_placeholders(sql), named_values(values)


def refuse_autocommit(driver: object) -> None:
    """Raise BadUsage where each statement would be committed by itself."""
    if getattr(driver, "autocommit", False):
        raise BadUsage(
            "the connection of SQLAlchemy has the isolation level AUTOCOMMIT.",
            why="Each statement would be committed by itself: the event could not be rolled back with your data.",
            fix="Use a connection with a transaction: one without isolation_level='AUTOCOMMIT'.",
        )


# --- Connections without an event loop -------------------------------------------------------------------------------
# No driver is imported, so the adapters see connections as Any; tests/integration/postgres/transactions runs each.

Rows = Sequence[Sequence[Any]]


class SyncAdapter(Protocol):
    """A connection without an event loop."""

    def transaction(self) -> AbstractContextManager[object]:
        """Return the context of a block's statements: a transaction, if the connection has none and begins none."""
        ...

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement; the driver's own exceptions pass through."""
        ...


class PsycopgConnection:
    """A connection of psycopg 3."""

    def __init__(self, connection: object) -> None:
        self._connection: Any = connection

    def transaction(self) -> AbstractContextManager[object]:
        """Return a transaction, in the autocommit mode and outside of one."""
        return self._connection.transaction() if _stands_alone(self._connection) else nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        with sys.modules["psycopg"].Cursor(self._connection, row_factory=_as_tuples) as cursor:
            cursor.execute(with_named_placeholders(sql), named_values(values))
            rows: Rows = cursor.fetchall()
            return rows


class AlchemyConnection:
    """A `Connection` of SQLAlchemy, which begins a transaction by itself with its first statement.

    A `Session` is used by the connection of the transaction it is in.
    """

    def __init__(self, lent: object, *, session: bool = False) -> None:
        self._lent: Any = lent
        self._session = session

    def transaction(self) -> AbstractContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = self._lent.connection() if self._session else self._lent
        text, converted = for_driver(connection.dialect, sql, values)
        refuse_autocommit(connection.connection.dbapi_connection)
        rows: Rows = connection.exec_driver_sql(text, converted).all()
        return rows


def _stands_alone(connection: Any) -> bool:  # noqa: ANN401
    """Return whether a statement of psycopg would be a transaction for itself."""
    return bool(connection.autocommit and connection.info.transaction_status == 0)


def _as_tuples(cursor: object) -> Callable[[Sequence[object]], Sequence[object]]:
    """Return psycopg's row factory for rows by place, which overrides the connection's own."""
    del cursor
    return tuple


# --- Connections in an event loop ------------------------------------------------------------------------------------


class AsyncAdapter(Protocol):
    """A connection in an event loop."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Return the context of a block's statements: a transaction, if the connection has none and begins none."""
        ...

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement; the driver's own exceptions pass through."""
        ...


class AsyncpgConnection:
    """A connection of asyncpg, on its own or out of a pool."""

    def __init__(self, connection: object) -> None:
        self._connection: Any = connection

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Return a transaction, outside of one."""
        return nullcontext() if self._connection.is_in_transaction() else self._connection.transaction()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        rows: Rows = await self._connection.fetch(sql, *values)
        return rows


class AsyncPsycopgConnection:
    """A connection of psycopg 3 in an event loop."""

    def __init__(self, connection: object) -> None:
        self._connection: Any = connection

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Return a transaction, in the autocommit mode and outside of one."""
        return self._connection.transaction() if _stands_alone(self._connection) else nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        # Its own factory may make cursors of another kind: other placeholders, other rows.
        async with sys.modules["psycopg"].AsyncCursor(self._connection, row_factory=_as_tuples) as cursor:
            await cursor.execute(with_named_placeholders(sql), named_values(values))
            rows: Rows = await cursor.fetchall()
            return rows


class AsyncAlchemyConnection:
    """An `AsyncConnection` of SQLAlchemy, or an `AsyncSession`: as `AlchemyConnection`."""

    def __init__(self, lent: object, *, session: bool = False) -> None:
        self._lent: Any = lent
        self._session = session

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Do nothing: the owner of the connection commits."""
        return nullcontext()

    async def run(self, sql: str, values: Sequence[object]) -> Rows:
        """Run one statement."""
        connection = await self._lent.connection() if self._session else self._lent
        text, converted = for_driver(connection.dialect, sql, values)
        refuse_autocommit((await connection.get_raw_connection()).dbapi_connection)
        rows: Rows = (await connection.exec_driver_sql(text, converted)).all()
        return rows


# --- Choice of the adapter -------------------------------------------------------------------------------------------

ASYNC_ADAPTERS: dict[tuple[str, str], Callable[[object], AsyncAdapter]] = {
    ("asyncpg", "Connection"): AsyncpgConnection,
    ("asyncpg", "PoolConnectionProxy"): AsyncpgConnection,
    ("psycopg", "AsyncConnection"): AsyncPsycopgConnection,
    ("sqlalchemy", "AsyncConnection"): AsyncAlchemyConnection,
    ("sqlalchemy", "AsyncSession"): partial(AsyncAlchemyConnection, session=True),
    ("sqlalchemy", "async_scoped_session"): partial(AsyncAlchemyConnection, session=True),
}
SYNC_ADAPTERS: dict[tuple[str, str], Callable[[object], SyncAdapter]] = {
    ("psycopg", "Connection"): PsycopgConnection,
    ("sqlalchemy", "Connection"): AlchemyConnection,
    ("sqlalchemy", "Session"): partial(AlchemyConnection, session=True),
    ("sqlalchemy", "scoped_session"): partial(AlchemyConnection, session=True),
}
"""By the top-level module and the name of the class."""

CONNECTION_FACTORIES = {
    "Pool",
    "ConnectionPool",
    "AsyncConnectionPool",
    "Engine",
    "AsyncEngine",
    "sessionmaker",
    "async_sessionmaker",
}
"""Classes that hand out connections, and are not one."""


def async_adapter(connection: object) -> AsyncAdapter:
    """Return the adapter for an event loop. Raises BadUsage for other objects, or one that cannot be awaited."""
    for name in _class_names(connection):
        if name in ASYNC_ADAPTERS:
            return ASYNC_ADAPTERS[name](connection)
        if name in SYNC_ADAPTERS:
            raise BadUsage(
                f"{_class_name(connection)} is a connection without an event loop, and was entered with `async with`.",
                why="Its statements block; nothing about it can be awaited.",
                fix="Write `with engine.transaction(connection) as tx`, and tx.send(…) without await.",
            )
    raise _not_a_connection(connection)


def sync_adapter(connection: object) -> SyncAdapter:
    """Return the adapter without an event loop. Raises BadUsage for other objects, or one that must be awaited."""
    for name in _class_names(connection):
        if name in SYNC_ADAPTERS:
            return SYNC_ADAPTERS[name](connection)
        if name in ASYNC_ADAPTERS:
            raise BadUsage(
                f"{_class_name(connection)} is a connection of an event loop, and was entered with `with`.",
                why="Its statements must be awaited in the event loop it was opened in.",
                fix="Write `async with engine.transaction(connection) as tx`, on an Engine, and await tx.send(…).",
            )
    raise _not_a_connection(connection)


def refuse_unknown(connection: object) -> None:
    """Raise BadUsage for an object that is not a known connection."""
    if not any(name in ASYNC_ADAPTERS or name in SYNC_ADAPTERS for name in _class_names(connection)):
        raise _not_a_connection(connection)


def _class_names(connection: object) -> list[tuple[str, str]]:
    return [(each.__module__.partition(".")[0], each.__name__) for each in type(connection).__mro__]


def _class_name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"


def _not_a_connection(connection: object) -> BadUsage:
    fix = "Hand over a connection of asyncpg or psycopg 3, or a connection or session of SQLAlchemy 2."
    if type(connection).__name__ in CONNECTION_FACTORIES:
        fix = "Take a connection out of it, begin your transaction there, and hand over the connection."
    elif type(connection).__module__.startswith("psycopg2"):
        fix = "Use psycopg 3, whose module is called psycopg."
    return BadUsage(
        f"{_class_name(connection)} is not a connection that an event can be sent in.",
        why="The event is written on your own connection, inside your transaction, by the means of its driver.",
        fix=fix,
    )


# --- Transactions ----------------------------------------------------------------------------------------------------


class Transaction:
    """The caller's transaction, in an event loop. Made by `async with engine.transaction(connection)`."""

    def __init__(self, calls: TransactionCalls, connection: AsyncAdapter) -> None:
        self._calls = calls
        self._connection = connection

    async def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: Beginning | None = None,
        by: str | None = None,
    ) -> Moved[Enum]:
        """Send an event as `Engine.send`, in this transaction. The answer holds if the transaction commits.

        The workflow is locked until then. A refusal leaves the transaction as it was.
        """
        statements = self._calls.send(
            workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version, start=start, by=by
        )
        return await self._exchange(statements)

    async def start(
        self,
        machine: Machine[StateT, ContextT, EventT],
        workflow: str,
        context: ContextT,
        *,
        by: str | None = None,
    ) -> View[StateT, ContextT]:
        """As `Engine.start`, in this transaction."""
        statements = self._calls.start(machine, workflow, context, by)
        return cast("View[StateT, ContextT]", await self._exchange(statements))

    async def _exchange(self, statements: StatementGenerator[ResultT]) -> ResultT:
        try:
            sql, values = next(statements)
            while True:
                sql, values = statements.send(await self._connection.run(sql, values))
        except StopIteration as end:
            return cast("ResultT", end.value)


class BlockingTransaction:
    """The caller's transaction, without an event loop. Made by `with engine.transaction(connection)`."""

    def __init__(self, calls: TransactionCalls, connection: SyncAdapter) -> None:
        self._calls = calls
        self._connection = connection

    def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: Beginning | None = None,
        by: str | None = None,
    ) -> Moved[Enum]:
        """As `Transaction.send`, from any thread."""
        statements = self._calls.send(
            workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version, start=start, by=by
        )
        return self._exchange(statements)

    def start(
        self,
        machine: Machine[StateT, ContextT, EventT],
        workflow: str,
        context: ContextT,
        *,
        by: str | None = None,
    ) -> View[StateT, ContextT]:
        """As `Transaction.start`, from any thread."""
        statements = self._calls.start(machine, workflow, context, by)
        return cast("View[StateT, ContextT]", self._exchange(statements))

    def _exchange(self, statements: StatementGenerator[ResultT]) -> ResultT:
        try:
            sql, values = next(statements)
            while True:
                sql, values = statements.send(self._connection.run(sql, values))
        except StopIteration as end:
            return cast("ResultT", end.value)


class TransactionBlock:
    """A borrowed connection: enter it with `async with`, or with `with`, as the connection is."""

    def __init__(self, calls: TransactionCalls, connection: object) -> None:
        refuse_unknown(connection)
        self._calls = calls
        self._lent = connection
        self._awaited: AbstractAsyncContextManager[object] | None = None
        self._direct: AbstractContextManager[object] | None = None

    async def __aenter__(self) -> Transaction:
        """Borrow a connection of an event loop."""
        connection = async_adapter(self._lent)
        self._refuse_twice()
        self._awaited = connection.transaction()
        await self._awaited.__aenter__()
        return Transaction(self._calls, connection)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Return the connection; commit a transaction of the block's own, or roll it back if the block raised."""
        self._calls.over = True
        assert self._awaited is not None
        return await self._awaited.__aexit__(kind, error, trace)

    def __enter__(self) -> BlockingTransaction:
        """Borrow a connection without an event loop."""
        connection = sync_adapter(self._lent)
        self._refuse_twice()
        self._direct = connection.transaction()
        self._direct.__enter__()
        return BlockingTransaction(self._calls, connection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Return the connection, as `__aexit__` does."""
        self._calls.over = True
        assert self._direct is not None
        return self._direct.__exit__(kind, error, trace)

    def _refuse_twice(self) -> None:
        if self._awaited is not None or self._direct is not None:
            raise BadUsage(
                "a transaction's block was entered a second time.",
                why="A block is one stretch of one transaction.",
                fix="Call engine.transaction(connection) again for the next one.",
            )
