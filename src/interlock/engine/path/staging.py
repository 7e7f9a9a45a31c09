"""Groups of envelopes, and each workflow as it is staged in a group: its next row, its history, what it is owed then.

Several events of one workflow may be decided in one group, one after the other on the staged state. The store then gets
one change with the last row and all of the history. Nothing here waits or is rolled back: a group that is not committed
is dropped.

Sections: context of decisions; staged workflow; envelopes and groups.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from interlock.clock import Ids
from interlock.core.decide import context_not_storable
from interlock.core.values import (
    Decision,
    Record,
    Run,
    RunEffect,
    RunStep,
    RunUndos,
    Snapshot,
    StartTimer,
    StopStep,
    StopTimers,
)
from interlock.engine.bound_machine import (
    NOTHING,
    AnySnapshot,
    BoundMachine,
    LoadedWorkflow,
    Owed,
    PastRun,
    StepRun,
    TimerRun,
    UndoRun,
    encode_owed,
    event_text,
    fresh_key,
)
from interlock.engine.dependencies.outlet import Kind
from interlock.engine.dependencies.wait_queue import Line, Pass, Places, Slots
from interlock.engine.tracer_protocol import Guarded
from interlock.errors import InvalidPayload
from interlock.store.records import FREE, HOLD, KEEP, STAYS, Change, Delivered, HistoryRecord, Letter, OwedEffect, Row

# --- Context of decisions --------------------------------------------------------------------------------------------

replace = msgspec.structs.replace


class DecisionContext:
    """The ids, time and slots of the engine, for one group.

    Inside a transaction of the caller there are no slots: an engine begins what is owed then.
    """

    __slots__ = ("ids", "now_us", "owner", "places", "recovered", "tracing")

    def __init__(self, ids: Ids, places: Places, owner: str = "", tracing: Guarded | None = None) -> None:
        self.ids = ids
        self.tracing = tracing
        self.owner = owner
        """The lease owner of attempts that begin here, on a shared store; empty on a store with one owner."""
        self.places = places
        self.now_us = 0
        self.recovered: set[str] = set()
        """Effects with attempts from before the engine opened. A crash may have ended them: the next is not a retry."""

    def line(self, dependency: str | None) -> Line | None:
        """Return the wait queue of a dependency; None without one."""
        return None if dependency is None else self.places.lines.get(dependency)


def place_of(live: LoadedWorkflow, means: DecisionContext) -> tuple[Slots, Line | None, Kind]:
    """Return the slots, wait queue and kind of the next attempt of a workflow's step or undo."""
    return place_in(live.bound, live.row.state, live.owed, means)


def place_in(bound: BoundMachine, state: str, owed: Owed, means: DecisionContext) -> tuple[Slots, Line | None, Kind]:
    """Return the same for a row that is not decoded. An undo calls the dependency of its step."""
    places = means.places
    if owed.run is not None:
        node = bound.stored.get(state)
        step = None if node is None else node.step
        line = None if step is None else means.line(step.dependency)
        # Only a failed attempt makes the next one a retry. A crash says nothing about the dependency. Counting it in
        # the retry budget would delay all attempts that were under way for minutes.
        return places.steps, line, "retry" if owed.run.is_retry else "first"
    node = bound.table.steps.get(owed.undos[0].step) if owed.undos else None
    step = None if node is None else node.step
    return places.undos, None if step is None else means.line(step.dependency), "undo"


def effect_line(bound: BoundMachine, effect: OwedEffect, means: DecisionContext) -> Line | None:
    """Return the wait queue of the dependency that an effect calls."""
    declared = bound.effects.get(effect.name)
    return None if declared is None else means.line(declared.dependency)


def effect_kind(effect: OwedEffect, means: DecisionContext) -> Kind:
    """Return whether the next attempt of an effect is a retry."""
    return "retry" if effect.attempts and effect.id not in means.recovered else "first"


def later_us(means: DecisionContext, wait_s: float) -> int:
    """Return the time `wait_s` from now, by the store's clock."""
    return means.now_us + int(wait_s * 1_000_000)


def count(live: LoadedWorkflow, which: int, means: DecisionContext) -> None:
    """Count a duplicate, ignored or refused event (0, 1, 2). Written with the workflow's next change (B5).

    Does nothing on a shared store, where other processes count too.
    """
    if means.owner:
        return
    counts = list(live.row.counts)
    counts[which] += 1
    live.row = replace(live.row, counts=(counts[0], counts[1], counts[2]))


