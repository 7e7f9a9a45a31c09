"""Bulk actions: an event, a retry of dead letters, a pause or a resumption for all workflows of a filter (F5).

A dry run decides each workflow as the pipeline would, and writes nothing. A run reads the filter by pages and goes
through the ordinary path. Each page is recorded before it is acted on, and each event has a delivery key made from the
name of the run: a run that is repeated under its name goes on where it was, and moves each workflow once.

Pages follow the order of creation; those of a state without other conditions follow the order of entry into it. Both
go on after the last workflow read, whatever left the filter meanwhile. A workflow that comes again, because it entered
the state again, is recognised by its key. Workflows that were created after the beginning are left alone, so that
traffic cannot keep a run going.

Sections: actions, `Bulk`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from interlock.core import decide
from interlock.core.events import Event
from interlock.core.search import Search, Where, condition_text, search_of
from interlock.core.table import Node
from interlock.engine.bound_machine import BoundMachine, event_text
from interlock.engine.internals import EngineParts
from interlock.engine.leases import Leasing
from interlock.engine.operators.bulk_runs import (
    MACHINE,
    RUNS_MAX,
    BulkAction,
    BulkBegun,
    BulkCounts,
    BulkDone,
    BulkEvent,
    BulkFilter,
    BulkPage,
    BulkPlan,
    BulkRecord,
    BulkRun,
    BulkRuns,
    BulkSpec,
    BulkState,
    BulkStopped,
    bulk_machine,
    plan_of,
    run_id,
)
from interlock.engine.path.caller_commands import check_kind, checked_actor
from interlock.engine.path.staged_group import storable_context
from interlock.engine.pauses import PAUSES_MAX, Paused, PauseScope, Pausing, Resumed, pause_machine, read_pauses
from interlock.engine.views import Moved, Refused, error_group, moment, time_us
from interlock.errors import (
    BadUsage,
    CorruptionError,
    Fenced,
    GuardRejected,
    InterlockError,
    InvalidTransition,
    LeaseHeld,
    MachineMismatch,
    Overloaded,
    UnavailableError,
    VersionConflict,
    WorkflowNotFound,
)
from interlock.faultpoints import reach
from interlock.store.protocol import Old
from interlock.store.records import Letter, Row
from interlock.store.search_pages import matches

PAGE = 500
"""Workflows of one page: what is in memory at a time, and what one commit of the record stands for."""

PAGE_S = 2.0
"""A page of a run with a rate takes about this time, so that its record shows that it goes on."""

CHUNK = 100
"""Calls of a run that are in flight at a time: other traffic waits for no more."""

CHUNKS_PER_S = 10
"""A run with a rate sends the workflows of a tenth of a second together."""

LEASE_S = 5.0
"""The lease of a run. It is renewed; when its process dies another one may take over after this time."""

WAIT_S = LEASE_S + 1.0
"""How long a run waits for its lease: the process that had it may have died."""

CONFLICTS_MAX = 1_000
"""Conflicts with other writers in one page after which the next ones count as refusals."""

EventT = TypeVar("EventT", bound=Event)
ResultT = TypeVar("ResultT")

Item = tuple[str, Event, str | None, tuple[Any, object] | None]
"""An event of `send_many`."""


class BulkCalls(Protocol):
    """What a bulk action needs of an engine, besides the records of runs."""

    @property
    def bulk_runs(self) -> BulkRuns:
        """The bulk runs of this home."""
        ...

    async def send(
        self,
        workflow: str,
        event: Event,
        /,
        *,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: tuple[Any, object] | None = None,
        by: str | None = None,
    ) -> Moved[Enum]:
        """Send an event."""
        ...

    async def send_many(self, items: Sequence[Item], /, *, by: str | None = None) -> list[Moved[Enum] | Refused]:
        """Send many events."""
        ...

    async def retry_dead_letter(self, letter_id: str, /, *, by: str | None = None, workflow: str | None = None) -> None:
        """Retry a dead letter of that workflow."""
        ...


class _Repeated(Protocol):
    def __call__(self, call: Callable[[], Awaitable[ResultT]], /) -> Awaitable[ResultT]: ...


@dataclass(frozen=True)
class BulkSource:
    """The engine, the machine and the filter of a bulk action."""

    calls: BulkCalls
    parts: Callable[[], EngineParts]
    """The engine's parts: they are others when its workflows were moved."""
    repeated: "_Repeated"
    """Repeats a reading call at the new store if the workflows were moved meanwhile."""
    bound: BoundMachine
    state: str | None
    search: Search | None
    """None: the filter is the machine, or its state."""
    chosen: BulkFilter
    """The filter as texts."""

    @staticmethod
    def of(
        calls: BulkCalls,
        parts: Callable[[], EngineParts],
        repeated: "_Repeated",
        bound: BoundMachine,
        node: Node | None,
        where: Where,
        times: tuple[datetime | None, datetime | None],
    ) -> "BulkSource":
        """Return the source for a filter. Raises InvalidPayload for one that does not fit the machine."""
        state, search = None if node is None else node.name, None
        if where or times != (None, None):
            search = search_of(
                bound.machine.search,
                where=where,
                updated_after=times[0],
                updated_before=times[1],
                order=None,
                states=tuple(name for name, each in bound.stored.items() if each is node),
                limit=PAGE,
                cursor=None,
            )
        chosen = BulkFilter(state, tuple(map(_condition_text, where)), *times)
        return BulkSource(calls, parts, repeated, bound, state, search, chosen)

    async def rows(self, cursor: str | None, limit: int) -> tuple[list[Row], str | None]:
        """Return the workflows of one page, and the cursor of the next one."""
        inside = self.parts()
        if self.search is None:
            found = await inside.store.find(self.bound.name, self.state, after=cursor, limit=limit)
        else:
            found = await inside.search(replace(self.search, cursor=cursor, limit=limit))
        return list(found.rows), found.cursor

    async def letters(self, kind: str | None, cursor: str | None, limit: int) -> list[Letter]:
        """Return the dead letters of one page, of all workflows."""
        after = None
        if cursor is not None:
            since_us, _, letter_id = cursor.partition("/")
            after = Letter(letter_id, "", "", "", 0, "", int(since_us), 0, "")
        return await self.parts().store.letters(kind, after=after, limit=limit)

    def matches(self, row: Row | None) -> bool:
        """Whether a workflow is one of the filter."""
        if row is None or row.machine != self.bound.name:
            return False
        if self.search is not None:
            return matches(self.search, row.state, row.updated_us, msgspec.json.decode(row.context))
        node = self.bound.stored.get(row.state)
        return self.state is None or (node is not None and node.name == self.state)

    async def commanded(self, items: Sequence[Item], by: str | None) -> list[InterlockError | None]:
        """Send events; return the error of each, and None where it was applied."""
        answers = await self.calls.send_many(items, by=by)
        return [each.error if isinstance(each, Refused) else None for each in answers]


