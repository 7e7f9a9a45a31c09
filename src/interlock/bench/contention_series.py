"""Settings of experiment 3 for each engine: series of settings, each a line of the plot.

A hand-off simulates the latency of a distant durable place such as a bucket: every group of a lane pays it once, and
lanes pay it concurrently. On a local disk without one the processor is the limit, not the row. A bucket and
PostgreSQL have latencies of their own and get no hand-off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from interlock.bench.grounds import Kind

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
    return _on_postgres(quick=quick) if kind == "postgres" else _on_lanes(kind, hand_off_ms, quick=quick)


def _on_lanes(kind: Kind, hand_off_ms: float, *, quick: bool) -> list[Setting]:
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
    return found + _databases(batch=GROUPED, hand_off_ms=away, quick=quick)


def _on_postgres(*, quick: bool) -> list[Setting]:
    wall = (1, 16, 64) if quick else (1, 2, 4, 8, 16, 32, 64)
    found: list[Setting] = []
    works: dict[str, Work] = {ROW: "row", ROWS: "rows", SHARDED: "sharded", EVENT_LOG: "event_log"}
    for series, work in works.items():
        found += _line("disk", series, work, wall, batch=None)
    return found + _databases(batch=None, hand_off_ms=0.0, quick=quick)


def _databases(*, batch: int | None, hand_off_ms: float, quick: bool) -> list[Setting]:
    return [
        Setting(
            part="databases",
            series=DATABASES,
            work="row",
            clients=CLIENTS_PER_DATABASE * databases,
            databases=databases,
            batch=batch,
            hand_off_ms=hand_off_ms,
        )
        for databases in ((1, 4, 16) if quick else (1, 2, 4, 8, 16))
    ]


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
    return [
        Setting(
            part=part,
            series=series,
            work=work,
            clients=count,
            databases=databases,
            batch=batch,
            hand_off_ms=hand_off_ms,
        )
        for count in clients
    ]
