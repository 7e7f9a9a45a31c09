"""C13, word by word: what operators are promised, on a store in memory and on a lane, in every format at once."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, Histogram, InMemoryMetricReader, Metric, NumberDataPoint, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from interlock import Engine, InvalidTransition
from interlock.observe.logs import log_as_json
from interlock.observe.metrics import BREAKER_STATES
from interlock.observe.otel import OpenTelemetry
from interlock.observe.prometheus import Prometheus
from interlock.signals import Observer
from tests.unit.observe.tickets import Buy, Cancel, Paid, Ticket, tickets


class Watched:
    """What was told of one story: two tickets are begun; one is bought at the second try, and the other refuses."""

    def __init__(self) -> None:
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        self.metrics: dict[str, Metric] = {}
        self.scrape = ""
        self.lines: list[dict[str, object]] = []

    async def live(self, url: str) -> None:
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        prometheus = Prometheus()
        observers: list[Observer | str] = [
            prometheus,
            OpenTelemetry(tracer_provider=tracers, meter_provider=meters),
            "logs",
        ]
        outcomes = iter([ConnectionError("no route")])

        def pay() -> None:
            logging.getLogger("shop").info("asking the bank")
            for error in outcomes:
                raise error

        machine = tickets(pay)
        async with Engine.open(url, machines=[machine], observers=observers) as engine:
            await engine.start(machine, "t-1", Ticket())
            await engine.start(machine, "t-2", Ticket())
            await engine.send("t-1", Buy())
            await engine.wait("t-1")
            with pytest.raises(InvalidTransition):
                await engine.send("t-2", Paid())
            await engine.send("t-2", Cancel())
            await engine.wait("t-2")
            engine.force_breaker("bank", "open")
            self.scrape = (await prometheus.render())[1].decode()
            data = await asyncio.to_thread(self._reader.get_metrics_data)
            assert engine._inside.subscribers.failures == 0, engine._inside.subscribers.last_failure
        assert data is not None
        for scope in data.resource_metrics[0].scope_metrics:
            self.metrics.update({metric.name: metric for metric in scope.metrics})

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def gauge(self, name: str) -> dict[tuple[object, ...], float]:
        data = self.metrics[name].data
        assert isinstance(data, Gauge | Sum)
        return {
            tuple((point.attributes or {}).values()): point.value
            for point in data.data_points
            if isinstance(point, NumberDataPoint)
        }


@pytest.fixture(params=["memory:", "lanes:"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    stream, root = io.StringIO(), logging.getLogger()
    before = root.level
    handler = log_as_json(level=logging.DEBUG, stream=stream)
    try:
        found = Watched()
        asyncio.run(found.live("memory:" if request.param == "memory:" else f"lanes://{tmp_path}"))
        found.lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        yield found
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def test_metrics_have_the_dotted_names_kinds_and_values(watched: Watched) -> None:
    duration = watched.metrics["pipeline.transition.duration"]
    assert isinstance(duration.data, Histogram)
    assert duration.unit == "s"
    counted = {tuple((point.attributes or {}).values()): point.count for point in duration.data.data_points}
    assert counted["ticket", "open", "open"] == 2
    assert counted["ticket", "paying", "booking"] == 1
    assert isinstance(watched.metrics["circuit.breaker.state"].data, Gauge)
    assert watched.gauge("circuit.breaker.state") == {("bank",): 1}
    assert BREAKER_STATES == {"closed": 0, "open": 1, "half_open": 2}
    assert isinstance(watched.metrics["state.machine.depth"].data, Gauge)
    depth = watched.gauge("state.machine.depth")
    assert (depth["ticket", "done"], depth["ticket", "failed"], depth["ticket", "open"]) == (1, 1, 0)
    assert watched.gauge("transition.rejections") == {("ticket", "PAID", "invalid-transition"): 1}
    assert watched.gauge("compensation.debt") == {("ticket",): 0}


def test_the_endpoint_has_exactly_these_names_and_no_unit_in_them(watched: Watched) -> None:
    names = set(re.findall(r"^([a-z_]+)(?=[{ ])", watched.scrape, re.MULTILINE))
    durations = {f"pipeline_transition_duration_{part}" for part in ("bucket", "count", "sum")}
    assert {name for name in names if name.startswith("pipeline_transition")} == durations
    assert {"circuit_breaker_state", "state_machine_depth", "transition_rejections_total", "compensation_debt"} <= names
    assert 'circuit_breaker_state{dependency="bank"} 1.0' in watched.scrape
    assert 'state_machine_depth{machine="ticket",state="done"} 1.0' in watched.scrape
    assert not [name for name in names if name.endswith(("_seconds", "_ratio")) and not name.startswith("process_")]


def test_a_pass_is_a_parent_span_and_later_passes_link_to_it(watched: Watched) -> None:
    passes = [span for span in watched.spans("pass ticket") if attributes(span)["order.id"] == "t-1"]
    first, *later = passes
    assert later
    assert first.parent is None
    for span in later:
        assert (context(first).trace_id, context(first).span_id) in {
            (link.context.trace_id, link.context.span_id) for link in span.links
        }
    for span in passes:
        assert {"order.state", "pipeline.step"} <= set(attributes(span))
    moved = [
        ((event.attributes or {})["from"], (event.attributes or {})["to"])
        for span in passes
        for event in span.events
        if event.name == "state.transition"
    ]
    assert moved == [("open", "open"), ("open", "paying"), ("paying", "booking"), ("booking", "done")]


def test_a_step_is_a_child_span_with_everything_that_was_promised(watched: Watched) -> None:
    failed, paid = watched.spans("step paying")
    [booked] = watched.spans("step booking")
    parents = {context(span).span_id for span in watched.spans("pass ticket")}
    for span, state, target in ((failed, "paying", "paying"), (paid, "paying", "booking"), (booked, "booking", "done")):
        assert span.parent is not None
        assert span.parent.span_id in parents
        found = attributes(span)
        assert (found["step.name"], found["pipeline.step"], found["order.state"]) == (state, state, state)
        assert found["target.state"] == target
        assert isinstance(found["latency.ms"], float)
    assert attributes(failed)["error.classification"] == "retryable"
    assert "error.classification" not in attributes(paid)


def test_a_rejection_is_recorded_as_an_exception(watched: Watched) -> None:
    [span] = watched.spans("rejection ticket")
    [event] = span.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.type"] == "interlock.errors.InvalidTransition"


def test_a_line_of_the_log_has_the_trace_the_order_and_how_long_it_took(watched: Watched) -> None:
    wanted = {"trace_id", "span_id", "order_id", "state", "step"}
    asked = [line for line in watched.lines if line["logger"] == "shop"]
    assert len(asked) == 2
    spans = [f"{context(span).span_id:016x}" for span in watched.spans("step paying")]
    assert [line["span_id"] for line in asked] == spans
    assert all(wanted <= set(line) for line in asked)
    [tried] = [line for line in watched.lines if "attempt 1: retryable" in str(line["message"])]
    assert wanted | {"duration_ms"} <= set(tried)
    assert (tried["order_id"], tried["state"], tried["step"]) == ("t-1", "paying", "paying")
    assert tried["span_id"] == spans[0]