def _condition_text(term: tuple[str, str, object]) -> str:
    """Return a condition as text, the same in each process: a set has no order of its own."""
    name, sign, value = term
    if isinstance(value, set | frozenset):
        value = sorted(cast("set[object]", value), key=repr)
    return condition_text((name, sign, value))


# --- Actions ---------------------------------------------------------------------------------------------------------
# An item is a text: the id of a workflow; or of a dead letter, after that of its workflow. A dry run and a run name a
# refusal by the same words.


class _Action(Protocol):
    spec: BulkSpec
    key: str
    """The delivery key of a run's events; empty in a dry run."""

    async def page(self, cursor: str | None, limit: int, since_us: int) -> tuple[list[str], str | None]:
        """Return the items of a page that were there at the beginning, and the cursor of the next page."""
        ...

    async def plan(self, cursor: str | None, counts: BulkCounts) -> str | None:
        """Count what would become of the items of a page; return the cursor of the next page."""
        ...

    async def apply(self, items: Sequence[str], by: str | None, *, repeated: bool) -> Sequence[InterlockError | None]:
        """Act on the items; return the error of each. `repeated`: another process may have acted on them."""
        ...


class _EventAction:
    """An action that sends an event to each workflow, or to what keeps its pause."""

    def __init__(self, source: BulkSource, spec: BulkSpec, key: str) -> None:
        self.spec = spec
        self.key = key
        self._source = source

    async def page(self, cursor: str | None, limit: int, since_us: int) -> tuple[list[str], str | None]:
        """Return workflows that have not got the event: the page of a run that died is counted by what they got."""
        source = self._source

        async def read() -> tuple[list[str], str | None]:
            rows, after = await source.rows(cursor, limit)
            ids = [row.id for row in rows if row.created_us <= since_us]
            targets = {self.target(each): each for each in ids}
            delivered = await source.parts().store.delivered([(target, self.key) for target in targets])
            return [each for target, each in targets.items() if (target, self.key) not in delivered], after

        return await source.repeated(read)

    def target(self, workflow: str) -> str:
        """Return the id of the workflow that gets the event."""
        return workflow


