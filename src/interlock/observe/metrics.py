"""Metrics of engines (C13): their names, and sums that any exporter can read at any time.

The dotted name is OpenTelemetry's; with underscores it is Prometheus's, where a counter ends in `_total`. Durations are
in seconds, and their names have no unit, except those of rows, which `interlock hot` prints as well. Dashboards and
alerts depend on exactly these names.

Frequent events arrive as sums per group (`signals.Counting`); rare ones (refusals, changes of breakers) as signals.
Counts of the store's rows are sampled. Nothing here depends on an exporter's format.
"""

import asyncio
import contextlib
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import inf
from threading import Lock
from typing import ClassVar, Literal

import msgspec

from interlock.engine.dependencies.breakers import Breakers
from interlock.engine.internals import WORKFLOWS
from interlock.engine.operators.gauges import Depth, Gauges
from interlock.errors import UnavailableError
from interlock.lanes.hot_rows import HotRow
from interlock.redaction import logger_of
from interlock.signals import AlertRaised, BreakerChanged, LoopBlocked, ResultLate, Signal, TransitionRejected

# --- Names -----------------------------------------------------------------------------------------------------------


class Metric(msgspec.Struct, frozen=True):
    """The declaration of one metric."""

    name: str
    kind: Literal["histogram", "gauge", "counter"]
    description: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """The unit of durations. Counts have none: "1" would add `_ratio` to a gauge where names get suffixes."""

    @property
    def flat(self) -> str:
        """The name for Prometheus, without a counter's suffix."""
        return self.name.replace(".", "_")


DURATION = Metric(
    "pipeline.transition.duration",
    "histogram",
    "Seconds from when a group of transitions began to be decided until it was durable, per transition.",
    ("machine", "from", "to"),
    "s",
)
GROUP = Metric("pipeline.group.size", "histogram", "Transitions that became durable together.")
ATTEMPT = Metric(
    "step.attempt.duration",
    "histogram",
    "Seconds an attempt of a step, an undo or an effect took.",
    ("machine", "step", "kind", "outcome"),
    "s",
)
REJECTIONS = Metric(
    "transition.rejections", "counter", "Events that were refused; nothing changed.", ("machine", "event", "code")
)
LATE = Metric("results.late", "counter", "Results of attempts whose workflow had moved on; nothing changed.")
BLOCKED = Metric(
    "event.loop.blocked",
    "counter",
    "Times the event loop did not turn, by the step that blocked it.",
    ("machine", "step"),
)
CHANGES = Metric(
    "circuit.breaker.changes", "counter", "Changes of a circuit breaker, by the new state.", ("dependency", "to")
)
ALERTS = Metric("alerts.raised", "counter", "Alerts for a person, by kind.", ("kind",))
REFUSALS = Metric("admission.refusals", "counter", "Calls that were not taken in because of overload.")
FAILURES = Metric("observer.failures", "counter", "Errors raised by observers; workflows were not harmed.")
BREAKER = Metric(
    "circuit.breaker.state", "gauge", "0 closed, 1 open, 2 half-open, as this process has it.", ("dependency",)
)
DEPENDENCY_CALLS = Metric("dependency.calls", "gauge", "Calls of a dependency under way.", ("dependency",))
DEPENDENCY_WAITING = Metric(
    "dependency.waiting", "gauge", "Workflows and effects that wait for a dependency.", ("dependency",)
)
IN_FLIGHT = Metric("calls.in.flight", "gauge", "Calls taken in and not answered.")
UNDER_WAY = Metric("attempts.under.way", "gauge", "Attempts that run.")
WAITING = Metric("attempts.waiting", "gauge", "Workflows and effects that wait for a place to run.")
REDIS = Metric("redis.up", "gauge", "1 when Redis answers this process, 0 when it does not; only with Redis.")
HOT_ROWS = Metric(
    "interlock.hot.rows", "gauge", "Rows and workflows flagged as hot in this process, by database.", ("database",)
)
ROW_HANDOFFS = Metric(
    "interlock.row.handoffs.per.second",
    "gauge",
    "Writes of one of the worst rows that had to wait for another write of it.",
    ("database", "source", "table", "key"),
)
ROW_WAIT = Metric(
    "interlock.row.wait.seconds",
    "gauge",
    "The mean time that a write of one of the worst rows waited for another one.",
    ("database", "source", "table", "key"),
)
DEPTH = Metric(
    "state.machine.depth", "gauge", "Workflows in a state, sampled by a query of the store.", ("machine", "state")
)
DEBT = Metric("compensation.debt", "gauge", "Workflows whose undos are pending or being tried.", ("machine",))
LETTERS = Metric("dead.letters", "gauge", "Dead letters that wait for a person.", ("kind",))
STALLED = Metric("workflows.stalled", "gauge", "Workflows longer in their state than declared.", ("machine",))
SAMPLE_AGE = Metric("store.sample.age", "gauge", "Seconds since the store was last sampled.", (), "s")
UNHEARD = Metric(
    "workers.unheard", "gauge", "Workers of this server that did not answer; their figures are missing in this scrape."
)

METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of them, in the order above."""

BREAKER_STATES = {"closed": 0, "open": 1, "half_open": 2}
"""The values of `circuit.breaker.state`."""

NEEDED = {"prometheus": "prometheus_client", "otel": "opentelemetry.sdk"}
"""The package of each observer. Many packages depend on OpenTelemetry's API; only its SDK can export."""


def installed() -> tuple[str, ...]:
    """Return the names that `Engine.open(observers=…)` can load: the default of a server. Loads no package."""
    return tuple(name for name, package in NEEDED.items() if _is_installed(package))


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # The parent package is missing.
        return False


# --- Histograms ------------------------------------------------------------------------------------------------------
# A group adds all its transitions of one kind in one call, because they became durable together. The libraries of
# exporters look up a child, take a lock and walk the buckets for each value, which takes eight times as long.

LABELS_MAX = 10_000
"""Sets of labels of one histogram (G6). Names come from definitions and stay below; further sets become one set."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0)


class Cell:
    """One histogram: `counts` has one more entry than there are bounds, for values beyond the last."""

    __slots__ = ("counts", "max", "min", "sum")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.sum = 0.0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset the minimum and the maximum."""
        self.min, self.max = inf, -inf


class Cells:
    """A histogram for each set of labels."""

    def __init__(self, bounds: Sequence[float], labels: int) -> None:
        self.bounds = tuple(bounds)
        self._other = ("other",) * labels
        self._cells: dict[tuple[str, ...], Cell] = {}

    def add(self, labels: tuple[str, ...], value: float, count: int = 1) -> None:
        """Add a value `count` times."""
        cell = self._cells.get(labels) or self._new(labels)
        cell.counts[bisect_left(self.bounds, value)] += count
        cell.sum += value * count
        # A call of min() takes three times as long, and this is the hot path.
        if value < cell.min:  # noqa: PLR1730
            cell.min = value
        if value > cell.max:  # noqa: PLR1730
            cell.max = value

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Cell]]:
        """Iterate over the sets of labels with their histograms. From any thread."""
        return iter(list(self._cells.items()))

    def _new(self, labels: tuple[str, ...]) -> Cell:
        if len(self._cells) >= LABELS_MAX:
            labels = self._other
        return self._cells.setdefault(labels, Cell(len(self.bounds)))


# --- Samples of the store --------------------------------------------------------------------------------------------
# A count reads all workflows, so its result is kept: for KEPT_S, and for twenty times as long as it took, which
# bounds its share of the store's time to a twentieth. One count runs at a time. A caller waits for it for a bounded
# time, and otherwise gets the last one. A closed engine is dropped.

KEPT_S = 0.05
"""Minimum lifetime of a sample: several concurrent scrapes cost one count."""

SHARE = 20
"""Lifetime of a sample, as a multiple of the time it took."""

COUNTED_S_MAX = 30.0
"""A count that takes longer is aborted."""

WAIT_S = 2.0
"""How long an exporter waits for a count."""

log = logger_of("interlock.observe")


