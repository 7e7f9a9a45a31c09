"""OpenTelemetry metrics, with the dotted names of `names`.

Counters and gauges are observed at collection, and cost nothing until then. So are histograms with a provider of
`otel_export`. A histogram of any other provider has to record each value. That is exact too, but the most expensive
part of observing: half of the cost of a transition.
"""

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation

from interlock.observe import names
from interlock.observe.counts import SECONDS, SIZES, Counts, Values
from interlock.observe.names import METRICS, Metric

REMEMBERED_MAX = 10_000
"""Number of sets of attributes that are cached."""


_COUNTED: "WeakKeyDictionary[MeterProvider, Counts]" = WeakKeyDictionary()
_COUNTING = Lock()


def counted_by(provider: MeterProvider, scope: str) -> tuple[Counts, bool]:
    """Return the counts of a provider, and whether they were created by this call.

    All observers of a provider share them. A provider accepts the callbacks of an instrument once, and silently drops
    those of a second one of the same name: an engine opened later would be missing.
    """
    with _COUNTING:
        found = _COUNTED.get(provider)
        if found is not None:
            return found, False
        made = _COUNTED[provider] = ObservedMetrics(provider.get_meter(scope)).counts
        return made, True


class ObservedMetrics:
    """The observable counters and gauges of a meter."""

    def __init__(self, meter: Meter) -> None:
        self.counts = Counts()
        for metric in METRICS:
            if metric.kind == "counter":
                meter.create_observable_counter(
                    metric.name, [self._callback(metric, self.counts.counters)], metric.unit, metric.description
                )
            elif metric.kind == "gauge":
                meter.create_observable_gauge(
                    metric.name, [self._callback(metric, self.counts.gauges)], metric.unit, metric.description
                )

    def _callback(
        self, metric: Metric, read: Callable[[], Values]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            del options
            if metric is names.DEPTH:
                self.counts.fresh_from_outside()
            for each, labels, value in read():
                if each is metric:
                    yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

        return observe


class RecordedHistograms:
    """The histograms of a provider that has to record each value."""

    def __init__(self, meter: Meter) -> None:
        self._durations = _histogram(meter, names.DURATION, SECONDS)
        self._sizes = _histogram(meter, names.GROUP, SIZES)
        self._attempts = _histogram(meter, names.ATTEMPT, SECONDS)
        self._ready: dict[tuple[str, ...], dict[str, str]] = {}

    def grouped(self, moves: Mapping[tuple[str, str, str], int], duration_s: float) -> None:
        """Record a group that is durable."""
        size = 0
        record = self._durations.record
        for move, count in moves.items():
            attributes = self._attributes(names.DURATION, move)
            for _ in range(count):
                record(duration_s, attributes)
            size += count
        self._sizes.record(size)

    def attempted(self, machine: str, step: str, kind: str, outcome: str, duration_s: float) -> None:
        """Record an attempt that has ended."""
        self._attempts.record(duration_s, self._attributes(names.ATTEMPT, (machine, step, kind, outcome)))

    def _attributes(self, metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
        found = self._ready.get(labels)
        if found is None:
            if len(self._ready) >= REMEMBERED_MAX:
                self._ready.clear()
            found = self._ready[labels] = dict(zip(metric.labels, labels, strict=True))
        return found


def _histogram(meter: Meter, metric: Metric, bounds: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=list(bounds)
    )
