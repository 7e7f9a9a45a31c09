"""Requests about workflows, shared by `Client` and `client.of(machine)`.

Each call takes a `Reader`, which determines the types of the answer; without one, the workflow's machine does, if the
client knows it. The machine of a workflow never changes, so it is cached: `client.of(order)` asks at most once
whether an id is an order.
"""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from interlock.client.retries import Answer, Call, Transport
from interlock.client.wire import (
    Listing,
    Reader,
    Readers,
    WireAllowed,
    WireEvent,
    WireMoved,
    WireRow,
    WireView,
    checked_id,
    checked_key,
    encode,
    event_of,
)
from interlock.core.events import Event
from interlock.core.values import Allowed
from interlock.engine.bound_machine import state_text
from interlock.engine.views import Counts, HistoryRow, Moved, Page, View
from interlock.errors import UnavailableError, WaitTimeout, WorkflowNotFound
from interlock.urls import escaped, query_of

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

    async def until(self, workflow: str, states: Sequence[str], *, timeout_s: float | None) -> tuple[Call, Answer]:
        """Return the answer that has the workflow. Raises WaitFailed, WaitTimeout, and the errors of a call."""
        now_s = asyncio.get_running_loop().time
        deadline_s = math.inf if timeout_s is None else now_s() + timeout_s
        pause_s = LOOK_FIRST_S
        answered = False
        while True:
            waits = self._places > 0
            poll_s = self._poll_s(deadline_s - now_s()) if waits else 0.0
            call = _call(workflow, states, poll_s)
            # The first request has the timeout of any call; later ones have the rest of the caller's.
            budget_s = self._transport.timeout_s if not answered else deadline_s - now_s() + GRACE_S
            try:
                return call, await self._ask(call, min(budget_s, self._transport.timeout_s), waits=waits)
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

    async def _ask(self, call: Call, timeout_s: float, *, waits: bool) -> Answer:
        self._places -= waits
        try:
            return await self._transport.ask(call, timeout_s=timeout_s)
        finally:
            self._places += waits


def _call(workflow: str, states: Sequence[str], poll_s: float) -> Call:
    query = query_of(state=",".join(states) or None, timeout_s=poll_s)
    return Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/wait{query}")


def _with_whole_timeout(error: WaitTimeout, workflow: str, timeout_s: float) -> WaitTimeout:
    """Replace the time in the server's error: it knows only its own request, but the caller waited longer."""
    pattern = re.compile(rf"({re.escape(repr(workflow))} did not get there within )\S+ s")
    error.what = pattern.sub(rf"\g<1>{timeout_s:g} s", error.what, count=1)
    error.args = (error.what,)
    return error


# --- Requests --------------------------------------------------------------------------------------------------------

ValueT = TypeVar("ValueT")

PAGE_MAX = 1_000
"""Items of one answer."""

MACHINES_MAX = 10_000
"""Number of workflows whose machine is cached."""

CONTENT = ("Content-Type", "application/json")


