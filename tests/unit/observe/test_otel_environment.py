"""C13: OpenTelemetry by default: the environment says where to send things, and nothing is made without it."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from interlock.observe import otel
from interlock.observe.otel import Meters, exporters

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Found:
    """An exporter among the packages that are installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> type:
        return type(self.name, (), {})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*names: str) -> None:
        def found(group: str) -> list[Found]:
            assert group in {"opentelemetry_traces_exporter", "opentelemetry_metrics_exporter"}
            return [Found(name) for name in names]

        monkeypatch.setattr(otel, "entry_points", found)

    return install


def names_of(environment: dict[str, str], kind: str) -> list[str]:
    return [each.__name__ for each in exporters(environment, kind)]


@pytest.mark.parametrize("kind", ["traces", "metrics"])
def test_an_address_is_enough_and_the_protocol_chooses(kind: str, installed: Callable[..., None]) -> None:
    installed("console", "otlp_proto_http", "otlp_proto_grpc")
    assert names_of({}, kind) == []
    assert names_of({OTLP: "http://collector:4317"}, kind) == ["otlp_proto_grpc"]
    assert names_of({f"OTEL_EXPORTER_OTLP_{kind.upper()}_ENDPOINT": "x"}, kind) == ["otlp_proto_grpc"]
    http = {OTLP: "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert names_of(http, kind) == ["otlp_proto_http"]
    assert names_of({**http, f"OTEL_EXPORTER_OTLP_{kind.upper()}_PROTOCOL": "grpc"}, kind) == ["otlp_proto_grpc"]
    assert names_of({f"OTEL_{kind.upper()}_EXPORTER": "console, otlp"}, kind) == ["console", "otlp_proto_grpc"]
    installed("otlp_proto_http")
    assert names_of({OTLP: "x"}, kind) == ["otlp_proto_http"]


def test_whoever_wants_none_has_none(installed: Callable[..., None]) -> None:
    installed("otlp_proto_grpc")
    assert exporters({OTLP: "x", "OTEL_METRICS_EXPORTER": "none"}, "metrics") == []
    assert exporters({OTLP: "x", "OTEL_SDK_DISABLED": "true"}, "traces") == []


def test_an_exporter_that_is_missing_is_told_and_work_goes_on(
    installed: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    installed()
    assert exporters({OTLP: "x"}, "traces") == []
    assert exporters({"OTEL_METRICS_EXPORTER": "prometheus"}, "metrics") == []
    assert "pip install opentelemetry-exporter-otlp." in caplog.text
    assert "pip install opentelemetry-exporter-prometheus." in caplog.text


def test_a_reader_of_its_own_kind_is_told_of_each_value() -> None:
    plain = otel._meters([InMemoryMetricReader, ConsoleMetricExporter], Resource.get_empty())
    summed = otel._meters([ConsoleMetricExporter], Resource.get_empty())
    assert not isinstance(plain, Meters)
    assert isinstance(summed, Meters)
    for each in (plain, summed):
        each.shutdown()


def test_whoever_sends_is_this_process_of_interlock_unless_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = otel._resource().attributes
    assert ours["service.name"] == "interlock"
    assert ours["service.instance.id"]
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=a,region=north")
    theirs = otel._resource().attributes
    assert (theirs["service.name"], theirs["service.instance.id"], theirs["region"]) == ("shop", "a", "north")


PROGRAM = """
import asyncio
from interlock import Engine
from interlock.examples.checkout import Checkout, checkout

async def main():
    async with Engine.open("memory:", machines=[checkout], observers=["otel"], worker=False) as engine:
        await engine.start(checkout, "c-1", Checkout())
    async with Engine.open("memory:", machines=[checkout], observers=["otel"], worker=False) as engine:
        await engine.start(checkout, "c-2", Checkout())

asyncio.run(main())
"""


def test_a_program_that_says_nothing_exports_what_its_environment_asks_for() -> None:
    """In a process of its own: providers are set once. At its end everything is sent."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": ":".join(sys.path), "OTEL_METRICS_EXPORTER": "console", "OTEL_TRACES_EXPORTER": "console"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"name": "pipeline.transition.duration"' in done.stdout
    assert '"name": "pass checkout"' in done.stdout
    assert '"service.name": "interlock"' in done.stdout
    assert "Traceback" not in done.stderr, done.stderr