class _SendAction(_EventAction):
    """Sends an event of the machine."""

    def __init__(self, source: BulkSource, spec: BulkSpec, event: Event, key: str = "") -> None:
        super().__init__(source, spec, key)
        self._event = event

    async def plan(self, cursor: str | None, counts: BulkCounts) -> str | None:
        """Decide each workflow of a page, as the pipeline would."""
        source = self._source
        rows, after = await source.repeated(lambda: source.rows(cursor, PAGE))
        bound, at = source.bound, moment(source.parts().store.now_us())
        for row in rows:
            try:
                snapshot = bound.live(row).snapshot
                decision = decide.decide(bound.table, snapshot, self._event, at=at)
                if decision.snapshot.context is not snapshot.context:
                    storable_context(bound, decision.records[-1])
            except InterlockError as error:
                counts.refuse(_reason(error), row.id)
            else:
                counts.moved += 1
        return after

    async def apply(self, items: Sequence[str], by: str | None, *, repeated: bool) -> Sequence[InterlockError | None]:
        """Send the event. One that was delivered before is not applied again, and counts as moved."""
        del repeated
        return await self._source.commanded([(each, self._event, self.key, None) for each in items], by)


class _PauseAction(_EventAction):
    """Pauses or resumes each workflow. The event goes to what keeps its pause."""

    def __init__(self, source: BulkSource, spec: BulkSpec, note: str = "", key: str = "") -> None:
        super().__init__(source, spec, key)
        self._note = note

    def target(self, workflow: str) -> str:
        """Return the id of what keeps the pause of a workflow."""
        return PauseScope(workflow=workflow).id

    async def plan(self, cursor: str | None, counts: BulkCounts) -> str | None:
        """Count the workflows of a page by whether they are paused, and by the room for pauses."""
        source = self._source

        async def read() -> tuple[list[Row], str | None, set[str], int]:
            rows, after = await source.rows(cursor, PAGE)
            active = await read_pauses(source.parts().store)
            return rows, after, {each.workflow for each in active}, PAUSES_MAX - len(active)

        rows, after, paused, room = await source.repeated(read)
        for row in rows:
            if self.spec.action == "resume" and row.id not in paused:
                counts.refuse(_NOT_PAUSED, row.id)
            elif self.spec.action == "pause" and counts.moved >= room:
                counts.refuse(_NO_ROOM, row.id)
            else:
                counts.moved += 1
        return after

    async def apply(self, items: Sequence[str], by: str | None, *, repeated: bool) -> Sequence[InterlockError | None]:
        """Pause or resume these workflows."""
        del repeated
        source, who = self._source, by or ""
        if self.spec.action == "resume":
            resumed = Resumed(who, self._note)
            return await source.commanded([(self.target(each), resumed, self.key, None) for each in items], by)
        active = await source.repeated(lambda: read_pauses(source.parts().store))
        room = max(0, PAUSES_MAX - len(active))
        event = Paused(who, self._note)
        errors = await source.commanded(
            [(self.target(each), event, self.key, (pause_machine, Pausing(workflow=each))) for each in items[:room]],
            by,
        )
        return [*errors, *(BadUsage(_NO_ROOM) for _ in items[room:])]


