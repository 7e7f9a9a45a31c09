"""Reading the contention at an address from outside, as windows, with notes on what could not be read.

Lanes are read through the reports that their owners publish beside them, PostgreSQL through its views. Nothing is
opened for writing, nothing is locked, and every read has a time limit.
"""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from interlock.catalog.configuration import configured, lane_settings
from interlock.hotrow.signal.places import LanePlace, lanes_at
from interlock.hotrow.signal.windows import Window
from interlock.hotrow.signal.written import as_written
from interlock.lanes.contention import HotRow
from interlock.lanes.ownership import owner_of
from interlock.lanes.published import HotReport, hot_path, read_report
from interlock.lanes.settings import KINDS
from interlock.seams import Clock
from interlock.sql.postgres.address import is_postgres, parsed

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


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of one read, with notes."""

    windows: list[Window]
    """Oldest first."""
    notes: list[str]
    """Sources that could not be read, and the accuracy of the numbers."""


async def look(url: str, seconds: float, *, clock: Clock, patient: bool = False, cache: str | None = None) -> Seen:
    """Read the contention at an address. PostgreSQL is watched for `seconds`; of lanes the last report is read.

    Where an owner has published nothing yet, its report is awaited for at most `seconds`. With `patient` lanes are
    watched all that time, and every report of it becomes a window. Raises TargetNotFound and UnavailableError.
    """
    if is_postgres(url):
        return await _look_at_postgres(url, seconds, clock)
    return await _look_at_lanes(lanes_at(url, cache=cache), seconds, clock, patient=patient)


async def _look_at_lanes(places: Sequence[LanePlace], seconds: float, clock: Clock, *, patient: bool) -> Seen:
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
    return Seen(
        windows=sorted(found.values(), key=lambda window: window.at_s),
        notes=_notes(places, owned, {file for file, _ in found}),
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


async def _look_at_postgres(url: str, seconds: float, clock: Clock) -> Seen:
    from interlock.sql.postgres.link import connected  # noqa: PLC0415 -- an extra, which may be missing.
    from interlock.sql.postgres.waits import sample  # noqa: PLC0415 -- as above.

    address = parsed(url)
    name = urlsplit(address.url).path.strip("/") or "postgresql"
    threshold = lane_settings(configured(name, KINDS)).contention_flag_threshold
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
            flagged=row.waits_per_s > threshold,
        )
        for row in waits.rows[:ROWS_MAX]
    ]
    window = Window(
        database=name,
        url=address.shown,
        engine="postgres",
        at_s=clock.wall_s(),
        seconds=waits.seconds,
        transactions_per_s=waits.commits_per_s,
        flag_threshold=threshold,
        rows=rows,
    )
    return Seen(windows=[window], notes=notes)
