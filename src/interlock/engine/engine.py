"""`Engine`: the public class that runs machines as durable workflows.

async with Engine.open("lanes:///var/shop", machines=[order]) as engine:
    await engine.start(order, "o-1", Order())
    await engine.send("o-1", Submit(cents=999), key="click-7")
    view = await engine.wait("o-1")

It checks arguments and admits calls; `path.commit_pipeline` decides them and `steps.runner` runs the steps. A reading
call is repeated at the new store if the workflows were moved meanwhile; calls that change a workflow wait in the
pipeline.

Sections: `Engine`; `Workflows`, the calls typed by a machine.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from types import EllipsisType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast

from interlock.clock import Chance, Clock, Ids
from interlock.core.decide import allowed as allowed_here
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Dependency, Seconds, in_seconds
from interlock.core.search import Where, search_of
from interlock.core.values import Allowed, ContextT, StateT
from interlock.engine.alerts.receivers import Receiver
from interlock.engine.bound_machine import AnyMachine, BoundMachine, LoadedWorkflow, RewindTarget, Strategy
from interlock.engine.caller_transactions import TransactionBlock, TransactionCalls
from interlock.engine.charts import Charts
from interlock.engine.dependencies.breakers import Breakers, change_limits, forced_state, view_of_line
from interlock.engine.dependencies.wait_queue import Line
from interlock.engine.engine_settings import Admission
from interlock.engine.families import WorkflowCalls
from interlock.engine.follow_moves import Follower
from interlock.engine.internals import EngineParts, moved_or_refused, not_called, not_given
from interlock.engine.leases import LEASE_S, WAIT_S, Leasing
from interlock.engine.open_engine import EngineOpening
from interlock.engine.operators.attempts import AttemptPage, read_attempts
from interlock.engine.operators.bulk import Bulk, BulkCalls, BulkSource
from interlock.engine.operators.bulk_runs import BulkRuns, RunCalls
from interlock.engine.operators.letter_commands import LetterCommands
from interlock.engine.operators.retention import BATCH, Pruned, Pruner
from interlock.engine.operators.rewind import RewindCall, record_at
from interlock.engine.operators.tasks import (
    ClaimTask,
    ReleaseTask,
    Task,
    TaskFilter,
    TaskPage,
    command_task,
    list_tasks,
    name_decision,
    person_of,
    read_task,
)
from interlock.engine.operators.why import Why, read_why
from interlock.engine.path.caller_commands import (
    Beginning,
    SendEvent,
    Settle,
    Start,
    TryAgain,
    check_id,
    check_kind,
    checked_actor,
    fork_of,
    no_workflow,
    start_of,
)
from interlock.engine.path.commit_pipeline import confirm, is_here
from interlock.engine.pauses import (
    PAUSES_MAX,
    Paused,
    PauseScope,
    PauseView,
    Pausing,
    Resumed,
    no_scope,
    pause_machine,
    read_pauses,
    too_many_pauses,
    view_of_pause,
)
from interlock.engine.schedules import Calls, Schedule, Schedules
from interlock.engine.views import (
    Compensation,
    Counts,
    DeadLetter,
    HistoryRow,
    Moved,
    Page,
    Refused,
    Rewind,
    View,
    Waiter,
    history_row,
    letter_of,
    moment,
    view_of,
)
from interlock.errors import (
    BadUsage,
    InterlockError,
    InvalidTransition,
    UnavailableError,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.lanes.hot_rows import HotRow
from interlock.signals import Observer
from interlock.store.records import Letter, child_cursor, parse_child_cursor

PAGE = 1_000

PAGE_MAX = 10_000

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")
P = ParamSpec("P")

Item = tuple[str, Event] | tuple[str, Event, str | None] | tuple[str, Event, str | None, Beginning | None]
"""An event of `send_many`: its workflow, the event, its key, and the machine and context to start with (E5)."""


def _repeat_after_move(
    call: Callable[Concatenate["Engine", P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate["Engine", P], Coroutine[Any, Any, ResultT]]:
    """Repeat a call at the new place of the workflows if they were moved meanwhile."""

    @functools.wraps(call)
    async def again(self: "Engine", /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        while True:
            inside = self._inside
            try:
                return await call(self, *args, **kwargs)
            except UnavailableError as error:
                if self._follower is None or not await self._follower.followed(inside, error):
                    raise

    return again


class Engine:
    """An open engine. Make one with `Engine.open`."""

    def __init__(self, inside: EngineParts, follower: Follower | None = None, **settings: object) -> None:
        parts: object = inside  # Not every caller has a type checker.
        if settings or not isinstance(parts, EngineParts):
            raise BadUsage(
                "Engine(...) was called.",
                why="An engine is opened, because it connects to its store and closes it at the end.",
                fix="Write `async with Engine.open(url, machines=[…]) as engine`.",
            )
        self._loop = asyncio.get_running_loop()
        self._follower = follower
        if follower is not None:
            follower.entered.append(self._enter)
        self._enter(inside)
        inside.schedules.enter(cast("Calls", self), self._store_time)
        self._letters = LetterCommands()
        """Dead letters with a command under way."""

    @staticmethod
    def open(
        url: str,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency] = (),
        steps: Mapping[object, Strategy] | None = None,
        provide: Sequence[object] = (),
        worker: bool = True,
        admission: Admission | None = None,
        observers: Iterable[Observer | str] = (),
        alerts: Sequence[Receiver] = (),
        schedules: Sequence[Schedule] = (),
        clock: Clock | None = None,
        chance: Chance | None = None,
        ids: Ids | None = None,
        cache: str | None = None,
        redis: str | None = None,
        accept_changes: bool = False,
        **settings: Seconds,
    ) -> "EngineOpening[Engine]":
        """Open an engine: `async with Engine.open(url, machines=[…]) as engine`, or `engine = await Engine.open(…)`.

        `steps` swaps strategies: a step, an undo's function or an effect's function for another function.
        `provide` are resources that steps, undos and effects take by the type of a parameter: clients, pools. With
        `worker=False` events are taken and no step runs. Settings are those of `EngineSettings`, and of `LaneSettings`
        for the store. `observers` are functions, or names: "prometheus", "logs", and "otel", which is the default
        where the program has set a provider. `alerts` receive stalled workflows and dead letters: `AlertWebhook`,
        `PagerDuty`. `accept_changes` opens although the plan has losses. With `redis`, or INTERLOCK_REDIS, leases,
        limits and breakers are those of a cluster: "redis://127.0.0.1:6379/0?prefix=shop".
        """
        return EngineOpening(
            Engine,
            url,
            machines=machines,
            dependencies=dependencies,
            steps=steps or {},
            provide=provide,
            worker=worker,
            admission=admission or Admission(),
            observers=observers if isinstance(observers, str) else tuple(observers),
            alerts=alerts,
            schedules=schedules,
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
        self,
        machine: Machine[StateT, ContextT, EventT],
        workflow: str,
        context: ContextT,
        *,
        by: str | None = None,
    ) -> View[StateT, ContextT]:
        """Start a workflow. The same id with the same input again returns the one that exists (B4).

        `by` is the actor who starts it, for its history (F1).
        """
        return cast("View[StateT, ContextT]", await self._admit(Start(self._bound(machine), workflow, context, by=by)))

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
        """Send an event; returns when its effect is durable. Raises the refusal if it is refused.

        A `key` makes the delivery idempotent: the same again returns the first answer (B5). With `if_allowed` an event
        that has no transition here is answered as ignored. With `start=(machine, context)` a workflow that does not
        exist is started, and the event applied to it, in one commit; if the event is refused, nothing is started (E5).
        `by` is the actor who sends it; the history of the workflow keeps the name (F1).
        """
        self._check_known(workflow)
        envelope = SendEvent(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version, by=by)
        if start is not None:
            self._with_start(envelope, start)
        try:
            return cast("Moved[Enum]", await self._admit(envelope))
        except (VersionConflict, InvalidTransition) as error:
            await name_decision(self._inside, workflow, error, event=type(event), after=expect_version)
            raise

    async def send_many(self, items: Iterable[Item], *, by: str | None = None) -> list[Moved[Enum] | Refused]:
        """Send many events, each with its workflow and, unless left out, its key and its start; one answer per item.

        Those of one workflow are applied in the order given. `by` is the actor who sends all of them.
        """
        requests: list[SendEvent | Refused] = []
        for item in items:
            try:
                self._check_known(item[0])
                envelope = SendEvent(item[0], item[1], key=item[2] if len(item) > 2 else None, by=by)  # noqa: PLR2004 -- as typed.
                if len(item) > 3 and item[3] is not None:  # noqa: PLR2004 -- as typed.
                    self._with_start(envelope, item[3])
                requests.append(envelope)
            except InterlockError as error:
                requests.append(Refused(error))
        answers = self._inside.admit_many(requests, self._admit, self._loop.time())
        for answer in answers:
            # Most are answered together: after the wait for the first, the others are done.
            if not isinstance(answer, Refused) and not answer.done():
                await asyncio.wait([answer])
        return [answer if isinstance(answer, Refused) else moved_or_refused(answer) for answer in answers]

    async def fork(self, workflow: str, at_version: int, new_id: str, *, by: str | None = None) -> View[Enum, object]:
        """Start a new workflow in the state and with the context that another one had at a version (F6).

        Its history begins with FORKED. It runs its own step and sets its own timers; it owes no effects, and undoes
        nothing that the other has done. The same fork again returns the workflow that exists. Raises BadUsage for a
        state that is final or unwinding, WorkflowNotFound for a version without a row of history.
        """
        self._inside.refuse_if_closed()
        return cast("View[Enum, object]", await self._admit(await self._fork(workflow, at_version, new_id, by)))

    @_repeat_after_move
    async def _fork(self, workflow: str, at_version: int, new_id: str, by: str | None) -> Start:
        live = await self._load(workflow)
        if live.row.machine not in self._inside.declared:
            raise no_workflow(workflow)
        return fork_of(live.bound, await record_at(self._store, workflow, at_version), new_id, by)

    async def rewind(
        self,
        workflow: str,
        to_version: int,
        *,
        by: str | None = None,
        note: str = "",
        dry_run: bool = False,
        key: str | None = None,
        expect_version: int | None = None,
    ) -> Rewind:
        """Set a workflow back to the state and context of an earlier version (F6).

        What it did since then and can undo is undone first. With `dry_run` that is only listed. The same `key` again
        returns the rewind that has begun. Raises BadUsage with the reason where this is impossible, WorkflowNotFound
        for a version without a row of history.
        """
        call = RewindCall(workflow, to_version, by=by, note=note, key=key, expect_version=expect_version)
        if dry_run:
            return (await self._read_rewind(call))[1]
        found = await call.run(partial(self._read_rewind, call), self._pipeline.admit)
        if not found.duplicate:
            self._inside.operated(f"workflow {workflow!r} is set back to version {to_version}: {note}", by)
        return found

    @_repeat_after_move
    async def _read_rewind(self, call: RewindCall) -> tuple[RewindTarget | None, Rewind]:
        live = await self._load_stored(call.workflow)
        if live.row.machine not in self._inside.declared:
            raise no_workflow(call.workflow)
        return await call.read(self._store, live)

    def transaction(self, connection: object) -> TransactionBlock:
        """Send events inside a transaction of your own, on PostgreSQL: they commit or roll back with your data (B11).

        `async with engine.transaction(connection) as tx: await tx.send(…)`, or `with` and without `await` for a
        connection without an event loop, from any thread. It is one of asyncpg, psycopg 3 or SQLAlchemy 2.
        """
        calls = TransactionCalls(self._inside, self._pipeline.means.ids, self._bound)
        return TransactionBlock(calls, connection)

    # --- reading -----------------------------------------------------------------------------------------------------

    @_repeat_after_move
    async def get(self, workflow: str) -> View[Enum, object]:
        """Return the durable state of the workflow."""
        return view_of(await self._load_stored(workflow))

    def of(self, machine: Machine[StateT, ContextT, EventT]) -> "Workflows[StateT, ContextT, EventT]":
        """Return the same calls, typed by the machine."""
        self._bound(machine)
        return Workflows(self, machine)

    @_repeat_after_move
    async def wait(self, workflow: str, *states: Enum, timeout_s: Seconds | None = None) -> View[Enum, object]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting.

        Raises WaitFailed when it ends in another final state, WaitTimeout when the time is over.
        """
        self._inside.refuse_if_closed()
        limit_s = in_seconds(timeout_s)
        waiter = Waiter(states)
        waiters = self._inside.waiters
        waiters.add(workflow, waiter)
        timer = None
        try:
            live = self._pipeline.supposed(workflow)
            if live is None or waiter.arrived(live):
                live = await self._load(workflow)
            for state in states:
                live.bound.node(state)  # Raises: a wait for a state of another machine would never end.
            if waiter.arrived(live):
                return view_of(live)
            if limit_s is not None:
                timer = self._loop.call_later(limit_s, self._time_out, workflow, waiter, limit_s)
            return view_of(await waiter.future)
        finally:
            waiters.remove(workflow, waiter)
            if timer is not None:
                timer.cancel()

    @_repeat_after_move
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

    @_repeat_after_move
    async def find(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        where: Where = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        order: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """Return a page of the workflows of a machine. Pass the `cursor` of the page before; None at the end (B8, F4).

        `where` are conditions on fields of the context that the machine declares in `search=`, as tuples of field,
        operator and value; the operators are = != < <= > >= in prefix. `order` is `updated_at`, `created_at` or such a
        field, with a minus in front for the reverse. Without any of these, all workflows come in the order of creation,
        those of one state in the order of their entry. A page that searches may be short while its cursor is set.
        """
        bound = self._bound(machine)
        self._inside.refuse_if_closed()
        node = None if state is None else bound.node(state)
        most = max(1, min(limit, PAGE_MAX))
        if where or order is not None or updated_after is not None or updated_before is not None:
            found = await self._inside.search(
                search_of(
                    bound.machine.search,
                    where=where,
                    updated_after=updated_after,
                    updated_before=updated_before,
                    order=order,
                    states=tuple(name for name, each in bound.stored.items() if each is node),
                    limit=most,
                    cursor=cursor,
                )
            )
        else:
            found = await self._store.find(bound.name, None if node is None else node.name, after=cursor, limit=most)
        lives = self._inside.readable(bound, found.rows)
        return Page(tuple(cast("View[StateT, ContextT]", view_of(live)) for live in lives), found.cursor)

    def bulk(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        where: Where = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
    ) -> Bulk[EventT]:
        """Return the workflows of a filter, which is that of `find`, to act on all of them (F5).

        `await engine.bulk(order, state=State.CHARGING).dry_run(Cancel())`, then `.send(Cancel(), name="cleanup")`.
        """
        bound = self._bound(machine)
        calls, node = cast("BulkCalls", self), None if state is None else bound.node(state)
        times = (updated_after, updated_before)
        return Bulk(BulkSource.of(calls, lambda: self._inside, self._repeated, bound, node, where, times))

    @property
    def bulk_runs(self) -> BulkRuns:
        """The bulk runs of this home: `await engine.bulk_runs.list()` (F5)."""
        return BulkRuns(cast("RunCalls", self), self._store_time, self._inside.operated)

    @_repeat_after_move
    async def children(self, workflow: str, *, limit: int = 100, cursor: str | None = None) -> Page[Enum, object]:
        """Return a page of the workflow's children, by visit and in the order of their declaration (E3).

        Children of machines that this engine does not have are left out, and those that were pruned.
        """
        after = parse_child_cursor(cursor, workflow)
        await self._load(workflow)
        most = max(1, min(limit, PAGE_MAX))
        found = await self._store.children(workflow, after=after, limit=most + 1)
        rows = await self._store.load([each.id for each in found[:most]])
        views: list[View[Enum, object]] = []
        for each in found[:most]:
            bound = self._inside.machines.get(rows[each.id].machine) if each.id in rows else None
            views += [] if bound is None else map(view_of, self._inside.readable(bound, [rows[each.id]]))
        last = found[most - 1] if len(found) > most else None
        return Page(tuple(views), None if last is None else child_cursor(last))

    @_repeat_after_move
    async def attempts(
        self, workflow: str, *, after: int = 0, limit: int = 100, cursor: str | None = None
    ) -> AttemptPage:
        """Return a page of the attempts of the workflow's steps, undos and effects, the oldest first (B17).

        Those under way are the last. They are kept as long as the history of the moves that they belong to. With
        `after` only those that have ended after the move to that version.
        """
        row = (await self._load_stored(workflow)).row
        most = max(1, min(limit, PAGE_MAX))
        return await read_attempts(self._store, row, after=after, limit=most, cursor=cursor)

    @_repeat_after_move
    async def why(self, workflow: str) -> Why:
        """Return why the workflow is where it is: how it came there, what it waits for, what can move it (F8)."""
        return await read_why(self._store, await self._load_stored(workflow))

    @_repeat_after_move
    async def stalled(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        older_than_s: Seconds | None = None,
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
            dwell_s = in_seconds(older_than_s) if older_than_s is not None else node.dwell_max_s
            if node.active and dwell_s is not None:
                before[node.name] = now_us - int(dwell_s * 1_000_000)
        rows = await self._store.stalled(bound.name, before, limit=max(1, min(limit, PAGE_MAX)))
        lives = self._inside.readable(bound, rows)
        return [cast("View[StateT, ContextT]", view_of(live)) for live in lives]

    @_repeat_after_move
    async def allowed(self, workflow: str, event: Event | None = None) -> list[Allowed[Enum]]:
        """Return the events that have a transition from the workflow's state (A6)."""
        live = await self._load(workflow)
        return allowed_here(live.bound.table, live.snapshot, event, at=moment(self._store.now_us()))

    @_repeat_after_move
    async def stats(self, workflow: str) -> Counts:
        """Return the counts of applied, duplicate, ignored and refused events (B5)."""
        row, more = await self._inside.policy.counted(workflow, partial(self._load, workflow))
        duplicate, ignored, refused = (stored + here for stored, here in zip(row.counts, more, strict=True))
        return Counts(applied=row.version - 1, duplicate=duplicate, ignored=ignored, refused=refused)

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` with everything that happens from now on (A9)."""
        self._inside.subscribers.subscribe(observer)

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling `observer`."""
        self._inside.subscribers.unsubscribe(observer)

    @_repeat_after_move
    async def charts(
        self,
        machine: AnyMachine | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step_s: int | None = None,
    ) -> Charts:
        """Return moves, failures, time in state and backlog of one machine or all, over time; by default of 3 hours."""
        self._inside.refuse_if_closed()
        bound = None if machine is None else self._bound(machine)
        return await self._inside.charts.read(bound, since, until, step_s)

    # --- tasks (F2) ---------------------------------------------------------------------------------------------------

    @_repeat_after_move
    async def tasks(
        self,
        *,
        role: str | None = None,
        by: str | None = None,
        machine: AnyMachine | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of the tasks that wait for a person, the most urgent first; of one role, or claimed `by` one.

        Where a due time is computed from the context, the order is that of their beginning.
        """
        chosen = TaskFilter(role, by, None if machine is None else self._bound(machine).name)
        return await list_tasks(self._inside, chosen, limit=max(1, min(limit, PAGE_MAX)), cursor=cursor)

    @_repeat_after_move
    async def task(self, id: str) -> Task:  # noqa: A002 -- the public name.
        """Return one task. Raises VersionConflict for one that has ended, with the decision."""
        return await read_task(self._inside, id)

    @_repeat_after_move
    async def claim_task(self, id: str, *, by: str) -> Task:  # noqa: A002 -- the public name.
        """Claim a task for a person, until it is released or ends. Raises TaskClaimed, which names another holder.

        A claim is not a move, and refuses no decision. The holder may claim again.
        """
        return await command_task(self._inside, ClaimTask(id, person_of(by)))

    @_repeat_after_move
    async def release_task(self, id: str, *, by: str, force: bool = False) -> Task:  # noqa: A002 -- the public name.
        """Release a task. Raises TaskClaimed if another person has claimed it, unless `force` is set."""
        return await command_task(self._inside, ReleaseTask(id, person_of(by), force=force))

    # --- pauses (E7) -------------------------------------------------------------------------------------------------

    async def pause(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the public name.
        machine: AnyMachine | None = None,
        state: Enum | None = None,
        by: str = "",
        note: str = "",
    ) -> PauseView:
        """Begin nothing for a workflow, a machine, or one state of a machine, until `resume`.

        No step, undo or effect begins there and no timer fires; events still apply, and running attempts go on. On
        PostgreSQL other processes follow within a second or two. It survives restarts. `by` and `note` are kept in its
        history.
        """
        scope = await self._scope(id, machine, state)
        if len(await self.pauses()) >= PAUSES_MAX:
            raise too_many_pauses()
        begin = (pause_machine, Pausing(*scope))
        _ = await self.send(scope.id, Paused(checked_actor(by) or "", note), start=begin, by=by)
        return view_of_pause(cast("Pausing", (await self.get(scope.id)).context))

    async def resume(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the public name.
        machine: AnyMachine | None = None,
        state: Enum | None = None,
        by: str = "",
        note: str = "",
    ) -> bool:
        """Go on with what `pause` has stopped. Return whether it was paused."""
        if id is not None and machine is None and state is None:
            check_id(id, "the id of a workflow")
            scope = PauseScope(workflow=id)  # Its pause stays when the workflow is pruned.
        else:
            scope = await self._scope(id, machine, state)
        try:
            event = Resumed(checked_actor(by) or "", note)
            return not (await self.send(scope.id, event, if_allowed=True, by=by)).ignored
        except WorkflowNotFound:
            _ = await self._scope(id, machine, state)
            return False

    @_repeat_after_move
    async def pauses(self) -> list[PauseView]:
        """Return the active pauses of this home, in the order in which they began."""
        self._inside.refuse_if_closed()
        return [view_of_pause(pause) for pause in await read_pauses(self._store)]

    async def _scope(self, workflow: str | None, machine: AnyMachine | None, state: Enum | None) -> PauseScope:
        if (workflow is None) == (machine is None) or (state is not None and machine is None):
            raise no_scope()
        if workflow is not None:
            if (await self.get(workflow)).machine not in self._inside.declared:
                raise no_workflow(workflow)
            return PauseScope(workflow=workflow)
        assert machine is not None
        bound = self._bound(machine)
        return PauseScope(bound.name, "" if state is None else bound.node(state).name)

    # --- dead letters, breakers, limits and pruning ------------------------------------------------------------------

    @_repeat_after_move
    async def compensations(self) -> list[Compensation]:
        """Return the pending and running undos of all workflows that unwind."""
        self._inside.refuse_if_closed()
        return await self._inside.compensations()

    @_repeat_after_move
    async def dead_letters(
        self, kind: str | None = None, *, workflow: str | None = None, limit: int = 1_000
    ) -> list[DeadLetter]:
        """Return the dead letters of all workflows or of one, oldest first.

        `kind` is "step", "effect", "undo" or None for all.
        """
        self._inside.refuse_if_closed()
        check_kind(kind)
        found = await self._store.letters(kind, workflow=workflow, limit=max(1, min(limit, PAGE_MAX)))
        return [letter_of(letter) for letter in found]

    # The actor of an operator's action (`by`) stands in the log `interlock.operators`, and in a server's audit log.

    async def retry_dead_letter(self, letter_id: str, *, by: str | None = None, workflow: str | None = None) -> None:
        """Retry a dead letter, with the same key and all its attempts. It is found sooner by its workflow."""
        letter = await self._command_letter(letter_id, TryAgain, by, workflow)
        self._inside.operated(f"dead letter {letter_id} of workflow {letter.workflow!r} is retried", by)

    async def resolve_dead_letter(self, letter_id: str, *, note: str, by: str | None = None) -> None:
        """Mark a dead letter as dealt with. An unwinding goes on; a step's workflow waits for an event.

        The note goes to the log `interlock.operators`. A move that this causes has the actor in its history.
        """
        letter = await self._command_letter(letter_id, Settle, by)
        what = f"dead letter {letter_id} ({letter.kind} {letter.name!r} of workflow {letter.workflow!r})"
        self._inside.operated(f"{what} is resolved: {note}", by)

    @property
    def schedules(self) -> Schedules:
        """The schedules of this home: `await engine.schedules.list()` (E6)."""
        return self._inside.schedules

    def breakers(self) -> Breakers:
        """Return the breakers of all dependencies of these machines, with their limits, in this process (C4).

        `engine.breakers()["gateway"].state` is "closed", "open" or "half_open".
        """
        self._inside.refuse_if_closed()
        return Breakers(view_of_line(line) for line in self._inside.places.lines.values())

    async def contention(self) -> list[HotRow]:
        """Return the workflows with the most contention between events, worst first, in this process (D9).

        A row's `table` is the name of the machine and its `key` the id of the workflow.
        """
        self._inside.refuse_if_closed()
        return self._pipeline.contended.worst(self._inside.now_s())

    def force_breaker(
        self, dependency: str, state: Literal["open", "closed", "auto"], *, by: str | None = None
    ) -> None:
        """Force a breaker open or closed; "auto" lets it decide again. It survives a restart.

        All engines of this process share it. The breaker's reason names the actor `by`.
        """
        line = self._line(dependency)
        forced, who = forced_state(state), checked_actor(by) or "a person"
        line.outlet.force(forced, f"released by {who}" if forced is None else f"held {forced} by {who}")

    def set_limit(
        self,
        dependency: str,
        *,
        concurrency_max: int | None = None,
        rate_per_s: float | EllipsisType | None = ...,
        by: str | None = None,
    ) -> None:
        """Change the limits of a dependency while the engine runs; omitted ones stay as they are (C8).

        `rate_per_s=None` removes the limit. Only this process is changed, and only until it ends.
        """
        who = checked_actor(by)
        limits = change_limits(self._line(dependency), dependency, concurrency_max, rate_per_s)
        self._inside.operated(f"the limits of {dependency!r} are {limits}", who)

    def set_admission(self, admission: Admission, *, by: str | None = None) -> None:
        """Change the admission limits of the engine while it runs (C7)."""
        self._inside.refuse_if_closed()
        who = checked_actor(by)
        self._inside.gate.set(admission)
        self._inside.operated(f"admission is {admission}", who)

    @_repeat_after_move
    async def prune(
        self,
        *,
        older_than_s: Seconds,
        history_only: bool = False,
        with_owed: bool = False,
        dry_run: bool = False,
        batch: int = BATCH,
        pause_s: Seconds = 0.0,
        by: str | None = None,
    ) -> Pruned:
        """Remove workflows of these machines that ended `older_than_s` ago, with history, effects and letters.

        With `history_only` the workflows stay. One that owes an effect or has a dead letter stays unless `with_owed`,
        and a parent until its children have ended.
        Each batch is a transaction of its own, followed by a pause of `pause_s`.
        """
        self._inside.refuse_if_closed()
        pruner = Pruner(
            self._store,
            older_than_s=in_seconds(older_than_s),
            machines=self._inside.declared,
            history_only=history_only,
            owing=with_owed,
            dry_run=dry_run,
            batch=batch,
            pause_s=in_seconds(pause_s),
        )
        keeps, who = history_only or dry_run, checked_actor(by)
        pruned = await pruner.run(lambda each: None if keeps else self._pipeline.forget(each.workflows))
        if not dry_run:
            self._inside.operated(f"{pruned.workflows} workflows with {pruned.events} events are pruned", who)
        return pruned

    # --- leases and closing ------------------------------------------------------------------------------------------

    def lease(self, name: str, *, wait_s: Seconds = WAIT_S, lease_s: Seconds = LEASE_S) -> Leasing:
        """Acquire a lease, held by one process at a time (C10): `async with engine.lease("nightly-report") as lease`.

        Waits up to `wait_s`, then raises LeaseHeld; 0 asks once. It is renewed while the block runs, and expires after
        `lease_s` when this process dies. `lease.token` grows with every holder, `lease.check()` raises Fenced
        when it was lost.
        """
        self._inside.refuse_if_closed()
        return Leasing(self._inside.leases, name, wait_s=in_seconds(wait_s), lease_s=in_seconds(lease_s))

    async def close(self) -> None:
        """Stop claiming, wait for running steps for `drain_s`, cancel the rest, and close the store."""
        if self._follower is None:
            await self._inside.close()
        else:
            await self._follower.close()

    # --- internals ---------------------------------------------------------------------------------------------------

    @_repeat_after_move
    async def _repeated(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await the call, for the server."""
        return await call()

    def _enter(self, inside: EngineParts) -> None:
        inside.families.enter(cast("WorkflowCalls", self))
        self._inside = inside
        self._store = inside.store
        self._pipeline = inside.pipeline

    def _store_time(self) -> datetime:
        return moment(self._store.now_us())

    def _admit(self, envelope: Start | SendEvent) -> "asyncio.Future[object]":
        self._inside.refuse_if_closed()
        self._inside.gate.enter(starts=isinstance(envelope, Start) or envelope.first is not None)
        envelope.since_s = self._loop.time()
        if self._inside.tracing is not None:
            self._inside.tracing.called(envelope.workflow)
        return self._pipeline.admit(envelope)

    def _with_start(self, envelope: SendEvent, start: Beginning) -> None:
        machine, context = start_of(start)
        envelope.first = Start(self._bound(machine), envelope.workflow, context, by=envelope.by)
        if envelope.key is None and self._store.shared:
            # A start cannot be fenced while its outcome is unknown; by this key a late commit of it is recognised.
            envelope.key = self._pipeline.means.ids.text()

    def _time_out(self, workflow: str, waiter: Waiter, timeout_s: float) -> None:
        self._inside.policy.fail_wait(workflow, waiter, timeout_s)  # The workflows may have moved since the wait began.

    def _check_known(self, workflow: str) -> None:
        if self._pipeline.known(workflow) is None:
            check_id(workflow, "the id of a workflow")

    async def _load_stored(self, workflow: str) -> LoadedWorkflow:
        """Load a workflow at least as new as any earlier read of the store has shown it: a listing, a dead letter."""
        return await self._load(workflow, from_store=self._pipeline.is_in_commit(workflow))

    async def _load(self, workflow: str, *, from_store: bool = False) -> LoadedWorkflow:
        self._inside.refuse_if_closed()
        live = None if from_store else self._pipeline.known(workflow)
        if live is not None and not is_here(self._store):
            await confirm(self._store)
            live = self._pipeline.known(workflow)
        if live is None:
            check_id(workflow, "the id of a workflow")
            row = await self._inside.policy.row(workflow)
            if row is None:
                raise no_workflow(workflow)
            live = self._inside.read(row)
        return live

    @_repeat_after_move
    async def _command_letter(
        self, letter_id: str, ruling: type[TryAgain | Settle], by: str | None, workflow: str | None = None
    ) -> Letter:
        return await self._letters.apply(self._inside, letter_id, ruling, by, workflow)

    def _line(self, dependency: str) -> Line:
        self._inside.refuse_if_closed()
        lines = self._inside.places.lines
        if dependency not in lines:
            raise not_called(dependency, lines)
        return lines[dependency]

    def _bound(self, machine: AnyMachine) -> BoundMachine:
        value: object = machine  # Not every caller has a type checker.
        name = machine.name if isinstance(value, Machine) else ""
        bound = self._inside.machines.get(name)
        if bound is None or bound.machine is not machine:
            raise not_given(machine, bound, self._inside.declared)
        return bound


# --- Calls typed by a machine ----------------------------------------------------------------------------------------
# An id alone does not say which machine its workflow has, so `engine.get(id)` cannot know the type of the context.
# Here the caller names the machine, and the engine checks it: a workflow of another machine is not found.


class Workflows(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine. Made by `engine.of(machine)`."""

    def __init__(self, engine: Engine, machine: Machine[StateT, ContextT, EventT]) -> None:
        self._engine = engine
        self._machine = machine

    async def start(self, workflow: str, context: ContextT, *, by: str | None = None) -> View[StateT, ContextT]:
        """Start a workflow (B4)."""
        return await self._engine.start(self._machine, workflow, context, by=by)

    async def send(
        self,
        workflow: str,
        event: EventT,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: ContextT | None = None,
        by: str | None = None,
    ) -> Moved[StateT]:
        """Send an event of this machine. With `start`, a workflow that does not exist starts with this context (E5)."""
        if start is None:
            await self.get(workflow)
        moved = await self._engine.send(
            workflow,
            event,
            key=key,
            if_allowed=if_allowed,
            expect_version=expect_version,
            start=None if start is None else (self._machine, start),
            by=by,
        )
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow as it is durable."""
        return self._checked(await self._engine.get(workflow))

    async def wait(self, workflow: str, *states: StateT, timeout_s: Seconds | None = None) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting."""
        await self.get(workflow)
        return self._checked(await self._engine.wait(workflow, *states, timeout_s=timeout_s))

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history after a version, in the order of versions; all of it unless limited."""
        await self.get(workflow)
        rows = await self._engine.history(workflow, after=after, limit=limit)
        return cast("list[HistoryRow[StateT, ContextT]]", rows)

    async def children(self, workflow: str, *, limit: int = 100, cursor: str | None = None) -> Page[Enum, object]:
        """Return a page of the workflow's children (E3)."""
        await self.get(workflow)
        return await self._engine.children(workflow, limit=limit, cursor=cursor)

    async def attempts(
        self, workflow: str, *, after: int = 0, limit: int = 100, cursor: str | None = None
    ) -> AttemptPage:
        """Return a page of the attempts of the workflow's steps, undos and effects, the oldest first (B17)."""
        await self.get(workflow)
        return await self._engine.attempts(workflow, after=after, limit=limit, cursor=cursor)

    async def find(
        self,
        *,
        state: StateT | None = None,
        where: Where = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        order: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """Return the workflows, page by page; the conditions are those of `Engine.find`."""
        return await self._engine.find(
            self._machine,
            state=state,
            where=where,
            updated_after=updated_after,
            updated_before=updated_before,
            order=order,
            limit=limit,
            cursor=cursor,
        )

    async def stalled(
        self, *, older_than_s: Seconds | None = None, states: Iterable[StateT] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return the active workflows that have been in their state for too long."""
        return await self._engine.stalled(self._machine, older_than_s=older_than_s, states=states, limit=limit)

    async def allowed(self, workflow: str, event: EventT | None = None) -> list[Allowed[StateT]]:
        """Return the events that have a transition from the workflow's state."""
        await self.get(workflow)
        return cast("list[Allowed[StateT]]", await self._engine.allowed(workflow, event))

    def _checked(self, view: View[Enum, object]) -> View[StateT, ContextT]:
        if view.machine != self._machine.name:
            raise WorkflowNotFound(
                f"there is no workflow {view.id!r} of machine {self._machine.name!r}: it is one of {view.machine!r}."
            )
        return cast("View[StateT, ContextT]", view)
