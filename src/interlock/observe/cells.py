"""Histograms that are cheap to add to: a list of counts and a sum for each set of labels.

A group adds all its transitions of one kind in one call, because they became durable together. The libraries of
exporters look up a child, take a lock and walk the buckets for each value, which takes eight times as long.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf

LABELS_MAX = 10_000
"""Sets of labels of one histogram (G6). Names come from definitions and stay below; further sets become one set."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0)


class Cell:
    """One histogram: `counts` has one more entry than there are bounds, for values beyond the last."""

    __slots__ = ("counts", "max", "min", "sum")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.sum = 0.0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset the minimum and the maximum."""
        self.min, self.max = inf, -inf


class Cells:
    """A histogram for each set of labels."""

    def __init__(self, bounds: Sequence[float], labels: int) -> None:
        self.bounds = tuple(bounds)
        self._other = ("other",) * labels
        self._cells: dict[tuple[str, ...], Cell] = {}

    def add(self, labels: tuple[str, ...], value: float, count: int = 1) -> None:
        """Add a value `count` times."""
        cell = self._cells.get(labels) or self._new(labels)
        cell.counts[bisect_left(self.bounds, value)] += count
        cell.sum += value * count
        # A call of min() takes three times as long, and this is the hot path.
        if value < cell.min:  # noqa: PLR1730
            cell.min = value
        if value > cell.max:  # noqa: PLR1730
            cell.max = value

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Cell]]:
        """Iterate over the sets of labels with their histograms. From any thread."""
        return iter(list(self._cells.items()))

    def _new(self, labels: tuple[str, ...]) -> Cell:
        if len(self._cells) >= LABELS_MAX:
            labels = self._other
        return self._cells.setdefault(labels, Cell(len(self.bounds)))
