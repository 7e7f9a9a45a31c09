"""What observing costs: the orders of `embedded`, unobserved and observed, in turns of one run.

Each contestant has an engine of its own on a lane of the same disk. Metrics are those of the Prometheus observer, and
it is scraped after every turn; traces are OpenTelemetry's, a tenth of the orders sampled, through its batch processor
to an exporter that sends nothing. Metrics of OpenTelemetry have the same goal with a provider that is handed sums, and
are exported after every turn. What a provider costs that has to be told of each value is shown beside, without a goal.

The garbage collector is set as `interlock serve` sets it: five engines live in this process, and what one leaves behind
would make the collector walk through all of them. The goals are for the CPU time of a transition, which a busy disk
does not change; the time that passes is shown beside. The machine may be noisy, so each share is the median of the
shares of single rounds: an observed one against the unobserved one beside it.
"""

import asyncio
import gc
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.embedded import MACHINES, Embedded
from benchmarks.report import Figure, Round, arguments, interleaved, publish
from interlock import Engine
from interlock.observe.otel import Meters, OpenTelemetry
from interlock.observe.prometheus import Prometheus
from interlock.server.lifecycle import COLLECT
from interlock.signals import Observer

OFF = "off"
METRICS = "metrics"
TRACES = "metrics, traces of a tenth"
METERS = "metrics of OpenTelemetry"
RECORDED = "metrics of OpenTelemetry, each value"
GOALS = {"metrics_cpu": 1.10, "metrics_and_traces_cpu": 1.25, "opentelemetry_metrics_cpu": 1.10}
SHARES = {
    "metrics": METRICS,
    "metrics_and_traces": TRACES,
    "opentelemetry_metrics": METERS,
    "opentelemetry_metrics_each_value": RECORDED,
}
IN_FLIGHT = 64


class Nowhere(SpanExporter):
    """Takes spans, counts them, and sends nothing."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take them."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


class NowhereMetrics(MetricExporter):
    """The same for metrics."""

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        """Take them."""
        del metrics_data, timeout_millis, kwargs
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Nothing waits."""
        del timeout_millis
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """Nothing is open."""
        del timeout_millis, kwargs


class Observed:
    """One contestant: orders on an engine with its observers."""

    def __init__(self, name: str, observers: Sequence[Observer], meters: MeterProvider | None = None) -> None:
        self._name = name
        self._observers = observers
        self._meters = meters
        self._orders: Embedded | None = None

    async def open(self, folder: Path, stack: AsyncExitStack) -> None:
        """Open the engine."""
        url = f"lanes://{folder}/{self._name.replace(' ', '-').replace(',', '')}"
        engine = await stack.enter_async_context(
            Engine.open(url, machines=list(MACHINES), observers=list(self._observers))
        )
        self._orders = Embedded(engine)

    async def turn(self, seconds: float) -> Round:
        """One turn, with a scrape in it."""
        assert self._orders is not None
        result = await self._orders.round(steps=True, in_flight=IN_FLIGHT, seconds=seconds)
        for observer in self._observers:
            if isinstance(observer, Prometheus):
                await observer.render()
        if self._meters is not None:
            await asyncio.to_thread(self._meters.force_flush)
        return replace(result, latencies_s=())


def contestants(spans: Nowhere) -> dict[str, Observed]:
    """Everybody, by name."""
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    meters = Meters([NowhereMetrics()], shutdown_on_exit=False)
    told = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    return {
        OFF: Observed(OFF, []),
        METRICS: Observed(METRICS, [Prometheus()]),
        TRACES: Observed(TRACES, [Prometheus(), OpenTelemetry(tracer_provider=tracers, ratio=0.1)]),
        METERS: Observed(METERS, [OpenTelemetry(meter_provider=meters)], meters),
        RECORDED: Observed(RECORDED, [OpenTelemetry(meter_provider=told)]),
    }


def cpu_s(of: Round) -> float:
    """The CPU time of a round."""
    return of.cpu_seconds


def share(figures: Mapping[str, Figure], name: str, used: Callable[[Round], float] = cpu_s) -> float:
    """What a transition uses, CPU time or else, as a multiple of the unobserved: the median over the rounds."""
    pairs = zip(figures[name].rounds, figures[OFF].rounds, strict=True)
    return statistics.median(
        (used(seen) / seen.operations) / (used(unseen) / unseen.operations) for seen, unseen in pairs
    )


def main() -> None:
    """Run, compare, report."""
    options = arguments(__doc__ or "")
    seconds = 0.4 if options.quick else 1.0  # Many short turns: what disturbs them disturbs neighbours alike.
    spans = Nowhere()
    everybody = contestants(spans)
    with tempfile.TemporaryDirectory(prefix="interlock-observing-") as folder, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        for each in everybody.values():
            runner.run(each.open(Path(folder), stack))
        gc.freeze()
        gc.set_threshold(*COLLECT)

        def turn(each: Observed) -> Callable[[], Round]:
            return lambda: runner.run(each.turn(seconds))

        figures = interleaved(
            {name: turn(each) for name, each in everybody.items()}, rounds=30 if options.quick else 60
        )
        runner.run(stack.aclose())
    publish(
        "observing",
        figures=figures,
        ratios={
            **{ratio: share(figures, name, lambda each: each.seconds) for ratio, name in SHARES.items()},
            **{f"{ratio}_cpu": share(figures, name) for ratio, name in SHARES.items()},
        },
        goals=GOALS,
        at_most=set(GOALS),
        unit="transitions",
        file=options.json,
        extra={"spans": spans.spans},
    )


if __name__ == "__main__":
    main()
