"""The OpenTelemetry observer: metrics and traces, and a provider whose histograms cost nothing until their export.

    async with Engine.open(url, machines=[order], observers=[OpenTelemetry(ratio=0.1)]) as engine: …

`observers=["otel"]` uses the global providers, and the ratio of `INTERLOCK_TRACES_RATIO`; an engine in a program that
has set providers does so by itself. If the program has set none and the environment names an exporter
(`OTEL_EXPORTER_OTLP_ENDPOINT`, …), it creates them. Without a trace provider nothing is traced, and without a meter
provider nothing is recorded: it then costs nothing.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from threading import Lock
from typing import Any, cast
from weakref import WeakKeyDictionary

from interlock.clock import Clock, RandomIds, SystemClock
from interlock.engine.operators.gauges import Gauges
from interlock.engine.tracer_protocol import Tracing
from interlock.errors import DefinitionError, MissingExtra
from interlock.observe import metrics as declared
from interlock.observe.metrics import METRICS, SECONDS, SIZES, Cell, EngineMetrics, Values
from interlock.redaction import logger_of
from interlock.signals import Counting, Signal

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.metrics import Histogram as RecordedHistogram
    from opentelemetry.metrics import MeterProvider as AnyMeterProvider
    from opentelemetry.sdk.metrics import Histogram as HistogramKind
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricExporter,
        MetricExportResult,
        MetricReader,
        MetricsData,
        PeriodicExportingMetricReader,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    from interlock.observe.traces import Traces
except ImportError as error:
    raise MissingExtra("OpenTelemetry needs opentelemetry-sdk, which is not installed.", extra="otel") from error

# --- Observer --------------------------------------------------------------------------------------------------------

RATIO = "INTERLOCK_TRACES_RATIO"
SCOPE = "interlock"
"""Instrumentation scope of all metrics and traces of Interlock."""


class OpenTelemetry:
    """An observer that exports to OpenTelemetry.

    `ratio` is the share of workflows that are traced, from their first pass to their last. Calls in a sampled trace are
    traced as well. A ratio in the provider's own sampler would decide for each pass anew.
    """

    only_signals = EngineMetrics.only_signals

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        ratio: float | None = None,
    ) -> None:
        if tracer_provider is None and meter_provider is None:
            provide(os.environ)
        tracers = tracer_provider or trace.get_tracer_provider()
        meters = meter_provider or metrics.get_meter_provider()
        self._ratio = _ratio(ratio)
        self._tracer = tracers.get_tracer(SCOPE) if is_set(tracers) else None
        self.counting: Counting | None = None
        self._counts: EngineMetrics | None = None
        if is_set(meters):
            self._counts, is_new = counts_of(meters)
            if not isinstance(meters, Meters):
                self.counting = RecordedHistograms(meters.get_meter(SCOPE))
                return
            self.counting = self._counts
            if is_new:
                meters.add(self._counts)

    @property
    def is_heard(self) -> bool:
        """Whether there is any provider to export to."""
        return self._tracer is not None or self._counts is not None

    @property
    def tracing(self) -> Tracing | None:
        """A tracer for one more engine: two engines may have workflows of the same id."""
        return None if self._tracer is None else Traces(self._tracer, ratio=self._ratio)

    def __call__(self, signal: Signal) -> None:
        """Count a signal."""
        if self._counts is not None:
            self._counts(signal)

    def opened(self, gauges: Gauges) -> None:
        """Sample this engine too."""
        if self._counts is not None:
            self._counts.opened(gauges)


def _ratio(ratio: float | None) -> float:
    wanted: float | str = ratio if ratio is not None else os.environ.get(RATIO, "1")
    try:
        ratio = float(wanted)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise DefinitionError(
            f"ratio is {wanted!r}; it must be a number from 0 to 1.",
            why="It is the share of workflows that are traced.",
            fix=f"Pass a number from 0 to 1, as ratio= or in {RATIO}.",
            rule="policy-out-of-range",
        )
    return ratio


# --- Metrics ---------------------------------------------------------------------------------------------------------
# Counters and gauges are observed at collection, and cost nothing until then. So are histograms of `Meters`, below. A
# histogram of any other provider has to record each value. That is exact too, but the most expensive part of
# observing: half of the cost of a transition.

REMEMBERED_MAX = 10_000
"""Number of sets of attributes that are cached."""

_COUNTED: "WeakKeyDictionary[AnyMeterProvider, EngineMetrics]" = WeakKeyDictionary()
_COUNTING = Lock()


def counts_of(provider: AnyMeterProvider) -> tuple[EngineMetrics, bool]:
    """Return the counts of a provider, and whether they were created by this call.

    All observers of a provider share them. A provider accepts the callbacks of an instrument once, and silently drops
    those of a second one of the same name: an engine opened later would be missing.
    """
    with _COUNTING:
        found = _COUNTED.get(provider)
        if found is not None:
            return found, False
        counts = _COUNTED[provider] = EngineMetrics()
        meter = provider.get_meter(SCOPE)
        for metric in METRICS:
            if metric.kind == "counter":
                callback = _callback(counts, metric, counts.counters)
                meter.create_observable_counter(metric.name, [callback], metric.unit, metric.description)
            elif metric.kind == "gauge":
                callback = _callback(counts, metric, counts.gauges)
                meter.create_observable_gauge(metric.name, [callback], metric.unit, metric.description)
        return counts, True


def _callback(
    counts: EngineMetrics, metric: declared.Metric, read: Callable[[], Values]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        del options
        if metric is declared.DEPTH:
            counts.fresh_from_outside()
        for each, labels, value in read():
            if each is metric:
                yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

    return observe


class RecordedHistograms:
    """The histograms of a provider that has to record each value."""

    def __init__(self, meter: Meter) -> None:
        self._durations = _histogram(meter, declared.DURATION, SECONDS)
        self._sizes = _histogram(meter, declared.GROUP, SIZES)
        self._attempts = _histogram(meter, declared.ATTEMPT, SECONDS)
        self._ready: dict[tuple[str, ...], dict[str, str]] = {}

    def grouped(self, moves: Mapping[tuple[str, str, str], int], duration_s: float) -> None:
        """Record a group that is durable."""
        size = 0
        record = self._durations.record
        for move, count in moves.items():
            attributes = self._attributes(declared.DURATION, move)
            for _ in range(count):
                record(duration_s, attributes)
            size += count
        self._sizes.record(size)

    def attempted(self, machine: str, step: str, kind: str, outcome: str, duration_s: float) -> None:
        """Record an attempt that has ended."""
        self._attempts.record(duration_s, self._attributes(declared.ATTEMPT, (machine, step, kind, outcome)))

    def _attributes(self, metric: declared.Metric, labels: tuple[str, ...]) -> dict[str, str]:
        found = self._ready.get(labels)
        if found is None:
            if len(self._ready) >= REMEMBERED_MAX:
                self._ready.clear()
            found = self._ready[labels] = dict(zip(metric.labels, labels, strict=True))
        return found


def _histogram(meter: Meter, metric: declared.Metric, bounds: tuple[float, ...]) -> RecordedHistogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=list(bounds)
    )


# --- Histograms as sums ----------------------------------------------------------------------------------------------
# An SDK's histogram takes one value at a time, which costs 8 µs; it cannot add a value N times. But exporters receive
# plain data, which consists of sums. The exporters of this provider therefore also receive the engine's sums, converted
# to the same data at export time, exactly as if each value had been recorded.
# In all other respects it is an ordinary provider. Views do not apply to the added histograms, which have no exemplars.

Key = tuple[int, str, tuple[str, ...]]


class Meters(MeterProvider):
    """A meter provider whose histograms are exported as sums, by a periodic reader per exporter."""

    def __init__(
        self,
        exporters: Iterable[MetricExporter],
        *,
        resource: Resource | None = None,
        interval_s: float | None = None,
        shutdown_on_exit: bool = True,
    ) -> None:
        self._exporters = [SumExporter(each) for each in exporters]
        interval_ms = None if interval_s is None else 1_000 * interval_s
        readers = [PeriodicExportingMetricReader(each, interval_ms) for each in self._exporters]
        super().__init__(readers, resource or Resource.create(), shutdown_on_exit=shutdown_on_exit)

    def add(self, counts: EngineMetrics) -> None:
        """Export these counts too."""
        for each in self._exporters:
            each.add(counts)


class SumExporter(MetricExporter):
    """An exporter that adds the histograms of engines to its data and passes it to another exporter."""

    def __init__(self, exporter: MetricExporter, *, clock: Clock | None = None) -> None:
        temporality = cast(
            "dict[type, AggregationTemporality]", getattr(exporter, "_preferred_temporality", None) or {}
        )
        super().__init__(temporality, getattr(exporter, "_preferred_aggregation", None))
        self._is_delta = temporality.get(HistogramKind) is AggregationTemporality.DELTA
        self._exporter = cast("Any", exporter)  # Its arguments have no types.
        self._clock: Clock = clock or SystemClock()
        self._begun_ns = self._now_ns()
        self._counts: list[EngineMetrics] = []
        self._exported: dict[Key, tuple[list[int], float]] = {}
        """Sums of the last export, for exporters that want only the difference."""

    def add(self, counts: EngineMetrics) -> None:
        """Export these counts too."""
        self._counts.append(counts)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        """Pass the data on, with the added histograms."""
        return cast("MetricExportResult", self._exporter.export(self.completed(metrics_data), timeout_millis, **kwargs))

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the other exporter."""
        return bool(self._exporter.force_flush(timeout_millis))

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """Shut down the other exporter."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    def completed(self, data: MetricsData) -> MetricsData:
        """Return the data with the histograms added, in the scope of Interlock."""
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
        points: dict[declared.Metric, list[HistogramDataPoint]] = {}
        for number, counts in enumerate(self._counts):
            for metric, cells in counts.histograms.items():
                for labels, cell in cells:
                    point = self._point(number, metric, labels, cell, cells.bounds, now_ns)
                    if point.count:
                        points.setdefault(metric, []).append(point)
        for metric, found in points.items():
            yield Metric(metric.name, metric.description, metric.unit, Histogram(found, temporality))

    def _point(
        self,
        number: int,
        metric: declared.Metric,
        labels: tuple[str, ...],
        cell: Cell,
        bounds: tuple[float, ...],
        now_ns: int,
    ) -> HistogramDataPoint:
        buckets, total, least, most = list(cell.counts), cell.sum, cell.min, cell.max
        if self._is_delta:
            key = (number, metric.name, labels)
            before, sum_before = self._exported.get(key, ([0] * len(buckets), 0.0))
            self._exported[key] = (buckets, total)
            buckets, total = [now - then for now, then in zip(buckets, before, strict=True)], total - sum_before
            cell.begin_anew()
        attributes = dict(zip(metric.labels, labels, strict=True))
        count = sum(buckets)
        return HistogramDataPoint(attributes, self._begun_ns, now_ns, count, total, buckets, bounds, least, most)

    def _now_ns(self) -> int:
        return int(self._clock.wall_s() * 1e9)


# --- Providers from the environment ----------------------------------------------------------------------------------
# OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 interlock serve shop:app
#
# is enough to send traces and metrics there. The variables are OpenTelemetry's own. Exporters are found by name
# among the installed packages, as its own tools do. Without such variables nothing is created: a program without an
# exporter pays nothing. The providers become those of the whole program, so that spans of a step's own code are sent
# too. A missing exporter is logged as a warning, and does not stop the program.

OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""Exporters of `otlp` by protocol. Without a protocol it is the first that is installed."""

