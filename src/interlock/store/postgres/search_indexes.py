"""The indexes of a search on PostgreSQL: one per searchable field, on an expression over the stored context (F4).

Each is partial, for the workflows of one machine, and sorted by the key and the number. PostgreSQL keeps it whatever
writes a workflow, so engines of several versions write beside each other, and so does an earlier release. It is built
`CONCURRENTLY`: writers go on meanwhile. A search whose index is not valid yet is refused.

An expression must not fail for any JSON, because a write would fail with it. So each key is guarded by the type and the
form of what is stored, and what does not fit is taken for None.

Sections: keys, indexes.
"""

# ruff: noqa: S608 -- the schema's name is checked by `address`, other texts are quoted here.

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from interlock.core.search import (
    CREATED,
    DECIMAL,
    DECIMAL_MAX,
    TEXT_MAX,
    UPDATED,
    MachineSearch,
    Plain,
    Search,
    SearchField,
)
from interlock.errors import InterlockError
from interlock.postgres.pool import Link, Pool, connected
from interlock.redaction import logger_of
from interlock.store.postgres.statement import micros, moment, row_of_table
from interlock.store.search_pages import STATE, IndexRows, Values, not_ready

# --- Keys ------------------------------------------------------------------------------------------------------------
# None has a key that is smaller than all others, so that a page can go on after it.

NONE = {
    "text": "''",
    "truth": "''",
    "number": "'-1e400'::numeric",
    "decimal": "'-1e20000'::numeric",
    "time": "(-9223372036854775807)::bigint",
}

_TIME = r"^D{4}-DD-DDTDD:DD:DD(\.D{6})?(Z|[+-]DD:DD)?$".replace("D", "[0-9]")


def quoted(text: str) -> str:
    """Return a text as SQL."""
    # A backslash is a letter like any other, whatever standard_conforming_strings is.
    escaped = text.replace("'", "''")
    return f"E'{escaped.replace(chr(92), chr(92) * 2)}'" if chr(92) in escaped else f"'{escaped}'"


def key_sql(field: SearchField, context: str) -> str:
    """Return SQL for the key of a field; never NULL."""
    name = quoted(field.stored)
    json, text = f"({context} -> {name})", f"({context} ->> {name})"
    none, default = NONE[field.basis], _default(field)
    kind = f"coalesce(jsonb_typeof({json}), 'missing')"
    if field.basis == "number":
        cases = f"WHEN {kind} = 'number' THEN {json}::numeric"
    elif field.basis == "truth":
        cases = f"WHEN {kind} = 'boolean' THEN {text}"
    elif field.basis == "decimal":
        good = (
            f"{kind} IN ('string', 'number') AND {text} ~ {quoted(f'^{DECIMAL}$')} AND length({text}) <= {DECIMAL_MAX}"
        )
        cases = f"WHEN {good} THEN {text}::numeric"
    elif field.basis == "time":
        cases = f"WHEN {kind} = 'string' AND {text} ~ {quoted(_TIME)} THEN {_time_sql(text)}"
    else:
        cases = f"WHEN {kind} = 'string' THEN '=' || left({text}, {TEXT_MAX})"
    key = f"(CASE WHEN {kind} = 'missing' THEN {default} {cases} ELSE {none} END)"
    return f'({key} COLLATE "C")' if field.basis in {"text", "truth"} else key


def _default(field: SearchField) -> str:
    plain = field.default
    if plain is None:
        return NONE[field.basis]
    if field.basis == "truth":
        return quoted(str(plain).lower())
    if field.basis == "time":
        return _time_sql(quoted(str(plain)))
    return quoted(f"={str(plain)[:TEXT_MAX]}") if field.basis == "text" else f"'{plain}'::numeric"


def _time_sql(text: str) -> str:
    """Return SQL for a time as the codec writes it: the microseconds since the epoch.

    By arithmetic, because a cast depends on settings of the session and fails for a day that is not in the calendar.
    """

    def part(begin: str | int, length: int) -> str:
        return f"substr({text}, {begin}, {length})::bigint"

    year, month, day = part(1, 4), part(6, 2), part(9, 2)
    early = f"((14 - {month}) / 12)"
    years, months = f"({year} + 4800 - {early})", f"({month} + 12 * {early} - 3)"
    days = f"({day} + (153 * {months} + 2) / 5 + 365 * {years} + {years} / 4 - {years} / 100 + {years} / 400 - 2472633)"
    seconds = f"(({days} * 24 + {part(12, 2)}) * 60 + {part(15, 2)}) * 60 + {part(18, 2)}"
    has_fraction = f"substr({text}, 20, 1) = '.'"
    zone = f"(CASE WHEN {has_fraction} THEN 27 ELSE 20 END)"
    minutes = f"{part(f'{zone} + 1', 2)} * 60 + {part(f'{zone} + 4', 2)}"
    sign = f"substr({text}, {zone}, 1)"
    offset = f"(CASE {sign} WHEN '+' THEN {minutes} WHEN '-' THEN -({minutes}) ELSE 0 END)"
    fraction = f"(CASE WHEN {has_fraction} THEN {part(21, 6)} ELSE 0 END)"
    return f"(({seconds} - {offset} * 60) * 1000000 + {fraction})"


