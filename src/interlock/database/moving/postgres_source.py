"""PostgreSQL as the source of a move.

Triggers note the key of every written row in a table of our own, which is logged like the rows: a write that survives
a crash was noted, too. Notes are numbered at their creation and not at their commit, so they are deleted one by one
and never up to a number. The seal is an exclusive lock on every table, acquired after that on the gate, where a
transaction on several tables waits before it locks any (`sql.postgres.leaving`). The locks end with the connection.
"""

# ruff: noqa: S608 -- every name in these texts is our own, or quoted.

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from interlock.database.moving.ends import Pending, Restart
from interlock.database.moving.lane_rows import Page
from interlock.database.moving.locking import Tries, no_lock
from interlock.database.moving.noting import key_noted, noted
from interlock.database.moving.postgres_link import Linked, Mine, validate_references
from interlock.database.moving.postgres_numbering import postgres_positions
from interlock.database.moving.postgres_rows import count_in_postgres, postgres_rows, postgres_rows_of, refuse_unfit
from interlock.database.moving.postgres_shape import shape_of_postgres
from interlock.database.moving.shape import KEYS, Shape, Table
from interlock.database.moving.values import StoredRow
from interlock.errors import OutcomeUnknown, TargetNotFound, UnavailableError
from interlock.seams import Clock
from interlock.sql.postgres.failures import Blocked, LostConnection
from interlock.sql.postgres.leaving import (
    MOVED,
    TABLES_OF,
    TOUCH,
    TOUCHED,
    Marks,
    aside,
    leaving_script,
    marks_of,
    quoted,
)
from interlock.sql.postgres.turns import GATE

LOCK_MS: Final = 300
"""Timeout of a lock, after which waiting clients go first. The server looks for deadlocks after a second."""

CATALOGS_MS: Final = 10_000
"""Timeout with all tables locked: only a vacuum of the catalogs can block, and the server ends an automatic one."""

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

    def __init__(self, link: Linked, schema: str) -> None:
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
            f'SELECT "table", key, array_agg(number) FROM {quoted(self._schema)}.{TOUCHED} '
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

    def __init__(self, mine: Mine, link: Linked) -> None:
        super().__init__(link, mine.address.schema)
        self.shown = mine.address.shown
        self._mine = mine
        self._order: list[str] = []

    @classmethod
    async def opened(cls, url: str, *, clock: Clock) -> "PostgresSource":
        """Connect. Raises TargetNotFound when there is no such schema."""
        mine = Mine(url, clock)
        link = await mine.connected()
        [row] = await link.fetch("SELECT to_regnamespace($1) IS NULL", quoted(mine.address.schema))
        if row[0]:
            await link.end()
            raise TargetNotFound(
                f"there is no database at {mine.address.shown}.",
                why=f"The server has no schema {mine.address.schema!r}.",
                fix="Check the address; `interlock route` moves a database that is there.",
            )
        return cls(mine, link)

    async def close(self) -> None:
        """End the connection."""
        await self._link.end()

    async def take(self) -> None:
        """Acquire the movers' lock on the connection that deletes notes: a mover that lost it cannot delete them."""
        await self._link.take(ALONE, self._schema, self.shown)
        if (await self._marks()).arrived:
            await validate_references(self._link, self._schema)

    async def moved(self) -> tuple[str, int] | None:
        """Return its tombstone; None without one."""
        marks = await self._marks()
        return (marks.url, marks.epoch) if marks.url else None

    async def last_epoch(self) -> int:
        """Return the epoch of the last move."""
        marks = await self._marks()
        return max(marks.epoch, marks.arrived)

    async def _marks(self) -> Marks:
        return await marks_of(self._link.read, self._schema)

    async def shape(self) -> Shape:
        """Return the shape of the database."""
        shape = await shape_of_postgres(self._link, self._schema)
        await refuse_unfit(self._link, self._schema, shape)
        self._order = [GATE, KEYS, *reversed(_names(shape))]
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
        return f"{quoted(self._schema)}.{quoted(name)}"

    async def watch(self, shape: Shape) -> None:
        """Create the triggers. Writers wait only briefly for it."""
        names = [table.name for table in shape.tables]
        if names and not await self._link.fetch(UNWATCHED, self._schema, names, TOUCH):
            return
        tries = Tries()
        while await tries.next():
            with contextlib.suppress(Blocked):
                async with self._link.transaction(f"SET LOCAL lock_timeout = {LOCK_MS}"):
                    await self._make_triggers(shape)
                return
        raise no_lock(self.shown)

    async def _make_triggers(self, shape: Shape) -> None:
        await self._lock(_names(shape), "SHARE ROW EXCLUSIVE")
        notes = f"{quoted(self._schema)}.{TOUCHED}"
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

    async def noted(self, table: Table) -> set[StoredRow]:
        """Return the noted keys of one table."""
        sql = f'SELECT DISTINCT key FROM {quoted(self._schema)}.{TOUCHED} WHERE "table" = $1 AND key IS NOT NULL'
        return {key_noted(table, cast("list[str]", row[0])) for row in await self._link.fetch(sql, table.name)}

    async def pending(self, shape: Shape, limit: int) -> Pending:
        """Return the oldest notes and their rows at one instant."""
        async with self._link.transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            return await super().pending(shape, limit)

    async def forget(self, pending: Pending) -> None:
        """Delete exactly these notes."""
        sql = f"DELETE FROM {quoted(self._schema)}.{TOUCHED} WHERE number = ANY ($1::bigint[])"
        _ = await self._link.fetch(sql, list(pending.numbers))

    async def unwatch(self) -> None:
        """Remove the triggers and the notes."""
        tries = Tries()
        while await tries.next():
            with contextlib.suppress(Blocked):
                async with self._link.transaction(f"SET LOCAL lock_timeout = {LOCK_MS}"):
                    await self._drop_triggers()
                return
        raise no_lock(self.shown)

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
            tries = Tries(wait_s)
            while await tries.next():
                async with contextlib.AsyncExitStack() as held:
                    since_s = self._mine.clock.monotonic_s()
                    try:
                        await held.enter_async_context(link.transaction(f"SET LOCAL lock_timeout = {LOCK_MS}"))
                        _ = await link.fetch(LEAVING, self._schema)
                        await link.execute(f"LOCK TABLE {listed} IN ACCESS EXCLUSIVE MODE")
                        await link.execute(f"SET LOCAL lock_timeout = {CATALOGS_MS}")
                    except Blocked:
                        continue
                    _ = await self._link.fetch(
                        "SELECT 1"
                    )  # A mover that has lost it may not have been the only one (`take`).
                    yield _Sealed(link, self._mine, tables, since_s)
                    return
            raise no_lock(self.shown)
        finally:
            await link.end()


