"""The schema of a store in PostgreSQL: its marks, its migrations, and the arrival of workflows in it.

Marks are two tables of their own, so that nothing that is open has to know them: `workflows_arriving` while a move is
under way (and afterwards, with the time of the arrival), `workflows_moved` when the workflows live elsewhere. While
they arrive, the tables are created in a schema beside it and are missing here. Opening the store is refused, and calls
of an engine that has it open raise UnavailableError. The tables move here in one transaction, when their source has
left.

Sections: marks, migrations, arrival.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from importlib import resources
from typing import NamedTuple

from interlock.errors import BadUsage, MovedElsewhere, TransactionError, UnavailableError, UnusableFile
from interlock.postgres.handover_marks import look_again
from interlock.postgres.pool import Driver, Link, PostgresRow, connected
from interlock.postgres.translate_errors import Blocked, translate_errors
from interlock.store.postgres.statement import micros
from interlock.urls import IDENTIFIER_BYTES_MAX, PostgresAddress, parse_postgres_url, redact_secrets

# --- Marks -----------------------------------------------------------------------------------------------------------

Read = Callable[..., Awaitable[list[PostgresRow]]]
"""Runs a statement with its values."""

ARRIVING = "workflows_arriving"
MOVED = "workflows_moved"

TABLES = (
    "workflows",
    "workflow_events",
    "workflow_effects",
    "workflow_children",
    "workflow_charts",
    "dead_letters",
    "leases",
    "notes",
    "migrations",
)
VIEWS = ("workflow_states", "workflow_leases", "workflows_due")
SEQUENCE = "workflow_numbers"

_LOOK = """
SELECT relname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname IN ('workflows_arriving', 'workflows_moved', 'workflows')"""

_ARRIVING = "SELECT epoch, source, complete, arrived, report, time_us FROM {schema}.workflows_arriving LIMIT 1"
_MOVED = "SELECT url, epoch FROM {schema}.workflows_moved ORDER BY epoch DESC LIMIT 1"
_NOT_ARRIVING = "SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE false"
_NOT_MOVED = "SELECT NULL, NULL WHERE false"
_MARKS = """
SELECT arriving.*, moved.* FROM (SELECT) AS always
LEFT JOIN ({arriving}) AS arriving ON true LEFT JOIN ({moved}) AS moved ON true"""
"""Both marks by one statement: with two, a move could end in between, and they would be of different moments."""


class Arriving(NamedTuple):
    """A move whose target is here."""

    epoch: int
    source: str
    """Without secrets."""
    complete: bool
    """The draft is complete and the source sealed: only the source's tombstone is missing."""
    arrived: bool
    report: str
    """The report of the move, as the mover wrote it."""
    time_us: int
    """The last time of the source (G8)."""


class WorkflowsTombstone(NamedTuple):
    """The workflows that were here live elsewhere."""

    url: str
    epoch: int


class Marks(NamedTuple):
    """The marks of a schema."""

    arriving: Arriving | None = None
    tombstone: WorkflowsTombstone | None = None
    present: bool = False
    """It has the tables of a store."""


async def marks_of(read: Read, schema: str) -> Marks:
    """Return the marks of a schema, all of one moment.

    A table that is not there cannot be named, so the catalog is read first. An arrival that commits after that drops
    `workflows_moved`; then the catalog is read again. Inside a transaction the caller holds the schema's lock, under
    which no mark comes or goes.
    """
    return await look_again(lambda: _marks_of(read, schema))


async def _marks_of(read: Read, schema: str) -> Marks:
    found = {row[0] for row in await read(_LOOK, schema)}
    present = "workflows" in found
    if found <= {"workflows"}:
        return Marks(present=present)
    arriving = (_ARRIVING if ARRIVING in found else _NOT_ARRIVING).format(schema=schema)
    moved = (_MOVED if MOVED in found else _NOT_MOVED).format(schema=schema)
    [row] = await read(_MARKS.format(arriving=arriving, moved=moved))
    epoch, source, complete, arrived, report, time_us, url, left_epoch = row
    return Marks(
        None if epoch is None else Arriving(epoch, source, complete, arrived, report, time_us),
        None if url is None else WorkflowsTombstone(url, left_epoch),
        present,
    )


