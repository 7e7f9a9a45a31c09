"""What observers are told (A9).

Nothing is built while nobody listens: a signal costs more than the move it tells of.
"""

from interlock.errors import GuardRejected, InterlockError, Refusal
from interlock.runtime.reports import Failure
from interlock.runtime.staging import Staged
from interlock.seams import Clock
from interlock.signals import ResultLate, StepAttempted, Subscribers, TransitionApplied, TransitionRejected
from interlock.store.values import OwedEffect, Row


class Teller:
    """Turns what happens into signals."""

    def __init__(self, subscribers: Subscribers, clock: Clock) -> None:
        self._subscribers = subscribers
        self._clock = clock

    def begun_s(self) -> float:
        """The time an attempt begins, if anybody will ask how long it took."""
        return self._clock.monotonic_s() if self._subscribers else 0.0

    def applied(self, staged: Staged, duration_s: float) -> None:
        """A workflow has moved, durably, and so long after its group began."""
        row = staged.live.row
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

    def rejected(self, workflow: str, error: InterlockError) -> None:
        """An event was refused."""
        if self._subscribers and isinstance(error, Refusal):
            guard = error.guard if isinstance(error, GuardRejected) else None
            self._subscribers.emit(
                TransitionRejected(error.machine, workflow, error.state, error.event, error.code, guard)
            )

    def late(self, workflow: str, key: str) -> None:
        """A result came after its workflow had moved on."""
        if self._subscribers:
            self._subscribers.emit(ResultLate(workflow, key))

    def attempted(
        self,
        row: Row,
        name: str,
        kind: str,
        attempt: int,
        begun_s: float,
        failure: Failure | None,
        cut: str | None = None,
    ) -> None:
        """An attempt of a step or an undo has ended."""
        if self._subscribers:
            outcome = "cancelled" if cut == "moved_on" else _outcome(failure)
            self._emit(row.machine, row.id, row.state, name, kind, attempt, outcome, begun_s, failure)

    def effect(self, machine: str, effect: OwedEffect, begun_s: float, failure: Failure | None) -> None:
        """An attempt of an effect has ended."""
        if self._subscribers:
            outcome = _outcome(failure)
            self._emit(machine, effect.workflow, "", effect.name, "effect", effect.attempts, outcome, begun_s, failure)

    def _emit(
        self,
        machine: str,
        workflow: str,
        state: str,
        name: str,
        kind: str,
        attempt: int,
        outcome: str,
        begun_s: float,
        failure: Failure | None,
    ) -> None:
        self._subscribers.emit(
            StepAttempted(
                machine=machine,
                workflow=workflow,
                state=state,
                step=name,
                kind=kind,  # type: ignore[arg-type]
                attempt=attempt,
                outcome=outcome,  # type: ignore[arg-type]
                duration_s=self._clock.monotonic_s() - begun_s if begun_s else 0.0,
                error=None if failure is None else failure.error,
            )
        )


def _outcome(failure: Failure | None) -> str:
    if failure is None:
        return "done"
    if failure.error == "timeout":
        return "timeout"
    return "retryable" if failure.retryable else "non_retryable"
