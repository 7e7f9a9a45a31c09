"""Turns by key: limits per customer or tenant at one dependency, and a queue in which keys take turns (E8).

A step declares `per=`; what that returns is the key of its calls. `KeyLimits` counts the calls of each key in this
process. `FairQueue` is start-time fair queueing with calls of equal cost: a key that becomes active joins the current
round, and each of its calls moves it one round on. So a key with 10,000 waiting calls delays another by one call per
round. A key at its limit leaves the round until a call of it ends, or until its rate admits the next one.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from interlock.core.policies import TokenBucket, TokenRate

Turn = tuple[str, int]
"""The key of a call, and its priority among the calls of this key; the highest comes first."""

NO_TURN: Final[Turn] = ("", 0)

KEYS_MAX: Final = 10_000
"""Keys whose rates are remembered. Beyond that the one that called first is forgotten, and begins with a full rate."""

BURST_S: Final = 0.1
"""The seconds of its rate that a key may call in one moment; at least one call."""

ItemT = TypeVar("ItemT")


class SharedRate(Protocol):
    """The rate of a key in a cluster."""

    def __call__(self, key: str, *, take: bool) -> float | None:
        """Return 0.0 for a call within the rate, else the seconds to wait; None: the cluster cannot be reached."""
        ...


class KeyLimits:
    """The calls of each key at one dependency. Used under the lock of its outlet."""

    def __init__(self, concurrency_max: int | None, rate_per_s: float | None) -> None:
        self.concurrency_max = concurrency_max
        self.rate: TokenRate | None = None
        if rate_per_s is not None:
            self.rate = TokenRate(rate_per_s=rate_per_s, burst=max(1.0, rate_per_s * BURST_S))
        self._under_way: dict[str, int] = {}
        self._buckets: dict[str, TokenBucket] = {}

    def go_along(self, before: "KeyLimits") -> None:
        """Take over the calls under way of the limits that these replace."""
        self._under_way = before._under_way  # noqa: SLF001 -- of the same class.

    def wait_s(self, key: str, now_s: float, shared: SharedRate | None = None) -> float:
        """Return 0.0 if a call may begin, else the seconds until its rate admits it; infinite until another ends.

        `shared` is the rate of a cluster: it counts unless it returns None.
        """
        if self.concurrency_max is not None and self._under_way.get(key, 0) >= self.concurrency_max:
            return math.inf
        if self.rate is None:
            return 0.0
        wait_s = None if shared is None else shared(key, take=False)
        return self.rate.take(self._buckets.get(key) or self.rate.full(now_s), now_s)[1] if wait_s is None else wait_s

    def take(self, key: str, now_s: float, shared: SharedRate | None = None) -> bool:
        """Count a call that begins; return False if it may not."""
        if self.wait_s(key, now_s, shared):
            return False
        wait_s = None if shared is None or self.rate is None else shared(key, take=True)
        if wait_s:
            return False
        self._under_way[key] = self._under_way.get(key, 0) + 1
        if self.rate is not None and wait_s is None:
            bucket = self._buckets.pop(key, None) or self.rate.full(now_s)
            self._buckets[key] = self.rate.take(bucket, now_s)[0]
            if len(self._buckets) > KEYS_MAX:
                del self._buckets[next(iter(self._buckets))]
        return True

    def give_back(self, key: str, *, unused: bool) -> None:
        """End a call; one that was not made returns its token."""
        left = self._under_way.get(key, 1) - 1
        if left:
            self._under_way[key] = left
        else:
            self._under_way.pop(key, None)
        bucket = self._buckets.get(key)
        if unused and bucket is not None:
            self._buckets[key] = TokenBucket(bucket.tokens + 1, bucket.at_s)


class FairQueue(Generic[ItemT]):
    """A priority queue in which keys take turns; with `fair=False` the oldest of all keys that may call is first."""

    def __init__(self, wait_s: Callable[[str], float], now_s: Callable[[], float], *, fair: bool) -> None:
        self._wait_s = wait_s
        self._now_s = now_s
        self._fair = fair
        self._keys: dict[str, list[tuple[int, int, int, ItemT]]] = {}
        self._tags: dict[str, tuple[float, float]] = {}
        """The turn of each key that waits and is not blocked; of a key without calls, its last one."""
        self._turns: list[tuple[tuple[float, float], int, str]] = []
        """Turns of keys, the next one first; one that is not the key's turn of now is left out."""
        self._listed = set[tuple[tuple[float, float], str]]()
        """What is in `_turns`: a key that gets an earlier turn again and again is not listed again and again."""
        self._blocked: dict[str, float] = {}
        """Keys at a limit, each with the time at which its rate admits a call."""
        self._due: list[tuple[float, str]] = []
        """These times, the soonest first; one that is not the key's time of now is left out."""
        self._time = 0.0
        """The start tag of the last call: the current round."""
        self._numbers = itertools.count()
        self._size = 0
        self._current = ""
        """The key of the call that `first` has returned."""

    def __len__(self) -> int:
        return self._size

    def count(self, key: str) -> int:
        """Return the number of waiting calls of a key."""
        return len(self._keys.get(key, ()))

    @property
    def heap(self) -> list[tuple[int, int, int, ItemT]]:
        """The calls of the key whose turn it is; empty if no key may call now."""
        turns = self._turns
        while turns:
            tag, _, key = turns[0]
            if self._tags.get(key) != tag or key not in self._keys or key in self._blocked:
                self._remove_first()  # The key has another turn by now.
                continue
            wait_s = self._wait_s(key) if key else 0.0
            if not wait_s:
                self._current = key
                return self._keys[key]
            self._remove_first()
            self._block(key, self._now_s() + wait_s)
        return []

    @property
    def first(self) -> ItemT:
        """The call whose turn it is."""
        return self.heap[0][3]

    def put(self, item: ItemT, born_us: int, turn: Turn = NO_TURN) -> None:
        """Add a call."""
        key, priority = turn
        calls = self._keys.get(key)
        if calls is None:
            calls = self._keys[key] = []
        heapq.heappush(calls, (-priority, born_us, next(self._numbers), item))
        self._size += 1
        if len(calls) == 1:
            self._take_turn(key, max(self._time, self._tags.get(key, (0.0, 0.0))[0]))
        elif not self._fair and calls[0][3] is item:
            self._take_turn(key, 0.0)

    def take(self) -> tuple[ItemT, int]:
        """Remove and return the call that `first` has returned, and its birth: its key may be at its limit by now."""
        key = self._current
        calls, tag = self._keys[key], self._tags[key]
        _, born_us, _, item = heapq.heappop(calls)
        self._size -= 1
        self._time = max(self._time, tag[0])
        if calls:
            self._take_turn(key, tag[0] + 1)
        else:
            del self._keys[key]
            self._tags[key] = (tag[0] + 1, 0.0)
            if len(self._tags) > 2 * len(self._keys) + KEYS_MAX:
                # A key whose last turn is over joins the current round, remembered or not.
                self._tags = {each: last for each, last in self._tags.items() if each in self._keys}
        return item, born_us

    def unblock(self, key: str) -> None:
        """Let a key take turns again: a call of it has ended."""
        if self._blocked.pop(key, None) is not None and key in self._keys:
            self._take_turn(key, max(self._time, self._tags[key][0]))

    def unblock_due(self) -> None:
        """Let the keys take turns again whose rate admits a call."""
        now_s = self._now_s()
        while self._due and self._due[0][0] <= now_s:
            due_s, key = heapq.heappop(self._due)
            if self._blocked.get(key) == due_s:
                self.unblock(key)

    def soonest_s(self) -> float | None:
        """Return the seconds until the rate of a key admits its next call; None if no rate is in the way."""
        while self._due and self._blocked.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return max(0.0, self._due[0][0] - self._now_s()) if self._due else None

    def clear(self) -> None:
        """Remove all calls."""
        for each in (self._keys, self._tags, self._blocked):
            each.clear()
        self._turns.clear()
        self._due.clear()
        self._listed.clear()
        self._size = 0

    def _block(self, key: str, due_s: float) -> None:
        self._blocked[key] = due_s
        if due_s == math.inf:
            return
        heapq.heappush(self._due, (due_s, key))
        if len(self._due) > 2 * len(self._blocked) + KEYS_MAX:
            self._due = [(due_s, key) for key, due_s in self._blocked.items() if due_s < math.inf]
            heapq.heapify(self._due)

    def _take_turn(self, key: str, start: float) -> None:
        minus_priority, born_us, _, _ = self._keys[key][0]
        tag = (start, 0.0) if self._fair else (float(minus_priority), float(born_us))
        self._tags[key] = tag
        if (tag, key) not in self._listed:
            self._listed.add((tag, key))
            heapq.heappush(self._turns, (tag, next(self._numbers), key))

    def _remove_first(self) -> None:
        tag, _, key = heapq.heappop(self._turns)
        self._listed.discard((tag, key))
