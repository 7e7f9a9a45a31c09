"""`Client`: the calls of an engine, made at a server.

async with Client("http://127.0.0.1:8080", key="ilk_…") as client:
    await client.start(order, "o-1", Order())
    await client.send("o-1", Submit(cents=999), key="click-7")
    view = await client.of(order).wait("o-1", timeout_s=60)

What is answered is what an engine answers with, and what is raised are an engine's errors. Machines that the client was
given, here or by a call, make the types of answers; without its machine a workflow has plain values. One pool of
connections; a call is repeated only where that is safe (see `calling`). Nothing is read from the environment.
"""

import ssl
from collections.abc import Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import Self, TypeVar, overload

from interlock.client.addresses import parse_address, query_of
from interlock.client.batch import Batch, Item
from interlock.client.calling import Calling
from interlock.client.connection import connect
from interlock.client.elsewhere import Elsewhere
from interlock.client.following import Following
from interlock.client.operating import Operating
from interlock.client.pool import Connect
from interlock.client.readers import Readers
from interlock.client.remote import Remote
from interlock.client.streaming import Stream
from interlock.client.typed import ClientWorkflows
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.ranges import demand, number, whole
from interlock.core.values import Allowed, ContextT, StateT
from interlock.errors import BadUsage
from interlock.runtime.bound import AnyMachine
from interlock.runtime.views import Counts, HistoryRow, Moved, Page, PlainState, Refused, View
from interlock.seams import Chance, SystemChance
from interlock.signals import Observer

EventT = TypeVar("EventT", bound=Event)

TIMEOUT_S = 30.0
ATTEMPT_S = 10.0
CONNECTIONS_MAX = 64
RETRY = Retry(attempts=30, first_s=0.1, max_s=2.0)
"""More attempts than there is time for: a call is bounded by `timeout_s`, while a server comes back."""


class Client(Operating, Elsewhere):
    """A server's workflows. Use it as `async with Client(url) as client`, or close it."""

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
        """`key` is the API key. A call takes at most `timeout_s` in all, one attempt of it at most `attempt_s`.

        `machines` are those whose Enum members and contexts are wanted in answers to calls that name no machine.
        `tls` replaces the context that https is verified with: for a certificate authority of your own, or a
        certificate of this client.
        """
        address = parse_address(url)
        demand(number(timeout_s) and timeout_s > 0, "timeout_s", timeout_s, "more than 0")
        demand(number(attempt_s) and attempt_s > 0, "attempt_s", attempt_s, "more than 0")
        demand(whole(connections_max), "connections_max", connections_max, "a whole number from 1 up")
        calling = Calling(
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
        super().__init__(Remote(calling, Readers(machines)))
        self._following = Following(calling, "/v1/stream")

    def __repr__(self) -> str:
        return f"<Client of {self._remote.calling.address}>"

    # --- moving ------------------------------------------------------------------------------------------------------

    async def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """Start a workflow. The same id with the same input again returns the one that exists (B4)."""
        return await self.of(machine).start(workflow, context)

    async def send(
        self,
        workflow: str,
        event: Event | str,
        *,
        data: Mapping[str, object] | None = None,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[Enum]:
        """Send an event, or its wire name with `data`; returns when what it does is durable. Raises the refusal.

        With a `key` it is delivered once, however often the connection breaks on the way; `duplicate` is then also true
        when the client itself had to send it twice. Without one it is sent once, and a lost answer is OutcomeUnknown.
        """
        return await self._remote.send(
            None,
            workflow,
            event,
            data=data,
            key=key,
            if_allowed=if_allowed,
            expect_version=expect_version,
        )

    async def send_many(self, items: Iterable[Item]) -> list[Moved[Enum] | Refused]:
        """Send many events, each with its workflow and, unless left out, its key; one answer per item, in order.

        Those of one workflow are applied in the order given. Raises only when the server could not be asked at all.
        """
        return await Batch(self._remote, items).send()

    # --- looking -----------------------------------------------------------------------------------------------------

    async def get(self, workflow: str) -> View[Enum, object]:
        """The workflow as it is durable; with plain values when the client does not know its machine."""
        return await self._remote.get(None, workflow)

    @overload
    def of(self, machine: Machine[StateT, ContextT, EventT]) -> ClientWorkflows[StateT, ContextT, EventT]: ...
    @overload
    def of(self, machine: str) -> ClientWorkflows[PlainState, object, Event]: ...
    def of(
        self, machine: Machine[StateT, ContextT, EventT] | str
    ) -> ClientWorkflows[StateT, ContextT, EventT] | ClientWorkflows[PlainState, object, Event]:
        """The same calls, typed by the machine. With its name alone: the calls of that machine, with plain values."""
        if isinstance(machine, str):
            return ClientWorkflows[PlainState, object, Event](self._remote, machine, self._remote.readers.plain)
        return ClientWorkflows(self._remote, machine, self._remote.readers.of(machine))

    async def wait(self, workflow: str, *states: Enum | str, timeout_s: float | None = None) -> View[Enum, object]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting.

        The server answers when it is there. Raises WaitFailed when the workflow ends in another final state,
        WaitTimeout when the time is over.
        """
        return await self._remote.wait(None, workflow, states, timeout_s=timeout_s)

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[Enum, object]]:
        """What happened to the workflow behind a version, in the order of versions (B3, B8); all unless limited."""
        return await self._remote.history(None, workflow, after=after, limit=limit)

    async def find(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """The workflows of a machine, page by page: `cursor` is that of the page before, None at the end (B8)."""
        return await self.of(machine).find(state=state, limit=limit, cursor=cursor)

    async def stalled(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        older_than_s: float | None = None,
        states: Iterable[StateT] | None = None,
        limit: int = 1_000,
    ) -> list[View[StateT, ContextT]]:
        """The active workflows that stay in their state for too long; without a time, longer than declared (B7)."""
        return await self.of(machine).stalled(older_than_s=older_than_s, states=states, limit=limit)

    async def allowed(
        self, workflow: str, event: Event | str | None = None, *, data: Mapping[str, object] | None = None
    ) -> list[Allowed[Enum]]:
        """The events that have a transition from where the workflow stands (A6); with one, what its guard says."""
        return await self._remote.allowed(None, workflow, event, data)

    async def stats(self, workflow: str) -> Counts:
        """What became of the events sent to it (B5)."""
        return await self._remote.stats(workflow)

    async def subscribe(self, observer: Observer) -> None:
        """Call `observer` with everything that happens from now on, as far as the stream tells it (see `following`).

        Returns when the stream is there. It is called in the client's event loop: be quick, or hand it on.
        """
        await self._following.subscribe(observer)

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling `observer`."""
        self._following.unsubscribe(observer)

    def stream(
        self,
        *,
        machine: str | None = None,
        workflow: str | None = None,
        kinds: Iterable[str] | None = None,
        last_event_id: str | None = None,
    ) -> Stream:
        """Everything that happens from now on, or from behind an event: `async with client.stream() as events`.

        `kinds` are names of signals ("transition_applied"). A stream that is cut off goes on by itself; when something
        was missed, there is an event of kind "reset". It tells what the process has done that answers.
        """
        kind = None if kinds is None else ",".join(kinds)
        target = f"/v1/stream{query_of(machine=machine, workflow=workflow, kind=kind)}"
        return Stream(self._remote.calling, target, last_event_id)

    # --- its life ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections. Calls that are under way end without an answer."""
        await self._following.close()
        await self._remote.calling.close()

    async def __aenter__(self) -> Self:
        """It connects when it is first used."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, whatever happened inside."""
        del kind, error, trace
        await self.close()

    def _connect(self) -> Connect:
        """How connections are made: the seam for tests."""
        return connect


def _checked_secret(key: str | None) -> str | None:
    given: object = key  # Not every caller has a type checker.
    if given is None:
        return None
    if isinstance(given, str) and given and all("!" <= each <= "~" for each in given):
        return given
    raise BadUsage(
        "the API key is empty, or has characters that no key has.",
        why="A key is one word of letters, digits and signs; it is not shown here because it is a secret.",
        fix="Give it as `interlock keys create` printed it, without spaces or a line's end.",
    )