def refuse_marked(marks: Marks, place: str) -> None:
    """Raise MovedElsewhere where workflows have left, and UnavailableError where they have not arrived."""
    arriving, stone = marks.arriving, marks.tombstone
    if stone is not None and (arriving is None or arriving.epoch < stone.epoch):
        raise MovedElsewhere(
            f"the workflows of {place} live at {redact_secrets(stone.url)} since move {stone.epoch}.",
            url=stone.url,
            epoch=stone.epoch,
        )
    if arriving is not None and not arriving.arrived:
        raise on_the_way(arriving, place)


def on_the_way(arriving: Arriving, place: str) -> UnavailableError:
    """Return the error for a store whose workflows are arriving."""
    return UnavailableError(
        f"workflows are arriving at {place} from {arriving.source} (move {arriving.epoch}).",
        why="The store cannot be used until all workflows are here and their old place is sealed. Nothing was changed.",
        fix="Try again when the move is over. If no mover runs any more, run `interlock route` again to finish or "
        "abandon it.",
    )


def draft_of(address: PostgresAddress) -> str:
    """Return the schema that workflows arrive in."""
    return beside(address, "arriving")


def beside(address: PostgresAddress, what: str) -> str:
    """Return the name of a schema beside the one of the address."""
    name = f"{address.schema}__{what}"
    if len(name) > IDENTIFIER_BYTES_MAX:
        raise BadUsage(
            f"the schema {address.schema!r} has too long a name to move workflows to or from.",
            why=f"A schema {name!r} is made beside it meanwhile, and names have at most {IDENTIFIER_BYTES_MAX} bytes.",
            fix="Name another schema in the address: ?schema=workflows.",
        )
    return name


def moving_tables(old: str, new: str) -> str:
    """Return the statements that move a store's tables from one schema to another."""
    statements = [f"ALTER TABLE {old}.{table} SET SCHEMA {new}" for table in TABLES]
    statements += [f"ALTER VIEW {old}.{view} SET SCHEMA {new}" for view in VIEWS]
    statements.append(f"ALTER SEQUENCE {old}.{SEQUENCE} SET SCHEMA {new}")
    return ";\n".join(statements) + ";"


# --- Migrations ------------------------------------------------------------------------------------------------------
# Migrations are numbered files, each applied once and recorded with the digest of its file. A schema is migrated in
# one transaction under an advisory lock: of many processes that start together one applies and the others find
# everything done. A schema with a migration that this version does not know was written by a later one, and is
# refused: guessing at its meaning could lose a workflow.

TABLES_OF_SCHEMA = (
    "SELECT relname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE nspname = $1 AND relname IN ('migrations', 'workflows')"
)
"""One look, so that a migration that is committed meanwhile is seen whole or not at all."""

PRESENT = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
"""From the table: to_regnamespace answers from what the session remembers, which a wait for the lock does not renew."""

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


MIGRATION_LOCK_MS = 500
"""Milliseconds that a migration waits for the lock of a table: every other reader and writer queues after it."""

MIGRATION_S = 60.0
"""How long a migration is repeated while long transactions of others, such as a backup's, hold the lock."""

