"""PostgreSQL as the target of a move.

The draft is in a schema of its own, beside the target schema, whose table `interlock_arriving` marks it and stores the
position of the copy. The same transaction writes rows and position, so its commit is asynchronous. The commit of noted
rows is synchronous, because the source then deletes the notes. The arrival is a rename: all tables change their schema
in one transaction.
"""

# ruff: noqa: S608 -- every name in these texts is our own, or quoted.

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec

from interlock.database.moving.ends import Draft, Pending
from interlock.database.moving.lane_rows import Page
from interlock.database.moving.offering import refuse_untaken
from interlock.database.moving.postgres_link import Linked, Mine, validate_references
from interlock.database.moving.postgres_numbering import set_postgres_positions
from interlock.database.moving.postgres_rows import (
    count_in_postgres,
    delete_in_postgres,
    empty_in_postgres,
    postgres_rows,
    postgres_rows_of,
    put_in_postgres,
    to_postgres,
)
from interlock.database.moving.shape import Shape, Table
from interlock.database.moving.values import StoredRow
from interlock.errors import BadUsage, InterlockError
from interlock.seams import Clock
from interlock.sql.postgres.leaving import (
    ARRIVED,
    ARRIVING,
    MOVED,
    OWN,
    TABLES_OF,
    Marks,
    arrive,
    draft,
    is_missing,
    marks_of,
    quoted,
)
from interlock.sql.postgres.turns import GATE

ALONE: Final = "SELECT pg_try_advisory_lock(hashtextextended('interlock route ' || $1, 0))"
"""Allows one mover at a time, for as long as its connection lives."""

TEMPORARY: Final = "pg_temp"
UNHURRIED: Final = "SET LOCAL synchronous_commit = off"
DURABLE: Final = "SET LOCAL synchronous_commit = on"


