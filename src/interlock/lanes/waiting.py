"""The works that wait in a lane, in the order in which they came.

Any event loop adds to it without a lock, because that happens a hundred thousand times a second; everything else is
done with the lane's lock held. A work that is cancelled stays where it stands, and nobody is told: it is passed over
when its turn comes, and thrown out when the queue is full. Going through a full queue is paid for by the calls that
find it full: the next look comes only after a quarter as many of them as the last one took steps, so each costs a few
steps, however long the queue is (G6).
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
        """Let a work wait. From any thread, without the lock."""

    def __len__(self) -> int:
        """How many stand in the queue, those that were cancelled included."""
        return len(self._works)

    def alive(self) -> int:
        """How many really wait."""
        return sum(not work.cancelled() for work in list(self._works))

    def full(self, most: int) -> bool:
        """Whether so many wait that there is no room for one more; throws out the cancelled ones now and then."""
        if len(self._works) < most:
            return False
        self._calls_until_look -= 1
        if self._calls_until_look < 0:
            self._throw_out()
            self._calls_until_look = len(self._works) // STEPS_PER_CALL
        return len(self._works) >= most

    def take(self, most: int) -> list[Work]:
        """Take up to so many of the first that wait."""
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
