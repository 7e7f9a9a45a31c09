"""A queue in the order of age: of those who wait, the one whose workflow was started first comes first.

In the order of arrival every workflow would wait behind all newer ones at each of its steps: a thousand would be half
done before the first is. By age what was begun is finished first, and how long a workflow takes depends on those before
it alone.
"""

import heapq
import itertools
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Oldest(Generic[ItemT]):
    """Items with the time of their birth; those of one time in the order they came."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, ItemT]] = []
        """Looked at by those who ask often whether anybody waits."""
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """How many wait."""
        return len(self.heap)

    @property
    def first(self) -> ItemT:
        """The oldest."""
        return self.heap[0][2]

    @property
    def born_us(self) -> int:
        """When the oldest was born."""
        return self.heap[0][0]

    def put(self, item: ItemT, born_us: int) -> None:
        """Let it wait."""
        heapq.heappush(self.heap, (born_us, next(self._numbers), item))

    def take(self) -> tuple[ItemT, int]:
        """The oldest, which waits no more, and when it was born."""
        born_us, _, item = heapq.heappop(self.heap)
        return item, born_us

    def clear(self) -> None:
        """Nobody waits any more."""
        self.heap.clear()
