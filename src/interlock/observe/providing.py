"""OpenTelemetry providers from the environment, where the program has set none.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 interlock serve shop:app

is enough to send traces and metrics there. The variables are OpenTelemetry's own. Exporters are found by name among the
installed packages, as its own tools do. Without such variables nothing is created: a program without an exporter pays
nothing. The providers become those of the whole program, so that spans of a step's own code are sent too. A missing
exporter is logged as a warning, and does not stop the program.
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
