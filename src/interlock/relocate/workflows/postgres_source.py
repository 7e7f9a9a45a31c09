"""The PostgreSQL schema that workflows leave: reads, recorded changes, the seal and the tombstone.

Engines write there meanwhile: each method reads one snapshot. Workflows are identified by their ids, the key of their
table; the numbers that a lane uses are read with them.
"""

# ruff: noqa: S608 -- the only names put into statements are the schema's, which `address` has checked, and our own.

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import NamedTuple

from interlock.errors import BadUsage, InterlockError, OutcomeUnknown, UnavailableError
from interlock.postgres.errors import Blocked, LostConnection, NotNow, is_missing, translate_errors
from interlock.postgres.pool import Driver, Record, driver_of
from interlock.relocate.workflows.canonical import Aside, LeaseRow, Note, Numbered, arriving
from interlock.relocate.workflows.draft import ASIDE as COLUMNS
from interlock.relocate.workflows.draft import READING
from interlock.relocate.workflows.lane_source import Span, Sums
from interlock.store.postgres import statement
from interlock.store.postgres.schema import (
    LOCK,
    MOVED,
    TABLES,
    VIEWS,
    Marks,
    Tombstone,
    beside,
    marks_of,
    moving_tables,
    refuse_marked,
)
from interlock.store.postgres.statement import micros
from interlock.store.records import HistoryRecord
from interlock.urls import PostgresAddress

# --- Mover's connection ----------------------------------------------------------------------------------------------
# Its locks belong to a transaction, and vanish with it or with the connection. So it works through a pooler, too,
# where every statement outside of one gets a transaction of its own: its round trips must reach the same server.

SETTINGS = {"jit": "off", "enable_seqscan": "off", "application_name": "interlock-route"}
CLOSE_S = 5.0
PATIENT_S = 30.0
"""So long a server is waited for that may be restarting, when what it knows decides."""

PAUSE_S = 0.1


class Wire:
    """One connection, used by one at a time."""

    def __init__(self, driver: Driver, address: PostgresAddress) -> None:
        self.address = address
        self._driver = driver
        self.inside = False
        """A transaction is open."""

    @staticmethod
    async def connected(address: PostgresAddress, *, patient: bool = False) -> "Wire":
        """Connect; a patient one waits for a server that is being restarted."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENT_S * patient
        while True:
            try:
                return Wire(await driver_of(address, SETTINGS), address)
            except (NotNow, UnavailableError):
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def fetch(self, sql: str, *values: object) -> list[Record]:
        """Run a statement, in the transaction that is open or as one of its own."""
        if self.address.pgbouncer and not self.inside:
            async with self.transaction():
                return await self.fetch(sql, *values)
        with translate_errors(writing=False):
            return await self._driver.fetch(sql, *values)

    async def execute(self, sql: str) -> None:
        """Run a script."""
        with translate_errors(writing=False):
            await self._driver.execute(sql)

    async def commit(self) -> None:
        """Commit the open transaction. Raises OutcomeUnknown when its result is unknown."""
        self.inside = False
        with translate_errors(writing=True):
            await self._driver.execute("COMMIT")

    @contextlib.asynccontextmanager
    async def transaction(self, first: str = "") -> AsyncGenerator[None]:
        """Run the block in one transaction, which it may commit itself. A nested call joins the outer one."""
        if self.inside:
            yield
            return
        await self.execute(f"BEGIN; {first}")
        self.inside = True
        try:
            yield
            if self.inside:
                await self.commit()
        finally:
            if self.inside:
                self.inside = False
                with contextlib.suppress(Exception):  # The end of the connection is as good.
                    await self._driver.execute("ROLLBACK")

    def moment(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Read one snapshot during the block."""
        return self.transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def close(self) -> None:
        """End the connection, and with it whatever is held and not committed."""
        with contextlib.suppress(Exception):  # Whatever it says, it ends here.
            await self._driver.close(timeout=CLOSE_S)
        if not self._driver.is_closed():
            self._driver.terminate()


