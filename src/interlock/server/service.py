"""`Service`: the engine, its machines, the guard and the limits that all handlers share.

This is the one module that uses an engine's internals. The server needs what programs do not: a machine by
name, the machine of a workflow without another read, whether a start created a workflow, the store's health, and the
engine's observers. It also caches the counts of workflows, and listens for the signals that stop the process.

Sections: databases of the home, cached counts, stop signals, latest signals, service.
"""

import asyncio
import contextlib
import re
import signal
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from enum import Enum
from types import FrameType
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from interlock.catalog.catalog import Catalog
from interlock.clock import Clock, RandomIds, SystemClock
from interlock.core.decide import suggestion
from interlock.core.events import Event
from interlock.database.database import Database
from interlock.database.inventory import is_absent
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.engine import Engine
from interlock.engine.engine_settings import Admission
from interlock.engine.internals import EngineParts
from interlock.engine.operators.retention import Pruner
from interlock.engine.operators.tasks import TaskFilter, TaskPage, list_tasks
from interlock.engine.path.caller_commands import Beginning, Start, check_id, no_workflow
from interlock.engine.views import View
from interlock.errors import (
    InterlockError,
    InvalidPayload,
    LimitReached,
    MovedElsewhere,
    NotPermitted,
    UnavailableError,
)
from interlock.server.app_declaration import Limits, Webhook, by_source
from interlock.server.http_messages import Request
from interlock.server.problems import HttpProblem
from interlock.server.security.guard import Audit, Guard
from interlock.server.worker_metrics import Siblings
from interlock.signals import Signal
from interlock.store.open_store import NAME
from interlock.store.protocol import Batch
from interlock.urls import is_postgres_url, parse_postgres_url, with_schema
from interlock.wire import BeginBody, PruneBody, ShownPruned

ResultT = TypeVar("ResultT")

# --- Databases of the home -------------------------------------------------------------------------------------------
# Opened by their first request and closed with the server. The database that holds the workflows is not reachable:
# clients change a workflow by sending it events. A schema of PostgreSQL that holds a home is not served as a database,
# whatever its name.

HOLDS_A_HOME = """
SELECT count(*) FILTER (WHERE relname IN ('workflows', 'workflow_events', 'workflow_effects')) = 3
    OR count(*) FILTER (WHERE relname IN ('security_documents', 'security_audit')) = 2
    OR count(*) FILTER (WHERE relname IN ('workflows_moved', 'workflows_arriving', 'interlock_catalog')) > 0
FROM pg_catalog.pg_class WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)"""
"""Detect a home by its tables: another home, and workflows set aside by a move, have schemas of any name."""


class Databases:
    """The databases at one home, by name."""

    def __init__(self, home: str | None, opened: Mapping[str, Database] | None = None, *, most: int = 100) -> None:
        self._home = home
        self._passed = dict(opened or {})
        self._most = most
        self._opening: dict[str, asyncio.Task[Database]] = {}

    async def get(self, name: str, *, makes: bool = True) -> Database:
        """Return the database of that name, opening it if needed. Raises 404 for a name that cannot be one.

        With `makes` False it also raises 404 for a database that does not exist yet: a misspelled name neither creates
        a database nor counts as an open one.
        """
        if name in self._passed:
            return self._passed[name]
        if name not in self._opening:
            self._refuse(name)
            if not makes:
                await self._refuse_absent(name)
        opening = self._opening.get(name)
        if opening is None:
            self._refuse_if_full()
            opening = self._opening[name] = asyncio.get_running_loop().create_task(self._open(name))
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._opening.get(name) is opening and (opening.cancelled() or opening.exception()):
                del self._opening[name]
            raise

    def open_now(self) -> dict[str, Database]:
        """Return the open databases by name."""
        opened = {
            name: task.result()
            for name, task in self._opening.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }
        return {**self._passed, **opened}

    async def close(self) -> None:
        """Close the databases that were opened here."""
        for name, task in list(self._opening.items()):
            del self._opening[name]
            results = await asyncio.gather(task, return_exceptions=True)
            for database in results:
                if isinstance(database, Database):
                    await database.close()

    def _refuse(self, name: str) -> None:
        check_id(name, "the name of a database")
        home = self._home
        own = parse_postgres_url(home).schema if home is not None and is_postgres_url(home) else NAME
        if home is None:
            raise _not_found(
                name,
                why="The app has neither a database of that name nor a home.",
                fix="Pass it to the app: interlock.asgi(engine, home=…) or databases={…}.",
            )
        if name == own:
            raise reserved_database(name)

    async def _refuse_absent(self, name: str) -> None:
        home = self._home
        assert home is not None
        if is_postgres_url(home):
            url = _schema_url(home, name)
        else:
            catalog = Catalog(home)
            url = catalog.address(name, await catalog.entry(name))
        if await is_absent(url):
            raise _not_found(
                name,
                why="The first transaction that creates a table creates the database.",
                fix="Correct the name, or create a table first.",
            )

    def _refuse_if_full(self) -> None:
        if len(self._opening) >= self._most:
            raise LimitReached(
                f"{len(self._opening)} databases are open already (databases_max).",
                why="Everything that can grow has a limit.",
                fix="Use an open database, or raise databases_max.",
            )

    async def _open(self, name: str) -> Database:
        home = self._home
        assert home is not None
        if home == "memory:":
            return await Database.open(home)
        if is_postgres_url(home):
            url = _schema_url(home, name)
            await _refuse_home(url, name)
            return await Database.open(url)
        return await Database.open(name, home=home)


