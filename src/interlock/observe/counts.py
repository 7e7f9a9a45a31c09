"""Counters, gauges and histograms of engines: sums that any exporter can read at any time.

Frequent events arrive as sums per group (`signals.Counting`); rare ones (refusals, changes of breakers) as signals.
Counts of the store's rows are sampled (`sampling`). Nothing here depends on an exporter's format.
"""

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import ClassVar

from interlock.observe import names
from interlock.observe.cells import SECONDS, SIZES, Cells
from interlock.observe.names import BREAKER_STATES, Metric
from interlock.observe.sampling import Sampled
from interlock.runtime.figures import Figures
from interlock.signals import AlertRaised, BreakerChanged, LoopBlocked, ResultLate, Signal, TransitionRejected

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

    def opened(self, figures: Figures) -> None:
        """Sample an engine that was opened."""
        sampled = Sampled(figures)
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
            self._before[names.REFUSALS] += each.figures.refused
            self._before[names.FAILURES] += each.figures.observer_failures
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
        yield names.REFUSALS, (), before[names.REFUSALS] + sum(each.figures.refused for each in sampled)
        yield names.FAILURES, (), before[names.FAILURES] + sum(each.figures.observer_failures for each in sampled)

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
    figures = sampled.figures
    for breaker in breakers:
        yield names.BREAKER, (breaker.name,), BREAKER_STATES[breaker.state]
        yield names.DEPENDENCY_CALLS, (breaker.name,), breaker.under_way
        yield names.DEPENDENCY_WAITING, (breaker.name,), breaker.waiting
    yield names.IN_FLIGHT, (), figures.in_flight
    yield names.UNDER_WAY, (), figures.under_way
    yield names.WAITING, (), figures.waiting
    if figures.redis_up is not None:
        yield names.REDIS, (), figures.redis_up


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