class PostgresSearchSql:
    """Keys and indexes of one schema."""

    name = "postgres"
    mark = "$"

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def columns(self, table: str) -> str:
        """Return the columns of a row, for an alias of its table."""
        return row_of_table(table)

    def key(self, field: SearchField, table: str) -> str:
        """Return the key of a field as an expression over the stored context."""
        return key_sql(field, f"{table}.context")

    def key_of(self, field: SearchField, plain: Plain, values: Values) -> str:
        """Return the key of a value, as a parameter."""
        if plain is None:
            return NONE[field.basis]
        if field.basis == "time":
            return f"{values.add(plain)}::bigint"
        if field.basis == "truth":
            return f"{values.add(str(plain).lower())}::text"
        return (
            f"{values.add(f'={plain}')}::text" if field.basis == "text" else f"{values.add(str(plain))}::text::numeric"
        )

    def instant(self, time_us: int, values: Values) -> str:
        """Return a time as a parameter."""
        return moment(f"{values.add(time_us)}::bigint")

    def cursor_key(self, order: SearchField | str, key: str) -> str:
        """Return a key as the cursor has it; NULL for None."""
        # None has a key of thousands of digits.
        return micros(key) if isinstance(order, str) else f"nullif({key}, {NONE[order.basis]})::text"

    def restored(self, order: SearchField | str, last_key: object, values: Values) -> str:
        """Return the key that a cursor has, as a parameter."""
        if isinstance(order, str):
            return moment(f"{values.add(last_key)}::bigint")
        if last_key is None:
            return NONE[order.basis]
        text = f"{values.add(str(last_key))}::text"
        casts = {"number": "::numeric", "decimal": "::numeric", "time": "::bigint"}
        return f"{text}{casts.get(order.basis, '')}"

    def source(self, search: Search, index: SearchField | str, values: Values) -> IndexRows:
        """Return the rows of an index."""
        # The name of the machine is part of the statement: it decides which partial index serves it.
        rows = f"FROM {self._schema}.workflows AS w WHERE w.workflow_type = {quoted(search.machine)}"
        if index == CREATED:
            return IndexRows(rows, None, "w.number", "w.number")
        if index == STATE:
            rows += f" AND w.state IN ({', '.join(values.add(each) for each in search.states)})"
            return IndexRows(rows, None, "w.number", "w.state, w.entered_at, w.number")
        key = _key(index, "w.")
        return IndexRows(rows, key, "w.number", f"{key}, w.number")


# --- Indexes ---------------------------------------------------------------------------------------------------------
# The name of an index has a digest of its machine, by which those of a machine are found, and one of its expression: a
# field with another type or default gets another index. The comment has the version of the machine that declared it
# last: an engine drops what it does not declare, but not what a later version does. Two processes may find the same
# index missing: the second one finds it taken.

SMALL = 10_000
"""A table of so few rows gets its indexes when it is opened: writers wait for milliseconds."""

SMALL_LOCK_MS = 300
BUILD_LOCK_MS = 60_000

_INDEXES = r"""
SELECT c.relname::text, i.indisvalid AND i.indisready,
    coalesce(substring(obj_description(c.oid, 'pg_class') FROM '^\d{1,9}')::int, 0),
    p.index_relid IS NOT NULL, coalesce(p.tuples_done, 0), coalesce(p.tuples_total, 0)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_progress_create_index p ON p.index_relid = c.oid
WHERE n.nspname = $1 AND c.relname LIKE 'workflows\_search\_%'"""

log = logger_of("interlock.operators")


class Known(NamedTuple):
    """An index as the schema has it."""

    name: str
    valid: bool
    version: int
    building: bool
    done: int
    total: int


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _key(index: SearchField | str, row: str) -> str:
    return f"{row}updated_at" if isinstance(index, str) else key_sql(index, f"{row}context")


def prefix_of(machine: str) -> str:
    """Return the beginning of the names of a machine's indexes."""
    return f"workflows_search_{_digest(machine)}_"


def index_of(machine: str, index: SearchField | str) -> str:
    """Return the name of an index."""
    return prefix_of(machine) + _digest(_key(index, ""))