# --- Reads -----------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Some workflows at one moment, by their ids."""

    rows: dict[str, Numbered]
    events: dict[str, list[HistoryRecord]]


class Reading:
    """The tables of a store in PostgreSQL, over one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._schema = wire.address.schema
        self._rows = f"SELECT number, {statement.ROW} FROM {self._schema}.workflows"
        self._events = f"SELECT {statement.HAPPENED} FROM {self._schema}.workflow_events"

    async def machines(self) -> dict[str, int]:
        """Count the workflows of each machine."""
        sql = f"SELECT workflow_type, count(*) FROM {self._schema}.workflows GROUP BY 1 ORDER BY 1"
        return {str(machine): int(count) for machine, count in await self._wire.fetch(sql)}

    async def owners(self) -> int:
        """Count the engines with a lease on a workflow or effect."""
        leased = f"SELECT lease_owner FROM {self._schema}.{{}} WHERE lease_until > now()"
        sql = f"SELECT count(*) FROM ({leased.format('workflows')} UNION {leased.format('workflow_effects')}) AS owners"
        [(count,)] = await self._wire.fetch(sql)
        return int(count)

    async def page(self, after: str, limit: int) -> Part:
        """Return the next workflows after an id, with their history."""
        async with self._wire.moment():
            found = await self._wire.fetch(f"{self._rows} WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
            rows = {each.row.id: each for each in _numbered(found)}
            if not rows:
                return Part({}, {})
            sql = f"{self._events} WHERE workflow_id > $1 AND workflow_id <= $2 ORDER BY workflow_id, version"
            events = await self._wire.fetch(sql, after, next(reversed(rows)))
        return Part(rows, by_workflow(events))

    async def rows(self, ids: Sequence[str]) -> dict[str, Numbered]:
        """These workflows; those that are gone are missing."""
        found = await self._wire.fetch(f"{self._rows} WHERE id = ANY($1::text[])", list(ids))
        return {each.row.id: each for each in _numbered(found)}

    async def spans(self, ids: Sequence[str]) -> dict[str, Span]:
        """Return the span of history of these workflows."""
        sql = f"""SELECT workflow_id, count(*), min(version), max(version) FROM {self._schema}.workflow_events
WHERE workflow_id = ANY($1::text[]) GROUP BY 1"""
        return {each[0]: Span(each[1], each[2], each[3]) for each in await self._wire.fetch(sql, list(ids))}

    async def events_behind(self, versions: dict[str, int]) -> dict[str, list[HistoryRecord]]:
        """Return the history of these workflows, each after a version."""
        if not versions:
            return {}
        sql = f"""{self._events} JOIN unnest($1::text[], $2::bigint[]) AS asked(asked_id, known)
ON workflow_id = asked_id AND version > known ORDER BY workflow_id, version"""
        return by_workflow(await self._wire.fetch(sql, list(versions), list(versions.values())))

    async def aside(self, table: str, keys: Sequence[str]) -> dict[str, Aside]:
        """Return the records of these keys."""
        key = COLUMNS[table].names[0]
        sql = f"SELECT {READING[table]} FROM {self._schema}.{table} WHERE {key} = ANY($1::text[])"
        return {record[0]: _aside(table, record) for record in await self._wire.fetch(sql, list(keys))}

    async def keys_aside(self, table: str, after: str, limit: int) -> list[str]:
        """Return the next keys after one."""
        key = COLUMNS[table].names[0]
        sql = f"SELECT {key} FROM {self._schema}.{table} WHERE {key} > $1 ORDER BY {key} LIMIT $2"
        return [str(record[0]) for record in await self._wire.fetch(sql, after, limit)]

    async def count(self, table: str) -> int:
        """Rows of a table."""
        [(count,)] = await self._wire.fetch(f"SELECT count(*) FROM {self._schema}.{table}")
        return int(count)

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        schema = self._schema
        [rows] = await self._wire.fetch(f"SELECT count(*), coalesce(sum(revision), 0)::bigint FROM {schema}.workflows")
        [events] = await self._wire.fetch(
            f"SELECT count(*), coalesce(sum(version), 0)::bigint FROM {schema}.workflow_events"
        )
        return Sums(*rows, *events)

    async def time_us(self) -> int:
        """Return the database's time."""
        [(time_us,)] = await self._wire.fetch(f"SELECT {micros('clock_timestamp()')}")
        return int(time_us)


