"""`ClientWorkflows`: the requests about workflows, of one machine or of all machines of a server.

A `Reader` determines the types of an answer; without one, the workflow's machine does, if the client knows it.

Sections: machines, arguments, waits, requests, batches of events.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Generic, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from interlock.client.http_connection import ExchangeError, Garbage, Lost, RequestProgress
from interlock.client.retries import FailedAttempt, HttpCall, Transport, error_of
from interlock.core.codec import Codec
from interlock.core.decide import bounded_repr
from interlock.core.events import Event, wire_name
from interlock.core.machine import Machine
from interlock.core.policies import Seconds, in_seconds
from interlock.core.search import Where, condition_text
from interlock.core.values import Allowed, ContextT, StateT
from interlock.engine.bound_machine import AnyMachine, state_text
from interlock.engine.operators.attempts import Attempt, AttemptPage
from interlock.engine.path.caller_commands import Beginning, check_id, start_of
from interlock.engine.schedules import codec_of
from interlock.engine.views import HistoryRow, Moved, Page, Refused, Rewind, View
from interlock.errors import (
    InterlockError,
    InvalidPayload,
    OutcomeUnknown,
    UnavailableError,
    WaitTimeout,
    WorkflowNotFound,
)
from interlock.urls import escaped, query_of
from interlock.wire import (
    BatchLine,
    BeginBody,
    EventBody,
    Listing,
    Reader,
    ShownAllowed,
    ShownMove,
    ShownRewind,
    ShownRow,
    ShownWorkflow,
    StartBody,
    encode,
)

EventT = TypeVar("EventT", bound=Event)

# --- Machines --------------------------------------------------------------------------------------------------------

READERS_MAX = 1_000
"""Machines whose readers are kept."""


class KnownMachines:
    """The machines that one client knows: those passed to its constructor, or to any call that takes one."""

    def __init__(self, machines: Iterable[AnyMachine] = ()) -> None:
        self.plain = Reader()
        self._of: dict[AnyMachine, Reader] = {}
        self._named: dict[str, Reader] = {}
        for machine in machines:
            self.of(machine)

    def __bool__(self) -> bool:
        """Whether any machine is known."""
        return bool(self._of)

    def of(self, machine: AnyMachine) -> Reader:
        """Return the reader of a machine, which is known from now on."""
        reader = self._of.get(machine)
        if reader is None:
            if len(self._of) >= READERS_MAX:
                self._of.clear()
                self._named.clear()
            reader = self._of[machine] = self._named[machine.name] = Reader(machine)
        return reader

    def named(self, machine: str) -> Reader:
        """Return the reader of the machine of that name; a plain one when it is not known."""
        return self._named.get(machine, self.plain)

    def of_event(self, event: Event | str) -> Reader:
        """Return the reader of the known machine that takes this event; a plain one unless there is exactly one."""
        found = [reader for reader in self._named.values() if reader.takes(event)] if self._of else []
        return found[0] if len(found) == 1 else self.plain


# --- Arguments -------------------------------------------------------------------------------------------------------
# Invalid arguments are refused here, before anything is sent.

EVENTS_MAX = 1_024
"""Kinds of events whose encoders are kept."""

_WRITERS: dict[type[Event], tuple[str, Codec[object, Event]]] = {}


def checked_id(workflow: str) -> str:
    """Validate the id of a workflow, for a path."""
    check_id(workflow, "the id of a workflow")
    return workflow


def checked_key(key: str | None) -> str | None:
    """Validate a delivery key, for a header."""
    if key is None:
        return None
    check_id(key, "a delivery key", slash=True)
    if key != key.strip():
        raise InvalidPayload(
            f"the delivery key {key!r} begins or ends with a space.",
            why="It is sent as the header Idempotency-Key, and headers lose surrounding spaces.",
            fix="Use a key without surrounding spaces.",
        )
    return key


def event_of(event: Event | str, data: Mapping[str, object] | None) -> tuple[str, msgspec.Raw]:
    """Return the wire name and the payload of an event: an instance, or a name with its data."""
    if isinstance(event, Event):
        if data is not None:
            raise InvalidPayload(
                f"{bounded_repr(event)} was sent together with data.",
                why="An event carries its own data.",
                fix='Send the event alone, or its name: client.send(id, "SUBMIT", data={…}).',
            )
        name, codec = _writer(type(event))
        return name, msgspec.Raw(codec.encode_event(event))
    value: object = event  # Programs without a type checker may pass anything.
    if not isinstance(value, str):
        name = (
            f"the class {value.__name__}"
            if isinstance(value, type)
            else f"{bounded_repr(value)} ({type(value).__name__})"
        )
        raise InvalidPayload(
            f"{name} was sent as an event.",
            why="An event is an instance of a class of the machine's alphabet, or its wire name.",
            fix='Send Submit(cents=999), or its name: client.send(id, "SUBMIT", data={…}).',
        )
    return event, msgspec.Raw(plain_json({} if data is None else dict(data), f"the data of {event}"))


def _writer(kind: type[Event]) -> tuple[str, Codec[object, Event]]:
    found = _WRITERS.get(kind)
    if found is None:
        if len(_WRITERS) >= EVENTS_MAX:
            _WRITERS.clear()
        name = wire_name(kind)
        found = _WRITERS[kind] = (name, Codec("the client", dict, {name: kind}))
    return found


def begin_of(machine: AnyMachine | str, context: object) -> BeginBody:
    """Return the body of a start: of a machine, or of the name of one with a plain context."""
    if isinstance(machine, str):
        return BeginBody(machine, msgspec.Raw(plain_json(context, machine)))
    return BeginBody(machine.name, msgspec.Raw(codec_of(machine).checked_context(context)))


def plain_json(value: object, what: str) -> bytes:
    """Encode a plain value as JSON, with the bounds and errors of a machine's own types."""
    codec: Codec[object, Event] = Codec(what, dict, {})
    return codec.encode_context(value)