def indexes_of(search: MachineSearch) -> dict[str, SearchField | str]:
    """Return the indexes of a machine by their names."""
    several: list[SearchField | str] = [] if search.fields is None else [UPDATED, *search.fields]
    return {index_of(search.machine, each): each for each in several}


class PostgresIndexes:
    """Creates, drops and checks the indexes of one schema."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._schema = pool.address.schema
        self._searches: tuple[MachineSearch, ...] = ()

    async def known(self) -> dict[str, Known]:
        """Return the indexes of all machines, by name."""
        rows = await self._pool.read(_INDEXES, self._schema)
        found = [Known(row[0], bool(row[1]), *tuple(row)[2:6]) for row in rows]
        return {each.name: each for each in found}

    async def declare(self, searches: Sequence[MachineSearch]) -> bool:
        """Take over what machines declare; create the indexes here if the table is small. Return whether some are left.

        Few statements: a machine without search costs one look into the catalog.
        """
        self._searches = tuple(searches)
        known = await self.known()
        dropped = any(self._is_dropped(each, search) for each in known.values() for search in searches)
        missing = self._missing(known)
        if not missing:
            return dropped
        count = f"SELECT count(*) FROM (SELECT 1 FROM {self._schema}.workflows LIMIT {SMALL + 1}) AS few"
        [(rows,)] = await self._pool.read(count)
        if rows > SMALL:
            return True
        for search, name, index in missing:
            created, comment = self._create_sql(search, name, index)
            async with self._pool.link() as link:
                try:
                    begin = f"BEGIN; SET LOCAL lock_timeout = {SMALL_LOCK_MS}"
                    await link.script(f"{begin}; {created}; {comment}; COMMIT")
                except InterlockError as error:
                    log.info("index %s is created in the background: %s", name, error.what)
                    await link.script("ROLLBACK")
                    return True
        return dropped

    async def fill(self) -> bool:
        """Create or drop one index without blocking writers; return False when nothing is left to do."""
        known = await self.known()
        for search in self._searches:
            for each in known.values():
                if self._is_dropped(each, search):
                    await self._run(f"DROP INDEX CONCURRENTLY IF EXISTS {self._schema}.{each.name}")
                    return True
        missing = self._missing(known)
        for search, name, index in missing:
            found = known.get(name)
            if found is not None and found.building:
                continue  # Another process builds it.
            if found is not None and not found.valid:
                await self._run(f"DROP INDEX CONCURRENTLY IF EXISTS {self._schema}.{name}")
            created, comment = self._create_sql(search, name, index)
            await self._run(created.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1))
            await self._run(comment)
            await self._run(f"ANALYZE {self._schema}.workflows")
            return True
        return bool(missing)

    async def refuse_incomplete(self, machine: str, indexes: Sequence[SearchField | str]) -> None:
        """Raise UnavailableError unless the indexes are there and valid."""
        if not indexes:
            return
        known = await self.known()
        for index in indexes:
            found = known.get(index_of(machine, index))
            if found is None or not found.valid:
                name = index if isinstance(index, str) else index.name
                progress = "its index is not there"
                if found is not None:
                    progress = f"{found.done:,} of {found.total:,} rows of its index are written"
                raise not_ready(machine, [name], progress)

    def _missing(self, known: Mapping[str, Known]) -> list[tuple[MachineSearch, str, SearchField | str]]:
        return [
            (search, name, index)
            for search in self._searches
            for name, index in indexes_of(search).items()
            if name not in known or not known[name].valid or known[name].version < search.version
        ]

    def _is_dropped(self, known: Known, search: MachineSearch) -> bool:
        mine = known.name.startswith(prefix_of(search.machine))
        return mine and known.name not in indexes_of(search) and known.version <= search.version and not known.building

    def _create_sql(self, search: MachineSearch, name: str, index: SearchField | str) -> tuple[str, str]:
        """Return the statement that creates an index, and the one that comments on it."""
        label = index if isinstance(index, str) else index.name
        comment = quoted(f"{search.version} {search.machine}: {label}")
        create = (
            f"CREATE INDEX IF NOT EXISTS {name} ON {self._schema}.workflows (({_key(index, '')}), number) "
            f"WHERE workflow_type = {quoted(search.machine)}"
        )
        return create, f"COMMENT ON INDEX {self._schema}.{name} IS {comment}"

    async def _run(self, sql: str) -> None:
        """Run one statement outside a transaction, on a connection of its own: it may take minutes."""
        link: Link = await connected(self._pool.address)
        try:
            if not self._pool.address.pgbouncer:  # There the setting would stay with a connection of others.
                await link.script(f"SET lock_timeout = {BUILD_LOCK_MS}")
            await link.script(sql)
        finally:
            await asyncio.shield(link.end(1.0))