def uncount(live: LoadedWorkflow | None, counts: tuple[int, int, int] | None, means: DecisionContext) -> None:
    """Restore the counts before a group that is decided again, or its events would count twice."""
    if live is not None and counts is not None and not means.owner:
        live.row = replace(live.row, counts=counts)


# --- Staged workflow -------------------------------------------------------------------------------------------------


class Staged(msgspec.Struct, gc=False):
    """One workflow within a group: its current state and the changes that led there."""

    live: LoadedWorkflow
    expected: int
    """The revision in the store; 0 for a workflow that this group starts."""
    before: Owed
    """The work owed before this group."""
    counts: tuple[int, int, int] | None = None
    """The counts before this group."""
    history: tuple[HistoryRecord, ...] = ()
    effects: tuple[OwedEffect, ...] = ()
    effects_again: tuple[tuple[OwedEffect, int], ...] = ()
    """Effects tried before and still owed; each with its known count of attempts."""
    effects_dead: tuple[OwedEffect, ...] = ()
    effects_done: tuple[str, ...] = ()
    begins: tuple[tuple[OwedEffect, Pass], ...] = ()
    """Effects whose attempt begins when this is durable, each with its pass."""
    letters: tuple[Letter, ...] = ()
    letters_gone: tuple[str, ...] = ()
    touched: bool = False
    ended: bool = False
    """Whether it is in a final state, and owed nothing more."""
    kept: bool = False
    """Whether it unwinds during an attempt of another worker, which has to end before it is undone."""
    attempt_pass: Pass | None = None
    """The pass of the step or undo that this group begins."""

    waits: bool = False
    """Whether its step waits in this process for its dependency, under a lease (shared stores)."""

    @property
    def reserved(self) -> bool:
        """Whether this group begins the step or an undo."""
        return self.attempt_pass is not None

    @property
    def snapshot(self) -> AnySnapshot:
        """The snapshot for the next event. An attempt that this group would begin has not happened yet."""
        snapshot = self.live.snapshot
        if self.attempt_pass is not None and snapshot.attempted:
            run = self.live.owed.run
            return replace(snapshot, attempted=run is not None and run.unknown)
        return snapshot

    def change(self) -> Change:
        """Return the change for the store."""
        return Change(
            self.live.row,
            self.expected,
            self.history,
            self.effects,
            self.effects_done,
            self.letters,
            self.letters_gone,
            self.effects_again,
            self.effects_dead,
            self._hold(),
            tuple([effect.id for effect, _ in self.begins]) if self.begins else (),
            self.live.row.counts is not self.counts,
        )

    def _hold(self) -> int:
        """Return the change of the workflow's lease: see `Change.hold`."""
        if self.attempt_pass is not None or self.waits:
            return HOLD
        if self.kept:
            return KEEP
        current = self.live.owed.current
        return STAYS if current is not None and current.started else FREE

    def move(
        self,
        decision: Decision[Enum, object],
        means: DecisionContext,
        *,
        key: str | None = None,
        key_digest: bytes = b"",
        result: bool = False,
    ) -> None:
        """Apply the decision to the staged workflow. Raises before anything is changed, or not at all."""
        live = self.live
        bound, row, before, snapshot = live.bound, live.row, live.snapshot, decision.snapshot
        now_us = means.now_us
        context, kept = row.context, before.context
        if snapshot.context is not kept or row.machine_version != bound.version:
            # Also an unchanged context of another version: the row says that this version has written it. Memory keeps
            # the stored form (A10): user code may go on changing the object that it returned.
            context, kept = _context(bound, decision.records[-1])
        history = self._history(decision, context, now_us, key, key_digest)
        owed = self._owed(decision, context, means, result=result)
        lease, holder = row.lease, row.holder if snapshot.visit == before.visit else ""
        if self.waits or (self.attempt_pass is not None and means.owner):
            lease, holder = lease + 1, means.owner
        elif row.holder and owed.undos and not live.owed.undos and self._under_way:
            # With another token: the lease's holder notices when it renews the lease.
            self.kept, lease, holder = True, lease + 1, row.holder
        node = bound.table.nodes[snapshot.state._name_]
        if means.tracing is not None:
            owed = means.tracing.owing(owed, live.owed.trace, row, node.name, final=node.final and not self.effects)
        attempted = owed.run is not None and owed.run.attempted
        if attempted != snapshot.attempted or kept is not snapshot.context:
            snapshot = Snapshot(snapshot.state, kept, snapshot.version, snapshot.visit, snapshot.undo_log, attempted)
        self.live = LoadedWorkflow(
            bound,
            Row(
                row.id,
                row.machine,
                bound.version,
                node.name,
                context,
                snapshot.version,
                snapshot.visit,
                node.active,
                row.created_us,
                now_us,
                now_us if snapshot.visit != before.visit else row.entered_us,
                row.digest,
                b"" if owed is NOTHING else encode_owed(owed),
                owed.wake_us(now_us),
                row.counts,
                self.expected + 1,
                lease,
                holder,
                _timer_us(owed.timers) if owed.timers else None,
            ),
            snapshot,
            owed,
        )
        self.history += history
        self.touched = True
        self.ended = node.final and not self.effects

    @property
    def _under_way(self) -> bool:
        current = self.before.current
        return current is not None and current.started

    def owe(self, owed: Owed, now_us: int, holder: str = "") -> None:
        """Change only what is owed: claims and retries are not moves, so the version stays."""
        live = self.live
        row = replace(live.row, owed=encode_owed(owed), wake_us=owed.wake_us(now_us), revision=self.expected + 1)
        if holder:
            row = replace(row, lease=row.lease + 1, holder=holder)
        if owed.timers is not live.owed.timers:
            row = replace(row, timer_us=_timer_us(owed.timers))
        attempted = owed.run is not None and owed.run.attempted
        snapshot = live.snapshot
        if attempted != snapshot.attempted:
            snapshot = replace(snapshot, attempted=attempted)
        self.live = LoadedWorkflow(live.bound, row, snapshot, owed)
        self.touched = True

    def touch(self) -> None:
        """Mark the row as changed, because something beside it changes."""
        if not self.touched:
            live = self.live
            row = replace(live.row, revision=self.expected + 1)
            self.live = LoadedWorkflow(live.bound, row, live.snapshot, live.owed)
            self.touched = True
            self.ended = live.bound.table.nodes[live.snapshot.state._name_].final

    def begin(self, means: DecisionContext, *, called: bool = True) -> bool:
        """Count the next attempt of what is owed, if there is a slot. It begins when this is durable (G5).

        With `called=False` nothing is kept for the workflow; it queues from the beginning.
        """
        live = self.live
        owed = live.owed
        if owed.run is not None and live.bound.table.nodes[live.snapshot.state._name_].step is None:
            return False  # The machine has changed: see `reports`.
        current = owed.current
        if current is None:
            return False
        slots, line, kind = place_of(live, means)
        self.attempt_pass = means.places.reserve(
            live.row.id if called else None, slots, line, kind, live.row.created_us
        )
        if self.attempt_pass is None:
            return False
        begun = owed.with_current(
            attempts=current.attempts + 1, token=current.token + 1, started=True, retry_us=None, parked=False
        )
        self.owe(begun, means.now_us, means.owner)
        return True

    def park(self, until_us: int, now_us: int) -> None:
        """Leave the next attempt in the store until then: its dependency cannot be called. No attempt is counted."""
        self.owe(self.live.owed.with_current(retry_us=until_us, parked=True), now_us)

    def give_up(self) -> None:
        """Give back the passes of a group that was not committed."""
        if self.attempt_pass is not None:
            self.attempt_pass.leave("abandoned")
        for _, pass_ in self.begins:
            pass_.leave("abandoned")

    def _history(
        self, decision: Decision[Enum, object], context: bytes, now_us: int, key: str | None, key_digest: bytes
    ) -> tuple[HistoryRecord, ...]:
        bound, workflow = self.live.bound, self.live.row.id
        happened: tuple[HistoryRecord, ...] = ()
        last = decision.records[-1]
        for record in decision.records:
            happened += (
                HistoryRecord(
                    workflow,
                    record.version,
                    record.from_state._value_,
                    record.to_state._value_,
                    record.event,
                    bound.payload(record.payload),
                    context if record is last else _context(bound, record)[0],
                    now_us,
                    key,
                    key_digest,
                ),
            )
            key, key_digest = None, b""  # The key belongs to the first; later records are the machine's own.
        return happened

    def _owed(  # noqa: C901, PLR0912 -- one case per command.
        self, decision: Decision[Enum, object], context: bytes, means: DecisionContext, *, result: bool
    ) -> Owed:
        live, snapshot = self.live, decision.snapshot
        owed, log = live.owed, snapshot.undo_log
        if owed is NOTHING and not decision.commands and not log:
            return NOTHING
        bound = live.bound
        past = owed.past if log is live.snapshot.undo_log else _past(bound, log, owed)
        run, timers, undos, dead, letter = None if result else owed.run, owed.timers, owed.undos, owed.dead, owed.letter
        trace = owed.trace
        for command in decision.commands:
            kind = type(command)  # A match statement tests each class in turn, and this runs with every move.
            if kind is StopStep:
                if self.attempt_pass is not None:
                    self.attempt_pass.leave("abandoned")
                    self.attempt_pass = None
                self.waits = False
                run = None
            elif kind is RunStep:
                # With a free slot the attempt begins as soon as this is durable. It is counted now: an attempt that
                # kills the process must not be tried for ever.
                run = self._first(command, bound, means)  # type: ignore[arg-type]
            elif kind is StopTimers:
                timers = ()
            elif kind is StartTimer:
                timers = (*timers, _timer(bound, command, means.now_us))  # type: ignore[arg-type]
            elif kind is RunEffect:
                key = fresh_key(command.effect, means.ids)  # type: ignore[union-attr]
                owes = OwedEffect(key, live.row.id, snapshot.version, command.effect, 0, means.now_us, context)  # type: ignore[union-attr]
                if not self.begin_effect(owes, means):
                    self.effects += (owes,)
            else:
                undos = _undos(bound, command, past, means.ids)  # type: ignore[arg-type]
        if snapshot.visit != live.snapshot.visit:
            # Commands stop what the machine has now; timers and runs of its older definition end as well.
            run = None if run is owed.run else run
            timers = tuple(timer for timer in timers if not any(timer is old for old in owed.timers))
            if letter:
                # The workflow has left the state that gave up: no person needs to look at its letter.
                self.letters_gone += (letter,)
            dead, letter = None, ""
            node = bound.table.nodes[snapshot.state._name_]
            undos = undos if node.unwinds_to is not None else ()
            past, trace = ((), "") if node.final else (past, trace)
        if run is None and not timers and not past and not undos and dead is None and not trace:
            return NOTHING
        return Owed(run, timers, past, undos, dead, letter, trace)

    def _first(self, command: RunStep, bound: BoundMachine, means: DecisionContext) -> StepRun:
        """Return the run of a step that was just entered, begun if there is a slot."""
        places = means.places
        step = bound.table.steps[command.step].step
        assert step is not None
        line = means.line(step.dependency)
        self.attempt_pass = places.reserve(None, places.steps, line, "first", self.live.row.created_us)
        key = fresh_key(command.step, means.ids)
        if self.attempt_pass is not None:
            return StepRun(key, 1, 1, started=True)
        if line is None or not means.owner:
            return StepRun(key)
        parks_s = line.parks_s("first", self.live.row.created_us)
        self.waits = parks_s is None and line.is_open and places.steps.most > 0
        return StepRun(key) if parks_s is None else StepRun(key, retry_us=later_us(means, parks_s), parked=True)

    def begin_effect(self, effect: OwedEffect, means: DecisionContext, *, again: bool = False) -> bool:
        """Count the effect's next attempt, if there is a slot."""
        line = effect_line(self.live.bound, effect, means)
        kind = effect_kind(effect, means)
        # A new effect has another id when this group is decided again: nothing may be kept for the first one.
        pass_ = means.places.reserve(
            effect.id if again else None, means.places.effects, line, kind, self.live.row.created_us
        )
        if pass_ is None:
            return False
        means.recovered.discard(effect.id)
        known = effect.attempts
        effect = replace(effect, attempts=known + 1)
        self.begins += ((effect, pass_),)
        if again:
            self.effects_again += ((effect, known),)
        else:
            self.effects += (effect,)
        return True


