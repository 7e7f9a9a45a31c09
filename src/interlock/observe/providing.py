"""Providers of OpenTelemetry from the environment, where the program has set none.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 interlock serve shop:app

is enough to have traces and metrics sent there. The variables are OpenTelemetry's own, and exporters are found by their
names among the packages that are installed, as its own tools do it. Nothing is made when the environment says nothing:
a program without an exporter pays for nothing. What is made becomes the providers of the whole program, so that spans
of a step's own code are sent too. An exporter that is wanted and missing is a warning: work does not wait for it.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from interlock.observe.exporting import SCOPE, Meters
from interlock.redaction import logger_of
from interlock.seams import RandomIds

OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""What `otlp` is by protocol. Without a protocol it is the first that is installed."""

log = logger_of("interlock.observe")


def provide(environment: Mapping[str, str]) -> None:
    """Set the global providers that the environment asks for and the program has not set."""
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
    """A provider with those exporters. Some are readers of their own kind, which can only be told of each value."""
    made = [make() for make in found]
    if not any(isinstance(each, MetricReader) for each in made):
        return Meters(made, resource=resource)
    readers = [each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made]
    return MeterProvider(readers, resource)


def exporters(environment: Mapping[str, str], kind: str) -> list[type]:
    """The exporters that the environment asks for, of `traces` or `metrics`."""
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
    """Whether it is a provider, and not what stands for one until the program sets it."""
    name = type(provider).__name__
    return "Proxy" not in name and "NoOp" not in name


def _names(environment: Mapping[str, str], kind: str, name: str) -> list[str]:
    """What an exporter may be called among the packages, best first."""
    if name != "otlp":
        return [name]
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{kind.upper()}_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    return [*OTLP.values(), "otlp"] if protocol is None else [OTLP.get(protocol.strip(), protocol)]


def _resource() -> Resource:
    """Who sends: as the environment has it, else this program, and this process of it."""
    ours = Resource({"service.name": SCOPE, "service.instance.id": RandomIds().text()})
    theirs = Resource.create()
    unnamed = str(theirs.attributes.get("service.name", "")).startswith("unknown_service")
    given = {key: value for key, value in theirs.attributes.items() if not (unnamed and key == "service.name")}
    return ours.merge(Resource(given, theirs.schema_url))