MIGRATION_PAUSE_S = 0.5


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """The digest of the file, which shows whether it was changed after it was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known() -> list[Migration]:
    """Return the migrations that this version knows, in their order."""
    files = resources.files("interlock.store.postgres").joinpath("migrations").iterdir()
    found = sorted((file.name, file.read_text("utf-8")) for file in files if file.name.endswith(".sql"))
    made = [Migration(int(name.partition("_")[0]), name.removesuffix(".sql"), sql) for name, sql in found]
    assert [each.number for each in made] == list(range(1, len(made) + 1)), "migrations are numbered without gaps"
    return made


async def pending(link: Link, schema: str) -> list[Migration]:
    """Return the migrations that are not applied yet. Raises UnusableFile for a newer or foreign schema."""
    return await look_again(lambda: missing_migrations(link.read, schema))


async def missing_migrations(
    read: Callable[[str, tuple[object, ...]], Awaitable[Sequence[PostgresRow]]], schema: str
) -> list[Migration]:
    """Return the migrations that the schema lacks, as the statements that `read` runs see it."""
    all_known = known()
    tables = {row[0] for row in await read(TABLES_OF_SCHEMA, (schema,))}
    if "migrations" not in tables:
        if "workflows" in tables:
            raise UnusableFile(
                f"the schema {schema!r} has a table 'workflows' that no store has made.",
                why="Another program has used that schema before.",
                fix="Name another schema in the address: postgresql://host/shop?schema=workflows.",
            )
        return all_known
    rows = await read(f"SELECT number, name, digest FROM {schema}.migrations ORDER BY number", ())
    for number, name, digest in rows:
        _refuse_unknown(schema, all_known, int(number), str(name), str(digest))
    return all_known[len(rows) :]


async def migrate(url: str, *, dry_run: bool = False) -> list[Migration]:
    """Apply what is missing, and return it; with `dry_run` only return it. Raises MovedElsewhere."""
    address = parse_postgres_url(url)
    link = await connected(address)
    try:
        if not dry_run:
            return await migrated(link, address)
        if missing := await pending(link, address.schema):
            refuse_marked(await marks_of(link.driver.fetch, address.schema), address.redacted_url)
        return missing
    finally:
        await link.driver.close()


async def migrated(link: Link, address: PostgresAddress) -> list[Migration]:
    """Bring the schema up to date over this connection; return what was missing."""
    schema, loop = address.schema, asyncio.get_running_loop()
    end_s = loop.time() + MIGRATION_S
    try:
        if not await pending(link, schema):
            return []
        while True:
            try:
                return await _migrated_once(link, address)
            except Blocked:
                if loop.time() > end_s:
                    raise
            await asyncio.sleep(MIGRATION_PAUSE_S)
    except TransactionError as error:
        raise UnavailableError(
            f"the schema {schema!r} could not be migrated: {error.what}",
            why="The user of the address may not make tables there, the schema is not what it was, or a long "
            "transaction has locked a table.",
            fix="Run `interlock migrate` with a user who may, or read what it would do with --dry-run.",
        ) from error


async def _migrated_once(link: Link, address: PostgresAddress) -> list[Migration]:
    schema = address.schema
    async with _transaction(link, schema) as driver:
        await driver.execute(f"SET LOCAL lock_timeout = {MIGRATION_LOCK_MS}")
        # After a tombstone, and while workflows arrive, the tables are missing and must not be created.
        refuse_marked(await marks_of(driver.fetch, schema), address.redacted_url)
        [(present,)] = await driver.fetch(PRESENT, schema)
        await driver.execute(_recording(schema, present=bool(present)))
        # Another process may have migrated while this one waited for the lock.
        missing = known()[len(await driver.fetch(f"SELECT number FROM {schema}.migrations")) :]
        await _apply(driver, schema, missing)
    return missing


async def make_store(driver: Driver, schema: str) -> None:
    """Create the tables of a store in a schema without any, inside a transaction of the caller."""
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


# --- Arrival ---------------------------------------------------------------------------------------------------------
# A draft in a schema beside it becomes the store in one transaction, or is removed. A store that is there already must
# be empty: the notes, leases and keys of two stores cannot be merged. Its tables are put aside when the draft begins,
# so that an engine that has it open can neither start a conflicting workflow there, nor claim one that has not
# arrived. They are kept aside.
#
# An engine that is alive at the source learns within a second that its workflows have left. Meanwhile an attempt of
# its may be running, so the workflow is leased for that long: no engine begins it again, and no undo overtakes it
# (G5).
#
# G8: no time may go back for a workflow. If the database's clock is earlier than the source's, the arrival waits for
# it: milliseconds with synchronised clocks. Above a bound it raises an error.

CLOCK_BEHIND_S_MAX = 5.0
"""Seconds that the database's clock may lag the source's. No engine serves the workflows while it catches up."""

BY_NUMBER = "arriving_by_number"
"""An index that only a draft has."""

_MARK = """CREATE TABLE IF NOT EXISTS {schema}.workflows_arriving (
    epoch bigint PRIMARY KEY, source text NOT NULL, mover text NOT NULL DEFAULT '', turns bigint NOT NULL DEFAULT 0,
    complete boolean NOT NULL DEFAULT false, arrived boolean NOT NULL DEFAULT false, report text NOT NULL DEFAULT '',
    time_us bigint NOT NULL DEFAULT 0, skew_us bigint NOT NULL DEFAULT 0, held_us bigint NOT NULL DEFAULT 0,
    aside text NOT NULL DEFAULT '',
    begun_at timestamptz NOT NULL DEFAULT now())"""


_HOLD = """UPDATE {schema}.workflows SET lease_owner = $2, lease_until = now() + $1 * interval '1 microsecond'
WHERE wake_at IS NOT NULL AND wake_at <= now() AND position('"started":true'::bytea IN owed) > 0"""
"""Matches the bytes that the engine writes for a started attempt; a payload cannot contain them as plain text."""

LEFT_BEHIND = "left behind"
"""Lease owner of a workflow whose attempt may still run at the source. It never renews, so the lease ends soon."""


class ReadyDraft(NamedTuple):
    """A draft that is ready."""

    fresh: bool
    """It is still empty."""
    arrived: bool
    """It has arrived already, by a move with this number."""


async def begin(link: Link, address: PostgresAddress, *, epoch: int, source: str) -> ReadyDraft:
    """Create the draft, or find the one of an earlier mover. Raises BadUsage where the target is in use."""
    schema, draft = address.schema, draft_of(address)
    async with _transaction(link, schema) as driver:
        [(present,)] = await driver.fetch(PRESENT, schema)
        await driver.execute(("" if present else f"CREATE SCHEMA {schema};") + _MARK.format(schema=schema))
        marks = await marks_of(driver.fetch, schema)
        if marks.arriving is not None:
            found = _earlier_draft(marks.arriving, address, epoch=epoch, source=source)
            if found is not None:
                if not found.arrived:
                    await _renew_draft(driver, draft)
                return found
            await driver.execute(f"DELETE FROM {schema}.{ARRIVING}")
        await refuse_used(driver, address, marks, epoch)
        aside = await _put_aside(driver, address, epoch) if marks.present else ""
        await driver.execute(f"CREATE SCHEMA {draft}")
        await driver.fetch(
            f"INSERT INTO {schema}.{ARRIVING} (epoch, source, aside) VALUES ($1, $2, $3)", epoch, source, aside
        )
        await make_store(driver, draft)
        await driver.execute(f"CREATE INDEX {BY_NUMBER} ON {draft}.workflows (number)")
    return ReadyDraft(fresh=True, arrived=False)


async def refuse_used(driver: Driver, address: PostgresAddress, marks: Marks, epoch: int) -> None:
    """Raise BadUsage unless workflows may come here."""
    if marks.tombstone is not None and marks.tombstone.epoch >= epoch:
        raise MovedElsewhere(
            f"the workflows of {address.redacted_url} have left with move {marks.tombstone.epoch}, "
            f"which is later than move {epoch}.",
            url=marks.tombstone.url,
            epoch=marks.tombstone.epoch,
        )
    if not marks.present:
        return
    rows = await driver.fetch(
        f"SELECT workflow_type, count(*) FROM {address.schema}.workflows GROUP BY 1 ORDER BY 1 LIMIT 10"
    )
    if rows:
        counts = ", ".join(f"{count:,} of {machine!r}" for machine, count in rows)
        raise BadUsage(
            f"{address.redacted_url} has workflows already: {counts}.",
            why="Two stores are not made one: each has notes, leases and keys of its own, and may have used the same "
            "ids.",
            fix="Name an empty schema of the same database: ?schema=orders. One engine per schema may run beside "
            "another.",
        )


async def _renew_draft(driver: Driver, draft: str) -> None:
    """Apply the migrations that a draft of an earlier release lacks."""
    [(applied,)] = await driver.fetch(f"SELECT count(*) FROM {draft}.migrations")
    await driver.execute(f"SET LOCAL search_path TO {draft}")
    await _apply(driver, draft, known()[int(applied) :])


def _earlier_draft(arriving: Arriving, address: PostgresAddress, *, epoch: int, source: str) -> ReadyDraft | None:
    """Return the draft of an earlier mover; None for a completed move of another number."""
    if arriving.epoch == epoch and arriving.source == source:
        return ReadyDraft(fresh=False, arrived=arriving.arrived)
    if arriving.arrived:
        return None
    raise BadUsage(
        f"another move to {address.redacted_url} is under way: number {arriving.epoch}, from {arriving.source}.",
        why="A schema is the target of one move at a time.",
        fix="Finish that one, or take it back with `interlock route --abandon`.",
    )


async def arrive(link: Link, address: PostgresAddress, epoch: int) -> bool:
    """Make the draft of that move the store; return False if it was before. Requires the source's tombstone."""
    schema, draft = address.schema, draft_of(address)
    coming = _draft_in(await marks_of(reader_of(link), schema), epoch)
    if coming is None:
        return False
    await _wait_for_clock(link, coming.time_us, address.redacted_url)
    async with _transaction(link, schema) as driver:
        marks = await marks_of(driver.fetch, schema)
        if _draft_in(marks, epoch) is None:  # Since the first look another process may have let it arrive.
            return False
        lock_mark = f"SELECT skew_us, held_us FROM {schema}.{ARRIVING} WHERE epoch = $1 FOR UPDATE"
        rows = await driver.fetch(lock_mark, epoch)
        await refuse_used(driver, address, marks._replace(tombstone=None), epoch)
        if marks.present:
            await _put_aside(driver, address, epoch, "made")
        # A lease ends by the clock of its keeper: shift it, so that it keeps its remaining time.
        await driver.fetch(
            f"UPDATE {draft}.leases SET until = until + $1 * interval '1 microsecond' WHERE until IS NOT NULL",
            rows[0][0],
        )
        if rows[0][1]:
            await driver.fetch(_HOLD.format(schema=draft), rows[0][1], LEFT_BEHIND)
        await driver.execute(f"""
SELECT setval('{draft}.workflow_numbers', greatest(1, (SELECT max(number) FROM {draft}.workflows)));
DROP INDEX {draft}.{BY_NUMBER};
{moving_tables(draft, schema)}
DROP SCHEMA {draft};
DROP TABLE IF EXISTS {schema}.{MOVED};
UPDATE {schema}.{ARRIVING} SET arrived = true, mover = '' WHERE epoch = {epoch};""")
    return True


