"""`Engine`: machines as durable workflows. The façade; the data path is `pipeline`, the acting is `runner`.

async with Engine.open("lanes:///var/shop", machines=[order]) as engine:
await engine.start(order, "o-1", Order())
await engine.send("o-1", Submit(cents=999), key="click-7")
view = await engine.wait("o-1")
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, TypeVar, cast

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Allowed, ContextT, StateT
from interlock.errors import InterlockError, UnavailableError, WaitFailed, WaitTimeout, WorkflowNotFound
from interlock.runtime.bound import AnyMachine, Bound, Live
from interlock.runtime.envelopes import Send, Start
from interlock.runtime.pipeline import Pipeline
from interlock.runtime.recovery import recover
from interlock.runtime.runner import Runner
from interlock.runtime.settings import EngineSettings
from interlock.runtime.staging import Slots, Staged
from interlock.runtime.views import Counts, HistoryRow, Moved, Page, Refused, View, history_row, view_of
from interlock.runtime.wakes import Wakes
from interlock.seams import Chance, Clock, Ids
from interlock.signals import Observer, Subscribers, TransitionApplied
from interlock.store.protocol import Store

EventT = TypeVar("EventT", bound=Event)


class Engine:
    """An open engine. Make one with `Engine.open`."""

    def __init__(
        self,
        store: Store,
        machines: Sequence[Bound],
        *,
        settings: EngineSettings,
        clock: Clock,
        chance: Chance,
        ids: Ids,
        observers: Iterable[Observer] = (),
        worker: bool = True,
    ) -> None:
        self._store = store
        self._settings = settings
        self._machines = {bound.name: bound for bound in machines}
        self._subscribers = Subscribers()
        for observer in observers:
            self._subscribers.subscribe(observer)
        self._wakes = Wakes(store.now_us)
        slots = Slots(settings.steps_max if worker else 0)
        self._pipeline = Pipeline(store, self._machines, ids=ids, slots=slots)
        self._runner = Runner(
            self._pipeline, self._wakes, clock=clock, chance=chance, subscribers=self._subscribers, working=worker
        )
        self._pipeline.listener = self
        self._waiters: dict[str, list[asyncio.Future[View[Any, Any]]]] = {}
        self._worker = worker
        self._closed = False

    async def begin(self) -> None:
        """Take up what the last life of this store has left owed."""
        if self._worker:
            await recover(self._store, self._machines, self._pipeline, self._runner)

    # --- moving ----------------------------------------------------------------------------------------------------

    async def start(
        self, machine: Machine[StateT, ContextT, EventT], workflow: str, context: ContextT
    ) -> View[StateT, ContextT]:
        """Start a workflow. The same id with the same input again returns the one that exists (B4)."""
        self._refuse_if_closed()
        bound = self._bound(machine)
        view = cast("View[StateT, ContextT]", await self._pipeline.admit(Start(bound, workflow, context)))
        if machine.opening is not None and view.version == 1:
            await self._pipeline.admit(Send(workflow, machine.opening, if_allowed=True))
        return view

    async def send(
        self,
        workflow: str,
        event: Event,
        *,
        key: str | None = None,
        if_allowed: bool = False,
        expect_version: int | None = None,
    ) -> Moved[Any]:
        """Send an event; returns when what it does is durable. Raises the refusal when it does nothing."""
        self._refuse_if_closed()
        envelope = Send(workflow, event, key=key, if_allowed=if_allowed, expect_version=expect_version)
        return cast("Moved[Any]", await self._pipeline.admit(envelope))

    async def send_many(self, items: Iterable[tuple[str, Event, str | None]]) -> list[Moved[Any] | Refused]:
        """Send many events; one answer per item, in order."""
        self._refuse_if_closed()
        futures = [self._pipeline.admit(Send(workflow, event, key=key)) for workflow, event, key in items]
        answers: list[Moved[Any] | Refused] = []
        for answer in await asyncio.gather(*futures, return_exceptions=True):
            if isinstance(answer, InterlockError):
                answers.append(Refused(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                answers.append(cast("Moved[Any]", answer))
        return answers

    # --- looking ---------------------------------------------------------------------------------------------------

    async def get(self, workflow: str) -> View[Any, Any]:
        """The workflow as it is durable."""
        return view_of(await self._load(workflow))

    async def wait(self, workflow: str, *states: Enum, timeout_s: float = 60.0) -> View[Any, Any]:
        """Wait until the workflow is in one of the states; without any, until it is final or resting."""
        future: asyncio.Future[View[Any, Any]] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(workflow, [])
        waiters.append(future)
        try:
            async with asyncio.timeout(timeout_s):
                live = await self._load(workflow)
                while not _arrived(live, states):
                    await future
                    future = asyncio.get_running_loop().create_future()
                    waiters.append(future)
                    live = await self._load(workflow)
                return view_of(live)
        except TimeoutError:
            raise WaitTimeout(f"workflow {workflow!r} did not get there within {timeout_s:g} s.") from None
        finally:
            if future in waiters:
                waiters.remove(future)
            if not waiters:
                self._waiters.pop(workflow, None)

    async def history(self, workflow: str) -> list[HistoryRow[Any, Any]]:
        """Everything that happened to the workflow, in the order of versions."""
        bound = (await self._load(workflow)).bound
        rows: list[HistoryRow[Any, Any]] = []
        while page := await self._store.history(workflow, after=rows[-1].version if rows else 0):
            rows += [history_row(bound, happened) for happened in page]
        return rows

    async def find(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        state: StateT | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[StateT, ContextT]:
        """The workflows of a machine, page by page."""
        bound = self._bound(machine)
        wanted = None if state is None else str(state.value)
        found = await self._store.find(bound.name, wanted, after=cursor, limit=limit)
        return Page(tuple(view_of(bound.live(row)) for row in found.rows), found.cursor)

    async def stalled(
        self,
        machine: Machine[StateT, ContextT, EventT],
        *,
        older_than_s: float | None = None,
        states: Iterable[StateT] | None = None,
        limit: int = 1_000,
    ) -> list[View[StateT, ContextT]]:
        """The active workflows that have been in their state for too long; without a time, longer than declared."""
        bound = self._bound(machine)
        now_us = self._store.now_us()
        wanted = set(states) if states is not None else None
        before: dict[str, int] = {}
        for node in bound.table.nodes.values():
            dwell_s = older_than_s if older_than_s is not None else node.dwell_max_s
            if node.active and dwell_s is not None and (wanted is None or node.state in wanted):
                before[node.name] = now_us - int(dwell_s * 1_000_000)
        rows = await self._store.stalled(bound.name, before, limit=limit)
        return [view_of(bound.live(row)) for row in rows]

    async def allowed(self, workflow: str, event: Event | None = None) -> list[Allowed[Any]]:
        """The events that have a transition from where the workflow stands (A6)."""
        live = await self._load(workflow)
        return live.bound.machine.allowed(live.snapshot, event)

    async def stats(self, workflow: str) -> Counts:
        """What became of the events sent to it (B5)."""
        row = (await self._load(workflow)).row
        duplicate, ignored, refused = row.counts
        return Counts(applied=row.version - 1, duplicate=duplicate, ignored=ignored, refused=refused)

    def subscribe(self, observer: Observer) -> None:
        """Call `observer` with everything that happens from now on (A9)."""
        self._subscribers.subscribe(observer)

    async def close(self) -> None:
        """Stop claiming, wait for running steps for `drain_s`, cancel the rest, and give the store up."""
        if self._closed:
            return
        self._closed = True
        self._wakes.close()
        await self._runner.drain(self._settings.drain_s)
        await self._pipeline.idle()
        await self._store.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def durable(self, staged: Staged, before: Live | None) -> None:
        """The pipeline tells what nothing can take back."""
        del before
        live = staged.live
        self._runner.act(staged)
        if self._subscribers:
            for happened in staged.history:
                self._subscribers.emit(
                    TransitionApplied(
                        live.row.machine,
                        live.row.id,
                        happened.from_state,
                        happened.to_state,
                        happened.event,
                        happened.version,
                    )
                )
        waiters = self._waiters.get(live.row.id)
        if waiters:
            for future in waiters:
                if not future.done():
                    future.set_result(view_of(live))
            waiters.clear()

    async def _load(self, workflow: str) -> Live:
        self._refuse_if_closed()
        live = None if self._store.shared else self._pipeline.known(workflow)
        if live is None:
            row = (await self._store.load([workflow])).get(workflow)
            bound = None if row is None else self._machines.get(row.machine)
            if row is None or bound is None:
                raise WorkflowNotFound(f"there is no workflow {workflow!r}.")
            live = bound.live(row)
        return live

    def _bound(self, machine: AnyMachine) -> Bound:
        bound = self._machines.get(machine.name)
        if bound is None or bound.machine is not machine:
            raise UnavailableError(
                f"machine {machine.name!r} was not given to this engine.",
                fix="Open the engine with it: Engine.open(url, machines=[…]).",
            )
        return bound

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise UnavailableError("the engine is closed.", fix="Open it again.")


def _arrived(live: Live, states: Sequence[Enum]) -> bool:
    node = live.bound.table.nodes[live.snapshot.state._name_]
    if not states:
        return not node.active
    if live.snapshot.state in states:
        return True
    if node.final:
        raise WaitFailed(
            f"workflow {live.row.id!r} ended in state {node.name!r}, and will not get to the one that is waited for."
        )
    return False
