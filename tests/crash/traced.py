"""The workload of `test_traces`: an order whose step never ends in its first life, with a tracer."""

import asyncio
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock import Engine, StepContext
from interlock.observe.otel import OpenTelemetry
from interlock.observe.traces import carried
from tests.unit.engine.order_shop import Charged, Order, Orders, State, Submit

Say = Callable[[str], None]


def order(say: Say, *, hangs: bool) -> Orders:
    async def charge(ctx: StepContext) -> Charged:
        del ctx
        say(f"step {trace.get_current_span().get_span_context().trace_id:032x}")
        if hangs:
            await asyncio.get_running_loop().create_future()
        return Charged()

    return Orders(charge, attempts=5)


def begin(say: Say, url: str, traceparent: str) -> None:
    """The first life: somebody with a trace submits an order, and the process is killed in its step."""

    async def main() -> None:
        machine = order(say, hangs=True).machine
        tracing = OpenTelemetry(tracer_provider=TracerProvider(shutdown_on_exit=False))
        engine = await Engine.open(url, machines=[machine], observers=[tracing])
        await engine.start(machine, "o-1", Order())
        with carried(traceparent):
            await engine.send("o-1", Submit())
        say("sent")
        await asyncio.get_running_loop().create_future()

    asyncio.run(main())


def go_on(say: Say, url: str) -> None:
    """The next life: it samples nothing by itself, and tells what it has traced."""

    async def main() -> None:
        spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(spans))
        machine = order(say, hangs=False).machine
        async with Engine.open(
            url, machines=[machine], observers=[OpenTelemetry(tracer_provider=provider, ratio=0)]
        ) as engine:
            await engine.wait("o-1", State.SHIPPING)
        for span in spans.get_finished_spans():
            links = " ".join(f"{link.context.trace_id:032x}" for link in span.links)
            say(f"span {span.name}: {links}")

    asyncio.run(main())
