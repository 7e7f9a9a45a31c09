"""Workflows in PostgreSQL, as the source and as the target of a move.

Engines write at the source meanwhile: each method reads one snapshot. What is written to the target is read back before
it is committed, so that all rows of a draft were compared.

Sections: staging of rows, records, source, target.
"""

# ruff: noqa: S608 -- the only names put into statements are the schema's, which `address` has checked, and our own.

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import msgspec

from interlock.clock import Clock, RandomIds
from interlock.errors import BadUsage, InterlockError, OutcomeUnknown, UnavailableError
from interlock.postgres.pool import PostgresRow
from interlock.postgres.translate_errors import LostConnection, is_missing, translate_errors
from interlock.relocate.postgres_link import MoverLink
from interlock.relocate.workflow_records import (
    ALL,
    Aside,
    Clocks,
    Exchange,
    Exchanged,
    LeaseRow,
    Note,
    Noted,
    Numbered,
    Part,
    Span,
    Sums,
    Timed,
    arriving,
    digest_of,
)
from interlock.store.chart_store import COLUMNS as CHART_COLUMNS
from interlock.store.chart_store import ChartRecord
from interlock.store.lane_store import HELD_US
from interlock.store.postgres import statement
from interlock.store.postgres.migrations import (
    ARRIVING,
    CLOCK_BEHIND_S_MAX,
    LOCK,
    MOVED,
    TABLES,
    VIEWS,
    Marks,
    WorkflowsTombstone,
    arrive,
    begin,
    beside,
    draft_of,
    marks_of,
    missing_migrations,
    moving_tables,
    refuse_behind,
    refuse_marked,
    refuse_used,
    take_back,
    throw_away,
    trial,
)
from interlock.store.postgres.statement import CHILDREN, EFFECTS, LETTERS, micros, moment, written
from interlock.store.records import ChildRecord, HistoryRecord, Letter, OwedEffect
from interlock.urls import PostgresAddress, parse_postgres_url

# --- Staging of rows -------------------------------------------------------------------------------------------------
# The second step is in SQL, with the same expressions that the store's own statements have: JSON is kept for people,
# and letter by letter where PostgreSQL would give it back otherwise; times are exact.

Values = tuple[object, ...]


class Staging(NamedTuple):
    """One table: what is copied, and how it is put in."""

    table: str
    columns: tuple[tuple[str, str], ...]
    """Of what is copied: names and types; times are microseconds, JSON is text."""
    json: tuple[str, ...] = ()
    """Columns that are also kept letter by letter."""
    plain_json: tuple[str, ...] = ()
    """Columns of JSON that PostgreSQL keeps as it was written."""

    @property
    def name(self) -> str:
        """Of the table of the transaction's own."""
        return f"staged_{self.table}"

    @property
    def names(self) -> list[str]:
        """Of what is copied."""
        return [name for name, _ in self.columns]

    def create(self) -> str:
        """Make the table; it goes with the transaction."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"CREATE TEMPORARY TABLE {self.name} ({columns}) ON COMMIT DROP"

    def insert(self, schema: str, *, replacing: str | None = None) -> str:
        """Put everything that was copied into the draft; `replacing` what has the same value in that column."""
        parsed = "".join(f", s.{name}::jsonb AS {name}_json" for name in self.json)
        into = [*self.names, *(f"{name}_written" for name in self.json)]
        values = [*map(self._value, self.columns), *(written(f"c.{name}") for name in self.json)]
        replaced = ""
        if replacing is not None:
            changed = ", ".join(f"{name} = excluded.{name}" for name in into if name != replacing)
            replaced = f" ON CONFLICT ({replacing}) DO UPDATE SET {changed}"
        return f"""INSERT INTO {schema}.{self.table} ({", ".join(into)})
