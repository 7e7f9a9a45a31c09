"""The values of a counter's shards, and their skew (D5): whether adds spread evenly."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a counter at one moment; `values[3]` is what shard 3 holds."""

    values: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of all shards: the counter's value without its row and its log."""
        return sum(self.values)

    @property
    def skew(self) -> float:
        """The largest shard compared with the mean: 1.0 is even; as many as there are shards means one holds all.

        Sizes are compared without their signs, because a shard may have taken back more than was added to it.
        """
        sizes = [abs(value) for value in self.values]
        return max(sizes) * len(sizes) / sum(sizes) if any(sizes) else 1.0
