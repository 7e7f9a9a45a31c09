"""Histograms of OpenTelemetry that cost nothing until they are exported.

An SDK's histogram takes one value at a time, and that costs 8 µs; there is no way to say "so many of this". But what an
exporter is handed is plain data, and sums are what is in it. So the exporters of this provider are handed the sums of
the engine besides, made into the same data when it is time to export, exactly as if each value had been recorded:

    observer = OpenTelemetry(meter_provider=Meters([OTLPMetricExporter()]))

It is a provider like any other for everything else. Views do not apply to what is added, and it has no exemplars.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from opentelemetry.sdk.metrics import Histogram as HistogramKind
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from interlock.observe.cells import Cell
from interlock.seams import Clock, SystemClock

if TYPE_CHECKING:
    from interlock.observe.counts import Counts
    from interlock.observe.names import Metric as Named

SCOPE = "interlock"
"""Of all that Interlock measures and traces."""

Key = tuple[int, str, tuple[str, ...]]


class Sends(Protocol):
    """What every exporter can, with types for all of it."""

    def export(self, metrics_data: MetricsData, timeout_millis: float, /, **kwargs: object) -> MetricExportResult:
        """Send it."""
        ...

    def force_flush(self, timeout_millis: float, /) -> bool:
        """Send what waits."""
        ...

    def shutdown(self, timeout_millis: float, /, **kwargs: object) -> None:
        """Send no more."""
        ...


class Meters(MeterProvider):
    """A provider of metrics whose histograms are handed over as sums, each exporter by a periodic reader."""

    def __init__(
        self,
        exporters: Iterable[MetricExporter],
        *,
        resource: Resource | None = None,
        interval_s: float | None = None,
        shutdown_on_exit: bool = True,
    ) -> None:
        self._exporting = [Exporting(each) for each in exporters]
        interval_ms = None if interval_s is None else 1_000 * interval_s
        readers = [PeriodicExportingMetricReader(each, interval_ms) for each in self._exporting]
        super().__init__(readers, resource or Resource.create(), shutdown_on_exit=shutdown_on_exit)

    def add(self, counts: "Counts") -> None:
        """Export these too."""
        for each in self._exporting:
            each.add(counts)


class Exporting(MetricExporter):
    """An exporter that hands on what it is given to another one, with the histograms of engines in it."""

    def __init__(self, exporter: MetricExporter, *, clock: Clock | None = None) -> None:
        temporality = cast(
            "dict[type, AggregationTemporality]", getattr(exporter, "_preferred_temporality", None) or {}
        )
        super().__init__(temporality, getattr(exporter, "_preferred_aggregation", None))
        self._is_delta = temporality.get(HistogramKind) is AggregationTemporality.DELTA
        self._exporter = cast("Sends", exporter)
        self._clock: Clock = clock or SystemClock()
        self._begun_ns = self._now_ns()
        self._counts: list[Counts] = []
        self._told: dict[Key, tuple[list[int], float]] = {}
        """What was exported before, where only what is new is wanted."""

    def add(self, counts: "Counts") -> None:
        """Export these too."""
        self._counts.append(counts)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        """Hand it on, with what was added."""
        return self._exporter.export(self.completed(metrics_data), timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """As the other one."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """As the other one."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    def completed(self, data: MetricsData) -> MetricsData:
        """The data with the histograms in it, in the scope of Interlock."""
        now_ns = self._now_ns()
        found = [*self._histograms(now_ns)]
        if self._is_delta:
            self._begun_ns = now_ns
        if not found:
            return data
        resources = list(data.resource_metrics) or [ResourceMetrics(Resource.get_empty(), [], "")]
        scopes = list(resources[0].scope_metrics)
        ours = next((place for place, each in enumerate(scopes) if each.scope.name == SCOPE), None)
        if ours is None:
            scopes.append(ScopeMetrics(InstrumentationScope(SCOPE), found, ""))
        else:
            scopes[ours] = replace(scopes[ours], metrics=[*scopes[ours].metrics, *found])
        resources[0] = replace(resources[0], scope_metrics=scopes)
        return replace(data, resource_metrics=resources)

    def _histograms(self, now_ns: int) -> Iterator[Metric]:
        temporality = AggregationTemporality.DELTA if self._is_delta else AggregationTemporality.CUMULATIVE
        points: dict[Named, list[HistogramDataPoint]] = {}
        for number, counts in enumerate(self._counts):
            for metric, cells in counts.histograms.items():
                for labels, cell in cells:
                    point = self._point(number, metric, labels, cell, cells.bounds, now_ns)
                    if point.count:
                        points.setdefault(metric, []).append(point)
        for metric, told in points.items():
            yield Metric(metric.name, metric.told, metric.unit, Histogram(told, temporality))

    def _point(
        self,
        number: int,
        metric: "Named",
        labels: tuple[str, ...],
        cell: Cell,
        bounds: tuple[float, ...],
        now_ns: int,
    ) -> HistogramDataPoint:
        buckets, total, least, most = list(cell.counts), cell.sum, cell.min, cell.max
        if self._is_delta:
            key = (number, metric.name, labels)
            before, sum_before = self._told.get(key, ([0] * len(buckets), 0.0))
            self._told[key] = (buckets, total)
            buckets, total = [now - then for now, then in zip(buckets, before, strict=True)], total - sum_before
            cell.begin_anew()
        attributes = dict(zip(metric.labels, labels, strict=True))
        count = sum(buckets)
        return HistogramDataPoint(attributes, self._begun_ns, now_ns, count, total, buckets, bounds, least, most)

    def _now_ns(self) -> int:
        return int(self._clock.wall_s() * 1e9)