class Sampled:
    """The samples of one engine. Created in its event loop."""

    def __init__(self, gauges: Gauges) -> None:
        self.gauges = gauges
        self.depth: Depth | None = None
        """The last sample."""
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._counting: asyncio.Task[None] | None = None
        self._failing = False
        self._taken_s = self._loop.time()
        self._good_until_s = 0.0

    def breakers(self) -> Breakers | None:
        """Return the breakers; None when the engine is closed."""
        try:
            return self.gauges.breakers()
        except UnavailableError:
            self.closed = True
            return None

    @property
    def age_s(self) -> float:
        """The age of the sample, in seconds."""
        return max(0.0, self._loop.time() - self._taken_s)

    def begin(self) -> None:
        """Count once, for a reader in the engine's own thread, which cannot wait. The next call counts again."""
        self._counting = self._loop.create_task(self._count(kept=False))

    def refresh(self) -> None:
        """Start a count if it is due. From any thread."""
        with contextlib.suppress(RuntimeError):  # The engine's loop is closed, and the engine with it.
            self._loop.call_soon_threadsafe(self._begin)

    async def fresh(self) -> None:
        """Wait for a bounded time until the sample is fresh."""
        counting = self._begin()
        if counting is not None:
            await asyncio.wait([counting], timeout=WAIT_S)

    def fresh_from_outside(self) -> None:
        """Wait in an exporter's thread until the sample is fresh. In the engine's thread, only start it."""
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside or not self._loop.is_running() or self.breakers() is None:
            if inside and self.breakers() is not None:
                self.depth = self.gauges.depth_at_once() or self.depth
            self.refresh()
            return
        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(self.fresh(), self._loop).result(WAIT_S)

    def _begin(self) -> "asyncio.Task[None] | None":
        if self._counting is None and not self.closed and self._loop.time() >= self._good_until_s:
            self._counting = self._loop.create_task(self._count())
        return self._counting

    async def _count(self, *, kept: bool = True) -> None:
        begun_s = self._loop.time()
        try:
            async with asyncio.timeout(COUNTED_S_MAX):
                self.depth = await self.gauges.depth()
            self._taken_s = self._loop.time()
            self._failing = False
        except TimeoutError:
            log.warning("counting workflows took longer than %g s and was aborted.", COUNTED_S_MAX)
        except Exception as error:  # noqa: BLE001 -- the next scrape counts again, whatever the store raised.
            # One warning per outage, and none for a closed engine.
            level = logging.WARNING if self.breakers() is not None and not self._failing else logging.DEBUG
            log.log(level, "workflows could not be counted; the next scrape tries again: %s", error)
            self._failing = True
        finally:
            ended_s = self._loop.time()
            if kept:
                self._good_until_s = ended_s + max(KEPT_S, SHARE * (ended_s - begun_s))
            self._counting = None


# --- Metrics of engines ----------------------------------------------------------------------------------------------

ROWS_SHOWN_MAX = 20
"""Rows with series of their own (G6)."""

KEY_CHARACTERS_MAX = 80
"""Characters of a row's key in a label."""

COUNTERS_MAX = 10_000
"""Number of sets of labels that are counted (G6)."""

Values = Iterator[tuple[Metric, tuple[str, ...], float]]

TOGETHER: dict[Metric, Callable[[tuple[float, float]], float]] = {
    BREAKER: max,
    SAMPLE_AGE: max,
    REDIS: min,
    HOT_ROWS: max,
    ROW_HANDOFFS: max,
    ROW_WAIT: max,
}
"""How the gauges of two engines of one process are combined, where it is not the sum: the worse of both."""