class _RetryAction:
    """Retries the dead letters of each workflow."""

    def __init__(self, source: BulkSource, spec: BulkSpec, key: str = "") -> None:
        self.spec = spec
        self.key = key
        self._source = source

    async def page(self, cursor: str | None, limit: int, since_us: int) -> tuple[list[str], str | None]:
        """Return dead letters that were there at the beginning: one that gives up again is not retried twice."""
        letters, after = await self._read(cursor, limit)
        early = [each for each in letters if each.since_us <= since_us]
        return [f"{each.workflow}/{each.id}" for each in early], after if len(early) == len(letters) else None

    async def plan(self, cursor: str | None, counts: BulkCounts) -> str | None:
        """Count the dead letters of a page: all of them can be retried."""
        letters, after = await self._read(cursor, PAGE)
        counts.moved += len(letters)
        return after

    async def _read(self, cursor: str | None, limit: int) -> tuple[list[Letter], str | None]:
        source, wanted = self._source, self.spec.filter

        async def read() -> tuple[list[Letter], str | None]:
            page = await source.letters(wanted.kind, cursor, limit)
            found = [
                each
                for each in page
                if wanted.letter in {None, each.name}
                and wanted.error in {None, each.message, error_group(each.message)}
            ]
            rows = await source.parts().store.load(list({each.workflow for each in found})) if found else {}
            last = page[-1] if len(page) == limit else None
            after = None if last is None else f"{last.since_us}/{last.id}"
            return [each for each in found if source.matches(rows.get(each.workflow))], after

        return await source.repeated(read)

    async def apply(self, items: Sequence[str], by: str | None, *, repeated: bool) -> Sequence[InterlockError | None]:
        """Retry these dead letters. One that is gone was retried, where another process may have done that."""

        async def retry(item: str) -> InterlockError | None:
            workflow, _, letter_id = item.partition("/")
            try:
                await self._source.calls.retry_dead_letter(letter_id, by=by, workflow=workflow)
            except WorkflowNotFound as error:
                return None if repeated else error
            except InterlockError as error:
                return error
            return None

        return await asyncio.gather(*map(retry, items))


_NOT_PAUSED = "it is not paused"
_NO_ROOM = f"{PAUSES_MAX:,} pauses are active: pause the state or the machine instead"


def _reason(error: InterlockError, action: str = "send") -> str:
    """Return the reason of a refusal, the same for all workflows that are refused for it."""
    if action == "resume" and isinstance(error, InvalidTransition | WorkflowNotFound):
        return _NOT_PAUSED
    match error:
        case WorkflowNotFound():
            reason = "it is not there any more"
        case InvalidTransition():
            reason = f"event {error.event} has no transition from state {error.state!r}"
        case GuardRejected():
            reason = "; ".join(error.reasons or error.guards)
        case MachineMismatch():
            reason = "another version of the machine stored it, and this process may not decide on it"
        case CorruptionError():
            reason = "its stored data is damaged"
        case _:
            reason = error_group(error.what)
    return reason


# --- Bulk ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BulkRequest:
    """What to do with the workflows of a filter: `event` is for "send", `kind`, `letter` and `error` for "retry"."""

    action: BulkAction
    event: Event | None = None
    kind: str | None = None
    """Only dead letters of this kind: "step", "effect" or "undo"."""
    letter: str | None = None
    """Only those of the step, effect or undo of this name."""
    error: str | None = None
    """Only those with this error, or of this group: `DeadLetter.group`."""
    note: str = ""
    """Why workflows are paused or resumed."""