def _context(bound: BoundMachine, record: Record[Enum, object]) -> tuple[bytes, object]:
    """Return the context of a record as it is stored, and as it is read back.

    Raises UserCodeError: an action has made it. Raises InvalidPayload if the event already cannot be stored, because
    then the action has only passed on what the caller sent.
    """
    try:
        return bound.codec.stored_context(record.context)
    except InvalidPayload as error:
        bound.payload(record.payload)
        raise context_not_storable(bound.table, record.event, error) from error


def _timer_us(timers: Sequence[TimerRun]) -> int | None:
    return min([timer.at_us for timer in timers], default=None)


def _timer(bound: BoundMachine, command: StartTimer, now_us: int) -> TimerRun:
    after_us = int(command.after_s * 1_000_000)
    payload = bound.codec.encode_event(command.send)
    return TimerRun(event_text(command.send), payload, command.policy, after_us, now_us + after_us, now_us)


def _past(bound: BoundMachine, log: Sequence[Run], owed: Owed) -> tuple[PastRun, ...]:
    """Return the undo log with the key of each run: the running one's key, or the one it was logged with."""
    known = {(each.step, each.visit): each for each in owed.past}
    runs: list[PastRun] = []
    for run in log:
        before = known.get((run.step, run.visit))
        if before is not None and (before.event is not None or run.done is None):
            runs.append(before)  # Finished runs stay unchanged.
            continue
        key = before.key if before is not None else owed.run.key if owed.run is not None else ""
        event = None if run.done is None else event_text(run.done)
        runs.append(PastRun(run.step, run.visit, key, event, bound.payload(run.done)))
    return tuple(runs)


