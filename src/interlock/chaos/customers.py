"""The customers: what they order, what they ask for next, and what they were told, written down word for word.

An order is started, submitted, and, one in five, cancelled again. Each operation has its delivery key and goes to
whichever worker has time, so that the events of one order arrive at different nodes. Whatever was asked of a worker
that was killed before it answered is asked again of another one, with the same key.
"""

from collections import Counter, deque
from typing import NamedTuple

from interlock.chaos.messages import Acknowledged, Operation, Refused

CANCELLED_EVERY, CANCELLED = 5, 1
STARTED, SUBMITTED, CANCEL = "start", "submit", "cancel"


class Told(NamedTuple):
    """What a customer was told of one operation."""

    operation: Operation
    version: int
    state: str
    ignored: bool


class Customers:
    """Everybody who orders."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        """Every acknowledgement, in the order they came."""
        self.refused: list[tuple[Operation, str]] = []
        self.repeated: Counter[str] = Counter()
        """Why operations were repeated, by the code of the error."""
        self.orders: dict[str, int] = {}
        """The numbers of the orders that were placed, by their ids."""
        self.ended: dict[str, str] = {}
        """The final states that workers have told of."""
        self.given: Counter[int] = Counter()
        """How many operations each worker was asked for."""
        self._ready: deque[Operation] = deque()
        self._asked: dict[int, tuple[Operation, int]] = {}
        self._operations = 0

    def place(self) -> str:
        """Another order; returns its id."""
        number = len(self.orders) + 1
        workflow = f"order-{number}"
        self.orders[workflow] = number
        self._wish(STARTED, workflow)
        return workflow

    def next(self, worker: int) -> Operation | None:
        """What to ask of a worker next, if there is something."""
        if not self._ready:
            return None
        operation = self._ready.popleft()
        self._asked[operation.number] = (operation, worker)
        self.given[worker] += 1
        return operation

    def asked_of(self, worker: int) -> int:
        """How many operations a worker has not answered yet."""
        return sum(asked == worker for _, asked in self._asked.values())

    def answered(self, answer: Acknowledged | Refused) -> None:
        """A worker has answered; the customer goes on with what follows."""
        operation, _ = self._asked.pop(answer.number)
        if isinstance(answer, Refused):
            self.refused.append((operation, answer.code))
            return
        self.told.append(Told(operation, answer.version, answer.state, answer.ignored))
        if operation.what == STARTED:
            self._wish(SUBMITTED, operation.workflow)
        elif operation.what == SUBMITTED and operation.order % CANCELLED_EVERY == CANCELLED:
            self._wish(CANCEL, operation.workflow)

    def put_back(self, worker: int) -> None:
        """Nobody knows what became of what a worker was asked for: it is dead."""
        for number, (operation, asked) in list(self._asked.items()):
            if asked == worker:
                del self._asked[number]
                self._ready.appendleft(operation)

    @property
    def answered_all(self) -> bool:
        """Nobody waits for an answer."""
        return not self._ready and not self._asked

    @property
    def quiet(self) -> bool:
        """Everything was answered, and every order has ended."""
        return self.answered_all and len(self.ended) == len(self.orders)

    @property
    def open(self) -> list[str]:
        """The orders of which nobody has told that they ended."""
        return [workflow for workflow in self.orders if workflow not in self.ended]

    def _wish(self, what: str, workflow: str) -> None:
        self._operations += 1
        number = self._operations
        self._ready.append(Operation(number, what, workflow, self.orders[workflow], f"{what}-{workflow}"))
