"""A gate with a few places: who comes when all are taken waits in an orderly queue.

No thread waits here, because the threads that read are shared by all lanes, and one busy lane must not keep them from
the others (D4). Nor does an event loop take part: whoever gets a place is started there and then, by the thread that
has made room. A loop that has stopped, or was closed, can therefore never keep a place that it was given.

Each lane has its gate, and all gates share out one number of threads:

- A lane that reads nothing at the moment gets the next thread that is free, before any lane that reads already.
- For its second and every further read a lane gets one only while more than half of all are free, in turn with the
  others. So lanes with slow reads have at most half of the threads beyond their first.

The gate of a lane can also be held shut for a while: nobody enters until it is let go.
"""

import threading
from collections import OrderedDict
from typing import Protocol

from interlock.errors import Overloaded
from interlock.lanes.failures import closed


class Visitor(Protocol):
    """Somebody who wants a place."""

    @property
    def given_up(self) -> bool:
        """Whether it wants none any more."""
        ...

    def start(self) -> bool:
        """Begin, with a place; False when it cannot, and the place is free again. It may not wait, nor leave here."""
        ...


class Shares:
    """So many threads, shared out to the gates of all lanes. Its lock is the lock of all its gates."""

    def __init__(self, threads: int) -> None:
        self.free = threads
        self._kept = threads // 2
        """So many are kept for lanes that read nothing at the moment."""
        self.lock = threading.Lock()
        self._first: OrderedDict[Gate, None] = OrderedDict()
        self._further: OrderedDict[Gate, None] = OrderedDict()

    def enough(self, inside: int) -> bool:
        """Whether a lane that has so many may have one more."""
        return self.free > (self._kept if inside else 0)

    def stand(self, gate: "Gate") -> None:
        """Something has changed at this gate: it waits for a thread, or no longer."""
        here, there = (self._further, self._first) if gate.inside else (self._first, self._further)
        there.pop(gate, None)
        if gate.wants:
            here.setdefault(gate)  # Who stands there already keeps its turn.
        else:
            here.pop(gate, None)

    def share_out(self) -> None:
        """Give what is free to the gates that wait, each in its turn."""
        while (self._first and self.enough(0)) or (self._further and self.enough(1)):
            gate, _ = (self._first or self._further).popitem(last=False)
            gate.admit()
            self.stand(gate)


class Gate:
    """Lets at most `places` in at a time, from any number of event loops and threads."""

    def __init__(self, places: int, *, waiting_max: int, shares: Shares) -> None:
        self.inside = 0
        self.held = False
        self._closed = False
        self._places = places
        self._waiting_max = waiting_max
        self._shares = shares
        self._waiting: OrderedDict[Visitor, None] = OrderedDict()

    @property
    def wants(self) -> bool:
        """Whether somebody waits here for a thread and for nothing else."""
        return bool(self._waiting) and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.inside < self._places and not self.held

    def enter(self, visitor: Visitor) -> None:
        """Start the visitor now, or when there is a place for it. Whoever was started must leave."""
        with self._shares.lock:
            if self._closed:
                raise closed()
            if self._has_room and self._shares.enough(self.inside):
                self._let_in(visitor)
                return
            if len(self._waiting) >= self._waiting_max:
                raise Overloaded(1.0, f"{len(self._waiting):,} reads wait in this lane already (queue_max).")
            self._waiting[visitor] = None
            self._shares.stand(self)

    def forget(self, visitor: Visitor) -> None:
        """It does not wait any more, if it does."""
        with self._shares.lock:
            self._waiting.pop(visitor, None)
            self._shares.stand(self)

    def leave(self) -> None:
        """Give the place to the next."""
        with self._shares.lock:
            self._give_back()
            self._shares.stand(self)
            self._shares.share_out()

    def hold(self) -> None:
        """Let nobody in any more."""
        with self._shares.lock:
            self.held = True
            self._shares.stand(self)

    def let_go(self) -> None:
        """Let them in again."""
        with self._shares.lock:
            self.held = False
            self._shares.stand(self)
            self._shares.share_out()

    def close(self) -> list[Visitor]:
        """Let nobody in for good; returns those who have waited for nothing."""
        with self._shares.lock:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._shares.stand(self)
            return left

    def admit(self) -> None:
        """Let the next in; called by the shares, with the lock held."""
        while self._waiting:
            visitor, _ = self._waiting.popitem(last=False)
            if not visitor.given_up and self._let_in(visitor):
                return

    def _let_in(self, visitor: Visitor) -> bool:
        self.inside += 1
        self._shares.free -= 1
        if visitor.start():
            return True
        self._give_back()
        return False

    def _give_back(self) -> None:
        self.inside -= 1
        self._shares.free += 1