# --- Waits -----------------------------------------------------------------------------------------------------------
# The server answers when the workflow reaches the state, within a bounded time. A server that stops ends its waits,
# and the client repeats them at another one. A wait occupies a connection, so waits may use half of them. Further
# waits poll instead, less and less often: the events that end the waits then still find a connection.

POLL_S_MAX = 20.0
"""Timeout of one request; a server may end it sooner."""

POLL_SHARE = 0.8
"""Share of an attempt's time that the server may wait: the rest is for the network."""

GRACE_S = 1.0
"""How much longer than the timeout to wait for the server's answer, which knows the workflow's state."""

LOOK_FIRST_S, LOOK_FACTOR, LOOK_MAX_S = 0.02, 1.5, 1.0
"""Intervals at which waits poll that have no connection to wait on."""


class ClientWaits:
    """The waits of one client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._places = transport.connections_max // 2

    async def until(self, workflow: str, states: Sequence[str], *, timeout_s: float | None) -> ShownWorkflow:
        """Return the workflow in one of the states. Raises WaitFailed, WaitTimeout, and the errors of a call."""
        now_s = asyncio.get_running_loop().time
        deadline_s = math.inf if timeout_s is None else now_s() + timeout_s
        pause_s = LOOK_FIRST_S
        answered = False
        while True:
            waits = self._places > 0
            poll_s = self._poll_s(deadline_s - now_s()) if waits else 0.0
            call = _call(workflow, "/wait" + query_of(state=",".join(states) or None, timeout_s=poll_s))
            # The first request has the timeout of any call; later ones have the rest of the caller's.
            budget_s = self._transport.timeout_s if not answered else deadline_s - now_s() + GRACE_S
            try:
                return await self._ask(call, min(budget_s, self._transport.timeout_s), waits=waits)
            except WaitTimeout as error:
                answered = True
                wait_s = 0.0 if waits else pause_s * (1 + self._transport.chance.fraction()) / 2
                if now_s() + wait_s >= deadline_s:
                    raise _with_whole_timeout(error, workflow, timeout_s or 0.0) from None
            except UnavailableError as error:
                if not answered or now_s() < deadline_s:
                    raise
                raise WaitTimeout(
                    f"workflow {workflow!r} did not get there within {timeout_s:g} s, as far as is known: {error.what}"
                ) from error
            if wait_s:
                await asyncio.sleep(wait_s)
                pause_s = min(LOOK_MAX_S, pause_s * LOOK_FACTOR)

    def _poll_s(self, left_s: float) -> float:
        return round(max(0.0, min(left_s, POLL_S_MAX, self._transport.attempt_s * POLL_SHARE)), 3)

    async def _ask(self, call: HttpCall, timeout_s: float, *, waits: bool) -> ShownWorkflow:
        self._places -= waits
        try:
            return await self._transport.fetch(call, ShownWorkflow, timeout_s=timeout_s)
        finally:
            self._places += waits


def _with_whole_timeout(error: WaitTimeout, workflow: str, timeout_s: float) -> WaitTimeout:
    """Replace the time in the server's error: it knows only its own request, but the caller waited longer."""
    pattern = re.compile(rf"({re.escape(repr(workflow))} did not get there within )\S+ s")
    error.what = pattern.sub(rf"\g<1>{timeout_s:g} s", error.what, count=1)
    error.args = (error.what,)
    return error