async def take_back(link: Link, address: PostgresAddress, epoch: int, mover: str) -> bool:
    """Take a draft over from other movers. Return whether it was complete: then its source may be leaving."""
    async with _transaction(link, address.schema) as driver:
        if _draft_in(await marks_of(driver.fetch, address.schema), epoch) is None:
            return False
        taken = f"UPDATE {address.schema}.{ARRIVING} SET mover = $1 WHERE epoch = $2 AND NOT arrived RETURNING complete"
        return any(row[0] for row in await driver.fetch(taken, mover, epoch))


async def throw_away(link: Link, address: PostgresAddress, epoch: int, mover: str) -> bool:
    """Remove a draft, and restore the previous store. Return False without a draft.

    Only after `take_back`, and after a check that the source has not left.
    """
    schema, draft = address.schema, draft_of(address)
    async with _transaction(link, schema) as driver:
        if _draft_in(await marks_of(driver.fetch, schema), epoch) is None:
            return False
        rows = await driver.fetch(f"SELECT aside, mover FROM {schema}.{ARRIVING} WHERE epoch = $1 FOR UPDATE", epoch)
        if rows[0][1] != mover:
            raise UnavailableError(
                f"another mover has taken over the move to {address.redacted_url}.",
                why="It goes on with the draft, and the workflows may have left by now: nothing was thrown away.",
                fix="Look for the other mover; take the move back again when no mover runs.",
            )
        await driver.execute(f"DROP SCHEMA IF EXISTS {draft} CASCADE; DROP TABLE {schema}.{ARRIVING};")
        if rows[0][0]:
            await driver.execute(f"{moving_tables(rows[0][0], schema)} DROP SCHEMA {rows[0][0]};")
    return True


