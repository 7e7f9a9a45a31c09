"""Keys and audit log of a home in PostgreSQL: one row replaced by its revision, and a table of entries.

The tables are created by their first write, not by a migration of the store. An engine without a server never needs
them, and an older version of Interlock can still open the schema. Their columns need no later change: they hold
documents with a format of their own.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from datetime import datetime
from typing import cast

import msgspec

from interlock.errors import OutcomeUnknown, TransactionError, UnavailableError
from interlock.postgres.pool import Pool
from interlock.server.security.guard import AuditEntry, Trail
from interlock.server.security.keys import Document, Edit
from interlock.urls import parse_postgres_url

ATTEMPTS_MAX = 20
CONNECTIONS_MAX = 2
ENTRIES_MAX = 1_000_000
PRUNE_AT_ONCE = 10_000
DOCUMENT = "keys"

PRESENT = (
    "SELECT count(*) FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE nspname = $1 AND relname IN ('security_documents', 'security_audit')"
)
SCHEMA_PRESENT = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
TABLES = """
CREATE TABLE IF NOT EXISTS {schema}.security_documents (
    name text PRIMARY KEY,
    revision bigint NOT NULL,
    content bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.security_audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    at timestamptz NOT NULL,
    entry json NOT NULL
);
CREATE INDEX IF NOT EXISTS security_audit_at ON {schema}.security_audit (at);
"""


class _Tables:
    """A small pool of connections, and the tables, created when needed."""

    def __init__(self, url: str) -> None:
        address = parse_postgres_url(url)
        self.pool = Pool(address._replace(connections_max=min(CONNECTIONS_MAX, address.connections_max)))
        self.schema = address.schema
        self._present = False

    async def present(self) -> bool:
        """Return whether the tables exist; True is cached."""
        if not self._present:
            [(found,)] = await self.pool.read(PRESENT, self.schema)
            self._present = found == TABLES.count("CREATE TABLE")
        return self._present

    async def make(self) -> None:
        """Create the tables unless they exist. Raises UnavailableError for a user without the right."""
        if await self.present():
            return
        [(there,)] = await self.pool.read(SCHEMA_PRESENT, self.schema)
        # With an existing schema the user needs no right to create one, which PostgreSQL would still require.
        schema = "" if there else f"CREATE SCHEMA IF NOT EXISTS {self.schema};"
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('interlock security {self.schema}', 0));"
        try:
            async with self.pool.link() as link:
                await link.script(f"{lock}{schema}{TABLES.format(schema=self.schema)}")
        except TransactionError as error:
            raise UnavailableError(
                f"the tables of keys and audit could not be created in the schema {self.schema!r}: {error.what}",
                why="The user of the address may not create tables there.",
                fix="Run `interlock keys create` once with a user who may, and grant this user the tables security_*.",
            ) from error


class PostgresDocument(Document):
    """A document stored as a row."""

    def __init__(self, url: str) -> None:
        self._tables = _Tables(url)
        schema = self._tables.schema
        self._select = f"SELECT revision, content FROM {schema}.security_documents WHERE name = $1"
        self._insert = (
            f"INSERT INTO {schema}.security_documents (name, revision, content) VALUES ($1, 1, $2) "
            "ON CONFLICT (name) DO NOTHING RETURNING revision"
        )
        self._update = (
            f"UPDATE {schema}.security_documents SET content = $2, revision = revision + 1 "
            "WHERE name = $1 AND revision = $3 RETURNING revision"
        )

    async def read(self) -> bytes | None:
        """Return the newest content."""
        return (await self._load_row())[1] if await self._tables.present() else None

    async def change(self, edit: Edit) -> None:
        """Replace the content; retry after concurrent changes."""
        await self._tables.make()
        wanted: bytes | None = None
        for _ in range(ATTEMPTS_MAX):
            revision, content = await self._load_row()
            if wanted is not None and content == wanted:
                return  # The write whose outcome was unknown was carried out.
            wanted = edit(content)
            if await self._try_write(revision, wanted):
                return
        raise UnavailableError(
            f"the API keys were changed by others {ATTEMPTS_MAX} times in a row.",
            why="A change applies only to the newest document.",
            fix="Try again.",
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._tables.pool.close()

    async def _load_row(self) -> tuple[int | None, bytes | None]:
        rows = await self._tables.pool.read(self._select, DOCUMENT)
        return (int(rows[0][0]), bytes(rows[0][1])) if rows else (None, None)

    async def _try_write(self, revision: int | None, content: bytes) -> bool:
        try:
            if revision is None:
                return bool(await self._tables.pool.write(self._insert, (DOCUMENT, content)))
            return bool(await self._tables.pool.write(self._update, (DOCUMENT, content, revision)))
        except OutcomeUnknown:
            return False


class PostgresTrail(Trail):
    """Audit entries stored as rows."""

    def __init__(self, url: str, *, entries_max: int = ENTRIES_MAX) -> None:
        self._tables = _Tables(url)
        self._entries_max = entries_max
        table = f"{self._tables.schema}.security_audit"
        # Its id makes the insert idempotent: an entry whose outcome was unknown is written once.
        self._insert = (
            f"INSERT INTO {table} (id, at, entry) VALUES ($1, $2, $3::text::json) ON CONFLICT (id) DO NOTHING"
        )
        self._select = f"SELECT entry::text FROM {table} ORDER BY number DESC LIMIT $1"
        self._delete = (
            f"DELETE FROM {table} WHERE number IN (SELECT number FROM {table} "
            f"WHERE at < $1 OR number <= (SELECT max(number) FROM {table}) - $2 ORDER BY number LIMIT {PRUNE_AT_ONCE})"
        )

    async def append(self, entry: AuditEntry) -> None:
        """Write an entry; it is committed when this returns."""
        await self._tables.make()
        values = (entry.id, entry.at, msgspec.json.encode(entry).decode())
        try:
            await self._tables.pool.write(self._insert, values)
        except OutcomeUnknown:
            await self._tables.pool.write(self._insert, values)

    async def read(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        if not await self._tables.present():
            return []
        rows = await self._tables.pool.read(self._select, limit)
        return [msgspec.json.decode(cast("str", row[0]), type=AuditEntry) for row in rows]

    async def prune(self, before: datetime) -> None:
        """Delete entries before this time, and the oldest above the maximum."""
        if await self._tables.present():
            await self._tables.pool.write(self._delete, (before, self._entries_max))

    async def close(self) -> None:
        """Close the connections."""
        await self._tables.pool.close()