# --- Requests --------------------------------------------------------------------------------------------------------

PAGE_MAX = 1_000
"""Items of one answer."""

MACHINES_MAX = 10_000
"""Number of workflows whose machine is cached."""

CONTENT = ("Content-Type", "application/json")


class Remote:
    """A server as one client knows it: its transport, its machines, and the machines of its workflows.

    The machine of a workflow never changes, so it is cached: `client.of(order)` asks at most once whether an id is an
    order.
    """

    def __init__(self, transport: Transport, readers: KnownMachines) -> None:
        self.transport = transport
        self.readers = readers
        self.waits = ClientWaits(transport)
        self._machines: dict[str, str] = {}

    def moved(self, workflow: str, event: Event | str, answer: ShownMove) -> Moved[Enum]:
        """Convert the outcome of an event with the machine's types, if the workflow or the event shows its machine."""
        machine = self._machines.get(workflow)
        reader = self.readers.of_event(event) if machine is None else self.readers.named(machine)
        # The event was applied: a state that the client's machine lacks must not raise here.
        return (reader if reader.knows(answer.state) else self.readers.plain).moved(answer)

    def view(self, reader: Reader | None, wire: ShownWorkflow, machine: str | None = None) -> View[Enum, object]:
        """Convert a workflow, and cache its machine. Raises WorkflowNotFound if that is not `machine`."""
        if len(self._machines) >= MACHINES_MAX:
            self._machines.clear()
        self._machines[wire.id] = wire.machine
        if machine is not None and wire.machine != machine:
            raise WorkflowNotFound(
                f"there is no workflow {wire.id!r} of machine {machine!r}: it is one of {wire.machine!r}."
            )
        return (reader or self.readers.named(wire.machine)).view(wire)

    def rewind(self, answer: ShownRewind) -> Rewind:
        """Convert a rewind, with the machine's state if the workflow shows its machine."""
        reader = self.readers.named(self._machines.get(answer.id, ""))
        return (reader if reader.knows(answer.state) else self.readers.plain).rewind(answer)

    async def check_machine(self, workflow: str, machine: str | None) -> None:
        """Raise WorkflowNotFound when the workflow belongs to another machine; None permits all machines."""
        if machine is not None and self._machines.get(workflow) != machine:
            self.view(self.readers.plain, await self.transport.fetch(_call(workflow), ShownWorkflow), machine)

    async def reader_of(self, workflow: str) -> Reader:
        """Return the reader of a workflow; requests its machine only if the client knows any."""
        if not self.readers:
            return self.readers.plain
        if workflow not in self._machines:
            self.view(self.readers.plain, await self.transport.fetch(_call(workflow), ShownWorkflow))
        return self.readers.named(self._machines[workflow])


