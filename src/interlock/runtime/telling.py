"""What observers are told (A9).

Nothing is built while nobody listens: a record per move is a good part of what the move itself costs. Observers that
only count are given sums instead, once per group, for all moves of a group become durable together.
"""

from interlock.errors import GuardRejected, InterlockError, Refusal
from interlock.runtime.means import Means
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
        self._moves: dict[tuple[str, str, str], int] = {}
        """What the group that is being told has moved, by machine, from and to."""

    def begun_s(self) -> float:
        """The time an attempt begins, if anybody will ask how long it took."""
        subscribers = self._subscribers
        return self._clock.monotonic_s() if subscribers.attempts or subscribers.counting else 0.0

    def applied(self, staged: Staged, duration_s: float) -> None:
        """A workflow has moved, durably, and so long after its group began."""
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
        """All of a group is told."""
        if self._moves:
            moves, self._moves = self._moves, {}
            for observer in self._subscribers.counting:
                try:
                    observer.grouped(moves, duration_s)
                except Exception as error:  # noqa: BLE001 -- whatever an observer raises, the workflow goes on (A9).
                    self._subscribers.failed(error)

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
            self._tell(row.machine, row.id, row.state, name, kind, attempt, outcome, begun_s, failure)

    def effect(self, machine: str, effect: OwedEffect, begun_s: float, failure: Failure | None) -> None:
        """An attempt of an effect has ended."""
        if self._subscribers:
            outcome = _outcome(failure)
            self._tell(machine, effect.workflow, "", effect.name, "effect", effect.attempts, outcome, begun_s, failure)

    def _tell(
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
        subscribers = self._subscribers
        duration_s = self._clock.monotonic_s() - begun_s if begun_s else 0.0
        for observer in subscribers.counting:
            try:
                observer.attempted(machine, name, kind, outcome, duration_s)
            except Exception as error:  # noqa: BLE001 -- whatever an observer raises, the workflow goes on (A9).
                subscribers.failed(error)
        if not subscribers.attempts:
            return
        subscribers.emit(
            StepAttempted(
                machine=machine,
                workflow=workflow,
                state=state,
                step=name,
                kind=kind,  # type: ignore[arg-type]
                attempt=attempt,
                outcome=outcome,  # type: ignore[arg-type]
                duration_s=duration_s,
                error=None if failure is None else failure.error,
            )
        )


def _outcome(failure: Failure | None) -> str:
    return "done" if failure is None else failure.outcome


def goes_on(staged: Staged, means: Means) -> bool:
    """Whether something of the workflow runs in this process, or is about to."""
    current = staged.live.owed.current
    if current is None or current.parked:
        return False
    # Where stores are shared, what waits for its time is anybody's; what is held here is ours.
    return not means.owner or staged.held is not None or staged.live.row.holder == means.owner
