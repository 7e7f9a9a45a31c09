"""How many attempts may be under way at once, and who waits for a place (G6).

A workflow that finds no free slot is not a task and not a closure: it is its id in a queue, and its row in the store.
Whoever is called has a place kept for it, and declines when it has no use for it any more, so that nobody overtakes the
queue and no place is lost.
"""

from collections import deque
from collections.abc import Callable


class Slots:
    """A bounded number of places. `called` is told the next one in the queue when there is a place for it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.free = 0
        """None until it is open: nothing begins before everything that is owed has been taken up."""
        self.called: Callable[[str], None] | None = None
        self._closed = False
        self._waiting: deque[str] = deque()
        self._queued: set[str] = set()
        self._kept: set[str] = set()
        """Those who were called and have not answered yet."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def open(self) -> None:
        """Give the places out, to those who wait first."""
        for _ in range(self.most):
            self.release()

    def reserve(self, name: str | None = None) -> bool:
        """Take a place: the one that is kept for this name, or a free one if nobody waits for it."""
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
        """Give a place back: to the next in the queue."""
        self.free += 1
        self._call()

    def decline(self, name: str) -> None:
        """Whoever was called has no use for the place, or never was: not having one is no error."""
        if name in self._kept:
            self._kept.discard(name)
            self.release()

    def wait(self, name: str) -> None:
        """Be called when there is a place, which may be now. Whoever waits already keeps its turn."""
        if self.most and name not in self._queued and name not in self._kept and not self._closed:
            self._queued.add(name)
            self._waiting.append(name)
            self._call()

    def close(self) -> None:
        """No more places, and nobody waits any more: everything that is owed is in the store."""
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