async def _refuse_home(url: str, name: str) -> None:
    """Raise 404 for a schema that holds a home. Called before it is opened, which would create tables in it."""
    from interlock.postgres.pool import Pool  # noqa: PLC0415 -- an extra, which may not be installed.

    address = parse_postgres_url(url)
    pool = Pool(address._replace(connections_max=1))
    try:
        [(holds,)] = await pool.read(HOLDS_A_HOME, address.schema)
    finally:
        await pool.close()
    if holds:
        raise reserved_database(name)


def reserved_database(name: str) -> HttpProblem:
    """Build the error for a database that holds a home."""
    return _not_found(name, why="It holds workflows, which only events may change.", fix="Use another name.")


def _not_found(name: str, *, why: str, fix: str) -> HttpProblem:
    what = f"there is no database {name!r:.300} here."
    return HttpProblem("database-not-found", what, why=why, fix=fix)


def _schema_url(home: str, name: str) -> str:
    """Return the address of the home with another schema."""
    if re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) is None or name.startswith("pg_") or name == "information_schema":
        raise InvalidPayload(
            f"{name!r:.100} is not the name of a database here.",
            why="On PostgreSQL a database is a schema.",
            fix="Use up to 63 lower-case letters, digits and underscores.",
        )
    return with_schema(home, name)


# --- Cached counts of workflows per state ----------------------------------------------------------------------------
# A count reads every workflow. A small store counts for each call, so that a caller sees the event it has just sent.
# A large store keeps a count: the longer it took, the longer it is kept. Counting therefore takes a bounded share of
# the store's time, whatever the number of open dashboards.

Counted = dict[tuple[str, int, str], int]

SMALL = 10_000
"""Number of workflows up to which a count is never kept: it takes a few milliseconds."""

SHARE = 9
"""A count of a large store is kept for SHARE times as long as it took: a tenth of the time is spent counting."""

KEPT_S_MAX = 30.0


