"""The contention of a lane: which rows writers hand to each other, how often, and how long they wait for them (D9).

A write is a *hand-off* when the row's previous write was executed while this transaction was already waiting: the two
depend on each other, and no batching takes that away (D13). Many writes to many rows are volume, not contention, and
show no hand-offs at all. A *conflict* is a write that had to be done again because another one came first: a
serialization failure, a version that had moved on, a retry.

Bounded and cheap: a dictionary of the latest rows, forgetting half of the coldest when it is full; rates decay with a
time constant, so an old storm fades. `TouchedRows` collects the rows of a transaction, `Publishing` leaves the report,
`OPEN_SOURCES` has the open databases of the process.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, cast
from urllib.parse import parse_qs
from weakref import WeakSet

import apsw
import msgspec

from interlock.clock import Clock
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.sqlite_connection import OWN_PREFIX

DECAY_S = 10.0

FADED = 0.01
"""Less than one hand-off or conflict in a hundred is left of it: it is not shown any more."""

Source = Literal["lane", "workflow", "postgres"]
"""The observer: a lane's writer, an engine of workflows, or a client (or the views) of PostgreSQL."""


class HotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row that writers wait for each other on."""

    table: str
    key: object
    """The value of the primary key, a tuple for several columns, or the row's number without a primary key."""
    handoffs_per_s: float
    writes_per_s: float
    wait_s: float
    """The mean time that a handed-off write waited."""
    flagged: bool
    source: Source = "lane"
    conflicts_per_s: float = 0.0
    """Serialization failures, versions that had moved on, and retries."""


class _Row:
    __slots__ = ("at_s", "born_s", "conflicts", "handoffs", "last_s", "wait_s", "writes")

    def __init__(self, now_s: float) -> None:
        self.at_s = now_s
        self.born_s = now_s
        self.last_s = -math.inf
        self.writes = 0.0
        self.handoffs = 0.0
        self.conflicts = 0.0
        self.wait_s = 0.0