class PostgresTarget:
    """One schema."""

    def __init__(self, mine: Mine, link: Linked) -> None:
        self.shown = mine.address.shown
        self._schema = mine.address.schema
        self._link = link
        self._epoch = 0
        self._open = False

    @classmethod
    async def opened(cls, url: str, *, clock: Clock, only_look: bool) -> "PostgresTarget":
        """Connect; without `only_look` as the only mover here."""
        mine = Mine(url, clock)
        target = cls(mine, await mine.connected())
        try:
            if not only_look:
                await target._take()
        except BaseException:
            await target.close()
            raise
        return target

    @property
    def _place(self) -> str:
        return draft(self._schema, self._epoch)

    async def close(self) -> None:
        """End the connection."""
        await self._link.end()

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        marks = await self._marks()
        return max(marks.epoch, marks.arrived)

    async def _marks(self) -> Marks:
        return await marks_of(self._link.read, self._schema)

    async def _take(self) -> None:
        """Become the only mover here."""
        await self._link.take(ALONE, self._schema, self.shown)

    async def draft(self) -> Draft | None:
        """Return the draft that exists here; None without one."""
        marks = await self._marks()
        if not marks.arriving:
            return None
        self._epoch = marks.arriving
        try:
            [row] = await self._link.fetch(f"SELECT state FROM {self._mark()}")
        except InterlockError as error:
            if is_missing(error):
                return None  # It has arrived meanwhile.
            raise
        return msgspec.msgpack.decode(cast("bytes", row[0]), type=Draft)

    def _mark(self) -> str:
        return f"{quoted(self._schema)}.{ARRIVING}"

    async def refuse_taken(self) -> None:
        """Raise BadUsage when the schema has tables or used keys."""
        names = {str(row[0]) for row in await self._link.fetch(TABLES_OF, self._schema)}
        taken = sorted(names - {*OWN, MOVED, ARRIVING, ARRIVED})
        for name in sorted(names & {OWN[0]}):
            if (await self._link.fetch(f"SELECT 1 FROM {quoted(self._schema)}.{quoted(name)} LIMIT 1")) and not taken:
                taken.append(name)
        if taken:
            raise BadUsage(
                f"there is something at {self.shown} already: {', '.join(taken[:5])}.",
                why="A move brings a whole database, and mixes it with nothing.",
                fix="Name an unused schema: …?schema=stock.",
            )

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create the schema of the draft, its tables, and the mark."""
        before = quoted(self._place)  # The schema of a draft with an older epoch.
        self._epoch = draft.epoch
        here, there = quoted(self._schema), quoted(self._place)
        async with self._link.transaction():
            await self._link.execute(f"DROP SCHEMA IF EXISTS {before} CASCADE")
            await self._close_gate()
            await self._link.execute(f"CREATE SCHEMA IF NOT EXISTS {here}; DROP SCHEMA IF EXISTS {there} CASCADE")
            await self._link.execute(f"CREATE SCHEMA {there}; CREATE TABLE {there}.{GATE} ()")
            for table in shape.tables:
                await self._link.execute(table.first(self._place))
            await refuse_untaken(self._link, self._place, shape)
            await self._link.execute(f"DROP TABLE IF EXISTS {self._mark()}")
            await self._link.execute(f"CREATE TABLE {self._mark()} (epoch bigint, source text, state bytea)")
            mark = f"INSERT INTO {self._mark()} VALUES ($1, $2, $3)"
            _ = await self._link.fetch(mark, draft.epoch, draft.source, msgspec.msgpack.encode(draft))

    async def _close_gate(self) -> None:
        """Remove the gate, so that a client that had opened the empty place before cannot create tables there."""
        gate = f"{quoted(self._schema)}.{GATE}"
        [row] = await self._link.fetch("SELECT to_regclass($1) IS NOT NULL", gate)
        if row[0]:
            await self._link.execute(f"LOCK TABLE {gate} IN ACCESS EXCLUSIVE MODE")
            await self.refuse_taken()  # A table may have been created since the first check.
            await self._link.execute(f"DROP TABLE {gate}")

    async def resume(self, shape: Shape) -> None:
        """Continue with the committed rows. Drop the references of a mover that died at the end; they are remade."""
        async with self._link.transaction():
            for table in shape.tables:
                for reference in table.references:
                    await self._link.execute(
                        f"ALTER TABLE {quoted(self._place)}.{quoted(table.name)} "
                        f"DROP CONSTRAINT IF EXISTS {quoted(reference.name)}"
                    )

    async def _remember(self, draft: Draft) -> None:
        _ = await self._link.fetch(f"UPDATE {self._mark()} SET state = $1", msgspec.msgpack.encode(draft))

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Write rows and position in one transaction."""
        async with self._link.transaction(UNHURRIED):
            await to_postgres(self._link, self._place, table, rows)
            await self._remember(draft)

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[None]:
        """Run a transaction with a synchronous commit, which makes earlier ones durable before notes are deleted."""
        if self._open:
            yield
            return
        async with self._link.transaction(DURABLE):
            yield

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows. All their keys are removed first, so that unique values cannot collide."""
        async with self._transaction():
            for name, keys in pending.keys.items():
                await delete_in_postgres(self._link, self._place, shape.table(name), keys)
            for name, rows in pending.rows.items():
                await put_in_postgres(self._link, self._place, shape.table(name), rows)

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them."""
        async with self._transaction():
            if first:
                await empty_in_postgres(self._link, self._place, table)
            await to_postgres(self._link, self._place, table, rows)

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await postgres_rows_of(self._link, self._place, table, keys)

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await postgres_rows(self._link, self._place, table, after, limit=limit)

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await count_in_postgres(self._link, self._place, table)

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Create unique constraints and indexes, and collect statistics."""
        async with self._link.transaction():
            for table in shape.tables:
                for sql in table.after(self._place):
                    await self._link.execute(sql)
            await self._remember(draft)
        for table in shape.tables:
            await self._link.execute(f"ANALYZE {quoted(self._place)}.{quoted(table.name)}")

    @asynccontextmanager
    async def last(self) -> AsyncGenerator[None]:
        """Open a synchronously committed transaction, which makes all earlier ones durable."""
        async with self._link.transaction(DURABLE):
            self._open = True
            try:
                yield
            finally:
                self._open = False

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """Create references, set the numbering, and record the verified checksum."""
        for table in shape.tables:
            for sql in table.last(self._place):
                await self._link.execute(sql)
        await set_postgres_positions(self._link, self._place, shape, positions)
        await self._remember(draft)

    async def arrive(self, epoch: int) -> None:
        """Move all tables into the target schema in one transaction."""
        async with self._link.transaction():
            if not await arrive(self._link, self._schema, epoch):
                await self._link.rollback()

    async def finish(self) -> None:
        """Validate the references; writers do not wait for it."""
        await validate_references(self._link, self._schema)

    @asynccontextmanager
    async def sample(self, table: Table) -> "AsyncGenerator[_Sample]":
        """Create a temporary table, which is dropped at the end of the block."""
        async with self._link.transaction(UNHURRIED):
            await self._link.execute(table.first(TEMPORARY))
            yield _Sample(self._link, table)
            await self._link.rollback()

    async def drop(self) -> None:
        """Remove the draft."""
        if await self.draft() is None:
            return
        async with self._link.transaction():
            await self._link.execute(f"DROP SCHEMA IF EXISTS {quoted(self._place)} CASCADE; DROP TABLE {self._mark()}")
            if OWN[0] in {str(row[0]) for row in await self._link.fetch(TABLES_OF, self._schema)}:
                await self._link.execute(f"CREATE TABLE {quoted(self._schema)}.{GATE} ()")


class _Sample:
    """Rows in a temporary table."""

    def __init__(self, link: Linked, table: Table) -> None:
        self._link = link
        self._table = table

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Add rows."""
        await to_postgres(self._link, TEMPORARY, self._table, rows)

    async def read(self, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await postgres_rows_of(self._link, TEMPORARY, self._table, keys)
