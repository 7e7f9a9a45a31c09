"""PostgreSQL as the source and as the target of a move.

Triggers note the key of every written row in a table of our own, which is logged like the rows: a write that survives
a crash was noted, too. Notes are numbered at their creation and not at their commit, so they are deleted one by one
and never up to a number. The seal is an exclusive lock on every table, acquired after that on the gate, where a
transaction on several tables waits before it locks any (`postgres.handover_marks`). The locks end with the connection.

Sections: keys in notes, source, trial of definitions, target.
"""

# ruff: noqa: S608 -- every name in these texts is our own, or quoted.

import contextlib
import struct
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec

from interlock.clock import Clock
from interlock.database.database import Database
from interlock.errors import (
    BadUsage,
    DialectError,
    InterlockError,
    OutcomeUnknown,
    TargetNotFound,
    TransactionError,
    UnavailableError,
)
from interlock.postgres.handover_marks import (
    ARRIVED,
    ARRIVING,
    GATE,
    MOVED,
    OBJECTS_OF,
    OWN,
    TABLES_OF,
    TOUCH,
    TOUCHED,
    HandoverMarks,
    arrive,
    aside,
    draft,
    handover_marks,
    leaving_script,
    quote_identifier,
)
from interlock.postgres.pool import Link
from interlock.postgres.statements import translate_user_errors
from interlock.postgres.translate_errors import LostConnection, is_missing
from interlock.relocate.postgres_link import MoverLink
from interlock.relocate.postgres_rows import (
    MoverConnections,
    count_in_postgres,
    delete_in_postgres,
    empty_in_postgres,
    postgres_positions,
    postgres_rows,
    postgres_rows_of,
    put_in_postgres,
    refuse_unfit,
    set_postgres_positions,
    to_postgres,
    validate_references,
)
from interlock.relocate.postgres_shape import shape_of_postgres
from interlock.relocate.rows import INTERVAL_PARTS, Page, StoredRow, received_time
from interlock.relocate.shape import KEY_TABLES, Findings, Shape, Table, enumeration_text, searching
from interlock.relocate.source_and_target import Draft, Pending, Restart
from interlock.sql.parse import quoted_name
from interlock.sql.stored_values import StoredValue
from interlock.sql.types import Name

# --- Keys in notes ---------------------------------------------------------------------------------------------------
# A note is an array of texts, one per column of the key, which depends on no setting of the session that wrote the
# row: moments, floats and bytes are written as hexadecimal digits of what PostgreSQL would send.

_NOTED: Final[dict[Name, str]] = {
    "bool": "{}::integer::text",
    "bytea": "encode({}, 'hex')",
    "float8": "encode(float8send({}), 'hex')",
    "date": "({} - DATE '1970-01-01')::text",
    "time": "((extract(epoch FROM {}) * 1000000)::bigint)::text",
    "timestamp": "encode(timestamp_send({}), 'hex')",
    "timestamptz": "encode(timestamptz_send({}), 'hex')",
    "interval": INTERVAL_PARTS,
    "uuid": "encode(uuid_send({}), 'hex')",
}
_READ: Final[dict[Name, Callable[[str], StoredValue]]] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "bool": int,
    "date": int,
    "time": int,
    "bytea": bytes.fromhex,
    "uuid": bytes.fromhex,
    "float8": lambda noted_keys: float(struct.unpack(">d", bytes.fromhex(noted_keys))[0]) + 0.0,
    "timestamp": lambda noted_keys: received_time(bytes.fromhex(noted_keys)),
    "timestamptz": lambda noted_keys: received_time(bytes.fromhex(noted_keys)),
}


def noted_keys(table: Table, row: str) -> str:
    """Return the expression of a note, a text[]; `row` is NEW or OLD."""
    parts = [
        _NOTED.get(column.type.name, "{}::text").format(f"{row}.{quoted_name(column.name)}")
        for column in table.key_columns
    ]
    return f"ARRAY[{', '.join(parts)}]"


def key_noted(table: Table, note: Sequence[str]) -> StoredRow:
    """Decode a note to the key as a lane stores it."""
    return tuple(
        column.type.labels.index(text) if column.type.labels else _READ.get(column.type.name, str)(text)
        for column, text in zip(table.key_columns, note, strict=True)
    )


