"""Protocols of the source and the target of a move.

An end knows its engine; the stages know the order of the calls. Rows travel in the form in which a lane stores them
(`values`). Rows of a serving source may be outdated when they are used: from `watch` on every write is noted, and
noted rows are fetched again.
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
    """The schema of the source was changed since the copy began, or a table was truncated."""


class Pending(msgspec.Struct):
    """Noted keys that were not yet copied, with their rows at one instant."""

    notes: int
    keys: dict[str, list[StoredRow]]
    rows: dict[str, list[StoredRow]]
    """Rows by table; a key without a row was deleted."""
    complete: bool
    """Whether these are all keys noted by then: only then their rows cannot collide in unique values."""
    numbers: Sequence[int] = ()
    """Numbers of the notes, for the source."""

    @property
    def count(self) -> int:
        """Return the number of keys."""
        return sum(map(len, self.keys.values()))


class Draft(msgspec.Struct):
    """State of a running move, stored at the target."""

    epoch: int
    source: str
    """The source's address without secrets."""
    watched: str
    """Fingerprint of the source's schema when the copy began."""
    after: dict[str, bytes] = {}
    """The last copied key of each table, packed."""
    copied: tuple[str, ...] = ()
    """Tables that are copied completely."""
    indexed: bool = False
    amounts: tuple[Amount, ...] = ()
    checksum: str = ""
    """Set after both places were verified."""


class Reading(Protocol):
    """Reads of a source, while it serves or while it is sealed."""

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        ...

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows. Raises Restart when the schema was changed or a table truncated."""
        ...

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        ...

    async def fingerprint(self) -> str:
        """Return a digest of the schema and its triggers: it changes with every change of the schema."""
        ...


class Sealed(Reading, Protocol):
    """A source whose writers are blocked, as long as the mover lives and stays in the block."""

    @property
    def since_s(self) -> float:
        """Start of the seal, by the monotonic clock."""
        ...

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Return the last number of each numbered table."""
        ...

    async def leave(self, url: str, epoch: int) -> None:
        """Write the tombstone and commit: this decides. Raises when it has not happened or the outcome is unknown."""
        ...


class Source(Reading, Protocol):
    """The place that a database leaves."""

    @property
    def shown(self) -> str:
        """Return its address without secrets."""
        ...

    async def take(self) -> None:
        """Become the only mover of this source, for any target: notes are deleted for all movers."""
        ...

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        ...

    async def last_epoch(self) -> int:
        """Return the epoch of the last move that ended or began here; 0 if there was none."""
        ...

    async def shape(self) -> Shape:
        """Return the shape of the database. Raises BadUsage or DialectError for what cannot be moved."""
        ...

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """Estimate the bytes of each table."""
        ...

    async def watch(self, shape: Shape) -> None:
        """Note the key of every write from now on. A second call changes nothing."""
        ...

    async def noted(self, table: Table) -> set[StoredRow]:
        """Return the keys of one table that are noted and not yet forgotten."""
        ...

    async def forget(self, pending: Pending) -> None:
        """Delete these notes: their rows were copied."""
        ...

    async def unwatch(self) -> None:
        """Stop noting writes, and delete all notes."""
        ...

    def sealed(self, wait_s: float) -> AbstractAsyncContextManager[Sealed]:
        """Block writers. Leaving the block without `leave` lets them continue, and nothing has happened."""
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
        """Return the rows with these keys."""
        ...


class Target(Protocol):
    """The place to which a database moves."""

    @property
    def shown(self) -> str:
        """Return its address without secrets."""
        ...

    async def last_epoch(self) -> int:
        """Return the epoch of the last move that ended or began here; 0 if there was none."""
        ...

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        ...

    async def refuse_taken(self) -> None:
        """Raise BadUsage when the place has data that is neither our draft nor left by a move."""
        ...

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create a draft; an existing one is replaced."""
        ...

    async def resume(self, shape: Shape) -> None:
        """Continue with the existing draft."""
        ...

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Add new rows, and record the position, in one transaction."""
        ...

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows, replacing those with the same keys. In its own transaction, or in that of `last`."""
        ...

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them to those of the previous call."""
        ...

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        ...

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        ...

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        ...

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Create indexes and constraints after the rows, while the source still serves."""
        ...

    def last(self) -> AbstractAsyncContextManager[None]:
        """Open the last transaction: when the block ends, the draft is durable."""
        ...

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Create the rest inside `last`, set the numbering, and record the checksum."""
        ...

    async def arrive(self, epoch: int) -> None:
        """Make the draft the database, after the source has left. A second call changes nothing."""
        ...

    async def finish(self) -> None:
        """Validate the constraints that were not checked during the seal."""
        ...

    def sample(self, table: Table) -> AbstractAsyncContextManager[Sample]:
        """Create a temporary copy of the table for measurements."""
        ...

    async def drop(self) -> None:
        """Remove the draft only."""
        ...

    async def close(self) -> None:
        """Give everything up."""
        ...
