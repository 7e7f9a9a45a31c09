"""Serialise transactions after a conflict, so that a transaction that has lost once does not race again.

SERIALIZABLE runs transactions concurrently and rolls conflicting ones back. That is fast while conflicts are rare. When
all of them change the same row, most work is thrown away, and some transactions never succeed. So after the first
conflict a transaction waits for its turn: in this process for a lock, and between processes for a lock on a small
table, which the server grants in order of request. The lock is acquired before the transaction reads anything, so that
it sees the changes of its predecessor. A recently conflicting transaction waits for its turn from the start.

SERIALIZABLE still guarantees correctness: turns only make conflicts rare.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final
from weakref import WeakKeyDictionary

from interlock.seams import Clock

HOT_S: Final = 1.0
"""For so long after a conflict the same call takes its turn without trying first."""

CALLS_MAX: Final = 1024
"""Calls that are remembered as hot; the one that conflicted longest ago is forgotten."""

ATTEMPTS_MAX: Final = 30
PAUSE_S_MAX: Final = 0.1

GATE: Final = "interlock_gate"
"""The table that stands for the turn between processes. It has no rows."""


class Turns:
    """The turns of one database in one process, shared by all its users in the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hot: OrderedDict[Hashable, float] = OrderedDict()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.conflicts = 0

    def is_hot(self, call: Hashable) -> bool:
        """Return whether this call conflicted a moment ago."""
        until_s = self._hot.get(call)
        if until_s is None:
            return False
        if until_s > self._clock.monotonic_s():
            return True
        self._hot.pop(call, None)
        return False

    def conflicted(self, call: Hashable) -> None:
        """This call has just lost against another transaction."""
        self.conflicts += 1
        self._hot[call] = self._clock.monotonic_s() + HOT_S
        self._hot.move_to_end(call)
        if len(self._hot) > CALLS_MAX:
            self._hot.popitem(last=False)

    def lock(self) -> asyncio.Lock:
        """One turn at a time in this event loop."""
        loop = asyncio.get_running_loop()
        found = self._locks.get(loop)
        if found is None:
            found = self._locks[loop] = asyncio.Lock()
        return found


def pause_s(attempt: int, luck: float) -> float:
    """Return the seconds before the next attempt: full jitter, longer each time, up to a small bound."""
    return luck * min(PAUSE_S_MAX, 0.001 * 2.0**attempt)


_shared: OrderedDict[tuple[str, str], Turns] = OrderedDict()
_SHARED_MAX: Final = 256


def turns_of(url: str, schema: str, clock: Clock) -> Turns:
    """The turns of the schema at this address: the same for all who open it in this process."""
    found = _shared.get((url, schema))
    if found is None:
        found = _shared[url, schema] = Turns(clock)
        if len(_shared) > _SHARED_MAX:
            _shared.popitem(last=False)
    else:
        _shared.move_to_end((url, schema))
    return found