def check_rate(rate_per_s: float | None) -> None:
    """Raise BadUsage unless the value is a rate, or None for no limit."""
    if rate_per_s is not None and not 0 < rate_per_s < float("inf"):
        raise BadUsage(
            f"rate_per_s={rate_per_s!r} is not a rate.",
            why="A run acts on at most this many workflows per second.",
            fix="Pass a number above 0, or leave it out for no limit.",
        )


class Bulk(Generic[EventT]):
    """The workflows of a filter, to act on all of them. Made by `engine.bulk(machine, …)`.

    A run that is repeated under its name goes on where it was; its result is a `BulkRun`. Cancelling its task
    interrupts it. Of two processes that run one name, the second gets LeaseHeld.
    """

    def __init__(self, source: BulkSource) -> None:
        self._source = source

    async def dry_run(self, event: EventT | BulkRequest) -> BulkPlan:
        """Return what `send` would do now: how many workflows match, and how many are refused for which reason.

        Every workflow is decided, guards included, and nothing is written. Another action is a request:
        `BulkRequest("retry", error=…)`.
        """
        self._source.parts().refuse_if_closed()
        request = event if isinstance(event, BulkRequest) else BulkRequest("send", event)
        action, counts, cursor = self._action(request, ""), BulkCounts(), None
        while True:
            cursor = await action.plan(cursor, counts)
            if cursor is None:
                return plan_of(counts)
            await asyncio.sleep(0)  # A store in memory answers without waiting.

    async def send(
        self, event: EventT, *, name: str, by: str | None = None, rate_per_s: float | None = None
    ) -> BulkRun:
        """Send the event to every workflow of the filter, each once under this name, at most `rate_per_s`."""
        return await self.run(BulkRequest("send", event), name=name, by=by, rate_per_s=rate_per_s)

    async def retry_dead_letters(
        self,
        *,
        kind: str | None = None,
        letter: str | None = None,
        error: str | None = None,
        name: str | None = None,
        by: str | None = None,
        rate_per_s: float | None = None,
    ) -> BulkRun:
        """Retry the dead letters of these workflows that are there now; the arguments are those of `BulkRequest`.

        Without `name` the run gets a new one, which its result has.
        """
        request = BulkRequest("retry", kind=kind, letter=letter, error=error)
        return await self.run(request, name=name, by=by, rate_per_s=rate_per_s)

    async def pause(
        self, *, by: str | None = None, note: str = "", name: str | None = None, rate_per_s: float | None = None
    ) -> BulkRun:
        """Pause each of these workflows by itself, as `engine.pause(id=…)` does."""
        return await self.run(BulkRequest("pause", note=note), name=name, by=by, rate_per_s=rate_per_s)

    async def resume(
        self, *, by: str | None = None, note: str = "", name: str | None = None, rate_per_s: float | None = None
    ) -> BulkRun:
        """Resume each of these workflows that is paused by itself."""
        return await self.run(BulkRequest("resume", note=note), name=name, by=by, rate_per_s=rate_per_s)

    async def run(
        self,
        request: BulkRequest,
        *,
        name: str | None = None,
        by: str | None = None,
        rate_per_s: float | None = None,
        wait_s: float = WAIT_S,
        begun: Callable[[], None] | None = None,
    ) -> BulkRun:
        """Carry out a request, from where the run of that name is.

        Raises KeyReused if the name stands for another request, LeaseHeld if another process has been executing it
        for `wait_s`. With `begun` the caller is in a hurry: it is called when the record is durable, and the progress
        of a run that goes on elsewhere is returned immediately.
        """
        source, who = self._source, checked_actor(by)
        source.parts().refuse_if_closed()
        check_rate(rate_per_s)
        if name is None:
            name = f"{request.action} {source.bound.name:.80} {source.parts().pipeline.means.ids.text()[:8]}"
        action = self._action(request, run_id(name))
        with suppress(WorkflowNotFound):
            known = await source.calls.bulk_runs.stored(name)
            action.spec.refuse_other(name, cast("BulkRecord", known.context).spec)
            if begun is not None and (run := await source.calls.bulk_runs.get(name)).state == "running":
                return run
        async with AsyncExitStack() as stack:
            try:
                lease = Leasing(source.parts().own_leases, run_id(name), wait_s=wait_s, lease_s=LEASE_S)
                await stack.enter_async_context(lease)
            except LeaseHeld as error:
                raise LeaseHeld(
                    f"bulk run {name!r} is executed by {error.owner}, since {error.since:%Y-%m-%d %H:%M:%S} UTC.",
                    lease=error.lease,
                    owner=error.owner,
                    since=error.since,
                ) from error
            execution = _Execution(source, action, name, who, rate_per_s)
            return await execution.run(request.note, begun or _nothing)

    def _action(self, request: BulkRequest, key: str) -> _Action:
        source = self._source
        bound, event = source.bound, request.event
        spec = BulkSpec(machine=bound.name, action=request.action, filter=source.chosen)
        if request.action == "retry":
            check_kind(request.kind)
            chosen = replace(source.chosen, kind=request.kind, letter=request.letter, error=request.error)
            return _RetryAction(source, replace(spec, filter=chosen), key)
        if request.action != "send":
            return _PauseAction(source, spec, request.note, key)
        if event is None or type(event) not in bound.table.events.values():
            raise decide.foreign_event(bound.table, cast("Event", event))
        data = bound.codec.encode_event(event).decode()
        return _SendAction(source, replace(spec, event=event_text(event), data=data), event, key)


