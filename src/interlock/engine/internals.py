"""The parts of an open engine, their wiring and their lifecycle.

`Engine` is the public class; `EngineParts` holds its parts and listens to the pipeline. After a durable change of a
workflow the runner acts on it, observers receive it, and its waiters are woken. The store policy answers where a store
with one owner and a shared store differ.

Sections: settings of an opening, the parts.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from interlock.clock import Chance, Clock, Ids, SystemClock
from interlock.core.decide import suggestion
from interlock.core.machine import Machine
from interlock.core.policies import Dependency
from interlock.core.search import Search
from interlock.core.table import Node
from interlock.engine.alerts.alert import Alert, hot_row_alert, loop_alert
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.alerts.detector import QUIET_REAL_S_MAX, QUIET_S_MAX, StallDetector
from interlock.engine.bound_machine import OWN_MACHINES, BoundMachine, LoadedWorkflow
from interlock.engine.charts import ChartRecorder
from interlock.engine.check_definitions import check_definitions, note_search
from interlock.engine.dependencies.breakers import BreakerPublisher
from interlock.engine.dependencies.outlet import BreakerTransition
from interlock.engine.dependencies.wait_queue import Places, lines_of
from interlock.engine.engine_settings import Admission, EngineSettings
from interlock.engine.families import Families
from interlock.engine.leases import LeaseBook
from interlock.engine.owned_store_policy import OwnedStorePolicy
from interlock.engine.path.admission import Gate
from interlock.engine.path.caller_commands import SendEvent, Start
from interlock.engine.path.commit_pipeline import CommitPipeline, ContentionTable, closed, machine_of, stopped
from interlock.engine.path.engine_commands import Bug, Late
from interlock.engine.path.staged_group import DecisionContext, Envelope, Staged
from interlock.engine.pauses import MACHINE as PAUSES
from interlock.engine.pauses import Pauses, PauseScope, PauseState, Pausing
from interlock.engine.schedules import Schedules
from interlock.engine.shared.shared_redis import Clustered
from interlock.engine.shared.shared_store_policy import SharedStorePolicy
from interlock.engine.signal_emitter import SignalEmitter, goes_on
from interlock.engine.steps.attempt import Judge
from interlock.engine.steps.loop_watch import BlockedLoop, watch_loop
from interlock.engine.steps.runner import Runner
from interlock.engine.tracer_protocol import tracer_of
from interlock.engine.views import Compensation, Moved, Refused, Waiters, compensations_of
from interlock.errors import (
    BadUsage,
    CorruptionError,
    InterlockError,
    MachineMismatch,
    MovedElsewhere,
    Refusal,
    UnavailableError,
    UserCodeError,
)
from interlock.faultpoints import reach
from interlock.lanes.hot_rows import OPEN_SOURCES, HotRow, badness
from interlock.redaction import logger_of
from interlock.redis.shared_leases import HIGHEST, Epochs, StoreLeases, read_highest
from interlock.signals import LoopBlocked, Subscribers
from interlock.store.lane_store import SqliteStore
from interlock.store.protocol import SharedStore, Store
from interlock.store.records import Row, RowsPage
from interlock.store.search_pages import NotIndexed
from interlock.urls import RedisAddress

log = logger_of("interlock.operators")

SEARCH_LOOK_S = 1.0
"""Seconds between two looks at the indexes that several processes may build."""

SEARCH_AGAIN_S = 30.0
"""Seconds after a failure to build an index for searching."""

RESUME_FIRST_S = 0.1
"""Seconds until what was resumed is tried again after an error; they double with each error."""

RESUME_LAST_S = 10.0
"""The most of them."""

PAGE = 1_000

HOT_ALERTS_MAX = 20
"""Flagged rows of a process that have an alert at the same time; the metrics count the others."""

WORKFLOWS = "workflows"
"""The name under which hot workflows stand among the hot rows of databases."""

UNBLOCKED_S = 300.0
"""An alert ends when its step has not blocked the event loop for this time."""


# --- Settings of an opening ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The settings, clock, observers and alerts of one engine."""

    settings: EngineSettings
    admission: Admission
    clock: Clock
    chance: Chance
    ids: Ids
    subscribers: Subscribers
    alarms: Alarms
    worker: bool
    dependencies: Sequence[Dependency] = ()
    contended: ContentionTable = field(default_factory=ContentionTable)
    redis: RedisAddress | None = None
    schedules: Schedules = field(default_factory=Schedules)
    waiters: Waiters = field(default_factory=Waiters)
    """Callers that wait for workflows. They move along to another store."""


