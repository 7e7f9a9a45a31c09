"""Hot rows at an address, read from outside: windows of contention, their worst rows, and metrics.

A window is the contention of one database during some seconds. A lane's owner publishes it in a file beside the lane;
PostgreSQL is queried. The advisor takes windows as evidence; `interlock hot` and the metrics take their rows. A read
opens nothing for writing, creates and locks nothing, and has a time limit.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast
from urllib.parse import quote, urlsplit

import msgspec

from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import below
from interlock.catalog.open_lane import cache_path
from interlock.clock import Clock
from interlock.errors import BadUsage, TargetNotFound
from interlock.lanes.file import owner_of
from interlock.lanes.hot_rows import Contention, HotReport, HotRow, Source, badness, hot_path, read_report
from interlock.lanes.lane_settings import KINDS
from interlock.settings import configured, lane_settings
from interlock.sql.stored_values import StoredValue, decoder
from interlock.sql.types import parse_declared
from interlock.urls import (
    LANE_SUFFIX,
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_postgres_url,
    redact_url,
)

# --- Windows ---------------------------------------------------------------------------------------------------------

Engine = Literal["lane", "object", "postgres"]
"""Where a database lives: a lane on a local disk, a lane whose log is in object storage, or PostgreSQL."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One database for some seconds."""

    database: str
    url: str
    """Its address, without secrets."""
    engine: Engine
    at_s: float
    """When it ended, in seconds since the epoch."""
    seconds: float
    transactions_per_s: float
    groups_per_s: float | None = None
    """Commits, each with the transactions that had gathered; None where nothing is gathered."""
    latency_p99_s: float | None = None
    """From the call to the acknowledgement; None when it was not measured."""
    rows_seen: int = 0
    """Distinct rows that were written, as far as they are remembered; 0 when they were not counted."""
    flag_threshold: float
    rows: list[HotRow]