class ClientWorkflows(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine at a server: the calls of a client, typed by it. Made by `client.of(machine)`.

    The machine is checked: a workflow of another machine is not found. The client requests a workflow's machine at
    most once.
    """

    def __init__(self, remote: Remote, machine: Machine[StateT, ContextT, EventT] | str | None = None) -> None:
        """Without a machine they are the workflows of all machines, each read by its own, if the client knows it."""
        self._remote = remote
        self._machine = machine
        self._name: str | None
        self._reader: Reader | None
        if machine is None or isinstance(machine, str):
            self._name, self._reader = machine, None if machine is None else remote.readers.plain
        else:
            self._name, self._reader = machine.name, remote.readers.of(machine)

    async def start(self, workflow: str, context: ContextT, *, by: str | None = None) -> View[StateT, ContextT]:
        """Start a workflow. Repeated with the same id and input, returns the existing one (B4)."""
        body = encode(StartBody(checked_id(workflow), self._begin_body(context).context))
        target = f"/v1/machines/{escaped(str(self._name))}/workflows{query_of(by=by)}"
        call = HttpCall("POST", target, body, (CONTENT,), repeatable=True, moves=True)
        return self._view(await self._remote.transport.fetch(call, ShownWorkflow))

    async def send(
        self,
        workflow: str,
        event: EventT | str,
        *,
        data: Mapping[str, object] | None = None,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
        start: ContextT | None = None,
        by: str | None = None,
    ) -> Moved[StateT]:
        """Send an event of this machine, or its wire name with `data`. See `Client.send`."""
        begin = None if start is None else self._begin_body(start)
        if begin is None:
            await self._remote.check_machine(workflow, self._name)
        return await self._send(
            workflow, event, data, key=key, if_allowed=if_allowed, expect_version=expect_version, begin=begin, by=by
        )

    def _begin_body(self, context: ContextT) -> BeginBody:
        machine = self._machine
        assert machine is not None, "a start names its machine"
        return begin_of(machine, context)

    async def _send(
        self,
        workflow: str,
        event: EventT | str,
        data: Mapping[str, object] | None,
        *,
        key: str | None,
        if_allowed: bool,
        expect_version: int | None,
        begin: BeginBody | None,
        by: str | None,
    ) -> Moved[StateT]:
        name, payload = event_of(event, data)
        headers: list[tuple[str, str]] = [CONTENT]
        checked = checked_key(key)
        # In a header the bytes of such a key could be decoded as another key.
        in_body = checked is not None and not checked.isascii()
        if checked is not None and not in_body:
            headers.append(("Idempotency-Key", checked))
        if expect_version is not None:
            headers.append(("If-Match", f'"{expect_version:d}"'))
        body = encode(EventBody(name, payload, checked if in_body else None, begin))
        query = query_of(if_allowed="true" if if_allowed else None, by=by) if if_allowed or by else ""
        target = _path(workflow, f"/events{query}")
        # It may be repeated only with a key (B5).
        call = HttpCall("POST", target, body, tuple(headers), repeatable=key is not None, moves=True)
        answer = await self._remote.transport.fetch(call, ShownMove)
        reader = self._reader
        moved = self._remote.moved(workflow, event, answer) if reader is None else reader.moved(answer)
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow's durable state."""
        return self._view(await self._remote.transport.fetch(_call(workflow), ShownWorkflow))

    async def wait(
        self, workflow: str, *states: StateT | str, timeout_s: Seconds | None = None
    ) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without states, until it is final or resting."""
        await self._remote.check_machine(workflow, self._name)
        return self._view(
            await self._remote.waits.until(workflow, [*map(text_of, states)], timeout_s=in_seconds(timeout_s))
        )

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history after a version, in the order of versions; all of it unless limited."""
        await self._remote.check_machine(workflow, self._name)
        reader = self._reader or await self._remote.reader_of(workflow)
        rows: list[HistoryRow[Enum, object]] = []
        while limit is None or len(rows) < limit:
            most = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(rows))
            # A cursor of history is the last version of the previous page.
            last = rows[-1].version if rows else after
            call = _call(workflow, "/history" + query_of(cursor=last or None, limit=most))
            page = await self._remote.transport.fetch(call, Listing[ShownRow])
            rows += [reader.row(each) for each in page.items]
            if page.cursor is None or not page.items:
                break
        return cast("list[HistoryRow[StateT, ContextT]]", rows)

    async def children(self, workflow: str, *, limit: int = 100, cursor: str | None = None) -> Page[Enum, object]:
        """Return one page of a workflow's children; pass the `cursor` of the previous page, None after the last."""
        await self._remote.check_machine(workflow, self._name)
        call = _call(workflow, "/children" + query_of(limit=_page(limit), cursor=cursor))
        page = await self._remote.transport.fetch(call, Listing[ShownWorkflow])
        views = [self._remote.view(None, each) for each in page.items]
        return Page(tuple(views), page.cursor)

    async def attempts(
        self, workflow: str, *, after: int = 0, limit: int = 100, cursor: str | None = None
    ) -> AttemptPage:
        """Return one page of the attempts of a workflow, the oldest first; pass the `cursor` of the previous one."""
        await self._remote.check_machine(workflow, self._name)
        call = _call(workflow, "/attempts" + query_of(after=after or None, limit=_page(limit), cursor=cursor))
        page = await self._remote.transport.fetch(call, Listing[Attempt])
        return AttemptPage(page.items, page.cursor)

    async def find(
        self,
        *,
        state: StateT | str | None = None,
        where: Where | Sequence[str] = (),
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        order: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """Return one page of workflows; pass the `cursor` of the previous page, None after the last.

        The conditions and the order are those of `Engine.find`; a condition may also be a text: `"cents>100"`.
        """
        query = query_of(
            machine=self._name,
            state=None if state is None else text_of(state),
            updated_after=None if updated_after is None else updated_after.isoformat(),
            updated_before=None if updated_before is None else updated_before.isoformat(),
            order=order,
            limit=_page(limit),
            cursor=cursor,
        )
        for each in where:
            condition = each if isinstance(each, str) else condition_text(each)
            query += f"&{urlencode({'where': condition})}"
        page = await self._remote.transport.fetch(HttpCall("GET", f"/v1/workflows{query}"), Listing[ShownWorkflow])
        return Page(tuple(map(self._item, page.items)), page.cursor)

    async def stalled(
        self, *, older_than_s: Seconds | None = None, states: Iterable[StateT | str] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that have been in their state for too long; without a time, longer than declared."""
        found: list[ShownWorkflow] = []
        for state in [None] if states is None else dict.fromkeys(map(text_of, states)):
            query = query_of(machine=self._name, older_than_s=in_seconds(older_than_s), state=state, limit=_page(limit))
            found += (
                await self._remote.transport.fetch(HttpCall("GET", f"/v1/stalled{query}"), Listing[ShownWorkflow])
            ).items
        if states is not None:
            found.sort(key=lambda each: each.updated_at)
        return [*map(self._item, found[:limit])]

    async def allowed(
        self, workflow: str, event: EventT | str | None = None, *, data: Mapping[str, object] | None = None
    ) -> list[Allowed[StateT]]:
        """Return the events that have a transition from the current state; with an event, also its guard's verdict.

        The event is one of this machine, or its wire name with `data`.
        """
        await self._remote.check_machine(workflow, self._name)
        reader = self._reader or await self._remote.reader_of(workflow)
        query = ""
        if event is not None:
            name, payload = event_of(event, data)
            query = query_of(event=name, data=bytes(payload).decode())
        page = await self._remote.transport.fetch(_call(workflow, f"/allowed{query}"), Listing[ShownAllowed])
        return cast("list[Allowed[StateT]]", [reader.allowed(each) for each in page.items])

    def _view(self, wire: ShownWorkflow) -> View[StateT, ContextT]:
        return cast("View[StateT, ContextT]", self._remote.view(self._reader, wire, self._name))

    def _item(self, wire: ShownWorkflow) -> View[StateT, ContextT]:
        return cast("View[StateT, ContextT]", self._remote.view(self._reader, wire))


def text_of(state: Enum | str) -> str:
    """Return a state as it is stored."""
    return state_text(state) if isinstance(state, Enum) else state


def _page(limit: int) -> int:
    return max(1, min(limit, PAGE_MAX))


def _path(workflow: str, below: str = "") -> str:
    return f"/v1/workflows/{escaped(checked_id(workflow))}{below}"


def _call(workflow: str, below: str = "") -> HttpCall:
    return HttpCall("GET", _path(workflow, below))


# --- Batches of events -----------------------------------------------------------------------------------------------
# Lines (NDJSON) are sent in pieces of a bounded size, one piece after another, so that lines of one workflow keep their
# order. When the answers end early, those that arrived count. Of the remaining lines, those with a key are sent again;
# the outcome of those without a key is OutcomeUnknown. A refused line is not sent again: a later line of the same
# workflow may have been applied after it.

NDJSON = "application/x-ndjson"

LINES_MAX = 1_000
"""Lines of one request."""

BYTES_MAX = 1024 * 1024
"""Bytes of one request, unless a single line is longer."""

ANSWER_LINE_BYTES_MAX = 1024 * 1024

Item = tuple[str, Event] | tuple[str, Event, str | None] | tuple[str, Event, str | None, Beginning | None]
Result = Moved[Enum] | Refused


class BatchEvent:
    """One event of a batch, with its answer."""

    __slots__ = ("answer", "data", "doubt", "event", "key", "workflow")

    def __init__(self, workflow: str, event: Event, key: str | None = None, start: Beginning | None = None) -> None:
        check_id(workflow, "the id of a workflow")
        if key is not None:
            check_id(key, "a delivery key", slash=True)
        name, payload = event_of(event, None)
        self.workflow = workflow
        self.event = event
        self.key = key
        begin = None if start is None else begin_of(*start_of(start))
        self.data = encode(BatchLine(workflow, name, payload, key, begin)) + b"\n"
        self.answer: Result | None = None
        self.doubt = False
        """Whether it was sent and may have been applied."""


class EventBatch:
    """One call of `send_many`."""

    def __init__(self, remote: Remote, items: Iterable[Item], by: str | None = None) -> None:
        self._remote = remote
        self._target = f"/v1/events:batch{query_of(by=by)}"
        self._transport = remote.transport
        self._slots: list[BatchEvent | Refused] = [_line(item) for item in items]

    async def send(self) -> list[Result]:
        """Send everything. Raises only when no line could be sent."""
        lines = [slot for slot in self._slots if isinstance(slot, BatchEvent)]
        deadline_s = asyncio.get_running_loop().time() + self._transport.timeout_s
        answered = len(lines) < len(self._slots)
        for piece in _pieces(lines):
            error = await self._piece(piece, deadline_s)
            answered = answered or any(line.answer is not None or line.doubt for line in piece)
            if error is not None:
                if not answered:
                    raise error
                self._give_up(lines, error)
                break
            # Each piece has the timeout of a call of its own: a long list takes longer without being stuck.
            deadline_s = asyncio.get_running_loop().time() + self._transport.timeout_s
        return [slot if isinstance(slot, Refused) else cast("Result", slot.answer) for slot in self._slots]

    async def _piece(self, lines: list[BatchEvent], deadline_s: float) -> InterlockError | None:
        """Send lines until all are answered; return the error that ended it earlier."""
        attempt = 0
        while waiting := [line for line in lines if line.answer is None]:
            attempt += 1
            call = _batch_call(self._target, waiting)
            failure = await self._attempt(call, waiting, deadline_s)
            if failure is None:
                continue
            for line in waiting:
                if line.answer is None and line.doubt and line.key is None:
                    line.answer = self._unknown(line, failure.error)
            left = [line for line in waiting if line.answer is None]
            call = _batch_call(self._target, left)
            if left and not await self._transport.pause(call, failure, attempt, deadline_s):
                return failure.error
        return None

    async def _attempt(self, call: HttpCall, lines: list[BatchEvent], deadline_s: float) -> FailedAttempt | None:
        """Send the lines once; return the failure that came before the last answer."""
        transport = self._transport
        now_s = asyncio.get_running_loop().time
        attempt_s = max(0.0, min(transport.attempt_s, deadline_s - now_s()))
        transport.spend(retry=any(line.doubt for line in lines))
        attempt = RequestProgress()
        try:
            async with asyncio.timeout(attempt_s), transport.open_stream(call, attempt) as incoming:
                await self._answers(incoming.pieces(), lines)
        except TimeoutError:
            failure = transport.verdicts.failure(call, Lost(f"there was no whole answer within {attempt_s:.3g} s"))
        except ExchangeError as error:
            failure = transport.verdicts.failure(call, error)
        else:
            if lines[-1].answer is not None:
                return None
            failure = transport.verdicts.failure(call, Lost("the answer ended before its last line"))
        for line in lines:
            line.doubt = line.doubt or (failure.doubt and attempt.sent)
        return failure

    async def _answers(self, pieces: AsyncIterator[bytes], lines: list[BatchEvent]) -> None:
        waiting = iter(lines)
        rest = b""
        async for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            for data in whole:
                self._answer(waiting, data)
            if len(rest) > ANSWER_LINE_BYTES_MAX:
                raise Garbage(f"a line is longer than {ANSWER_LINE_BYTES_MAX:,} bytes")
        self._answer(waiting, rest)

    def _answer(self, waiting: Iterator[BatchEvent], data: bytes) -> None:
        """Set the answer of the next line. Raises Garbage."""
        if not data.strip():
            return
        line = next(waiting, None)
        if line is None:
            raise Garbage("it has more lines than were sent")
        try:
            document: object = msgspec.json.decode(data)
            if isinstance(document, dict) and "code" in document:
                problem = cast("dict[str, object]", document)
                status = problem.get("status")
                error = error_of(problem, status=status if isinstance(status, int) else 400)
                line.answer = Refused(self._transport.verdicts.clean(error))
            else:
                move = msgspec.convert(document, ShownMove)
                line.answer = self._remote.moved(line.workflow, line.event, move)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Garbage(str(error)) from error

    def _unknown(self, line: BatchEvent, error: InterlockError) -> Refused:
        unknown = OutcomeUnknown(
            f"the event for workflow {line.workflow!r} has no known outcome: {error.what}",
            why="The line may have been applied before the connection, the server or the time failed.",
            fix="Get the workflow before you send it again; with a key the client repeats it safely."
            if line.key is None
            else "Send it again with the same key: it is applied at most once.",
        )
        unknown.__cause__ = error
        return Refused(unknown)

    def _give_up(self, lines: list[BatchEvent], error: InterlockError) -> None:
        """Set the outcome of every line that has no answer."""
        for line in lines:
            if line.answer is None:
                line.answer = self._unknown(line, error) if line.doubt else Refused(error)


def _line(item: Item) -> BatchEvent | Refused:
    workflow, event = item[:2]
    key = item[2] if len(item) > 2 else None  # noqa: PLR2004 -- as typed.
    start = item[3] if len(item) > 3 else None  # noqa: PLR2004 -- as typed.
    try:
        return BatchEvent(workflow, event, key, start)
    except InterlockError as error:
        return Refused(error)


def _pieces(lines: list[BatchEvent]) -> Iterator[list[BatchEvent]]:
    piece: list[BatchEvent] = []
    size = 0
    for line in lines:
        if piece and (len(piece) >= LINES_MAX or size + len(line.data) > BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += len(line.data)
    if piece:
        yield piece


def _batch_call(target: str, lines: list[BatchEvent]) -> HttpCall:
    return HttpCall(
        "POST",
        target,
        b"".join(line.data for line in lines),
        (("Content-Type", NDJSON),),
        repeatable=all(line.key is not None for line in lines),
        moves=True,
        kind=NDJSON,
    )
