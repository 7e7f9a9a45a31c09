"""C13: `/metrics` has exactly the names that dashboards and alerts are written for; a request carries its trace."""

import re

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from interlock.observe.metrics import METRICS
from interlock.observe.otel import OpenTelemetry
from interlock.observe.prometheus import Prometheus
from interlock.server.worker_metrics import Siblings, meeting_place
from interlock.signals import Signal
from tests.unit.server.serving import Served, served

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_metrics_are_served_as_text_with_the_names_of_the_contract() -> None:
    async def test(app: Served) -> None:
        await app.start()
        await app.send("SHIP")
        answer = await app.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        names = set(re.findall(r"^([a-z_]+)(?:\{| )", answer.text, re.MULTILINE))
        assert {"pipeline_transition_duration_bucket", "pipeline_transition_duration_count"} <= names
        assert {"pipeline_transition_duration_sum", "state_machine_depth"} <= names
        assert "# TYPE circuit_breaker_state gauge" in answer.text
        assert 'pipeline_transition_duration_count{from="draft",machine="order",to="draft"} 1.0' in answer.text
        assert 'state_machine_depth{machine="order",state="draft"} 1.0' in answer.text

    served(test, observers=["prometheus"])


def test_of_several_workers_one_tells_the_figures_of_all_and_who_was_not_heard() -> None:
    async def test(app: Served) -> None:
        await app.start()
        with meeting_place() as folder:
            other = Prometheus()
            other.counting.grouped({("order", "draft", "draft"): 5}, 0.25)
            ours, theirs = Siblings(folder, 0, 3), Siblings(folder, 1, 3)
            async with app.app.service.join_workers(ours), theirs.answering(lambda: other.part("1")):
                answer = await app.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.text.splitlines()
        assert lines.count("# TYPE pipeline_transition_duration histogram") == 1
        move = 'from="draft",machine="order",to="draft"'
        counts = [line for line in lines if line.startswith(f"pipeline_transition_duration_count{{{move}")]
        assert counts == [
            f'pipeline_transition_duration_count{{{move},worker="0"}} 1.0',
            f'pipeline_transition_duration_count{{{move},worker="1"}} 5.0',
        ]
        assert 'state_machine_depth{machine="order",state="draft"} 1.0' in lines
        assert "workers_unheard 1.0" in lines
        assert {f"# TYPE {metric.flat}" for metric in METRICS} <= {
            line.rpartition(" ")[0].removesuffix("_total") for line in lines if line.startswith("# TYPE")
        }
        families = {family.name for family in text_string_to_metric_families(answer.text)}
        assert "process_cpu_seconds" in families

    served(test, observers=["prometheus"])


def test_an_exporter_of_another_kind_tells_its_own_figures() -> None:
    class Theirs:
        def __call__(self, signal: Signal) -> None:
            pass

        async def render(self) -> tuple[str, bytes]:
            return "text/plain", b"theirs"

    async def test(app: Served) -> None:
        with meeting_place() as folder:
            async with app.app.service.join_workers(Siblings(folder, 0, 2)):
                assert (await app.get("/metrics")).text == "theirs"

    served(test, observers=[Theirs()])


def test_without_the_observer_it_says_how_to_get_it() -> None:
    async def test(app: Served) -> None:
        answer = await app.get("/metrics")
        assert answer.status_code == 501
        problem = answer.json()
        assert problem["code"] == "no-metrics"
        assert "pip install 'interlock[otel]'" in problem["fix"]

    served(test)


def test_a_workflow_goes_on_in_the_trace_of_the_request() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def test(app: Served) -> None:
        path = "/v1/machines/order/workflows"
        body: dict[str, object] = {"id": "o-1", "context": {}}
        for traceparent in (f"00-{TRACE}-00f067aa0ba902b7-01", "nonsense"):
            answer = await app.post(path, json=body, headers={"traceparent": traceparent})
            assert answer.is_success
            body["id"] = "o-2"
        first, second = spans.get_finished_spans()
        assert first.parent is not None
        assert f"{first.parent.trace_id:032x}" == TRACE
        assert second.parent is None

    served(test, observers=[OpenTelemetry(tracer_provider=provider)])
