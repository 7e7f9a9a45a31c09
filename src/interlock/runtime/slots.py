"""How many attempts may be under way at once, and who waits for a place (G6).

A workflow that finds no free slot is not a task and not a closure: it is its id in a queue, and its row in the store.
"""

from collections import deque
from collections.abc import Callable


class Slots:
    """A bounded number of places. `called` is told the next one in the queue when a place is free."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.free = most
        self.called: Callable[[str], None] | None = None
        self._waiting: deque[str] = deque()
        self._queued: set[str] = set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def reserve(self) -> bool:
        """Take a place, if there is one."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    def release(self) -> None:
        """Give a place back."""
        self.free += 1
        self.call()

    def call(self) -> None:
        """Call the next one, if there is a place. Whoever was called and does not want it calls the one behind."""
        if self._waiting and self.free > 0 and self.called is not None:
            waiting = self._waiting.popleft()
            self._queued.discard(waiting)
            self.called(waiting)

    def wait(self, waiting: str) -> None:
        """Be called when there is a place: at once, if there is one. Whoever waits already keeps its turn."""
        if self.most and waiting not in self._queued:
            self._queued.add(waiting)
            self._waiting.append(waiting)
            self.call()

    def forget(self) -> None:
        """Nobody waits any more: everything that is owed is in the store."""
        self._waiting.clear()
        self._queued.clear()
        self.called = None
