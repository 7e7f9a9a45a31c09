"""Evidence of databases in use: the windows of the contention table in the form that the rule takes.

A database and its streams and shards are one workload in several lanes: their windows of the same few seconds become
one. Nothing is opened and nothing is locked. Notes beside the evidence list what could not be read, because no evidence
and nothing hot look alike.
"""

import re
from collections.abc import Sequence
from itertools import groupby

import msgspec

from interlock.hotrow.advice.evidence import ROWS_MAX, Evidence
from interlock.hotrow.advice.hysteresis import WINDOWS
from interlock.hotrow.advice.seen import dependent_per_s
from interlock.hotrow.signal.looking import look
from interlock.hotrow.signal.windows import Window
from interlock.lanes.published import EVERY_S
from interlock.seams import Clock
from interlock.sql.postgres.address import is_postgres

_BELOW = re.compile(r"\.(?:streams|shards)/")
"""Separates the address of a database from the name of a stream or shard."""


class Gathered(msgspec.Struct, frozen=True):
    """The evidence of an address, with notes."""

    windows: list[Evidence]
    """Oldest first, of one database or of all of a home."""
    notes: list[str]
    """Sources that could not be read, and the accuracy of the numbers."""


async def gather(url: str, seconds: float, *, clock: Clock) -> Gathered:
    """Watch an address for `seconds`. Raises TargetNotFound and UnavailableError."""
    if not is_postgres(url):
        # An owner publishes a report every few seconds; each is a window.
        seen = await look(url, seconds, clock=clock, patient=True)
        return Gathered(as_evidence(seen.windows), seen.notes)
    windows: list[Window] = []
    notes: list[str] = []
    for _ in range(WINDOWS):
        seen = await look(url, seconds / WINDOWS, clock=clock)
        windows += seen.windows
        notes = seen.notes
    return Gathered(as_evidence(windows), notes)


def as_evidence(windows: Sequence[Window]) -> list[Evidence]:
    """Join the windows of a database and its streams, one for each few seconds; oldest first."""
    workloads: dict[tuple[str, str], list[Window]] = {}
    for window in sorted(windows, key=lambda each: each.at_s):
        workloads.setdefault((_base(window.database), window.engine), []).append(window)
    found: list[Evidence] = []
    for (database, _), seen in workloads.items():
        lanes = {window.url for window in seen}
        found += [_joined(database, each, streams=len(lanes)) for each in _slots(seen, several=len(lanes) > 1)]
    return sorted(found, key=lambda each: each.at_s or 0.0)


def _slots(windows: Sequence[Window], *, several: bool) -> list[list[Window]]:
    if not several:
        return [[window] for window in windows]
    slots = [list(slot) for _, slot in groupby(windows, key=lambda each: each.at_s // EVERY_S)]
    # A lane that published twice within a slot counts once, with its last report.
    return [list({window.url: window for window in slot}.values()) for slot in slots]


def _joined(database: str, windows: Sequence[Window], *, streams: int) -> Evidence:
    last = max(windows, key=lambda each: each.at_s)
    latencies_s = [each.latency_p99_s for each in windows if each.latency_p99_s is not None]
    rows = sorted((row for each in windows for row in each.rows), key=dependent_per_s, reverse=True)
    return Evidence(
        database=database,
        engine=last.engine,
        seconds=max(each.seconds for each in windows),
        writes_per_s=sum(each.transactions_per_s for each in windows),
        distinct_rows=sum(each.rows_seen for each in windows),
        rows=tuple(rows[:ROWS_MAX]),
        p99_s=max(latencies_s, default=None),
        streams=streams,
        flag_threshold=last.flag_threshold,
        url=_BELOW.split(min((each.url for each in windows), key=len))[0],
        at_s=last.at_s,
    )


def _base(database: str) -> str:
    """Return the database of a stream or shard, which precedes the slash: no name of a database has one."""
    return database.partition("/")[0]
