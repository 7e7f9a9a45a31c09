"""PostgreSQL as the place where a database arrives.

The draft is in a schema of its own, beside the one that it is for, and `interlock_arriving` in that one says so and
remembers how far the copy is: the same transaction writes rows and position, so its commit need not be waited for. That
of rows which were noted is: once they are there, the source forgets the notes. To arrive is to rename: every table
changes its schema at once.
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
"""One mover at a time, for as long as its connection lives."""

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
        """Connect; unless it is only looked at, as the only mover here."""
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
        """Of the last move."""
        marks = await self._marks()
        return max(marks.epoch, marks.arrived)

    async def _marks(self) -> Marks:
        return await marks_of(self._link.read, self._schema)

    async def _take(self) -> None:
        """Be the only mover here."""
        await self._link.take(ALONE, self._schema, self.shown)

    async def draft(self) -> Draft | None:
        """The draft that is there."""
        marks = await self._marks()
        if not marks.arriving:
            return None
        self._epoch = marks.arriving
        try:
            [row] = await self._link.fetch(f"SELECT state FROM {self._mark()}")
        except InterlockError as error:
            if is_missing(error):
                return None  # It has arrived since the look.
            raise
        return msgspec.msgpack.decode(cast("bytes", row[0]), type=Draft)

    def _mark(self) -> str:
        return f"{quoted(self._schema)}.{ARRIVING}"

    async def refuse_taken(self) -> None:
        """Raise BadUsage when tables are there, or keys that somebody has used."""
        names = {str(row[0]) for row in await self._link.fetch(TABLES_OF, self._schema)}
        taken = sorted(names - {*OWN, MOVED, ARRIVING, ARRIVED})
        for name in sorted(names & {OWN[0]}):
            if (await self._link.fetch(f"SELECT 1 FROM {quoted(self._schema)}.{quoted(name)} LIMIT 1")) and not taken:
                taken.append(name)
        if taken:
            raise BadUsage(
                f"there is something at {self.shown} already: {', '.join(taken[:5])}.",
                why="A move brings a whole database, and mixes it with nothing.",
                fix="Name a schema that nobody has used: …?schema=stock.",
            )

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Make the schema of the draft, its tables, and the mark."""
        before = quoted(self._place)  # Of a draft under another epoch, which was overtaken.
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
        """Whoever has the empty place open from before finds no gate any more, so no table is made there."""
        gate = f"{quoted(self._schema)}.{GATE}"
        [row] = await self._link.fetch("SELECT to_regclass($1) IS NOT NULL", gate)
        if row[0]:
            await self._link.execute(f"LOCK TABLE {gate} IN ACCESS EXCLUSIVE MODE")
            await self.refuse_taken()  # A table may have been made since the first look.
            await self._link.execute(f"DROP TABLE {gate}")

    async def resume(self, shape: Shape) -> None:
        """What is committed is there; references of a mover that died at the very end go until they come again."""
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
        """Rows and position in one transaction."""
        async with self._link.transaction(UNHURRIED):
            await to_postgres(self._link, self._place, table, rows)
            await self._remember(draft)

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[None]:
        """Its commit is waited for, and all before it with it: the source forgets what was brought over."""
        if self._open:
            yield
            return
        async with self._link.transaction(DURABLE):
            yield

    async def put(self, shape: Shape, pending: Pending) -> None:
        """All keys are removed first, so that no row is in another's way."""
        async with self._transaction():
            for name, keys in pending.keys.items():
                await delete_in_postgres(self._link, self._place, shape.table(name), keys)
            for name, rows in pending.rows.items():
                await put_in_postgres(self._link, self._place, shape.table(name), rows)

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Put these rows in the place of all, or add them."""
        async with self._transaction():
            if first:
                await empty_in_postgres(self._link, self._place, table)
            await to_postgres(self._link, self._place, table, rows)

    async def rows_of(self, table: Table, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """The rows that have one of these keys."""
        return await postgres_rows_of(self._link, self._place, table, keys)

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Rows in the order of the key."""
        return await postgres_rows(self._link, self._place, table, after, limit=limit)

    async def count(self, table: Table) -> int:
        """How many rows there are."""
        return await count_in_postgres(self._link, self._place, table)

    async def index(self, shape: Shape, draft: Draft) -> None:
        """Unique constraints and indexes, and statistics for whoever comes first."""
        async with self._link.transaction():
            for table in shape.tables:
                for sql in table.after(self._place):
                    await self._link.execute(sql)
            await self._remember(draft)
        for table in shape.tables:
            await self._link.execute(f"ANALYZE {quoted(self._place)}.{quoted(table.name)}")

    @asynccontextmanager
    async def last(self) -> AsyncGenerator[None]:
        """A commit that is waited for, and with it all before it."""
        async with self._link.transaction(DURABLE):
            self._open = True
            try:
                yield
            finally:
                self._open = False

    async def complete(self, shape: Shape, positions: Mapping[str, int], draft: Draft) -> None:
        """References, numbering, and what was verified."""
        for table in shape.tables:
            for sql in table.last(self._place):
                await self._link.execute(sql)
        await set_postgres_positions(self._link, self._place, shape, positions)
        await self._remember(draft)

    async def arrive(self, epoch: int) -> None:
        """All tables change their schema at once."""
        async with self._link.transaction():
            if not await arrive(self._link, self._schema, epoch):
                await self._link.rollback()

    async def finish(self) -> None:
        """Look at the references that were taken on trust; writers do not wait for it."""
        await validate_references(self._link, self._schema)

    @asynccontextmanager
    async def sample(self, table: Table) -> "AsyncGenerator[_Sample]":
        """A temporary table, which nobody else sees and which is gone at the end of the block."""
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
        """The rows with these keys."""
        return await postgres_rows_of(self._link, TEMPORARY, self._table, keys)
