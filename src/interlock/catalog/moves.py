"""What is said of a move: what it would take, how far it is, and what it was. Every mover speaks in these words.

A move has stages, always in this order. Until the source has committed its tombstone nothing has moved, and whatever a
mover leaves behind is a draft that the next one goes on with or throws away; from then on everything has moved, and the
next one only finishes. There is no third case (decision 0018).
"""

from collections.abc import Callable
from typing import Literal

import msgspec

Stage = Literal["watch", "copy", "catch up", "seal", "verify", "leave", "arrive", "enter", "done"]
"""`watch`: the source notes what is written from now on. `copy`: everything that is there. `catch up`: what was noted,
again and again, until little is left. `seal`: writers wait. `verify`: counts and checksums of both places agree.
`leave`: the source commits its tombstone, which decides. `arrive`: the target may be opened. `enter`: the catalog is
told. `done`: nothing is left behind."""

Watch = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is (0: nobody knows)."""

At = Callable[[str], None]
"""Called at every point where a mover may die, with the name of the point: `copy/3`, `seal`, `leave/before`. Nothing in
production; tests end the mover there."""


def nowhere(_point: str) -> None:
    """The `At` of production."""


class Amount(msgspec.Struct, frozen=True):
    """How much of one table there is."""

    table: str
    rows: int
    bytes: int
    """As the copy counts them: what is read from the source."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a move would be: the answer to `--dry-run`. Nothing was changed to find it out."""

    name: str
    source: str
    """Addresses are shown without their secrets."""
    target: str
    epoch: int
    """The number that the move would have: every move of one thing has a higher one."""
    amounts: tuple[Amount, ...]
    copy_s: float
    """Expected, measured on a sample of this source and this target."""
    seal_ms: float
    notes: tuple[str, ...] = ()
    """What a person should know before: what comes along that was not named, what will be slower meanwhile."""

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(each.rows for each in self.amounts)

    @property
    def bytes(self) -> int:
        """Of all tables."""
        return sum(each.bytes for each in self.amounts)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is over."""

    name: str
    source: str
    target: str
    epoch: int
    amounts: tuple[Amount, ...]
    checksum: str
    """Of everything that was moved, the same at both places."""
    copy_s: float
    seal_ms: float
    """How long writers waited."""
    resumed: bool = False
    """It was begun by a mover that did not finish it."""

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(each.rows for each in self.amounts)
