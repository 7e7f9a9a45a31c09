"""Reads from the schema that workflows leave. Engines write there meanwhile: each method reads one snapshot.

Workflows are identified by their ids, the key of their table; the numbers that a lane uses are read with them.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from interlock.sql.postgres.link import Record
from interlock.store.moving.canonical import Aside, LeaseRow, Note, Numbered, arriving
from interlock.store.moving.returning.wire import Wire
from interlock.store.moving.source import Span, Sums
from interlock.store.moving.staging import ASIDE as COLUMNS
from interlock.store.moving.staging import READING
from interlock.store.postgres import columns
from interlock.store.postgres.statement import micros
from interlock.store.values import Happened


class Part(NamedTuple):
    """Some workflows at one moment, by their ids."""

    rows: dict[str, Numbered]
    events: dict[str, list[Happened]]


class Reading:
    """The tables of a store in PostgreSQL, over one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._schema = wire.address.schema
        self._rows = f"SELECT number, {columns.ROW} FROM {self._schema}.workflows"
        self._events = f"SELECT {columns.HAPPENED} FROM {self._schema}.workflow_events"

    async def machines(self) -> dict[str, int]:
        """Count the workflows of each machine."""
        sql = f"SELECT workflow_type, count(*) FROM {self._schema}.workflows GROUP BY 1 ORDER BY 1"
        return {str(machine): int(count) for machine, count in await self._wire.fetch(sql)}

    async def owners(self) -> int:
        """Count the engines with a lease on a workflow or effect."""
        held = f"SELECT lease_owner FROM {self._schema}.{{}} WHERE lease_until > now()"
        sql = f"SELECT count(*) FROM ({held.format('workflows')} UNION {held.format('workflow_effects')}) AS owners"
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

    async def events_behind(self, versions: dict[str, int]) -> dict[str, list[Happened]]:
        """Return the history of these workflows, each after a version."""
        if not versions:
            return {}
        sql = f"""{self._events} JOIN unnest($1::text[], $2::bigint[]) AS asked(asked_id, behind)
ON workflow_id = asked_id AND version > behind ORDER BY workflow_id, version"""
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


def by_workflow(records: Iterable[Record]) -> dict[str, list[Happened]]:
    """History by workflow, in its order."""
    found: dict[str, list[Happened]] = {}
    for each in map(columns.happened_of, records):
        found.setdefault(each.workflow, []).append(each)
    return found


def _numbered(records: Iterable[Record]) -> list[Numbered]:
    return [arriving(each[0], columns.row_of(each[1:])) for each in map(tuple, records)]


def _aside(table: str, record: Record) -> Aside:
    if table == "workflow_effects":
        return columns.effect_of(record)
    if table == "dead_letters":
        return columns.letter_of(record)
    return LeaseRow(*record) if table == "leases" else Note(*record)