class Contention:
    """Counts hand-offs per row. Written by the writer alone."""

    def __init__(self, settings: LaneSettings, *, source: Source = "lane") -> None:
        self.source: Source = source
        self.rows_max = settings.contention_rows_max
        self.flag_threshold = settings.contention_flag_threshold
        self.flag_wait_s = settings.contention_flag_wait_s
        self._rows: dict[tuple[str, object], _Row] = {}
        self._key_types: dict[str, tuple[str, ...]] = {}

    def learn_key_types(self, types: dict[str, tuple[str, ...]]) -> None:
        """Remember the declared key types of tables: the layer above needs them to decode keys."""
        if len(self._key_types) > self.rows_max:
            watched = {table for table, _ in self._rows}
            self._key_types = {table: kinds for table, kinds in self._key_types.items() if table in watched}
        self._key_types.update(types)

    def key_types(self, table: str) -> tuple[str, ...]:
        """Return the declared types of a table's key columns; empty when it has no key, or is unknown."""
        return self._key_types.get(table, ())

    def wrote(
        self, rows: Iterable[tuple[str, object]], *, waiting_since_s: float, now_s: float, weight: float = 1.0
    ) -> None:
        """Count writes of these rows by a transaction that waited since `waiting_since_s`; it stands for `weight`."""
        known = self._rows
        for key in rows:
            row = known.get(key)
            if row is None:
                if len(known) >= self.rows_max:
                    self._forget(now_s)
                row = known[key] = _Row(now_s)
            elif now_s - row.at_s > 1.0:
                _decay(row, now_s)
            row.writes += weight
            if row.last_s > waiting_since_s:
                row.handoffs += weight
                row.wait_s += weight * (now_s - waiting_since_s)
            row.last_s = now_s

    def conflicted(self, rows: Iterable[tuple[str, object]], *, now_s: float, weight: float = 1.0) -> None:
        """Count a conflict: a transaction on these rows has to be repeated, because another one came first."""
        for key in rows:
            self._row(key, now_s).conflicts += weight

    def took_turns(
        self, key: tuple[str, object], *, writes: float, handoffs: float, wait_s: float, now_s: float
    ) -> None:
        """Count `writes` of one row, of which `handoffs` waited for another one, `wait_s` in all.

        A row that no write has waited for yet is not remembered: volume costs nothing here.
        """
        if not handoffs and key not in self._rows:
            return
        row = self._row(key, now_s)
        row.writes += writes
        row.handoffs += handoffs
        row.wait_s += wait_s
        row.last_s = now_s

    def _row(self, key: tuple[str, object], now_s: float) -> _Row:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self.rows_max:
                self._forget(now_s)
            row = self._rows[key] = _Row(now_s)
        elif now_s - row.at_s > 1.0:
            _decay(row, now_s)
        return row

    def worst(self, now_s: float) -> list[HotRow]:
        """Return all rows with hand-offs or conflicts, worst first."""
        found: list[HotRow] = []
        for (table, key), row in list(self._rows.items()):
            _decay(row, now_s)
            if row.handoffs >= FADED or row.conflicts >= FADED:
                window_s = _window_s(row, now_s)
                handoffs_per_s, conflicts_per_s = row.handoffs / window_s, row.conflicts / window_s
                wait_s = row.wait_s / row.handoffs if row.handoffs >= FADED else 0.0
                found.append(
                    HotRow(
                        table=table,
                        key=key,
                        handoffs_per_s=handoffs_per_s,
                        writes_per_s=row.writes / window_s,
                        wait_s=wait_s,
                        flagged=self.is_flagged(max(handoffs_per_s, conflicts_per_s), wait_s),
                        source=self.source,
                        conflicts_per_s=conflicts_per_s,
                    )
                )
        return sorted(found, key=badness, reverse=True)

    def is_flagged(self, per_s: float, wait_s: float) -> bool:
        """Return whether a row is hot: by its rate, or by its mean wait where `contention_flag_wait_s` is set."""
        return per_s > self.flag_threshold or 0 < self.flag_wait_s < wait_s

    def count_recent_rows(self, now_s: float) -> int:
        """Return how many distinct rows, of those remembered, were written within the window."""
        return sum(now_s - row.last_s <= DECAY_S for row in list(self._rows.values()))

    def _forget(self, now_s: float) -> None:
        for row in self._rows.values():
            _decay(row, now_s)
        rows = self._rows
        coldest = sorted(rows, key=lambda key: (rows[key].handoffs + rows[key].conflicts, rows[key].writes))
        for key in coldest[: max(1, self.rows_max // 2)]:
            del self._rows[key]


def badness(row: HotRow) -> tuple[bool, float, float]:
    """Return the sort key of a row, the worst last: flagged, then how often it is waited for, then how long."""
    return row.flagged, row.handoffs_per_s + row.conflicts_per_s, row.wait_s


def _window_s(row: _Row, now_s: float) -> float:
    # A row that is younger than the window has filled only a part of it.
    return max(1.0, DECAY_S * (1.0 - math.exp(-(now_s - row.born_s) / DECAY_S)))


def _decay(row: _Row, now_s: float) -> None:
    # Counters are sums over an exponential window of DECAY_S.
    factor = math.exp(-(now_s - row.at_s) / DECAY_S)
    row.writes *= factor
    row.handoffs *= factor
    row.conflicts *= factor
    row.wait_s *= factor
    row.at_s = now_s


# --- Open databases of this process ----------------------------------------------------------------------------------
# Engines export the hot rows of every database that is open in their process, and raise alerts for flagged ones (D19).


class HotRowSource(Protocol):
    """An open database that measures its contention."""

    @property
    def url(self) -> str:
        """Its address, without secrets."""
        ...

    def hot_rows(self) -> list[HotRow]:
        """Return its rows with contention, worst first. Called from any thread."""
        ...


class OpenSources:
    """The open databases of this process. Used from any thread; does not keep a database alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: WeakSet[HotRowSource] = WeakSet()

    def add(self, source: HotRowSource) -> None:
        """Add a database that was opened."""
        with self._lock:
            self._sources.add(source)

    def discard(self, source: HotRowSource) -> None:
        """Remove a database that is closed."""
        with self._lock:
            self._sources.discard(source)

    def rows(self) -> list[tuple[str, HotRow]]:
        """Return the rows of all databases with the name of each, worst first."""
        with self._lock:
            sources = list(self._sources)
        found = [(database_name(source.url), row) for source in sources for row in source.hot_rows()]
        return sorted(found, key=lambda each: badness(each[1]), reverse=True)


OPEN_SOURCES = OpenSources()


def database_name(url: str) -> str:
    """Return the name of a database for labels and alerts: the last part of its address, or its schema."""
    path, _, query = url.partition("?")
    schema = parse_qs(query).get("schema")
    return schema[-1] if schema else path.rstrip("/").rpartition("/")[2] or path


# --- Touched rows ----------------------------------------------------------------------------------------------------
# SQLite's preupdate hook is called once per row, inside the statement, and may not run statements itself; so the place
# of a table's key among its columns is looked up after the transaction that met the table first; until then its rows
# are passed over. When tables are made or changed, all are looked up again. Only the first few rows of a transaction
# are looked at: a bulk update is volume, not contention.

ROWS_WATCHED_MAX = 32
TABLES_KNOWN_MAX = 10_000

RowKey = tuple[str, object]


class TouchedRows:
    """The rows that the running transaction has written so far."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._query = connection.cursor().execute
        self._rows: set[RowKey] = set()
        self._keys: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.unknown: set[str] = set()

    def clear(self) -> None:
        """Begin a transaction."""
        if self._rows:
            self._rows = set()

    def take(self) -> set[RowKey]:
        """Return the rows of the transaction that has just ended; they are the caller's."""
        return self._rows

    def record(self, update: apsw.PreUpdate) -> None:
        """Record a row that is about to change, as SQLite's preupdate hook."""
        table = update.table_name
        if len(self._rows) >= ROWS_WATCHED_MAX or table.startswith(OWN_PREFIX):
            return
        values = (update.new if update.op == "INSERT" else update.old) or ()
        width, columns = self._keys.get(table, (0, ()))
        if width != len(values):
            # Met for the first time, or for the first time since tables were made or changed.
            self.unknown.add(table)
            return
        if not columns:
            self._rows.add((table, update.rowid))
            return
        key = values[columns[0]] if len(columns) == 1 else tuple([values[column] for column in columns])
        self._rows.add((table, key))

    def forget_keys(self) -> None:
        """Forget all keys: a table is made, changed or dropped, or that is undone."""
        self._keys.clear()

    def learn(self) -> dict[str, tuple[str, ...]]:
        """Look up the keys of the tables that were met for the first time; return the declared types of each key."""
        types: dict[str, tuple[str, ...]] = {}
        if len(self._keys) > TABLES_KNOWN_MAX:
            self._keys.clear()  # Those that are still written to are looked up again.
        for table in self.unknown:
            # Generated columns, which table_info leaves out, are among the values of a changed row.
            rows = self._query("SELECT cid, pk, type FROM pragma_table_xinfo(?1) ORDER BY pk", (table,)).fetchall()
            self._keys[table] = (len(rows), tuple(int(str(column)) for column, place, _ in rows if place))
            types[table] = tuple(str(declared) for _, place, declared in rows if place)
        self.unknown.clear()
        return types


# --- Report ----------------------------------------------------------------------------------------------------------
# `interlock hot` reads it. Only the owner knows which writers wait for which, and it may be any process. So it leaves
# `NAME.lane.hot` beside the lane's file: at most every five seconds, between two groups and after all waiters were
# notified, replaced as a whole, never synced to the disk, at most fifty rows. A lane with nothing to report has no such
# file, a lane that closes removes it, and a reader ignores an old one; so a file that a crash has left says nothing. A
# lane in memory has none. The local file of a bucket has one like any other: it can be read on the owner's host.
#
# A group costs one look at the clock and one number in a histogram: of all that waited in it, one stands for the
# others.

FORMAT = 1

FIRST_S = 1.0
"""How long after its first group a lane reports for the first time."""

EVERY_S = 5.0

STALE_S = 15.0
"""A report older than this is not true any more: a busy lane reports every `EVERY_S`."""

ROWS_MAX = 50

TRANSACTIONS_MIN = 100
"""A lane without hand-offs reports only when it has run this many transactions since the last time."""

KEY_LENGTH_MAX = 200
"""A key may be any text; the rest of a long one is cut off."""

BUCKETS = 128
BUCKETS_PER_DOUBLING = 4
SHORTEST_S = 1e-6
"""Latencies from a microsecond to an hour, each known to within a fifth of itself."""

Rows = Callable[[], Sequence[HotRow]]
"""Rows that a layer above the lane has observed, worst first. Called by the lane's own thread."""


class HotReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report that a lane's owner leaves beside it: one window of evidence."""

    format: int = FORMAT
    at_s: float
    """When it was written, by the wall clock."""
    pid: int
    window_s: float
    """How many seconds the numbers of transactions and groups cover."""
    transactions_per_s: float
    groups_per_s: float
    latency_p99_s: float | None
    """From submission until durable; None when there were too few transactions."""
    rows_seen: int
    """Distinct rows that were written of late, as far as they are remembered (`contention_rows_max`)."""
    flag_threshold: float
    rows: list[HotRow]
    key_types: dict[str, tuple[str, ...]]
    """The declared types of the keys of these tables: keys are as SQLite stores them."""


class Latencies:
    """The latencies of transactions: a histogram that forgets."""

    def __init__(self) -> None:
        self._counts = [0.0] * BUCKETS

    def add(self, latency_s: float, weight: float) -> None:
        """Add `weight` transactions of about this latency."""
        place = int(math.log2(latency_s / SHORTEST_S) * BUCKETS_PER_DOUBLING) if latency_s > SHORTEST_S else 0
        self._counts[min(place, BUCKETS - 1)] += weight

    def quantile(self, share: float) -> float | None:
        """Return the latency below which this share of all lies; None when there are too few."""
        total = sum(self._counts)
        if total * (1.0 - share) < 1.0:
            return None
        below = 0.0
        for place, count in enumerate(self._counts):
            below += count
            if below >= share * total:
                return SHORTEST_S * math.exp2((place + 1) / BUCKETS_PER_DOUBLING)
        return None

    def fade(self) -> None:
        """Halve the weight of everything so far."""
        self._counts = [count / 2 for count in self._counts]


class Publishing:
    """Publishes the contention of a lane. Used by the lane's driver alone."""

    def __init__(self, path: Path | None, contention: Contention, clock: Clock) -> None:
        self.also: Rows | None = None
        """The rows of the layer above: an engine knows workflows where the lane sees numbers."""
        self.failed = 0
        self._file = None if path is None else hot_path(path)
        self._pid = os.getpid()
        self._contention = contention
        self._clock = clock
        self._latencies = Latencies()
        self._groups = self._transactions = 0
        self._since_s = self._next_s = -math.inf
        self._has_file = False

    def count_group(self, size: int, waiting_since_s: float) -> None:
        """Count a group after its waiters were notified, one of which waited since then; publish when it is due."""
        if self._file is None:
            return
        now_s = self._clock.monotonic_s()
        self._groups += 1
        self._transactions += size
        self._latencies.add(now_s - waiting_since_s, size)
        if now_s >= self._next_s:
            self._publish(self._file, now_s)

    def close(self) -> None:
        """Remove the report: the lane is about to be released. Does nothing in the child of a fork."""
        file, self._file = self._file, None  # Only once: the next owner's file has the same name.
        if file is not None and os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def _publish(self, file: Path, now_s: float) -> None:
        begun = self._next_s == -math.inf
        self._next_s = now_s + (FIRST_S if begun else EVERY_S)
        if begun:
            self._since_s = now_s
            return
        try:
            report = self._report(now_s)
            if report.rows or self._transactions >= TRANSACTIONS_MIN:
                _replace_file(file, msgspec.msgpack.encode(report))
                self._has_file = True
            elif self._has_file:
                self._has_file = False
                file.unlink(missing_ok=True)
        except Exception:  # noqa: BLE001 -- a full disk, a key that cannot be written: no reason to stop a lane.
            self.failed += 1
        self._since_s, self._groups, self._transactions = now_s, 0, 0
        self._latencies.fade()

    def _report(self, now_s: float) -> HotReport:
        contention = self._contention
        above = () if self.also is None else self.also()
        rows = sorted([*above, *contention.worst(now_s)], key=badness, reverse=True)[:ROWS_MAX]
        window_s = max(now_s - self._since_s, 0.001)
        return HotReport(
            at_s=self._clock.wall_s(),
            pid=self._pid,
            window_s=window_s,
            transactions_per_s=self._transactions / window_s,
            groups_per_s=self._groups / window_s,
            latency_p99_s=self._latencies.quantile(0.99),
            rows_seen=contention.count_recent_rows(now_s),
            flag_threshold=contention.flag_threshold,
            rows=[msgspec.structs.replace(row, key=_shorten_key(row.key)) for row in rows],
            key_types={row.table: contention.key_types(row.table) for row in rows if row.source == "lane"},
        )


def hot_path(database: Path) -> Path:
    """Return the path of a lane's report: beside the file itself, whatever name it was opened by."""
    return Path(f"{os.path.realpath(database)}.hot")


def read_report(file: Path, *, now_s: float) -> HotReport | None:
    """Return the report; None when it is missing, old, or of another version."""
    try:
        report = msgspec.msgpack.decode(file.read_bytes(), type=HotReport)
    except (OSError, msgspec.MsgspecError):
        return None
    # A clock that was set back makes the time of writing lie ahead.
    if report.format != FORMAT or not -STALE_S <= now_s - report.at_s <= STALE_S:
        return None
    rows = [msgspec.structs.replace(row, key=_decode_key(row.key)) for row in report.rows]
    return msgspec.structs.replace(report, rows=rows)


def _decode_key(key: object) -> object:
    return tuple(cast("list[object]", key)) if isinstance(key, list) else key


def _shorten_key(key: object) -> object:
    if isinstance(key, tuple):
        return tuple([_shorten_key(part) for part in cast("tuple[object, ...]", key)])
    if isinstance(key, str) and len(key) > KEY_LENGTH_MAX:
        return f"{key[: KEY_LENGTH_MAX - 1]}…"
    return key[:KEY_LENGTH_MAX] if isinstance(key, bytes) else key


def _replace_file(file: Path, data: bytes) -> None:
    """Replace the file as a whole, so that a reader sees the old or the new one. No fsync: a crash ends its use."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(data)
    new.replace(file)
