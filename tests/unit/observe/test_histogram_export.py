"""C13: histograms that are handed to an exporter as sums are what an SDK would have made of the single values."""

import asyncio
import math
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import Histogram as HistogramKind
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
)

from interlock import Engine
from interlock.observe.metrics import METRICS
from interlock.observe.otel import Meters, OpenTelemetry, RecordedHistograms, SumExporter
from tests.unit.observe.tickets import Buy, Ticket, tickets

GROUPS = [({("ticket", "a", "b"): 3, ("ticket", "b", "c"): 1}, 0.0007), ({("ticket", "a", "b"): 2}, 0.3)]


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self, temporality: AggregationTemporality = AggregationTemporality.CUMULATIVE) -> None:
        super().__init__({HistogramKind: temporality})
        self.kept: list[MetricsData] = []
        self.ended = self.flushed = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        self.kept.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        self.flushed = True
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        self.ended = True


def metrics_of(data: MetricsData) -> dict[str, Metric]:
    [resource] = data.resource_metrics
    found = [metric for scope in resource.scope_metrics if scope.scope.name == "interlock" for metric in scope.metrics]
    assert len({metric.name for metric in found}) == len(found)
    return {metric.name: metric for metric in found}


def points_of(data: MetricsData, name: str = "pipeline.transition.duration") -> list[HistogramDataPoint]:
    metric = metrics_of(data).get(name)
    return [] if metric is None else [each for each in metric.data.data_points if isinstance(each, HistogramDataPoint)]


def without_times(point: HistogramDataPoint) -> HistogramDataPoint:
    return replace(
        point, start_time_unix_nano=0, time_unix_nano=0, sum=round(point.sum, 9),
        bucket_counts=tuple(point.bucket_counts), explicit_bounds=tuple(point.explicit_bounds), exemplars=(),
    )  # fmt: skip


@pytest.mark.parametrize("temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA])
def test_sums_become_what_the_sdk_makes_of_single_values(temporality: AggregationTemporality) -> None:
    exporter = Kept(temporality)
    summed = Meters([exporter], shutdown_on_exit=False)
    counting = OpenTelemetry(meter_provider=summed).counting
    reader = InMemoryMetricReader({HistogramKind: temporality})
    told = RecordedHistograms(MeterProvider([reader], shutdown_on_exit=False).get_meter("interlock"))
    assert counting is not None
    for moves, duration_s in GROUPS:
        for each in (counting, told):
            each.grouped(moves, duration_s)
            each.attempted("ticket", "pay", "step", "done", duration_s)
        summed.force_flush()
        theirs = reader.get_metrics_data()
        assert theirs is not None
        for name in ("pipeline.transition.duration", "pipeline.group.size", "step.attempt.duration"):
            expected, found = points_of(theirs, name), points_of(exporter.kept[-1], name)
            assert [without_times(each) for each in found] == [without_times(each) for each in expected]
            metric, other = metrics_of(exporter.kept[-1])[name], metrics_of(theirs)[name]
            assert (metric.unit, metric.description) == (other.unit, other.description)
            assert getattr(metric.data, "aggregation_temporality") is temporality  # noqa: B009 -- of most kinds.
    summed.shutdown()
    assert exporter.ended


def test_what_is_new_follows_what_was_told_without_a_gap() -> None:
    exporter = Kept(AggregationTemporality.DELTA)
    meters = Meters([exporter], shutdown_on_exit=False)
    counting = OpenTelemetry(meter_provider=meters).counting
    assert counting is not None
    for moves, duration_s in GROUPS:
        counting.grouped(moves, duration_s)
        meters.force_flush()
    meters.force_flush()
    first, second, third = ([*points_of(data)] for data in exporter.kept)
    assert (first[0].count, first[0].max) == (3, 0.0007)
    assert first[0].time_unix_nano == second[0].start_time_unix_nano
    assert (second[0].count, second[0].min) == (2, 0.3)
    assert third == [], "a point without a value is none"
    meters.shutdown()


def test_an_engine_exports_every_metric_and_records_none() -> None:
    """The same names as everywhere, through a provider like any other."""

    async def scenario() -> None:
        exporter, machine = Kept(), tickets()
        meters = Meters([exporter], interval_s=3_600, shutdown_on_exit=False)
        observer = OpenTelemetry(meter_provider=meters)
        meters.get_meter("theirs").create_counter("sold").add(1)
        async with Engine.open("memory:", machines=[machine], observers=[observer]) as engine:
            await asyncio.gather(*(engine.start(machine, f"t-{number}", Ticket()) for number in range(7)))
            await engine.send("t-0", Buy())
            await engine.wait("t-0")
            await asyncio.to_thread(meters.force_flush)
            assert engine._inside.subscribers.failures == 0
        found = metrics_of(exporter.kept[-1])
        assert set(found) <= {metric.name for metric in METRICS}
        assert {"pipeline.transition.duration", "circuit.breaker.state", "state.machine.depth"} <= set(found)
        started = {"machine": "ticket", "from": "open", "to": "open"}
        [start] = [each for each in points_of(exporter.kept[-1]) if each.attributes == started]
        assert (start.count, sum(start.bucket_counts)) == (7, 7)
        assert 0 < start.min <= start.max < math.inf
        assert any(
            isinstance(each, NumberDataPoint) and each.value == 6
            for each in found["state.machine.depth"].data.data_points
        )
        meters.shutdown()

    asyncio.run(scenario())


def test_what_holds_nothing_of_ours_yet_is_handed_on_as_it_is() -> None:
    other = Kept()
    exporter = SumExporter(other)
    nothing = MetricsData([])
    assert exporter.export(nothing) is MetricExportResult.SUCCESS
    assert other.kept == [nothing]
    assert exporter.force_flush()
    assert other.flushed
    counts = OpenTelemetry(meter_provider=Meters([], shutdown_on_exit=False))._counts
    assert counts is not None
    counts.grouped({("ticket", "a", "b"): 3}, 0.5)
    exporter.add(counts)
    exporter.export(nothing)
    assert [point.count for point in points_of(other.kept[-1])] == [3]
