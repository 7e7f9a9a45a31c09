"""Migrations of a schema: numbered files, each applied once, all under one lock.

A schema is migrated in one transaction, which holds an advisory lock of its own: of many processes that start together
one applies and the others find everything done. What was applied is recorded with the digest of its file. A schema with
a migration that this version does not know was written by a later one, and is refused: guessing at its meaning could
lose a workflow.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import hashlib
from importlib import resources
from typing import NamedTuple

from interlock.errors import TransactionError, UnavailableError, UnusableFile
from interlock.sql.postgres.address import Address, parsed
from interlock.sql.postgres.failures import told
from interlock.sql.postgres.link import Driver, Link, connected
from interlock.store.postgres.marks import looked_again, marks_of, refuse_marked

TABLES = (
    "SELECT relname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE nspname = $1 AND relname IN ('migrations', 'workflows')"
)
"""One look, so that a migration that is committed meanwhile is seen whole or not at all."""

PRESENT = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
"""From the table: to_regnamespace answers from what the session remembers, which a wait for the lock does not renew."""

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """Of the file, to tell whether it was changed after it was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known() -> list[Migration]:
    """The migrations that this version knows, in their order."""
    files = resources.files("interlock.store.postgres.migrations").iterdir()
    found = sorted((file.name, file.read_text("utf-8")) for file in files if file.name.endswith(".sql"))
    made = [Migration(int(name.partition("_")[0]), name.removesuffix(".sql"), sql) for name, sql in found]
    assert [each.number for each in made] == list(range(1, len(made) + 1)), "migrations are numbered without gaps"
    return made


async def pending(link: Link, schema: str) -> list[Migration]:
    """Return the migrations that are not applied yet. Raises UnusableFile for a newer or foreign schema."""

    async def look() -> list[Migration]:
        return await _pending(link, schema)

    return await looked_again(look)


async def _pending(link: Link, schema: str) -> list[Migration]:
    all_known = known()
    tables = {row[0] for row in await link.read(TABLES, (schema,))}
    if "migrations" not in tables:
        if "workflows" in tables:
            raise UnusableFile(
                f"the schema {schema!r} has a table 'workflows' that no store has made.",
                why="Another program has used that schema before.",
                fix="Name another schema in the address: postgresql://host/shop?schema=workflows.",
            )
        return all_known
    rows = await link.read(f"SELECT number, name, digest FROM {schema}.migrations ORDER BY number", ())
    for number, name, digest in rows:
        _refuse_unknown(schema, all_known, int(number), str(name), str(digest))
    return all_known[len(rows) :]


async def migrate(url: str, *, dry_run: bool = False) -> list[Migration]:
    """Apply what is missing, and return it; with `dry_run` only return it."""
    address = parsed(url)
    link = await connected(address)
    try:
        return await pending(link, address.schema) if dry_run else await migrated(link, address)
    finally:
        await link.driver.close()


async def migrated(link: Link, address: Address) -> list[Migration]:
    """Bring the schema up to date over this connection; returns what was missing."""
    schema, driver = address.schema, link.driver
    try:
        if not await pending(link, schema):
            return []
        with told(writing=False):
            await driver.execute("BEGIN")
        with told(writing=False):
            await driver.fetch(LOCK, f"interlock {schema}")
        # Another process may have migrated while this one waited for the lock.
        with told(writing=False):
            # After a tombstone, and while workflows arrive, the tables are missing and must not be created.
            refuse_marked(await marks_of(driver.fetch, schema), address.shown)
            [(present,)] = await driver.fetch(PRESENT, schema)
            await driver.execute(_recording(schema, present=bool(present)))
        missing = await _still_pending(link, schema)
        with told(writing=False):
            await _apply(driver, schema, missing)
        with told(writing=True):
            await driver.execute("COMMIT")
    except TransactionError as error:
        await _roll_back(link)
        raise UnavailableError(
            f"the schema {schema!r} could not be migrated: {error.what}",
            why="The user of the address may not make tables there, or the schema is not what it was.",
            fix="Run `interlock migrate` with a user who may, or read what it would do with --dry-run.",
        ) from error
    except BaseException:
        await _roll_back(link)
        raise
    return missing


async def make_store(driver: Driver, schema: str) -> None:
    """Make the tables of a store in a schema that is there and has none, inside a transaction of the caller's."""
    await driver.execute(_recording(schema, present=True))
    await _apply(driver, schema, known())


def script(schema: str, migrations: list[Migration]) -> str:
    """Return the SQL that `migrate` would run, as one text for psql."""
    parts = [f"BEGIN;\n{_recording(schema)}"]
    for each in migrations:
        record = (
            f"INSERT INTO migrations (number, name, digest) VALUES ({each.number}, '{each.name}', '{each.digest}');"
        )
        parts.append(f"-- {each.name}\n{each.sql.rstrip()}\n{record}")
    return "\n\n".join([*parts, "COMMIT;\n"])


def _recording(schema: str, *, present: bool = False) -> str:
    # Where the schema is there the user needs no right to make one, which PostgreSQL would ask for all the same.
    return f"""{"" if present else f"CREATE SCHEMA IF NOT EXISTS {schema};"}
SET LOCAL search_path TO {schema};
CREATE TABLE IF NOT EXISTS migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    digest text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);"""


async def _apply(driver: Driver, schema: str, migrations: list[Migration]) -> None:
    record = f"INSERT INTO {schema}.migrations (number, name, digest) VALUES ($1, $2, $3)"
    for each in migrations:
        await driver.execute(each.sql)
        await driver.fetch(record, each.number, each.name, each.digest)


async def _still_pending(link: Link, schema: str) -> list[Migration]:
    all_known = known()
    with told(writing=False):
        rows = await link.driver.fetch(f"SELECT number FROM {schema}.migrations")
    return all_known[len(rows) :]


async def _roll_back(link: Link) -> None:
    if link.usable:
        with told(writing=False):
            await link.driver.execute("ROLLBACK")


def _refuse_unknown(schema: str, all_known: list[Migration], number: int, name: str, digest: str) -> None:
    if number > len(all_known):
        raise UnusableFile(
            f"the schema {schema!r} has migration {name}; this version of Interlock knows {len(all_known)}.",
            why="A later version of Interlock wrote it, and guessing at its meaning could lose workflows.",
            fix="Use the version of Interlock that migrated it, or a later one.",
        )
    if all_known[number - 1].digest != digest:
        raise UnusableFile(
            f"migration {name} of the schema {schema!r} is another one than this version of Interlock has.",
            why="A migration never changes after its release, so this schema was made by a version that was none.",
            fix="Use the version that made the schema, or name another schema in the address.",
        )
