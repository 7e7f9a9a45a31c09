"""What all handlers share: the engine with its machines, the guard, the bounds, and whether the server is leaving.

This is the one module that looks inside an engine. The server needs a few things that programs do not: the machine of
a name, the machine of a workflow without another read, whether a start began something or found it, whether the store
answers, and who observes.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from enum import Enum
from typing import Any, Protocol, TypeGuard, cast

from interlock.access import NotPermitted
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.refusals import suggestion
from interlock.errors import InterlockError, InvalidPayload, MovedElsewhere, UnavailableError
from interlock.runtime.bound import Bound
from interlock.runtime.engine import Engine
from interlock.runtime.envelopes import Start
from interlock.runtime.inside import Inside
from interlock.runtime.pipeline import Group
from interlock.runtime.pruning import Pruned, Pruner
from interlock.runtime.settings import Admission
from interlock.runtime.views import View
from interlock.seams import Clock, SystemClock
from interlock.server.counting import Counts
from interlock.server.limits import Limits
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request
from interlock.server.security.audit import Audit
from interlock.server.security.guard import Guard
from interlock.server.siblings import Siblings
from interlock.server.stop_signals import STOP_SIGNALS
from interlock.store.pruning import Batch

ENDING_S = 10.0
"""How long streams and waits end immediately after a signal to stop that the process outlives."""

NO_ID = ""
"""No workflow has it: a store that is asked for it answers that there is none."""


class Starting(Start):
    """A start that tells whether it began the workflow, or found it."""

    __slots__ = ("found",)

    def decide(self, group: Group) -> View[Enum, object]:
        """As every start."""
        self.found = group.stage(self.workflow) is not None
        return super().decide(group)


class Exporter(Protocol):
    """An observer that can be scraped."""

    async def render(self) -> tuple[str, bytes]:
        """A content type, and everything."""
        ...


class OneOfSeveral(Exporter, Protocol):
    """An exporter whose figures can stand beside those of others like it."""

    def part(self, worker: str) -> bytes:
        """What is of this process alone, marked as that worker's."""
        ...

    async def render_all(self, parts: Sequence[bytes], unheard: int) -> tuple[str, bytes]:
        """A content type, the parts of all workers, and what they share, once."""
        ...


class _Enough(Exception):
    """Enough was pruned for one request."""


