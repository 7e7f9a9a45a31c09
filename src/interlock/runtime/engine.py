"""`Engine`: the public class that runs machines as durable workflows. `pipeline` decides, `runner` runs steps.

async with Engine.open("lanes:///var/shop", machines=[order]) as engine:
    await engine.start(order, "o-1", Order())
    await engine.send("o-1", Submit(cents=999), key="click-7")
    view = await engine.wait("o-1")
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TypeVar, cast

from interlock.core.allowed import allowed as allowed_here
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Dependency
from interlock.core.values import Allowed, ContextT, StateT
from interlock.errors import InterlockError, UnavailableError
from interlock.runtime.alerts.receivers import Receiver
from interlock.runtime.bound import AnyMachine, Bound, Live, Strategy
from interlock.runtime.envelopes import Send, Start, check_id, no_workflow
from interlock.runtime.following import Follower
from interlock.runtime.inside import Inside
from interlock.runtime.leases import LEASE_S, WAIT_S, Leasing
from interlock.runtime.opening import Opening
from interlock.runtime.operating import PAGE_MAX, Operating, repeated
from interlock.runtime.presence import confirm, is_here
from interlock.runtime.settings import Admission
from interlock.runtime.transactions.blocks import Acting, TransactionBlock
from interlock.runtime.transactions.deciding import Deciding
from interlock.runtime.typed import Workflows
from interlock.runtime.views import (
    Counts,
    HistoryRow,
    Moved,
    Page,
    Refused,
    View,
    history_row,
    view_of,
)
from interlock.runtime.waiters import Waiter
from interlock.seams import Chance, Clock, Ids
from interlock.signals import Observer

EventT = TypeVar("EventT", bound=Event)

PAGE = 1_000


class Engine(Operating):
    """An open engine. Make one with `Engine.open`."""

    def __init__(self, inside: Inside, follower: Follower | None = None) -> None:
        super().__init__(inside, follower)
        self._loop = asyncio.get_running_loop()

    @staticmethod
    def open(
        url: str,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency] = (),
        steps: Mapping[object, Strategy] | None = None,
        worker: bool = True,
        admission: Admission | None = None,
        observers: Iterable[Observer | str] = (),
        alerts: Sequence[Receiver] = (),
        clock: Clock | None = None,
        chance: Chance | None = None,
        ids: Ids | None = None,
        cache: str | None = None,
        redis: str | None = None,
        accept_changes: bool = False,
        **settings: float,
    ) -> "Opening[Engine]":
        """Open an engine: `async with Engine.open(url, machines=[…]) as engine`, or `engine = await Engine.open(…)`.

        `steps` swaps strategies: a step, an undo's function or an effect's function for another function. With
        `worker=False` events are taken and no step runs. Settings are those of `EngineSettings`, and of `LaneSettings`
        for the store. `observers` are functions, or names: "prometheus", "logs", and "otel", which is the default
        where the program has set a provider. `alerts` receive stalled workflows and dead letters: `AlertWebhook`,
        `PagerDuty`. `accept_changes` opens although the plan has losses. With `redis`, or INTERLOCK_REDIS, leases,
        limits and breakers are those of a cluster: "redis://127.0.0.1:6379/0?prefix=shop".
        """
        return Opening(
            Engine,
            url,
            machines=machines,
            dependencies=dependencies,
            steps=steps or {},
            worker=worker,
            admission=admission or Admission(),
            observers=observers if isinstance(observers, str) else tuple(observers),
            alerts=alerts,
            clock=clock,
            chance=chance,
            ids=ids,
            cache=cache,
            redis=redis,
            accept_changes=accept_changes,
            settings=settings,
        )

    # --- starting and sending ----------------------------------------------------------------------------------------

    async def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """Start a workflow. The same id with the same input again returns the one that exists (B4)."""
        return cast("View[StateT, ContextT]", await self._admit(Start(self._bound(machine), workflow, context)))

    async def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[Enum]:
        """Send an event; returns when its effect is durable. Raises the refusal if it is refused.

        A `key` makes the delivery idempotent: the same again returns the first answer (B5). With `if_allowed` an event
        that has no transition here is answered as ignored.
        """
        self._check_known(workflow)
        envelope = Send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return cast("Moved[Enum]", await self._admit(envelope))

    async def send_many(
        self, items: Iterable[tuple[str, Event] | tuple[str, Event, str | None]]
    ) -> list[Moved[Enum] | Refused]:
        """Send many events, each with its workflow and, unless left out, its key; one answer per item, in order.

        Those of one workflow are applied in the order given.
        """
        requests: list[Send | Refused] = []
        for item in items:
            try:
                self._check_known(item[0])
                requests.append(Send(item[0], item[1], key=item[2] if len(item) > 2 else None))  # noqa: PLR2004 -- as typed.
            except InterlockError as error:
                requests.append(Refused(error))
        answers = self._admit_many(requests)
        for answer in answers:
            # Most are answered together: after the wait for the first, the others are done.
            if not isinstance(answer, Refused) and not answer.done():
                await asyncio.wait([answer])
        return [answer if isinstance(answer, Refused) else _moved_or_refused(answer) for answer in answers]

    def transaction(self, connection: object) -> TransactionBlock:
        """Send events inside a transaction of your own, on PostgreSQL: they commit or roll back with your data (B11).

        `async with engine.transaction(connection) as tx: await tx.send(…)`, or `with` and without `await` for a
        connection without an event loop, from any thread. It is one of asyncpg, psycopg 3 or SQLAlchemy 2.
        """
        deciding = Deciding(self._inside, self._pipeline.means.ids)
        return TransactionBlock(Acting(deciding, self._bound), connection)

    # --- reading -----------------------------------------------------------------------------------------------------

    @repeated
    async def get(self, workflow: str) -> View[Enum, object]:
        """Return the durable state of the workflow."""
        return view_of(await self._load(workflow))

    def of(self, machine: Machine[StateT, ContextT, EventT]) -> Workflows[StateT, ContextT, EventT]:
        """Return the same calls, typed by the machine."""
        self._bound(machine)
        return Workflows(self, machine)

    @repeated
    async def wait(self, workflow: str, *states: Enum, timeout_s: float | None = None) -> View[Enum, object]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting.

        Raises WaitFailed when it ends in another final state, WaitTimeout when the time is over.
        """
        self._inside.refuse_if_closed()
        waiter = Waiter(states)
        waiters = self._inside.waiters
        waiters.add(workflow, waiter)
        timer = None
        try:
            live = self._inside.supposed(workflow)
            if live is None or waiter.arrived(live):
                live = await self._load(workflow)
            for state in states:
                live.bound.node(state)  # Raises: a wait for a state of another machine would never end.
            if waiter.arrived(live):
                return view_of(live)
            if timeout_s is not None:
                timer = self._loop.call_later(timeout_s, self._time_out, workflow, waiter, timeout_s)
            return view_of(await waiter.future)
        finally:
            waiters.remove(workflow, waiter)
            if timer is not None:
                timer.cancel()

    @repeated
    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[Enum, object]]:
        """Return the history of the workflow after a version, in the order of versions (B3, B8); all unless limited."""
        bound = (await self._load(workflow)).bound
        rows: list[HistoryRow[Enum, object]] = []
        while limit is None or len(rows) < limit:
            most = PAGE if limit is None else min(PAGE, limit - len(rows))
            page = await self._store.history(workflow, after=rows[-1].version if rows else after, limit=most)
            rows += [history_row(bound, happened) for happened in page]
            if len(page) < most:
                break
        return rows

    @repeated
    async def find(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """Return a page of the workflows of a machine. Pass the `cursor` of the page before; None at the end (B8)."""
        bound = self._bound(machine)
        self._inside.refuse_if_closed()
        wanted = None if state is None else bound.node(state).name
        found = await self._store.find(bound.name, wanted, after=cursor, limit=max(1, min(limit, PAGE_MAX)))
        lives = self._inside.readable(bound, found.rows)
        return Page(tuple(cast("View[StateT, ContextT]", view_of(live)) for live in lives), found.cursor)

    @repeated
    async def stalled(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        older_than_s: float | None = None,
        states: Iterable[StateT] | None = None,
        limit: int = 1_000,
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that have been in their state for too long; by default, longer than declared (B7).

        Those that have waited longest come first.
        """
        bound = self._bound(machine)
        self._inside.refuse_if_closed()
        now_us = self._store.now_us()
        nodes = bound.table.nodes.values() if states is None else [bound.node(state) for state in states]
        before: dict[str, int] = {}
        for node in nodes:
            dwell_s = older_than_s if older_than_s is not None else node.dwell_max_s
            if node.active and dwell_s is not None:
                before[node.name] = now_us - int(dwell_s * 1_000_000)
        rows = await self._store.stalled(bound.name, before, limit=max(1, min(limit, PAGE_MAX)))
        lives = self._inside.readable(bound, rows)
        return [cast("View[StateT, ContextT]", view_of(live)) for live in lives]

    @repeated
    async def allowed(self, workflow: str, event: Event | None = None) -> list[Allowed[Enum]]:
        """Return the events that have a transition from the workflow's state (A6)."""
        live = await self._load(workflow)
        return allowed_here(live.bound.table, live.snapshot, event)

    @repeated
    async def stats(self, workflow: str) -> Counts:
        """Return the counts of applied, duplicate, ignored and refused events (B5)."""
        row, more = await self._inside.counted(workflow, partial(self._load, workflow))
        duplicate, ignored, refused = (stored + here for stored, here in zip(row.counts, more, strict=True))
        return Counts(applied=row.version - 1, duplicate=duplicate, ignored=ignored, refused=refused)

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` with everything that happens from now on (A9)."""
        self._inside.subscribers.subscribe(observer)

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling `observer`."""
        self._inside.subscribers.unsubscribe(observer)

    # --- leases and closing ------------------------------------------------------------------------------------------

    def lease(self, name: str, *, wait_s: float = WAIT_S, lease_s: float = LEASE_S) -> Leasing:
        """Acquire a lease, held by one process at a time (C10): `async with engine.lease("nightly-report") as lease`.

        Waits up to `wait_s`, then raises LeaseHeld; 0 asks once. It is renewed while the block runs, and expires after
        `lease_s` when this process dies. `lease.token` grows with every holder, `lease.check()` raises Fenced
        when it was lost.
        """
        self._inside.refuse_if_closed()
        return Leasing(self._inside.leases, name, wait_s=wait_s, lease_s=lease_s)

    async def close(self) -> None:
        """Stop claiming, wait for running steps for `drain_s`, cancel the rest, and close the store."""
        if self._follower is None:
            await self._inside.close()
        else:
            await self._follower.close()

    # --- internals ---------------------------------------------------------------------------------------------------

    def _admit(self, envelope: Start | Send) -> "asyncio.Future[object]":
        self._inside.refuse_if_closed()
        self._inside.gate.enter(starts=isinstance(envelope, Start))
        envelope.since_s = self._loop.time()
        if self._inside.tracing is not None:
            self._inside.tracing.called(envelope.workflow)
        return self._pipeline.admit(envelope)

    def _admit_many(self, requests: "Sequence[Send | Refused]") -> "list[asyncio.Future[object] | Refused]":
        """Admit many events in their order; those for which there is room are admitted together."""
        inside, admit, since_s = self._inside, self._pipeline.admit, self._loop.time()
        room = 0
        if inside.tracing is None:
            with suppress(InterlockError):  # Each event gets its own error below.
                inside.refuse_if_closed()
                room = inside.gate.enter_many(sum(type(each) is Send for each in requests))
        answers: list[asyncio.Future[object] | Refused] = []
        for each in requests:
            if isinstance(each, Refused):
                answers.append(each)
            elif room:
                room -= 1
                each.since_s = since_s
                answers.append(admit(each))
            else:
                try:
                    answers.append(self._admit(each))
                except InterlockError as error:
                    answers.append(Refused(error))
        return answers

    def _time_out(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        self._inside.over(workflow, waiter, timeout_s)  # The workflows may have moved since the wait began.

    def _check_known(self, workflow: str) -> None:
        if self._pipeline.known(workflow) is None:
            check_id(workflow, "the id of a workflow")

    async def _load(self, workflow: str) -> Live:
        self._inside.refuse_if_closed()
        live = self._pipeline.known(workflow)
        if live is not None and not is_here(self._store):
            await confirm(self._store)
            live = self._pipeline.known(workflow)
        if live is None:
            check_id(workflow, "the id of a workflow")
            row = await self._inside.row(workflow)
            if row is None:
                raise no_workflow(workflow)
            live = self._inside.read(row)
        return live

    def _bound(self, machine: AnyMachine) -> Bound:
        value: object = machine  # Not every caller has a type checker.
        name = machine.name if isinstance(value, Machine) else repr(value)
        bound = self._inside.machines.get(name)
        if bound is None or bound.machine is not machine:
            known = ", ".join(sorted(self._inside.machines)) or "none"
            raise UnavailableError(
                f"machine {name!r} was not given to this engine; it has {known}.",
                why="An engine runs the machines it was opened with, and those very objects.",
                fix="Open the engine with it: Engine.open(url, machines=[…]).",
            )
        return bound


def _moved_or_refused(answer: "asyncio.Future[object]") -> Moved[Enum] | Refused:
    error = answer.exception()
    if error is None:
        return cast("Moved[Enum]", answer.result())
    if isinstance(error, InterlockError):
        return Refused(error)
    raise error