def _undos(bound: BoundMachine, command: RunUndos, past: Sequence[PastRun], ids: Ids) -> tuple[UndoRun, ...]:
    keys = {(each.step, each.visit): each.key for each in past}
    return tuple(
        UndoRun(
            undo.step,
            undo.undo,
            undo.visit,
            fresh_key(f"undo-{undo.step}", ids),
            keys.get((undo.step, undo.visit), ""),
            None if undo.done is None else event_text(undo.done),
            bound.payload(undo.done),
        )
        for undo in command.undos
    )


# --- Envelopes and groups --------------------------------------------------------------------------------------------


class Envelope(Protocol):
    """A command or a report that is decided on one workflow."""

    workflow: str
    key: str | None
    future: "asyncio.Future[object] | None"
    conflicts: int
    look: bool
    """Whether its key, or its id, must be looked up before it is decided."""

    @property
    def admitted(self) -> bool:
        """Whether a caller sent it, through the gate."""
        ...

    @property
    def since_s(self) -> float:
        """When it arrived, by the event loop's clock; infinite for an envelope without a sender."""
        ...

    @property
    def begins(self) -> bool:
        """Whether it starts a workflow. Unless `look` is set, it assumes that the id is free; the store checks that."""
        ...

    def decide(self, group: "Group") -> object:
        """Decide on the staged state; the sender gets what it returns or raises when the group is durable."""
        ...


