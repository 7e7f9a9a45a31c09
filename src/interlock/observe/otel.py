"""The OpenTelemetry observer: metrics and traces through the program's providers.

    async with Engine.open(url, machines=[order], observers=[OpenTelemetry(ratio=0.1)]) as engine: …

`observers=["otel"]` uses the global providers, and the ratio of `INTERLOCK_TRACES_RATIO`; an engine in a program that
has set providers does so by itself. If the program has set none and the environment names an exporter
(`OTEL_EXPORTER_OTLP_ENDPOINT`, …), it creates them (`otel_export`). Without a trace provider nothing is traced, and
without a meter provider nothing is recorded: it then costs nothing.
"""

import os

from interlock.engine.gauges import Gauges
from interlock.engine.tracing import Tracing
from interlock.errors import DefinitionError, MissingExtra
from interlock.observe.counts import Counts
from interlock.signals import Counting, Signal

try:
    from opentelemetry import metrics, trace

    from interlock.observe.otel_export import SCOPE, Meters, is_set, provide
    from interlock.observe.otel_metrics import RecordedHistograms, counted_by
    from interlock.observe.traces import Traces
except ImportError as error:
    raise MissingExtra("OpenTelemetry needs opentelemetry-sdk, which is not installed.", extra="otel") from error

RATIO = "INTERLOCK_TRACES_RATIO"


class OpenTelemetry:
    """An observer that exports to OpenTelemetry.

    `ratio` is the share of workflows that are traced, from their first pass to their last. Calls in a sampled trace are
    traced as well. A ratio in the provider's own sampler would decide for each pass anew.
    """

    only_signals = Counts.only_signals

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
        self._counts: Counts | None = None
        if is_set(meters):
            self._counts, is_new = counted_by(meters, SCOPE)
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
