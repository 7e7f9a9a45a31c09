"""The source of a move, as the mover uses it: rows, recorded changes, the seal and the tombstone.

A lane on a disk records changes and is sealed by a lock; one in a bucket is scanned, and sealed by a takeover.
The mover does not know which of them it has.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from interlock.errors import BadUsage
from interlock.lanes.objects.addresses import redacted
from interlock.store.moving.source import Source

Touched = tuple[int, str, tuple[object, ...]]
"""A note: its number, the table, and the key of what was written."""


class Left(NamedTuple):
    """The tombstone of a source."""

    url: str
    epoch: int


class Sealed(Protocol):
    """A source without writers. If it was not left, the end of the seal changes nothing."""

    source: Source

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone, durably: from now on the workflows live there."""
        ...


class Origin(Protocol):
    """A source of workflows, used while an engine serves them."""

    source: Source

    async def left(self) -> Left | None:
        """Return the new place of the workflows, if they have left."""
        ...

    async def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Note from now on what is written, also by others, until it is left or forgotten."""
        ...

    async def touched(self, after: int, limit: int) -> list[Touched]:
        """Return the changes after that number."""
        ...

    async def forget(self, upto: int) -> None:
        """Notes up to this one are not needed any more."""
        ...

    async def forget_all(self) -> None:
        """No move is under way any more."""
        ...

    def sealed(self) -> AbstractAsyncContextManager[Sealed]:
        """Block all writers during the context; they wait. The seal ends with the mover, also if it dies."""
        ...

    async def held_us(self) -> int:
        """Return how long an attempt at the source may still run, in microseconds; 0 without a live engine.

        Asked before it is left.
        """
        ...


def no_workflows(home: str) -> BadUsage:
    """The error for a home that has no workflows."""
    return BadUsage(
        f"there are no workflows at {redacted(home)}.",
        why="They live in the database `workflows` of the home that an engine was opened with.",
        fix="Name the home as the engine does: lanes:///var/shop.",
    )
