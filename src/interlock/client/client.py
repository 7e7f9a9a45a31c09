"""`Client`: the calls of an engine, made to a server.

async with Client("http://127.0.0.1:8080", key="ilk_…") as client:
    await client.start(order, "o-1", Order())
    await client.send("o-1", Submit(cents=999), key="click-7")
    view = await client.of(order).wait("o-1", timeout_s=60)

Calls return and raise what an engine's calls do. Machines passed here or to a call determine the types of answers;
without its machine a workflow has plain values. A client has one pool of connections, and repeats a call only where
that is safe (see `retries`). Nothing is read from the environment.
Sections: `Subscription`, `ClientWorkflows`, `Client`.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from enum import Enum
from types import EllipsisType, TracebackType
from typing import Generic, Literal, NoReturn, Self, TypeVar, cast, overload

import msgspec

from interlock.client.batch import Batch, Item
from interlock.client.connection import Connect, connect
from interlock.client.requests import CONTENT, Remote
from interlock.client.retries import Call, Transport
from interlock.client.streaming import Stream
from interlock.client.wire import Listing, Reader, Readers, WireHot, encode, plain_json
from interlock.clock import Chance, SystemChance
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Dependency, Retry, TokenRate, demand, is_number, is_positive_int
from interlock.core.values import Allowed, ContextT, StateT
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.dependencies.breakers import Breakers, BreakerView
from interlock.engine.leases import LEASE_S, WAIT_S
from interlock.engine.path.commands import check_kind
from interlock.engine.pruning import BATCH, Pruned
from interlock.engine.settings import Admission
from interlock.engine.views import Compensation, Counts, DeadLetter, HistoryRow, Moved, Page, PlainState, Refused, View
from interlock.errors import BadUsage, DefinitionError, InterlockError, TargetNotFound, UnavailableError
from interlock.lanes.contention import HotRow
from interlock.redaction import logger_of
from interlock.signals import Observer, Subscribers
from interlock.urls import escaped, parse_server_url, query_of

ItemT = TypeVar("ItemT")
EventT = TypeVar("EventT", bound=Event)

TIMEOUT_S = 30.0
ATTEMPT_S = 10.0
CONNECTIONS_MAX = 64
RETRY = Retry(attempts=30, first_s=0.1, max_s=2.0)
"""More attempts than fit into `timeout_s`, which bounds a call while a server restarts."""

LETTERS_MAX = 10_000

log = logger_of("interlock.client")


class WirePruned(msgspec.Struct, frozen=True, kw_only=True):
    """The number of workflows and events that one request removed."""

    workflows: int
    events: int
    more: bool = False


class Subscription:
    """The observers of one client, and the stream that they share while there are any.

    The stream has all kinds of signals of the answering process that the key may see. A broken stream resumes after
    the last signal. If the server no longer has the signals in between, that is only logged, because an observer
    cannot receive it. Use `client.stream` to notice it in code.
    """

    def __init__(self, transport: Transport, target: str) -> None:
        self._transport = transport
        self._target = target
        self._subscribers = Subscribers()
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None

    async def subscribe(self, observer: Observer) -> None:
        """Call the observer with every signal from now on. Raises the error that prevents the stream."""
        self._subscribers.subscribe(observer)
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._begun = loop.create_future()
            self._task = loop.create_task(self._follow(self._begun))
        assert self._begun is not None
        try:
            await asyncio.shield(self._begun)
        except BaseException:
            self.unsubscribe(observer)
            raise

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling the observer; the stream ends with the last one."""
        self._subscribers.unsubscribe(observer)
        if not self._subscribers:
            self._cancel()

    async def close(self) -> None:
        """End the stream."""
        task = self._task
        self._cancel()
        if task is not None and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task})

    def _cancel(self) -> None:
        if self._task is not None and not self._task.get_loop().is_closed():
            self._task.cancel()
        self._task = None

    async def _follow(self, begun: "asyncio.Future[None]") -> None:
        last: str | None = None

        def opened() -> None:
            if not begun.done():
                begun.set_result(None)

        try:
            while True:
                stream = Stream(self._transport, self._target, last, opened)
                try:
                    await self._emit_all(stream)
                except UnavailableError as error:
                    if not begun.done() or self._transport.verdicts.closed:
                        raise
                    log.warning("the stream of %s reconnects: %s", self._transport.address, error.what)
                last = stream.last_event_id
                await asyncio.sleep(self._transport.retry.max_s)
        except InterlockError as error:
            if begun.done():
                log.error("the stream of %s has ended: %s", self._transport.address, error.what)  # noqa: TRY400 -- a known error.
            else:
                begun.set_exception(error)
        finally:
            begun.cancel()  # Does nothing when it is done.

    async def _emit_all(self, stream: Stream) -> None:
        async with stream:
            async for event in stream:
                if event.signal is None:
                    log.warning("signals of %s were missed: the server no longer has them.", self._transport.address)
                else:
                    self._subscribers.emit(event.signal)


