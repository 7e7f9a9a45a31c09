"""`Client`: the calls of an engine, made to a server; and `BlockingClient`, the same calls for code that is not async.

    async with Client("http://127.0.0.1:8080", key="ilk_…") as client:
        await client.start(order, "o-1", Order())
        await client.send("o-1", Submit(cents=999), key="click-7")
        view = await client.of(order).wait("o-1", timeout_s=60)

    with BlockingClient("http://127.0.0.1:8080", key="ilk_…") as client:
        client.send("o-1", Submit(cents=999), key="click-7")

Calls return and raise what an engine's calls do. Machines passed here or to a call determine the types of answers;
without its machine a workflow has plain values. A client has one pool of connections, and repeats a call only where
that is safe (see `retries`). Nothing is read from the environment. A blocking client has one event loop in one thread;
any number of threads may call it, and share its connections.

Sections: client, blocking client.
"""

import asyncio
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import EllipsisType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, cast, overload

import msgspec

from interlock.client.bulk_requests import ClientBulk, ClientBulkRuns
from interlock.client.http_connection import Connect, connect
from interlock.client.retries import HttpCall, Transport
from interlock.client.signal_stream import Stream, Streamed, Subscription
from interlock.client.workflow_requests import (
    CONTENT,
    PAGE_MAX,
    ClientWorkflows,
    EventBatch,
    Item,
    KnownMachines,
    Remote,
    checked_id,
    checked_key,
    text_of,
)
from interlock.clock import Chance, SystemChance
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import (
    Dependency,
    Retry,
    Seconds,
    TokenRate,
    demand,
    in_seconds,
    is_number,
    is_positive_int,
)
from interlock.core.search import Where, condition_text
from interlock.core.values import Allowed, ContextT, StateT
from interlock.engine.blocking_engine import BlockingProxy, ClosingProxy, Portal, blocking, plain
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.charts import Charts
from interlock.engine.dependencies.breakers import Breakers, BreakerView
from interlock.engine.engine_settings import Admission
from interlock.engine.leases import LEASE_S, WAIT_S
from interlock.engine.operators.attempts import AttemptPage
from interlock.engine.operators.retention import BATCH, Pruned
from interlock.engine.operators.tasks import Task, TaskPage
from interlock.engine.operators.why import Why
from interlock.engine.path.caller_commands import Beginning, check_kind, start_of
from interlock.engine.pauses import PauseView
from interlock.engine.schedules import Schedule, ScheduleView, codec_of, timing_of
from interlock.engine.views import (
    Compensation,
    Counts,
    DeadLetter,
    HistoryRow,
    Moved,
    Page,
    PlainState,
    Refused,
    Rewind,
    View,
)
from interlock.errors import BadUsage, DefinitionError, TargetNotFound, UnavailableError
from interlock.lanes.hot_rows import HotRow
from interlock.signals import Observer
from interlock.urls import escaped, parse_server_url, query_of
from interlock.wire import (
    ForkBody,
    Listing,
    PauseBody,
    RewindBody,
    ShownHot,
    ShownIdentity,
    ShownLetterGroup,
    ShownPruned,
    ShownResume,
    ShownRewind,
    ShownStarts,
    ShownWorkflow,
    encode,
)

ItemT = TypeVar("ItemT")
EventT = TypeVar("EventT", bound=Event)

TIMEOUT_S = 30.0
ATTEMPT_S = 10.0
CONNECTIONS_MAX = 64
RETRY = Retry(attempts=30, first_s=0.1, max_s=2.0)
"""More attempts than fit into `timeout_s`, which bounds a call while a server restarts."""

LETTERS_MAX = 10_000