def _draft_in(marks: Marks, epoch: int) -> Arriving | None:
    arriving = marks.arriving
    return None if arriving is None or arriving.epoch != epoch or arriving.arrived else arriving


@contextlib.asynccontextmanager
async def trial(link: Link, address: PostgresAddress) -> AsyncGenerator[str]:
    """Create a schema with the tables of a draft, to measure in; it is never committed."""
    schema, driver = beside(address, "trial"), link.driver
    with translate_errors(writing=False):
        await driver.execute("BEGIN")
        try:
            await driver.execute(f"CREATE SCHEMA {schema}")
            await make_store(driver, schema)
            await driver.execute(f"CREATE INDEX {BY_NUMBER} ON {schema}.workflows (number)")
            yield schema
        finally:
            if link.usable:
                await driver.execute("ROLLBACK")


async def _put_aside(driver: Driver, address: PostgresAddress, epoch: int, what: str = "before") -> str:
    """Move the tables of an empty store aside; they are kept."""
    aside = beside(address, f"{what}_{epoch}")
    await driver.execute(f"CREATE SCHEMA {aside}; {moving_tables(address.schema, aside)}")
    return aside


async def _wait_for_clock(link: Link, time_us: int, place: str) -> None:
    [(now_us,)] = await link.read(f"SELECT {micros('clock_timestamp()')}", ())
    behind_s = (time_us - int(now_us)) / 1_000_000
    refuse_behind(behind_s, place)
    if behind_s > 0:
        await asyncio.sleep(behind_s)


