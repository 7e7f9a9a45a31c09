"""`Client`: the calls of an engine, made to a server.

async with Client("http://127.0.0.1:8080", key="ilk_…") as client:
    await client.start(order, "o-1", Order())
    await client.send("o-1", Submit(cents=999), key="click-7")
    view = await client.of(order).wait("o-1", timeout_s=60)

Calls return and raise what an engine's calls do. Machines passed here or to a call determine the types of answers;
without its machine a workflow has plain values. A client has one pool of connections, and repeats a call only where
that is safe (see `retries`). Nothing is read from the environment.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from enum import Enum
from types import EllipsisType
from typing import Literal, NoReturn, Self, TypeVar, overload

import msgspec

from interlock.client.batch import Batch, Item
from interlock.client.connection import Connect, connect
from interlock.client.retries import Call, Transport
from interlock.client.streaming import Stream, Subscription
from interlock.client.workflows import CONTENT, ClientWorkflows, Readers, Remote, checked_id
from interlock.clock import Chance, SystemChance
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.policies import Dependency, Retry, TokenRate, demand, is_number, is_positive_int
from interlock.core.values import Allowed, ContextT, StateT
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.dependencies.breakers import Breakers, BreakerView
from interlock.engine.leases import LEASE_S, WAIT_S
from interlock.engine.path.caller_commands import check_kind
from interlock.engine.retention import BATCH, Pruned
from interlock.engine.settings import Admission
from interlock.engine.views import Compensation, Counts, DeadLetter, HistoryRow, Moved, Page, PlainState, Refused, View
from interlock.errors import BadUsage, DefinitionError, TargetNotFound, UnavailableError
from interlock.lanes.contention import HotRow
from interlock.signals import Observer
from interlock.urls import escaped, parse_server_url, query_of
from interlock.wire import Listing, ShownHot, ShownPruned, encode

ItemT = TypeVar("ItemT")
EventT = TypeVar("EventT", bound=Event)

TIMEOUT_S = 30.0
ATTEMPT_S = 10.0
CONNECTIONS_MAX = 64
RETRY = Retry(attempts=30, first_s=0.1, max_s=2.0)
"""More attempts than fit into `timeout_s`, which bounds a call while a server restarts."""

LETTERS_MAX = 10_000


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
        self._all = ClientWorkflows[Enum, object, Event](self._remote)
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
        return await self._all.send(
            workflow, event, data=data, key=key, if_allowed=if_allowed, expect_version=expect_version
        )

    async def send_many(self, items: Iterable[Item]) -> list[Moved[Enum] | Refused]:
        """Send many events, each with its workflow and optionally a key; returns one answer per item, in order.

        Events of one workflow are applied in order. Raises only when no request could be sent.
        """
        return await Batch(self._remote, items).send()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, workflow: str) -> View[Enum, object]:
        """Return the workflow's durable state; with plain values when the client does not know its machine."""
        return await self._all.get(workflow)

    @overload
    def of(self, machine: Machine[StateT, ContextT, EventT]) -> ClientWorkflows[StateT, ContextT, EventT]: ...
    @overload
    def of(self, machine: str) -> ClientWorkflows[PlainState, object, Event]: ...
    def of(
        self, machine: Machine[StateT, ContextT, EventT] | str
    ) -> ClientWorkflows[StateT, ContextT, EventT] | ClientWorkflows[PlainState, object, Event]:
        """Return the same calls, typed by the machine; for a machine's name, with plain values."""
        return ClientWorkflows(self._remote, machine)

    async def wait(self, workflow: str, *states: Enum | str, timeout_s: float | None = None) -> View[Enum, object]:
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
        return await self._all.allowed(workflow, event, data=data)

    async def stats(self, workflow: str) -> Counts:
        """Return the outcomes of the events sent to it (B5)."""
        return await self._remote.transport.fetch(
            Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/stats"), Counts
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
        self, dependency: str, *, concurrency_max: int | None = None, rate_per_s: float | EllipsisType | None = ...
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
            await asyncio.sleep(pause_s)

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

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    async def _list(self, target: str, kind: type[Listing[ItemT]]) -> list[ItemT]:
        return [*(await self._remote.transport.fetch(Call("GET", target), kind)).items]

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