def by_workflow(records: Iterable[Record]) -> dict[str, list[HistoryRecord]]:
    """History by workflow, in its order."""
    found: dict[str, list[HistoryRecord]] = {}
    for each in map(statement.record_of, records):
        found.setdefault(each.workflow, []).append(each)
    return found


def _numbered(records: Iterable[Record]) -> list[Numbered]:
    return [arriving(each[0], statement.row_of(each[1:])) for each in map(tuple, records)]


def _aside(table: str, record: Record) -> Aside:
    if table == "workflow_effects":
        return statement.effect_of(record)
    if table == "dead_letters":
        return statement.letter_of(record)
    return LeaseRow(*record) if table == "leases" else Note(*record)


# --- Changes, seal and tombstone -------------------------------------------------------------------------------------
# Triggers record the rows that every statement has written, in a logged table: a write that survives a crash is
# recorded. They run once per statement, so a group costs one more insert. Notes are numbered when they are written
# and not when they are committed, so they are deleted one by one, and never up to a number.
#
# The seal is an exclusive lock on every view and every table, in the order in which readers of views take them. It
# also takes the migration lock, so that no process creates the tables again after a tombstone. The mover waits only
# a moment for a lock, then queued sessions go first. With all locks only a vacuum of the catalogs can block it,
# which gives way. All locks end with the connection. After the tombstone the tables are in a schema of their own:
# every statement of every engine, prepared or not, looks up their names and finds none.

TOUCHED = "workflows_touched"
TOUCH = "workflows_touch"
LEAVING = "workflows_leaving"
"""Who the mover is."""

NOTES = [TOUCHED, LEAVING]

WATCHED = {
    "workflows": ("workflows", "id"),
    "workflow_events": ("workflows", "workflow_id"),
    "workflow_effects": ("workflow_effects", "id"),
    "dead_letters": ("dead_letters", "id"),
    "leases": ("leases", "name"),
    "notes": ("notes", "name"),
}
"""The recorded key of a write to a table: for all tables of a workflow its id."""

LOCK_MS = 300
"""A lock is waited for so long: less than the second after which a server ends one of two that wait for each other."""

NOTES_PAUSE_S = 0.05
LOCKS_S = 30.0
"""So long it is tried again."""

CATALOGS_MS = 10_000
"""Milliseconds to wait for a vacuum of the catalogs: the server ends an automatic one after a second."""

NOTES_MAX = 5_000

_WATCHING = """SELECT count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND t.tgname LIKE 'workflows\\_touch\\_%'"""
_NOTING = """SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = ANY ($2::text[])"""


class Noted(NamedTuple):
    """Recorded changes, and the numbers of their notes."""

    keys: dict[str, list[str]]
    """By table."""
    numbers: list[int]