def _nothing() -> None:
    """Do nothing: no caller waits for the beginning."""


class _Execution:
    """One process's execution of a run. It ends when another one has changed the record."""

    def __init__(
        self, source: BulkSource, action: _Action, name: str, by: str | None, rate_per_s: float | None
    ) -> None:
        self._source = source
        self._action = action
        self._name = name
        self._by = by
        self._rate_per_s = rate_per_s
        self._version = 0
        self._next_s = asyncio.get_running_loop().time()
        """When the rate allows the next workflow."""

    async def run(self, note: str, begun: Callable[[], None]) -> BulkRun:
        """Begin or resume the run, and carry it to its end."""
        source, action, name, runs = self._source, self._action, self._name, self._source.calls.bulk_runs
        await self._tidy()
        with suppress(WorkflowNotFound):
            known = await runs.stored(name)
            action.spec.refuse_other(name, cast("BulkRecord", known.context).spec)
            if known.state is BulkState.DONE:
                return await runs.get(name)
        first = BulkRecord(spec=action.spec, note=note)
        event = BulkBegun(self._by or "", self._rate_per_s)
        moved = await source.calls.send(run_id(name), event, start=(bulk_machine, first), by=self._by)
        self._version = moved.version
        source.parts().operated(f"bulk run {name!r} ({action.spec.action} {action.spec.event}) begins", self._by)
        begun()
        try:
            await self._pages(cast("BulkRecord", (await runs.stored(name)).context))
        except VersionConflict:
            return await self._replaced()
        except BaseException:
            await self._interrupt()
            raise
        done = await runs.get(name)
        source.parts().operated(f"bulk run {name!r} is done: {done.moved} of {done.matching} moved", self._by)
        return done

    async def _pages(self, record: BulkRecord) -> None:
        assert record.since is not None
        action, since_us = self._action, time_us(record.since)
        size = PAGE if self._rate_per_s is None else max(1, min(PAGE, int(self._rate_per_s * PAGE_S)))
        pending, cursor, complete = record.pending, record.cursor, record.complete
        counts = BulkCounts()
        repeated = True
        while True:
            if pending:
                counts = await self._apply(pending, repeated=repeated)
            repeated = False
            if complete:
                break
            items, cursor = await action.page(cursor, size, since_us)
            pending, complete = tuple(items), cursor is None
            if pending or complete or counts.matching:
                page = BulkPage(counts.moved, counts.refused, pending, cursor, complete)
                await self._write(page)
                counts = BulkCounts()
            reach("bulk.page")
        await self._write(BulkDone(counts.moved, counts.refused))

    async def _write(self, event: BulkEvent) -> None:
        """Record the progress. Raises VersionConflict if the run was stopped, or resumed by another process."""
        while True:
            try:
                sent = self._source.calls.send(run_id(self._name), event, expect_version=self._version, by=self._by)
                self._version = (await sent).version
            except Overloaded as error:
                await asyncio.sleep(error.retry_after_s)
            else:
                return

    async def _apply(self, items: Sequence[str], *, repeated: bool) -> BulkCounts:
        """Act on the items of a page, and again on those for which there was no room."""
        counts, waiting = BulkCounts(), list(items)
        rate = self._rate_per_s
        size = CHUNK if rate is None else max(1, min(CHUNK, int(rate / CHUNKS_PER_S)))
        conflicts = 0
        while waiting:
            chunk, waiting = waiting[:size], waiting[size:]
            await self._pace(len(chunk))
            errors = await self._action.apply(chunk, self._by, repeated=repeated)
            reach("bulk.chunk")
            wait_s = 0.0
            for item, error in zip(chunk, errors, strict=True):
                if error is None:
                    counts.moved += 1
                elif isinstance(error, Overloaded):
                    waiting.append(item)
                    wait_s = max(wait_s, error.retry_after_s)
                elif isinstance(error, VersionConflict) and conflicts < CONFLICTS_MAX:
                    waiting.append(item)
                    conflicts += 1
                elif isinstance(error, UnavailableError) and not isinstance(error, MachineMismatch):
                    raise error
                else:
                    counts.refuse(_reason(error, self._action.spec.action), item.partition("/")[0])
            await asyncio.sleep(wait_s)
        return counts

    async def _pace(self, count: int) -> None:
        """Wait until the rate allows these workflows."""
        if self._rate_per_s is None:
            return
        now_s = asyncio.get_running_loop().time()
        begin_s = max(now_s, self._next_s)
        self._next_s = begin_s + count / self._rate_per_s
        await asyncio.sleep(begin_s - now_s)

    async def _interrupt(self) -> None:
        """Record that the run is interrupted, also while this task is cancelled. Without a store nothing is written."""
        with suppress(InterlockError):
            writing = asyncio.ensure_future(self._write(BulkStopped()))
            await asyncio.shield(writing)

    async def _replaced(self) -> BulkRun:
        """Return the run that an operator has stopped. Raises Fenced if another process goes on with it."""
        run = await self._source.calls.bulk_runs.get(self._name)
        if run.state == "running":
            raise Fenced(
                f"bulk run {self._name!r} was resumed by another process.",
                why="This process could not renew its lease in time; what it has done is counted by the other one.",
                fix="Let the other process go on: engine.bulk_runs.get(name) has its progress.",
            )
        return run

    async def _tidy(self) -> None:
        """Remove the history of runs that are done, and runs of which there are more than `RUNS_MAX`."""
        inside = self._source.parts()
        store, now_us = inside.store, inside.store.now_us()
        old = Old(machine=MACHINE, state=BulkState.DONE.value, before_us=now_us, history_only=True)
        await store.prune(old, after=None, limit=RUNS_MAX)
        for state in BulkState:
            rows = (await store.find(MACHINE, state.value, after=None, limit=2 * RUNS_MAX)).rows
            if len(rows) > RUNS_MAX:
                before_us = rows[-RUNS_MAX].entered_us
                surplus = Old(machine=MACHINE, state=state.value, before_us=before_us)
                inside.pipeline.forget((await store.prune(surplus, after=None, limit=RUNS_MAX)).workflows)
