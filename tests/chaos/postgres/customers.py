"""The customers: which operation is asked for next, what became of it, and which of the answers cannot be.

An operation is `start|submit|cancel`, the workflow and a delivery key. It is handed to whichever process asks next, so
that the events of one order arrive at different nodes. One whose process has died before it said what it was told is
handed out again, with the same key. Some are asked for again although they were answered, and must be answered alike.
"""

from collections import Counter, deque
from typing import NamedTuple

from interlock.clock import Chance

ACTIVE_MAX = 28
"""Orders on their way at once."""

DEEDS = ("charge", "reserve", "ship", "release", "refund")
REFUSED = "x"


class Answer(NamedTuple):
    """What somebody was told."""

    version: int
    state: str
    how: str


class Customers:
    """Everybody who orders."""

    def __init__(self, chance: Chance, *, active_max: int = ACTIVE_MAX) -> None:
        self.answers: dict[str, Answer] = {}
        """By operation: the first acknowledgement."""
        self.refused: dict[str, str] = {}
        self.active: set[str] = set()
        """Orders of which nobody was told yet that they have ended."""
        self.asked: dict[str, int] = {}
        """Operations that are asked for at this moment, and by which life."""
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.enough = False
        """No further orders."""
        self._chance = chance
        self._active_max = active_max
        self._orders = 0
        self._ready: deque[str] = deque()
        self._cancelled_at: dict[str, str] = {}
        self._submits: dict[str, list[str]] = {}

    def next(self) -> str | None:
        """What to ask for next, if there is something."""
        if not self._ready and not self.enough and len(self.active) < self._active_max:
            self._order()
        return self._ready.popleft() if self._ready else None

    @property
    def quiet(self) -> bool:
        """Everything was answered, and every order has ended."""
        return self.enough and not self._ready and not self.asked and not self.active

    def put_back(self, operation: str) -> None:
        """Nobody knows what became of it."""
        del self.asked[operation]
        self.seen["asked again after a death"] += 1
        self._ready.appendleft(operation)

    def told(self, deed: str, workflow: str, *, done: bool) -> None:
        """The gateway was asked for something: the moment that some have chosen for cancelling."""
        if self._cancelled_at.get(workflow) == deed:
            del self._cancelled_at[workflow]
            self._ready.append(f"cancel {workflow} c-{workflow}")
        if deed == "mail" and done:
            self.active.discard(workflow)

    def answered(self, kind: str, operation: str, words: list[str]) -> None:
        """Note what a process was told."""
        del self.asked[operation]
        _, workflow, _ = operation.split(" ")
        first = operation not in self.answers and operation not in self.refused
        if kind == REFUSED:
            self._refused(operation, words[0])
        else:
            self._acknowledged(operation, Answer(int(words[0]), words[1], words[2]))
        if first:
            self._ready.extend(self._submits.pop(workflow, ()))
            if self._chance.fraction() < 0.15:
                self._ready.append(operation)

    def _order(self) -> None:
        self._orders += 1
        number, luck = self._orders, self._chance.fraction()
        workflow = f"o-{number}"
        self.active.add(workflow)
        self._ready.append(f"start {workflow} {number}")
        submit, cancel = f"submit {workflow} s-{number}", f"cancel {workflow} c-{workflow}"
        if luck < 0.08:  # Never submitted: its cart expires.
            return
        self._submits[workflow] = [submit, cancel] if luck < 0.16 else [submit]
        if 0.16 <= luck < 0.5:
            self._cancelled_at[workflow] = DEEDS[int(self._chance.fraction() * len(DEEDS))]

    def _refused(self, operation: str, code: str) -> None:
        self.seen[f"refused: {code}"] += 1
        self.refused.setdefault(operation, code)
        if operation in self.answers:
            self.problems.append(f"{operation} was acknowledged, and is now refused: {code}")
        # A cart may have expired, or have been cancelled, before its submission arrived; nothing else is refused.
        if not operation.startswith("submit") or code != "invalid-transition":
            self.problems.append(f"{operation} was refused: {code}")

    def _acknowledged(self, operation: str, answer: Answer) -> None:
        self.seen[answer.how] += 1
        before = self.answers.setdefault(operation, answer)
        if before is answer or operation.startswith("start") or "ignored" in {before.how, answer.how}:
            return
        if answer.how != "duplicate" or answer[:2] != before[:2]:
            self.problems.append(f"{operation} was answered {before}, and now {answer}")