class ClientWorkflows(Generic[StateT, ContextT, EventT]):
    """The workflows of one machine at a server: the calls of a client, typed by it. Made by `client.of(machine)`.

    The machine is checked: a workflow of another machine is not found. The client requests a workflow's machine at
    most once.
    """

    def __init__(self, remote: Remote, machine: Machine[StateT, ContextT, EventT] | str, reader: Reader) -> None:
        self._remote = remote
        self._machine = machine
        self._name = machine if isinstance(machine, str) else machine.name
        self._reader = reader

    async def start(self, workflow: str, context: ContextT) -> View[StateT, ContextT]:
        """Start a workflow. Repeated with the same id and input, returns the existing one (B4)."""
        machine = self._machine
        data = plain_json(context, machine) if isinstance(machine, str) else machine.codec.checked_context(context)
        return self._view(await self._remote.start(self._reader, self._name, workflow, data))

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
        moved = await self._remote.send(
            self._reader,
            workflow,
            event,
            data=data,
            key=key,
            if_allowed=if_allowed,
            expect_version=expect_version,
        )
        return cast("Moved[StateT]", moved)

    async def get(self, workflow: str) -> View[StateT, ContextT]:
        """Return the workflow's durable state."""
        return self._view(await self._remote.get(self._reader, workflow, machine=self._name))

    async def wait(
        self, workflow: str, *states: StateT | str, timeout_s: float | None = None
    ) -> View[StateT, ContextT]:
        """Wait until the workflow is in one of the states; without states, until it is final or resting."""
        found = await self._remote.wait(self._reader, workflow, states, timeout_s=timeout_s, machine=self._name)
        return self._view(found)

    async def history(
        self, workflow: str, *, after: int = 0, limit: int | None = None
    ) -> list[HistoryRow[StateT, ContextT]]:
        """Return the history after a version, in the order of versions; all of it unless limited."""
        await self._remote.check_machine(workflow, self._name)
        rows = await self._remote.history(self._reader, workflow, after=after, limit=limit)
        return cast("list[HistoryRow[StateT, ContextT]]", rows)

    async def find(
        self, *, state: StateT | str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[StateT, ContextT]:
        """Return one page of workflows; pass the `cursor` of the previous page, None after the last."""
        page = await self._remote.find(self._reader, self._name, state=state, limit=limit, cursor=cursor)
        return cast("Page[StateT, ContextT]", page)

    async def stalled(
        self, *, older_than_s: float | None = None, states: Iterable[StateT | str] | None = None, limit: int = 1_000
    ) -> list[View[StateT, ContextT]]:
        """Return active workflows that have been in their state for too long; without a time, longer than declared."""
        wanted: list[Enum | str] | None = None if states is None else [*states]
        found = await self._remote.stalled(
            self._reader, self._name, older_than_s=older_than_s, states=wanted, limit=limit
        )
        return cast("list[View[StateT, ContextT]]", found)

    async def allowed(
        self, workflow: str, event: EventT | str | None = None, *, data: Mapping[str, object] | None = None
    ) -> list[Allowed[StateT]]:
        """Return the events that have a transition from the current state; with an event, also its guard's verdict.

        The event is one of this machine, or its wire name with `data`.
        """
        await self._remote.check_machine(workflow, self._name)
        return cast("list[Allowed[StateT]]", await self._remote.allowed(self._reader, workflow, event, data))

    def _view(self, view: View[Enum, object]) -> View[StateT, ContextT]:
        return cast("View[StateT, ContextT]", view)


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
        self._remote = Remote(transport, Readers(machines))
        self._subscription = Subscription(transport, "/v1/stream")

    def __repr__(self) -> str:
        return f"<Client of {self._remote.transport.address}>"

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

    async def compensations(self) -> list[Compensation]:
        """Return the undos that are pending or being tried, of all workflows that unwind."""
        return await self._list("/v1/compensations", Listing[Compensation])

    async def dead_letters(self, kind: str | None = None, *, limit: int = 1_000) -> list[DeadLetter]:
        """Return the dead letters, oldest first; `kind` is "step", "effect", "undo" or None for all."""
        check_kind(kind)
        query = query_of(kind=kind, limit=max(1, min(limit, LETTERS_MAX)))
        return await self._list(f"/v1/dead-letters{query}", Listing[DeadLetter])

    async def retry_dead_letter(self, letter_id: str) -> None:
        """Retry a dead letter, with the same idempotency key and all its attempts."""
        await self._rule(letter_id, "retry", None)

    async def resolve_dead_letter(self, letter_id: str, *, note: str) -> None:
        """Mark a dead letter as resolved by a person. An unwinding continues; a step's workflow waits for an event."""
        await self._rule(letter_id, "resolve", encode({"note": note}))

    async def breakers(self) -> Breakers:
        """Return the breakers of all dependencies, as the process that answers has them."""
        return Breakers(await self._list("/v1/breakers", Listing[BreakerView]))

    async def force_breaker(self, dependency: str, state: Literal["open", "closed", "auto"]) -> None:
        """Hold a breaker open or closed; "auto" returns it to automatic."""
        if state not in {"open", "closed", "auto"}:
            raise BadUsage(
                f"a breaker cannot be forced to be {state!r}.",
                why="It is forced open, forced closed, or decides by itself.",
                fix='Use "open", "closed" or "auto".',
            )
        try:
            await self._put(f"/v1/breakers/{escaped(dependency)}", {"state": state})
        except TargetNotFound as error:
            raise BadUsage(error.what, why=error.why, fix=error.fix) from error

    async def set_limit(
        self,
        dependency: str,
        *,
        concurrency_max: int | None = None,
        rate_per_s: float | EllipsisType | None = ...,
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
        await self._put(f"/v1/limits/{escaped(dependency)}", body)

    async def set_admission(self, admission: Admission) -> None:
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
        await self._put("/v1/admission", msgspec.to_builtins(admission))

    async def prune(
        self,
        *,
        older_than_s: float,
        history_only: bool = False,
        with_owed: bool = False,
        dry_run: bool = False,
        batch: int = BATCH,
        pause_s: float = 0.0,
    ) -> Pruned:
        """Remove workflows of the server's machines that ended `older_than_s` ago, as `Engine.prune` does.

        It makes several requests, each with a bounded piece of work. When an answer is lost, OutcomeUnknown is raised;
        a repeated call continues with the rest.
        """
        body: dict[str, object] = {
            "older_than_s": older_than_s,
            "history_only": history_only,
            "with_owed": with_owed,
            "dry_run": dry_run,
            "batch": batch,
        }
        if pause_s > 0:
            body["limit"] = batch  # One request per batch, with the pause in between.
        done = Pruned()
        while True:
            call = Call("POST", "/v1/prune", encode(body), (CONTENT,), repeatable=False, moves=not dry_run)
            pruned = self._remote.read(call, await self._remote.transport.ask(call), WirePruned)
            done = Pruned(workflows=done.workflows + pruned.workflows, events=done.events + pruned.events)
            if not pruned.more:
                return done
            if dry_run:
                raise UnavailableError(
                    f"the server counted {done.workflows:,} workflows, and had no time for the rest.",
                    why="A request works for a bounded time, and a dry run cannot be continued by another request.",
                    fix="Pass a larger older_than_s, or count at the store itself: `interlock prune --dry-run`.",
                )
            await asyncio.sleep(pause_s)

    async def contention(self) -> list[HotRow]:
        """Return the rows and workflows that writers contend for, worst first, as the server has measured them."""
        return [*await self._list("/v1/contention", Listing[WireHot])]

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

    def lease(self, name: str, *, wait_s: float = WAIT_S, lease_s: float = LEASE_S) -> NoReturn:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        del kind, error, trace
        await self.close()

    async def _list(self, target: str, kind: type[Listing[ItemT]]) -> list[ItemT]:
        call = Call("GET", target)
        return [*self._remote.read(call, await self._remote.transport.ask(call), kind).items]

    async def _put(self, target: str, body: dict[str, object]) -> None:
        await self._remote.transport.ask(Call("PUT", target, encode(body), (CONTENT,), moves=True))

    async def _rule(self, letter_id: str, ruling: str, body: bytes | None) -> None:
        target = f"/v1/dead-letters/{escaped(letter_id)}/{ruling}"
        call = Call("POST", target, body or b"", (CONTENT,), repeatable=False, moves=True)
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
