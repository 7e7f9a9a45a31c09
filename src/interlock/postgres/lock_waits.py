"""Samples of lock waits on PostgreSQL, from its views: tables and rows, durations and costs (D9).

A session that waits for a row waits for the transaction that has it, or in a queue after the first one that does:
`pg_locks` shows both, for every user's sessions, and needs no special privilege. The row's key is read by its
place, in the sample's own snapshot. Of a row that moves on faster than that, the place is not visible any more or not
yet; then it is the row of the same page that is being changed, if there is only one. A session that has waited before
and follows its row has no place; it waits for the only row of its table that others wait for, if there is only one.

A sample shows how many sessions wait at a moment and how long each has waited, and not how often a wait begins.
That is estimated by Little's law: the number that waits is the rate times the time each of them waits; a wait that is
met by chance is half over. It is exact for waits of equal length and too low for others. A statement may wait several
times for one row; it is one wait since its statement began, unless its user may not be looked at. Everything is
bounded: samples, sessions in a sample, rows remembered, keys read together, and how long a sample may take.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec

from interlock.errors import InterlockError
from interlock.postgres.pool import Link
from interlock.postgres.translate_errors import translate_errors

EVERY_S = 0.05
EVERY_S_MIN = 0.01
SECONDS_MAX = 3_600.0
SESSIONS_MAX = 500
ROWS_MAX = 1_000
KEYS_MAX = 100
"""Of one table in one sample."""

PAGES_MAX = 10
"""Of one table in one sample, of which the row that is being changed is looked for."""

SAMPLES_REMEMBERED = 20
"""Samples for which a key counts as one of those that are waited for in its table."""

TABLES_MAX = 20
"""Tables of which keys are read in one sample."""

BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = '100ms'; "
    "SET LOCAL statement_timeout = '2s'"
)

# A session that waits for a row holds the lock on its place meanwhile, and waits for the transaction that changes it.
# One that waits for another reason (a unique key that is being inserted) is known by the only table it writes to.
WAITING = f"""
WITH locks AS MATERIALIZED (
    SELECT locktype, relation, page, tuple, pid, granted, mode, waitstart FROM pg_catalog.pg_locks
), place AS (
    SELECT DISTINCT ON (pid) pid, relation, page, tuple FROM locks WHERE granted AND locktype = 'tuple' ORDER BY pid
), writes AS (
    SELECT l.pid, min(l.relation) AS relation FROM locks l
    JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')
    WHERE l.granted AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
    GROUP BY l.pid HAVING count(*) = 1
), waiting AS (
    SELECT w.pid, coalesce(extract(epoch FROM coalesce(a.query_start, w.waitstart)), 0)::float8 AS begun,
        greatest(coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.query_start, w.waitstart)), 0), 0)::float8
            AS age,
        a.query_start IS NULL AS hidden, w.locktype = 'transactionid' AND place.pid IS NULL AS follows,
        coalesce(w.relation, place.relation, writes.relation) AS relation,
        coalesce(w.page, place.page) AS page, coalesce(w.tuple, place.tuple) AS tuple
    FROM locks w
    JOIN pg_catalog.pg_stat_activity a ON a.pid = w.pid AND a.datname = current_database()
    LEFT JOIN place ON place.pid = w.pid AND w.locktype = 'transactionid'
    LEFT JOIN writes ON writes.pid = w.pid AND w.locktype IN ('transactionid', 'spectoken')
    WHERE NOT w.granted AND w.pid <> pg_backend_pid()
        AND w.locktype IN ('tuple', 'transactionid', 'relation', 'page', 'spectoken')
    LIMIT {SESSIONS_MAX}
)
SELECT pid, begun, age, hidden, follows, relation, relation::regclass::text, page::bigint,
    '(' || page || ',' || tuple || ')'
