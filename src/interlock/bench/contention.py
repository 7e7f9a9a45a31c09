"""Experiment 3: the contention wall, and the ways around it (D12).

Writers of one row wait for each other, so their rate flattens with any number of writers. Separate databases for
independent streams scale, because their writers never wait for each other. A sharded counter, or one kept as a log,
reaches the rate of rows without contention. All settings are measured in turns on one machine. After each turn every
row must hold exactly what was acknowledged: no update is lost.

The experiment does not make dependent writes independent (D13). Groups, shards, logs and separate databases lower the
cost of a dependency, or are for writes that never had one.

Sections: settings, measurement, findings and verdicts, experiment.
"""

import asyncio
import statistics
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeVar

import msgspec

from interlock.bench.load import (
    ROUNDS,
    SECONDS_MAX,
    Ask,
    Ground,
    Kind,
    Load,
    ask_within,
    ground,
    median_point,
    refuse_out_of_bounds,
)
from interlock.database.database import Database, Opening
from interlock.errors import CorruptionError
from interlock.lanes.lane import HandOff
from interlock.urls import is_bucket_url, is_postgres_url, parse_postgres_url, with_option

# --- Settings --------------------------------------------------------------------------------------------------------
# A hand-off simulates the latency of a distant durable place such as a bucket: every group of a lane pays it once,
# and lanes pay it concurrently. On a local disk without one the processor is the limit, not the row. A bucket and
# PostgreSQL have latencies of their own and get no hand-off.

GROUPED: Final = 1_000
"""The default of `group_commit_max_batch`."""

STREAMS: Final = 16
"""Databases of the reference on lanes, and shards of a counter."""

CLIENTS_PER_DATABASE: Final = 16
HAND_OFF_MS: Final = 10.0
HAND_OFF_MS_MAX: Final = 1_000.0

Work = Literal["row", "rows", "exact", "sharded", "event_log"]
"""The same row in each database; a row of its own for each client; or a counter of this kind."""

ONE_ROW_ALONE: Final = "one row, one commit per group"
ONE_ROW: Final = "one row, groups"
ROW: Final = "one row"
ROWS: Final = "distinct rows, one database"
STREAM_ROWS: Final = "distinct rows, a database each"
SHARDED: Final = "sharded counter"
EVENT_LOG: Final = "event-log counter"
DATABASES: Final = "separate databases"

Part = Literal["disk", "alone", "grouped", "databases"]
"""Which panel a setting belongs to: this disk as it is; one commit per group; groups; many databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One point of a line."""

    part: Part
    series: str
    work: Work
    clients: int
    databases: int = 1
    batch: int | None = GROUPED
    """Bound on a group; None on engines without groups."""
    hand_off_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.series} ({self.databases} databases, {self.clients:,} clients)"


def settings_for(kind: Kind, *, hand_off_ms: float, quick: bool) -> list[Setting]:
    """Return all settings for an engine, in the order of the table."""
    return _postgres_series(quick=quick) if kind == "postgres" else _lane_series(kind, hand_off_ms, quick=quick)


def _lane_series(kind: Kind, hand_off_ms: float, *, quick: bool) -> list[Setting]:
    away = 0.0 if kind == "bucket" else hand_off_ms
    wall = (1, 16, 64) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    # With groups, more clients are needed to reach the limit.
    wide = (1, 16, 64, 256) if quick else (*wall, 512, 1_024)
    # On one row without groups each client waits for all others: more clients would only wait longer.
    few = (1, 16) if quick else (1, 4, 16, 64)
    many = (16, 256) if quick else (4, 16, 64, 256)
    grouped = (16, 64) if quick else (16, 64, 256)
    found: list[Setting] = []
    if kind != "bucket":
        found += _line("disk", ONE_ROW_ALONE, "row", wall, batch=1)
        found += _line("disk", ONE_ROW, "row", wide)
        found += _line("disk", ROWS, "rows", wide)
    found += _line("alone", ONE_ROW_ALONE, "row", few, batch=1, hand_off_ms=away)
    found += _line("alone", STREAM_ROWS, "rows", many, batch=1, hand_off_ms=away, databases=STREAMS)
    found += _line("alone", SHARDED, "sharded", many, batch=1, hand_off_ms=away)
    found += _line("alone", EVENT_LOG, "event_log", few, batch=1, hand_off_ms=away)
    found += _line("grouped", ONE_ROW, "row", grouped, hand_off_ms=away)
    found += _line("grouped", ROWS, "rows", grouped, hand_off_ms=away)
    found += _line("grouped", STREAM_ROWS, "rows", grouped, hand_off_ms=away, databases=STREAMS)
    found += _line("grouped", SHARDED, "sharded", grouped, hand_off_ms=away)
    found += _line("grouped", EVENT_LOG, "event_log", grouped, hand_off_ms=away)
    return found + _database_series(batch=GROUPED, hand_off_ms=away, quick=quick)