# --- Source ----------------------------------------------------------------------------------------------------------

ALONE: Final = "SELECT pg_try_advisory_lock(hashtextextended('interlock mover ' || $1, 0))"
"""Allows one mover at a time, for as long as its connection lives."""

LEAVING: Final = "SELECT pg_advisory_xact_lock(hashtextextended('interlock leaving ' || $1, 0))"
"""Held by the transaction that writes a tombstone, so that a check for it waits for that transaction's end."""

FINGERPRINT: Final = """
SELECT md5(string_agg(line, E'\n' ORDER BY line)) FROM (
  SELECT format('%s %s %s %s', c.oid, c.relname, c.relkind, c.relrowsecurity) AS line
  FROM pg_class c WHERE c.relnamespace = to_regnamespace($1) AND c.relname <> ALL ($2::text[])
  UNION ALL SELECT format('%s %s %s %s %s %s %s', a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod,
    a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r' AND a.attnum > 0 AND c.relname <> ALL ($2::text[])
  UNION ALL SELECT format('%s %s', k.oid, pg_get_constraintdef(k.oid))
  FROM pg_constraint k WHERE k.connamespace = to_regnamespace($1)
    AND k.conrelid NOT IN (SELECT oid FROM pg_class WHERE relname = ANY ($2::text[]))
  UNION ALL SELECT format('%s %s %s', e.enumtypid, e.enumlabel, e.enumsortorder)
  FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid WHERE t.typnamespace = to_regnamespace($1)
  UNION ALL SELECT format('%s %s', c.oid, pg_get_viewdef(c.oid))
  FROM pg_class c WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'v'
  UNION ALL SELECT format('%s %s %s', t.oid, t.tgrelid, t.tgenabled)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
  WHERE c.relnamespace = to_regnamespace($1) AND NOT t.tgisinternal
) AS lines"""
"""Everything that a copy depends on, triggers included, by OIDs that are not reused."""

UNWATCHED: Final = """
SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace($1) AND c.relname = ANY ($2::text[])
AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = $3)"""
WATCHING: Final = """
SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace($1)
AND EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = $2)"""
FUNCTIONS: Final = """
SELECT p.proname FROM pg_proc p WHERE p.pronamespace = to_regnamespace($1) AND p.proname LIKE 'interlock\\_touch%'"""


