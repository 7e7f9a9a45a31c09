"""Charts over time: what happened per machine, state and minute, added up by all processes of a store (F7).

A record is the sum of one minute, or of one hour, of one state. Engines add the sums of their minutes; records of the
same minute are added together, so several processes need no agreement. Minutes older than a day are rolled up to hours,
and hours older than a month are removed. A group of additions is written wholly or not at all, and never twice.

Times are the store's own (G8). A record with an empty state is about its machine as a whole.

Sections: records and their keeper, sums in memory, SQL, on a lane, on PostgreSQL.
"""

# ruff: noqa: S608 -- the only names put into a statement are those of this module and of the schema, which is checked.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import apsw
import msgspec

# --- Records ---------------------------------------------------------------------------------------------------------

MINUTE_S = 60
HOUR_S = 3_600

MINUTES_KEPT_S = 24 * HOUR_S
"""The age at which the minutes of an hour are added up to one record."""

HOURS_KEPT_S = 31 * 24 * HOUR_S
"""The age at which an hour is removed."""


class ChartRecord(msgspec.Struct, frozen=True, gc=False):
    """The sums of one state in the span of time that begins at `since_us`."""

    id: str
    """The span, its beginning, the machine and the state: the key of the record."""
    span_s: int
    since_us: int
    machine: str
    state: str
    moves: int = 0
    """Rows of history that led into the state or stayed in it."""
    started: int = 0
    entered: int = 0
    left: int = 0
    dwells: int = 0
    """Of the workflows that left: for how many it is known how long they had been in the state."""
    dwell_us: int = 0
    """How long these had been there, together."""
    dwell_max_us: int = 0
    failed: int = 0
    """Failed attempts of steps, undos and effects."""
    refused: int = 0
    dead_letters: int = 0
    waiting: int | None = None
    """Work that was due and had not begun, of all processes; None: not sampled."""


def chart_record(span_s: int, since_us: int, machine: str, state: str, *sums: int | None) -> ChartRecord:
    """Return a record with its key; `sums` are its members from `moves`."""
    return ChartRecord(f"{span_s}/{since_us}/{machine}/{state}", span_s, since_us, machine, state, *sums)  # type: ignore[arg-type]


class ChartSpan(NamedTuple):
    """The charts of a span of time."""

    first_us: int | None
    """When the first record of the whole store begins; None without any."""
    records: list[ChartRecord]
    """By machine, state and time; steps without a record are left out."""


class ChartStore(Protocol):
    """The charts of a store."""

    async def add(self, records: Sequence[ChartRecord]) -> None:
        """Add the sums of some minutes to those that other processes have added. Each record has another key."""
        ...

    async def read(self, machine: str, since_us: int, until_us: int, step_us: int) -> ChartSpan:
        """Return the sums of one machine, or of all with an empty name, added up to steps that begin at `since_us`."""
        ...

    async def roll_up(self, minutes_before_us: int, hours_before_us: int) -> None:
        """Add the minutes before a time up to hours, and remove all records before another one."""
        ...


# --- Sums in memory --------------------------------------------------------------------------------------------------


def added(one: ChartRecord, other: ChartRecord) -> ChartRecord:
    """Add the sums of two processes in the same span of time."""
    waits = [each for each in (one.waiting, other.waiting) if each is not None]
    return _summed(one, other, sum(waits) if waits else None)


