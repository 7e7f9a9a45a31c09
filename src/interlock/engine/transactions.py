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

from interlock.clock import Ids
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import ContextT, StateT
from interlock.engine.bound_machine import AnyMachine, BoundMachine, LoadedWorkflow
from interlock.engine.definitions import compare_version
from interlock.engine.dependencies.wait_queue import Places
from interlock.engine.internals import EngineParts
from interlock.engine.path.commands import Send, Start, check_id
from interlock.engine.path.pipeline import Group, unknown_machine
from interlock.engine.path.staging import DecisionContext, Staged
from interlock.engine.views import Moved, View
from interlock.errors import BadUsage, UserCodeError, VersionConflict
from interlock.postgres.adapters import Awaited, Direct, awaited, direct, refuse_unknown
from interlock.store.protocol import StatementGenerator, Store, Transactional, Transactions
from interlock.store.values import Delivered, Row

# --- Decisions inside a transaction of the caller, without any input or output of their own --------------------------
# It is the data path for a group of one: the workflow is loaded, and locked if it is to be moved; the same envelopes
# decide; the same change is written. Requests to the database are yielded, and the rows come back. So the connection
# may be used in any thread, with or without an event loop.
#
# Nothing begins here, because it is unknown whether the transaction will commit. What is owed is due immediately,
# and workers take it up after the commit. For the same reason observers get no signals.

ATTEMPTS_MAX = 5
"""How often a start is decided again because another process has just started or removed the workflow."""


class Deciding:
    """The operations of a caller's transaction on the workflows of one engine."""

    def __init__(self, inside: EngineParts, ids: Ids) -> None:
        self._inside = inside
        self._ids = ids
        self._requests = _transactions(inside.store)

    def send(self, envelope: Send) -> StatementGenerator[Moved[Enum]]:
        """Apply the event, or raise the refusal; before that nothing is written."""
        return cast("StatementGenerator[Moved[Enum]]", self._passed(envelope))

    def start(self, envelope: Start) -> StatementGenerator[View[Enum, object]]:
        """Start the workflow, or find that it has begun."""
        return cast("StatementGenerator[View[Enum, object]]", self._passed(envelope))

    def _passed(self, envelope: Send | Start) -> StatementGenerator[object]:
        self._inside.refuse_if_closed()
        envelope.look = True
        for _ in range(ATTEMPTS_MAX):
            group = yield from self._group(envelope)
            try:
                answer = envelope.decide(group)
            except UserCodeError as error:
                self._inside.log_bug(envelope.workflow, error)
                raise
            staged = group.staged.get(envelope.workflow)
            if staged is not None and isinstance(answer, Moved) and (answer.duplicate or answer.ignored):
                staged.touch()  # The row is locked already, so the count is written immediately.
            if staged is None or not staged.touched:
                return answer
            written = yield from self._requests.write(staged.change(), hint=_due(staged, group.now_us))
            if written:
                return answer
        raise VersionConflict(
            f"workflow {envelope.workflow!r} kept coming and going while this was decided, {ATTEMPTS_MAX} times."
        )

    def _group(self, envelope: Send | Start) -> StatementGenerator[Group]:
        workflow, key = envelope.workflow, envelope.key
        # A start that finds the workflow changes nothing, and need not lock it.
        now_us, row = yield from self._requests.load(workflow, lock=not envelope.begins)
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
        bound = self._inside.machines.get(row.machine)
        if bound is None:
            raise unknown_machine(row)
        if not bound.is_compared(row):
            notes = yield from self._requests.noted()
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


# --- The module itself -----------------------------------------------------------------------------------------------

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")


class Acting:
    """The common part of both kinds of transaction: the decisions, and whether the block is still open."""

    def __init__(self, deciding: Deciding, bound: Callable[[AnyMachine], BoundMachine]) -> None:
        self._deciding = deciding
        self._bound = bound
        self.over = False

    def sending(
        self, workflow: str, event: Event, *, key: str | None, if_allowed: bool, expect_version: int | None
    ) -> StatementGenerator[Moved[Enum]]:
        """Return the requests of sending an event."""
        self._refuse_ended()
        check_id(workflow, "the id of a workflow")
        envelope = Send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return self._deciding.send(envelope)

    def starting(self, machine: AnyMachine, workflow: str, context: object) -> StatementGenerator[View[Enum, object]]:
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

    async def _exchange(self, asking: StatementGenerator[ResultT]) -> ResultT:
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

    def _exchange(self, asking: StatementGenerator[ResultT]) -> ResultT:
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