class Watching:
    """One schema, over one connection."""

    def __init__(self, wire: Wire, mover: str) -> None:
        self._mover = mover
        self.address: PostgresAddress = wire.address
        self.reading = Reading(wire)
        self.wire = wire
        self._schema = wire.address.schema

    async def marks(self) -> Marks:
        """Return the marks of the schema."""
        return await marks_of(self.wire.fetch, self._schema)

    async def refuse_no_store(self) -> None:
        """Raise MovedElsewhere where the workflows have left, BadUsage where there were never any."""
        marks = await self.marks()
        refuse_marked(marks, self.address.redacted_url)
        if not marks.present:
            raise BadUsage(
                f"there are no workflows at {self.address.redacted_url}.",
                why=f"The schema {self._schema!r} has no tables of a store.",
                fix="Name the schema as the engine does: postgresql://user@host/shop?schema=orders.",
            )

    async def refuse_left(self) -> None:
        """Refuse a schema that was left, after a running departure has committed or failed."""
        async with self.wire.transaction():
            await self.wire.fetch(LOCK, f"interlock {self._schema}")
            await self.refuse_no_store()

    # --- what is noted -----------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Record changes from now on for this mover, and replace an earlier mover.

        Two movers would take each other's notes. The later mover has copied nothing yet, and misses none.
        """
        [(watching,)] = await self.wire.fetch(_WATCHING, self._schema)
        if watching != 3 * len(WATCHED):
            async with self._locked("ACCESS EXCLUSIVE" if watching else "SHARE ROW EXCLUSIVE"):
                await self.wire.execute(_watching(self._schema))
        await self.wire.fetch(f"UPDATE {self._schema}.{LEAVING} SET mover = $1", self._mover)

    async def forget_all(self) -> bool:
        """Note nothing any more: the move is given up. False: nothing was noted."""
        [(watching,)] = await self.wire.fetch(_WATCHING, self._schema)
        if watching:
            async with self._locked("ACCESS EXCLUSIVE"):
                await self.wire.execute(_unwatching(self._schema))
        return bool(watching)

    async def changes_noted(self) -> Noted:
        """Return the recorded changes, oldest first."""
        sql = f"""SELECT kind, key, array_agg(number) FROM {self._schema}.{TOUCHED}
GROUP BY kind, key ORDER BY min(number) LIMIT {NOTES_MAX}"""
        keys: dict[str, list[str]] = {}
        numbers: list[int] = []
        for kind, key, each in await self._fetch(sql):
            keys.setdefault(kind, []).append(key)
            numbers += each
        return Noted(keys, numbers)

    async def forget(self, numbers: list[int]) -> None:
        """These notes are not needed any more. Raises UnavailableError when another one is the mover by now."""
        async with self.wire.transaction():
            await self._refuse_taken_over()
            await self.wire.fetch(f"DELETE FROM {self._schema}.{TOUCHED} WHERE number = ANY($1::bigint[])", numbers)

    async def _refuse_taken_over(self) -> None:
        mine = f"SELECT FROM {self._schema}.{LEAVING} WHERE mover = $1 FOR SHARE"
        if not await self._fetch(mine, self._mover):
            raise _taken_over(self.address.redacted_url)

    async def _fetch(self, sql: str, *values: object) -> list[Record]:
        """Query a table that exists only during a move."""
        try:
            return await self.wire.fetch(sql, *values)
        except InterlockError as error:
            if is_missing(error):
                raise _taken_over(self.address.redacted_url) from error
            raise

    # --- the end -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def sealed(self) -> AsyncGenerator[None]:
        """Block all writers and readers during the context. If the schema was not left, nothing changes at its end."""
        async with self._locked("ACCESS EXCLUSIVE"):
            await self._refuse_taken_over()
            yield

    @contextlib.asynccontextmanager
    async def _locked(self, mode: str) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOCKS_S
        while True:
            async with contextlib.AsyncExitStack() as locks:
                try:
                    await locks.enter_async_context(self.wire.transaction(f"SET LOCAL lock_timeout = {LOCK_MS}"))
                    await self.wire.fetch(LOCK, f"interlock {self._schema}")
                    await self.refuse_no_store()
                    await self._lock((*VIEWS, *TABLES), mode)
                    # A session that creates or drops these has locked the others. A vacuum may be running on them.
                    await self._lock([row[0] for row in await self.wire.fetch(_NOTING, self._schema, NOTES)], mode)
                    await self.wire.execute(f"SET LOCAL lock_timeout = {CATALOGS_MS}")
                except Blocked as error:
                    if loop.time() > until_s:
                        raise _no_lock(self.address.redacted_url) from error
                else:
                    yield
                    return
            await asyncio.sleep(NOTES_PAUSE_S)

    async def _lock(self, names: Sequence[str], mode: str) -> None:
        if names:
            listed = ", ".join(f"{self._schema}.{name}" for name in names)
            await self.wire.execute(f"LOCK TABLE {listed} IN {mode} MODE")

    async def leave(self, url: str, epoch: int) -> None:
        """Put the tables aside, write the tombstone and commit; after an unknown outcome, read whether it exists."""
        schema, aside = self._schema, beside(self.address, f"moved_{epoch}")
        await self.wire.execute(f"""{_unwatching(schema)}
