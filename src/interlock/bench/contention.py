"""Experiment 3: the contention wall, and the ways around it (D12).

Writers of one row wait for each other, so their rate flattens with any number of writers. Separate databases for
independent streams scale, because their writers never wait for each other. A sharded counter, or one kept as a log,
reaches the rate of rows without contention. All settings are measured in turns on one machine. After each turn every
row must hold exactly what was acknowledged: no update is lost.

The experiment does not make dependent writes independent (D13). Groups, shards, logs and separate databases lower the
cost of a dependency, or are for writes that never had one.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from interlock.bench.contention_findings import Point, Verdict, findings, verdicts
from interlock.bench.contention_load import Books
from interlock.bench.contention_series import HAND_OFF_MS, HAND_OFF_MS_MAX, Setting, settings_for
from interlock.bench.grounds import Kind, ground
from interlock.errors import BadUsage
from interlock.lanes.objects.addresses import is_bucket
from interlock.sql.postgres.address import is_postgres

ROUNDS: Final = 3
"""Number of rounds per setting, with the settings in turns; a point is the median of its rounds."""

SECONDS_MAX: Final = 60.0

TOLD: Final = (
    "Groups, shards, event logs and databases of their own lower the price of contention; the dependency stays. "
    "Writers of one row still wait for each other and are executed one after the other."
)


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the whole experiment."""

    name: str = "contention"
    engine: Kind
    url: str
    hand_off_ms: float
    seconds: float
    """Seconds per point, all its rounds together."""
    rounds: int = ROUNDS
    points: list[Point]
    findings: list[str]
    verdicts: list[Verdict]
    told: str = TOLD


Watcher = Callable[[Point], None]


def kind_of(url: str | None) -> Kind:
    """Return the kind of engine that an address names."""
    if url == "memory:":
        return "memory"
    return (
        "lane"
        if url is None or not (is_bucket(url) or is_postgres(url))
        else "bucket"
        if is_bucket(url)
        else "postgres"
    )


def hand_off_for(url: str | None, requested_ms: float | None) -> float:
    """Return the hand-off in milliseconds: the requested one, or 10 on lanes; 0 for a bucket and PostgreSQL."""
    if kind_of(url) in {"bucket", "postgres"}:
        return 0.0
    return HAND_OFF_MS if requested_ms is None else requested_ms


async def measure(
    *, url: str | None, settings: Sequence[Setting], hand_off_ms: float, seconds: float, watch: Watcher
) -> Experiment:
    """Measure every setting; `watch` is called after each of its rounds.

    Without a URL the lanes are in a temporary folder. An existing database is refused (BadUsage), and the experiment's
    own are removed at the end. Raises CorruptionError when an acknowledged update is missing.
    """
    check_bounds(seconds=seconds, hand_off_ms=hand_off_ms)
    turns: dict[Setting, list[Point]] = {setting: [] for setting in settings}
    async with ground(url) as place, Books(place) as books:
        for _ in range(ROUNDS):
            for setting, measured in turns.items():
                load = await books.measure(setting, seconds / ROUNDS)
                measured.append(
                    Point(
                        part=setting.part,
                        series=setting.series,
                        clients=setting.clients,
                        databases=setting.databases,
                        batch=setting.batch,
                        hand_off_ms=setting.hand_off_ms,
                        commits_per_s=load.answers / load.seconds,
                        p50_ms=load.latency_ms(0.50),
                        p99_ms=load.latency_ms(0.99),
                        cpu_us=1e6 * load.cpu_s / load.answers,
                    )
                )
                watch(measured[-1])
    points = [median(measured) for measured in turns.values()]
    return Experiment(
        engine=place.kind,
        url=place.public_url,
        hand_off_ms=hand_off_ms,
        seconds=seconds,
        points=points,
        findings=findings(place.kind, points),
        verdicts=verdicts(place.kind, points),
    )


def planned(url: str | None, *, hand_off_ms: float, quick: bool) -> list[Setting]:
    """Return the settings that would be measured at this address."""
    return settings_for(kind_of(url), hand_off_ms=hand_off_ms, quick=quick)


def check_bounds(*, seconds: float, hand_off_ms: float) -> None:
    """Raise BadUsage for values that are out of bounds."""
    wrong: list[str] = []
    if not 0 < seconds <= SECONDS_MAX:
        wrong.append(f"{seconds:g} seconds; more than 0, at most {SECONDS_MAX:g}")
    if not 0 <= hand_off_ms <= HAND_OFF_MS_MAX:
        wrong.append(f"a hand-off of {hand_off_ms:g} ms; 0 to {HAND_OFF_MS_MAX:g}")
    if wrong:
        raise BadUsage(
            f"the experiment cannot have {wrong[0]}.",
            why="It is bounded in time and number, so that it always ends.",
            fix="Choose a number from this range.",
        )


def median(rounds: Sequence[Point]) -> Point:
    """Return the rounds of one setting as one point, with the median of every number."""

    def middle(value: Callable[[Point], float]) -> float:
        return statistics.median(map(value, rounds))

    return msgspec.structs.replace(
        rounds[0],
        commits_per_s=middle(lambda point: point.commits_per_s),
        p50_ms=middle(lambda point: point.p50_ms),
        p99_ms=middle(lambda point: point.p99_ms),
        cpu_us=middle(lambda point: point.cpu_us),
    )