class _Reading:
    """Reads on one connection, in its open transaction."""

    def __init__(self, link: MoverLink, schema: str) -> None:
        self._link = link
        self._schema = schema

    async def page(self, table: Table, after: StoredRow | None, limit: int) -> Page:
        """Return a page of rows in the order of the key."""
        return await postgres_rows(self._link, self._schema, table, after, limit=limit)

    async def count(self, table: Table) -> int:
        """Return the number of rows."""
        return await count_in_postgres(self._link, self._schema, table)

    async def fingerprint(self) -> str:
        """Return a digest of the schema and its triggers."""
        [row] = await self._link.fetch(FINGERPRINT, self._schema, [TOUCHED, GATE])
        return str(row[0])

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows, in the open transaction."""
        notes = await self._link.fetch(
            f'SELECT "table", key, array_agg(number) FROM {quote_identifier(self._schema)}.{TOUCHED} '
            f"GROUP BY 1, 2 ORDER BY min(number) LIMIT {int(limit)}"
        )
        tables = {table.name: table for table in shape.tables}
        keys: dict[str, list[StoredRow]] = {}
        for name, note, _ in notes:
            if name not in tables or note is None:
                raise Restart(f"{name} was emptied or made anew")
            keys.setdefault(name, []).append(key_noted(tables[name], note))
        keyed = {name: listed for name, listed in keys.items() if tables[name].key}
        rows = {
            name: await postgres_rows_of(self._link, self._schema, tables[name], listed)
            for name, listed in keyed.items()
        }
        numbers = [number for _, _, listed in notes for number in cast("list[int]", listed)]
        return Pending(
            notes=len(numbers),
            keys=keyed,
            rows=rows,
            complete=len(notes) < limit,
            numbers=numbers,
        )


class PostgresSource(_Reading):
    """One schema."""

    def __init__(self, mine: MoverConnections, link: MoverLink) -> None:
        super().__init__(link, mine.address.schema)
        self.location = mine.address.redacted_url
        self._mine = mine
        self._order: list[str] = []

    @classmethod
    async def opened(cls, url: str, *, clock: Clock) -> "PostgresSource":
        """Connect. Raises TargetNotFound when there is no such schema."""
        mine = MoverConnections(url, clock)
        link = await mine.connected()
        try:
            [row] = await link.fetch("SELECT to_regnamespace($1) IS NULL", quote_identifier(mine.address.schema))
        except BaseException:
            await link.end()
            raise
        if row[0]:
            await link.end()
            raise TargetNotFound(
                f"there is no database at {mine.address.redacted_url}.",
                why=f"The server has no schema {mine.address.schema!r}.",
                fix="Check the address; `interlock route` moves a database that is there.",
            )
        return cls(mine, link)

    async def close(self) -> None:
        """End the connection."""
        await self._link.end()

    async def take(self) -> None:
        """Acquire the movers' lock on the connection that deletes notes: a mover that lost it cannot delete them."""
        await self._link.take(ALONE, self._schema, self.location)
        if (await self._marks()).arrived:
            await validate_references(self._link, self._schema)

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        marks = await self._marks()
        return (marks.url, marks.epoch) if marks.url else None

    async def confirm_left(self) -> None:
        """Do nothing: the tombstone is all."""

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        marks = await self._marks()
        return max(marks.epoch, marks.arrived)

    async def _marks(self) -> HandoverMarks:
        return await handover_marks(self._link.read, self._schema)

    async def shape(self) -> Shape:
        """Return the shape of the database."""
        shape = await shape_of_postgres(self._link, self._schema)
        await refuse_unfit(self._link, self._schema, shape)
        self._order = [GATE, KEY_TABLES, *reversed(_names(shape))]
        return shape

    def _turn_of(self, table: str) -> tuple[int, str]:
        """Sort key for the order in which writers lock: the gate, keys, and referring tables before referred ones."""
        return (self._order.index(table) if table in self._order else len(self._order), table)

    async def bytes_of(self, shape: Shape) -> Mapping[str, int]:
        """Return the bytes of the tables on the server, without their indexes."""
        sql = "SELECT pg_table_size(to_regclass($1))"
        return {
            table.name: cast("int", (await self._link.fetch(sql, self._in(table.name)))[0][0] or 0)
            for table in shape.tables
        }

    def _in(self, name: str) -> str:
        return f"{quote_identifier(self._schema)}.{quote_identifier(name)}"

    async def watch(self, shape: Shape) -> float:
        """Create the triggers. Writers wait only briefly for it."""
        names = [table.name for table in shape.tables]
        if names and not await self._link.fetch(UNWATCHED, self._schema, names, TOUCH):
            return 0.0
        since_s = 0.0

        async def make() -> None:
            nonlocal since_s
            since_s = self._mine.clock.monotonic_s()
            await self._make_triggers(shape)

        async with self._link.locked(make, self.location):
            pass  # All is done as soon as it is locked.
        return self._mine.clock.monotonic_s() - since_s

    async def _make_triggers(self, shape: Shape) -> None:
        await self._lock(_names(shape), "SHARE ROW EXCLUSIVE")
        notes = f"{quote_identifier(self._schema)}.{TOUCHED}"
        await self._link.execute(
            f"CREATE TABLE IF NOT EXISTS {notes} "
            '(number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "table" text NOT NULL, key text[])'
        )
        missing = {str(row[0]) for row in await self._link.fetch(UNWATCHED, self._schema, list(_names(shape)), TOUCH)}
        for place, table in enumerate(shape.tables):
            if table.name in missing:
                for sql in trigger_script(table, self._schema, f"{TOUCH}_{place}"):
                    await self._link.execute(sql)

    async def _lock(self, tables: Sequence[str], mode: str) -> None:
        """Lock the tables in the order of the writers, after the gate, where other transactions wait without locks."""
        await self._link.execute(
            f"DO $$ BEGIN LOCK TABLE {self._in(GATE)} IN ACCESS EXCLUSIVE MODE; "
            "EXCEPTION WHEN undefined_table THEN NULL; END $$"
        )
        listed = ", ".join(self._in(name) for name in sorted(tables, key=self._turn_of))
        if listed:
            await self._link.execute(f"LOCK TABLE {listed} IN {mode} MODE")

    async def noted_keys(self, table: Table, after: int) -> tuple[set[StoredRow], int]:
        """Return the keys of one table that were noted after a note, and the number of the last one."""
        notes = f"{quote_identifier(self._schema)}.{TOUCHED}"
        sql = f'SELECT key, max(number) FROM {notes} WHERE number > $2 AND "table" = $1 AND key IS NOT NULL GROUP BY 1'
        found = await self._link.fetch(sql, table.name, after)
        last = max((cast("int", row[1]) for row in found), default=after)
        return {key_noted(table, cast("list[str]", row[0])) for row in found}, last

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows at one instant."""
        async with self._link.snapshot():
            return await super().pending(shape, limit)

    async def forget(self, pending: Pending) -> None:
        """Delete exactly these notes."""
        sql = f"DELETE FROM {quote_identifier(self._schema)}.{TOUCHED} WHERE number = ANY ($1::bigint[])"
        _ = await self._link.fetch(sql, list(pending.numbers))

    async def unwatch(self) -> None:
        """Remove the triggers and the notes."""
        async with self._link.locked(self._drop_triggers, self.location):
            pass  # All is done as soon as it is locked.

    async def _drop_triggers(self) -> None:
        watching = [str(row[0]) for row in await self._link.fetch(WATCHING, self._schema, TOUCH)]
        await self._lock(watching, "ACCESS EXCLUSIVE")
        for sql in await _unwatching(self._link, self._schema):
            await self._link.execute(sql)

    @asynccontextmanager
    async def sealed(self, wait_s: float) -> "AsyncGenerator[_Sealed]":
        """Lock every table, on a connection of its own."""
        link = await self._mine.connected()
        try:
            tables = [str(row[0]) for row in await link.fetch(TABLES_OF, self._schema)]
            listed = ", ".join(self._in(name) for name in sorted(tables, key=self._turn_of))
            here = quote_identifier(self._schema)
            since_s = 0.0

            async def lock() -> None:
                nonlocal since_s
                since_s = self._mine.clock.monotonic_s()
                _ = await link.fetch(LEAVING, self._schema)
                await link.execute(f"LOCK TABLE {listed} IN ACCESS EXCLUSIVE MODE")
                for kind, name in await link.fetch(OBJECTS_OF, self._schema):
                    if kind == "SEQUENCE":  # LOCK does not take sequences; this locks one, and changes nothing.
                        await link.execute(f"ALTER SEQUENCE {self._in(str(name))} SET SCHEMA {here}")

            async with link.locked(lock, self.location, wait_s):
                _ = await self._link.fetch("SELECT 1")  # A mover that lost it may not have been the only one (`take`).
                yield _Sealed(link, self._mine, tables, since_s)
        finally:
            await link.end()


class _Sealed(_Reading):
    """A source with all tables locked."""

    def __init__(self, link: MoverLink, mine: MoverConnections, tables: Sequence[str], since_s: float) -> None:
        super().__init__(link, mine.address.schema)
        self.since_s = since_s
        self._mine = mine
        self._tables = tables

    async def positions(self, shape: Shape) -> Mapping[str, int]:
        """Return the last number of each numbered table."""
        return await postgres_positions(self._link, self._schema, shape)

    async def leave(self, url: str, epoch: int) -> None:
        """Move the tables away, write the tombstone and commit. Without an answer, look for the tombstone."""
        for sql in await _unwatching(self._link, self._schema):
            await self._link.execute(sql)
        tables = [name for name in self._tables if name not in {TOUCHED, MOVED}]
        if MOVED in self._tables:
            raise Restart("a tombstone is there already")
        others = [(str(kind), str(name)) for kind, name in await self._link.fetch(OBJECTS_OF, self._schema)]
        for sql in leaving_script(self._schema, tables, others, epoch):
            await self._link.execute(sql)
        await self._refuse_late(tables, epoch)
        tombstone = f"INSERT INTO {quote_identifier(self._schema)}.{MOVED} VALUES ($1, $2, now())"
        _ = await self._link.fetch(tombstone, url, epoch)
        try:
            await self._link.commit()
        except (OutcomeUnknown, LostConnection) as error:
            if not await self._has_left(url, epoch):
                raise UnavailableError(
                    "the server was lost in the middle of the seal, and the database has not moved.",
                    why="There is no tombstone, so the transaction that would have written it has not happened.",
                    fix="Run the same command again: it goes on where this one ended.",
                ) from error

    async def _refuse_late(self, tables: Sequence[str], epoch: int) -> None:
        """Refuse writes to the old tables by functions and other code that does not use their names."""
        there = quote_identifier(aside(self._schema, epoch))
        await self._link.execute(
            f"CREATE FUNCTION {there}.interlock_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'this table has moved (interlock, move {epoch})' USING ERRCODE = '42P01'; END $$"
        )
        for name in tables:
            await self._link.execute(
                f"CREATE TRIGGER interlock_refuse BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON "
                f"{there}.{quote_identifier(name)} FOR EACH STATEMENT EXECUTE FUNCTION {there}.interlock_refuse()"
            )

    async def _has_left(self, url: str, epoch: int) -> bool:
        link = await self._mine.connected(patient=True)
        try:
            async with link.transaction():
                _ = await link.fetch(LEAVING, self._schema)  # The other transaction has committed or rolled back.
            marks = await handover_marks(link.read, self._schema)
        finally:
            await link.end()
        return (marks.url, marks.epoch) == (url, epoch)


def trigger_script(table: Table, schema: str, name: str) -> list[str]:
    """Return the statements that create the triggers of one table. Their function runs with its owner's rights."""
    notes, here, into = (
        f"{quote_identifier(schema)}.{TOUCHED}",
        quote_identifier(schema),
        f"{quote_identifier(schema)}.{quote_identifier(table.name)}",
    )
    text = "'" + table.name.replace("'", "''") + "'"
    old, new = (noted_keys(table, row) if table.key else "'{}'::text[]" for row in ("OLD", "NEW"))
    changed = f"{old} IS DISTINCT FROM {new}" if table.key else "false"
    insert = f'INSERT INTO {notes} ("table", key) VALUES ({text}, '
    how = "RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS"
    rows = (
        f"IF TG_OP = 'INSERT' THEN {insert}{new}); RETURN NULL; END IF; {insert}{old}); "
        f"IF TG_OP = 'UPDATE' AND {changed} THEN {insert}{new}); END IF; RETURN NULL;"
    )
    function = f"CREATE OR REPLACE FUNCTION {here}.{name}"
    trigger = f"CREATE TRIGGER {TOUCH}"
    return [
        f"{function}() {how} $interlock$ BEGIN {rows} END $interlock$",
        f"{function}_all() {how} $interlock$ BEGIN {insert}NULL); RETURN NULL; END $interlock$",
        f"{trigger} AFTER INSERT OR UPDATE OR DELETE ON {into} FOR EACH ROW EXECUTE FUNCTION {here}.{name}()",
        f"{trigger}_all AFTER TRUNCATE ON {into} FOR EACH STATEMENT EXECUTE FUNCTION {here}.{name}_all()",
    ]


