"""The queue of a lane: the waiting works, in the order in which they came.

Any event loop adds to it without a lock, because that happens a hundred thousand times a second; everything else is
done with the lane's lock held. A cancelled work stays in the queue: it is skipped when its turn comes, and removed when
the queue is full. The calls that find the queue full pay for that scan: the next one comes only after a quarter as many
calls as the last one took steps. So each call costs a few steps, however long the queue is (G6).
"""

from collections import deque

from interlock.lanes.work import Work

STEPS_PER_CALL = 4


class Waiting:
    """The queue of a lane."""

    def __init__(self) -> None:
        self._works: deque[Work] = deque()
        self._calls_until_look = 0
        self.add = self._works.append
        """Add a work. From any thread, without the lock."""

    def __len__(self) -> int:
        """Return the number of works in the queue, cancelled ones included."""
        return len(self._works)

    def alive(self) -> int:
        """Return the number of works that are not cancelled."""
        return sum(not work.cancelled() for work in list(self._works))

    def full(self, most: int) -> bool:
        """Whether at least `most` works wait; removes the cancelled ones now and then."""
        if len(self._works) < most:
            return False
        self._calls_until_look -= 1
        if self._calls_until_look < 0:
            self._throw_out()
            self._calls_until_look = len(self._works) // STEPS_PER_CALL
        return len(self._works) >= most

    def take(self, most: int) -> list[Work]:
        """Take at most `most` of the first works."""
        taken: list[Work] = []
        while self._works and len(taken) < most:
            work = self._works.popleft()
            if not work.cancelled():
                taken.append(work)
        return taken

    def _throw_out(self) -> None:
        alive: list[Work] = []
        for _ in range(len(self._works)):
            work = self._works.popleft()
            if not work.cancelled():
                alive.append(work)
        # What another thread has added meanwhile came later.
        self._works.extendleft(reversed(alive))