def refuse_behind(behind_s: float, place: str) -> None:
    """Raise UnavailableError when the database's clock lags more than `CLOCK_BEHIND_S_MAX`."""
    if behind_s > CLOCK_BEHIND_S_MAX:
        raise UnavailableError(
            f"the clock of {place} is {behind_s:.1f} s before the time of the workflows.",
            why="Times in a history never go back, so the workflows would have to wait until it has caught up.",
            fix=f"Set the clocks right (NTP), or come again when they are less than {CLOCK_BEHIND_S_MAX:g} s apart.",
        )


def reader_of(link: Link) -> Read:
    """Return the function that reads over this connection."""

    async def read(sql: str, *values: object) -> list[PostgresRow]:
        return await link.read(sql, values)

    return read


@contextlib.asynccontextmanager
async def _transaction(link: Link, schema: str) -> AsyncGenerator[Driver]:
    """Run a transaction under the lock of the schema: no migration and no other step of a move runs beside it."""
    driver = link.driver
    with translate_errors(writing=False):
        await driver.execute("BEGIN")
    try:
        with translate_errors(writing=False):
            await driver.fetch(LOCK, f"interlock {schema}")
            yield driver
    except BaseException:
        if link.usable:
            with contextlib.suppress(Exception):  # The error that is being raised is the cause.
                await driver.execute("ROLLBACK")
        raise
    with translate_errors(writing=True):
        await driver.execute("COMMIT")
