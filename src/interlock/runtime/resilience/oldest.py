"""A priority queue by age: the workflow that was started first comes first.

In the order of arrival every workflow would wait after all newer ones at each of its steps: a thousand would be half
done before the first ends. By age the oldest finish first, and a workflow's time depends only on older ones.
"""

import heapq
import itertools
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Oldest(Generic[ItemT]):
    """Items with their birth; items of the same birth in the order of arrival."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, ItemT]] = []
        """Public, because callers often check whether it is empty."""
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return len(self.heap)

    @property
    def first(self) -> ItemT:
        """The oldest item."""
        return self.heap[0][2]

    @property
    def born_us(self) -> int:
        """The birth of the oldest item."""
        return self.heap[0][0]

    def put(self, item: ItemT, born_us: int) -> None:
        """Add an item."""
        heapq.heappush(self.heap, (born_us, next(self._numbers), item))

    def take(self) -> tuple[ItemT, int]:
        """Remove and return the oldest item and its birth."""
        born_us, _, item = heapq.heappop(self.heap)
        return item, born_us

    def clear(self) -> None:
        """Remove all items."""
        self.heap.clear()
