"""Seeded random draws for simulations."""

from collections.abc import Sequence
from typing import TypeVar

from interlock.seams import Chance, SystemChance

ItemT = TypeVar("ItemT")


class Luck:
    """Draws from one seeded source."""

    def __init__(self, seed: int) -> None:
        self.chance: Chance = SystemChance(seed)

    def often(self, share: float) -> bool:
        """Return True with this probability."""
        return self.chance.fraction() < share

    def between(self, low: float, high: float) -> float:
        """Return a number from `low` up to `high`."""
        return low + (high - low) * self.chance.fraction()

    def count(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self.chance.fraction() * (high - low + 1))

    def one(self, items: Sequence[ItemT]) -> ItemT:
        """Return one of the items."""
        return items[int(self.chance.fraction() * len(items))]

    def number(self) -> int:
        """Return a seed for another source."""
        return int(self.chance.fraction() * 2**53)