def _postgres_series(*, quick: bool) -> list[Setting]:
    wall = (1, 16, 64) if quick else (1, 2, 4, 8, 16, 32, 64)
    found: list[Setting] = []
    works: dict[str, Work] = {ROW: "row", ROWS: "rows", SHARDED: "sharded", EVENT_LOG: "event_log"}
    for series, work in works.items():
        found += _line("disk", series, work, wall, batch=None)
    return found + _database_series(batch=None, hand_off_ms=0.0, quick=quick)


def _database_series(*, batch: int | None, hand_off_ms: float, quick: bool) -> list[Setting]:
    one = Setting(part="databases", series=DATABASES, work="row", clients=0, batch=batch, hand_off_ms=hand_off_ms)
    counts = (1, 4, 16) if quick else (1, 2, 4, 8, 16)
    return [replace(one, databases=count, clients=CLIENTS_PER_DATABASE * count) for count in counts]


def _line(
    part: Part,
    series: str,
    work: Work,
    clients: Sequence[int],
    *,
    batch: int | None = GROUPED,
    hand_off_ms: float = 0.0,
    databases: int = 1,
) -> list[Setting]:
    one = Setting(
        part=part, series=series, work=work, clients=0, databases=databases, batch=batch, hand_off_ms=hand_off_ms
    )
    return [replace(one, clients=count) for count in clients]


# --- Measurement -----------------------------------------------------------------------------------------------------
# The databases stay from round to round, and the books cover all rounds: after each measurement every row must hold
# exactly what was acknowledged since it was made. Every measured write is counted.

CONNECTIONS_MAX: Final = 64
"""Connections of all databases of one measurement, on PostgreSQL: the server's default is a hundred."""

IDLE_S: Final = 3_600.0
QUEUE_MAX: Final = 10_000
ROWS_AT_ONCE: Final = 500

TABLE: Final = "CREATE TABLE IF NOT EXISTS counter (id integer PRIMARY KEY, n bigint NOT NULL)"
INCREMENT: Final = "UPDATE counter SET n = n + 1 WHERE id = $1"
COUNTS: Final = "SELECT id, n FROM counter"
HITS: Final = "hits"
"""The name of the counter."""


KeyT = TypeVar("KeyT", int, str)


