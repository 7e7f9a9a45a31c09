"""Findings and verdicts of experiment 3: a sentence per finding, and whether each goal was met.

A share is always of two rates of the same run under the same settings: each at its own best number of clients, or both
with the same number where groups let the rate grow with the clients. The reference on lanes is the fastest way to write
rows without contention: a database for each stream of writes (D4), or one database with groups; on PostgreSQL it is a
row of its own for each client.
"""

import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

from interlock.bench.contention_series import (
    CLIENTS_PER_DATABASE,
    EVENT_LOG,
    ONE_ROW,
    ONE_ROW_ALONE,
    ROW,
    ROWS,
    SHARDED,
    STREAM_ROWS,
    Part,
)
from interlock.bench.grounds import Kind

LINEAR_SHARE: Final = 0.8
RECOVERED_SHARE: Final = 0.8
FAR_MS: Final = 10.0

_SHARED = ": their rows are apart, and the server's processors and disk are not"


class Point(msgspec.Struct, frozen=True, kw_only=True):
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


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One goal, and the measured value."""

    goal: str
    name: str
    wanted: float
    measured: float
    met: bool


def findings(kind: Kind, points: Sequence[Point]) -> list[str]:
    """Return one sentence per finding."""
    sentences = [_wall(line) for line in _lines(points) if line[0].series in {ROW, ONE_ROW, ONE_ROW_ALONE}]
    if kind == "postgres":
        sentences += [
            _share(_best(points, "disk", counter), _best(points, "disk", ROWS), counter)
            for counter in (SHARDED, EVENT_LOG)
        ]
    else:
        sentences += _on_lanes(points)
        sentences += [] if is_far(points) else [_near(points)]
    one, most = _databases(points)[0], _databases(points)[-1]
    sentences.append(
        f"{most.databases} separate databases do {most.commits_per_s / one.commits_per_s:.1f} times as much as one, "
        f"with {CLIENTS_PER_DATABASE} clients each{_SHARED if kind == 'postgres' else ''}."
    )
    return sentences


def _on_lanes(points: Sequence[Point]) -> list[str]:
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


def is_far(points: Sequence[Point]) -> bool:
    """Return whether the latency of the durable place (10 ms or more) is the limit on lanes, not the processors."""
    return _way(points).p50_ms >= FAR_MS


def verdicts(kind: Kind, points: Sequence[Point]) -> list[Verdict]:
    """Judge the goals that apply to this engine. On lanes they apply only to a durable place that is far away."""
    found: list[Verdict] = []
    if kind != "postgres" and not is_far(points):
        return found
    if kind == "postgres":
        rows = _best(points, "disk", ROWS)
        found += [
            _recovered(series, _per_second(_best(points, "disk", series)) / _per_second(rows), "distinct rows")
            for series in (SHARDED, EVENT_LOG)
        ]
        return found
    one, *others = _databases(points)
    worst = min(others, key=lambda point: point.commits_per_s / point.databases)
    share = worst.commits_per_s / (worst.databases * one.commits_per_s)
    linear = Verdict(
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


def _recovered(series: str, share: float, reference: str) -> Verdict:
    return Verdict(
        goal=f"the {series} does at least {RECOVERED_SHARE:.0%} of {reference}",
        name="sharded_recovered" if series == SHARDED else "event_log_recovered",
        wanted=RECOVERED_SHARE,
        measured=share,
        met=share >= RECOVERED_SHARE,
    )


def _grouped_share(points: Sequence[Point]) -> float:
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


def _way(points: Sequence[Point]) -> Point:
    alone = [point for point in points if (point.part, point.series) == ("alone", ONE_ROW_ALONE)]
    return min(alone, key=lambda point: point.clients)


def _near(points: Sequence[Point]) -> str:
    return (
        f"The durable place is {_way(points).p50_ms:.1f} ms away, so the processors are the limit and not the way; the "
        f"goals are for {FAR_MS:g} ms or more (--handoff-ms on lanes, a bucket over a network): none is judged here."
    )


def _lines(points: Sequence[Point]) -> list[list[Point]]:
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        if point.part != "databases":
            lines.setdefault((point.part, point.series), []).append(point)
    return list(lines.values())


def _wall(line: Sequence[Point]) -> str:
    first, last = line[0], line[-1]
    last_but_one = line[-2] if len(line) > 1 else first
    best = max(line, key=_per_second)
    away = f" with a hand-off of {first.hand_off_ms:g} ms" if first.hand_off_ms else ""
    if len(line) == 1:
        return f"{_opened(first.series)}{away}: {_rate(first)}."
    more, clients = last.commits_per_s / first.commits_per_s, last.clients / first.clients
    step = last.commits_per_s / last_but_one.commits_per_s - 1
    return (
        f"{_opened(first.series)}{away}: {clients:,g} times the clients do {more:.1f} times the work; its best is "
        f"{_rate(best)}, and the last step, from {last_but_one.clients:,} to {last.clients:,} clients, "
        f"brings {step:+.0%}."
    )


def _opened(series: str) -> str:
    return series[:1].upper() + series[1:]


def _share(point: Point, reference: Point, series: str) -> str:
    share = point.commits_per_s / reference.commits_per_s
    return f"The {series} does {_rate(point)}, {share:.0%} of distinct rows ({_rate(reference)})."


def _best(points: Sequence[Point], part: str, series: str) -> Point:
    return max((point for point in points if (point.part, point.series) == (part, series)), key=_per_second)


def _databases(points: Sequence[Point]) -> list[Point]:
    return sorted((point for point in points if point.part == "databases"), key=lambda point: point.databases)


def _per_second(point: Point) -> float:
    return point.commits_per_s


def _rate(point: Point) -> str:
    return f"{point.commits_per_s:,.0f}/s"
