"""`ClientWorkflows`: the requests about workflows, of one machine or of all machines of a server.

A `Reader` determines the types of an answer; without one, the workflow's machine does, if the client knows it.
"""

import asyncio
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Generic, TypeVar, cast

import msgspec

from interlock.client.retries import Call, Transport
from interlock.core.codec import Codec
from interlock.core.decide import bounded_repr
from interlock.core.events import Event, wire_name
from interlock.core.machine import Machine
from interlock.core.values import Allowed, ContextT, StateT
from interlock.engine.bound_machine import AnyMachine, state_text
from interlock.engine.path.caller_commands import check_id
from interlock.engine.views import HistoryRow, Moved, Page, View
from interlock.errors import InvalidPayload, UnavailableError, WaitTimeout, WorkflowNotFound
from interlock.urls import escaped, query_of
from interlock.wire import (
    EventBody,
    Listing,
    Reader,
    ShownAllowed,
    ShownMove,
    ShownRow,
    ShownWorkflow,
    StartBody,
    encode,
)

EventT = TypeVar("EventT", bound=Event)

# --- Machines --------------------------------------------------------------------------------------------------------

READERS_MAX = 1_000
"""Machines whose readers are kept."""


class Readers:
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


class Waits:
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

    async def _ask(self, call: Call, timeout_s: float, *, waits: bool) -> ShownWorkflow:
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

    def __init__(self, transport: Transport, readers: Readers) -> None:
        self.transport = transport
        self.readers = readers
        self.waits = Waits(transport)
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

    async def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow. Repeated with the same id and input, returns the existing one (B4)."""
        machine = self._machine
        assert machine is not None, "a start names its machine"
        data = plain_json(context, machine) if isinstance(machine, str) else machine.codec.checked_context(context)
        body = encode(StartBody(checked_id(workflow), msgspec.Raw(data)))
        target = f"/v1/machines/{escaped(str(self._name))}/workflows"
        call = Call("POST", target, body, (CONTENT,), repeatable=True, moves=True)
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
    ) -> Moved[StateT]:
        """Send an event of this machine, or its wire name with `data`. See `Client.send`."""
        await self._remote.check_machine(workflow, self._name)
        name, payload = event_of(event, data)
        headers: list[tuple[str, str]] = [CONTENT]
        checked = checked_key(key)
        # In a header the bytes of such a key could be decoded as another key.
        in_body = checked is not None and not checked.isascii()
        if checked is not None and not in_body:
            headers.append(("Idempotency-Key", checked))
        if expect_version is not None:
            headers.append(("If-Match", f'"{expect_version:d}"'))
        body = encode(EventBody(name, payload, checked if in_body else None))
        target = _path(workflow, f"/events{'?if_allowed=true' if if_allowed else ''}")
        # It may be repeated only with a key (B5).
        call = Call("POST", target, body, tuple(headers), repeatable=key is not None, moves=True)
        answer = await self._remote.transport.fetch(call, ShownMove)
        reader = self._reader
        moved = self._remote.moved(workflow, event, answer) if reader is None else reader.moved(answer)
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow's durable state."""
        return self._view(await self._remote.transport.fetch(_call(workflow), ShownWorkflow))

    async def wait(
        self, workflow: str, *states: StateT | str, timeout_s: float | None = None
    ) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without states, until it is final or resting."""
        await self._remote.check_machine(workflow, self._name)
        return self._view(await self._remote.waits.until(workflow, [*map(text_of, states)], timeout_s=timeout_s))

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

    async def find(
        self, *, state: StateT | str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[StateT, ContextT]:
        """Return one page of workflows; pass the `cursor` of the previous page, None after the last."""
        wanted = None if state is None else text_of(state)
        query = query_of(machine=self._name, state=wanted, limit=_page(limit), cursor=cursor)
        page = await self._remote.transport.fetch(Call("GET", f"/v1/workflows{query}"), Listing[ShownWorkflow])
        return Page(tuple(map(self._item, page.items)), page.cursor)

    async def stalled(
        self, *, older_than_s: float | None = None, states: Iterable[StateT | str] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that have been in their state for too long; without a time, longer than declared."""
        found: list[ShownWorkflow] = []
        for state in [None] if states is None else dict.fromkeys(map(text_of, states)):
            query = query_of(machine=self._name, older_than_s=older_than_s, state=state, limit=_page(limit))
            found += (
                await self._remote.transport.fetch(Call("GET", f"/v1/stalled{query}"), Listing[ShownWorkflow])
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


def _call(workflow: str, below: str = "") -> Call:
    return Call("GET", _path(workflow, below))