class Service:
    """One engine, as it is served."""

    def __init__(
        self,
        engine: Engine,
        *,
        guard: Guard | None = None,
        audit: Audit | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.engine = engine
        self.clock: Clock = clock or SystemClock()
        self.guard = guard or Guard.trusting(self.clock)
        self.limits = limits or Limits()
        self._audit = audit
        self.leaving = asyncio.Event()
        """Set when the server is about to stop: it still answers, and asks to be asked elsewhere."""
        self.announces_stop = False
        """Whether the server calls `leave` before it waits for connections to end: `interlock serve` does."""
        self._ending = asyncio.Event()
        """Set while streams and waits have to end: the server leaves, or the process has received a signal to stop."""
        self.under_way = 0
        self.batches = 0
        """Batches under way."""
        self.carried = _carried() if self._inside.tracing is not None else None
        """Makes the trace of a request that of a block; None where nobody traces."""
        self.siblings: Siblings | None = None
        """The other workers of this server; None where there is one."""
        self._counts = Counts(self._counted, self.clock)
        self.machines: Mapping[str, Bound] = self._inside.machines
        self.only = next(iter(self.machines.values())) if len(self.machines) == 1 else None
        self._by_event: dict[str, Bound | None] = {}
        for bound in self.machines.values():
            for name in bound.table.events:
                self._by_event[name] = None if name in self._by_event else bound

    @property
    def _inside(self) -> Inside:
        """The engine's own, of now: when its workflows are moved it has another one."""
        return self.engine._inside  # noqa: SLF001 -- see above: nobody else in this package does.

    # --- machines ----------------------------------------------------------------------------------------------------

    def machine(self, name: str) -> Bound:
        """The machine of that name. Raises 404."""
        bound = self.machines.get(name)
        if bound is None:
            raise HttpProblem(
                404,
                f"there is no machine {name!r:.300}.{suggestion(name, list(self.machines))}",
                code="machine-not-found",
                why=f"This server has {', '.join(sorted(self.machines))}.",
                fix="Use one of those names, or serve the machine too.",
            )
        return bound

    def chosen(self, name: str | None) -> Sequence[Bound]:
        """The machine that a listing is about, or all of them in the order of their names."""
        if name is not None:
            return (self.machine(name),)
        return [self.machines[each] for each in sorted(self.machines)]

    async def bound_of(self, workflow: str) -> Bound:
        """The machine of a workflow. Raises WorkflowNotFound."""
        live = self._inside.pipeline.known(workflow) or self._inside.supposed(workflow)
        if live is not None:
            return live.bound
        return self.machines[(await self.engine.get(workflow)).machine]

    def machine_known(self, workflow: str) -> str | None:
        """The name of a workflow's machine, where that is known without a read."""
        if self.only is not None:
            return self.only.name
        live = self._inside.pipeline.known(workflow) or self._inside.supposed(workflow)
        return None if live is None else live.bound.name

    async def event_for(self, workflow: str, name: str, data: bytes) -> Event:
        """The event of that name for a workflow. Raises InvalidPayload for what no machine has, or does not fit.

        A name that one machine has is read by it. Should the workflow be of another one, the engine refuses the event.
        """
        event = self.event_alone(name, data)
        if event is None:
            bound = await self.bound_of(workflow)
            event = cast("Event", bound.codec.decode_event(name, data, strict=True))
        return event

    def event_alone(self, name: str, data: bytes) -> Event | None:
        """The same without waiting; None for a name that several machines have, where it takes the workflow's own."""
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

    # --- moving ------------------------------------------------------------------------------------------------------

    def refuse_if_full(self, *, starts: bool = False) -> None:
        """Raise Overloaded at once for what the engine would not take in, before a body is waited for and read (C7)."""
        self._inside.gate.look(starts=starts)

    @property
    def room(self) -> float:
        """How many events the engine would take in now."""
        return self._inside.gate.room

    def overloaded(self, ahead: int, *, starts: bool) -> InterlockError | None:
        """What `refuse_if_full` would raise behind so many others."""
        return self._inside.gate.refusal(ahead, starts=starts)

    async def start(self, bound: Bound, workflow: str, context: object) -> tuple[View[Enum, object], bool]:
        """Start a workflow; says also whether it was there before."""
        starting = Starting(bound, workflow, context)
        view = cast("View[Enum, object]", await self.engine._admit(starting))  # noqa: SLF001 -- see above.
        return view, starting.found

    async def prune(
        self,
        enough: Callable[[Pruned], bool],
        *,
        older_than_s: float,
        history_only: bool,
        with_owed: bool,
        dry_run: bool,
        batch: int,
    ) -> tuple[Pruned, bool]:
        """As `Engine.prune`, batch by batch until that is enough; says also whether there may be more."""

        async def pruned() -> tuple[Pruned, bool]:
            pruner = Pruner(
                self._inside.store,
                older_than_s=older_than_s,
                machines=self.machines,
                history_only=history_only,
                owing=with_owed,
                dry_run=dry_run,
                batch=batch,
            )

            def gone(removed: Batch) -> None:
                if not (history_only or dry_run):
                    self._inside.pipeline.forget(removed.workflows)
                if enough(pruner.done):
                    raise _Enough

            try:
                return await pruner.run(gone), False
            except _Enough:
                return pruner.done, True

        return await self.engine._repeated(pruned)  # noqa: SLF001 -- see above.

    # --- who ---------------------------------------------------------------------------------------------------------

    async def permit(self, request: Request, machine: str | None, workflow: str | None) -> None:
        """Check again what is known only now: the limits of a key to machines and ids. Raises 403."""
        identity = request.identity
        if not identity.limited or (machine is None and workflow is None):
            return
        allowed = identity.allows(machine, workflow)
        if allowed and machine is None and workflow is not None:
            # Only now: whoever may not see an id may not learn whether there is a workflow of it either.
            allowed = identity.allows((await self.bound_of(workflow)).name, workflow)
        if not allowed:
            raise NotPermitted(
                f"{identity} is limited, and this is not among what it may see.",
                fix="Use a key with wider limits.",
            )

    @asynccontextmanager
    async def acting(
        self, request: Request, action: str, target: str, *, before: object, after: object
    ) -> AsyncGenerator[None]:
        """Write down what an operator does, before it is done in the block, and whether it failed."""
        if self._audit is None:
            yield
            return
        async with self._audit.action(request.identity, action, target, before=before, after=after):
            yield

    @property
    def admission(self) -> Admission:
        """What this process takes in."""
        return self._inside.gate.admission

    # --- stopping ----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Answer at `/readyz` that the server stops, and end streams and waits."""
        self.leaving.set()
        self._ending.set()

    async def until_stop(self) -> None:
        """Return when the server stops. A server that waits for its connections would wait for this answer for ever."""
        loop = asyncio.get_running_loop()

        def received() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: there is nothing left to end.
                loop.call_soon_threadsafe(self._end_for_a_while)

        with STOP_SIGNALS.listen(received):
            await self._ending.wait()

    def _end_for_a_while(self) -> None:
        """End what is open, and what a client opens again before the server has closed its socket."""
        self._ending.set()
        asyncio.get_running_loop().call_later(ENDING_S, self._go_on)

    def _go_on(self) -> None:
        # The program handles the signal in its own way, and has not stopped.
        if not self.leaving.is_set():
            self._ending.clear()

    # --- health ------------------------------------------------------------------------------------------------------

    def alive(self) -> str | None:
        """None, or why nothing can be done here any more."""
        try:
            self._inside.refuse_if_closed()
        except MovedElsewhere:
            return None  # The engine goes on trying to follow: a restart would do the same.
        except InterlockError as error:
            return error.what
        return None

    async def ready(self) -> str | None:
        """None, or why requests should go elsewhere."""
        if self.leaving.is_set():
            return "the server is stopping."
        told = self.alive()
        if told is not None:
            return told
        try:
            async with asyncio.timeout(self.limits.ready_s):
                await self.guard.fresh()
                await self._inside.row(NO_ID)
        except TimeoutError:
            return f"the store has not answered for {self.limits.ready_s:g} s."
        except UnavailableError as error:
            return error.what
        return None

    @property
    def alone(self) -> bool:
        """Whether what a cluster should share is this process's own, because its Redis is gone."""
        cluster = self._inside.cluster
        return cluster is not None and not cluster.up

    async def _counted(self) -> dict[tuple[str, int, str], int]:
        async def counted() -> dict[tuple[str, int, str], int]:
            return await self._inside.store.living()

        return await self.engine._repeated(counted)  # noqa: SLF001 -- see above.

    async def living(self, machine: str) -> dict[str, int]:
        """How many workflows of a machine are in each of its states."""
        found = {node.name: 0 for node in self.machines[machine].table.nodes.values()}
        for (name, _, state), count in (await self._counts.now()).items():
            if name == machine:
                node = self.machines[machine].stored.get(state)
                if node is not None:
                    found[node.name] += count
        return found

    def exporter(self) -> Exporter | None:
        """Who has counted what the engine did, if anybody has."""
        found = (each for each in self._inside.subscribers.observers if hasattr(each, "render"))
        return cast("Exporter | None", next(found, None))

    @asynccontextmanager
    async def among(self, siblings: Siblings) -> AsyncGenerator[None]:
        """In the block, a scrape of this worker tells the figures of all."""
        exporter = self.exporter()
        if not _is_one_of_several(exporter):
            yield
            return
        async with siblings.answering(lambda: exporter.part(str(siblings.place))):
            self.siblings = siblings
            yield

    async def scraped(self) -> tuple[str, bytes] | None:
        """What this server has counted, all of its workers; None when nobody counts."""
        exporter = self.exporter()
        if exporter is None:
            return None
        if self.siblings is None or not _is_one_of_several(exporter):
            return await exporter.render()
        parts = await self.siblings.asked()
        return await exporter.render_all(parts, self.siblings.count - len(parts))

    # --- drawing -----------------------------------------------------------------------------------------------------

    def machine_itself(self, bound: Bound) -> "Machine[Any, Any, Any]":
        """The machine as it was declared."""
        return cast("Machine[Any, Any, Any]", bound.machine)


def _is_one_of_several(exporter: object) -> TypeGuard[OneOfSeveral]:
    return hasattr(exporter, "part") and hasattr(exporter, "render_all")


def _carried() -> Callable[[str], AbstractContextManager[None]] | None:
    try:
        from interlock.observe.carrying import carried  # noqa: PLC0415 -- an extra, which may be missing.
    except ImportError:
        return None  # Somebody traces without OpenTelemetry.
    return carried
