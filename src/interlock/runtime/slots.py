"""A bounded number of slots for concurrent attempts, and the queue of names that wait for one (G6).

A workflow that finds no free slot is not a task and not a closure: it is its id in a queue, and its row in the store. A
called name has a slot kept for it, and declines it if it no longer needs it. So no name overtakes the queue, and no
slot is lost.
"""

from collections import deque
from collections.abc import Callable


class Slots:
    """A bounded number of slots. `called` receives the next name of the queue when a slot is free for it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.free = 0
        """0 until `open`: nothing begins before everything that is owed has been taken up."""
        self.called: Callable[[str], None] | None = None
        self._closed = False
        self._waiting: deque[str] = deque()
        self._queued: set[str] = set()
        self._kept: set[str] = set()
        """Names that were called and have not answered yet."""

    def __len__(self) -> int:
        """Return the number of waiting names."""
        return len(self._waiting)

    def open(self) -> None:
        """Release all slots, first to waiting names."""
        for _ in range(self.most):
            self.release()

    def reserve(self, name: str | None = None) -> bool:
        """Take the slot kept for this name, or a free one if the queue is empty."""
        if self._closed:
            return False
        if name is not None and name in self._kept:
            self._kept.discard(name)
            return True
        if self.free <= 0 or self._waiting:
            return False
        self.free -= 1
        return True

    def release(self) -> None:
        """Give a slot back: to the next name in the queue."""
        self.free += 1
        self._call()

    def decline(self, name: str) -> None:
        """Give back the slot kept for this name. A name without one is ignored."""
        if name in self._kept:
            self._kept.discard(name)
            self.release()

    def wait(self, name: str) -> None:
        """Queue the name; the call may come immediately. A name already in the queue keeps its turn."""
        if self.most and name not in self._queued and name not in self._kept and not self._closed:
            self._queued.add(name)
            self._waiting.append(name)
            self._call()

    def close(self) -> None:
        """Close: no more slots, and an empty queue. Everything owed is in the store."""
        self._closed = True
        self._waiting.clear()
        self._queued.clear()
        self._kept.clear()
        self.called = None

    def _call(self) -> None:
        while self.free > 0 and self._waiting and self.called is not None:
            name = self._waiting.popleft()
            self._queued.discard(name)
            self.free -= 1
            self._kept.add(name)
            self.called(name)
