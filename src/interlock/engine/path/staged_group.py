"""Groups of envelopes, and each workflow as it is staged in a group: its next row, its history, what it is owed then.

Several events of one workflow may be decided in one group, one after the other on the staged state. The store then gets
one change with the last row and all of the history. Nothing here waits or is rolled back: a group that is not committed
is dropped.

Sections: context of decisions; staged workflow; envelopes and groups.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Final, Protocol, cast

import msgspec

from interlock.clock import Ids
from interlock.core.decide import bounded_repr, context_not_storable, user_code_error
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
    ATTEMPT_CHARACTERS_MAX,
    NOTHING,
    AnySnapshot,
    AttemptOutcome,
    BoundMachine,
    LoadedWorkflow,
    Owed,
    ParentRef,
    PastAttempt,
    PastRun,
    StepRun,
    TaskClaim,
    TimerRun,
    UndoRun,
    encode_attempts,
    encode_owed,
    ended_attempts,
    event_text,
    fresh_key,
    running_attempts,
    with_attempt,
)
from interlock.engine.dependencies.fair_queue import NO_TURN, Turn
from interlock.engine.dependencies.outlet import Kind
from interlock.engine.dependencies.wait_queue import Line, Pass, Places, Slots
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.pauses import Pauses
from interlock.engine.tracer_protocol import Guarded
from interlock.engine.views import moment, time_us
from interlock.errors import InvalidPayload
from interlock.store.records import (
    ENDED,
    FREE,
    HOLD,
    KEEP,
    STAYS,
    Change,
    ChildRecord,
    Delivered,
    HistoryRecord,
    Letter,
    OwedEffect,
    Row,
)

# --- Context of decisions --------------------------------------------------------------------------------------------

replace = msgspec.structs.replace


ATTEMPTS_MAX: Final = EngineSettings().attempts_max


class DecisionContext:
    """The ids, time and slots of the engine, for one group.

    Inside a transaction of the caller there are no slots: an engine begins what is owed then.
    """

    __slots__ = (
        "attempts_max", "ids", "now_us", "owner", "pauses", "places", "recovered", "shared", "tracing", "worker",
    )  # fmt: skip

    def __init__(
        self,
        ids: Ids,
        places: Places,
        owner: str = "",
        tracing: Guarded | None = None,
        pauses: Pauses | None = None,
        *,
        shared: bool = False,
        worker: str = "",
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        self.ids = ids
        self.worker = worker
        """The name of this process, for the attempts that begin here (B17)."""
        self.attempts_max = attempts_max
        self.shared = shared or bool(owner)
        """Whether other processes work on the store; a transaction of the caller has no owner there."""
        self.pauses = pauses or Pauses()
        self.tracing = tracing
        self.owner = owner
        """The lease owner of attempts that begin here, on a shared store; empty on a store with one owner."""
        self.places = places
        self.now_us = 0
        self.recovered: set[str] = set()
        """Effects with attempts from before the engine opened. A crash may have ended them: the next is not a retry."""

    def is_paused(self, row: Row) -> bool:
        """Whether nothing may begin for this workflow, and no timer fire (E7)."""
        return self.pauses.any and self.pauses.holds(row.machine, row.state, row.id)

    def line(self, dependency: str | None) -> Line | None:
        """Return the wait queue of a dependency; None without one."""
        return None if dependency is None else self.places.lines.get(dependency)


def place_of(live: LoadedWorkflow, means: DecisionContext) -> tuple[Slots, Line | None, Kind]:
    """Return the slots, wait queue and kind of the next attempt of a workflow's step or undo."""
    return place_in(live.bound, live.row.state, live.owed, means)


def place_in(bound: BoundMachine, state: str, owed: Owed, means: DecisionContext) -> tuple[Slots, Line | None, Kind]:
    """Return the slots, wait queue and kind for a row that is not decoded. An undo calls the dependency of its step."""
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


