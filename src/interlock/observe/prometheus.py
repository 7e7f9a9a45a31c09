"""The Prometheus observer: all metrics as text that a Prometheus server can scrape.

    prometheus = Prometheus()
    async with Engine.open(url, machines=[order], observers=[prometheus]) as engine:
        content_type, body = await prometheus.render()

Names are those of `metrics`, with underscores. A scrape computes everything it returns; the hot path only adds to sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import cast

from interlock.engine.operators.gauges import Gauges
from interlock.errors import MissingExtra
from interlock.observe import metrics
from interlock.observe.metrics import METRICS, EngineMetrics, Metric
from interlock.signals import Signal

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.exposition import generate_latest
except ImportError as error:
    raise MissingExtra(
        "the Prometheus endpoint needs prometheus-client, which is not installed.", extra="otel"
    ) from error


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FAMILIES: dict[str, type[HistogramMetricFamily | CounterMetricFamily | GaugeMetricFamily]] = {
    "histogram": HistogramMetricFamily,
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}
SHARED = {
    metric.flat
    for metric in (metrics.DEPTH, metrics.DEBT, metrics.LETTERS, metrics.STALLED, metrics.SAMPLE_AGE, metrics.UNHEARD)
}
"""Metrics that have the same value in all workers of a server."""


class Prometheus:
    """An observer that is scraped. With your own registry its metrics appear among yours."""

    only_signals = EngineMetrics.only_signals

    def __init__(self, *, registry: CollectorRegistry | None = None) -> None:
        self.counting = EngineMetrics()
        self._registry = registry or _own_registry()
        self._registry.register(self)

    def __call__(self, signal: Signal) -> None:
        """Count a signal."""
        self.counting(signal)

    def opened(self, gauges: Gauges) -> None:
        """Sample this engine too."""
        self.counting.opened(gauges)

    async def render(self) -> tuple[str, bytes]:
        """Return the content type and the text of a scrape. In the engine's event loop."""
        await self.counting.fresh()
        return CONTENT_TYPE, generate_latest(self._registry)

    def part(self, worker: str) -> bytes:
        """Return the metrics of this process alone, labelled with the worker, for `render_all` of another worker."""
        theirs = (family for family in self._registry.collect() if family.name not in SHARED)
        return generate_latest(cast("CollectorRegistry", _Collected([_labelled(family, worker) for family in theirs])))

    async def render_all(self, parts: Sequence[bytes], unheard: int) -> tuple[str, bytes]:
        """Combine the parts of all workers, their shared metrics once, and the number of missing workers."""
        await self.counting.fresh()
        families = {metric: _family(metric) for metric in METRICS if metric.flat in SHARED}
        _add(families, self.counting.gauges_stored())
        _add(families, [(metrics.UNHEARD, (), unheard)])
        shared = generate_latest(cast("CollectorRegistry", _Collected(families.values())))
        return CONTENT_TYPE, _merge_texts([*parts, shared])

    def collect(self) -> Iterable["Family"]:
        """Return all metrics for prometheus_client. From any thread; those of the store are the last sample."""
        families = {metric: _family(metric) for metric in METRICS}
        for metric, cells in self.counting.histograms.items():
            family = families[metric]
            assert isinstance(family, HistogramMetricFamily)
            bounds = [*(f"{bound:g}" for bound in cells.bounds), "+Inf"]
            for labels, cell in cells:
                buckets = list(zip(bounds, accumulate(map(float, cell.counts)), strict=True))
                family.add_metric(labels, buckets, cell.sum)
        _add(families, (*self.counting.counters(), *self.counting.gauges(), (metrics.UNHEARD, (), 0)))
        return families.values()

    def describe(self) -> Iterable["Family"]:
        """Return the families without samples."""
        return [_family(metric) for metric in METRICS]


def _family(metric: Metric) -> HistogramMetricFamily | CounterMetricFamily | GaugeMetricFamily:
    return FAMILIES[metric.kind](metric.flat, metric.description, labels=metric.labels)


def _add(families: Mapping[Metric, "Family"], values: Iterable[tuple[Metric, tuple[str, ...], float]]) -> None:
    for metric, labels, value in values:
        family = families[metric]
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(labels, value)


class _Collected:
    """Collected families, in the place of a registry."""

    def __init__(self, families: Iterable["Family"]) -> None:
        self._families = families

    def collect(self) -> Iterable["Family"]:
        return self._families


def _labelled(family: "Family", worker: str) -> "Family":
    marked = Family(family.name, family.documentation, family.type)
    marked.samples = [each._replace(labels={**each.labels, "worker": worker}) for each in family.samples]
    return marked


def _merge_texts(texts: Iterable[bytes]) -> bytes:
    """Merge texts: each family once, with the samples of all. Samples are not parsed."""
    families: dict[bytes, list[bytes]] = {}
    for text in texts:
        for block in (b"\n" + text).rstrip(b"\n").split(b"\n# HELP ")[1:]:
            description, _, rest = block.partition(b"\n# TYPE ")
            kind, _, samples = rest.partition(b"\n")
            family = families.setdefault(description.partition(b" ")[0], [b"# HELP " + description, b"# TYPE " + kind])
            if samples:
                family.append(samples)
    return b"\n".join(line for family in families.values() for line in family) + b"\n"


def _own_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry
