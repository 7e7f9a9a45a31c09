"""`Client`: the calls of an engine, made to a server.

async with Client("http://127.0.0.1:8080", key="ilk_…") as client:
    await client.start(order, "o-1", Order())
    await client.send("o-1", Submit(cents=999), key="click-7")
    view = await client.of(order).wait("o-1", timeout_s=60)

Calls return and raise what an engine's calls do. Machines passed here or to a call determine the types of answers;
without its machine a workflow has plain values. A client has one pool of connections, and repeats a call only where
that is safe (see `calling`). Nothing is read from the environment.
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
"""More attempts than fit into `timeout_s`, which bounds a call while a server restarts."""


class Client(Operating, Elsewhere):
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

    # --- transitions -------------------------------------------------------------------------------------------------

    async def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """Start a workflow. Repeated with the same id and input, returns the existing one (B4)."""
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
        """Send an event, or its wire name with `data`; returns when its transition is durable. Raises the refusal.

        With a `key` it applies once, however often the connection breaks; `duplicate` is then also true when the client
        itself had to send it twice. Without a key it is sent once, and a lost answer raises OutcomeUnknown.
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
        """Send many events, each with its workflow and optionally a key; returns one answer per item, in order.

        Events of one workflow are applied in order. Raises only when no request could be sent.
        """
        return await Batch(self._remote, items).send()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, workflow: str) -> View[Enum, object]:
        """Return the workflow's durable state; with plain values when the client does not know its machine."""
        return await self._remote.get(None, workflow)

    @overload
    def of(self, machine: Machine[StateT, ContextT, EventT]) -> ClientWorkflows[StateT, ContextT, EventT]: ...
    @overload
    def of(self, machine: str) -> ClientWorkflows[PlainState, object, Event]: ...
    def of(
        self, machine: Machine[StateT, ContextT, EventT] | str
    ) -> ClientWorkflows[StateT, ContextT, EventT] | ClientWorkflows[PlainState, object, Event]:
        """Return the same calls, typed by the machine; for a machine's name, with plain values."""
        if isinstance(machine, str):
            return ClientWorkflows[PlainState, object, Event](self._remote, machine, self._remote.readers.plain)
        return ClientWorkflows(self._remote, machine, self._remote.readers.of(machine))

    async def wait(self, workflow: str, *states: Enum | str, timeout_s: float | None = None) -> View[Enum, object]:
        """Wait until the workflow is in one of the states; without states, until it is final or resting.

        The server answers when it is. Raises WaitFailed when the workflow ends in another final state, and WaitTimeout
        when the time is over.
        """
        return await self._remote.wait(None, workflow, states, timeout_s=timeout_s)

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[Enum, object]]:
        """Return the history after a version, in the order of versions (B3, B8); all of it unless limited."""
        return await self._remote.history(None, workflow, after=after, limit=limit)

    async def find(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """Return one page of a machine's workflows; pass the `cursor` of the previous page (B8)."""
        return await self.of(machine).find(state=state, limit=limit, cursor=cursor)

    async def stalled(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        older_than_s: float | None = None,
        states: Iterable[StateT] | None = None,
        limit: int = 1_000,
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that are in their state for too long; without a time, longer than declared (B7)."""
        return await self.of(machine).stalled(older_than_s=older_than_s, states=states, limit=limit)

    async def allowed(
        self, workflow: str, event: Event | str | None = None, *, data: Mapping[str, object] | None = None
    ) -> list[Allowed[Enum]]:
        """Return the events that have a transition from the current state (A6); with one, also its guard's verdict."""
        return await self._remote.allowed(None, workflow, event, data)

    async def stats(self, workflow: str) -> Counts:
        """Return the outcomes of the events sent to it (B5)."""
        return await self._remote.stats(workflow)

    async def subscribe(self, observer: Observer) -> None:
        """Call `observer` with every signal of the server's stream from now on (see `following`).

        Returns when the stream is open. It is called in the client's event loop, and must not block.
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
        """Stream events from now on, or after an event: `async with client.stream() as events`.

        `kinds` are names of signals ("transition_applied"). A broken stream reconnects by itself; when events
        were missed, it yields an event of kind "reset". It has the signals of the process that answers.
        """
        kind = None if kinds is None else ",".join(kinds)
        target = f"/v1/stream{query_of(machine=machine, workflow=workflow, kind=kind)}"
        return Stream(self._remote.calling, target, last_event_id)

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections. Calls under way end without an answer."""
        await self._following.close()
        await self._remote.calling.close()

    async def __aenter__(self) -> Self:
        """Return the client; it connects when it is first used."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        del kind, error, trace
        await self.close()

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