PER_CHARACTERS_MAX: Final = 200
PRIORITY_MAX: Final = 2**31

_TURN_FIX = f"Return a str of at most {PER_CHARACTERS_MAX} characters for per=, an int for priority=."


def cancel_effect(step: str) -> str:
    """Return the name of the effect that cancels the children of a state that was left. Its version is the visit."""
    return f"children:cancel:{step}"


LATE_CHILDREN_S = 120.0
"""When living children are looked for again on a shared store, if the state was left while they were being started."""

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
    entered_us: int = 0
    """When the state before this group was entered."""
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
    children: tuple[ChildRecord, ...] = ()
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

    def change(self, *, shared: bool = True) -> Change:
        """Return the change for the store. Only a shared one has leases."""
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
            self._hold() if shared else STAYS,
            tuple([effect.id for effect, _ in self.begins]) if self.begins else (),
            self.live.row.counts is not self.counts,
            self.children,
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
        by: str | None = None,
        result: bool = False,
        tried: tuple[PastAttempt, ...] | None = None,
    ) -> None:
        """Apply the decision, after the attempts `tried`. Raises before anything is changed, or not at all."""
        live, now_us = self.live, means.now_us
        bound, row, before, snapshot = live.bound, live.row, live.snapshot, decision.snapshot
        context, kept = row.context, before.context
        if snapshot.context is not kept or row.machine_version != bound.version:
            # Also an unchanged context of another version: the row says that this version has written it. Memory keeps
            # the stored form (A10): user code may go on changing the object that it returned.
            context, kept = storable_context(bound, decision.records[-1])
        run, attempts = live.owed.run, b""
        if result and run is not None and not live.owed.tried:
            # Nearly every attempt: it is the first of its run, and ends with this row.
            attempts = encode_attempts(((run.key, run.begun_us or row.entered_us, run.worker, run.attempts),))
        elif tried or live.owed.tried or (run is not None and run.started and snapshot.visit != before.visit):
            attempts = self._attempts_ended(tried, means, left=snapshot.visit != before.visit, result=result)
        history = self._history(decision, context, now_us, key, key_digest, by, attempts)
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
        if owed.parent is not None and not owed.parent.ended and not node.active:
            owed = self._end_child(owed, owed.parent, node.name)
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
                None if owed is NOTHING else owed.wake_us(now_us),
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

    def _end_child(self, owed: Owed, parent: ParentRef, state: str) -> Owed:
        """Report the end of a child: the record is the message to its parent, owed by this commit."""
        self.children += (ChildRecord(self.live.row.id, parent.id, parent.visit, parent.position, state, ENDED),)
        return replace(owed, parent=replace(parent, ended=True))

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
        if current is None or means.is_paused(live.row):
            return False
        slots, line, kind = place_of(live, means)
        self.attempt_pass = means.places.reserve(
            live.row.id if called else None, slots, line, kind, live.row.created_us, owed.turn
        )
        if self.attempt_pass is None:
            return False
        begun = owed.with_current(
            attempts=current.attempts + 1,
            token=current.token + 1,
            started=True,
            retry_us=None,
            parked=False,
            begun_us=means.now_us,
            worker=means.worker,
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
        self,
        decision: Decision[Enum, object],
        context: bytes,
        now_us: int,
        key: str | None,
        key_digest: bytes,
        by: str | None,
        attempts: bytes,
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
                    context if record is last else storable_context(bound, record)[0],
                    now_us,
                    key,
                    key_digest,
                    by,
                    attempts,
                ),
            )
            # They belong to the first; later records are the machine's own.
            key, key_digest, by, attempts = None, b"", None, b""
        return happened

    def _owed(  # noqa: C901, PLR0912 -- one case per command.
        self, decision: Decision[Enum, object], context: bytes, means: DecisionContext, *, result: bool
    ) -> Owed:
        live, snapshot = self.live, decision.snapshot
        owed, log = live.owed, snapshot.undo_log
        if owed is NOTHING and not decision.commands and not log:
            return NOTHING
        bound = live.bound
        enters = bound.table.has_turns and snapshot.visit != live.snapshot.visit
        turn = _turn(bound, decision) if enters else NO_TURN
        past = owed.past if log is live.snapshot.undo_log else _past(bound, log, owed)
        run, timers, undos, dead, letter = None if result else owed.run, owed.timers, owed.undos, owed.dead, owed.letter
        trace, parent, tried = owed.trace, owed.parent, running_attempts(owed.tried) if owed.tried else ()
        claim = owed.claim
        for command in decision.commands:
            kind = type(command)  # A match statement tests each class in turn, and this runs with every move.
            if kind is StopStep:
                if self.attempt_pass is not None:
                    self.attempt_pass.leave("abandoned")
                    self.attempt_pass = None
                self.waits = False
                if run is not None and bound.table.has_children:
                    self._leave_children(run, snapshot, context, means)
                run = None
            elif kind is RunStep:
                # With a free slot the attempt begins as soon as this is durable. It is counted now: an attempt that
                # kills the process must not be tried for ever.
                run = self._first(command, bound, means, turn)  # type: ignore[arg-type]
            elif kind is StopTimers:
                timers = ()
            elif kind is StartTimer:
                timers = (*timers, _timer(bound, command, means.now_us))  # type: ignore[arg-type]
            elif kind is RunEffect:
                key = fresh_key(command.effect, means.ids)  # type: ignore[union-attr]
                owes = OwedEffect(key, live.row.id, snapshot.version, command.effect, 0, means.now_us, context)  # type: ignore[union-attr]
                entered = bound.table.nodes[snapshot.state._name_].name
                if self._reserve_effect(owes, means, state=entered):
                    tried += (_begun(self.begins[-1][0], means),)
                else:
                    self.effects += (owes,)
            else:
                undos = _undos(bound, command, past, means.ids)  # type: ignore[arg-type]
        if snapshot.visit != live.snapshot.visit:
            # Commands stop what the machine has now; timers and runs of its older definition end as well.
            run = None if run is owed.run else run
            if timers:
                timers = tuple(timer for timer in timers if not any(timer is old for old in owed.timers))
            if letter:
                # The workflow has left the state that gave up: no person needs to look at its letter.
                self.letters_gone += (letter,)
            dead, letter, claim = None, "", None
            node = bound.table.nodes[snapshot.state._name_]
            undos = undos if node.unwinds_to is not None else ()
            past, trace = ((), "") if node.final else (past, trace)
        if (
            run is None
            and not timers
            and not past
            and not undos
            and dead is None
            and not trace
            and parent is None
            and not tried
            and claim is None
        ):
            return NOTHING
        rewind = owed.rewind if undos else None
        return Owed(run, timers, past, undos, dead, letter, trace, parent, tried, claim, rewind)

    def _attempts_ended(
        self, tried: tuple[PastAttempt, ...] | None, means: DecisionContext, *, left: bool, result: bool
    ) -> bytes:
        """Return the attempts that have ended, for the row of history of a move, which may end the running one."""
        run = self.live.owed.run
        known = self.live.owed.tried if tried is None else tried
        # An attempt that this group would begin has not happened.
        if tried is None and run is not None and run.started and self.attempt_pass is None:
            if result:
                known = self.tried(run, "completed", means)
            elif left:
                known = self.tried(run, "cancelled", means, MOVED_ON)
        ended = ended_attempts(known)
        return encode_attempts(ended) if ended else b""

    def tried(
        self,
        run: StepRun | UndoRun,
        outcome: AttemptOutcome,
        means: DecisionContext,
        error: str = "",
        traceback: str = "",
    ) -> tuple[PastAttempt, ...]:
        """Return the attempts of the workflow with that of this run, if it is under way: it ends now."""
        live = self.live
        if not run.started:
            return live.owed.tried
        ended = PastAttempt(
            run.key,
            run.begun_us or live.row.entered_us,
            run.worker,
            run.attempts,
            outcome,
            means.now_us,
            "step" if isinstance(run, StepRun) else "undo",
            error[:ATTEMPT_CHARACTERS_MAX],
            traceback,
        )
        return with_attempt(live.owed.tried, ended, means.attempts_max)

    def record(self, tried: tuple[PastAttempt, ...]) -> None:
        """Keep these attempts with the row. Nothing else that is owed changes."""
        self._keep(replace(self.live.owed, tried=tried))

    def claim(self, claim: TaskClaim | None) -> None:
        """Keep the claim of the visit's task with the row, or remove it. The version stays: it is not a move."""
        self._keep(replace(self.live.owed, claim=claim))

    def _keep(self, owed: Owed) -> None:
        self.touch()
        live = self.live
        if owed == NOTHING:
            owed = NOTHING
        self.live = LoadedWorkflow(live.bound, replace(live.row, owed=encode_owed(owed)), live.snapshot, owed)

    def _leave_children(self, run: StepRun, after: AnySnapshot, context: bytes, means: DecisionContext) -> None:
        """Owe the cancellation of living children whose parent leaves their state. An unwinding undoes them instead."""
        live = self.live
        step = live.bound.table.nodes[live.snapshot.state._name_].step
        if step is None or step.children is None:
            return
        if step.children.leave == "abandon" or after.visit == live.snapshot.visit:
            return
        if run.family is not None and run.family.ended >= run.family.total:
            return
        if live.bound.table.nodes[after.state._name_].unwinds_to is not None:
            return
        visit, name = live.snapshot.visit, cancel_effect(step.name)
        waits_s = [0.0]
        if run.family is None and means.shared:
            # Another process may still be starting some. It has lost its lease by then.
            waits_s.append(LATE_CHILDREN_S)
        for wait_s in waits_s:
            key = fresh_key(name, means.ids)
            wake_us = later_us(means, wait_s)
            self.effects += (OwedEffect(key, live.row.id, visit, name, 0, wake_us, context),)

    def _first(self, command: RunStep, bound: BoundMachine, means: DecisionContext, turn: Turn) -> StepRun:
        """Return the run of a step that was just entered, begun if there is a slot."""
        places = means.places
        node = bound.table.steps[command.step]
        step = node.step
        assert step is not None
        per, priority = turn
        if means.pauses.any and means.pauses.holds(bound.name, node.name, self.live.row.id):
            return StepRun(fresh_key(command.step, means.ids), per=per, priority=priority)
        line = None if step.dependency is None else means.line(step.dependency)
        self.attempt_pass = places.reserve(None, places.steps, line, "first", self.live.row.created_us, turn)
        key = fresh_key(command.step, means.ids)
        if self.attempt_pass is not None:
            return StepRun(key, 1, 1, started=True, per=per, priority=priority, worker=means.worker)
        if line is None or not means.owner:
            return StepRun(key, per=per, priority=priority)
        parks_s = line.parks_s("first", self.live.row.created_us, turn)
        self.waits = parks_s is None and line.is_open and places.steps.most > 0
        if parks_s is None:
            return StepRun(key, per=per, priority=priority)
        return StepRun(key, retry_us=later_us(means, parks_s), parked=True, per=per, priority=priority)

    def begin_effect(self, effect: OwedEffect, means: DecisionContext, *, again: bool = False) -> bool:
        """Begin the effect's next attempt, if there is a slot."""
        if not self._reserve_effect(effect, means, again=again):
            return False
        tried = self.live.owed.tried
        for before in tried:
            if before.key == effect.id and before.outcome == "running":
                # It has not ended: its process did.
                crashed = replace(before, outcome="crashed", ended_us=means.now_us, error=CRASH_TEXT)
                tried = with_attempt(tried, crashed, means.attempts_max)
        self.record((*tried, _begun(self.begins[-1][0], means)))
        return True

    def _reserve_effect(
        self, effect: OwedEffect, means: DecisionContext, *, again: bool = False, state: str = ""
    ) -> bool:
        """Count the effect's next attempt, if there is a slot. `state` is the one that the staged move enters."""
        row = self.live.row
        if means.pauses.any and means.pauses.holds(row.machine, state or row.state, row.id):
            return False
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


