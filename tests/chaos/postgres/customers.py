"""The customers of the campaign: which operation is asked for next, what became of it, and which answers cannot be.

An operation is handed to whichever process asks next, so that the events of one order arrive at different nodes. One
whose process has died before it said what it was told is handed out again, with the same key. Some are asked for again
although they were answered, and must be answered alike.
"""

from collections import Counter
from typing import NamedTuple

from interlock.chaos.shop import CANCEL, STARTED, SUBMITTED, Acknowledgement, Customers
from interlock.chaos.worker_messages import Acknowledged, Operation, OperationRefused
from interlock.clock import Chance

ACTIVE_MAX = 28
"""Orders on their way at once."""

DEEDS = ("charge", "reserve", "ship", "release", "refund")


class Answer(NamedTuple):
    """What somebody was told."""

    version: int
    state: str
    how: str


class RestlessCustomers(Customers):
    """Everybody who orders."""

    def __init__(self, chance: Chance, *, active_max: int = ACTIVE_MAX) -> None:
        super().__init__()
        self.answers: dict[str, tuple[Operation, Answer]] = {}
        """By delivery key: the operation, and its first acknowledgement."""
        self.active: set[str] = set()
        """Orders of which nobody was told yet that they have ended."""
        self.acknowledged: Counter[int] = Counter()
        """Operations that were answered, by life."""
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.enough = False
        """No further orders."""
        self._chance = chance
        self._active_max = active_max
        self._codes: dict[str, str] = {}
        self._cancelled_at: dict[str, str] = {}
        self._submits: dict[str, list[str]] = {}

    def place(self) -> str:
        """An order: some are never submitted, some cancelled, at once or when the gateway is asked for a deed."""
        workflow, luck = super().place(), self._chance.fraction()
        self.active.add(workflow)
        if luck >= 0.08:  # The carts of the others expire.
            self._submits[workflow] = [SUBMITTED, CANCEL] if luck < 0.16 else [SUBMITTED]
        if 0.16 <= luck < 0.5:
            self._cancelled_at[workflow] = DEEDS[int(self._chance.fraction() * len(DEEDS))]
        return workflow

    def next(self, worker: int) -> Operation | None:
        """What to ask for next, if there is something."""
        if not self._ready and not self.enough and len(self.active) < self._active_max:
            self.place()
        return super().next(worker)

    @property
    def quiet(self) -> bool:
        """Everything was answered, and every order has ended."""
        return self.enough and self.answered_all and not self.active

    def put_back(self, worker: int) -> None:
        """Nobody knows what became of what this life was asked for."""
        self.seen["asked again after a death"] += self.asked_of(worker)
        super().put_back(worker)

    def told(self, deed: str, workflow: str, *, done: bool) -> None:
        """The gateway was asked for something: the moment that some have chosen for cancelling."""
        if self._cancelled_at.get(workflow) == deed:
            del self._cancelled_at[workflow]
            self.queue(CANCEL, workflow)
        if deed == "mail" and done:
            self.active.discard(workflow)

    def answered(self, answer: Acknowledged | OperationRefused) -> None:
        """Note what a process was told."""
        operation, worker = self._assigned[answer.number]
        self.acknowledged[worker] += 1
        first = operation.key not in self.answers and operation.key not in self._codes
        super().answered(answer)
        if isinstance(answer, OperationRefused):
            self._refuse(operation, answer.code)
        else:
            self._acknowledge(self.acknowledgements[-1])
        if first:
            for what in self._submits.pop(operation.workflow, ()):
                self.queue(what, operation.workflow)
            if self._chance.fraction() < 0.15:
                self.queue(operation.what, operation.workflow)

    def follow(self, operation: Operation) -> None:
        """Whatever follows is queued by `answered`."""

    def _refuse(self, operation: Operation, code: str) -> None:
        self.seen[f"refused: {code}"] += 1
        self._codes.setdefault(operation.key, code)
        if operation.key in self.answers:
            self.problems.append(f"{operation.key} was acknowledged, and is now refused: {code}")
        # A cart may have expired, or have been cancelled, before its submission arrived; nothing else is refused.
        if operation.what != SUBMITTED or code != "invalid-transition":
            self.problems.append(f"{operation.key} was refused: {code}")

    def _acknowledge(self, told: Acknowledgement) -> None:
        how = "duplicate" if told.duplicate else "ignored" if told.ignored else "moved"
        how = "started" if told.operation.what == STARTED else how
        self.seen[how] += 1
        answer = Answer(told.version, told.state, how)
        _, before = self.answers.setdefault(told.operation.key, (told.operation, answer))
        if before is answer or how == "started" or "ignored" in {before.how, how}:
            return
        if how != "duplicate" or answer[:2] != before[:2]:
            self.problems.append(f"{told.operation.key} was answered {before}, and now {answer}")
