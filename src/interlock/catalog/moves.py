"""The plan, progress and result of a move, in the types that every mover uses.

A move has stages, always in this order. Until the source has committed its tombstone nothing has moved, and the remains
of a mover are a draft that the next one continues or discards. From then on everything has moved, and the next one only
finishes. There is no third case (decision 0018).
"""

from collections.abc import Callable
from typing import Literal

import msgspec

Stage = Literal["watch", "copy", "catch up", "seal", "verify", "leave", "arrive", "enter", "done"]
"""`watch`: the source records changes from now on. `copy`: all existing rows. `catch up`: the recorded changes,
repeatedly, until few are left. `seal`: writers wait. `verify`: counts and checksums of both places agree.
`leave`: the source commits its tombstone, which decides. `arrive`: the target may be opened. `enter`: the catalog gets
the new address. `done`: no remains are left."""

Watch = Callable[[str, int, int], None]
"""Progress callback: the current work, the amount done, and the total (0: unknown)."""

At = Callable[[str], None]
"""Called at every point where a mover may die, with the name of the point: `copy/3`, `seal`, `leave/before`. Nothing in
production; tests end the mover there."""


def nowhere(_point: str) -> None:
    """The `At` of production."""


class Amount(msgspec.Struct, frozen=True):
    """The size of one table."""

    table: str
    rows: int
    bytes: int
    """As the copy counts them: bytes read from the source."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of a move, for `--dry-run`. Nothing was changed."""

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
    """Warnings: what is moved in addition, and what will be slower meanwhile."""

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(each.rows for each in self.amounts)

    @property
    def bytes(self) -> int:
        """Of all tables."""
        return sum(each.bytes for each in self.amounts)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a completed move."""

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