# --- The parts -------------------------------------------------------------------------------------------------------


class EngineParts:
    """The parts of one engine. Lives in one event loop."""

    _filling = False
    """Whether the indexes of searchable fields are being completed."""

    def __init__(self, store: Store, machines: dict[str, BoundMachine], config: EngineConfig) -> None:
        self.store = store
        self.machines = machines
        self.subscribers = config.subscribers
        self.tracing = tracer_of(config.subscribers)
        self.waiters = config.waiters
        self.waiters.added = None
        self.charts = ChartRecorder(store, self.declared, self._waiting)
        self.signals = SignalEmitter(config.subscribers, config.clock, self.charts.failed)
        self.alarms = config.alarms
        self.cluster = None if config.redis is None else self._make_cluster(config, config.redis)
        self.own_leases = LeaseBook(store.leases, chance=config.chance, ids=config.ids)
        """Leases among the engines of one store, never shared through Redis."""
        self.leases = self.own_leases
        if self.cluster is not None:
            self.leases = LeaseBook(self.cluster.leases, chance=config.chance, ids=config.ids)
        self.publisher = BreakerPublisher(store, config.subscribers, config.alarms, config.clock, worker=config.worker)
        self._config = config
        self._settings = config.settings
        self._worker = config.worker
        self.follow: Callable[[UnavailableError], bool] | None = None
        """Called when the workflows were moved; returns whether the engine follows them."""
        self.parted = False
        self.late: MovedElsewhere | None = None
        """The error for all calls while a switch to the moved workflows takes too long."""
        self.closed = False
        self._recovered = False
        self._detector: StallDetector | None = None
        self._unwatch: Callable[[], None] = _nothing
        self._blocking: dict[str, tuple[Alert, asyncio.TimerHandle]] = {}
        """Alerts of steps that blocked the event loop, with the timer that ends each."""
        self._hot: dict[str, Alert] = {}
        """Alerts of rows that are flagged now."""
        self._ending: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self.pauses = Pauses(self._loop.time if isinstance(store, SharedStore) else None)
        self.places = self._make_places()
        self.gate = Gate(
            config.admission, config.clock, self.places, None if self.cluster is None else self.cluster.ingress
        )
        self._sharing: SharedStorePolicy | None = None
        """The policy of a shared store, which has duties of its own; None on a store with one owner."""
        if isinstance(store, SharedStore):
            self._sharing = SharedStorePolicy(
                store, machines, config.settings, config.chance, config.ids, worker=config.worker
            )
        self.policy = self._sharing or OwnedStorePolicy(store, machines, config.settings, config.chance)
        self.pipeline, self.runner, self.families = self._wired(Judge(config.chance))
        self.policy.connect(self)
        if isinstance(config.clock, SystemClock):
            for bound in machines.values():
                bound.threads = self.runner.threads
        if isinstance(store, SqliteStore):
            store.publish(lambda: config.contended.worst(self.now_s()))

    @property
    def declared(self) -> dict[str, BoundMachine]:
        """The machines that the program has given, without those of schedules, pauses and bulk runs."""
        return {name: bound for name, bound in self.machines.items() if name not in OWN_MACHINES}

    @property
    def schedules(self) -> Schedules:
        """The schedules of this home."""
        return self._config.schedules

    def _make_cluster(self, config: EngineConfig, address: RedisAddress) -> Clustered:
        return Clustered(
            self.store,
            address,
            clock=config.clock,
            chance=config.chance,
            ids=config.ids,
            subscribers=config.subscribers,
            alarms=config.alarms,
        )

    def _make_places(self) -> Places:
        config, settings = self._config, self._settings
        called = sorted({name for bound in self.machines.values() for name in bound.dependencies()})
        lines = lines_of(
            called, config.dependencies, clock=config.clock, chance=config.chance, changed=self.breaker_changed
        )
        for bound in self.machines.values():
            bound.why = lambda dependency, kind: lines[dependency].outlet.why(kind)
            bound.pauses = self.pauses
        if self.cluster is not None:
            self.cluster.share(line.outlet for line in lines.values())
        if not self._worker:
            return Places(0, 0, 0, lines)
        return Places(settings.steps_max, settings.undos_max, settings.effects_max, lines)

    def _wired(self, judge: Judge) -> tuple[CommitPipeline, Runner, Families]:
        config, policy, settings = self._config, self.policy, self._settings
        means = DecisionContext(
            config.ids,
            self.places,
            policy.owner,
            self.tracing,
            self.pauses,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            attempts_max=settings.attempts_max,
        )
        pipeline = CommitPipeline(
            self.store, policy, self.machines, means, settings, self, config.contended, config.chance
        )
        runner = Runner(
            pipeline, claims=self._sharing, judge=judge, signals=self.signals, settings=settings, working=self._worker
        )
        runner.others = families = Families(self.store, pipeline, self.machines)
        return pipeline, runner, families

    async def begin(self, *, accept_changes: bool) -> None:
        """Check the machines against the stored definitions, and take up due work."""
        notes = await self.store.notes()
        self.publisher.remember(self.places.lines, notes)
        if self.cluster is not None:
            await self.cluster.begin(notes, self.own_leases)
        elif HIGHEST in notes:
            # Redis has granted leases of this home: tokens of the store continue above them.
            chance, ids, store = self._config.chance, self._config.ids, self.store
            epochs = Epochs(store.leases, chance, ids, highest=read_highest(notes), notes=store)
            self.leases = LeaseBook(StoreLeases(store.leases, epochs), chance=chance, ids=ids)
        for plan in await check_definitions(
            self.store, self.machines.values(), notes, accept_changes=accept_changes, worker=self._worker
        ):
            log.warning("opened with accept_changes although the plan has losses:\n%s", plan.text())
        self._filling = await self.store.declare_search([bound.machine.search for bound in self.machines.values()])
        if self._filling:
            self.keep(self._fill_search())
        await note_search(self.store, self.machines.values(), notes)
        await self.pauses.read(self.store)
        if self._worker:
            await self.policy.take_up(notes)
            self._recovered = True
            self._watch()
        if self.families.used:
            await self.families.sweep()
            if self._worker:
                self.keep(self.families.revisit())
                if self._sharing is not None:
                    self.keep(self.families.sweep_always())
        if self._sharing is not None:
            self._recovered = True  # A process that only takes events has something to release too: a pending hint.
            self._sharing.begin()

    async def search(self, search: Search) -> RowsPage:
        """Return the workflows that match. Builds an index again that another release of the machine has dropped."""
        try:
            return await self.store.search(search)
        except NotIndexed:
            if not self._filling and not self.closed:
                self._filling = True
                self.keep(self._fill_search())
            raise

    async def _fill_search(self) -> None:
        """Add the workflows that are there to the indexes of new searchable fields, batch by batch (F4)."""
        while True:
            pause_s = SEARCH_LOOK_S if self.store.shared else 0.0  # Another process may be building it.
            try:
                if not await self.store.fill_search():
                    self._filling = False
                    return
            except Exception as error:
                log.exception("an index for searching cannot be completed, and is tried again", exc_info=error)
                pause_s = SEARCH_AGAIN_S
            await asyncio.sleep(pause_s)

    def _watch(self) -> None:
        """Watch for stalled workflows, and for steps that block the event loop."""
        if self._settings.stall_check_s > 0:
            detector = StallDetector(
                self.store,
                {name: bound.table.nodes for name, bound in self.declared.items()},  # Schedules have dead letters.
                self.alarms,
                every_s=self._settings.stall_check_s,
                debt_s=self._settings.debt_s,
                quiet_s_max=QUIET_REAL_S_MAX if isinstance(self._config.clock, SystemClock) else QUIET_S_MAX,
            )
            self._detector = detector
            self.keep(detector.run())
        if isinstance(self._config.clock, SystemClock):
            self._unwatch = watch_loop(self.loop_blocked)
            if self._settings.stall_check_s > 0:
                self.keep(self._watch_hot_rows())

    def hot_rows(self) -> list[tuple[str, HotRow]]:
        """Return the hot workflows of this engine and the hot rows of this process's databases, worst first (D19)."""
        rows = [(WORKFLOWS, row) for row in self._config.contended.worst(self.now_s())] + OPEN_SOURCES.rows()
        return sorted(rows, key=lambda each: badness(each[1]), reverse=True)

    async def _watch_hot_rows(self) -> None:
        """Raise an alert for each flagged row of this process, and resolve it when the row is flagged no longer."""
        while True:
            await asyncio.sleep(self._settings.stall_check_s)
            now_us = int(self._config.clock.wall_s() * 1_000_000)
            flagged = [hot_row_alert(name, row, now_us) for name, row in self.hot_rows() if row.flagged]
            found = {alert.dedup_key: alert for alert in flagged}
            for key in self._hot.keys() - found.keys():
                self.alarms.tell(self._hot.pop(key).over(now_us))
            new = [key for key in found if key not in self._hot]
            for key in new[: max(0, HOT_ALERTS_MAX - len(self._hot))]:
                self._hot[key] = found[key]
                self.alarms.tell(found[key])

    def loop_blocked(self, blocked: BlockedLoop) -> None:
        """Report a blocked event loop to observers and alerts. A step of this engine or other code blocked it."""
        current = blocked.attempt
        if current is not None and current.machine not in self.machines:
            return
        machine, workflow, step = ("", "", "") if current is None else (current.machine, current.workflow, current.step)
        signal = LoopBlocked(machine, workflow, step, blocked.duration_s, blocked.stack)
        self.subscribers.emit(signal)
        alert = loop_alert(signal, int(self._config.clock.wall_s() * 1_000_000))
        known = self._blocking.pop(alert.dedup_key, None)
        if known is None:
            self.alarms.tell(alert)
        else:
            known[1].cancel()
        timer = self._loop.call_later(UNBLOCKED_S, self._end_block_alert, alert.dedup_key)
        self._blocking[alert.dedup_key] = (alert, timer)

    def _end_block_alert(self, key: str) -> None:
        """End the alert of a step that has not blocked the loop for `UNBLOCKED_S`, or when the engine closes."""
        alert, timer = self._blocking.pop(key)
        timer.cancel()
        self.alarms.tell(alert.over(int(self._config.clock.wall_s() * 1_000_000)))

    def keep(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a background task until the engine closes."""
        task = self._loop.create_task(coroutine)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def close(self) -> None:
        """Stop claiming, wait for running steps, cancel the rest, and close the store. Idempotent."""
        self.closed = True
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        await asyncio.shield(self._ending)  # Closing completes even if this caller is cancelled.

    async def _end(self) -> None:
        if self._sharing is not None:
            self._sharing.stop()
        for task in self._tasks:
            task.cancel()
        self.runner.timers.close()
        reach("closing.begun")
        try:
            await self.runner.drain(self._settings.drain_s)
            reach("closing.drained")
            self.policy.save_counts()
            await self.families.close()
            await self.pipeline.idle()
            reach("closing.settled")
            if self._recovered and self.pipeline.dead is None:
                await self.policy.release()
            await self.charts.close(write=self.pipeline.dead is None)
        finally:
            await self.charts.close(write=False)  # Also where the store has failed: its timer ends.
            self.runner.abort()
            self.pipeline.close()
            self.waiters.close(closed())
            try:
                await self._parted()
            finally:
                await self.alarms.close()

    async def _parted(self, *, elsewhere: bool = False) -> None:
        """Close the parts that belong to this store. Leases that move to another store are kept."""
        self.policy.part()
        self._unwatch()
        for key in tuple(self._blocking):
            self._end_block_alert(key)
        for alert in self._hot.values():
            self.alarms.tell(alert.over(int(self._config.clock.wall_s() * 1_000_000)))
        self._hot.clear()
        if self.tracing is not None:
            self.tracing.stopped()
        self.places.close()
        await self.publisher.close()
        if not elsewhere:
            await self.leases.close()
            await self.own_leases.close()
        if self.cluster is not None:
            await self.cluster.close()
        await self.store.close()

    async def leave(self) -> None:
        """End everything immediately, as when an engine stops: the workflows were moved, and callers follow (G5)."""
        if self._ending is None:
            self._ending = self._loop.create_task(self._leave_store())
        await asyncio.shield(self._ending)

    def go_along(self, old: "EngineParts") -> None:
        """Take over the calls in flight and the leases of the parts that these ones replace."""
        self.gate.go_along(old.gate)
        self.charts.take_over(old.charts)
        old.own_leases.go_along(self.own_leases.keeper)
        if old.leases is not old.own_leases:
            old.leases.go_along(self.leases.keeper)
        self.own_leases, self.leases = old.own_leases, old.leases

    async def _leave_store(self) -> None:
        self.parted = self.leases.between = self.own_leases.between = True
        self.pipeline.leave()
        for task in self._tasks:
            task.cancel()
        self.runner.timers.close()
        reach("leaving.begun")
        try:
            await self.families.close()
            await self.runner.drain(0.0)
            await self.pipeline.idle()
            await self.charts.close(write=False)
            reach("leaving.settled")
        finally:
            await self._parted(elsewhere=True)

    def refuse_if_closed(self) -> None:
        """Raise UnavailableError when the engine is closed, stopped or switching for too long."""
        if self.closed:
            raise closed()
        if self.pipeline.dead is not None:
            raise stopped(self.pipeline.dead)
        if self.late is not None:
            raise self.late

    def now_s(self) -> float:
        """Return the event loop's time, by which waits are measured."""
        return self._loop.time()

    def breaker_changed(self, change: BreakerTransition) -> None:
        """Publish a change of the breaker of a dependency. A closed breaker makes room for parked workflows."""
        self.publisher.changed(change)
        if self._sharing is not None and change.after == "closed":
            self._sharing.freed()

    # --- the listener of the pipeline --------------------------------------------------------------------------------

    def durable(self, staged: Staged) -> None:
        """Act on a committed change of a workflow."""
        self.runner.act(staged)
        if self._detector is not None and self._detector.still:
            self._detector.stir()
        if staged.history:
            if staged.live.row.machine == PAUSES:
                self._pause_changed(staged.live)
            if self.subscribers.observers:
                self._tell_moves(staged)
            if staged.live.row.id in self.waiters.by_workflow:
                self.waiters.moved(staged.live)
        if self.tracing is not None:
            here = self._worker and goes_on(staged, self.pipeline.means)
            self.tracing.durable(staged.live.row, staged.history, ended=staged.ended, goes_on=here)
        if self._sharing is not None:
            self._sharing.durable(staged)
        if staged.children or self.families.used:
            self.families.durable(staged)
        if staged.letters:
            self.charts.gave_up(staged)

    def _pause_changed(self, live: LoadedWorkflow) -> None:
        """Follow a change of a pause, and go on with what was resumed."""
        pause = cast("Pausing", live.snapshot.context)
        if self.pauses.change(pause, active=live.snapshot.state is PauseState.ACTIVE) and self._worker:
            self.keep(self._resume(pause.scope))

    async def _resume(self, scope: PauseScope) -> None:
        """Go on with what was resumed, again after each error: nothing else takes it up."""
        wait_s = RESUME_FIRST_S
        while True:
            try:
                await self.policy.resume(scope)
            except Exception as error:
                log.exception("what was resumed in %s cannot be taken up, and is tried again", scope, exc_info=error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RESUME_LAST_S)
            else:
                return

    def _tell_moves(self, staged: Staged) -> None:
        if not self.subscribers.moves:
            self.signals.applied(staged, 0.0)  # Counting observers get the duration with the whole group.
            return
        duration_s = self.measured_s() - self.pipeline.group_begun_s
        if self.tracing is None:
            self.signals.applied(staged, duration_s)
        else:
            self.tracing.within(staged.live.row.id).run(self.signals.applied, staged, duration_s)

    def grouped(self, changed: Sequence[Staged], lost: Sequence[str]) -> None:
        """Count a group whose changes were all acted on, and report its duration."""
        if changed:
            self.charts.sums.count(changed, lost, self.pipeline.means.now_us)
        if self.subscribers.observers:
            self.signals.grouped(self.measured_s() - self.pipeline.group_begun_s)

    def measured_s(self) -> float:
        """Return the time for durations. The clock of uvloop counts milliseconds; a transition may be shorter."""
        return self._config.clock.monotonic_s()

    def elsewhere(self, error: UnavailableError) -> bool:
        """Handle an error of moved workflows; return whether the engine follows them."""
        return not self.closed and self.follow is not None and self.follow(error)

    def answered(self, envelope: Envelope, answer: object) -> None:
        """Count an answer, and report refusals and late results to observers."""
        if envelope.admitted and envelope.future is not None:
            self.gate.leave()
        if self.pipeline.dead is not None:
            # Nothing runs here any more: other engines of this process must not wait for slots of this one.
            self.waiters.close(stopped(self.pipeline.dead))
            self.places.close()
        reply = answer
        if isinstance(answer, Moved):
            if answer.duplicate or answer.ignored:
                self.policy.count(envelope.workflow, cast("Moved[Enum]", answer))
                if self.tracing is not None:
                    self.tracing.unchanged(envelope.workflow)
        elif isinstance(answer, InterlockError):
            self._report_error(envelope, answer)
        elif isinstance(answer, Bug):
            self.log_bug(envelope.workflow, answer.error, answer.run)
        elif isinstance(answer, Late):
            self.signals.late(answer.workflow, answer.run)
        elif self.tracing is not None and isinstance(envelope, Start):
            self.tracing.unchanged(envelope.workflow)  # It may have been there before.
        if self._sharing is not None:
            self._sharing.answered(envelope, reply)

    def _report_error(self, envelope: Envelope, answer: InterlockError) -> None:
        if isinstance(answer, Refusal):
            self.charts.refused(answer.machine, answer.state)
        if self.tracing is None:
            self.signals.rejected(envelope.workflow, answer)
        else:
            self.tracing.within(envelope.workflow).run(self.signals.rejected, envelope.workflow, answer)
            self.tracing.refused(envelope.workflow, answer)
        if isinstance(answer, UserCodeError):
            self.log_bug(envelope.workflow, answer)
        if isinstance(envelope, SendEvent):
            self.policy.count(envelope.workflow, answer)
        elif envelope.future is None and isinstance(answer, CorruptionError):
            log.error("workflow %r cannot be taken further, and is left as it is: %s", envelope.workflow, answer)

    def log_bug(self, workflow: str, error: InterlockError, correlation_id: str = "") -> None:
        """Log a bug in a guard, an action or the event of a step, once, with its traceback."""
        correlation_id = correlation_id or self._config.ids.text()
        machine = event = ""
        if isinstance(error, UserCodeError):
            error.correlation_id = correlation_id
            machine, event = error.machine, error.event
        log.error(
            "%s (workflow %r, event %s, correlation id %s)",
            error.what,
            workflow,
            event or "unknown",
            correlation_id,
            exc_info=error,
            extra={
                "order_id": workflow,
                "machine": machine or None,
                "event": event or None,
                "correlation_id": correlation_id,
            },
        )

    def _waiting(self) -> dict[str, int]:
        """Count the cached and parked workflows whose next attempt is due here and has not begun, by machine."""
        found: dict[str, int] = {}
        holder = self.pipeline.means.owner
        for live in self.pipeline.cached():
            current, row = live.owed.current, live.row
            due = current is not None and not current.started and (current.retry_us is None or current.parked)
            if due and row.holder == holder:
                found[row.machine] = found.get(row.machine, 0) + 1
        for machine in self.runner.parking.machines():
            found[machine] = found.get(machine, 0) + 1
        return found

    def operated(self, what: str, by: str | None) -> None:
        """Log an operator's action, with its actor (F1)."""
        log.info("%s, by %s", what, by or "a caller without a name")

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, row: Row) -> LoadedWorkflow:
        """Decode the workflow in a row."""
        return machine_of(row, self.machines).live(row)

    def readable(self, bound: BoundMachine, rows: Sequence[Row]) -> list[LoadedWorkflow]:
        """Decode the workflows in these rows. One that cannot be read is logged and left out."""
        lives: list[LoadedWorkflow] = []
        for row in rows:
            try:
                lives.append(bound.live(row))
            except (CorruptionError, MachineMismatch) as error:
                log.error("workflow %r is left out of a listing: %s", row.id, error.what)  # noqa: TRY400 -- what is enough.
        return lives

    def admit_many(
        self,
        requests: "Sequence[SendEvent | Refused]",
        admit_one: "Callable[[SendEvent], asyncio.Future[object]]",
        since_s: float,
    ) -> "list[asyncio.Future[object] | Refused]":
        """Admit many events in their order; those for which there is room are admitted together."""
        room = 0
        if self.tracing is None:
            with contextlib.suppress(InterlockError):  # Each event gets its own error below.
                self.refuse_if_closed()
                room = self.gate.enter_many(sum(type(each) is SendEvent and each.first is None for each in requests))
        answers: list[asyncio.Future[object] | Refused] = []
        for each in requests:
            if isinstance(each, Refused):
                answers.append(each)
            elif room and each.first is None:
                room -= 1
                each.since_s = since_s
                answers.append(self.pipeline.admit(each))
            else:
                try:
                    answers.append(admit_one(each))
                except InterlockError as error:
                    answers.append(Refused(error))
        return answers

    async def compensations(self) -> list[Compensation]:
        """Return the pending and running undos of all workflows that unwind."""
        found: list[Compensation] = []
        for bound in self.machines.values():
            for node in bound.table.nodes.values():
                if node.unwinds_to is not None:
                    lives = self.readable(bound, await self.all_in(bound, node))
                    found += [each for live in lives for each in compensations_of(live)]
        return found

    async def all_in(self, bound: BoundMachine, node: Node) -> list[Row]:
        """Load every workflow of a machine in a state."""
        rows: list[Row] = []
        cursor: str | None = None
        while True:
            found = await self.store.find(bound.name, node.name, after=cursor, limit=PAGE)
            rows += found.rows
            cursor = found.cursor
            if cursor is None:
                return rows