class Remote:
    """Calls about the workflows of a server."""

    def __init__(self, transport: Transport, readers: Readers) -> None:
        self.transport = transport
        self.readers = readers
        self._waits = Waits(transport)
        self._machines: dict[str, str] = {}

    # --- transitions -------------------------------------------------------------------------------------------------

    async def start(self, reader: Reader, machine: str, workflow: str, context: bytes) -> View[Enum, object]:
        """Start a workflow. It may be repeated: the same id and input return the existing one (B4)."""
        body = encode({"id": checked_id(workflow), "context": msgspec.Raw(context)})
        target = f"/v1/machines/{escaped(machine)}/workflows"
        call = Call("POST", target, body, (CONTENT,), repeatable=True, moves=True)
        return self._view(reader, call, await self.transport.ask(call), machine)

    async def send(
        self,
        reader: Reader | None,
        workflow: str,
        event: Event | str,
        *,
        data: Mapping[str, object] | None,
        key: str | None,
        if_allowed: bool,
        expect_version: int | None,
    ) -> Moved[Enum]:
        """Send an event. It may be repeated only with a key (B5)."""
        name, payload = event_of(event, data)
        headers: list[tuple[str, str]] = [CONTENT]
        checked = checked_key(key)
        # In a header the bytes of such a key could be decoded as another key.
        in_body = checked is not None and not checked.isascii()
        if checked is not None and not in_body:
            headers.append(("Idempotency-Key", checked))
        if expect_version is not None:
            headers.append(("If-Match", f'"{expect_version:d}"'))
        target = f"/v1/workflows/{escaped(checked_id(workflow))}/events{'?if_allowed=true' if if_allowed else ''}"
        body = encode(WireEvent(name, payload, key=checked if in_body else None))
        call = Call("POST", target, body, tuple(headers), repeatable=key is not None, moves=True)
        answer = self.read(call, await self.transport.ask(call), WireMoved)
        return self.moved(workflow, event, answer) if reader is None else reader.moved(answer)

    def moved(self, workflow: str, event: Event | str, answer: WireMoved) -> Moved[Enum]:
        """Convert the outcome of an event with the machine's types, if the workflow or the event shows its machine."""
        machine = self._machines.get(workflow)
        reader = self.readers.taking(event) if machine is None else self.readers.named(machine)
        # The event was applied: a state that the client's machine lacks must not raise here.
        return (reader if reader.knows(answer.state) else self.readers.plain).moved(answer)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, reader: Reader | None, workflow: str, *, machine: str | None = None) -> View[Enum, object]:
        """Return the workflow's durable state. Raises WorkflowNotFound if it belongs to another machine."""
        call = Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}")
        return self._view(reader, call, await self.transport.ask(call), machine)

    async def check_machine(self, workflow: str, machine: str) -> None:
        """Raise WorkflowNotFound when the workflow belongs to another machine."""
        if self._machines.get(workflow) != machine:
            await self.get(self.readers.plain, workflow, machine=machine)

    async def stats(self, workflow: str) -> Counts:
        """Return the outcomes of the events sent to it."""
        call = Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/stats")
        return self.read(call, await self.transport.ask(call), Counts)

    async def history(
        self, reader: Reader | None, workflow: str, *, after: int, limit: int | None
    ) -> list[HistoryRow[Enum, object]]:
        """Return the history of the workflow after a version, loaded page by page."""
        target = f"/v1/workflows/{escaped(checked_id(workflow))}/history"
        reader = reader or await self._reader_of(workflow)
        rows: list[HistoryRow[Enum, object]] = []
        while limit is None or len(rows) < limit:
            most = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(rows))
            # A cursor of history is the last version of the previous page.
            last = rows[-1].version if rows else after
            call = Call("GET", target + query_of(cursor=last or None, limit=most))
            page = self.read(call, await self.transport.ask(call), Listing[WireRow])
            rows += [reader.row(each) for each in page.items]
            if page.cursor is None or not page.items:
                break
        return rows

    async def find(
        self, reader: Reader, machine: str, *, state: Enum | str | None, limit: int, cursor: str | None
    ) -> Page[Enum, object]:
        """Return one page of a machine's workflows."""
        wanted = None if state is None else text_of(state)
        call = Call("GET", "/v1/workflows" + query_of(machine=machine, state=wanted, limit=_page(limit), cursor=cursor))
        page = self.read(call, await self.transport.ask(call), Listing[WireView])
        return Page(tuple(self._remember(reader, each) for each in page.items), page.cursor)

    async def stalled(
        self,
        reader: Reader,
        machine: str,
        *,
        older_than_s: float | None,
        states: Sequence[Enum | str] | None,
        limit: int,
    ) -> list[View[Enum, object]]:
        """Return active workflows that have been in their state for too long."""
        found: list[WireView] = []
        for state in [None] if states is None else dict.fromkeys(map(text_of, states)):
            query = query_of(machine=machine, older_than_s=older_than_s, state=state, limit=_page(limit))
            call = Call("GET", f"/v1/stalled{query}")
            found += self.read(call, await self.transport.ask(call), Listing[WireView]).items
        if states is not None:
            found.sort(key=lambda each: each.updated_at)
        return [self._remember(reader, each) for each in found[:limit]]

    async def allowed(
        self, reader: Reader | None, workflow: str, event: Event | str | None, data: Mapping[str, object] | None = None
    ) -> list[Allowed[Enum]]:
        """Return the events that have a transition from the current state; with an event, also its guard's verdict."""
        reader = reader or await self._reader_of(workflow)
        query = ""
        if event is not None:
            name, payload = event_of(event, data)
            query = query_of(event=name, data=bytes(payload).decode())
        call = Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/allowed{query}")
        page = self.read(call, await self.transport.ask(call), Listing[WireAllowed])
        return [reader.allowed(each) for each in page.items]

    async def wait(
        self,
        reader: Reader | None,
        workflow: str,
        states: Sequence[Enum | str],
        *,
        timeout_s: float | None,
        machine: str | None = None,
    ) -> View[Enum, object]:
        """Return the workflow as soon as it is in one of the states."""
        if machine is not None:
            await self.check_machine(workflow, machine)
        call, answer = await self._waits.until(workflow, [text_of(state) for state in states], timeout_s=timeout_s)
        return self._view(reader, call, answer, machine)

    # --- answers -----------------------------------------------------------------------------------------------------

    def read(self, call: Call, answer: Answer, kind: type[ValueT]) -> ValueT:
        """Decode an answer. Raises as for any answer that cannot be used."""
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            failure = self.transport.verdicts.garbage(call, f"{error}")
            raise self.transport.verdicts.final(call, failure, doubt=True, attempts=1) from error

    async def _reader_of(self, workflow: str) -> Reader:
        """Return the reader of a workflow; requests its machine only if the client knows any."""
        if not self.readers:
            return self.readers.plain
        if workflow not in self._machines:
            await self.get(self.readers.plain, workflow)
        return self.readers.named(self._machines[workflow])

    def _view(self, reader: Reader | None, call: Call, answer: Answer, machine: str | None) -> View[Enum, object]:
        return self._remember(reader, self.read(call, answer, WireView), machine)

    def _remember(self, reader: Reader | None, wire: WireView, machine: str | None = None) -> View[Enum, object]:
        if len(self._machines) >= MACHINES_MAX:
            self._machines.clear()
        self._machines[wire.id] = wire.machine
        if machine is not None and wire.machine != machine:
            raise WorkflowNotFound(
                f"there is no workflow {wire.id!r} of machine {machine!r}: it is one of {wire.machine!r}."
            )
        return (reader or self.readers.named(wire.machine)).view(wire)


def text_of(state: Enum | str) -> str:
    """Return a state as it is stored."""
    return state_text(state) if isinstance(state, Enum) else state


def _page(limit: int) -> int:
    return max(1, min(limit, PAGE_MAX))
