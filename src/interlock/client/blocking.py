"""`BlockingClient`: the client for code that is not async, with the same calls.

with BlockingClient("http://127.0.0.1:8080", key="ilk_…") as client:
    client.start(order, "o-1", Order())
    client.send("o-1", Submit(cents=999), key="click-7")

One event loop in one thread per client; any number of threads may call it, and share its connections.
"""

import ssl
from collections.abc import Iterable, Iterator
from typing import Generic, Self, TypeVar, overload

from interlock.client.client import ATTEMPT_S, CONNECTIONS_MAX, RETRY, TIMEOUT_S, Client
from interlock.client.streaming import Stream, Streamed
from interlock.client.workflows import ClientWorkflows
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Retry
from interlock.core.values import ContextT, StateT
from interlock.engine.blocking import BlockingProxy, ClosingProxy, Portal, blocking, plain
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.views import PlainState
from interlock.errors import BadUsage, UnavailableError

EventT = TypeVar("EventT", bound=Event)


class BlockingClientWorkflows(
    BlockingProxy[ClientWorkflows[StateT, ContextT, EventT]], Generic[StateT, ContextT, EventT]
):
    """The workflows of one machine at a server. Made by `client.of(machine)`."""

    start = blocking(ClientWorkflows[StateT, ContextT, EventT].start)
    send = blocking(ClientWorkflows[StateT, ContextT, EventT].send)
    get = blocking(ClientWorkflows[StateT, ContextT, EventT].get)
    wait = blocking(ClientWorkflows[StateT, ContextT, EventT].wait)
    history = blocking(ClientWorkflows[StateT, ContextT, EventT].history)
    find = blocking(ClientWorkflows[StateT, ContextT, EventT].find)
    stalled = blocking(ClientWorkflows[StateT, ContextT, EventT].stalled)
    allowed = blocking(ClientWorkflows[StateT, ContextT, EventT].allowed)


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
        super().__init__(ClientPortal("interlock-client"), inside)

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._inside)[1:]}"

    start = blocking(Client.start)
    send = blocking(Client.send)
    send_many = blocking(Client.send_many)

    get = blocking(Client.get)
    wait = blocking(Client.wait)
    history = blocking(Client.history)
    find = blocking(Client.find)
    stalled = blocking(Client.stalled)
    allowed = blocking(Client.allowed)
    stats = blocking(Client.stats)
    subscribe = blocking(Client.subscribe)
    unsubscribe = plain(Client.unsubscribe)

    compensations = blocking(Client.compensations)
    dead_letters = blocking(Client.dead_letters)
    retry_dead_letter = blocking(Client.retry_dead_letter)
    resolve_dead_letter = blocking(Client.resolve_dead_letter)
    breakers = blocking(Client.breakers)
    force_breaker = blocking(Client.force_breaker)
    set_limit = blocking(Client.set_limit)
    set_admission = blocking(Client.set_admission)
    prune = blocking(Client.prune)
    contention = blocking(Client.contention)

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


class ClientPortal(Portal):
    """The portal of a client: as an engine's, with a client's error texts."""

    def refuse_for_ever(self) -> None:
        """Raise where a call could never be answered."""
        if self.is_forked:
            raise UnavailableError(
                "the client belongs to another process, of which this is a forked child.",
                why="A fork copies neither threads nor event loops; no call in the child would ever return.",
                fix="Make a client in the child, after the fork.",
            )
        if self.is_here:
            raise BadUsage(
                "a blocking client was called by its own event loop.",
                why="The loop would wait for itself, for ever.",
                fix="Use `Client` in code that is async.",
            )

    def _stopped_error(self) -> UnavailableError:
        return UnavailableError(
            "the client is closed.",
            why="It was closed before the answer arrived.",
            fix="Use it inside `with`, or create another one.",
        )


async def _next_of(stream: Stream) -> Streamed | None:
    return await anext(stream, None)