class Hot(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: a row, and which database it is in."""

    database: str
    source: Source
    table: str
    key: object
    handoffs_per_s: float
    conflicts_per_s: float
    writes_per_s: float
    wait_s: float
    flagged: bool


def placed(row: HotRow, database: str = "") -> Hot:
    """Return a row with its database; without a name for a single database."""
    fields = msgspec.structs.asdict(row)
    fields["database"] = database  # A row of a server has one already.
    return Hot(**fields)


def worst(windows: Iterable[Window], limit: int) -> list[Hot]:
    """Return the rows of all windows, worst first. Of several windows of a database the last one counts."""
    latest = {(window.engine, window.database, window.url): window for window in windows}
    rows = [(row, window.database) for window in latest.values() for row in window.rows]
    rows.sort(key=lambda each: badness(each[0]), reverse=True)
    return [placed(row, database) for row, database in rows[:limit]]


def key_text(key: object) -> str:
    """Return a key on one line, for users and for labels; empty when it is unknown."""
    if key is None:
        return ""
    if isinstance(key, bytes):
        return key.hex()
    return str(key)


# --- Keys ------------------------------------------------------------------------------------------------------------
# SQLite stores a uuid as bytes, a timestamp as a number, a numeric as text. A lane publishes the declared types of its
# keys with its rows, so no table has to be read under load.

_STORED_AS: dict[str, type[int | str | bytes]] = {
    "bool": int,
    "numeric": str,
    "timestamptz": int,
    "uuid": bytes,
    "jsonb": str,
}


def as_written(key: object, declared: tuple[str, ...]) -> object:
    """Return the key of a row as Python's values, by the declared types of its columns."""
    if len(declared) == 1:
        return _decode_part(key, declared[0])
    if not isinstance(key, tuple):
        return key
    stored = cast("tuple[object, ...]", key)
    if len(stored) != len(declared):
        return stored
    return tuple([_decode_part(value, kind) for value, kind in zip(stored, declared, strict=True)])


def _decode_part(stored: object, declared: str) -> object:
    kind = parse_declared(declared)
    if kind is None or not isinstance(stored, _STORED_AS.get(kind.name, ())):
        return stored
    decode = decoder(kind, checked=False)
    assert decode is not None
    try:
        return decode(cast("StoredValue", stored))
    except (ValueError, ArithmeticError):
        # The table was made anew since, with a key of another type: show what is there.
        return stored


# --- Lanes at an address ---------------------------------------------------------------------------------------------
# The report of a database in a bucket lies beside its local file, so only on the host where its owner runs.

LANES_MAX = 10_000
"""The most lanes that are read: a home may have any number of streams."""

WORKFLOWS = "workflows"


class LanePlace(NamedTuple):
    """A lane, and the file beside which its owner publishes reports."""

    name: str
    url: str
    """Without secrets."""
    file: Path
    engine: Literal["lane", "object"] = "lane"


def lanes_at(url: str, *, cache: str | None = None) -> list[LanePlace]:
    """Return the lanes of a database, or of a whole home. Raises TargetNotFound for an address without lanes."""
    if url == "memory:":
        raise BadUsage(
            "a database in memory cannot be looked at from outside.",
            why="It exists only inside the program that opened it.",
            fix="Ask there: await db.contention(), await engine.contention().",
        )
    if is_bucket_url(url):
        return _in_bucket(url, cache)
    found: dict[Path, LanePlace] = {}
    for place in itertools.takewhile(lambda _: len(found) < LANES_MAX, _candidates(url)):
        found.setdefault(place.file, place)
    if not found:
        raise TargetNotFound(
            f"there is no database at {redact_url(url)}, and no home with one.",
            why="A database is the file NAME.lane; a home is a folder of databases.",
            fix="Check the address: lanes:///var/shop for all of a home, lanes:///var/shop/stock for one.",
        )
    return list(found.values())


def _candidates(url: str) -> Iterator[LanePlace]:
    path = lane_path(url)
    assert path is not None, "memory was refused before"
    if path.exists():
        yield LanePlace(path.name.removesuffix(LANE_SUFFIX), url, path)
    yield from _below(path, url)
    folder = path.with_name(path.name.removesuffix(LANE_SUFFIX))
    if not folder.is_dir():
        return
    for file in sorted(folder.glob(f"*{LANE_SUFFIX}")):
        name = file.name.removesuffix(LANE_SUFFIX)
        yield LanePlace(name, f"{url.rstrip('/')}/{quote(name)}", file)
        yield from _below(file, f"{url.rstrip('/')}/{quote(name)}")
    for name, place in FolderCatalog(url).names().items():
        # A moved database is followed once: a catalog names databases, never homes.
        if is_bucket_url(place.url):
            address = parse_bucket_url(place.url)
            yield LanePlace(name, str(address), cache_path(address), "object")
        elif place.url and not is_postgres_url(place.url) and (moved := lane_path(place.url)) is not None:
            yield LanePlace(name, place.url, moved)
            yield from _below(moved, place.url)


def _below(path: Path, url: str, called: str = "") -> Iterator[LanePlace]:
    """Yield the streams of a database, the shards of its counters, and those of its streams' counters."""
    file_name = path.name.removesuffix(LANE_SUFFIX)
    name = called or file_name
    # A shard has a number for its name, and so may a stream.
    for folder, prefix in (("streams", name), ("shards", f"{name}/shards")):
        for file in sorted(path.with_name(f"{file_name}.{folder}").glob(f"*{LANE_SUFFIX}")):
            part = file.name.removesuffix(LANE_SUFFIX)
            below = f"{url.rstrip('/')}.{folder}/{quote(part)}"
            yield LanePlace(f"{prefix}/{part}", below, file)
            yield from _below(file, below, f"{prefix}/{part}")


def _in_bucket(url: str, cache: str | None) -> list[LanePlace]:
    """Return the database at the address and, for a home, its workflows; others are found by their own addresses."""
    inside = below(url, WORKFLOWS)
    return [
        LanePlace(address.name, str(address), cache_path(address, cache), "object")
        for address in (parse_bucket_url(url), parse_bucket_url(inside))
    ]


# --- Reading ---------------------------------------------------------------------------------------------------------

LOOK_S = 0.25
"""Seconds between two reads of the reports beside lanes, while one is awaited."""

WINDOWS_MAX = 10_000

ROWS_MAX = 50

SAMPLED = (
    "Sampled {:,} times from pg_locks, where the waits of every user are seen; rates are estimates, rather too low "
    "than too high."
)
NOT_COUNTED = (
    "PostgreSQL's views do not count serialization failures; the process that runs the transactions does: "
    "db.contention(), engine.contention()."
)


class HotRowsReading(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of one read, with notes."""

    windows: list[Window]
    """Oldest first."""
    notes: list[str]
    """Sources that could not be read, and the accuracy of the numbers."""


async def look(
    url: str, seconds: float, *, clock: Clock, patient: bool = False, cache: str | None = None
) -> HotRowsReading:
    """Read the contention at an address. PostgreSQL is watched for `seconds`; of lanes the last report is read.

    Where an owner has published nothing yet, its report is awaited for at most `seconds`. With `patient` lanes are
    watched all that time, and every report of it becomes a window. Raises TargetNotFound and UnavailableError.
    """
    if is_postgres_url(url):
        return await _look_at_postgres(url, seconds, clock)
    return await _look_at_lanes(lanes_at(url, cache=cache), seconds, clock, patient=patient)


async def _look_at_lanes(places: Sequence[LanePlace], seconds: float, clock: Clock, *, patient: bool) -> HotRowsReading:
    until_s = clock.monotonic_s() + seconds
    found: dict[tuple[str, float], Window] = {}
    owned = [place for place in places if owner_of(place.file) is not None]
    while True:
        for place in owned:
            report = read_report(hot_path(place.file), now_s=clock.wall_s())
            if report is not None and len(found) < WINDOWS_MAX:
                found[str(place.file), report.at_s] = _window(place, report)
        reported = {file for file, _ in found}
        if clock.monotonic_s() >= until_s or (not patient and all(str(place.file) in reported for place in owned)):
            break
        await asyncio.sleep(LOOK_S)
    return HotRowsReading(
        windows=sorted(found.values(), key=lambda window: window.at_s), notes=_notes(places, owned, reported)
    )


def _notes(places: Sequence[LanePlace], owned: Sequence[LanePlace], reported: set[str]) -> list[str]:
    notes: list[str] = []
    closed = [place for place in places if place not in owned]
    local = [place.name for place in closed if place.engine == "lane"]
    away = [place.url for place in closed if place.engine == "object"]
    quiet = [place.name for place in owned if str(place.file) not in reported]
    if local:
        notes.append(f"No process has {_some(local)} open, so nothing is written there.")
    if away:
        notes.append(f"No process on this host has {_some(away)} open; ask on the host of its owner.")
    if quiet:
        notes.append(f"{_some(quiet)}: too little is written there to measure, and no writer waited.")
    return notes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")  # noqa: PLR2004


def _window(place: LanePlace, report: HotReport) -> Window:
    rows = [
        msgspec.structs.replace(row, key=as_written(row.key, report.key_types.get(row.table, ())))
        if row.source == "lane"
        else row
        for row in report.rows
    ]
    return Window(
        database=place.name,
        url=place.url,
        engine=place.engine,
        at_s=report.at_s,
        seconds=report.window_s,
        transactions_per_s=report.transactions_per_s,
        groups_per_s=report.groups_per_s,
        latency_p99_s=report.latency_p99_s,
        rows_seen=report.rows_seen,
        flag_threshold=report.flag_threshold,
        rows=rows,
    )


async def _look_at_postgres(url: str, seconds: float, clock: Clock) -> HotRowsReading:
    from interlock.postgres.lock_waits import sample  # noqa: PLC0415 -- as above.
    from interlock.postgres.pool import connected  # noqa: PLC0415 -- an extra, which may be missing.

    address = parse_postgres_url(url)
    name = urlsplit(address.url).path.strip("/") or "postgresql"
    contention = Contention(lane_settings(configured(name, KINDS)), source="postgres")
    link = await connected(address)
    try:
        waits = await sample(link, seconds)
    finally:
        await link.end(5.0)
    notes = [SAMPLED.format(waits.samples), NOT_COUNTED]
    if waits.unreadable:
        notes.append(f"No keys are shown of {_some(waits.unreadable)}: no primary key, or not readable by this user.")
    if waits.hidden:
        notes.append("Some of the sessions are of users that this one may not look at: their rates may be too high.")
    if waits.deadlocks:
        notes.append(f"Meanwhile {waits.deadlocks:,} deadlocks were broken up.")
    rows = [
        HotRow(
            source="postgres",
            table=row.table,
            key=row.key,
            handoffs_per_s=row.waits_per_s,
            writes_per_s=row.waits_per_s,
            wait_s=row.wait_s,
            flagged=contention.is_flagged(row.waits_per_s, row.wait_s),
        )
        for row in waits.rows[:ROWS_MAX]
    ]
    window = Window(
        database=name,
        url=address.redacted_url,
        engine="postgres",
        at_s=clock.wall_s(),
        seconds=waits.seconds,
        transactions_per_s=waits.commits_per_s,
        flag_threshold=contention.flag_threshold,
        rows=rows,
    )
    return HotRowsReading(windows=[window], notes=notes)


# --- Metrics in Prometheus's text format -----------------------------------------------------------------------------
# Labels are bounded: only the worst rows have a series, and a long key is cut. An absent row is cold. Nothing here
# is a counter: rates decay by themselves.

METRIC_ROWS_MAX = 20
LABEL_CHARACTERS_MAX = 80

FAMILY = (
    (
        "interlock_row_handoffs_per_second",
        "handoffs_per_s",
        "Writes of the row that had to wait for another write of it.",
    ),
    (
        "interlock_row_conflicts_per_second",
        "conflicts_per_s",
        "Writes of the row that had to be done again because another came first.",
    ),
    ("interlock_row_wait_seconds", "wait_s", "The mean time that a write of the row waited for another one."),
    (
        "interlock_row_flagged",
        "flagged",
        "1 when the row is flagged: by its rate or by its mean wait.",
    ),
)
"""Each metric with the field of a row that it shows."""

HOT_ROWS = ("interlock_hot_rows", "Rows that are flagged, by their rate or by their mean wait.")
"""The metric that counts flagged rows by database."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(rows: Iterable[Hot], *, limit: int = METRIC_ROWS_MAX) -> str:
    """Return the metrics of the first `limit` rows; pass them worst first."""
    series: dict[str, Hot] = {}
    flagged: Counter[str] = Counter()
    for row in rows:
        flagged[row.database] += row.flagged
        if len(series) < limit:
            series.setdefault(_labels(row), row)
    lines = [f"# HELP {HOT_ROWS[0]} {HOT_ROWS[1]}", f"# TYPE {HOT_ROWS[0]} gauge"]
    lines += [f'{HOT_ROWS[0]}{{database="{_label(database)}"}} {count}' for database, count in flagged.items()]
    for name, field, what in FAMILY:
        lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {getattr(row, field):.6g}" for labels, row in series.items()]
    return "\n".join(lines) + "\n"


def _labels(row: Hot) -> str:
    labels = {"database": row.database, "source": row.source, "table": row.table, "key": key_text(row.key)}
    return "{" + ",".join(f'{name}="{_label(value)}"' for name, value in labels.items()) + "}"


def _label(value: str) -> str:
    """Escape a user's text, so that it cannot end its label or begin a line; invalid UTF-8 is replaced."""
    if len(value) > LABEL_CHARACTERS_MAX:
        value = f"{value[: LABEL_CHARACTERS_MAX - 1]}…"
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
