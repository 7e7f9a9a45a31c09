"""The catalog of a home in PostgreSQL: a table beside the workflows, made when the first entry is written.

It is separate from the store's migrations: names of a home without a catalog have their default addresses, and an older
version of Interlock still opens a schema that has one. The rule of `entries` is the statement's own condition, so
writers need no coordination: the higher epoch wins in any order.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from interlock.catalog.entries import Entry, Kind, newer
from interlock.errors import CorruptionError, OutcomeUnknown, TransactionError, UnavailableError
from interlock.postgres.connection import Record
from interlock.postgres.pool import Pool
from interlock.urls import parse_postgres_url

TABLE: Final = "interlock_catalog"

PRESENT = "SELECT to_regclass($1) IS NOT NULL"
SCHEMA_PRESENT = "SELECT to_regnamespace($1) IS NOT NULL"
CREATE = f"""
CREATE TABLE IF NOT EXISTS {{schema}}.{TABLE} (
    kind text NOT NULL,
    name text NOT NULL,
    url text NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0),
    PRIMARY KEY (kind, name)
);
"""


class PostgresCatalog:
    """The catalog in a schema."""

    def __init__(self, home: str) -> None:
        address = parse_postgres_url(home)
        self._address = address._replace(connections_max=1)
        self._schema = address.schema
        self._table = f"{address.schema}.{TABLE}"

    async def names(self, kind: Kind) -> dict[str, Entry]:
        """Return all entries of one kind."""
        async with self._pool() as pool:
            if not await self._is_there(pool):
                return {}
            rows = await pool.read(f"SELECT name, url, epoch FROM {self._table} WHERE kind = $1 ORDER BY name", kind)
            return dict(sorted((str(row[0]), self._decoded(row[1], row[2])) for row in rows))

    async def entry(self, name: str, kind: Kind) -> Entry | None:
        """Return the entry of a name; None without one."""
        async with self._pool() as pool:
            return await self._found(pool, name, kind) if await self._is_there(pool) else None

    async def enter(self, name: str, entry: Entry, kind: Kind) -> Entry:
        """Write an entry unless there is a higher epoch; return the entry with the highest."""
        async with self._pool() as pool:
            await self._make(pool)
            try:
                await self._write(pool, name, entry, kind)
            except OutcomeUnknown:
                await self._write(pool, name, entry, kind)  # Idempotent.
            found = await self._found(pool, name, kind)
        return entry if found is None else newer(name, found, entry)

    async def _write(self, pool: Pool, name: str, entry: Entry, kind: Kind) -> None:
        _ = await pool.write(
            f"INSERT INTO {self._table} AS known (kind, name, url, epoch) VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (kind, name) DO UPDATE SET url = excluded.url, epoch = excluded.epoch "
            "WHERE known.epoch < excluded.epoch",
            (kind, name, entry.url, entry.epoch),
        )

    async def _found(self, pool: Pool, name: str, kind: Kind) -> Entry | None:
        rows: list[Record] = await pool.read(
            f"SELECT url, epoch FROM {self._table} WHERE kind = $1 AND name = $2", kind, name
        )
        return self._decoded(rows[0][0], rows[0][1]) if rows else None

    def _decoded(self, url: object, epoch: object) -> Entry:
        try:
            return msgspec.convert({"url": url, "epoch": epoch}, Entry)
        except msgspec.ValidationError as error:
            raise CorruptionError(
                f"the catalog {self._table} of {self._address.shown} cannot be read: {error}.",
                why="Something else has written to the table, or changed it.",
                fix="Put the row back. The databases themselves are whole, and open by their URLs.",
            ) from error

    async def _is_there(self, pool: Pool) -> bool:
        [(there,)] = await pool.read(PRESENT, self._table)
        return bool(there)

    async def _make(self, pool: Pool) -> None:
        if await self._is_there(pool):
            return
        [(there,)] = await pool.read(SCHEMA_PRESENT, self._schema)
        # Where the schema is there the user needs no right to make one, which PostgreSQL would ask for all the same.
        schema = "" if there else f"CREATE SCHEMA IF NOT EXISTS {self._schema};"
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('interlock catalog {self._schema}', 0));"
        try:
            async with pool.link() as link:
                await link.script(f"{lock}{schema}{CREATE.format(schema=self._schema)}")
        except TransactionError as error:
            raise UnavailableError(
                f"the table {self._table} could not be made: {error.what}",
                why="The user of the home's address may not make tables there.",
                fix="Run `interlock route` once as a user with that right, and grant this user the table.",
            ) from error

    @contextlib.asynccontextmanager
    async def _pool(self) -> AsyncGenerator[Pool]:
        # A catalog is read when something is opened, and then not for a long time: it keeps no connection.
        pool = Pool(self._address)
        try:
            yield pool
        finally:
            await pool.close()