class CachedCounts:
    """Counts of one store, cached."""

    def __init__(self, count: Callable[[], Awaitable[Counted]], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._turn = asyncio.Lock()
        self._kept: Counted = {}
        self._began_s = self._until_s = -1.0

    async def now(self) -> Counted:
        """Return the counts: current ones, or recent ones in a large store."""
        called_s = self._clock.monotonic_s()
        async with self._turn:
            # Another count began after this call and finished while this one waited: its result is recent enough.
            if self._clock.monotonic_s() < self._until_s or self._began_s >= called_s:
                return self._kept
            began_s = self._clock.monotonic_s()
            self._kept = await self._count()
            took_s = self._clock.monotonic_s() - began_s
            self._began_s = began_s
            large = sum(self._kept.values()) > SMALL
            self._until_s = began_s + took_s + min(KEPT_S_MAX, SHARE * took_s) if large else began_s
            return self._kept


# --- Stop signals ----------------------------------------------------------------------------------------------------
# A mounted app does not learn that its server stops. uvicorn ends the lifespan after the last connection has closed,
# and a stream keeps its connection open until it ends itself. So answers without an end listen for the signals too.
#
# The handlers of the server stay in charge: each is called after the callbacks, and is set again when the last
# callback is removed. Only the main thread may set handlers; in another thread `listen` does nothing.

Handler = Callable[[int, FrameType | None], object]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Callbacks of one process for its stop signals."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._replaced: list[tuple[signal.Signals, Handler, Handler]] = []
        """Each signal, with the handler that was set here and the previous one."""

    @contextlib.contextmanager
    def listen(self, callback: Callable[[], None]) -> Generator[None]:
        """Call the callback on each stop signal in the block. It runs inside a signal handler."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._callbacks.append(callback)
        if not self._replaced:
            self._replace()
        try:
            yield
        finally:
            self._callbacks.remove(callback)
            if not self._callbacks:
                self._restore()

    def _replace(self) -> None:
        for number in SIGNALS:
            before = signal.getsignal(number)
            # Without a Python handler the process ends by itself, or ignores the signal: there is nothing to end.
            if callable(before):
                handler = self._handler(cast("Handler", before))
                signal.signal(number, handler)
                self._replaced.append((number, handler, cast("Handler", before)))

    def _restore(self) -> None:
        for number, handler, before in self._replaced:
            # The server may have restored its own handlers already, or have set others.
            if signal.getsignal(number) is handler:
                signal.signal(number, before)
        self._replaced.clear()

    def _handler(self, before: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            for callback in tuple(self._callbacks):
                callback()
            before(number, frame)

        return handle


STOP_SIGNALS = StopSignals()


# --- Latest signals --------------------------------------------------------------------------------------------------

PIECE_EVENTS_MAX = 500


class Ring:
    """The latest signals of one engine, numbered in order."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._kept: deque[Signal] = deque(maxlen=most)
        self._next: asyncio.Future[None] | None = None
        self._listens = False
        self.life = RandomIds().text()[:8]
        """Identifies this start of the server: numbers of another start are meaningless here."""
        self.last = 0
        self.streams = 0

    def listen(self) -> None:
        """Subscribe to the engine's signals."""
        if not self._listens:
            self._listens = True
            self._engine.subscribe(self._keep)

    def close(self) -> None:
        """Unsubscribe."""
        if self._listens:
            self._listens = False
            self._engine.unsubscribe(self._keep)

    def has(self, number: int) -> bool:
        """Return whether all signals after this number are still kept."""
        return self.last - len(self._kept) <= number <= self.last

    def after(self, number: int) -> list[tuple[int, Signal]]:
        """Return some signals after a number, oldest first."""
        first = self.last - len(self._kept) + 1
        at = number + 1 - first
        count = min(self.last - number, PIECE_EVENTS_MAX)
        return [(number + 1 + place, self._kept[at + place]) for place in range(count)]

    def more(self) -> "asyncio.Future[None]":
        """Return a future that is done with the next signal; all waiters share it."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def _keep(self, signal: Signal) -> None:
        self._kept.append(signal)
        self.last += 1
        if self._next is not None:
            self._next.set_result(None)
            self._next = None


# --- Service ---------------------------------------------------------------------------------------------------------

ENDING_S = 10.0
"""How long streams and waits end immediately after a signal to stop that the process outlives."""

NO_ID = ""
"""An id that no workflow has: reading it only shows whether the store answers."""


class Exporter(Protocol):
    """An observer that can be scraped."""

    async def render(self) -> tuple[str, bytes]:
        """Return a content type, and all metrics."""
        ...


@runtime_checkable
class OneOfSeveral(Exporter, Protocol):
    """An exporter whose metrics can be merged with those of other workers."""

    def part(self, worker: str) -> bytes:
        """Return the metrics of this process alone, labelled with this worker."""
        ...

    async def render_all(self, parts: Sequence[bytes], unheard: int) -> tuple[str, bytes]:
        """Return a content type, the parts of all workers, and the metrics that they share, once."""
        ...


class _Enough(Exception):
    """Ends pruning when one request has pruned enough."""


class Service:
    """One served engine, with its guard, limits and audit log."""

    def __init__(
        self,
        engine: Engine,
        *,
        guard: Guard | None = None,
        audit: Audit | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        home: str | None = None,
        databases: Mapping[str, Database] | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        self.engine = engine
        self.clock: Clock = clock or SystemClock()
        self.guard = guard or Guard.trusting(self.clock)
        self.limits = limits or Limits()
        self.databases = Databases(home, databases, most=self.limits.databases_max)
        self.ring = Ring(engine, self.limits.stream_events_max)
        self.webhooks = by_source(webhooks)
        self._audit = audit
        self.leaving = asyncio.Event()
        """Set when the server is about to stop: it still answers, but asks for requests to be sent elsewhere."""
        self.announces_stop = False
        """Whether the server calls `leave` before it waits for connections to end: `interlock serve` does."""
        self._ending = asyncio.Event()
        """Set while streams and waits have to end: the server leaves, or the process received a signal to stop."""
        self.under_way = 0
        self._kept: set[asyncio.Task[Any]] = set()
        """Work that goes on after its request was answered."""
        self.batches = 0
        """Batches under way."""
        self.carried = _carried() if self._inside.tracing is not None else None
        """Makes a request's trace the current one in a block; None without tracing."""
        self.siblings: Siblings | None = None
        """The other workers of this server; None for a single process."""
        self._counts = CachedCounts(self._count_states, self.clock)
        self.machines: Mapping[str, BoundMachine] = self._inside.declared
        self.only = next(iter(self.machines.values())) if len(self.machines) == 1 else None
        self._by_event: dict[str, BoundMachine | None] = {}
        for bound in self.machines.values():
            for name in bound.table.events:
                self._by_event[name] = None if name in self._by_event else bound

    @property
    def _inside(self) -> EngineParts:
        """The engine's current internals: it replaces them when its workflows are moved."""
        return self.engine._inside  # noqa: SLF001 -- see above: only this module does.

    # --- machines ----------------------------------------------------------------------------------------------------

    def machine(self, name: str) -> BoundMachine:
        """Return the machine of that name. Raises 404."""
        bound = self.machines.get(name)
        if bound is None:
            raise HttpProblem(
                "machine-not-found",
                f"there is no machine {name!r:.300}.{suggestion(name, list(self.machines))}",
                why=f"This server has {', '.join(sorted(self.machines))}.",
                fix="Use one of those names, or serve the machine too.",
            )
        return bound

    def select_machines(self, name: str | None) -> Sequence[BoundMachine]:
        """Return the machine of that name, or all machines in the order of their names."""
        if name is not None:
            return (self.machine(name),)
        return [self.machines[each] for each in sorted(self.machines)]

    async def machine_of(self, workflow: str) -> BoundMachine:
        """Return the machine of a workflow. Raises WorkflowNotFound."""
        live = self._inside.pipeline.known(workflow) or self._inside.pipeline.supposed(workflow)
        return self.bound_of(workflow, (await self.engine.get(workflow)).machine if live is None else live.bound.name)

    def bound_of(self, workflow: str, machine: str) -> BoundMachine:
        """Return the machine of a workflow. Raises WorkflowNotFound for a schedule, which has routes of its own."""
        bound = self.machines.get(machine)
        if bound is None:
            raise no_workflow(workflow)
        return bound

    def known_machine(self, workflow: str) -> str | None:
        """Return the name of a workflow's machine if it is known without a read."""
        if self.only is not None:
            return self.only.name
        live = self._inside.pipeline.known(workflow) or self._inside.pipeline.supposed(workflow)
        return None if live is None else live.bound.name

    def decode_start(self, body: BeginBody, name: str, data: bytes) -> tuple[Beginning, Event]:
        """Decode the start of a workflow, and the event, which is one of the same machine. Raises InvalidPayload."""
        bound = self.machine(body.machine)
        context = bound.codec.decode_context(bytes(body.context), strict=True)
        event = cast("Event", bound.codec.decode_event(name, data, strict=True))
        return (bound.machine, context), event

    async def decode_event(self, workflow: str, name: str, data: bytes) -> Event:
        """Decode an event for a workflow. Raises InvalidPayload for an unknown event or invalid data.

        A machine that alone has an event of this name decodes it. The engine refuses it for a workflow of another
        machine.
        """
        event = self.decode_unique_event(name, data)
        if event is None:
            bound = await self.machine_of(workflow)
            event = cast("Event", bound.codec.decode_event(name, data, strict=True))
        return event

    def decode_unique_event(self, name: str, data: bytes) -> Event | None:
        """Decode an event without waiting; None for a name of several machines, where the workflow decides."""
        bound = self._by_event.get(name)
        if bound is not None:
            return cast("Event", bound.codec.decode_event(name, data, strict=True))
        if name not in self._by_event:
            raise self._no_event(name)
        return None

    def _no_event(self, name: str) -> InvalidPayload:
        known = list(self._by_event)
        return InvalidPayload(
            f"there is no event {name!r:.100}; the events are {', '.join(known)}."
            f"{suggestion(name.upper().replace('-', '_'), known)}",
            why="A machine takes only the events of its own alphabet, by the names they are stored with.",
            fix="Send one of its events; GET /v1/machines has them with their fields.",
        )

    # --- transitions -------------------------------------------------------------------------------------------------

    def refuse_if_full(self, *, starts: bool = False) -> None:
        """Raise Overloaded immediately if the engine would refuse the call, before the body is read (C7)."""
        self._inside.gate.look(starts=starts)

    @property
    def room(self) -> float:
        """Number of events that the engine would admit now."""
        return self._inside.gate.room

    def overloaded(self, ahead: int, *, starts: bool) -> InterlockError | None:
        """Return the error that `refuse_if_full` would raise after `ahead` other requests."""
        return self._inside.gate.refusal(ahead, starts=starts)

    async def start(
        self, bound: BoundMachine, workflow: str, context: object, by: str
    ) -> tuple[View[Enum, object], bool]:
        """Start a workflow; also return whether it existed before."""
        starting = Start(bound, workflow, context, by=by)
        view = cast("View[Enum, object]", await self.engine._admit(starting))  # noqa: SLF001 -- see above.
        return view, starting.found

    async def prune(self, body: PruneBody, *, within_s: float) -> ShownPruned:
        """Prune like `Engine.prune`, in batches, up to `body.limit` workflows and until the time is over."""
        end_s = self.clock.monotonic_s() + within_s

        async def prune() -> ShownPruned:
            pruner = Pruner(
                self._inside.store,
                older_than_s=body.older_than_s,
                machines=self.machines,
                history_only=body.history_only,
                owing=body.with_owed,
                dry_run=body.dry_run,
                batch=body.batch,
            )

            def on_batch(removed: Batch) -> None:
                if not (body.history_only or body.dry_run):
                    self._inside.pipeline.forget(removed.workflows)
                full = not body.dry_run and pruner.done.workflows >= body.limit
                if full or self.clock.monotonic_s() >= end_s:
                    raise _Enough

            more = False
            try:
                await pruner.run(on_batch)
            except _Enough:
                more = True
            return ShownPruned(workflows=pruner.done.workflows, events=pruner.done.events, more=more)

        return await self.engine._repeated(prune)  # noqa: SLF001 -- see above.

    # --- permissions -------------------------------------------------------------------------------------------------

    async def permit(self, request: Request, machine: str | None, workflow: str | None) -> None:
        """Check the key's limits for a machine and workflow that are known only now. Raises 403."""
        identity = request.identity
        if not identity.limited or (machine is None and workflow is None):
            return
        allowed = identity.allows(machine, workflow)
        if allowed and machine is None and workflow is not None:
            # Checked only now: a key that may not see an id must not learn whether its workflow exists.
            allowed = identity.allows((await self.machine_of(workflow)).name, workflow)
        if not allowed:
            raise NotPermitted(f"{identity} is limited to other machines or ids.", fix="Use a key with wider limits.")

    @asynccontextmanager
    async def audit_action(
        self, request: Request, action: str, target: str, *, before: object, after: object, by: str = ""
    ) -> AsyncGenerator[None]:
        """Write an operator's action to the audit log before the block carries it out, and its failure after.

        `by` is the person whom the body names; otherwise the query may name one.
        """
        if self._audit is None:
            yield
            return
        who = by or request.person
        async with self._audit.action(request.identity, action, target, before=before, after=after, by=who):
            yield

    async def tasks(self, chosen: TaskFilter, *, limit: int, cursor: str | None) -> TaskPage:
        """Return a page of tasks, of those that the client may see."""
        return await self.engine._repeated(  # noqa: SLF001 -- see above.
            lambda: list_tasks(self._inside, chosen, limit=limit, cursor=cursor)
        )

    @property
    def admission(self) -> Admission:
        """The admission limits of this process."""
        return self._inside.gate.admission

    # --- stopping ----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Make `/readyz` fail, and end streams and waits."""
        self.leaving.set()
        self._ending.set()

    def keep(self, work: Coroutine[object, object, ResultT]) -> "asyncio.Task[ResultT]":
        """Run a coroutine in the background; it is cancelled when the server closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    async def close(self) -> None:
        """End streams and background work, and close the databases opened here. The caller closes the engine."""
        self.leave()
        for task in tuple(self._kept):
            task.cancel()
        while self._kept:
            await asyncio.wait(self._kept)
        self.ring.close()
        await self.databases.close()

    async def until_stop(self) -> None:
        """Return when the server stops. A server that waits for its connections would otherwise wait for ever."""
        loop = asyncio.get_running_loop()

        def received() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: there is nothing left to end.
                loop.call_soon_threadsafe(self._end_temporarily)

        with STOP_SIGNALS.listen(received):
            await self._ending.wait()

    def _end_temporarily(self) -> None:
        """End open streams and waits, and those that a client opens before the server has closed its socket."""
        self._ending.set()
        asyncio.get_running_loop().call_later(ENDING_S, self._resume)

    def _resume(self) -> None:
        # The program handled the signal itself, and has not stopped.
        if not self.leaving.is_set():
            self._ending.clear()

    # --- health ------------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        """Return None, or the reason why this process cannot work any more."""
        try:
            self._inside.refuse_if_closed()
        except MovedElsewhere:
            return None  # The engine keeps trying to switch to the new store: a restart would do the same.
        except InterlockError as error:
            return error.what
        return None

    async def ready(self) -> str | None:
        """Return None, or the reason why requests should be sent elsewhere."""
        if self.leaving.is_set():
            return "the server is stopping."
        reason = self.alive()
        if reason is not None:
            return reason
        try:
            async with asyncio.timeout(self.limits.ready_s):
                await self.guard.fresh()
                await self._inside.policy.row(NO_ID)
        except TimeoutError:
            return f"the store has not answered for {self.limits.ready_s:g} s."
        except UnavailableError as error:
            return error.what
        return None

    @property
    def without_redis(self) -> bool:
        """Whether this process uses its own limits and breakers, because Redis is unavailable."""
        cluster = self._inside.cluster
        return cluster is not None and not cluster.up

    async def _count_states(self) -> Counted:
        return await self.engine._repeated(lambda: self._inside.store.living())  # noqa: PLW0108, SLF001 -- looked up again after a move.

    async def living(self, machine: str) -> dict[str, int]:
        """Return the number of workflows of a machine in each of its states."""
        found = {node.name: 0 for node in self.machines[machine].table.nodes.values()}
        for (name, _, state), count in (await self._counts.now()).items():
            if name == machine:
                node = self.machines[machine].stored.get(state)
                if node is not None:
                    found[node.name] += count
        return found

    def exporter(self) -> Exporter | None:
        """Return the observer that exports metrics, if there is one."""
        found = (each for each in self._inside.subscribers.observers if hasattr(each, "render"))
        return cast("Exporter | None", next(found, None))

    @asynccontextmanager
    async def join_workers(self, siblings: Siblings) -> AsyncGenerator[None]:
        """In the block, a scrape of this worker returns the metrics of all workers."""
        exporter = self.exporter()
        if not isinstance(exporter, OneOfSeveral):
            yield
            return
        async with siblings.answering(lambda: exporter.part(str(siblings.place))):
            self.siblings = siblings
            yield

    async def render_metrics(self) -> tuple[str, bytes] | None:
        """Return the metrics of all workers of this server; None without an exporter."""
        exporter = self.exporter()
        if exporter is None:
            return None
        if self.siblings is None or not isinstance(exporter, OneOfSeveral):
            return await exporter.render()
        parts = await self.siblings.collect()
        return await exporter.render_all(parts, self.siblings.count - len(parts))


def _carried() -> Callable[[str], AbstractContextManager[None]] | None:
    try:
        from interlock.observe.traces import carried  # noqa: PLC0415 -- an extra, which may be missing.
    except ImportError:
        return None  # The tracer is not OpenTelemetry's.
    return carried