class EngineMetrics:
    """The metrics of all engines that it observes."""

    only_signals: ClassVar[tuple[type[Signal], ...]] = (
        TransitionRejected,
        ResultLate,
        BreakerChanged,
        LoopBlocked,
        AlertRaised,
    )

    def __init__(self) -> None:
        self.histograms = {
            DURATION: Cells(SECONDS, 3),
            GROUP: Cells(SIZES, 0),
            ATTEMPT: Cells(SECONDS, 4),
        }
        self._durations, self._sizes, self._attempts = self.histograms.values()
        self._counters: dict[tuple[Metric, tuple[str, ...]], int] = {(LATE, ()): 0}
        self._sampled: list[Sampled] = []
        self._before = {REFUSALS: 0, FAILURES: 0}
        """Counts of closed engines: a counter never falls."""
        self._changing = Lock()

    # --- recording ---------------------------------------------------------------------------------------------------

    def grouped(self, moves: Mapping[tuple[str, str, str], int], duration_s: float) -> None:
        """Record a group that is durable."""
        size = 0
        for move, count in moves.items():
            self._durations.add(move, duration_s, count)
            size += count
        self._sizes.add((), size)

    def attempted(self, machine: str, step: str, kind: str, outcome: str, duration_s: float) -> None:
        """Record an attempt that has ended."""
        self._attempts.add((machine, step, kind, outcome), duration_s)

    def __call__(self, signal: Signal) -> None:
        """Count a rare signal."""
        if isinstance(signal, TransitionRejected):
            self._count(REJECTIONS, (signal.machine, signal.event, signal.code))
        elif isinstance(signal, BreakerChanged):
            self._count(CHANGES, (signal.dependency, signal.after))
        elif isinstance(signal, ResultLate):
            self._count(LATE, ())
        elif isinstance(signal, LoopBlocked):
            self._count(BLOCKED, (signal.machine, signal.step))
        elif isinstance(signal, AlertRaised) and not signal.resolved:
            self._count(ALERTS, (signal.kind,))

    def opened(self, gauges: Gauges) -> None:
        """Sample an engine that was opened."""
        sampled = Sampled(gauges)
        with self._changing:
            self._forget_closed()
            self._sampled = [*self._sampled, sampled]
        sampled.begin()

    def _count(self, metric: Metric, labels: tuple[str, ...]) -> None:
        key = (metric, labels)
        if key not in self._counters and len(self._counters) >= COUNTERS_MAX:
            key = (metric, ("other",) * len(labels))
        # setdefault is atomic, so that two threads do not both create the key: engines may have a thread each.
        self._counters.setdefault(key, 0)
        self._counters[key] += 1

    def _forget_closed(self) -> None:
        """Drop closed engines, so that neither they nor their stores are kept alive."""
        living: list[Sampled] = []
        for each in self._sampled:
            if each.breakers() is not None:
                living.append(each)
                continue
            self._before[REFUSALS] += each.gauges.refused
            self._before[FAILURES] += each.gauges.observer_failures
        self._sampled = living

    # --- reading -----------------------------------------------------------------------------------------------------

    async def fresh(self) -> None:
        """Wait for a bounded time until the samples are fresh."""
        for each in self._sampled:
            await each.fresh()

    def fresh_from_outside(self) -> None:
        """Wait for fresh samples from another thread."""
        for each in self._sampled:
            each.fresh_from_outside()

    def counters(self) -> Values:
        """Yield every counter with its labels."""
        for (metric, labels), count in list(self._counters.items()):
            yield metric, labels, count
        with self._changing:
            self._forget_closed()
            before, sampled = dict(self._before), self._sampled
        yield REFUSALS, (), before[REFUSALS] + sum(each.gauges.refused for each in sampled)
        yield FAILURES, (), before[FAILURES] + sum(each.gauges.observer_failures for each in sampled)

    def gauges(self) -> Values:
        """Yield every gauge with its labels; those of several engines are combined."""
        yield from self._together(_now)
        yield from self.gauges_stored()

    def gauges_stored(self) -> Values:
        """Yield the sampled gauges of the store, which are the same for all processes that share it."""
        return self._together(_stored)

    def _together(self, read: Callable[[Sampled], Values]) -> Values:
        found: dict[tuple[Metric, tuple[str, ...]], float] = {}
        for each in self._sampled:
            for metric, labels, value in read(each):
                before = found.get((metric, labels))
                together = TOGETHER.get(metric, sum)
                found[metric, labels] = value if before is None else together((before, value))
        for (metric, labels), value in found.items():
            yield metric, labels, value


def _now(sampled: Sampled) -> Values:
    breakers = sampled.breakers()
    if breakers is None:
        return
    gauges = sampled.gauges
    for breaker in breakers:
        yield BREAKER, (breaker.name,), BREAKER_STATES[breaker.state]
        yield DEPENDENCY_CALLS, (breaker.name,), breaker.under_way
        yield DEPENDENCY_WAITING, (breaker.name,), breaker.waiting
    yield IN_FLIGHT, (), gauges.in_flight
    yield UNDER_WAY, (), gauges.under_way
    yield WAITING, (), gauges.waiting
    if gauges.redis_up is not None:
        yield REDIS, (), gauges.redis_up
    yield from _hot(gauges.hot_rows())


def _hot(rows: Sequence[tuple[str, HotRow]]) -> Values:
    """Yield the number of flagged rows of each database, and the worst rows."""
    flagged = {WORKFLOWS: 0}
    for database, row in rows:
        flagged[database] = flagged.get(database, 0) + row.flagged
    for database, count in flagged.items():
        yield HOT_ROWS, (database,), count
    for database, row in rows[:ROWS_SHOWN_MAX]:
        labels = (database, row.source, row.table, "" if row.key is None else str(row.key)[:KEY_CHARACTERS_MAX])
        yield ROW_HANDOFFS, labels, row.handoffs_per_s
        yield ROW_WAIT, labels, row.wait_s


def _stored(sampled: Sampled) -> Values:
    if sampled.closed:
        return
    yield SAMPLE_AGE, (), sampled.age_s  # Also before the first sample: the metric reveals one that never comes.
    depth = sampled.depth
    if depth is None:
        return
    for (machine, state), count in depth.workflows.items():
        yield DEPTH, (machine, state), count
    for machine, count in depth.unwinding.items():
        yield DEBT, (machine,), count
    for kind, count in depth.letters.items():
        yield LETTERS, (kind,), count
    for machine, count in depth.stalled.items():
        yield STALLED, (machine,), count