class ClientSchedules:
    """The schedules of a server's home: the calls of `engine.schedules`. A client has them as `client.schedules`.

    Calls that change a schedule are not repeated when their answer is lost; `get` shows what came of them.
    """

    def __init__(self, remote: Remote) -> None:
        self._transport = remote.transport

    async def list(self) -> list[ScheduleView]:
        """Return the schedules, oldest first."""
        return [*(await self._transport.fetch(HttpCall("GET", "/v1/schedules"), Listing[ScheduleView])).items]

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule. Raises WorkflowNotFound."""
        return await self._transport.fetch(HttpCall("GET", _schedule(name)), ScheduleView)

    async def put(self, schedule: Schedule, *, by: str | None = None) -> ScheduleView:
        """Store a schedule, or change it. Its context is a value: a server has no functions of its clients."""
        timing = timing_of(schedule)
        if callable(schedule.context):
            raise BadUsage(
                f"the context of schedule {schedule.name!r} is a function.",
                why="The server starts the workflows, and does not have this program's code.",
                fix="Pass a context, or declare the schedule in the server's App(schedules=[…]).",
            )
        body = {
            "machine": schedule.machine.name,
            "cron": timing.cron or None,
            "every_s": timing.every_s or None,
            "timezone": timing.timezone,
            "context": msgspec.Raw(codec_of(schedule.machine).checked_context(schedule.context)),
            "overlap": schedule.overlap,
            "catch_up": schedule.catch_up,
        }
        call = HttpCall("PUT", _schedule(schedule.name) + query_of(by=by), encode(body), (CONTENT,), moves=True)
        return await self._transport.fetch(call, ScheduleView)

    async def pause(self, name: str, *, by: str | None = None) -> ScheduleView:
        """Start nothing at due times until it is resumed."""
        return await self._ask(_schedule(name, "pause"), ScheduleView, by)

    async def resume(self, name: str, *, by: str | None = None) -> ScheduleView:
        """Start at due times again."""
        return await self._ask(_schedule(name, "resume"), ScheduleView, by)

    async def trigger(self, name: str, *, by: str | None = None) -> str:
        """Start one workflow now; return its id."""
        return str((await self._ask(_schedule(name, "trigger"), ShownStarts, by)).id)

    async def backfill(self, name: str, since: datetime, until: datetime, *, by: str | None = None) -> int:
        """Start the workflows of the due times from `since` up to and without `until`; return how many they are."""
        body = encode({"since": since, "until": until})
        return (await self._ask(_schedule(name, "backfill"), ShownStarts, by, body)).count

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Delete a schedule. Workflows that it started go on."""
        target = _schedule(name) + query_of(by=by)
        await self._transport.ask(HttpCall("DELETE", target, repeatable=False, moves=True))

    async def _ask(self, target: str, kind: type[ItemT], by: str | None, body: bytes = b"") -> ItemT:
        call = HttpCall("POST", target + query_of(by=by), body, (CONTENT,), repeatable=False, moves=True)
        return await self._transport.fetch(call, kind)


def _schedule(name: str, action: str = "") -> str:
    return f"/v1/schedules/{escaped(name)}" + (f"/{action}" if action else "")


def _pause_body(
    workflow: str | None, machine: AnyMachine | str | None, state: Enum | str | None, by: str, note: str
) -> bytes:
    name = machine if machine is None or isinstance(machine, str) else machine.name
    return encode(PauseBody(workflow, name, None if state is None else text_of(state), by, note))


