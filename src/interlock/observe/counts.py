"""Counters, gauges and histograms of engines: sums that any exporter can read at any time.

Frequent events arrive as sums per group (`signals.Counting`); rare ones (refusals, changes of breakers) as signals.
Counts of the store's rows are sampled. Nothing here depends on an exporter's format.
"""

import asyncio
import contextlib
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from threading import Lock
from typing import ClassVar

from interlock.engine.dependencies.breakers import Breakers
from interlock.engine.gauges import Depth, Gauges
from interlock.errors import UnavailableError
from interlock.observe import names
from interlock.observe.names import BREAKER_STATES, Metric
from interlock.redaction import logger_of
from interlock.signals import AlertRaised, BreakerChanged, LoopBlocked, ResultLate, Signal, TransitionRejected

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

COUNTERS_MAX = 10_000
"""Number of sets of labels that are counted (G6)."""

Values = Iterator[tuple[Metric, tuple[str, ...], float]]

TOGETHER: dict[Metric, Callable[[tuple[float, float]], float]] = {
    names.BREAKER: max,
    names.SAMPLE_AGE: max,
    names.REDIS: min,
}
"""How the gauges of two engines of one process are combined, where it is not the sum: the worse of both."""


class Counts:
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
            names.DURATION: Cells(SECONDS, 3),
            names.GROUP: Cells(SIZES, 0),
            names.ATTEMPT: Cells(SECONDS, 4),
        }
        self._durations, self._sizes, self._attempts = self.histograms.values()
        self._counters: dict[tuple[Metric, tuple[str, ...]], int] = {(names.LATE, ()): 0}
        self._sampled: list[Sampled] = []
        self._before = {names.REFUSALS: 0, names.FAILURES: 0}
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
            self._count(names.REJECTIONS, (signal.machine, signal.event, signal.code))
        elif isinstance(signal, BreakerChanged):
            self._count(names.CHANGES, (signal.dependency, signal.after))
        elif isinstance(signal, ResultLate):
            self._count(names.LATE, ())
        elif isinstance(signal, LoopBlocked):
            self._count(names.BLOCKED, (signal.machine, signal.step))
        elif isinstance(signal, AlertRaised) and not signal.resolved:
            self._count(names.ALERTS, (signal.kind,))

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
            self._before[names.REFUSALS] += each.gauges.refused
            self._before[names.FAILURES] += each.gauges.observer_failures
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
        yield names.REFUSALS, (), before[names.REFUSALS] + sum(each.gauges.refused for each in sampled)
        yield names.FAILURES, (), before[names.FAILURES] + sum(each.gauges.observer_failures for each in sampled)

    def gauges(self) -> Values:
        """Yield every gauge with its labels; those of several engines are combined."""
        yield from self.gauges_now()
        yield from self.gauges_stored()

    def gauges_now(self) -> Values:
        """Yield the gauges of this process."""
        return self._together(_now)

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
        yield names.BREAKER, (breaker.name,), BREAKER_STATES[breaker.state]
        yield names.DEPENDENCY_CALLS, (breaker.name,), breaker.under_way
        yield names.DEPENDENCY_WAITING, (breaker.name,), breaker.waiting
    yield names.IN_FLIGHT, (), gauges.in_flight
    yield names.UNDER_WAY, (), gauges.under_way
    yield names.WAITING, (), gauges.waiting
    if gauges.redis_up is not None:
        yield names.REDIS, (), gauges.redis_up


def _stored(sampled: Sampled) -> Values:
    if sampled.closed:
        return
    yield names.SAMPLE_AGE, (), sampled.age_s  # Also before the first sample: the metric reveals one that never comes.
    depth = sampled.depth
    if depth is None:
        return
    for (machine, state), count in depth.workflows.items():
        yield names.DEPTH, (machine, state), count
    for machine, count in depth.unwinding.items():
        yield names.DEBT, (machine,), count
    for kind, count in depth.letters.items():
        yield names.LETTERS, (kind,), count
    for machine, count in depth.stalled.items():
        yield names.STALLED, (machine,), count
