"""Windows: the contention of one database during some seconds, the common shape of all sources.

A lane's owner publishes it in a file beside the lane; PostgreSQL is queried. The advisor takes windows as evidence; the
table, the command and the metrics take their rows.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from interlock.lanes.contention import HotRow, Source, badness

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
    return Hot(
        database=database,
        source=row.source,
        table=row.table,
        key=row.key,
        handoffs_per_s=row.handoffs_per_s,
        conflicts_per_s=row.conflicts_per_s,
        writes_per_s=row.writes_per_s,
        wait_s=row.wait_s,
        flagged=row.flagged,
    )


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