def not_given(machine: object, bound: BoundMachine | None, declared: Iterable[str]) -> UnavailableError:
    """Return the error for a machine that is not one of this engine; `bound` is another one of its name."""
    known = ", ".join(sorted(declared)) or "none"
    if not isinstance(machine, Machine):
        return UnavailableError(
            f"{machine!r:.100} is not a machine of this engine; it has {known}.",
            why="Only HTTP and the command line name machines by texts.",
            fix="Pass the machine itself: engine.start(order, ...).",
        )
    if bound is not None:
        return UnavailableError(
            f"this machine {bound.name!r} is another object than the machine {bound.name!r} of this engine.",
            why="It was built twice: its module was imported under two names, or a function made it again.",
            fix="Import it from one module, and pass that object to Engine.open and to this call.",
        )
    return UnavailableError(
        f"machine {machine.name!r} was not given to this engine; it has {known}.",
        why="An engine runs the machines it was opened with.",
        fix="Open the engine with it: Engine.open(url, machines=[…]).",
    )


def not_called(dependency: object, lines: Iterable[str]) -> BadUsage:
    """Return the error for a dependency that no machine of this engine calls."""
    known = list(map(repr, lines))
    return BadUsage(
        f"nothing here calls a dependency {dependency!r}.{suggestion(repr(dependency), known)}",
        why=f"The machines of this engine call {', '.join(known) or 'none'}.",
        fix=f"Use one of those names, or have a step name it: dependency={str(dependency)!r}.",
    )


def _nothing() -> None:
    """Do nothing: no event loop is watched."""


def moved_or_refused(answer: "asyncio.Future[object]") -> Moved[Enum] | Refused:
    """Return the answer of one event of many. Raises what is not Interlock's own error."""
    error = answer.exception()
    if error is None:
        return cast("Moved[Enum]", answer.result())
    if isinstance(error, InterlockError):
        return Refused(error)
    raise error
