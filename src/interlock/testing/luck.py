"""Luck from a seed, in the forms that simulations draw it in."""

from collections.abc import Sequence
from typing import TypeVar

from interlock.seams import Chance, SystemChance

ItemT = TypeVar("ItemT")


class Luck:
    """Draws from one source of luck."""

    def __init__(self, seed: int) -> None:
        self.chance: Chance = SystemChance(seed)

    def often(self, share: float) -> bool:
        """True in that share of all cases."""
        return self.chance.fraction() < share

    def between(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        return low + (high - low) * self.chance.fraction()

    def count(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.chance.fraction() * (high - low + 1))

    def one(self, items: Sequence[ItemT]) -> ItemT:
        """One of them."""
        return items[int(self.chance.fraction() * len(items))]

    def number(self) -> int:
        """A seed for something else."""
        return int(self.chance.fraction() * 2**53)