FROM waiting"""  # noqa: S608

AT_PLACES = "ctid = ANY ($1::text[]::tid[])"

# A row that is being changed has the transaction that changes it in its visible version. The mark of an old one,
# rolled back or only a lock, is recognised by its age. Two rows are enough to know that there is more than one.
ON_PAGE = """
ctid >= ('(' || $1::bigint || ',0)')::tid AND ctid < ('(' || $1::bigint + 1 || ',0)')::tid
AND xmax <> '0'::xid AND age(xmax) < 10000 LIMIT 2"""

KEY = """
SELECT quote_ident(a.attname), has_column_privilege(i.indrelid, a.attnum, 'SELECT')
FROM pg_catalog.pg_index i
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = $1 AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place"""

TOTALS = """
SELECT xact_commit, xact_rollback, deadlocks FROM pg_catalog.pg_stat_database WHERE datname = current_database()"""


class WaitedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row, or a table, that sessions wait for each other on."""

    table: str
    key: object
    """The primary key, a tuple if it has several columns; None when it is a whole table or could not be read."""
    waits_per_s: float
    """How often a session begins to wait: an estimate that is not too high."""
    waiting: float
    """How many wait at a time, on average."""
    wait_s: float
    """The mean time that one waits."""


class LockWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The lock waits of one period, with the counters of the database."""

    seconds: float
    samples: int
    rows: list[WaitedRow]
    commits_per_s: float
    rollbacks_per_s: float
    deadlocks: int
    unreadable: tuple[str, ...]
    """Tables whose keys this user may not read, or that have none."""
    hidden: bool
    """Some sessions are of users that may not be looked at: a write of theirs may be counted more than once."""


class _WaitCounts:
    __slots__ = ("age_s", "waiting", "waits")

    def __init__(self) -> None:
        self.waits = 0
        self.waiting = 0
        self.age_s = 0.0


class _Session(NamedTuple):
    pid: int
    begun_s: float
    age_s: float
    hidden: bool
    follows: bool
    relation: int | None
    table: str | None
    page: int | None
    place: str | None


class _Table(NamedTuple):
    relation: int
    name: str


async def sample(link: Link, seconds: float, every_s: float = EVERY_S) -> LockWaits:
    """Look at who waits for `seconds`, every so often. Raises UnavailableError when the server is lost meanwhile."""
    sampler = Sampler(link)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    until_s = begun_s + min(max(seconds, 0.0), SECONDS_MAX)
    pause_s = max(every_s, EVERY_S_MIN)
    before = await sampler.totals()
    while True:
        await sampler.look()
        now_s = loop.time()
        if now_s + pause_s > until_s:
            break
        await asyncio.sleep(pause_s)
    await asyncio.sleep(max(0.0, until_s - loop.time()))
    after = await sampler.totals()
    took_s = max(loop.time() - begun_s, pause_s)
    commits, rollbacks, deadlocks = (max(0, new - old) for old, new in zip(before, after, strict=True))
    return LockWaits(
        seconds=took_s,
        samples=sampler.samples,
        rows=sampler.rows(took_s),
        commits_per_s=commits / took_s,
        rollbacks_per_s=rollbacks / took_s,
        deadlocks=deadlocks,
        unreadable=tuple(sorted(sampler.unreadable)),
        hidden=sampler.hidden,
    )


class Sampler:
    """Collector of samples from the server's views."""

    def __init__(self, link: Link) -> None:
        self.samples = 0
        self.unreadable: set[str] = set()
        self.hidden = False
        self._driver = link.driver
        self._counts: dict[tuple[str, object], _WaitCounts] = {}
        self._known: dict[int, tuple[float, tuple[str, object]]] = {}
        """What each session waited for in the last sample: since when, and which row."""
        self._columns: dict[int, tuple[str, ...]] = {}
        self._lately: dict[int, dict[object, int]] = {}
        """The keys that were waited for in each table, and in which sample."""

    async def totals(self) -> tuple[int, int, int]:
        """Return the database's own counters: commits, rollbacks and deadlocks. They may be a second old."""
        with translate_errors(writing=False):
            [row] = await self._driver.fetch(TOTALS)
        return int(row[0] or 0), int(row[1] or 0), int(row[2] or 0)

    async def look(self) -> None:
        """Take one sample."""
        with translate_errors(writing=False):
            await self._driver.execute(BEGIN)
            try:
                sessions = [_Session(*row) for row in await self._driver.fetch(WAITING)]
                keys = await self._keys(sessions)
            finally:
                if not self._driver.is_closed():
                    await self._driver.execute("ROLLBACK")
        self.samples += 1
        self._note(keys)
        known: dict[int, tuple[float, tuple[str, object]]] = {}
        for each in sessions:
            self.hidden = self.hidden or each.hidden
            known[each.pid] = each.begun_s, self._count(each, keys)
        self._known = known

    def rows(self, seconds: float) -> list[WaitedRow]:
        """Return the observed rows, worst first."""
        found: list[WaitedRow] = []
        for (table, key), counts in self._counts.items():
            waiting = counts.waiting / self.samples
            age_s = counts.age_s / counts.waiting
            waits_per_s = max(counts.waits / seconds, waiting / (2 * age_s) if age_s > 0 else 0.0)
            found.append(
                WaitedRow(table=table, key=key, waits_per_s=waits_per_s, waiting=waiting, wait_s=waiting / waits_per_s)
            )
        return sorted(found, key=lambda row: (row.waiting, row.waits_per_s), reverse=True)

    def _count(self, session: _Session, keys: dict[tuple[int, str], object]) -> tuple[str, object]:
        since_s, row = self._known.get(session.pid, (-1.0, ("", None)))
        again = since_s == session.begun_s
        key = keys.get((session.relation or 0, session.place or ""))
        if session.follows and session.relation is not None:
            lately = self._lately.get(session.relation, {})
            key = next(iter(lately)) if len(lately) == 1 else None
        if not again or (row[1] is None and key is not None):
            row = session.table or "", key
        if row not in self._counts and len(self._counts) >= ROWS_MAX:
            row = row[0], None
            if row not in self._counts:
                return row
        counts = self._counts.setdefault(row, _WaitCounts())
        counts.waits += not again
        counts.waiting += 1
        counts.age_s += session.age_s
        return row

    def _note(self, keys: dict[tuple[int, str], object]) -> None:
        for (relation, _), key in keys.items():
            self._lately.setdefault(relation, {})[key] = self.samples
        since = self.samples - SAMPLES_REMEMBERED
        self._lately = {
            relation: recent
            for relation, lately in self._lately.items()
            if (recent := {key: at for key, at in lately.items() if at > since})
        }

    async def _keys(self, sessions: Sequence[_Session]) -> dict[tuple[int, str], object]:
        """The keys of the rows that are waited for, by table and place."""
        places: dict[_Table, dict[str, int]] = {}
        for each in sessions:
            if each.relation is not None and each.table is not None and each.place is not None:
                places.setdefault(_Table(each.relation, each.table), {})[each.place] = each.page or 0
        found: dict[tuple[int, str], object] = {}
        for table, wanted in list(places.items())[:TABLES_MAX]:
            columns = await self._key_of(table)
            if not columns:
                continue
            for place, *key in await self._read(table, columns, AT_PLACES, list(wanted)[:KEYS_MAX]):
                found[table.relation, str(place)] = _key(key)
            missing = {place: page for place, page in wanted.items() if (table.relation, place) not in found}
            for page in list(dict.fromkeys(missing.values()))[:PAGES_MAX]:
                changing = await self._read(table, columns, ON_PAGE, page)
                if len(changing) == 1:
                    only = _key(changing[0][1:])
                    found |= {(table.relation, place): only for place, at in missing.items() if at == page}
        return found

    async def _key_of(self, table: _Table) -> tuple[str, ...]:
        known = self._columns.get(table.relation)
        if known is None:
            rows = await self._driver.fetch(KEY, table.relation)
            readable = bool(rows) and all(row[1] for row in rows)
            known = tuple(str(row[0]) for row in rows) if readable else ()
            self._columns[table.relation] = known
            if not known:
                self.unreadable.add(table.name)
        return known

    async def _read(
        self, table: _Table, columns: Sequence[str], where: str, value: Sequence[str] | int
    ) -> list[tuple[object, ...]]:
        sql = f"SELECT ctid::text, {', '.join(columns)} FROM {table.name} WHERE {where}"  # noqa: S608 -- regclass and quote_ident have written both.
        await self._driver.execute("SAVEPOINT keys")
        try:
            return [cast("tuple[object, ...]", tuple(row)) for row in await self._driver.fetch(sql, value)]
        except Exception as failure:
            # A table that is locked as a whole, dropped just now, or has a policy that raises: its rows stay nameless.
            if self._driver.is_closed() or isinstance(failure, InterlockError):
                raise
            await self._driver.execute("ROLLBACK TO keys")
            return []


def _key(values: Sequence[object]) -> object:
    """The key as one value. An array is a list, which nothing can be counted by: it is shown as text."""
    parts = tuple(str(value) if isinstance(value, list | dict) else value for value in values)
    return parts[0] if len(parts) == 1 else parts