async def _unwatching(link: MoverLink, schema: str) -> list[str]:
    here = quote_identifier(schema)
    found: list[str] = []
    for trigger in (TOUCH, f"{TOUCH}_all"):
        watching = await link.fetch(WATCHING, schema, trigger)
        found += [f"DROP TRIGGER {trigger} ON {here}.{quote_identifier(str(row[0]))}" for row in watching]
    found += [f"DROP FUNCTION {here}.{quote_identifier(str(row[0]))}()" for row in await link.fetch(FUNCTIONS, schema)]
    return [*found, f"DROP TABLE IF EXISTS {here}.{TOUCHED}"]


def _names(shape: Shape) -> Sequence[str]:
    return [table.name for table in shape.tables]


# --- Trial of definitions --------------------------------------------------------------------------------------------
# A lane takes a few definitions that PostgreSQL does not, such as an index whose condition looks at the year of a
# moment, which depends on a time zone there. The server itself is asked, on empty tables, and everything is taken
# back.


async def refuse_untaken(link: Link, schema: str, shape: Shape) -> None:
    """Raise DialectError with everything that the server refuses to create.

    Inside the caller's transaction, in which the tables were just created.
    """
    findings = Findings()
    with translate_user_errors(writing=False):
        await link.driver.execute("SAVEPOINT interlock_offered")
    for table in shape.tables:
        for sql in (*table.after(schema), *table.last(schema)):
            await _offer(link, f"the table {table.name}, {sql}", sql, findings)
    for view in shape.views:
        await _offer(link, f"the view {view.name}", view.create, findings)
    with translate_user_errors(writing=False):
        await link.driver.execute("ROLLBACK TO SAVEPOINT interlock_offered")
    findings.settle("the database")


