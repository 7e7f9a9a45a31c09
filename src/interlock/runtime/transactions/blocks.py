"""`engine.transaction(connection)`: a block in which events are sent inside the caller's own transaction.

async with engine.transaction(connection) as tx:    # `with`, and no await, for a connection without an event loop
    await tx.send("o-1", Submit(cents=5))
    await tx.start(order, "o-2", Order())

The block commits nothing that is not its own: a transaction that is open, or that the connection begins by itself, is
the caller's. Only a connection that would commit each statement by itself gets a transaction for the block.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import Enum
from types import TracebackType
from typing import TypeVar, cast

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import ContextT, StateT
from interlock.errors import BadUsage
from interlock.runtime.bound import AnyMachine, Bound
from interlock.runtime.envelopes import Send, Start, check_id
from interlock.runtime.transactions.deciding import Deciding
from interlock.runtime.views import Moved, View
from interlock.sql.postgres.borrowed.awaited import Awaited
from interlock.sql.postgres.borrowed.direct import Direct
from interlock.sql.postgres.borrowed.kinds import awaited, direct, refuse_unknown
from interlock.store.transactional import Asking

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")


class Acting:
    """The common part of both kinds of transaction: the decisions, and whether the block is still open."""

    def __init__(self, deciding: Deciding, bound: Callable[[AnyMachine], Bound]) -> None:
        self._deciding = deciding
        self._bound = bound
        self.over = False

    def sending(
        self, workflow: str, event: Event, *, key: str | None, if_allowed: bool, expect_version: int | None
    ) -> Asking[Moved[Enum]]:
        """Return the requests of sending an event."""
        self._refuse_ended()
        check_id(workflow, "the id of a workflow")
        envelope = Send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return self._deciding.send(envelope)

    def starting(self, machine: AnyMachine, workflow: str, context: object) -> Asking[View[Enum, object]]:
        """Return the requests of starting a workflow."""
        self._refuse_ended()
        return self._deciding.start(Start(self._bound(machine), workflow, context))

    def _refuse_ended(self) -> None:
        if self.over:
            raise BadUsage(
                "a transaction was used after the end of its block.",
                why="Its connection is its owner's again, and may be in another transaction.",
                fix="Send inside the block: async with engine.transaction(connection) as tx: await tx.send(…).",
            )


class Transaction:
    """The caller's transaction, in an event loop. Made by `async with engine.transaction(connection)`."""

    def __init__(self, acting: Acting, connection: Awaited) -> None:
        self._acting = acting
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
        asking = self._acting.sending(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return await self._exchange(asking)

    async def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """As `Engine.start`, in this transaction."""
        asking = self._acting.starting(machine, workflow, context)
        return cast("View[StateT, ContextT]", await self._exchange(asking))

    async def _exchange(self, asking: Asking[ResultT]) -> ResultT:
        try:
            sql, values = next(asking)
            while True:
                sql, values = asking.send(await self._connection.run(sql, values))
        except StopIteration as end:
            return cast("ResultT", end.value)


class BlockingTransaction:
    """The caller's transaction, without an event loop. Made by `with engine.transaction(connection)`."""

    def __init__(self, acting: Acting, connection: Direct) -> None:
        self._acting = acting
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
        asking = self._acting.sending(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return self._exchange(asking)

    def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """As `Transaction.start`, from any thread."""
        asking = self._acting.starting(machine, workflow, context)
        return cast("View[StateT, ContextT]", self._exchange(asking))

    def _exchange(self, asking: Asking[ResultT]) -> ResultT:
        try:
            sql, values = next(asking)
            while True:
                sql, values = asking.send(self._connection.run(sql, values))
        except StopIteration as end:
            return cast("ResultT", end.value)


class TransactionBlock:
    """A borrowed connection: enter it with `async with`, or with `with`, as the connection is."""

    def __init__(self, acting: Acting, connection: object) -> None:
        refuse_unknown(connection)
        self._acting = acting
        self._lent = connection
        self._awaited: AbstractAsyncContextManager[object] | None = None
        self._direct: AbstractContextManager[object] | None = None

    async def __aenter__(self) -> Transaction:
        """Borrow a connection of an event loop."""
        connection = awaited(self._lent)
        self._refuse_twice()
        self._awaited = connection.whole()
        await self._awaited.__aenter__()
        return Transaction(self._acting, connection)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Return the connection; commit a transaction of the block's own, or roll it back if the block raised."""
        self._acting.over = True
        assert self._awaited is not None
        return await self._awaited.__aexit__(kind, error, trace)

    def __enter__(self) -> BlockingTransaction:
        """Borrow a connection without an event loop."""
        connection = direct(self._lent)
        self._refuse_twice()
        self._direct = connection.whole()
        self._direct.__enter__()
        return BlockingTransaction(self._acting, connection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Return the connection, as `__aexit__` does."""
        self._acting.over = True
        assert self._direct is not None
        return self._direct.__exit__(kind, error, trace)

    def _refuse_twice(self) -> None:
        if self._awaited is not None or self._direct is not None:
            raise BadUsage(
                "a transaction's block was entered a second time.",
                why="A block is one stretch of one transaction.",
                fix="Call engine.transaction(connection) again for the next one.",
            )