class _Sealed(_Reading):
    """A source with all tables locked."""

    def __init__(self, link: Linked, mine: Mine, tables: Sequence[str], since_s: float) -> None:
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
        for sql in leaving_script(self._schema, tables, epoch):
            await self._link.execute(sql)
        await self._refuse_late(tables, epoch)
        tombstone = f"INSERT INTO {quoted(self._schema)}.{MOVED} VALUES ($1, $2, now())"
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
        there = quoted(aside(self._schema, epoch))
        await self._link.execute(
            f"CREATE FUNCTION {there}.interlock_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'this table has moved (interlock, move {epoch})' USING ERRCODE = '42P01'; END $$"
        )
        for name in tables:
            await self._link.execute(
                f"CREATE TRIGGER interlock_refuse BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON "
                f"{there}.{quoted(name)} FOR EACH STATEMENT EXECUTE FUNCTION {there}.interlock_refuse()"
            )

    async def _has_left(self, url: str, epoch: int) -> bool:
        link = await self._mine.connected(patient=True)
        try:
            async with link.transaction():
                _ = await link.fetch(LEAVING, self._schema)  # The other transaction has committed or rolled back.
            marks = await marks_of(link.read, self._schema)
        finally:
            await link.end()
        return (marks.url, marks.epoch) == (url, epoch)


def trigger_script(table: Table, schema: str, name: str) -> list[str]:
    """Return the statements that create the triggers of one table. Their function runs with its owner's rights."""
    notes, here, into = f"{quoted(schema)}.{TOUCHED}", quoted(schema), f"{quoted(schema)}.{quoted(table.name)}"
    text = "'" + table.name.replace("'", "''") + "'"
    old, new = (noted(table, row) if table.key else "'{}'::text[]" for row in ("OLD", "NEW"))
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


async def _unwatching(link: Linked, schema: str) -> list[str]:
    here = quoted(schema)
    found: list[str] = []
    for trigger in (TOUCH, f"{TOUCH}_all"):
        watching = await link.fetch(WATCHING, schema, trigger)
        found += [f"DROP TRIGGER {trigger} ON {here}.{quoted(str(row[0]))}" for row in watching]
    found += [f"DROP FUNCTION {here}.{quoted(str(row[0]))}()" for row in await link.fetch(FUNCTIONS, schema)]
    return [*found, f"DROP TABLE IF EXISTS {here}.{TOUCHED}"]


def _names(shape: Shape) -> Sequence[str]:
    return [table.name for table in shape.tables]