CREATE SCHEMA {aside};
{moving_tables(schema, aside)}
CREATE TABLE IF NOT EXISTS {schema}.{MOVED} (
    url text NOT NULL, epoch bigint PRIMARY KEY, left_at timestamptz NOT NULL DEFAULT now());""")
        await self.wire.fetch(f"INSERT INTO {schema}.{MOVED} (url, epoch) VALUES ($1, $2)", url, epoch)
        try:
            await self.wire.commit()
        except (OutcomeUnknown, LostConnection) as error:
            if not await self._has_left(Tombstone(url, epoch)):
                raise UnavailableError(
                    "the server was lost in the middle of the seal, and the workflows have not moved.",
                    why="There is no tombstone, so the transaction that would have written it has not happened.",
                    fix="Run the same command again: it goes on where this one ended.",
                ) from error

    async def _has_left(self, tombstone: Tombstone) -> bool:
        wire = await Wire.connected(self.address, patient=True)
        try:
            async with wire.transaction():
                await wire.fetch(LOCK, f"interlock {self._schema}")  # The other one has ended, one way or the other.
                marks = await marks_of(wire.fetch, self._schema)
        finally:
            await wire.close()
        return marks.tombstone == tombstone


def _watching(schema: str) -> str:
    how = "RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS"
    made = [
        _unwatching(schema),
        f"""CREATE TABLE {schema}.{TOUCHED} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, key text NOT NULL);
CREATE TABLE {schema}.{LEAVING} (mover text NOT NULL);
INSERT INTO {schema}.{LEAVING} VALUES ('');""",
    ]
    for table, (kind, key) in WATCHED.items():
        function = f"{schema}.{TOUCH}_{table}"
        made.append(
            f"CREATE FUNCTION {function}() {how} $$ BEGIN INSERT INTO {schema}.{TOUCHED} (kind, key) "
            f"SELECT DISTINCT '{kind}', written.{key} FROM written; RETURN NULL; END $$;"
        )
        for what, rows in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
            made.append(
                f"CREATE TRIGGER {TOUCH}_{what.lower()} AFTER {what} ON {schema}.{table} "
                f"REFERENCING {rows} TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION {function}();"
            )
    return "\n".join(made)


def _unwatching(schema: str) -> str:
    """Functions go with their triggers."""
    removed = [f"DROP FUNCTION IF EXISTS {schema}.{TOUCH}_{table}() CASCADE;" for table in WATCHED]
    return "\n".join([*removed, f"DROP TABLE IF EXISTS {schema}.{TOUCHED}, {schema}.{LEAVING};"])


def _taken_over(location: str) -> UnavailableError:
    return UnavailableError(
        f"another mover has taken over the move from {location}, or it was taken back.",
        why="Two movers would take each other's notes of what was written. Nothing has moved by this one.",
        fix="Look for the other mover; run the command again if no mover runs.",
    )


def _no_lock(location: str) -> UnavailableError:
    return UnavailableError(
        f"the tables of {location} could not be locked: other sessions keep one of them locked.",
        why="A mover waits only a moment for each lock, so that no session waits long for it. Nothing has moved.",
        fix="Look for long transactions in pg_stat_activity, and run the command again: it goes on where it ended.",
    )
