"""The calls about workflows, as requests: what `Client` and `client.of(machine)` have in common.

Each takes a `Reader`, which says of what types the answer is; without one they are those of the workflow's machine, if
the client knows it. What the client has seen of a workflow's machine is remembered, because an id keeps it for life:
`client.of(order)` has to ask at most once whether an id is an order.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from interlock.client.addresses import escaped, query_of
from interlock.client.calling import Calling
from interlock.client.readers import Readers
from interlock.client.reading import Listing, Reader, WireAllowed, WireMoved, WireRow, WireView
from interlock.client.verdicts import Answer, Call
from interlock.client.waiting import Waits
from interlock.client.writing import WireEvent, checked_id, checked_key, encode, event_of
from interlock.core.events import Event
from interlock.core.values import Allowed
from interlock.errors import WorkflowNotFound
from interlock.runtime.bound import state_text
from interlock.runtime.views import Counts, HistoryRow, Moved, Page, View

ValueT = TypeVar("ValueT")

PAGE_MAX = 1_000
"""Items of one answer."""

SEEN_MAX = 10_000
"""Workflows whose machine is remembered."""

CONTENT = ("Content-Type", "application/json")


class Remote:
    """Workflows at a server."""

    def __init__(self, calling: Calling, readers: Readers) -> None:
        self.calling = calling
        self.readers = readers
        self._waits = Waits(calling)
        self._seen: dict[str, str] = {}

    # --- moving ------------------------------------------------------------------------------------------------------

    async def start(self, reader: Reader, machine: str, workflow: str, context: bytes) -> View[Enum, object]:
        """Begin a workflow. By its nature it may be repeated: the same id and input again finds the first (B4)."""
        body = encode({"id": checked_id(workflow), "context": msgspec.Raw(context)})
        target = f"/v1/machines/{escaped(machine)}/workflows"
        call = Call("POST", target, body, (CONTENT,), repeatable=True, moves=True)
        return self._view(reader, call, await self.calling.ask(call), machine)

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
        """Send an event. Only with a key it may be repeated (B5)."""
        name, payload = event_of(event, data)
        headers: list[tuple[str, str]] = [CONTENT]
        checked = checked_key(key)
        in_body = checked is not None and not checked.isascii()  # As a header its bytes could be read as another key.
        if checked is not None and not in_body:
            headers.append(("Idempotency-Key", checked))
        if expect_version is not None:
            headers.append(("If-Match", f'"{expect_version:d}"'))
        target = f"/v1/workflows/{escaped(checked_id(workflow))}/events{'?if_allowed=true' if if_allowed else ''}"
        body = encode(WireEvent(name, payload, key=checked if in_body else None))
        call = Call("POST", target, body, tuple(headers), repeatable=key is not None, moves=True)
        told = self.read(call, await self.calling.ask(call), WireMoved)
        return self.moved(workflow, event, told) if reader is None else reader.moved(told)

    def moved(self, workflow: str, event: Event | str, told: WireMoved) -> Moved[Enum]:
        """What became of an event, with the types of the machine, if that is known by the workflow or by the event."""
        machine = self._seen.get(workflow)
        reader = self.readers.taking(event) if machine is None else self.readers.named(machine)
        # It has happened: a state that the machine here lacks is no reason to say otherwise.
        return (reader if reader.knows(told.state) else self.readers.plain).moved(told)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def get(self, reader: Reader | None, workflow: str, *, machine: str | None = None) -> View[Enum, object]:
        """The workflow as it is durable. Of another machine than the one that is named it is not found."""
        call = Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}")
        return self._view(reader, call, await self.calling.ask(call), machine)

    async def check_machine(self, workflow: str, machine: str) -> None:
        """Raise WorkflowNotFound when the workflow is one of another machine."""
        if self._seen.get(workflow) != machine:
            await self.get(self.readers.plain, workflow, machine=machine)

    async def stats(self, workflow: str) -> Counts:
        """What became of the events sent to it."""
        call = Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/stats")
        return self.read(call, await self.calling.ask(call), Counts)

    async def history(
        self, reader: Reader | None, workflow: str, *, after: int, limit: int | None
    ) -> list[HistoryRow[Enum, object]]:
        """What happened to the workflow behind a version, page by page."""
        target = f"/v1/workflows/{escaped(checked_id(workflow))}/history"
        reader = reader or await self._reader_of(workflow)
        rows: list[HistoryRow[Enum, object]] = []
        while limit is None or len(rows) < limit:
            most = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(rows))
            # A cursor of history is the version that the page before has ended with.
            behind = rows[-1].version if rows else after
            call = Call("GET", target + query_of(cursor=behind or None, limit=most))
            page = self.read(call, await self.calling.ask(call), Listing[WireRow])
            rows += [reader.row(each) for each in page.items]
            if page.cursor is None or not page.items:
                break
        return rows

    async def find(
        self, reader: Reader, machine: str, *, state: Enum | str | None, limit: int, cursor: str | None
    ) -> Page[Enum, object]:
        """The workflows of a machine, page by page."""
        wanted = None if state is None else text_of(state)
        call = Call("GET", "/v1/workflows" + query_of(machine=machine, state=wanted, limit=_page(limit), cursor=cursor))
        page = self.read(call, await self.calling.ask(call), Listing[WireView])
        return Page(tuple(self._noted(reader, each) for each in page.items), page.cursor)

    async def stalled(
        self,
        reader: Reader,
        machine: str,
        *,
        older_than_s: float | None,
        states: Sequence[Enum | str] | None,
        limit: int,
    ) -> list[View[Enum, object]]:
        """The active workflows that have been in their state for too long."""
        found: list[WireView] = []
        for state in [None] if states is None else dict.fromkeys(map(text_of, states)):
            query = query_of(machine=machine, older_than_s=older_than_s, state=state, limit=_page(limit))
            call = Call("GET", f"/v1/stalled{query}")
            found += self.read(call, await self.calling.ask(call), Listing[WireView]).items
        if states is not None:
            found.sort(key=lambda each: each.updated_at)
        return [self._noted(reader, each) for each in found[:limit]]

    async def allowed(
        self, reader: Reader | None, workflow: str, event: Event | str | None, data: Mapping[str, object] | None = None
    ) -> list[Allowed[Enum]]:
        """The events that have a transition from where the workflow stands; with one, what its guard says."""
        reader = reader or await self._reader_of(workflow)
        query = ""
        if event is not None:
            name, payload = event_of(event, data)
            query = query_of(event=name, data=bytes(payload).decode())
        call = Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/allowed{query}")
        page = self.read(call, await self.calling.ask(call), Listing[WireAllowed])
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
        """The workflow, as soon as it is there."""
        if machine is not None:
            await self.check_machine(workflow, machine)
        call, answer = await self._waits.until(workflow, [text_of(state) for state in states], timeout_s=timeout_s)
        return self._view(reader, call, answer, machine)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, call: Call, answer: Answer, kind: type[ValueT]) -> ValueT:
        """The value in an answer. Raises as for any answer that cannot be used."""
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            failure = self.calling.verdicts.garbage(call, f"{error}")
            raise self.calling.verdicts.final(call, failure, doubt=True, attempts=1) from error

    async def _reader_of(self, workflow: str) -> Reader:
        """The reader of a workflow; its machine is asked for only where it can be one that is known."""
        if not self.readers:
            return self.readers.plain
        if workflow not in self._seen:
            await self.get(self.readers.plain, workflow)
        return self.readers.named(self._seen[workflow])

    def _view(self, reader: Reader | None, call: Call, answer: Answer, machine: str | None) -> View[Enum, object]:
        return self._noted(reader, self.read(call, answer, WireView), machine)

    def _noted(self, reader: Reader | None, told: WireView, machine: str | None = None) -> View[Enum, object]:
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()
        self._seen[told.id] = told.machine
        if machine is not None and told.machine != machine:
            raise WorkflowNotFound(
                f"there is no workflow {told.id!r} of machine {machine!r}: it is one of {told.machine!r}."
            )
        return (reader or self.readers.named(told.machine)).view(told)


def text_of(state: Enum | str) -> str:
    """A state as it is stored."""
    return state_text(state) if isinstance(state, Enum) else state


def _page(limit: int) -> int:
    return max(1, min(limit, PAGE_MAX))
