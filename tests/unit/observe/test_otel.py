"""C13: the dotted names of OpenTelemetry, through the providers of the program; nothing without one."""

import asyncio
import importlib
import sys
from collections.abc import Sequence

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from interlock import Admission, DefinitionError, Engine, InvalidTransition, MissingExtra, Overloaded
from interlock.observe import otel
from interlock.observe.metrics import METRICS
from interlock.observe.otel import OpenTelemetry, counts_of
from tests.unit.observe.tickets import Buy, Paid, Ticket, tickets


class Meters:
    """A provider of metrics, and what it has."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.observer = OpenTelemetry(meter_provider=MeterProvider([self._reader], shutdown_on_exit=False))

    async def read(self) -> dict[str, Metric]:
        """As an exporter would, from a thread of its own."""
        data = await asyncio.to_thread(self._reader.get_metrics_data)
        assert data is not None
        [resource] = data.resource_metrics
        [scope] = resource.scope_metrics
        assert scope.scope.name == "interlock"
        return {metric.name: metric for metric in scope.metrics}


def points(metric: Metric) -> Sequence[object]:
    return metric.data.data_points


def test_the_names_and_the_values_are_those_of_the_contract() -> None:
    async def scenario() -> None:
        machine, meters = tickets(), Meters()
        async with Engine.open("memory:", machines=[machine], observers=[meters.observer]) as engine:
            await asyncio.gather(*(engine.start(machine, f"t-{number}", Ticket()) for number in range(7)))
            await engine.send("t-0", Buy())
            await engine.wait("t-0")
            with pytest.raises(InvalidTransition):
                await engine.send("t-0", Paid())
            found = await meters.read()
            assert engine._inside.subscribers.failures == 0
        known = {metric.name: metric for metric in METRICS}
        assert set(found) <= set(known)
        assert {"pipeline.transition.duration", "circuit.breaker.state", "state.machine.depth"} <= set(found)
        assert {"transition.rejections", "compensation.debt"} <= set(found)
        for name, metric in found.items():
            assert (metric.unit, metric.description) == (known[name].unit, known[name].description)
        started = {"machine": "ticket", "from": "open", "to": "open"}
        [start] = [each for each in points(found["pipeline.transition.duration"]) if _attributes(each) == started]
        assert isinstance(start, HistogramDataPoint)
        assert start.count == 7
        assert tuple(start.explicit_bounds)[:2] == (0.0005, 0.001)
        depths = {
            (each.attributes or {})["state"]: each.value
            for each in points(found["state.machine.depth"])
            if isinstance(each, NumberDataPoint)
        }
        assert depths == {"open": 6, "paying": 0, "booking": 0, "done": 1, "undoing": 0, "failed": 0}
        [breaker] = points(found["circuit.breaker.state"])
        assert isinstance(breaker, NumberDataPoint)
        assert (dict(breaker.attributes or {}), breaker.value) == ({"dependency": "bank"}, 0)

    asyncio.run(scenario())


def test_an_exporter_in_the_engines_own_thread_is_not_waited_for() -> None:
    async def scenario() -> None:
        machine = tickets()
        reader = InMemoryMetricReader()
        observer = OpenTelemetry(meter_provider=MeterProvider([reader], shutdown_on_exit=False))
        async with Engine.open("memory:", machines=[machine], observers=[observer]) as engine:
            assert reader.get_metrics_data() is not None
            await engine.start(machine, "t-1", Ticket())
            assert _depths(reader)["open"] == 1, "in memory there is nothing to wait for"

    asyncio.run(scenario())


def test_an_engine_that_is_opened_later_with_the_same_provider_is_seen_and_a_closed_one_is_kept_by_nobody() -> None:
    """Each has an observer of its own, as `observers=["otel"]` makes them."""

    async def scenario() -> None:
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        machine, other = tickets(), tickets()
        async with Engine.open(
            "memory:", machines=[machine], observers=[OpenTelemetry(meter_provider=provider)]
        ) as one:
            await one.start(machine, "t-1", Ticket())
            observer = OpenTelemetry(meter_provider=provider)
            async with Engine.open("memory:", machines=[other], observers=[observer]) as two:
                await two.start(other, "t-1", Ticket())
                await two.start(other, "t-2", Ticket())
                assert _depths(reader)["open"] == 3, "those of all engines are added up"
            assert _depths(reader)["open"] == 1
        async with Engine.open(
            "memory:", machines=[machine], observers=[OpenTelemetry(meter_provider=provider)]
        ) as one:
            await one.start(machine, "t-1", Ticket())
            await one.send("t-1", Buy())
            await one.wait("t-1")
            assert (_depths(reader)["open"], _depths(reader)["done"]) == (0, 1)
        assert not _depths(reader)
        counts, is_new = counts_of(provider)
        assert (counts._sampled, is_new) == ([], False)

    asyncio.run(scenario())


def test_what_closed_engines_have_counted_still_counts() -> None:
    async def scenario() -> None:
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        for _ in range(2):
            machine = tickets()
            async with Engine.open(
                "memory:",
                machines=[machine],
                observers=[OpenTelemetry(meter_provider=provider)],
                admission=Admission(rate_per_s=0.001, burst=1),
            ) as engine:
                await engine.start(machine, "t-1", Ticket())
                with pytest.raises(Overloaded):
                    await engine.send("t-1", Buy())
        assert _values(reader, "admission.refusals") == {(): 2}

    asyncio.run(scenario())


def _values(reader: InMemoryMetricReader, name: str) -> dict[tuple[object, ...], float]:
    """Read in the engine's own thread, as a test of a program would. Each set of attributes is there once."""
    data = reader.get_metrics_data()
    assert data is not None
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    chosen = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
    told: list[object] = [each for metric in chosen for each in metric.data.data_points]
    found: dict[tuple[object, ...], float] = {
        tuple((each.attributes or {}).values()): each.value for each in told if isinstance(each, NumberDataPoint)
    }
    assert len(found) == len(told)
    return found


def _depths(reader: InMemoryMetricReader) -> dict[object, float]:
    return {state: count for (_, state), count in _values(reader, "state.machine.depth").items()}


def test_a_provider_that_nobody_has_set_costs_nothing() -> None:
    unset = OpenTelemetry()
    assert unset.tracing is None
    assert unset.counting is None
    idle = OpenTelemetry(tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider())
    assert idle.tracing is None
    assert idle.counting is None


def test_two_tracers_are_refused() -> None:
    async def scenario() -> None:
        twice = [OpenTelemetry(tracer_provider=TracerProvider(shutdown_on_exit=False)) for _ in range(2)]
        with pytest.raises(DefinitionError, match="two tracers"):
            await Engine.open("memory:", machines=[tickets()], observers=twice)

    asyncio.run(scenario())


def test_without_its_package_it_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, otel.__name__)  # Not reloaded: its classes must stay the same for other tests.
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match="opentelemetry-sdk") as missing:
        importlib.import_module(otel.__name__)
    assert "interlock[otel]" in missing.value.fix


def _attributes(point: object) -> dict[str, object]:
    assert isinstance(point, HistogramDataPoint)
    return dict(point.attributes or {})


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_ratio_is_a_share(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    with pytest.raises(DefinitionError, match="ratio is"):
        OpenTelemetry(tracer_provider=provider, ratio=wrong)
    monkeypatch.setenv(otel.RATIO, "many")
    with pytest.raises(DefinitionError, match="'many'"):
        OpenTelemetry(tracer_provider=provider)
    monkeypatch.setenv(otel.RATIO, "0.5")
    assert OpenTelemetry(tracer_provider=provider).tracing is not None
