"""Where workflows are moved from, as a mover sees it: what it reads, what it is told of, and how it ends.

A lane on a disk notes what is written and is sealed by a lock; one in a bucket is looked at, and sealed by a takeover.
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
    """A source that nobody writes to. What is not left is as it was when the seal ends."""

    source: Source

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone, durably: from now on the workflows live there."""
        ...


class Origin(Protocol):
    """A source of workflows, beside whoever serves them."""

    source: Source

    async def left(self) -> Left | None:
        """Where the workflows have gone, if they have."""
        ...

    async def watch(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Note from now on what is written, also by others, until it is left or forgotten."""
        ...

    async def touched(self, after: int, limit: int) -> list[Touched]:
        """What was written, behind that note."""
        ...

    async def forget(self, upto: int) -> None:
        """Notes up to this one are not needed any more."""
        ...

    async def forget_all(self) -> None:
        """No move is under way any more."""
        ...

    def sealed(self) -> AbstractAsyncContextManager[Sealed]:
        """Nobody writes meanwhile: those who want to wait. It ends with the mover, whatever ends that."""
        ...

    async def held_us(self) -> int:
        """How long an attempt may go on elsewhere that nobody there knows to be too late; 0 where nobody is alive.

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
