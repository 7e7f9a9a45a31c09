"""A9, C13: observers by name, loaded when they are asked for and not before."""

import asyncio
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from interlock import DefinitionError, Engine
from interlock.engine import open_engine as engine_open
from interlock.errors import MissingExtra
from interlock.observe.prometheus import Prometheus
from interlock.signals import Observer, Signal
from interlock.testing.virtual_time import VirtualClock
from tests.unit.observe.tickets import Ticket, tickets

SEEN: list[Signal] = []


def made() -> object:
    return SEEN.append


def test_a_name_is_an_observer_of_that_kind() -> None:
    [found] = engine_open.observers_of(["prometheus"])
    assert type(found).__name__ == Prometheus.__name__


def test_another_package_can_bring_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = EntryPoint(name="theirs", group=engine_open.GROUP, value=f"{__name__}:made")

    def found(*, group: str) -> EntryPoints:
        return EntryPoints((theirs,)).select(group=group)

    monkeypatch.setattr(engine_open, "entry_points", found)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[made.__module__])

    async def scenario() -> None:
        machine = tickets()
        async with Engine.open("memory:", machines=[machine], observers=["theirs"]) as engine:
            await engine.start(machine, "t-1", Ticket())

    asyncio.run(scenario())
    assert [type(signal).__name__ for signal in SEEN] == ["TransitionApplied"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["prometeus"], "Did you mean prometheus?"),
        (["nobody"], "no observer 'nobody'"),
        ("otel", 'observers=["otel"]'),
    ],
)
def test_a_name_that_nobody_has_is_refused(given: list[str], told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        _ = Engine.open("memory:", machines=[tickets()], observers=given)
    assert told in str(refused.value)


def test_nothing_of_an_exporter_is_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys, interlock, interlock.engine.engine\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus', 'interlock.observe'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PROGRAM = """
import asyncio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from interlock import Engine
from tests.unit.observe.tickets import Ticket, tickets

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(tracers)
metrics.set_meter_provider(MeterProvider([reader]))

async def main():
    machine = tickets()
    async with Engine.open("memory:", machines=[machine]) as engine:
        await engine.start(machine, "t-1", Ticket())
        data = reader.get_metrics_data()
        scopes = [] if data is None else [scope for each in data.resource_metrics for scope in each.scope_metrics]
        print(sorted(metric.name for scope in scopes for metric in scope.metrics if "." in metric.name))
    print([span.name for span in spans.get_finished_spans()])

asyncio.run(main())
"""


def said(**environment: str) -> list[str]:
    """What a program says that has set providers and names no observer."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_program_that_has_set_providers_is_told_without_asking() -> None:
    """C13: OpenTelemetry by default."""
    names, spans = said()
    assert "pipeline.transition.duration" in names
    assert "state.machine.depth" in names
    assert "pass ticket" in spans


@pytest.mark.slow
def test_what_is_disabled_is_told_nothing() -> None:
    assert said(OTEL_SDK_DISABLED="true") == ["[]", "[]"]


def test_a_simulation_has_only_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    opening = Engine.open("memory:", machines=[tickets()], clock=VirtualClock())
    assert opening._config.subscribers.observers == ()


def test_an_environment_without_the_packages_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Observer:
        raise MissingExtra(f"{name} is not installed.", extra="otel")

    monkeypatch.setattr(engine_open, "load_observer", missing)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert engine_open.default_observers(()) == ()
