"""`engine.transaction(connection)`: a block in which events are sent inside the caller's own transaction.

async with engine.transaction(connection) as tx:    # `with`, and no await, for a connection without an event loop
    await tx.send("o-1", Submit(cents=5))
    await tx.start(order, "o-2", Order())

The block commits nothing that is not its own: a transaction that is open, or that the connection begins by itself, is
the caller's. Only a connection that would commit each statement by itself gets a transaction for the block. Nothing
begins in it: what is owed is due immediately, and workers take it up after the commit. Observers get no signals.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import Enum
from types import TracebackType
from typing import TypeVar, cast

from interlock.clock import Ids
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import ContextT, StateT
from interlock.engine.bound_machine import AnyMachine, BoundMachine, LoadedWorkflow
from interlock.engine.definitions import compare_version
from interlock.engine.dependencies.wait_queue import Places
from interlock.engine.internals import EngineParts
from interlock.engine.path.caller_commands import Send, Start, check_id
from interlock.engine.path.pipeline import machine_of
from interlock.engine.path.staging import DecisionContext, Group, Staged
from interlock.engine.views import Moved, View
from interlock.errors import BadUsage, UserCodeError, VersionConflict
from interlock.postgres.caller_connections import AsyncAdapter, SyncAdapter, async_adapter, refuse_unknown, sync_adapter
from interlock.store.protocol import StatementGenerator, Store, Transactional, Transactions
from interlock.store.records import Delivered, Row

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")

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
        self, workflow: str, event: Event, *, key: str | None, if_allowed: bool, expect_version: int | None
    ) -> StatementGenerator[Moved[Enum]]:
        """Apply the event, or raise the refusal; before that nothing is written."""
        self._refuse_ended()
        check_id(workflow, "the id of a workflow")
        command = Send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return cast("StatementGenerator[Moved[Enum]]", self._decide(command))

    def start(self, machine: AnyMachine, workflow: str, context: object) -> StatementGenerator[View[Enum, object]]:
        """Start the workflow, or find that it has begun."""
        self._refuse_ended()
        command = Start(self._bound(machine), workflow, context)
        return cast("StatementGenerator[View[Enum, object]]", self._decide(command))

    def _refuse_ended(self) -> None:
        if self.over:
            raise BadUsage(
                "a transaction was used after the end of its block.",
                why="Its connection is its owner's again, and may be in another transaction.",
                fix="Send inside the block: async with engine.transaction(connection) as tx: await tx.send(…).",
            )

    def _decide(self, command: Send | Start) -> StatementGenerator[object]:
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
                return answer
        raise VersionConflict(
            f"workflow {command.workflow!r} kept coming and going while this was decided, {ATTEMPTS_MAX} times."
        )

    def _group(self, command: Send | Start) -> StatementGenerator[Group]:
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
        means = DecisionContext(self._ids, Places(0, 0, 0))
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
    ) -> Moved[Enum]:
        """Send an event as `Engine.send`, in this transaction. The answer holds if the transaction commits.

        The workflow is locked until then. A refusal leaves the transaction as it was.
        """
        statements = self._calls.send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return await self._exchange(statements)

    async def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """As `Engine.start`, in this transaction."""
        statements = self._calls.start(machine, workflow, context)
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
    ) -> Moved[Enum]:
        """As `Transaction.send`, from any thread."""
        statements = self._calls.send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return self._exchange(statements)

    def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """As `Transaction.start`, from any thread."""
        statements = self._calls.start(machine, workflow, context)
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