log = logger_of("interlock.observe")


def provide(environment: Mapping[str, str]) -> None:
    """Set the global providers that the environment requests and the program has not set."""
    if not any(name.startswith("OTEL_") for name in environment):
        return
    resource = _resource()
    if not is_set(trace.get_tracer_provider()) and (found := exporters(environment, "traces")):
        tracers = TracerProvider(resource=resource)
        for make in found:
            tracers.add_span_processor(BatchSpanProcessor(make()))
        trace.set_tracer_provider(tracers)
    if not is_set(metrics.get_meter_provider()) and (found := exporters(environment, "metrics")):
        metrics.set_meter_provider(_meters(found, resource))


def _meters(found: list[type], resource: Resource) -> MeterProvider:
    """Return a provider with these exporters. Some are readers of their own kind, which have to record each value."""
    made = [make() for make in found]
    if not any(isinstance(each, MetricReader) for each in made):
        return Meters(made, resource=resource)
    readers = [each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made]
    return MeterProvider(readers, resource)


def exporters(environment: Mapping[str, str], kind: str) -> list[type]:
    """Return the exporters of `traces` or `metrics` that the environment requests."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    wanted = environment.get(f"OTEL_{kind.upper()}_EXPORTER", "").strip()
    where = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{kind.upper()}_ENDPOINT")
    if not wanted and any(environment.get(each) for each in where):
        wanted = "otlp"
    known = {each.name: each for each in entry_points(group=f"opentelemetry_{kind}_exporter")}
    found: list[type] = []
    for name in filter(None, (each.strip() for each in wanted.split(","))):
        if name == "none":
            continue
        actual = next((each for each in _names(environment, kind, name) if each in known), None)
        if actual is None:
            log.warning(
                "the environment asks for %s to be exported with %r, which is not installed: pip install %s.",
                kind,
                name,
                "opentelemetry-exporter-otlp" if name.startswith("otlp") else f"opentelemetry-exporter-{name}",
            )
            continue
        found.append(known[actual].load())
    return found


def is_set(provider: object) -> bool:
    """Return whether it is a real provider, and not the placeholder before the program sets one."""
    name = type(provider).__name__
    return "Proxy" not in name and "NoOp" not in name


def _names(environment: Mapping[str, str], kind: str, name: str) -> list[str]:
    """Return the possible names of an exporter among the packages, best first."""
    if name != "otlp":
        return [name]
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{kind.upper()}_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    return [*OTLP.values(), "otlp"] if protocol is None else [OTLP.get(protocol.strip(), protocol)]


def _resource() -> Resource:
    """Return the resource of the environment, completed with this program's name and this process's id."""
    ours = Resource({"service.name": SCOPE, "service.instance.id": RandomIds().text()})
    theirs = Resource.create()
    unnamed = str(theirs.attributes.get("service.name", "")).startswith("unknown_service")
    attributes = {key: value for key, value in theirs.attributes.items() if not (unnamed and key == "service.name")}
    return ours.merge(Resource(attributes, theirs.schema_url))