async def _offer(link: Link, where: str, sql: str, findings: Findings) -> None:
    with translate_user_errors(writing=False):
        await link.driver.execute("SAVEPOINT interlock_one")
    try:
        with translate_user_errors(writing=False):
            await link.driver.execute(sql)
    except (DialectError, TransactionError) as error:
        findings.refused(where, error)
        with translate_user_errors(writing=False):
            await link.driver.execute("ROLLBACK TO SAVEPOINT interlock_one")


# --- Target ----------------------------------------------------------------------------------------------------------
# The draft is in a schema of its own, beside the target schema, whose table `interlock_arriving` marks it and stores
# the position of the copy. The same transaction writes rows and position, so its commit is asynchronous. The commit
# of noted rows is synchronous, because the source then deletes the notes. The arrival is a rename: all tables change
# their schema in one transaction.

TARGET_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('interlock route ' || $1, 0))"
"""Allows one mover at a time, for as long as its connection lives."""

TEMPORARY: Final = "pg_temp"
UNHURRIED: Final = "SET LOCAL synchronous_commit = off"
DURABLE: Final = "SET LOCAL synchronous_commit = on"
"""Makes earlier transactions durable, too, before notes of their rows are deleted."""


class PostgresTarget:
    """One schema."""

    def __init__(self, mine: MoverConnections, link: MoverLink) -> None:
        self.location = mine.address.redacted_url
        self._mine = mine
        self._schema = mine.address.schema
        self._link = link
        self._epoch = 0

    @classmethod
    async def opened(cls, url: str, *, clock: Clock, only_look: bool) -> "PostgresTarget":
        """Connect; without `only_look` as the only mover here."""
        mine = MoverConnections(url, clock)
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

    async def _marks(self) -> HandoverMarks:
        return await handover_marks(self._link.read, self._schema)

    async def _take(self) -> None:
        """Become the only mover here."""
        await self._link.take(TARGET_LOCK, self._schema, self.location)

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
        return f"{quote_identifier(self._schema)}.{ARRIVING}"

    async def refuse_taken(self) -> None:
        """Raise BadUsage when the schema has tables or used keys."""
        names = {str(row[0]) for row in await self._link.fetch(TABLES_OF, self._schema)}
        names |= {str(row[1]) for row in await self._link.fetch(OBJECTS_OF, self._schema)}
        taken = sorted(names - {*OWN, MOVED, ARRIVING, ARRIVED})
        for name in sorted(names & {OWN[0]}):
            if (
                await self._link.fetch(
                    f"SELECT 1 FROM {quote_identifier(self._schema)}.{quote_identifier(name)} LIMIT 1"
                )
            ) and not taken:
                taken.append(name)
        if taken:
            raise BadUsage(
                f"there is something at {self.location} already: {', '.join(taken[:5])}.",
                why="A move brings a whole database, and mixes it with nothing.",
                fix="Name an unused schema: …?schema=stock.",
            )

    async def begin(self, draft: Draft, shape: Shape) -> None:
        """Create the schema of the draft, its tables, and the mark."""
        before = quote_identifier(self._place)  # The schema of a draft with an older epoch.
        self._epoch = draft.epoch
        here, there = quote_identifier(self._schema), quote_identifier(self._place)
        async with self._link.transaction():
            await self._link.execute(f"DROP SCHEMA IF EXISTS {before} CASCADE")
            await self._close_gate()
            await self._link.execute(f"CREATE SCHEMA IF NOT EXISTS {here}; DROP SCHEMA IF EXISTS {there} CASCADE")
            await self._link.execute(f"CREATE SCHEMA {there}; CREATE TABLE {there}.{GATE} ()")
            await self._link.execute(searching(self._place))
            for sql in (*shape.before, *(table.first(self._place) for table in shape.tables)):
                await self._link.execute(sql)
            await refuse_untaken(self._link, self._place, shape)
            for view in shape.views:
                await self._link.execute(view.create)
            await self._link.execute(f"DROP TABLE IF EXISTS {self._mark()}")
            await self._link.execute(f"CREATE TABLE {self._mark()} (epoch bigint, source text, state bytea)")
            mark = f"INSERT INTO {self._mark()} VALUES ($1, $2, $3)"
            _ = await self._link.fetch(mark, draft.epoch, draft.source, msgspec.msgpack.encode(draft))

    async def _close_gate(self) -> None:
        """Remove the gate, so that a client that had opened the empty place before cannot create tables there."""
        gate = f"{quote_identifier(self._schema)}.{GATE}"
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
                        f"ALTER TABLE {quote_identifier(self._place)}.{quote_identifier(table.name)} "
                        f"DROP CONSTRAINT IF EXISTS {quote_identifier(reference.name)}"
                    )

    async def _remember(self, draft: Draft) -> None:
        _ = await self._link.fetch(f"UPDATE {self._mark()} SET state = $1", msgspec.msgpack.encode(draft))

    async def copy(self, table: Table, rows: Sequence[StoredRow], draft: Draft) -> None:
        """Write rows and position in one transaction."""
        async with self._link.transaction(UNHURRIED):
            await to_postgres(self._link, self._place, table, rows)
            await self._remember(draft)

    async def put(self, shape: Shape, pending: Pending) -> None:
        """Write pending rows. All their keys are removed first, so that unique values cannot collide."""
        async with self._link.transaction(DURABLE):
            for name, keys in pending.keys.items():
                await delete_in_postgres(self._link, self._place, shape.table(name), keys)
            for name, rows in pending.rows.items():
                await put_in_postgres(self._link, self._place, shape.table(name), rows)

    async def replace(self, table: Table, rows: Sequence[StoredRow], *, first: bool) -> None:
        """Replace all rows with these if `first`, else add them."""
        async with self._link.transaction(DURABLE):
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
        async with self._link.transaction(searching(self._place)):
            for table in shape.tables:
                for sql in table.after(self._place):
                    await self._link.execute(sql)
            await self._remember(draft)
        for table in shape.tables:
            await self._link.execute(f"ANALYZE {quote_identifier(self._place)}.{quote_identifier(table.name)}")

    def last(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Open the last transaction, which the writes inside join; its commit makes all earlier ones durable."""
        return self._link.transaction(DURABLE)

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

    async def reached(self) -> float:
        """Open the database as a program that follows does, at the same time as it does; return when that is done."""
        with contextlib.suppress(InterlockError):  # It has arrived, whether this mover may open it or not.
            async with Database.open(self._mine.url) as db:
                await db.query("SELECT 1")
                return self._mine.clock.monotonic_s()
        return self._mine.clock.monotonic_s()

    async def finish(self) -> None:
        """Validate the references; writers do not wait for it."""
        await validate_references(self._link, self._schema)

    @asynccontextmanager
    async def sample(self, table: Table) -> "AsyncGenerator[_Sample]":
        """Create a temporary table, which is dropped at the end of the block."""
        async with self._link.transaction(UNHURRIED):
            await self._link.execute(searching(TEMPORARY))
            for sql in (*map(enumeration_text, table.enumerations), table.alone.first(TEMPORARY)):
                await self._link.execute(sql)
            yield _Sample(self._link, table)
            await self._link.rollback()

    async def drop(self) -> None:
        """Remove the draft."""
        if await self.draft() is None:
            return
        async with self._link.transaction():
            await self._link.execute(
                f"DROP SCHEMA IF EXISTS {quote_identifier(self._place)} CASCADE; DROP TABLE {self._mark()}"
            )
            if OWN[0] in {str(row[0]) for row in await self._link.fetch(TABLES_OF, self._schema)}:
                await self._link.execute(f"CREATE TABLE {quote_identifier(self._schema)}.{GATE} ()")


class _Sample:
    """Rows in a temporary table."""

    def __init__(self, link: MoverLink, table: Table) -> None:
        self._link = link
        self._table = table

    async def write(self, rows: Sequence[StoredRow]) -> None:
        """Add rows."""
        await to_postgres(self._link, TEMPORARY, self._table, rows)

    async def read(self, keys: Sequence[StoredRow]) -> list[StoredRow]:
        """Return the rows with these keys."""
        return await postgres_rows_of(self._link, TEMPORARY, self._table, keys)