def rolled_up(records: Iterable[ChartRecord], since_us: int, step_us: int) -> list[ChartRecord]:
    """Add records up to longer spans, the first of which begins at `since_us`. Of samples the highest counts."""
    sums: dict[str, ChartRecord] = {}
    for each in records:
        begin_us = since_us + (each.since_us - since_us) // step_us * step_us
        name = f"{step_us // 1_000_000}/{begin_us}/{each.machine}/{each.state}"
        known = sums.get(name)
        if known is None:
            changed = {"id": name, "span_s": step_us // 1_000_000, "since_us": begin_us}
            sums[name] = msgspec.structs.replace(each, **changed)
        else:
            waits = [sample for sample in (known.waiting, each.waiting) if sample is not None]
            sums[name] = _summed(known, each, max(waits) if waits else None)
    return list(sums.values())


def _summed(one: ChartRecord, other: ChartRecord, waiting: int | None) -> ChartRecord:
    return msgspec.structs.replace(
        one,
        moves=one.moves + other.moves,
        started=one.started + other.started,
        entered=one.entered + other.entered,
        left=one.left + other.left,
        dwells=one.dwells + other.dwells,
        dwell_us=one.dwell_us + other.dwell_us,
        dwell_max_us=max(one.dwell_max_us, other.dwell_max_us),
        failed=one.failed + other.failed,
        refused=one.refused + other.refused,
        dead_letters=one.dead_letters + other.dead_letters,
        waiting=waiting,
    )


class MemoryCharts:
    """Charts in a dictionary."""

    def __init__(self, charts: Callable[[], dict[str, ChartRecord]]) -> None:
        self._charts = charts

    async def add(self, records: Sequence[ChartRecord]) -> None:
        """Add the sums of some minutes."""
        charts = self._charts()
        for each in records:
            charts[each.id] = added(charts[each.id], each) if each.id in charts else each

    async def read(self, machine: str, since_us: int, until_us: int, step_us: int) -> ChartSpan:
        """Return the sums of one machine, or of all, added up to steps."""
        charts = self._charts().values()
        found = [each for each in charts if since_us <= each.since_us < until_us and machine in {"", each.machine}]
        found.sort(key=lambda each: (each.machine, each.state, each.since_us))
        return ChartSpan(min((each.since_us for each in charts), default=None), rolled_up(found, since_us, step_us))

    async def roll_up(self, minutes_before_us: int, hours_before_us: int) -> None:
        """Add old minutes up to hours, and remove old records."""
        charts = self._charts()
        old = [each for each in charts.values() if each.span_s == MINUTE_S and each.since_us < minutes_before_us]
        hours = [each for each in charts.values() if each.span_s == HOUR_S]
        for each in (*old, *hours):
            del charts[each.id]
        added_up = rolled_up([*hours, *old], 0, HOUR_S * 1_000_000)
        charts.update({each.id: each for each in added_up if each.since_us >= hours_before_us})


# --- SQL -------------------------------------------------------------------------------------------------------------
# The same texts serve SQLite and PostgreSQL. They differ in the type of a time, and in the name of the greater of two.

COLUMNS: Final = (
    "id", "span_s", "since", "machine", "state", "moves", "started", "entered", "exited", "dwells", "dwell_us",
    "dwell_max_us", "failed", "refused", "dead_letters", "waiting",
)  # fmt: skip
"""The columns of the table, in the order of the members of a record."""

LANE_TABLE = """
CREATE TABLE IF NOT EXISTS workflow_charts (
    id TEXT PRIMARY KEY, span_s INTEGER NOT NULL, since INTEGER NOT NULL, machine TEXT NOT NULL, state TEXT NOT NULL,
    moves INTEGER NOT NULL, started INTEGER NOT NULL, entered INTEGER NOT NULL, exited INTEGER NOT NULL,
    dwells INTEGER NOT NULL, dwell_us INTEGER NOT NULL, dwell_max_us INTEGER NOT NULL, failed INTEGER NOT NULL,
    refused INTEGER NOT NULL, dead_letters INTEGER NOT NULL, waiting INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS workflow_charts_by_time ON workflow_charts (since);
"""


class ChartSql:
    """The statements of one table. `time` makes SQL of a parameter in microseconds, `micros` the reverse."""

    def __init__(self, table: str, greater: str, time: Callable[[str], str], micros: Callable[[str], str]) -> None:
        insert = f"INSERT INTO {table} AS c ({', '.join(COLUMNS)})"
        sums = ", ".join(f"max({name})" if name in _HIGHEST else f"CAST(sum({name}) AS bigint)" for name in COLUMNS[5:])
        begin, hour = f"($1 + ({micros('since')} - $1) / $3 * $3)", HOUR_S * 1_000_000
        minutes = f"FROM {table} WHERE span_s = {MINUTE_S} AND since < {time('$1')}"
        self.add: str = f"{insert} {{}} {_conflict(greater, 'c.waiting + excluded.waiting')}"
        """With the rows in place of `{}`."""
        self.read = f"""
SELECT {begin} AS begun_us, machine, state, {sums} FROM {table}
WHERE since >= {time("$1")} AND since < {time("$2")} AND ($4 = '' OR machine = $4)
GROUP BY machine, state, begun_us ORDER BY machine, state, begun_us"""
        self.first = f"SELECT {micros('min(since)')} FROM {table}"
        self.remove_minutes = f"DELETE {minutes}"
        self.remove_hours = f"DELETE FROM {table} WHERE span_s = {HOUR_S} AND since < {time('$2')}"
        self.add_hours = f"""{insert}
SELECT '{HOUR_S}/' || hour_us || '/' || machine || '/' || state, {HOUR_S}, {time("hour_us")}, machine, state, {sums}
FROM (SELECT m.*, {micros("since")} / {hour} * {hour} AS hour_us FROM {{}} AS m WHERE span_s = {MINUTE_S}
    AND since < {time("$1")} AND since >= {time("$2")}) AS h
WHERE true GROUP BY hour_us, machine, state {_conflict(greater, f"{greater}(c.waiting, excluded.waiting)")}"""
        """With the table of the minutes in place of `{}`."""


_HIGHEST = {"dwell_max_us", "waiting"}


def _conflict(greater: str, waiting: str) -> str:
    sums = [f"{name} = c.{name} + excluded.{name}" for name in COLUMNS[5:] if name not in _HIGHEST]
    highest = f"dwell_max_us = {greater}(c.dwell_max_us, excluded.dwell_max_us)"
    waits = f"waiting = coalesce({waiting}, c.waiting, excluded.waiting)"
    return f"ON CONFLICT (id) DO UPDATE SET {', '.join([*sums, highest, waits])}"


# --- On a lane -------------------------------------------------------------------------------------------------------

Run = Callable[..., Any]
ReadLane = Callable[[Callable[[Run], Any]], Awaitable[Any]]
WriteLane = Callable[[Callable[[apsw.Connection], Any]], Awaitable[Any]]

_LANE = ChartSql("workflow_charts", "max", str, str)
INSERT = _LANE.add.format(f"VALUES ({', '.join('?' * len(COLUMNS))})")


class LaneCharts:
    """The charts of a store on a lane."""

    def __init__(self, read: ReadLane, write: WriteLane) -> None:
        self._read = read
        self._write = write

    async def add(self, records: Sequence[ChartRecord]) -> None:
        """Add the sums of some minutes, in one transaction of the writer."""

        def write(connection: apsw.Connection) -> None:
            connection.preupdate_hook(None)  # The signal for hot rows is about the tables of users.
            connection.cursor().executemany(INSERT, map(msgspec.structs.astuple, records))

        await self._write(write)

    async def read(self, machine: str, since_us: int, until_us: int, step_us: int) -> ChartSpan:
        """Return the sums of one machine, or of all, added up to steps."""

        def read(run: Run) -> ChartSpan:
            [(first_us,)] = run(_LANE.first).fetchall()
            found = run(_LANE.read.replace("$", "?"), (since_us, until_us, step_us, machine)).fetchall()
            return ChartSpan(first_us, [chart_record(step_us // 1_000_000, *values) for values in found])

        found: ChartSpan = await self._read(read)
        return found

    async def roll_up(self, minutes_before_us: int, hours_before_us: int) -> None:
        """Add old minutes up to hours, and remove old records."""

        def write(connection: apsw.Connection) -> None:
            connection.preupdate_hook(None)  # As above.
            run = connection.cursor().execute
            run(_LANE.add_hours.format("workflow_charts").replace("$", "?"), (minutes_before_us, hours_before_us))
            run(_LANE.remove_minutes.replace("$", "?"), (minutes_before_us,))
            run(_LANE.remove_hours.replace("$2", "?"), (hours_before_us,))

        await self._write(write)


# --- On PostgreSQL ---------------------------------------------------------------------------------------------------
# Records are added in the order of their keys, so that two processes do not wait for each other in a circle. Of several
# processes that roll up at the same time one has the lock, and the others leave it to that one.

ReadTable = Callable[..., Awaitable[Sequence[Any]]]
WriteTable = Callable[[str, Sequence[object]], Awaitable[object]]


class PostgresCharts:
    """The charts of one schema. `moment` and `micros` make a time of microseconds, and the reverse."""

    def __init__(
        self,
        schema: str,
        read: ReadTable,
        write: WriteTable,
        moment: Callable[[str], str],
        micros: Callable[[str], str],
    ) -> None:
        self._read = read
        self._write = write
        table = f"{schema}.workflow_charts"
        sql = ChartSql(table, "greatest", lambda time: moment(f"{time}::bigint"), micros)
        texts = {"id", "machine", "state"}
        sent = [f"${n}::{'text' if name in texts else 'bigint'}[]" for n, name in enumerate(COLUMNS, 1)]
        values = ", ".join(moment("r.since") if name == "since" else f"r.{name}" for name in COLUMNS)
        rows = f"SELECT {values} FROM unnest({', '.join(sent)}) AS r({', '.join(COLUMNS)}) ORDER BY r.id"
        self._sql = sql
        self._add = sql.add.format(rows)
        mine = f"(SELECT pg_try_advisory_xact_lock(hashtextextended('{table}', 0)))"
        self._roll_up = f"""
WITH minutes AS ({sql.remove_minutes} AND {mine} RETURNING *), hours AS ({sql.remove_hours})
{sql.add_hours.format("minutes")}"""

    async def add(self, records: Sequence[ChartRecord]) -> None:
        """Add the sums of some minutes, in one statement."""
        await self._write(self._add, [*map(list, zip(*map(msgspec.structs.astuple, records), strict=True))])

    async def read(self, machine: str, since_us: int, until_us: int, step_us: int) -> ChartSpan:
        """Return the sums of one machine, or of all, added up to steps."""
        [(first_us,)] = await self._read(self._sql.first)
        rows = await self._read(self._sql.read, since_us, until_us, step_us, machine)
        return ChartSpan(first_us, [chart_record(step_us // 1_000_000, *row) for row in rows])

    async def roll_up(self, minutes_before_us: int, hours_before_us: int) -> None:
        """Add old minutes up to hours, and remove old records."""
        await self._write(self._roll_up, (minutes_before_us, hours_before_us))
