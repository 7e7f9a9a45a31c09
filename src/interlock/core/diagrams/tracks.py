"""Tracks between two rows, in which arrows change sides.

Each arrow that does not go straight runs down to a track of its own, along it, and down again. The order of the tracks
determines how many arrows cross, so each pair has a price and every arrow is put where it costs least.

The invariant: two arrows that overlap across the flow never share a track. The odd choice is that above a limit the
arrows are only sorted and not searched: in such a crowd no reader can follow a single arrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# Closer than this, two lines look like one.
_CLEARANCE = 7.0
_OVERLAP_PRICE = 3
_SEARCH_MAX = 60


@dataclass(frozen=True, slots=True)
class Turn:
    """An arrow between two rows: where it comes from and where it goes, across the flow."""

    chain: int
    start: float
    end: float

    @property
    def low(self) -> float:
        """The smaller of its two ends."""
        return min(self.start, self.end)

    @property
    def high(self) -> float:
        """The larger of its two ends."""
        return max(self.start, self.end)


def assign_tracks(turns: Sequence[Turn]) -> dict[int, int]:
    """Return the track of each chain that turns, counted from the upper row."""
    ordered = sorted(turns, key=_outermost_first)
    if len(ordered) <= _SEARCH_MAX:
        ordered = _searched(ordered)
    tracks: dict[int, int] = {}
    for index, turn in enumerate(ordered):
        above = [tracks[other.chain] for other in ordered[:index] if _meet(turn, other)]
        tracks[turn.chain] = max(above, default=-1) + 1
    return tracks


def _outermost_first(turn: Turn) -> tuple[bool, float]:
    rightwards = turn.end > turn.start
    return rightwards, -turn.start if rightwards else turn.start


def _searched(turns: Sequence[Turn]) -> list[Turn]:
    """Insert one turn after the other where it costs least among those already there."""
    ordered: list[Turn] = []
    for turn in turns:
        price = lowest = sum(_price(turn, other) for other in ordered)
        best = 0
        for index, other in enumerate(ordered):
            price += _price(other, turn) - _price(turn, other)
            if price < lowest:
                best, lowest = index + 1, price
        ordered.insert(best, turn)
    return ordered


def _price(upper: Turn, lower: Turn) -> int:
    """Return the price of one turn above another: crossings, and lines that would lie on each other."""
    crossings = (upper.low < lower.start < upper.high) + (lower.low < upper.end < lower.high)
    return crossings + _OVERLAP_PRICE * (abs(upper.end - lower.start) < _CLEARANCE)


def _meet(one: Turn, other: Turn) -> bool:
    return one.low < other.high + _CLEARANCE and other.low < one.high + _CLEARANCE