CRASH_TEXT = "the process ended during the attempt"
MOVED_ON = "the workflow moved on"


def _begun(effect: OwedEffect, means: DecisionContext) -> PastAttempt:
    """Return the attempt of an effect that begins now."""
    return PastAttempt(effect.id, means.now_us, means.worker, effect.attempts, "running", kind="effect")


def _turn(bound: BoundMachine, decision: Decision[Enum, object]) -> Turn:
    """Return the key and the priority of the step that a decision enters (E8). Raises UserCodeError."""
    snapshot, table = decision.snapshot, bound.table
    node = table.nodes[snapshot.state._name_]
    step = node.step
    if step is None or (step.per is None and step.priority is None):
        return NO_TURN
    found: list[object] = []
    for name, function, kind, default in (("per", step.per, str, ""), ("priority", step.priority, int, 0)):
        value: object = default
        what, event = f"{name}= of step {step.name!r}", decision.records[-1].event
        if function is not None:
            context = snapshot.context
            try:
                value = function(context if table.copy_context is None else table.copy_context(context))
            except Exception as error:
                raise user_code_error(table, node, event, what, error) from error
        long = isinstance(value, str) and len(value) > PER_CHARACTERS_MAX
        if type(value) is not kind or long or (kind is int and abs(cast("int", value)) > PRIORITY_MAX):
            problem = f"returned {bounded_repr(value)} ({type(value).__name__})."
            raise user_code_error(table, node, event, what, problem, _TURN_FIX)
        found.append(value)
    return cast("Turn", tuple(found))