class Client:
    """A client of one server. Use it as `async with Client(url) as client`, or close it."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        machines: Iterable[AnyMachine] = (),
        timeout_s: float = TIMEOUT_S,
        attempt_s: float = ATTEMPT_S,
        connections_max: int = CONNECTIONS_MAX,
        retry: Retry = RETRY,
        tls: ssl.SSLContext | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`key` is the API key. A call takes at most `timeout_s` in all, and each attempt at most `attempt_s`.

        `machines` are those whose Enum members and contexts are wanted in answers to calls that name no machine.
        `tls` replaces the context that verifies https, for a certificate authority of your own or a client
        certificate.
        """
        address = parse_server_url(url)
        demand(is_number(timeout_s) and timeout_s > 0, "timeout_s", timeout_s, "more than 0")
        demand(is_number(attempt_s) and attempt_s > 0, "attempt_s", attempt_s, "more than 0")
        demand(is_positive_int(connections_max), "connections_max", connections_max, "a whole number from 1 up")
        transport = Transport(
            address,
            secret=_checked_secret(key),
            timeout_s=timeout_s,
            attempt_s=attempt_s,
            connections_max=connections_max,
            retry=retry,
            tls=tls or (ssl.create_default_context() if address.secure else None),
            chance=chance or SystemChance(),
            connect=self._connect(),
        )
        self._remote = Remote(transport, KnownMachines(machines))
        self._all = ClientWorkflows[Enum, object, Event](self._remote)
        self._subscription = Subscription(transport, "/v1/stream")

    def __repr__(self) -> str:
        return f"<Client of {self._remote.transport.address}>"

    # --- transitions -------------------------------------------------------------------------------------------------

    async def start(
        self,
        machine: Machine[StateT, ContextT, EventT],
        workflow: str,
        context: ContextT,
        *,
        by: str | None = None,
    ) -> View[StateT, ContextT]:
        """Start a workflow. Repeated with the same id and input, returns the existing one (B4).

        `by` names a person, whom history and the audit log record together with the key (F1).
        """
        return await self.of(machine).start(workflow, context, by=by)

    async def send(
        self,
        workflow: str,
        event: Event | str,
        *,
        data: Mapping[str, object] | None = None,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: Beginning | None = None,
        by: str | None = None,
    ) -> Moved[Enum]:
        """Send an event, or its wire name with `data`; returns when its transition is durable. Raises the refusal.

        With a `key` it applies once, however often the connection breaks; `duplicate` is then also true when the client
        itself had to send it twice. Without a key it is sent once, and a lost answer raises OutcomeUnknown. With
        `start=(machine, context)` a workflow that does not exist is started in the same commit (E5). `by` is as in
        `start`.
        """
        workflows: ClientWorkflows[Any, Any, Any] = self._all
        begin = None
        if start is not None:
            machine, begin = start_of(start)
            workflows = ClientWorkflows[Any, Any, Any](self._remote, cast("Machine[Any, Any, Any]", machine))
        return await workflows.send(
            workflow,
            event,
            data=data,
            key=key,
            if_allowed=if_allowed,
            expect_version=expect_version,
            start=begin,
            by=by,
        )

    async def send_many(self, items: Iterable[Item], *, by: str | None = None) -> list[Moved[Enum] | Refused]:
        """Send many events, each with its workflow and optionally a key; returns one answer per item, in order.

        Events of one workflow are applied in order. Raises only when no request could be sent.
        """
        return await EventBatch(self._remote, items, by).send()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, workflow: str) -> View[Enum, object]:
        """Return the workflow's durable state; with plain values when the client does not know its machine."""
        return await self._all.get(workflow)

    @overload
    def of(self, machine: Machine[StateT, ContextT, EventT]) -> ClientWorkflows[StateT, ContextT, EventT]: ...
    @overload
    def of(self, machine: str | None) -> ClientWorkflows[PlainState, object, Event]: ...
    def of(
        self, machine: Machine[StateT, ContextT, EventT] | str | None
    ) -> ClientWorkflows[StateT, ContextT, EventT] | ClientWorkflows[PlainState, object, Event]:
        """Return the same calls, typed by the machine; for its name with plain values, for None of every machine."""
        return ClientWorkflows(self._remote, machine)

    async def wait(self, workflow: str, *states: Enum | str, timeout_s: Seconds | None = None) -> View[Enum, object]:
        """Wait until the workflow is in one of the states; without states, until it is final or resting.

        The server answers when it is. Raises WaitFailed when the workflow ends in another final state, and WaitTimeout
        when the time is over.
        """
        return await self._all.wait(workflow, *states, timeout_s=timeout_s)

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[Enum, object]]:
        """Return the history after a version, in the order of versions (B3, B8); all of it unless limited."""
        return await self._all.history(workflow, after=after, limit=limit)

    async def children(self, workflow: str, *, limit: int = 100, cursor: str | None = None) -> Page[Enum, object]:
        """Return one page of a workflow's children; pass the `cursor` of the previous page (E3)."""
        return await self._all.children(workflow, limit=limit, cursor=cursor)

    async def attempts(
        self, workflow: str, *, after: int = 0, limit: int = 100, cursor: str | None = None
    ) -> AttemptPage:
        """Return one page of the attempts of a workflow, the oldest first; pass the `cursor` of the previous one."""
        return await self._all.attempts(workflow, after=after, limit=limit, cursor=cursor)

    async def fork(self, workflow: str, at_version: int, new_id: str, *, by: str | None = None) -> View[Enum, object]:
        """Start a new workflow in the state and with the context that another one had at a version (F6)."""
        target = f"/v1/workflows/{escaped(checked_id(workflow))}/fork" + query_of(by=by)
        body = encode(ForkBody(at_version, new_id))
        call = HttpCall("POST", target, body, (CONTENT,), moves=True)
        return self._remote.view(None, await self._remote.transport.fetch(call, ShownWorkflow))

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
        """Set a workflow back to the state and context of an earlier version, as `Engine.rewind` does (F6)."""
        match = () if expect_version is None else (("If-Match", f'"{expect_version:d}"'),)
        call = HttpCall(
            "POST",
            f"/v1/workflows/{escaped(checked_id(workflow))}/rewind" + query_of(by=by),
            encode(RewindBody(to_version, note, dry_run, checked_key(key))),
            (CONTENT, *match),
            repeatable=dry_run or key is not None,
            moves=not dry_run,
        )
        return self._remote.rewind(await self._remote.transport.fetch(call, ShownRewind))

    async def why(self, workflow: str) -> Why:
        """Return why a workflow is where it is: how it came there, what it waits for, what can move it (F8)."""
        return await self._remote.transport.fetch(
            HttpCall("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/why"), Why
        )

    async def find(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        where: Where | Sequence[str] = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        order: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """Return one page of a machine's workflows; pass the `cursor` of the previous page (B8, F4).

        The conditions and the order are those of `Engine.find`.
        """
        return await self.of(machine).find(
            state=state,
            where=where,
            updated_after=updated_after,
            updated_before=updated_before,
            order=order,
            limit=limit,
            cursor=cursor,
        )

    async def stalled(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        older_than_s: Seconds | None = None,
        states: Iterable[StateT] | None = None,
        limit: int = 1_000,
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that are in their state for too long; without a time, longer than declared (B7)."""
        return await self.of(machine).stalled(older_than_s=older_than_s, states=states, limit=limit)

    async def allowed(
        self, workflow: str, event: Event | str | None = None, *, data: Mapping[str, object] | None = None
    ) -> list[Allowed[Enum]]:
        """Return the events that have a transition from the current state (A6); with one, also its guard's verdict."""
        return await self._all.allowed(workflow, event, data=data)

    async def stats(self, workflow: str) -> Counts:
        """Return the outcomes of the events sent to it (B5)."""
        return await self._remote.transport.fetch(
            HttpCall("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/stats"), Counts
        )

    async def subscribe(self, observer: Observer) -> None:
        """Call `observer` with every signal of the server's stream from now on.

        Returns when the stream is open. It is called in the client's event loop, and must not block.
        """
        await self._subscription.subscribe(observer)

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling `observer`."""
        self._subscription.unsubscribe(observer)

    def stream(
        self,
        *,
        machine: str | None = None,
        workflow: str | None = None,
        kinds: Iterable[str] | None = None,
        last_event_id: str | None = None,
    ) -> Stream:
        """Stream events from now on, or after an event: `async with client.stream() as events`.

        `kinds` are names of signals ("transition_applied"). A broken stream reconnects by itself; when events
        were missed, it yields an event of kind "reset". It has the signals of the process that answers.
        """
        kind = None if kinds is None else ",".join(kinds)
        target = f"/v1/stream{query_of(machine=machine, workflow=workflow, kind=kind)}"
        return Stream(self._remote.transport, target, last_event_id)

    # --- operating ---------------------------------------------------------------------------------------------------
    # Rulings on dead letters and pruning have no key and are not repeated: when an answer is lost, the outcome is
    # unknown, and the listing shows it. Limits and admission are those of the process that answers.

    def bulk(
        self,
        machine: Machine[StateT, ContextT, EventT] | str,
        *,
        state: Enum | str | None = None,
        where: Where | Sequence[str] = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
    ) -> ClientBulk[EventT]:
        """Return the workflows of a filter, to act on all of them at the server (F5). The filter is that of `find`."""
        return ClientBulk(
            self._remote,
            machine if isinstance(machine, str) else machine.name,
            state=None if state is None else text_of(state),
            where=[each if isinstance(each, str) else condition_text(each) for each in where],
            updated_after=updated_after,
            updated_before=updated_before,
        )

    @property
    def bulk_runs(self) -> ClientBulkRuns:
        """The bulk runs of the server's home."""
        return ClientBulkRuns(self._remote)

    @property
    def schedules(self) -> ClientSchedules:
        """The schedules of the server's home."""
        return ClientSchedules(self._remote)

    async def whoami(self) -> ShownIdentity:
        """Return this client's name in the audit log, its scopes and its limits."""
        return await self._remote.transport.fetch(HttpCall("GET", "/v1/whoami"), ShownIdentity)

    async def compensations(self) -> list[Compensation]:
        """Return the undos that are pending or being tried, of all workflows that unwind."""
        return await self._list("/v1/compensations", Listing[Compensation])

    async def dead_letters(
        self, kind: str | None = None, *, workflow: str | None = None, limit: int = 1_000
    ) -> list[DeadLetter]:
        """Return the dead letters of all workflows or of one, oldest first.

        `kind` is "step", "effect", "undo" or None for all.
        """
        check_kind(kind)
        query = query_of(kind=kind, workflow=workflow, limit=max(1, min(limit, LETTERS_MAX)))
        return await self._list(f"/v1/dead-letters{query}", Listing[DeadLetter])

    async def dead_letter_groups(self) -> list[ShownLetterGroup]:
        """Return how many dead letters there are of each error, by machine and step, effect or undo."""
        return await self._list("/v1/dead-letters/groups", Listing[ShownLetterGroup])

    async def retry_dead_letter(self, letter_id: str, *, by: str | None = None, workflow: str | None = None) -> None:
        """Retry a dead letter, with the same key and all its attempts. It is found sooner by its workflow."""
        await self._rule(letter_id, "retry", None, by, workflow)

    async def resolve_dead_letter(self, letter_id: str, *, note: str, by: str | None = None) -> None:
        """Mark a dead letter as resolved by a person. An unwinding continues; a step's workflow waits for an event."""
        await self._rule(letter_id, "resolve", encode({"note": note}), by)

    async def pause(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the public name.
        machine: AnyMachine | str | None = None,
        state: Enum | str | None = None,
        by: str = "",
        note: str = "",
    ) -> PauseView:
        """Begin nothing for a workflow, a machine or a state, until `resume` (E7). The key is recorded too."""
        call = HttpCall("POST", "/v1/pauses", _pause_body(id, machine, state, by, note), (CONTENT,), moves=True)
        return await self._remote.transport.fetch(call, PauseView)

    async def resume(
        self,
        *,
        id: str | None = None,  # noqa: A002 -- the public name.
        machine: AnyMachine | str | None = None,
        state: Enum | str | None = None,
        by: str = "",
        note: str = "",
    ) -> bool:
        """Go on with what `pause` has stopped. Return whether it was paused."""
        call = HttpCall("POST", "/v1/pauses/resume", _pause_body(id, machine, state, by, note), (CONTENT,), moves=True)
        return (await self._remote.transport.fetch(call, ShownResume)).resumed

    async def pauses(self) -> list[PauseView]:
        """Return the active pauses of the server's home."""
        return [*(await self._remote.transport.fetch(HttpCall("GET", "/v1/pauses"), Listing[PauseView])).items]

    async def charts(
        self,
        machine: AnyMachine | str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step_s: int | None = None,
    ) -> Charts:
        """Return moves, failures, time in state and backlog of one machine or all, over time; by default of 3 hours."""
        name = machine if isinstance(machine, str | None) else machine.name
        query = query_of(
            machine=name,
            since=None if since is None else since.isoformat(),
            until=None if until is None else until.isoformat(),
            step=step_s,
        )
        return await self._remote.transport.fetch(HttpCall("GET", f"/v1/charts{query}"), Charts)

    async def tasks(
        self,
        *,
        role: str | None = None,
        by: str | None = None,
        machine: AnyMachine | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return one page of the tasks that wait for a person, the most urgent first (F2)."""
        name = machine if isinstance(machine, str | None) else machine.name
        query = query_of(role=role, by=by, machine=name, limit=max(1, min(limit, PAGE_MAX)), cursor=cursor)
        page = await self._remote.transport.fetch(HttpCall("GET", "/v1/tasks" + query), Listing[Task])
        return TaskPage(page.items, page.cursor)

    async def task(self, id: str) -> Task:  # noqa: A002 -- the public name.
        """Return one task. Raises VersionConflict for one that has ended, with the decision."""
        return await self._remote.transport.fetch(HttpCall("GET", f"/v1/tasks/{escaped(id)}"), Task)

    async def claim_task(self, id: str, *, by: str) -> Task:  # noqa: A002 -- the public name.
        """Claim a task for a person; for an empty name, for the holder of the key. Raises TaskClaimed."""
        target = f"/v1/tasks/{escaped(id)}/claim{query_of(by=by or None)}"
        call = HttpCall("POST", target, None, (), repeatable=True, moves=True)
        return await self._remote.transport.fetch(call, Task)

    async def release_task(self, id: str, *, by: str, force: bool = False) -> Task:  # noqa: A002 -- the public name.
        """Release a task. Raises TaskClaimed if another person has claimed it, unless `force` is set."""
        target = f"/v1/tasks/{escaped(id)}/release{query_of(by=by or None, force=force or None)}"
        call = HttpCall("POST", target, None, (), repeatable=True, moves=True)
        return await self._remote.transport.fetch(call, Task)

    async def breakers(self) -> Breakers:
        """Return the breakers of all dependencies, as the process that answers has them."""
        return Breakers(await self._list("/v1/breakers", Listing[BreakerView]))

    async def force_breaker(
        self, dependency: str, state: Literal["open", "closed", "auto"], *, by: str | None = None
    ) -> None:
        """Hold a breaker open or closed; "auto" returns it to automatic."""
        if state not in {"open", "closed", "auto"}:
            raise BadUsage(
                f"a breaker cannot be forced to be {state!r}.",
                why="It is forced open, forced closed, or decides by itself.",
                fix='Use "open", "closed" or "auto".',
            )
        try:
            await self._put(f"/v1/breakers/{escaped(dependency)}", {"state": state}, by)
        except TargetNotFound as error:
            raise BadUsage(error.what, why=error.why, fix=error.fix) from error

    async def set_limit(
        self,
        dependency: str,
        *,
        concurrency_max: int | None = None,
        rate_per_s: float | EllipsisType | None = ...,
        by: str | None = None,
    ) -> None:
        """Change the limits of a dependency of a running server; a limit that is not passed keeps its value (C8).

        `rate_per_s=None` removes the limit. Only the process that answers is changed, and only until it ends.
        """
        body: dict[str, object] = {} if concurrency_max is None else {"concurrency_max": concurrency_max}
        if not isinstance(rate_per_s, EllipsisType):
            body["rate_per_s"] = rate_per_s
        # Invalid values are refused here, with the engine's own errors.
        rate = None if isinstance(rate_per_s, EllipsisType) else rate_per_s
        Dependency(dependency, 1 if concurrency_max is None else concurrency_max, rate_per_s=rate)
        await self._put(f"/v1/limits/{escaped(dependency)}", body, by)

    async def set_admission(self, admission: Admission, *, by: str | None = None) -> None:
        """Change the admission limits of the process that answers, until it ends (C7)."""
        value: object = admission  # Callers without a type checker may pass anything.
        if not isinstance(value, Admission):
            raise DefinitionError(
                f"{value!r} is not an Admission.",
                why="An engine admits calls by a rate, a burst and a bound on work in flight.",
                fix="Pass Admission(rate_per_s=100, in_flight_max=10_000).",
                rule="policy-out-of-range",
            )
        if admission.rate_per_s is not None:
            burst = max(1.0, admission.rate_per_s) if admission.burst is None else admission.burst
            TokenRate(rate_per_s=admission.rate_per_s, burst=burst)
        await self._put("/v1/admission", msgspec.to_builtins(admission), by)

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
        """Remove workflows of the server's machines that ended `older_than_s` ago, as `Engine.prune` does.

        It makes several requests, each with a bounded piece of work. When an answer is lost, OutcomeUnknown is raised;
        a repeated call continues with the rest.
        """
        body: dict[str, object] = {
            "older_than_s": in_seconds(older_than_s),
            "history_only": history_only,
            "with_owed": with_owed,
            "dry_run": dry_run,
            "batch": batch,
        }
        rest_s = in_seconds(pause_s)
        if rest_s > 0:
            body["limit"] = batch  # One request per batch, with the pause in between.
        done = Pruned()
        while True:
            target = f"/v1/prune{query_of(by=by)}"
            call = HttpCall("POST", target, encode(body), (CONTENT,), repeatable=False, moves=not dry_run)
            pruned = await self._remote.transport.fetch(call, ShownPruned)
            done = Pruned(workflows=done.workflows + pruned.workflows, events=done.events + pruned.events)
            if not pruned.more:
                return done
            if dry_run:
                raise UnavailableError(
                    f"the server counted {done.workflows:,} workflows, and had no time for the rest.",
                    why="A request works for a bounded time, and a dry run cannot be continued by another request.",
                    fix="Pass a larger older_than_s, or count at the store itself: `interlock prune --dry-run`.",
                )
            await asyncio.sleep(rest_s)

    async def contention(self) -> list[HotRow]:
        """Return the rows and workflows that writers contend for, worst first, as the server has measured them."""
        return [*await self._list("/v1/contention", Listing[ShownHot])]

    # --- calls that only an engine has -------------------------------------------------------------------------------
    # A program that changes from an engine to a client gets a helpful error instead of an AttributeError.

    def transaction(self, connection: object) -> NoReturn:
        """Raise BadUsage: a transaction of your own PostgreSQL connection never passes through a server (B11)."""
        del connection
        raise BadUsage(
            "a client cannot send events inside a transaction of your own.",
            why="The transaction is on your own connection to PostgreSQL, which the server does not use.",
            fix="Open an engine on the same database beside the server, Engine.open(url, machines=[…], worker=False), "
            "and use engine.transaction(connection); or send the event with a key after your commit.",
        )

    def lease(self, name: str, *, wait_s: Seconds = WAIT_S, lease_s: Seconds = LEASE_S) -> NoReturn:
        """Raise BadUsage: a lease protects only a holder that notices its loss in time (C10)."""
        del wait_s, lease_s
        raise BadUsage(
            f"a client cannot hold the lease {name!r:.200}.",
            why="Its holder renews it while the block runs and is stopped when it is lost. Over HTTP neither would "
            "happen in time, and two processes could believe that they hold it.",
            fix="Open an engine on the same store, Engine.open(url, machines=[…], worker=False), and use engine.lease.",
        )

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections. Calls under way end without an answer."""
        await self._subscription.close()
        await self._remote.transport.close()

    async def __aenter__(self) -> Self:
        """Return the client; it connects when it is first used."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    async def _list(self, target: str, kind: type[Listing[ItemT]]) -> list[ItemT]:
        return [*(await self._remote.transport.fetch(HttpCall("GET", target), kind)).items]

    async def _put(self, target: str, body: dict[str, object], by: str | None) -> None:
        call = HttpCall("PUT", target + query_of(by=by), encode(body), (CONTENT,), moves=True)
        await self._remote.transport.ask(call)

    async def _rule(
        self, letter_id: str, ruling: str, body: bytes | None, by: str | None, workflow: str | None = None
    ) -> None:
        target = f"/v1/dead-letters/{escaped(letter_id)}/{ruling}{query_of(by=by, workflow=workflow)}"
        call = HttpCall("POST", target, body or b"", (CONTENT,), repeatable=False, moves=True)
        await self._remote.transport.ask(call)

    def _connect(self) -> Connect:
        """Return the function that opens connections: the seam for tests."""
        return connect


def _checked_secret(key: str | None) -> str | None:
    secret: object = key  # Callers without a type checker may pass anything.
    if secret is None:
        return None
    if isinstance(secret, str) and secret and all("!" <= each <= "~" for each in secret):
        return secret
    raise BadUsage(
        "key is empty, or has characters that no API key has.",
        why="A key is one word of letters, digits and signs. It is a secret, so it is not shown here.",
        fix="Pass it as `interlock keys create` printed it, without spaces or a line break.",
    )


# --- Blocking client -------------------------------------------------------------------------------------------------


class BlockingClientWorkflows(
    BlockingProxy[ClientWorkflows[StateT, ContextT, EventT]], Generic[StateT, ContextT, EventT]
):
    """The workflows of one machine at a server. Made by `client.of(machine)`."""

    start = blocking(ClientWorkflows[StateT, ContextT, EventT].start)
    send = blocking(ClientWorkflows[StateT, ContextT, EventT].send)
    get = blocking(ClientWorkflows[StateT, ContextT, EventT].get)
    wait = blocking(ClientWorkflows[StateT, ContextT, EventT].wait)
    history = blocking(ClientWorkflows[StateT, ContextT, EventT].history)
    children = blocking(ClientWorkflows[StateT, ContextT, EventT].children)
    attempts = blocking(ClientWorkflows[StateT, ContextT, EventT].attempts)
    find = blocking(ClientWorkflows[StateT, ContextT, EventT].find)
    stalled = blocking(ClientWorkflows[StateT, ContextT, EventT].stalled)
    allowed = blocking(ClientWorkflows[StateT, ContextT, EventT].allowed)


class BlockingClientSchedules(BlockingProxy[ClientSchedules]):
    """The schedules of a server's home. A blocking client has them as `client.schedules`."""

    put = blocking(ClientSchedules.put)
    get = blocking(ClientSchedules.get)
    list = blocking(ClientSchedules.list)
    pause = blocking(ClientSchedules.pause)
    resume = blocking(ClientSchedules.resume)
    trigger = blocking(ClientSchedules.trigger)
    backfill = blocking(ClientSchedules.backfill)
    delete = blocking(ClientSchedules.delete)


class BlockingClientBulk(BlockingProxy[ClientBulk[EventT]], Generic[EventT]):
    """The workflows of a filter at a server. Made by `client.bulk(machine, …)`."""

    dry_run = blocking(ClientBulk[EventT].dry_run)
    send = blocking(ClientBulk[EventT].send)
    retry_dead_letters = blocking(ClientBulk[EventT].retry_dead_letters)
    pause = blocking(ClientBulk[EventT].pause)
    resume = blocking(ClientBulk[EventT].resume)
    run = blocking(ClientBulk[EventT].run)


class BlockingClientBulkRuns(BlockingProxy[ClientBulkRuns]):
    """The bulk runs of a server's home. A blocking client has them as `client.bulk_runs`."""

    list = blocking(ClientBulkRuns.list)
    get = blocking(ClientBulkRuns.get)
    stop = blocking(ClientBulkRuns.stop)


class BlockingStream(BlockingProxy[Stream], Iterator[Streamed]):
    """Events as they arrive: `with client.stream() as events: for event in events: …`."""

    def __next__(self) -> Streamed:
        """Wait for the next event and return it."""
        found = self._portal.call(_next_of, self._inside)
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """Close the stream and its connection."""
        if not self._portal.is_forked and not self._portal.is_stopped:
            self._portal.call(self._inside.aclose)

    def __enter__(self) -> Self:
        """Return the stream; it connects when the first event is requested."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the stream."""
        self.close()


class BlockingClient(ClosingProxy[Client]):
    """A client for code that is not async. Use it as `with BlockingClient(url) as client`, or close it."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        machines: Iterable[AnyMachine] = (),
        timeout_s: float = TIMEOUT_S,
        attempt_s: float = ATTEMPT_S,
        connections_max: int = CONNECTIONS_MAX,
        retry: Retry = RETRY,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Takes the arguments of `Client`."""
        # Arguments are checked before a thread is started.
        inside = Client(
            url,
            key=key,
            machines=machines,
            timeout_s=timeout_s,
            attempt_s=attempt_s,
            connections_max=connections_max,
            retry=retry,
            tls=tls,
        )
        super().__init__(Portal("interlock-client", of="client", instead="Use `Client` in code that is async."), inside)

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._inside)[1:]}"

    @property
    def schedules(self) -> BlockingClientSchedules:
        """The schedules of the server's home."""
        return BlockingClientSchedules(self._portal, self._inside.schedules)

    @property
    def bulk_runs(self) -> BlockingClientBulkRuns:
        """The bulk runs of the server's home."""
        return BlockingClientBulkRuns(self._portal, self._inside.bulk_runs)

    def bulk(
        self,
        machine: Machine[StateT, ContextT, EventT] | str,
        *,
        state: Enum | str | None = None,
        where: Where | Sequence[str] = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
    ) -> BlockingClientBulk[EventT]:
        """Return the workflows of a filter, to act on all of them at the server (F5)."""
        inside = self._inside.bulk(
            machine, state=state, where=where, updated_after=updated_after, updated_before=updated_before
        )
        return BlockingClientBulk(self._portal, inside)

    start = blocking(Client.start)
    send = blocking(Client.send)
    send_many = blocking(Client.send_many)

    get = blocking(Client.get)
    wait = blocking(Client.wait)
    history = blocking(Client.history)
    children = blocking(Client.children)
    attempts = blocking(Client.attempts)
    why = blocking(Client.why)
    fork = blocking(Client.fork)
    rewind = blocking(Client.rewind)
    find = blocking(Client.find)
    stalled = blocking(Client.stalled)
    allowed = blocking(Client.allowed)
    stats = blocking(Client.stats)
    subscribe = blocking(Client.subscribe)
    unsubscribe = plain(Client.unsubscribe)

    tasks = blocking(Client.tasks)
    task = blocking(Client.task)
    claim_task = blocking(Client.claim_task)
    release_task = blocking(Client.release_task)
    compensations = blocking(Client.compensations)
    dead_letters = blocking(Client.dead_letters)
    retry_dead_letter = blocking(Client.retry_dead_letter)
    resolve_dead_letter = blocking(Client.resolve_dead_letter)
    breakers = blocking(Client.breakers)
    force_breaker = blocking(Client.force_breaker)
    set_limit = blocking(Client.set_limit)
    set_admission = blocking(Client.set_admission)
    prune = blocking(Client.prune)
    pause = blocking(Client.pause)
    resume = blocking(Client.resume)
    pauses = blocking(Client.pauses)
    contention = blocking(Client.contention)
    whoami = blocking(Client.whoami)
    dead_letter_groups = blocking(Client.dead_letter_groups)
    charts = blocking(Client.charts)

    transaction = plain(Client.transaction)
    lease = plain(Client.lease)

    @overload
    def of(self, machine: Machine[StateT, ContextT, EventT]) -> BlockingClientWorkflows[StateT, ContextT, EventT]: ...
    @overload
    def of(self, machine: str) -> BlockingClientWorkflows[PlainState, object, Event]: ...
    def of(
        self, machine: Machine[StateT, ContextT, EventT] | str
    ) -> BlockingClientWorkflows[StateT, ContextT, EventT] | BlockingClientWorkflows[PlainState, object, Event]:
        """Return the same calls, typed by the machine; for a machine's name, with plain values."""
        if isinstance(machine, str):
            return BlockingClientWorkflows(self._portal, self._inside.of(machine))
        return BlockingClientWorkflows(self._portal, self._inside.of(machine))

    def stream(
        self,
        *,
        machine: str | None = None,
        workflow: str | None = None,
        kinds: Iterable[str] | None = None,
        last_event_id: str | None = None,
    ) -> BlockingStream:
        """Stream events as `Client.stream`: `with client.stream() as events: for event in events: …`."""
        inside = self._inside.stream(machine=machine, workflow=workflow, kinds=kinds, last_event_id=last_event_id)
        return BlockingStream(self._portal, inside)


async def _next_of(stream: Stream) -> Streamed | None:
    return await anext(stream, None)