class LookFirst(Exception):
    """Raised by an envelope that would be refused before its key was looked up."""


class Group:
    """The workflows, delivery keys and staged changes that the envelopes of one group decide on."""

    __slots__ = ("broken", "deferred", "delivered", "fresh", "live", "means", "now_us", "staged")

    def __init__(
        self, means: DecisionContext, live: dict[str, LoadedWorkflow], delivered: dict[tuple[str, str], Delivered]
    ) -> None:
        self.means = means
        self.now_us = means.now_us
        self.live = live
        self.broken: dict[str, Exception] = {}
        """Errors of stored workflows that cannot be read. Each answers the events of its own workflow only."""
        self.delivered = delivered
        self.deferred: set[str] = set()
        """Workflows with an event that must look first. Later events of these wait for it, to keep their order."""
        self.fresh: frozenset[str] = frozenset()
        """Workflows that were loaded for this group, where memory may be older than the store."""
        self.staged: dict[str, Staged] = {}

    def stage(self, workflow: str) -> Staged | None:
        """Return the workflow as staged in this group, or None when there is no such workflow."""
        staged = self.staged.get(workflow)
        if staged is None:
            live = self.live.get(workflow)
            if live is None:
                if workflow in self.broken:
                    raise self.broken[workflow]
                return None
            staged = self.staged[workflow] = Staged(live, live.row.revision, live.owed, live.row.counts)
        return staged