def storable_context(bound: BoundMachine, record: Record[Enum, object]) -> tuple[bytes, object]:
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
    after_us = int(command.after_s * 1_000_000) if command.due is None else max(0, time_us(command.due) - now_us)
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
    """Raised by an envelope that must not be refused yet: its delivery key has to be looked up in the store first."""


class Group:
    """The workflows, delivery keys and staged changes that the envelopes of one group decide on."""

    __slots__ = ("_at", "broken", "deferred", "delivered", "fresh", "live", "means", "now_us", "staged")

    def __init__(
        self, means: DecisionContext, live: dict[str, LoadedWorkflow], delivered: dict[tuple[str, str], Delivered]
    ) -> None:
        self.means = means
        self.now_us = means.now_us
        self._at: datetime | None = None
        self.live = live
        self.broken: dict[str, Exception] = {}
        """Errors of stored workflows that cannot be read. Each answers the events of its own workflow only."""
        self.delivered = delivered
        self.deferred: set[str] = set()
        """Workflows with an event that must look first. Later events of these wait for it, to keep their order."""
        self.fresh: frozenset[str] = frozenset()
        """Workflows that were loaded for this group, where memory may be older than the store."""
        self.staged: dict[str, Staged] = {}

    def at(self, bound: BoundMachine) -> datetime | None:
        """Return the time of the moves of this group, where the machine takes it (A11): `created_at` of their rows."""
        if not bound.table.takes_time:
            return None
        if self._at is None:
            self._at = moment(self.now_us)
        return self._at

    def stage(self, workflow: str) -> Staged | None:
        """Return the workflow as staged in this group, or None when there is no such workflow."""
        staged = self.staged.get(workflow)
        if staged is None:
            live = self.live.get(workflow)
            if live is None:
                if workflow in self.broken:
                    raise self.broken[workflow]
                return None
            staged = self.staged[workflow] = Staged(
                live, live.row.revision, live.owed, live.row.counts, live.row.entered_us
            )
        return staged
