"""Signals for observers (A9).

Nothing is built without an observer: a record per move is a good part of what the move itself costs. Observers that
only count get sums instead, once per group, for all moves of a group become durable together.
"""

from collections.abc import Callable
from typing import Literal

from interlock.clock import Clock
from interlock.engine.path.engine_commands import Failure
from interlock.engine.path.staged_group import DecisionContext, Staged
from interlock.engine.tracer_protocol import Current
from interlock.errors import GuardRejected, InterlockError, Refusal
from interlock.signals import ResultLate, StepAttempted, Subscribers, TransitionApplied, TransitionRejected


class SignalEmitter:
    """Emits the signals of one engine."""

    def __init__(self, subscribers: Subscribers, clock: Clock, failed: Callable[[str, str], None]) -> None:
        self._subscribers = subscribers
        self._failed = failed
        """Counts a failed attempt, by machine and state."""
        self._clock = clock
        self._moves: dict[tuple[str, str, str], int] = {}
        """Moves of the current group, by machine, from and to."""

    def begun_s(self) -> float:
        """Return the time an attempt begins; 0.0 without an observer of durations."""
        subscribers = self._subscribers
        return self._clock.monotonic_s() if subscribers.attempts or subscribers.counting else 0.0

    def applied(self, staged: Staged, duration_s: float) -> None:
        """Emit a workflow's durable moves, `duration_s` after its group began."""
        row = staged.live.row
        if self._subscribers.counting:
            moves = self._moves
            for happened in staged.history:
                move = (row.machine, happened.from_state, happened.to_state)
                moves[move] = moves.get(move, 0) + 1
        if not self._subscribers.moves:
            return
        for happened in staged.history:
            self._subscribers.emit(
                TransitionApplied(
                    row.machine,
                    row.id,
                    happened.from_state,
                    happened.to_state,
                    happened.event,
                    happened.version,
                    duration_s,
                )
            )

    def grouped(self, duration_s: float) -> None:
        """End a group: pass its sums to the counting observers."""
        if self._moves:
            moves, self._moves = self._moves, {}
            for observer in self._subscribers.counting:
                try:
                    observer.grouped(moves, duration_s)
                except Exception as error:  # noqa: BLE001 -- whatever an observer raises, the workflow goes on (A9).
                    self._subscribers.failed(error)

    def rejected(self, workflow: str, error: InterlockError) -> None:
        """Emit the refusal of an event."""
        if self._subscribers and isinstance(error, Refusal):
            guard = error.guard if isinstance(error, GuardRejected) else None
            self._subscribers.emit(
                TransitionRejected(error.machine, workflow, error.state, error.event, error.code, guard)
            )

    def late(self, workflow: str, key: str) -> None:
        """Emit a result that came after its workflow had moved on."""
        if self._subscribers:
            self._subscribers.emit(ResultLate(workflow, key))

    def attempted(
        self,
        current: Current,
        kind: Literal["step", "undo", "effect"],
        attempt: int,
        begun_s: float,
        failure: Failure | None,
        cut: str | None = None,
    ) -> None:
        """Emit the end of an attempt of a step, an undo or an effect."""
        if failure is not None and cut != "moved_on":
            self._failed(current.machine, current.state)
        subscribers = self._subscribers
        if not (subscribers.attempts or subscribers.counting):
            return
        outcome = "cancelled" if cut == "moved_on" else "done" if failure is None else failure.outcome
        duration_s = self._clock.monotonic_s() - begun_s if begun_s else 0.0
        for observer in subscribers.counting:
            try:
                observer.attempted(current.machine, current.step, kind, outcome, duration_s)
            except Exception as error:  # noqa: BLE001 -- whatever an observer raises, the workflow goes on (A9).
                subscribers.failed(error)
        if not subscribers.attempts:
            return
        subscribers.emit(
            StepAttempted(
                machine=current.machine,
                workflow=current.workflow,
                state=current.state,
                step=current.step,
                kind=kind,
                attempt=attempt,
                outcome=outcome,  # type: ignore[arg-type]
                duration_s=duration_s,
                error=None if failure is None else failure.error,
                message="" if failure is None else failure.message,
            )
        )


def goes_on(staged: Staged, means: DecisionContext) -> bool:
    """Whether something of the workflow runs in this process, or is about to."""
    current = staged.live.owed.current
    if current is None or current.parked:
        return False
    # On a shared store any worker may take what waits for its time; a pass or lease here makes it ours.
    return not means.owner or staged.attempt_pass is not None or staged.live.row.holder == means.owner