SELECT {", ".join(values)} FROM (SELECT s.*{parsed} FROM {self.name} s OFFSET 0) c{replaced}"""

    def _value(self, column: tuple[str, str]) -> str:
        name, kind = column
        if name in self.json:
            return f"c.{name}_json"
        if name in self.plain_json:
            return f"c.{name}::json"
        return moment(f"c.{name}") if kind == "bigint" and name.endswith(("_at", "since", "until")) else f"c.{name}"


class CopyingRecords(Protocol):
    """The driver's method for COPY of records."""

    async def copy_records_to_table(
        self, table: str, /, *, records: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> str:
        """Put rows into a table, the quickest way there is."""
        ...


WORKFLOWS = Staging(
    "workflows",
    (
        ("number", "bigint"), ("id", "text"), ("workflow_type", "text"), ("machine_version", "bigint"),
        ("state", "text"), ("context", "text"), ("version", "bigint"), ("visit", "bigint"), ("active", "boolean"),
        ("created_at", "bigint"), ("updated_at", "bigint"), ("entered_at", "bigint"), ("digest", "bytea"),
        ("owed", "bytea"), ("wake_at", "bigint"), ("duplicates", "bigint"), ("ignored", "bigint"),
        ("refused", "bigint"), ("revision", "bigint"), ("timer_at", "bigint"),
    ),
    json=("context",),
)  # fmt: skip
EVENTS = Staging(
    "workflow_events",
    (
        ("workflow_id", "text"), ("version", "bigint"), ("from_state", "text"), ("to_state", "text"),
        ("event", "text"), ("payload", "text"), ("context", "text"), ("created_at", "bigint"), ("key", "text"),
        ("key_digest", "bytea"), ("actor", "text"), ("attempts", "bytea"),
    ),
    json=("payload", "context"),
)  # fmt: skip
_CHART_TEXTS = {"id", "machine", "state"}
ASIDE = {
    "workflow_effects": Staging(
        "workflow_effects",
        (
            ("id", "text"), ("workflow_id", "text"), ("version", "bigint"), ("name", "text"), ("attempts", "bigint"),
            ("wake_at", "bigint"), ("context", "text"),
        ),
        plain_json=("context",),
    ),
    "workflow_children": Staging(
        "workflow_children",
        (
            ("id", "text"), ("parent", "text"), ("visit", "bigint"), ("position", "bigint"), ("state", "text"),
            ("stage", "smallint"),
        ),
    ),
    "workflow_charts": Staging(
        "workflow_charts", tuple((name, "text" if name in _CHART_TEXTS else "bigint") for name in CHART_COLUMNS)
    ),
    "dead_letters": Staging(
        "dead_letters",
        (
            ("id", "text"), ("kind", "text"), ("workflow_id", "text"), ("name", "text"), ("attempts", "bigint"),
            ("error", "text"), ("since", "bigint"), ("version", "bigint"), ("key", "text"), ("context", "text"),
        ),
        plain_json=("context",),
    ),
    "leases": Staging(
        "leases",
        (("name", "text"), ("owner", "text"), ("token", "bigint"), ("since", "bigint"), ("until", "bigint")),
    ),
    "notes": Staging("notes", (("name", "text"), ("text", "text"))),
}  # fmt: skip
READING = {
    "workflow_effects": EFFECTS,
    "workflow_children": CHILDREN,
    "workflow_charts": ", ".join(micros(name) if name == "since" else name for name in CHART_COLUMNS),
    "dead_letters": LETTERS,
    "leases": f"name, owner, token, {micros('since')}, {micros('until')}",
    "notes": "name, text",
}
"""The columns of what stands aside, as they are read back."""


def staged_rows(rows: Iterable[Numbered]) -> list[Values]:
    """Workflows as they are copied."""
    return [
        (
            number, row.id, row.machine, row.machine_version, row.state, row.context.decode(), row.version, row.visit,
            row.active, row.created_us, row.updated_us, row.entered_us, row.digest, row.owed, row.wake_us,
            *row.counts, row.revision, row.timer_us,
        )
        for number, row in rows
    ]  # fmt: skip


def staged_events(events: Sequence[HistoryRecord]) -> list[Values]:
    """History as it is copied."""
    return [
        (
            each.workflow, each.version, each.from_state, each.to_state, each.event, each.payload.decode() or None,
            each.context.decode(), each.created_us, each.key, each.key_digest or None, each.by,
            each.attempts or None,
        )
        for each in events
    ]  # fmt: skip


def staged_aside(value: Aside) -> Values:
    """Return a record beside workflows as a row for COPY."""
    if isinstance(value, (LeaseRow, Note)):
        return tuple(value)
    if isinstance(value, (ChildRecord, ChartRecord)):
        return msgspec.structs.astuple(value)
    assert isinstance(value, (OwedEffect, Letter))
    *values, context = msgspec.structs.astuple(value)
    return (*values, context.decode() or None)


# --- Records ---------------------------------------------------------------------------------------------------------


def _by_id(records: Iterable[PostgresRow]) -> dict[str, Numbered]:
    found = (arriving(each[0], statement.row_of(each[1:])) for each in map(tuple, records))
    return {each.row.id: each for each in found}


def _histories(records: Iterable[PostgresRow]) -> dict[str, list[HistoryRecord]]:
    found: dict[str, list[HistoryRecord]] = {}
    for each in map(statement.record_of, records):
        found.setdefault(each.workflow, []).append(each)
    return found


def _aside(table: str, record: PostgresRow) -> Aside:
    if table == "workflow_effects":
        return statement.effect_of(record)
    if table == "workflow_children":
        return statement.child_of(record)
    if table == "workflow_charts":
        return ChartRecord(*tuple(record))
    if table == "dead_letters":
        return statement.letter_of(record)
    return LeaseRow(*record) if table == "leases" else Note(*record)


async def _sums(link: MoverLink, schema: str) -> Sums:
    [rows] = await link.fetch(f"SELECT count(*), coalesce(sum(revision), 0)::bigint FROM {schema}.workflows")
    [events] = await link.fetch(f"SELECT count(*), coalesce(sum(version), 0)::bigint FROM {schema}.workflow_events")
    return Sums(*rows, *events)


async def _time_us(link: MoverLink) -> int:
    [(time_us,)] = await link.fetch(f"SELECT {micros('clock_timestamp()')}")
    return int(time_us)


# --- Source ----------------------------------------------------------------------------------------------------------
# Triggers record the rows that every statement has written, in a logged table: a write that survives a crash is
# recorded. They run once per statement, so a group costs one more insert. Notes are numbered when they are written
# and not when they are committed, so they are deleted one by one, and never up to a number.
#
# The seal is an exclusive lock on every view and every table, in the order in which readers of views take them. It
# also takes the migration lock, so that no process creates the tables again after a tombstone. The mover waits only
# a moment for a lock, then queued sessions go first. With all locks only a vacuum of the catalogs can block it,
# which gives way. All locks end with the connection. After the tombstone the tables are in a schema of their own:
# every statement of every engine, prepared or not, looks up their names and finds none.

SETTINGS = {"jit": "off", "enable_seqscan": "off", "application_name": "interlock-route"}
TOUCHED = "workflows_touched"
TOUCH = "workflows_touch"
LEAVING = "workflows_leaving"
"""Who the mover is."""

NOTES = [TOUCHED, LEAVING]

WATCHED = {
    "workflows": ("workflows", "id"),
    "workflow_events": ("workflows", "workflow_id"),
    "workflow_effects": ("workflow_effects", "id"),
    "workflow_children": ("workflow_children", "id"),
    "workflow_charts": ("workflow_charts", "id"),
    "dead_letters": ("dead_letters", "id"),
    "leases": ("leases", "name"),
    "notes": ("notes", "name"),
}
"""The recorded key of a write to a table: for all tables of a workflow its id."""

NOTES_MAX = 5_000

_WATCHING = """SELECT count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND t.tgname LIKE 'workflows\\_touch\\_%'"""
_NOTING = """SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = ANY ($2::text[])"""


class PostgresWorkflows:
    """The workflows of a schema that they leave."""

    def __init__(self, link: MoverLink, mover: str, clock: Clock) -> None:
        self._mover = mover
        self._clock = clock
        self.address: PostgresAddress = link.address
        self.location = link.address.redacted_url
        self.link = link
        self._schema = link.address.schema
        self._rows = f"SELECT number, {statement.ROW} FROM {self._schema}.workflows"
        self._events = f"SELECT {statement.HAPPENED} FROM {self._schema}.workflow_events"

    @classmethod
    async def opened(cls, url: str, *, clock: Clock) -> "PostgresWorkflows":
        """Connect to the schema."""
        return cls(await MoverLink.opened(parse_postgres_url(url), SETTINGS), RandomIds().text(), clock)

    async def close(self) -> None:
        """End the connection."""
        await self.link.end()

    async def marks(self) -> Marks:
        """Return the marks of the schema."""
        return await marks_of(self.link.fetch, self._schema)

    async def check(self) -> None:
        """Raise MovedElsewhere where the workflows have left, BadUsage without any or with tables to migrate."""
        marks = await self.marks()
        refuse_marked(marks, self.address.redacted_url)
        if not marks.present:
            raise BadUsage(
                f"there are no workflows at {self.address.redacted_url}.",
                why=f"The schema {self._schema!r} has no tables of a store.",
                fix="Name the schema as the engine does: postgresql://user@host/shop?schema=orders.",
            )
        if missing := await missing_migrations(self._read, self._schema):
            raise BadUsage(
                f"the schema of {self.address.redacted_url} is of an earlier release: it lacks migration "
                f"{missing[0].name}.",
                why="A move copies the tables of this release. Nothing was copied.",
                fix="Run `interlock migrate` with this address, and then the same command again.",
            )

    async def _read(self, sql: str, values: tuple[object, ...]) -> list[PostgresRow]:
        # In the transaction that may be open: PgBouncer gives a statement outside of it another connection.
        return await self.link.fetch(sql, *values)

    async def refuse_left(self) -> None:
        """Refuse a schema that was left, after a running departure has committed or failed."""
        async with self.link.transaction():
            await self.link.fetch(LOCK, f"interlock {self._schema}")
            await self.check()

    # --- reads -------------------------------------------------------------------------------------------------------

    async def last_epoch(self) -> int:
        """Return the epoch of the move that brought them here; 0 without one."""
        arriving = (await self.marks()).arriving
        return arriving.epoch if arriving is not None and arriving.arrived else 0

    async def machines(self) -> dict[str, int]:
        """Count the workflows of each machine; none where they have left."""
        if (await self.marks()).tombstone is not None:
            return {}
        await self.check()
        sql = f"SELECT workflow_type, count(*) FROM {self._schema}.workflows GROUP BY 1 ORDER BY 1"
        return {str(machine): int(count) for machine, count in await self.link.fetch(sql)}

    async def page(self, after: str, limit: int) -> Part:
        """Return the next workflows after an id, with their histories."""
        async with self.link.snapshot():
            found = await self.link.fetch(f"{self._rows} WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
            rows = _by_id(found)
            if not rows:
                return Part({}, {})
            sql = f"{self._events} WHERE workflow_id > $1 AND workflow_id <= $2 ORDER BY workflow_id, version"
            return Part(rows, _histories(await self.link.fetch(sql, after, next(reversed(rows)))))

    async def states(self, ids: Sequence[str]) -> tuple[dict[str, Numbered], dict[str, Span]]:
        """Return these workflows and the spans of their histories, at one moment."""
        spans = f"""SELECT workflow_id, count(*), min(version), max(version) FROM {self._schema}.workflow_events
WHERE workflow_id = ANY($1::text[]) GROUP BY 1"""
        async with self.link.snapshot():
            rows = _by_id(await self.link.fetch(f"{self._rows} WHERE id = ANY($1::text[])", list(ids)))
            found = await self.link.fetch(spans, list(ids))
        return rows, {each[0]: Span(each[1], each[2], each[3]) for each in found}

    async def events_after(self, versions: Mapping[str, int]) -> dict[str, list[HistoryRecord]]:
        """Return the history of these workflows, each after a version."""
        if not versions:
            return {}
        sql = f"""{self._events} JOIN unnest($1::text[], $2::bigint[]) AS asked(asked_id, known)
ON workflow_id = asked_id AND version > known ORDER BY workflow_id, version"""
        return _histories(await self.link.fetch(sql, list(versions), list(versions.values())))

    async def aside(self, table: str, keys: Sequence[str]) -> dict[str, Aside]:
        """Return the records of these keys."""
        key = ASIDE[table].names[0]
        sql = f"SELECT {READING[table]} FROM {self._schema}.{table} WHERE {key} = ANY($1::text[])"
        return {record[0]: _aside(table, record) for record in await self.link.fetch(sql, list(keys))}

    async def keys_aside(self, table: str, after: str, limit: int) -> list[str]:
        """Return the next keys after one."""
        key = ASIDE[table].names[0]
        sql = f"SELECT {key} FROM {self._schema}.{table} WHERE {key} > $1 ORDER BY {key} LIMIT $2"
        return [str(record[0]) for record in await self.link.fetch(sql, after, limit)]

    async def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        [(count,)] = await self.link.fetch(f"SELECT count(*) FROM {self._schema}.{table}")
        return int(count)

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        return await _sums(self.link, self._schema)

    async def clocks(self) -> Clocks:
        """Return the times of the server. An attempt may run where an engine has a lease on a workflow or effect."""
        leased = f"SELECT 1 FROM {self._schema}.{{}} WHERE lease_until > now()"
        sql = f"SELECT EXISTS ({leased.format('workflows')} UNION {leased.format('workflow_effects')})"
        [(leased_rows,)] = await self.link.fetch(sql)
        now_us = await _time_us(self.link)
        return Clocks(now_us, now_us, HELD_US if leased_rows else 0)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Record changes from now on for this mover, and replace an earlier mover.

        Two movers would take each other's notes. The later mover has copied nothing yet, and misses none.
        """
        [(watching,)] = await self.link.fetch(_WATCHING, self._schema)
        if watching != 3 * len(WATCHED):
            async with self._locked("ACCESS EXCLUSIVE" if watching else "SHARE ROW EXCLUSIVE"):
                await self.link.execute(_watching(self._schema))
        await self.link.fetch(f"UPDATE {self._schema}.{LEAVING} SET mover = $1", self._mover)

    async def forget_all(self) -> bool:
        """Note nothing any more: the move is given up. False: nothing was noted."""
        [(watching,)] = await self.link.fetch(_WATCHING, self._schema)
        if watching:
            async with self._locked("ACCESS EXCLUSIVE"):
                await self.link.execute(_unwatching(self._schema))
        return bool(watching)

    async def load_notes(self) -> Noted:
        """Return recorded changes, oldest first."""
        sql = f"""SELECT kind, key, array_agg(number) FROM {self._schema}.{TOUCHED}
GROUP BY kind, key ORDER BY min(number) LIMIT {NOTES_MAX}"""
        keys: dict[str, list[str]] = {}
        numbers: list[int] = []
        for kind, key, each in await self._fetch(sql):
            keys.setdefault(kind, []).append(key)
            numbers += each
        return Noted(keys, numbers, complete=sum(map(len, keys.values())) < NOTES_MAX)

    async def forget(self, changes: Noted) -> None:
        """Delete these notes. Raises UnavailableError when another one is the mover by now."""
        sql = f"DELETE FROM {self._schema}.{TOUCHED} WHERE number = ANY($1::bigint[])"
        async with self.link.transaction():
            await self._refuse_taken_over()
            await self.link.fetch(sql, changes.numbers)

    async def _refuse_taken_over(self) -> None:
        mine = f"SELECT FROM {self._schema}.{LEAVING} WHERE mover = $1 FOR SHARE"
        if not await self._fetch(mine, self._mover):
            raise _taken_over(self.address.redacted_url)

    async def _fetch(self, sql: str, *values: object) -> list[PostgresRow]:
        """Query a table that exists only during a move."""
        try:
            return await self.link.fetch(sql, *values)
        except InterlockError as error:
            if is_missing(error):
                raise _taken_over(self.address.redacted_url) from error
            raise

    # --- the end -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def sealed(self) -> AsyncGenerator[float]:
        """Block all writers and readers during the block; yield when that began. Without `leave` nothing changes."""
        async with self._locked("ACCESS EXCLUSIVE"):
            since_s = self._clock.monotonic_s()
            await self._refuse_taken_over()
            yield since_s

    def _locked(self, mode: str) -> contextlib.AbstractAsyncContextManager[None]:
        async def lock() -> None:
            await self.link.fetch(LOCK, f"interlock {self._schema}")
            await self.check()
            await self._lock((*VIEWS, *TABLES), mode)
            # A session that creates or drops these has locked the others. A vacuum may be running on them.
            await self._lock([row[0] for row in await self.link.fetch(_NOTING, self._schema, NOTES)], mode)

        return self.link.locked(lock, self.location)

    async def _lock(self, names: Sequence[str], mode: str) -> None:
        if names:
            listed = ", ".join(f"{self._schema}.{name}" for name in names)
            await self.link.execute(f"LOCK TABLE {listed} IN {mode} MODE")

    async def leave(self, url: str, epoch: int) -> None:
        """Put the tables aside, write the tombstone and commit; after an unknown outcome, read whether it exists."""
        schema, aside = self._schema, beside(self.address, f"moved_{epoch}")
        await self.link.execute(f"""{_unwatching(schema)}
CREATE SCHEMA {aside};
{moving_tables(schema, aside)}
CREATE TABLE IF NOT EXISTS {schema}.{MOVED} (
    url text NOT NULL, epoch bigint PRIMARY KEY, left_at timestamptz NOT NULL DEFAULT now());""")
        await self.link.fetch(f"INSERT INTO {schema}.{MOVED} (url, epoch) VALUES ($1, $2)", url, epoch)
        try:
            await self.link.commit()
        except (OutcomeUnknown, LostConnection) as error:
            if not await self._has_left(WorkflowsTombstone(url, epoch)):
                raise UnavailableError(
                    "the server was lost in the middle of the seal, and the workflows have not moved.",
                    why="There is no tombstone, so the transaction that would have written it has not happened.",
                    fix="Run the same command again: it goes on where this one ended.",
                ) from error

    async def _has_left(self, tombstone: WorkflowsTombstone) -> bool:
        link = await MoverLink.opened(self.address, SETTINGS, patient=True)
        try:
            async with link.transaction():
                await link.fetch(LOCK, f"interlock {self._schema}")  # The other one has ended, one way or the other.
                marks = await marks_of(link.fetch, self._schema)
        finally:
            await link.end()
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


# --- Target ----------------------------------------------------------------------------------------------------------
# The draft is built beside the schema, and moved there in one step, or removed. There is one mover at a time: a mover
# that takes a draft over writes its own name into the mark, and every transaction of a mover first checks that name. A
# mover that was replaced, or that wakes after a long pause, changes nothing any more (G4).

PLANNING = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
"""Every lookup uses an index: a table that is just being filled has no statistics."""

AGAIN_MAX = 200
"""Workflows of a sample that are brought over twice."""


class PostgresArrival:
    """A schema that workflows arrive in."""

    seal_factor = 0.25
    """Moving tables from one schema to another takes this share of making them; it is most of an idle seal."""
    notes: tuple[str, ...] = ()

    def __init__(self, link: MoverLink, mover: str, schema: str | None = None) -> None:
        self.address = link.address
        self.location = link.address.redacted_url
        self.schema = schema or draft_of(link.address)
        self.link = link
        self._mover = mover

    @classmethod
    async def opened(cls, url: str, mover: str) -> "PostgresArrival":
        """Connect to the target under a unique mover name."""
        address = parse_postgres_url(url)
        return cls(await MoverLink.opened(address, {"jit": "off"}), mover)

    async def close(self) -> None:
        """End the connection, and with it whatever is not committed."""
        await self.link.end()

    async def check(self, epoch: int = ALL, source: str = "") -> None:
        """Raise BadUsage or MovedElsewhere unless workflows may come here."""
        del source
        marks = await marks_of(self.link.fetch, self.address.schema)
        await refuse_used(self.link.driver, self.address, marks, epoch)

    async def begin(self, epoch: int, source: str) -> bool:
        """Make the draft, or take over that of an earlier mover; return whether it is fresh."""
        begun = await begin(self.link, self.address, epoch=epoch, source=source)
        if begun.arrived:
            raise UnavailableError(
                f"move {epoch} has arrived at {self.location}, and {source} does not know it.",
                why="The source was put back from a copy that is older than the move, or another one had the number.",
                fix="Open the target. If the source is what counts, move it with a higher number to an empty schema.",
            )
        sql = f"UPDATE {self.address.schema}.{ARRIVING} SET mover = $1 WHERE epoch = $2"
        await self.link.fetch(sql, self._mover, epoch)
        return begun.fresh

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Run a transaction of this mover, if it still is the mover."""
        async with self.link.transaction(PLANNING):
            mark = f"UPDATE {self.address.schema}.{ARRIVING} SET turns = turns + 1 WHERE mover = $1 RETURNING turns"
            if not await self.link.fetch(mark, self._mover):
                raise _taken_over(self.location)
            yield

    async def between(self, after: str, last: str | None) -> Part:
        """Return the workflows after an id, up to another, with their histories."""
        sql = f"{self._rows} WHERE id > $1 AND ($2::text IS NULL OR id <= $2)"
        rows = _by_id(await self.link.fetch(sql, after, last))
        sql = f"{self._events} WHERE workflow_id = ANY($1::text[]) ORDER BY workflow_id, version"
        return Part(rows, _histories(await self.link.fetch(sql, list(rows))))

    async def spans(self, rows: Iterable[Numbered]) -> dict[str, Span]:
        """Return the spans of history of the workflows that are here with these numbers."""
        sql = f"""SELECT e.workflow_id, count(*), min(e.version), max(e.version)
FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {self.schema}.workflows w ON w.id = n.id AND w.number = n.number
JOIN {self.schema}.workflow_events e ON e.workflow_id = w.id GROUP BY 1"""
        listed = list(rows)
        found = await self.link.fetch(sql, [row.id for _, row in listed], [number for number, _ in listed])
        return {record[0]: Span(record[1], record[2], record[3]) for record in found}

    async def exchange(self, change: Exchange) -> Exchanged:
        """Change the draft, in one transaction, and read back what it has now."""
        async with self.turn():
            return await self.exchange_within(change)

    async def exchange_within(self, change: Exchange) -> Exchanged:
        """Exchange inside a transaction that the caller has begun."""
        events = [each for listed in change.events.values() for each in listed]
        removed, cut = await self._taken_out(change)
        await self._stage(WORKFLOWS, staged_rows(change.rows), replacing="id")
        await self._stage(EVENTS, staged_events(events))
        sql = f"{self._rows} WHERE id = ANY($1::text[])"
        rows = _by_id(await self.link.fetch(sql, [row.id for _, row in change.rows]))
        staged = f"SELECT workflow_id, version FROM {EVENTS.name}"
        sql = f"{self._events} WHERE (workflow_id, version) IN ({staged})"
        added = [statement.record_of(each) for each in await self.link.fetch(sql)] if events else []
        return Exchanged(list(rows.values()), added, cut, removed)

    async def _taken_out(self, change: Exchange) -> tuple[list[int], list[HistoryRecord]]:
        schema, cuts = self.schema, dict(change.cuts)
        # Numbers of pruned workflows are given again, and an id may begin anew: what was under either one goes.
        renumbered = f"""SELECT w.id FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {schema}.workflows w ON w.id = n.id AND w.number <> n.number
UNION SELECT w.id FROM unnest($1::text[], $2::bigint[]) AS n(id, number)
JOIN {schema}.workflows w ON w.number = n.number AND w.id <> n.id"""
        coming = [row.id for _, row in change.rows], [number for number, _ in change.rows]
        again = [record[0] for record in await self.link.fetch(renumbered, *coming)]
        sql = f"DELETE FROM {schema}.workflows WHERE id = ANY($1::text[]) RETURNING id, number"
        removed = await self.link.fetch(sql, [*change.removed, *again])
        for record in removed:
            cuts[record[0]] = ALL
        cut = f"""DELETE FROM {schema}.workflow_events USING unnest($1::text[], $2::bigint[]) AS c(cut_id, below)
WHERE workflow_id = cut_id AND version < below RETURNING {statement.HAPPENED}"""
        taken = await self.link.fetch(cut, list(cuts), list(cuts.values())) if cuts else []
        return [record[1] for record in removed], [statement.record_of(each) for each in taken]

    async def _stage(
        self, table: Staging, records: Sequence[tuple[object, ...]], *, replacing: str | None = None
    ) -> None:
        if not records:
            return
        with translate_errors(writing=False):
            await self.link.driver.execute(table.create())
            copier = cast("CopyingRecords", self.link.driver)
            await copier.copy_records_to_table(table.name, records=records, columns=table.names)
            await self.link.driver.execute(table.insert(self.schema, replacing=replacing))

    @property
    def _events(self) -> str:
        return f"SELECT {statement.HAPPENED} FROM {self.schema}.workflow_events"

    @property
    def _rows(self) -> str:
        return f"SELECT number, {statement.ROW} FROM {self.schema}.workflows"

    async def put_aside(self, table: str, keys: Sequence[str], values: Mapping[str, Aside]) -> list[Aside]:
        """Replace the records of these keys; return them as the draft has them."""
        staged = ASIDE[table]
        of_keys = f"FROM {self.schema}.{table} WHERE {staged.names[0]} = ANY($1::text[])"
        async with self.turn():
            await self.link.fetch(f"DELETE {of_keys}", list(keys))
            await self._stage(staged, [staged_aside(value) for value in values.values()])
            found = await self.link.fetch(f"SELECT {READING[table]} {of_keys}", list(keys))
        return [_aside(table, record) for record in found]

    async def clear_aside(self) -> None:
        """Remove everything that is stored beside workflows."""
        async with self.turn():
            await self.link.execute(f"TRUNCATE {', '.join(f'{self.schema}.{table}' for table in ASIDE)}")

    async def sums(self) -> Sums:
        """Return quick totals of all rows."""
        return await _sums(self.link, self.schema)

    async def settle(self) -> None:
        """Run ANALYZE on the tables of the draft."""
        await self.link.execute(f"ANALYZE {self.schema}.workflows; ANALYZE {self.schema}.workflow_events")

    async def now_us(self) -> int:
        """Return the time of the server."""
        return await _time_us(self.link)

    async def complete(self, epoch: int, report: str, clocks: Clocks, now_us: int) -> None:
        """Mark the draft complete, with its report. From now on only the source's tombstone is missing."""
        refuse_behind((clocks.time_us - now_us) / 1_000_000, self.location)
        sql = (
            f"UPDATE {self.address.schema}.{ARRIVING} SET complete = true, report = $1, time_us = $2, skew_us = $3, "
            "held_us = $4 WHERE epoch = $5"
        )
        async with self.turn():
            skew_us = max(0, now_us - clocks.now_us)
            await self.link.fetch(sql, report, clocks.time_us, skew_us, clocks.held_us, epoch)

    async def arrive(self, epoch: int) -> str | None:
        """Make the draft the store, and return its report; None when it has moved on since. A second call is safe."""
        await arrive(self.link, self.address, epoch)
        marks = await marks_of(self.link.fetch, self.address.schema)
        if marks.arriving is None or marks.arriving.epoch != epoch:
            return None
        return marks.arriving.report or None

    async def reached(self) -> float | None:
        """Return nothing: engines on other hosts open the store with pools of their own."""
        return None

    async def draft(self) -> tuple[int, str] | None:
        """Return the epoch and the source of the draft; None without one."""
        found = (await marks_of(self.link.fetch, self.address.schema)).arriving
        return None if found is None or found.arrived else (found.epoch, found.source)

    async def take_back(self, epoch: int) -> bool | None:
        """Take the draft over from other movers; return whether it was complete, None without one."""
        arriving_here = (await marks_of(self.link.fetch, self.address.schema)).arriving
        if arriving_here is None or arriving_here.epoch != epoch or arriving_here.arrived:
            return None
        return await take_back(self.link, self.address, epoch, self._mover)

    async def throw_away(self, epoch: int) -> None:
        """Remove the draft, and restore the previous store."""
        await throw_away(self.link, self.address, epoch, self._mover)

    async def timed(self, part: Part) -> Timed:
        """Measure in a schema that is rolled back: indexes, checks and the network count."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        async with trial(self.link, self.address) as schema:
            self.link.inside = True
            try:
                await self.link.execute(PLANNING)
                return await PostgresArrival(self.link, "", schema).tried(part, clock() - began_s)
            finally:
                self.link.inside = False

    async def clock_notes(self, clocks: Clocks) -> tuple[str, ...]:
        """Return a remark when the clock of the server is earlier than the time of the workflows."""
        behind_s = (clocks.time_us - await _time_us(self.link)) / 1_000_000
        if behind_s <= 0:
            return ()
        bound = f"at most {CLOCK_BEHIND_S_MAX:g} s" if behind_s <= CLOCK_BEHIND_S_MAX else "and that is too much"
        return (f"The database's clock is {behind_s:.1f} s before the workflows, who have to wait for it ({bound}).",)

    async def tried(self, part: Part, made_s: float) -> Timed:
        """Bring a sample over, and a part of it again, inside a transaction that the caller has begun."""
        clock, rows = asyncio.get_running_loop().time, list(part.rows.values())
        if not rows:
            return Timed(0.0, 0.0, 0.0, made_s)
        began_s = clock()
        done = await self.exchange_within(Exchange(rows, part.events))
        events = [each for listed in part.events.values() for each in listed]
        sum(map(digest_of, [*rows, *done.rows]))
        sum(map(digest_of, [*events, *done.events]))
        copied_s = (clock() - began_s) / len(rows)
        await self.link.execute("DROP TABLE staged_workflows; DROP TABLE IF EXISTS staged_workflow_events")
        few = rows[:AGAIN_MAX]
        began_s = clock()
        await self.spans(few)
        await self.exchange_within(Exchange(few))
        again_s = (clock() - began_s) / len(few)
        began_s = clock()
        await self.sums()
        return Timed(copied_s, again_s, clock() - began_s, made_s)
