"""C13: which workflows are traced: a share of them, each from its first pass to its last."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock.observe.traces import Traces

IDS = [f"o-{number}" for number in range(10_000)]


def traced(ratio: float, ids: list[str]) -> set[str]:
    """Those of which a pass is sampled."""
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    traces = Traces(provider.get_tracer("interlock"), ratio=ratio)
    for workflow in ids:
        traces.staged("order", workflow, "draft", "")
        traces.durable(workflow, "draft", (), False, False)
    return {str((span.attributes or {})["order.id"]) for span in spans.get_finished_spans()}


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_the_ratio_is_the_share_of_workflows(ratio: float) -> None:
    assert len(traced(ratio, IDS)) / len(IDS) == pytest.approx(ratio, abs=0.02)


def test_all_and_none_are_exact() -> None:
    assert traced(0.0, IDS[:500]) == set()
    assert traced(1.0, IDS[:500]) == set(IDS[:500])


def test_a_workflow_that_is_not_sampled_has_no_second_chance() -> None:
    """By luck, a tenth would become a fifth at the second pass, in this process or another."""
    assert traced(0.1, IDS) == traced(0.1, [*IDS, *IDS, *reversed(IDS)])