class Books:
    """The databases of an experiment, which the stack closes, and the expected value of every row."""

    def __init__(self, place: Ground, stack: AsyncExitStack) -> None:
        self._place = place
        self._stack = stack
        self._databases: dict[str, Database] = {}
        self._rows: dict[str, Counter[int]] = {}
        self._hits: Counter[str] = Counter()

    async def measure(self, setting: Setting, seconds: float) -> Load:
        """Measure one setting for `seconds`, then compare. Raises CorruptionError for a lost update."""
        async with AsyncExitStack() as turn:
            # A lane is idle between its turns and stays open. On PostgreSQL every open database holds some of the
            # server's connections, so it is closed after each turn.
            stack = turn if self._place.kind == "postgres" else self._stack
            names = _names(setting)
            databases = await asyncio.gather(*(self._database(stack, setting, name) for name in names))
            try:
                if setting.work in {"row", "rows"}:
                    return await self._on_rows(setting, seconds, names, databases)
                return await self._on_counter(setting, seconds, names[0], databases[0])
            finally:
                if stack is turn:
                    self._databases.clear()

    async def _database(self, stack: AsyncExitStack, setting: Setting, name: str) -> Database:
        if name not in self._databases:
            self._databases[name] = await stack.enter_async_context(self._opening(setting, name))
        return self._databases[name]

    def _opening(self, setting: Setting, name: str) -> Opening:
        url = self._place.address(name)
        if self._place.kind == "postgres":
            return Database.open(
                _with_connections(url, CONNECTIONS_MAX // setting.databases), counter_shard_count=STREAMS
            )
        assert setting.batch is not None
        return Database.open(
            url,
            hand_off=_hand_off(setting.hand_off_ms / 1e3) if setting.hand_off_ms else None,
            cache=str(self._place.cache),
            group_commit_max_batch=setting.batch,
            queue_max=QUEUE_MAX,
            idle_s=IDLE_S,
            counter_shard_count=STREAMS,
        )

    async def _on_rows(
        self, setting: Setting, seconds: float, names: Sequence[str], databases: Sequence[Database]
    ) -> Load:
        books = [self._rows.setdefault(name, Counter()) for name in names]
        rows = 1 if setting.work == "row" else -(-setting.clients // len(databases))
        await asyncio.gather(
            *(_make_rows(database, book, rows) for database, book in zip(databases, books, strict=True))
        )
        asks: list[Ask] = []
        for client in range(setting.clients):
            place, row = client % len(databases), client // len(databases) % rows
            asks.append(_counting(books[place], row, partial(databases[place].execute, INCREMENT, row)))
        load = await self._run_clients(setting, seconds, asks)
        for name, book, database in zip(names, books, databases, strict=True):
            found = {row.id: row.n for row in await database.query(COUNTS)}
            if found != dict(book):
                wrong = sum(found.get(row) != n for row, n in book.items())
                raise CorruptionError(
                    f"{setting}: {wrong:,} rows of the database {name} do not hold what was acknowledged: "
                    f"{sum(book.values()):,} increments."
                )
        return load

    async def _on_counter(self, setting: Setting, seconds: float, name: str, database: Database) -> Load:
        assert setting.work != "row"
        assert setting.work != "rows"
        fresh = name not in self._hits
        counter = database.counter(HITS, kind=setting.work)
        asks = [_counting(self._hits, name, counter.add)] * setting.clients
        load = await self._run_clients(setting, seconds, asks, fresh=fresh)
        found = await counter.value()
        if found != self._hits[name]:
            raise CorruptionError(
                f"{setting}: {self._hits[name]:,} additions were acknowledged, but the counter says {found:,}."
            )
        return load

    async def _run_clients(self, setting: Setting, seconds: float, asks: Sequence[Ask], *, fresh: bool = False) -> Load:
        # Tables, statements, shards, and connections to PostgreSQL are made before the measurement.
        warm = asks if self._place.kind == "postgres" or fresh else asks[: setting.databases]
        await asyncio.gather(*(ask() for ask in warm))
        return await ask_within(seconds, asks)


def _names(setting: Setting) -> list[str]:
    """Return the names of the databases of a setting; each has one setting of groups and hand-off."""
    kept = "rows" if setting.work in {"row", "rows"} else setting.work
    away_us = round(1e3 * setting.hand_off_ms)
    return [f"{kept}_{setting.batch or 0}_{away_us}_{number}" for number in range(setting.databases)]


def _counting(book: Counter[KeyT], key: KeyT, ask: Callable[[], Awaitable[object]]) -> Ask:
    # Not a coroutine, which would be measured. Counting first is safe: an unanswered write fails the experiment.
    def counted() -> Awaitable[object]:
        book[key] += 1
        return ask()

    return counted


async def _make_rows(database: Database, book: Counter[int], rows: int) -> None:
    if not book:
        await database.execute(TABLE)
    missing = [row for row in range(rows) if row not in book]
    for begin in range(0, len(missing), ROWS_AT_ONCE):
        values = ", ".join(f"({row}, 0)" for row in missing[begin : begin + ROWS_AT_ONCE])
        await database.execute(f"INSERT INTO counter (id, n) VALUES {values}")  # noqa: S608 -- numbers of our own.
    book.update(dict.fromkeys(missing, 0))


def _hand_off(seconds: float) -> HandOff:
    never = threading.Event()

    def hand_off() -> None:
        never.wait(seconds)

    return hand_off


def _with_connections(url: str, most: int) -> str:
    assert is_postgres_url(url)
    return with_option(url, "connections_max", str(max(1, min(most, parse_postgres_url(url).connections_max))))


# --- Findings and verdicts -------------------------------------------------------------------------------------------
# A share is always of two rates of the same run under the same settings: each at its own best number of clients, or
# both with the same number where groups let the rate grow with the clients. The reference on lanes is the fastest
# way to write rows without contention: a database for each stream of writes (D4), or one database with groups; on
# PostgreSQL it is a row of its own for each client.

LINEAR_SHARE: Final = 0.8
RECOVERED_SHARE: Final = 0.8
FAR_MS: Final = 10.0

_SHARED = ": their rows are apart, and the server's processors and disk are not"


class ContentionPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, measured."""

    part: Part
    series: str
    clients: int
    """Number of clients of all databases together."""
    databases: int
    batch: int | None
    hand_off_ms: float
    commits_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU per commit, of this whole process: clients and lanes, without PostgreSQL's server."""


class GoalVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One goal, and the measured value."""

    goal: str
    name: str
    wanted: float
    measured: float
    met: bool


def findings(kind: Kind, points: Sequence[ContentionPoint]) -> list[str]:
    """Return one sentence per finding."""
    sentences = [_wall(line) for line in _points_by_line(points) if line[0].series in {ROW, ONE_ROW, ONE_ROW_ALONE}]
    if kind == "postgres":
        sentences += [
            _share(_best(points, "disk", counter), _best(points, "disk", ROWS), counter)
            for counter in (SHARDED, EVENT_LOG)
        ]
    else:
        sentences += _lane_findings(points)
        sentences += [] if is_far(points) else [_near(points)]
    one, most = _databases_points(points)[0], _databases_points(points)[-1]
    sentences.append(
        f"{most.databases} separate databases do {most.commits_per_s / one.commits_per_s:.1f} times as much as one, "
        f"with {CLIENTS_PER_DATABASE} clients each{_SHARED if kind == 'postgres' else ''}."
    )
    return sentences


def _lane_findings(points: Sequence[ContentionPoint]) -> list[str]:
    def rate(part: Part, series: str) -> str:
        return _rate(_best(points, part, series))

    recovered = (
        f"With one commit per group a sharded counter does {rate('alone', SHARDED)}, "
        f"distinct rows in a database each {rate('alone', STREAM_ROWS)}, one row {rate('alone', ONE_ROW_ALONE)}."
    )
    queued = (
        f"An event log in a lane is one queue: with one commit per group it does {rate('alone', EVENT_LOG)}, "
        "no more than its row would."
    )
    grouped = (
        f"With groups the event log does {rate('grouped', EVENT_LOG)}, distinct rows in one database "
        f"{rate('grouped', ROWS)}, in a database each {rate('grouped', STREAM_ROWS)}, "
        f"and the row itself {rate('grouped', ONE_ROW)}."
    )
    late = (
        f"With groups a sharded counter does {rate('grouped', SHARDED)}: a client that changes its shard waits "
        "for a group that has left already, and then for its own."
    )
    return [recovered, queued, grouped, late]


def is_far(points: Sequence[ContentionPoint]) -> bool:
    """Return whether the latency of the durable place (10 ms or more) is the limit on lanes, not the processors."""
    return _single_client(points).p50_ms >= FAR_MS


def verdicts(kind: Kind, points: Sequence[ContentionPoint]) -> list[GoalVerdict]:
    """Judge the goals that apply to this engine. On lanes they apply only to a durable place that is far away."""
    if kind == "postgres":
        rows = _best(points, "disk", ROWS)
        return [
            _recovered(series, _per_second(_best(points, "disk", series)) / _per_second(rows), "distinct rows")
            for series in (SHARDED, EVENT_LOG)
        ]
    if not is_far(points):
        return []
    one, *others = _databases_points(points)
    worst = min(others, key=lambda point: point.commits_per_s / point.databases)
    share = worst.commits_per_s / (worst.databases * one.commits_per_s)
    linear = GoalVerdict(
        goal=f"N separate databases do at least {LINEAR_SHARE:g} · N · one (worst at N = {worst.databases})",
        name="databases_linear",
        wanted=LINEAR_SHARE,
        measured=share,
        met=share >= LINEAR_SHARE,
    )
    sharded = _per_second(_best(points, "alone", SHARDED)) / _per_second(_best(points, "alone", STREAM_ROWS))
    return [
        linear,
        _recovered(SHARDED, sharded, f"{STREAM_ROWS}, both with one commit per group"),
        _recovered(EVENT_LOG, _grouped_share(points), "distinct rows, both with groups and as many clients"),
    ]


def _recovered(series: str, share: float, reference: str) -> GoalVerdict:
    return GoalVerdict(
        goal=f"the {series} does at least {RECOVERED_SHARE:.0%} of {reference}",
        name="sharded_recovered" if series == SHARDED else "event_log_recovered",
        wanted=RECOVERED_SHARE,
        measured=share,
        met=share >= RECOVERED_SHARE,
    )


def _grouped_share(points: Sequence[ContentionPoint]) -> float:
    """Return the log's share of the better reference, as the median over all numbers of clients.

    With groups the rate grows with the clients until the processors are the limit, so that only rates of the same
    number of clients can be compared.
    """
    rates = {(point.series, point.clients): point.commits_per_s for point in points if point.part == "grouped"}
    return statistics.median(
        rate / max(rates[ROWS, clients], rates[STREAM_ROWS, clients])
        for (series, clients), rate in rates.items()
        if series == EVENT_LOG
    )


def _single_client(points: Sequence[ContentionPoint]) -> ContentionPoint:
    alone = [point for point in points if (point.part, point.series) == ("alone", ONE_ROW_ALONE)]
    return min(alone, key=lambda point: point.clients)


def _near(points: Sequence[ContentionPoint]) -> str:
    return (
        f"The durable place is {_single_client(points).p50_ms:.1f} ms away, so the processors are the limit and not "
        f"the way; the goals are for {FAR_MS:g} ms or more (--handoff-ms on lanes, a bucket over a network): none is "
        "judged here."
    )


def _points_by_line(points: Sequence[ContentionPoint]) -> list[list[ContentionPoint]]:
    lines: dict[tuple[str, str], list[ContentionPoint]] = {}
    for point in points:
        if point.part != "databases":
            lines.setdefault((point.part, point.series), []).append(point)
    return list(lines.values())


def _wall(line: Sequence[ContentionPoint]) -> str:
    first, last = line[0], line[-1]
    last_but_one = line[-2] if len(line) > 1 else first
    best = max(line, key=_per_second)
    away = f" with a hand-off of {first.hand_off_ms:g} ms" if first.hand_off_ms else ""
    if len(line) == 1:
        return f"{_capitalized(first.series)}{away}: {_rate(first)}."
    more, clients = last.commits_per_s / first.commits_per_s, last.clients / first.clients
    step = last.commits_per_s / last_but_one.commits_per_s - 1
    return (
        f"{_capitalized(first.series)}{away}: {clients:,g} times the clients do {more:.1f} times the work; its best is "
        f"{_rate(best)}, and the last step, from {last_but_one.clients:,} to {last.clients:,} clients, "
        f"brings {step:+.0%}."
    )


def _capitalized(series: str) -> str:
    return series[:1].upper() + series[1:]


def _share(point: ContentionPoint, reference: ContentionPoint, series: str) -> str:
    share = point.commits_per_s / reference.commits_per_s
    return f"The {series} does {_rate(point)}, {share:.0%} of distinct rows ({_rate(reference)})."


def _best(points: Sequence[ContentionPoint], part: str, series: str) -> ContentionPoint:
    return max((point for point in points if (point.part, point.series) == (part, series)), key=_per_second)


def _databases_points(points: Sequence[ContentionPoint]) -> list[ContentionPoint]:
    return sorted((point for point in points if point.part == "databases"), key=lambda point: point.databases)


def _per_second(point: ContentionPoint) -> float:
    return point.commits_per_s


def _rate(point: ContentionPoint) -> str:
    return f"{point.commits_per_s:,.0f}/s"


# --- Experiment ------------------------------------------------------------------------------------------------------

FIGURES: Final = ("commits_per_s", "p50_ms", "p99_ms", "cpu_us")

CAVEAT: Final = (
    "Groups, shards, event logs and databases of their own lower the price of contention; the dependency stays. "
    "Writers of one row still wait for each other and are executed one after the other."
)


class ContentionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the whole experiment."""

    name: str = "contention"
    engine: Kind
    url: str
    hand_off_ms: float
    seconds: float
    """Seconds per point, all its rounds together."""
    rounds: int = ROUNDS
    points: list[ContentionPoint]
    findings: list[str]
    verdicts: list[GoalVerdict]
    caveat: str = msgspec.field(default=CAVEAT, name="told")


def kind_of(url: str | None) -> Kind:
    """Return the kind of engine that an address names."""
    if url is None:
        return "lane"
    if url == "memory:":
        return "memory"
    return "bucket" if is_bucket_url(url) else "postgres" if is_postgres_url(url) else "lane"


def hand_off_for(url: str | None, requested_ms: float | None) -> float:
    """Return the hand-off in milliseconds: the requested one, or 10 on lanes; 0 for a bucket and PostgreSQL."""
    if kind_of(url) in {"bucket", "postgres"}:
        return 0.0
    return HAND_OFF_MS if requested_ms is None else requested_ms


async def measure(
    *,
    url: str | None,
    settings: Sequence[Setting],
    hand_off_ms: float,
    seconds: float,
    watch: Callable[[ContentionPoint], None],
) -> ContentionResult:
    """Measure every setting; `watch` is called after each of its rounds.

    Without a URL the lanes are in a temporary folder. An existing database is refused (BadUsage), and the experiment's
    own are removed at the end. Raises CorruptionError when an acknowledged update is missing.
    """
    check_bounds(seconds=seconds, hand_off_ms=hand_off_ms)
    turns: dict[Setting, list[ContentionPoint]] = {setting: [] for setting in settings}
    async with ground(url) as place, AsyncExitStack() as stack:
        books = Books(place, stack)
        for _ in range(ROUNDS):
            for setting, measured in turns.items():
                load = await books.measure(setting, seconds / ROUNDS)
                measured.append(
                    ContentionPoint(
                        part=setting.part,
                        series=setting.series,
                        clients=setting.clients,
                        databases=setting.databases,
                        batch=setting.batch,
                        hand_off_ms=setting.hand_off_ms,
                        commits_per_s=load.per_s,
                        p50_ms=load.latency_ms(0.50),
                        p99_ms=load.latency_ms(0.99),
                        cpu_us=load.cpu_us,
                    )
                )
                watch(measured[-1])
    points = [median_point(measured, FIGURES) for measured in turns.values()]
    return ContentionResult(
        engine=place.kind,
        url=place.public_url,
        hand_off_ms=hand_off_ms,
        seconds=seconds,
        points=points,
        findings=findings(place.kind, points),
        verdicts=verdicts(place.kind, points),
    )


def check_bounds(*, seconds: float, hand_off_ms: float) -> None:
    """Raise BadUsage for values that are out of bounds."""
    wrong: list[str] = []
    if not 0 < seconds <= SECONDS_MAX:
        wrong.append(f"{seconds:g} seconds; more than 0, at most {SECONDS_MAX:g}")
    if not 0 <= hand_off_ms <= HAND_OFF_MS_MAX:
        wrong.append(f"a hand-off of {hand_off_ms:g} ms; 0 to {HAND_OFF_MS_MAX:g}")
    refuse_out_of_bounds(wrong)
