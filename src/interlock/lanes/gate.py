"""The gate of a lane's readers: a few places, and a fair queue for reads that find all of them taken.

No thread waits here: all lanes share the read threads, and one busy lane must not keep them from the others (D4). No
event loop takes part either: the thread that frees a place starts the next visitor itself. So a loop that has stopped
or was closed can never keep a place.

Each lane has its gate, and all gates share one number of threads:

- A lane without a running read gets the next free thread, before any lane that already reads.
- For its second and every further read a lane gets a thread only while more than half of all are free, in turn with
  the others. So lanes with slow reads have at most half of the threads beyond their first.

The gate of a lane can also be held shut for a while: no visitor enters until it is released.
"""

import threading
from collections import OrderedDict
from typing import Protocol

from interlock.errors import Overloaded
from interlock.lanes.failures import closed


class Visitor(Protocol):
    """A read that wants a place."""

    @property
    def given_up(self) -> bool:
        """Whether it no longer wants a place."""
        ...

    def start(self) -> bool:
        """Begin, with a place; return False if it cannot, which frees the place. Must not block, nor leave the gate."""
        ...


class Shares:
    """A number of threads, shared by the gates of all lanes. Its lock is the lock of all its gates."""

    def __init__(self, threads: int) -> None:
        self.free = threads
        self._kept = threads // 2
        """Threads that are reserved for lanes without a running read."""
        self.lock = threading.Lock()
        self._first: OrderedDict[Gate, None] = OrderedDict()
        self._further: OrderedDict[Gate, None] = OrderedDict()

    def enough(self, inside: int) -> bool:
        """Whether a lane with `inside` running reads may start one more."""
        return self.free > (self._kept if inside else 0)

    def stand(self, gate: "Gate") -> None:
        """Add the gate to its queue or remove it, after its need of a thread may have changed."""
        here, there = (self._further, self._first) if gate.inside else (self._first, self._further)
        there.pop(gate, None)
        if gate.wants:
            here.setdefault(gate)  # A gate that is queued already keeps its turn.
        else:
            here.pop(gate, None)

    def share_out(self) -> None:
        """Give the free threads to the waiting gates, each in its turn."""
        while (self._first and self.enough(0)) or (self._further and self.enough(1)):
            gate, _ = (self._first or self._further).popitem(last=False)
            gate.admit()
            self.stand(gate)


class Gate:
    """Lets at most `places` in at a time, from any number of event loops and threads."""

    def __init__(self, places: int, *, waiting_max: int, shares: Shares) -> None:
        self.inside = 0
        self.is_held = False
        self._closed = False
        self._places = places
        self._waiting_max = waiting_max
        self._shares = shares
        self._waiting: OrderedDict[Visitor, None] = OrderedDict()

    @property
    def wants(self) -> bool:
        """Whether a visitor waits here for a thread and for nothing else."""
        return bool(self._waiting) and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.inside < self._places and not self.is_held

    def enter(self, visitor: Visitor) -> None:
        """Start the visitor now, or when there is a place for it. A started visitor must leave. Raises Overloaded."""
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
        """Remove the visitor from the queue, if it waits."""
        with self._shares.lock:
            self._waiting.pop(visitor, None)
            self._shares.stand(self)

    def leave(self) -> None:
        """Give the place to the next visitor."""
        with self._shares.lock:
            self._give_back()
            self._shares.stand(self)
            self._shares.share_out()

    def hold(self) -> None:
        """Admit no visitor until `let_go`."""
        with self._shares.lock:
            self.is_held = True
            self._shares.stand(self)

    def let_go(self) -> None:
        """Admit visitors again."""
        with self._shares.lock:
            self.is_held = False
            self._shares.stand(self)
            self._shares.share_out()

    def close(self) -> list[Visitor]:
        """Close the gate for good; return the visitors that still waited."""
        with self._shares.lock:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._shares.stand(self)
            return left

    def admit(self) -> None:
        """Admit the next visitor. Called by the shares, with the lock held."""
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
