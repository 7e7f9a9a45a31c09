"""From a decision to what is written: the next row, its history, and what the workflow is owed from then on.

Several events of one workflow may be decided in one group, one after the other on the staged state; the store then sees
one change with the last row and all of the history. Nothing here waits, and nothing here is undone: a group that is not
committed is simply forgotten.
"""

from collections.abc import Sequence

import msgspec

from interlock.core.values import (
    Decision,
    Run,
    RunEffect,
    RunStep,
    RunUndos,
    StartTimer,
    StopStep,
    StopTimers,
)
from interlock.runtime.bound import AnySnapshot, Bound, Live, event_text, state_text
from interlock.runtime.owed import NOTHING, Owed, PastRun, StepRun, TimerRun, UndoRun, encode_owed, fresh_key
from interlock.seams import Ids
from interlock.store.values import Change, Happened, Letter, OwedEffect, Row

replace = msgspec.structs.replace


class Slots:
    """How many attempts may be under way at once."""

    def __init__(self, most: int) -> None:
        self.free = most

    def reserve(self) -> bool:
        """Take one, if there is one."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    def release(self) -> None:
        """Give one back."""
        self.free += 1


class Staged:
    """One workflow within a group: where it stands, and everything that led there."""

    __slots__ = (
        "effects",
        "effects_done",
        "expected",
        "history",
        "letters",
        "letters_gone",
        "live",
        "reserved",
        "touched",
    )

    def __init__(self, live: Live, expected: int) -> None:
        self.live = live
        self.expected = expected
        """The revision in the store; 0 for a workflow that this group starts."""
        self.history: list[Happened] = []
        self.effects: list[OwedEffect] = []
        self.effects_done: list[str] = []
        self.letters: list[Letter] = []
        self.letters_gone: list[str] = []
        self.touched = False
        self.reserved = False
        """A slot is kept for the step that this group owes."""

    def change(self) -> Change:
        """What the store is asked to do."""
        return Change(
            self.live.row,
            self.expected,
            tuple(self.history),
            tuple(self.effects),
            tuple(self.effects_done),
            tuple(self.letters),
            tuple(self.letters_gone),
        )

    def move(
        self,
        decision: Decision[object, object],  # type: ignore[type-var]  # Of whichever machine it is.
        ids: Ids,
        slots: Slots,
        now_us: int,
        *,
        key: str | None = None,
        key_digest: bytes = b"",
        result: bool = False,
    ) -> None:
        """Take the decision: the workflow stands where it says."""
        live, bound = self.live, self.live.bound
        before, snapshot = live.snapshot, decision.snapshot
        row = live.row
        context = row.context if snapshot.context is before.context else bound.codec.encode_context(snapshot.context)
        owed = self._owed(decision, ids, slots, now_us, result=result)
        node = bound.table.nodes[snapshot.state._name_]  # type: ignore[attr-defined]
        moved = snapshot.visit != before.visit
        self.live = Live(
            bound,
            Row(
                row.id,
                row.machine,
                bound.table.version,
                node.name,
                context,
                snapshot.version,
                snapshot.visit,
                node.active,
                row.created_us,
                now_us,
                now_us if moved else row.entered_us,
                row.digest,
                encode_owed(owed),
                owed.wake_us(now_us),
                row.counts,
                self.expected + 1,
            ),
            _attempted(snapshot, owed),
            owed,
        )
        self.touched = True
        last = len(decision.records) - 1
        for at, record in enumerate(decision.records):
            self.history.append(
                Happened(
                    row.id,
                    record.version,
                    state_text(record.from_state),  # type: ignore[arg-type]
                    state_text(record.to_state),  # type: ignore[arg-type]
                    record.event,
                    bound.payload(record.payload),
                    context if at == last else bound.codec.encode_context(record.context),
                    now_us,
                    key if at == 0 else None,
                    key_digest if at == 0 else b"",
                )
            )

    def owe(self, owed: Owed, now_us: int) -> None:
        """Change only what is owed: claims and retries are not moves, so the version stays."""
        live = self.live
        row = replace(live.row, owed=encode_owed(owed), wake_us=owed.wake_us(now_us), revision=self.expected + 1)
        self.live = Live(live.bound, row, _attempted(live.snapshot, owed), owed)
        self.touched = True

    def _owed(
        self,
        decision: Decision[object, object],  # type: ignore[type-var]
        ids: Ids,
        slots: Slots,
        now_us: int,
        *,
        result: bool,
    ) -> Owed:
        live = self.live
        owed, log = live.owed, decision.snapshot.undo_log
        if not decision.commands and not log and (owed is NOTHING or owed == NOTHING):
            return NOTHING
        past = owed.past if log is live.snapshot.undo_log else _past(live.bound, log, owed)
        run = None if result else owed.run
        timers, undos = owed.timers, owed.undos
        for command in decision.commands:
            match command:
                case RunStep(step):
                    # With a free slot the attempt begins as soon as this is durable, and is counted now: one that
                    # takes the process with it must not be tried for ever.
                    self.reserved = slots.reserve()
                    run = StepRun(fresh_key(step, ids), attempts=int(self.reserved), started=self.reserved)
                case StopStep():
                    if self.reserved:
                        slots.release()
                        self.reserved = False
                    run = None
                case StopTimers():
                    timers = ()
                case StartTimer():
                    timers = (*timers, _timer(live.bound, command, now_us))
                case RunEffect(effect):
                    self.effects.append(
                        OwedEffect(fresh_key(effect, ids), live.row.id, decision.snapshot.version, effect, 0, now_us)
                    )
                case RunUndos():
                    undos = _undos(live.bound, command, past, ids)
        node = live.bound.table.nodes[decision.snapshot.state._name_]  # type: ignore[attr-defined]
        if node.unwinds_to is None:
            undos = ()
        if node.final:
            past = ()
        return Owed(run, timers, past, undos)


def _attempted(snapshot: AnySnapshot, owed: Owed) -> AnySnapshot:
    """The snapshot, knowing whether an attempt of the visit's step may have begun."""
    attempted = owed.run is not None and owed.run.attempts > 0
    return snapshot if snapshot.attempted == attempted else replace(snapshot, attempted=attempted)


def _timer(bound: Bound, command: StartTimer, now_us: int) -> TimerRun:
    after_us = int(command.after_s * 1_000_000)
    payload = bound.codec.encode_event(command.send)
    return TimerRun(event_text(command.send), payload, command.policy, after_us, now_us + after_us)


def _past(bound: Bound, log: Sequence[Run], owed: Owed) -> tuple[PastRun, ...]:
    """The undo log with the key of each run: the running one's key, or the one it was logged with."""
    known = {(each.step, each.visit): each for each in owed.past}
    runs: list[PastRun] = []
    for run in log:
        before = known.get((run.step, run.visit))
        key = before.key if before is not None else owed.run.key if owed.run is not None else ""
        event = None if run.done is None else event_text(run.done)
        runs.append(PastRun(run.step, run.visit, key, event, bound.payload(run.done)))
    return tuple(runs)


def _undos(bound: Bound, command: RunUndos, past: Sequence[PastRun], ids: Ids) -> tuple[UndoRun, ...]:
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
