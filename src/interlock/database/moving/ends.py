"""The two ends of a move, as the stages see them: where a database is, and where it goes.

An end knows its engine; the stages know the order of things. Rows travel in the form in which a lane stores them
(`values`). What a source tells while it serves may be a moment old by the time it is used: everything that is written
from `watch` on is noted, and what is noted is fetched again, as it is then.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from interlock.catalog.moves import Amount
from interlock.database.moving.lane_rows import Page
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.values import StoredRow


class Restart(Exception):
    """The source is not what it was when the copy began: its schema was changed, or a table emptied at one stroke."""


class Pending(msgspec.Struct):
    """What was written and not yet brought over: keys, and their rows as they were at one instant."""

    notes: int
    keys: dict[str, list[StoredRow]]
    rows: dict[str, list[StoredRow]]
    """By table; a key without a row was deleted."""
    complete: bool
    """Whether these are all keys that were noted by then: only so no two of their rows can be in each other's way."""
    numbers: Sequence[int] = ()
    """Of the notes, for the source."""

    @property
    def count(self) -> int:
        """How many keys."""
        return sum(map(len, self.keys.values()))


class Draft(msgspec.Struct):
    """What the target remembers of a move that is under way."""

    epoch: int
    source: str
    """As it may be shown."""
    watched: str
    """What the source's schema was when the copy began."""
    after: dict[str, bytes] = {}
    """How far each table is copied: the last key, packed."""
    copied: tuple[str, ...] = ()
    """Tables that are copied to their end."""
    indexed: bool = False
    amounts: tuple[Amount, ...] = ()
    checksum: str = ""
    """Known once both places were verified."""


class Reading(Protocol):
    """What can be read of a source, while it serves or while it is sealed."""

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Rows in the order of the key."""
        ...

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """The oldest of what was noted, and the rows. Raises Restart when that cannot be caught up with."""
        ...

    async def count(self, table: Table) -> int:
        """How many rows there are."""
        ...

    async def fingerprint(self) -> str:
        """What the schema is, with the triggers that watch it: the same as long as nobody changes it."""
        ...


class Sealed(Reading, Protocol):
    """A source that nobody writes to, for as long as the mover lives and stays in the block."""

    @property
    def since_s(self) -> float:
        """Since when writers may have waited, by the monotonic clock."""
        ...

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Where the numbering of each table goes on."""
        ...

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone and commit: this decides. Raises when it has not happened, or nobody can know."""
        ...


class Source(Reading, Protocol):
    """Where a database is."""

    @property
    def shown(self) -> str:
        """Its address, without its secrets."""
        ...

    async def take(self) -> None:
        """Be the only mover that leaves here, wherever to: what one has brought over is forgotten for all of them."""
        ...

    async def moved(self) -> tuple[str, int] | None:
        """Its tombstone."""
        ...

    async def last_epoch(self) -> int:
        """Of the last move that ended or began here; 0 if there was none."""
        ...

    async def shape(self) -> Shape:
        """What is to be moved. Raises BadUsage or DialectError for what cannot be."""
        ...

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """How much each table weighs, nearly."""
        ...

    async def watch(self, shape: Shape) -> None:
        """Note what is written from now on; again changes nothing."""
        ...

    async def noted(self, table: Table) -> set[StoredRow]:
        """The keys of one table that are noted and not yet forgotten."""
        ...

    async def forget(self, pending: Pending) -> None:
        """These were brought over."""
        ...

    async def unwatch(self) -> None:
        """Note nothing any more, and forget everything."""
        ...

    def sealed(self, wait_s: float) -> AbstractAsyncContextManager[Sealed]:
        """Writers wait. Leaving the block without `leave` lets them go on, and nothing has happened."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...


class Sample(Protocol):
    """A place to try how fast rows are written and read, which is gone afterwards."""

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Add rows."""
        ...

    async def read(self, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """The rows with these keys."""
        ...


class Target(Protocol):
    """Where a database goes."""

    @property
    def shown(self) -> str:
        """Its address, without its secrets."""
        ...

    async def last_epoch(self) -> int:
        """Of the last move that ended or began here; 0 if there was none."""
        ...

    async def draft(self) -> Draft | None:
        """The draft that is there."""
        ...

    async def refuse_taken(self) -> None:
        """Raise BadUsage when there is something that is no draft of ours and has not moved away."""
        ...

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Make a draft, in the place of one that may be there."""
        ...

    async def resume(self, shape: Shape) -> None:
        """Go on with the draft that is there."""
        ...

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Add rows that are not there yet, and remember how far it is, in one transaction."""
        ...

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Bring over what was written: rows with these keys are replaced. A transaction of its own, or of `last`."""
        ...

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Put these rows in the place of all, or add them to those of the call before."""
        ...

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """The rows that have one of these keys."""
        ...

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Rows in the order of the key."""
        ...

    async def count(self, table: Table) -> int:
        """How many rows there are."""
        ...

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Make what comes after the rows, while the source still serves."""
        ...

    def last(self) -> AbstractAsyncContextManager[None]:
        """The last transaction: when the block ends everything in the draft is durable."""
        ...

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Inside `last`: what remains to be made, and what is now known."""
        ...

    async def arrive(self, epoch: int) -> None:
        """The source has left: the draft is the database now. Again changes nothing."""
        ...

    async def finish(self) -> None:
        """What can wait until nobody does: a look at what was taken on trust."""
        ...

    def sample(self, table: Table) -> AbstractAsyncContextManager[Sample]:
        """Something like the table, to try out how fast it is; nothing of it remains."""
        ...

    async def drop(self) -> None:
        """Remove the draft, and nothing else."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...
