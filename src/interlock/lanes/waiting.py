"""The works that wait in a lane, in the order in which they came.

Any event loop adds to it without a lock, because that happens a hundred thousand times a second; everything else is
done with the lane's lock held. A work that is cancelled stays where it stands and is only counted: it is in nobody's
way until there are more of them than of the others, and then all are thrown out at once. So each costs a few steps,
however long the queue is and however often somebody asks for its length (G6).
"""

from collections import deque

from interlock.lanes.work import Work

CANCELLED_MIN = 64
"""So few cancelled works are not worth going through the queue."""


class Waiting:
    """The queue of a lane."""

    def __init__(self) -> None:
        self._works: deque[Work] = deque()
        self._cancelled = 0
        self.add = self._works.append
        """Let a work wait. From any thread, without the lock."""

    def __len__(self) -> int:
        """How many really wait. Asked without the lock it may be a little less: never more, and never below zero."""
        return max(0, len(self._works) - self._cancelled)

    def cancel(self, work: Work) -> None:
        """The work does not happen, unless it was taken already."""
        if work.state != "waiting":
            return
        work.state = "cancelled"
        self._cancelled += 1
        standing = len(self._works)
        if self._cancelled == standing or self._cancelled > max(CANCELLED_MIN, standing // 2):
            self._throw_out()

    def take(self, most: int) -> list[Work]:
        """Take up to so many of the first that wait."""
        taken: list[Work] = []
        while self._works and len(taken) < most:
            work = self._works.popleft()
            if work.state == "waiting":
                work.state = "taken"
                taken.append(work)
            else:
                self._cancelled -= 1
        return taken

    def _throw_out(self) -> None:
        alive: list[Work] = []
        for _ in range(len(self._works)):
            work = self._works.popleft()
            if work.state == "waiting":
                alive.append(work)
        # What another thread has added meanwhile came later, and none of it is cancelled: that takes the lock.
        self._cancelled = 0
        self._works.extendleft(reversed(alive))
