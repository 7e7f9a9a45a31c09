"""C13: one span per pass of a workflow, one per attempt in it; the trace is stored, and later passes link to it."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from interlock import Engine, GuardRejected, InvalidTransition, NonRetryable
from interlock.engine.bound_machine import decode_owed
from interlock.observe.otel import OpenTelemetry
from interlock.observe.traces import traceparent_of
from tests.conformance.engine.families import Order as Family
from tests.conformance.engine.families import Pay, orders, parcels, quiet
from tests.conformance.engine.places import Place, crash, run, settled
from tests.conformance.engine.shop import Cancel, Charged, Held, Order, Outside, Ship, State, Submit, World, shop


class Told:
    """A provider of traces, and what was told through it."""

    def __init__(self, provider: TracerProvider | None = None, *, ratio: float = 1.0) -> None:
        self.provider = provider or TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = OpenTelemetry(tracer_provider=self.provider, ratio=ratio)

    @property
    def passes(self) -> list[ReadableSpan]:
        return self.named("pass order")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def moves(span: ReadableSpan) -> list[tuple[object, object]]:
    happened = [each.attributes or {} for each in span.events if each.name == "state.transition"]
    return [(each["from"], each["to"]) for each in happened]


def test_a_pass_is_one_span_with_a_child_per_attempt(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        order = shop(World(charge=Outside(OSError("net"), Charged()))).machine
        async with place.engine(order, observers=[told.observer]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)
            assert engine._inside.subscribers.failures == 0, engine._inside.subscribers.last_failure
        started, submitted, *_ = told.passes
        assert moves(started) == [("draft", "draft")]
        assert ("draft", "charging") in moves(submitted)
        steps = [*told.named("step charge"), *told.named("step reserve")]
        assert [attributes(span)["step.name"] for span in steps] == ["charge", "charge", "reserve"]
        failed, charged, reserved = (attributes(span) for span in steps)
        assert (failed["error.classification"], failed["target.state"]) == ("retryable", "charging")
        assert (charged["order.state"], charged["target.state"], charged["step.attempt"]) == (
            "charging",
            "reserving",
            2,
        )
        assert (reserved["pipeline.step"], reserved["target.state"]) == ("reserve", "done")
        assert "error.classification" not in reserved
        assert all(isinstance(attributes(span)["latency.ms"], float) for span in steps)
        above = {context(span).span_id for span in told.passes}
        assert all(span.parent is not None and span.parent.span_id in above for span in steps)

    run(scenario)


def test_a_step_goes_on_in_the_trace_of_whoever_called(place: Place) -> None:
    """Also what the step itself calls: it runs in the context of its span."""

    async def scenario() -> None:
        told = Told()
        seen: list[trace.SpanContext] = []

        async def look(order: Order, ctx: object) -> Charged:
            seen.append(trace.get_current_span().get_span_context())
            return Charged()

        made = shop()
        async with place.engine(made.machine, observers=[told.observer], steps={made.charge: look}) as engine:
            await engine.start(made.machine, "o-1", Order())
            with told.provider.get_tracer("caller").start_as_current_span("checkout") as caller:
                await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)
        [step] = told.named("step charge")
        assert [found.span_id for found in seen] == [context(step).span_id]
        assert context(step).trace_id == caller.get_span_context().trace_id

    run(scenario)


def test_the_trace_of_the_caller_reaches_a_step_in_another_process(kept: Place) -> None:
    """One engine takes the event and runs nothing; another one, later, runs the step in the same trace."""

    async def scenario() -> None:
        front, back = Told(), Told()
        order = shop().machine
        async with kept.engine(order, observers=[front.observer], worker=False) as engine:
            with front.provider.get_tracer("caller").start_as_current_span("checkout") as caller:
                await engine.start(order, "o-1", Order())
                await engine.send("o-1", Submit())
        async with kept.engine(order, observers=[back.observer]) as engine:
            await engine.wait("o-1", State.DONE)
            await settled(engine)
        [step] = back.named("step charge")
        assert context(step).trace_id == caller.get_span_context().trace_id
        [_, *_] = front.passes
        assert back.passes[0].links[0].context.trace_id == caller.get_span_context().trace_id

    run(scenario)


def test_a_pass_after_a_crash_links_to_the_first(kept: Place) -> None:
    async def scenario() -> None:
        before, after = Told(), Told()
        held = Held(Charged())
        order = shop(World(charge=Outside(held))).machine
        engine = await kept.engine(order, observers=[before.observer])
        await engine.start(order, "o-1", Order())
        await engine.send("o-1", Submit())
        await held.begun.wait()
        row = (await engine._store.load(["o-1"]))["o-1"]
        crashed, started = decode_owed(row.owed).trace.split()
        assert started == traceparent_of(context(before.passes[0]))
        await crash(engine)
        order = shop().machine
        async with kept.engine(order, observers=[after.observer]) as engine:
            await engine.wait("o-1", State.DONE)
            await settled(engine)
        again = after.passes[0]
        assert [traceparent_of(link.context) for link in again.links] == [crashed, started]
        assert context(again).trace_id not in {link.context.trace_id for link in again.links}
        assert again.parent is None
        [step] = after.named("step charge")
        assert attributes(step)["step.attempt"] == 2
        assert step.parent is not None
        assert step.parent.span_id == context(again).span_id

    run(scenario)


def test_what_is_stored_goes_when_the_workflow_ends(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        order = shop().machine
        async with place.engine(order, observers=[told.observer]) as engine:
            await engine.start(order, "o-1", Order())
            first = decode_owed((await engine._store.load(["o-1"]))["o-1"].owed).trace
            assert first == traceparent_of(context(told.passes[0]))
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            last, earliest = decode_owed((await engine._store.load(["o-1"]))["o-1"].owed).trace.split()
            assert (last != first, earliest) == (True, first)
            await engine.send("o-1", Ship())
            await settled(engine)
            row = (await engine._store.load(["o-1"]))["o-1"]
            assert row.state == "shipped"
            assert not decode_owed(row.owed).trace
        assert all(span.links[-1].context.span_id == context(told.passes[0]).span_id for span in told.passes[1:])

    run(scenario)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_nothing_is_stored_of_what_is_not_sampled(place: Place, ratio: float) -> None:
    """By the ratio, or by the sampler of the provider, which has the last word."""

    async def scenario() -> None:
        told = Told(TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False) if ratio else None, ratio=ratio)
        seen: list[trace.SpanContext] = []

        async def look(order: Order, ctx: object) -> Charged:
            seen.append(trace.get_current_span().get_span_context())
            return Charged()

        made = shop()
        async with place.engine(made.machine, observers=[told.observer], steps={made.charge: look}) as engine:
            await engine.start(made.machine, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)
            assert not decode_owed((await engine._store.load(["o-1"]))["o-1"].owed).trace
            assert not engine._inside.tracing._tracing._passes  # type: ignore[union-attr]
        assert not told.passes
        [found] = seen
        assert found.is_valid
        assert not found.trace_flags.sampled

    run(scenario)


def test_an_engine_without_a_tracer_keeps_what_another_has_stored(kept: Place) -> None:
    async def scenario() -> None:
        told = Told()
        order = shop().machine
        async with kept.engine(order, observers=[told.observer], worker=False) as engine:
            await engine.start(order, "o-1", Order())
            stored = decode_owed((await engine._store.load(["o-1"]))["o-1"].owed).trace
            assert stored
        async with kept.engine(order) as engine:
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)
            assert decode_owed((await engine._store.load(["o-1"]))["o-1"].owed).trace == stored

    run(scenario)


def test_a_rejection_is_an_exception_of_whoever_sent_it(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        order = shop().machine
        async with place.engine(order, observers=[told.observer], worker=False) as engine:
            await engine.start(order, "o-1", Order())
            with told.provider.get_tracer("caller").start_as_current_span("ship it"), pytest.raises(InvalidTransition):
                await engine.send("o-1", Ship())
            with pytest.raises((InvalidTransition, GuardRejected)):
                await engine.send("o-1", Ship())
        [caller] = told.named("ship it")
        [alone] = told.named("rejection order")
        for span in (caller, alone):
            [event] = [each for each in span.events if each.name == "exception"]
            assert event.attributes is not None
            assert event.attributes["exception.type"] == "interlock.errors.InvalidTransition"
            assert (event.attributes["order.id"], event.attributes["event"]) == ("o-1", "SHIP")

    run(scenario)


def test_undos_are_traced_and_so_is_what_gives_up(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        order = shop(World(reserve=Outside(NonRetryable("none left")))).machine
        async with place.engine(order, observers=[told.observer]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.CANCELLED)
            await settled(engine)
        [reserve] = told.named("step reserve")
        assert attributes(reserve)["error.classification"] == "non_retryable"
        assert attributes(reserve)["target.state"] == "undoing"
        [undo] = told.named("undo charge")
        assert attributes(undo)["target.state"] == "cancelled"
        assert attributes(told.passes[-1])["pass.end"] == "ended"

    run(scenario)


def test_an_attempt_that_is_left_is_cancelled_and_ends(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        held = Held(Charged())
        order = shop(World(charge=Outside(held))).machine
        async with place.engine(order, observers=[told.observer]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            await settled(engine)
        [charge] = told.named("step charge")
        assert attributes(charge)["error.classification"] == "cancelled"

    run(scenario)


def test_a_later_pass_of_a_sampled_workflow_is_sampled_whatever_the_ratio(kept: Place) -> None:
    """A tenth of the stories, and not a tenth of the chapters."""

    async def scenario() -> None:
        first, later = Told(), Told(ratio=0.0)
        order = shop().machine
        async with kept.engine(order, observers=[first.observer], worker=False) as engine:
            await engine.start(order, "o-1", Order())
        async with kept.engine(order, observers=[later.observer]) as engine:
            await engine.start(order, "o-2", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)
        assert {attributes(span)["order.id"] for span in later.passes} == {"o-1"}

    run(scenario)


def test_a_pass_that_is_under_way_when_its_engine_stops_is_told_and_the_next_links_to_it(kept: Place) -> None:
    """One observer for both lives: what the first has left must not go on in the second."""

    async def scenario() -> None:
        told = Told()
        held = Held(Charged())
        order = shop(World(charge=Outside(held))).machine
        async with kept.engine(order, observers=[told.observer], drain_s=0.01) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
        stopped = told.passes[-1]
        assert (attributes(stopped)["pass.end"], attributes(stopped)["order.state"]) == ("stopped", "charging")
        [cut] = told.named("step charge")
        assert attributes(cut)["error.classification"] == "cancelled"
        async with kept.engine(shop().machine, observers=[told.observer]) as engine:
            await engine.wait("o-1", State.DONE)
            await settled(engine)
        again = told.passes[2]
        assert again.links[0].context.span_id == context(stopped).span_id

    run(scenario)


def test_who_called_in_vain_is_not_the_parent_of_what_happens_later(place: Place) -> None:
    """A duplicate, an event that is ignored, a start of what was there, an event that comes into a pass under way."""

    async def scenario() -> None:
        told = Told()
        held = Held(Charged())
        order = shop(World(charge=Outside(held))).machine
        tracer = told.provider.get_tracer("caller")
        async with place.engine(order, observers=[told.observer]) as engine:
            await engine.start(order, "o-1", Order())
            with tracer.start_as_current_span("in vain"):
                await engine.send("o-1", Ship(), if_allowed=True)
                await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit(), key="k")
            await held.begun.wait()
            with tracer.start_as_current_span("in vain"):
                await engine.send("o-1", Submit(), key="k")
                await engine.send("o-1", Ship(), if_allowed=True)
            held.go.set()
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Ship())
            await settled(engine)
        assert len(told.passes) >= 3
        assert [span.parent for span in told.passes] == [None] * len(told.passes)

    run(scenario)


def test_two_engines_with_one_observer_do_not_mix_up_workflows_of_the_same_id(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        held = Held(Charged())
        slow, quick = shop(World(charge=Outside(held))).machine, shop().machine
        async with (
            place.engine(slow, observers=[told.observer]) as engine,
            Engine.open("memory:", machines=[quick], observers=[told.observer]) as other,
        ):
            await engine.start(slow, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            await other.start(quick, "o-1", Order())
            await other.send("o-1", Submit())
            await other.wait("o-1", State.DONE)
            held.go.set()
            await engine.wait("o-1", State.DONE)
            await settled(engine)
        begun = [moves(span)[0] for span in told.passes]
        assert begun.count(("draft", "draft")) == begun.count(("draft", "charging")) == 2

    run(scenario)


@pytest.mark.parametrize("kept", ["postgres"], indirect=True)
def test_a_pass_ends_when_another_process_has_taken_its_workflow_over(kept: Place) -> None:
    """Otherwise it would be told never, and what comes back here would go on in it."""

    async def scenario() -> None:
        told = Told()
        held = Held(Charged())
        order = shop(World(charge=Outside(held))).machine
        async with kept.engine(order, observers=[told.observer], drain_s=0.01) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await held.begun.wait()
            runner = engine._inside.runner
            runner.lose("o-1", runner._running["o-1"].lease)
            await held.cancelled.wait()
            assert [attributes(each)["pass.end"] for each in told.passes] == ["parked", "left"]

    run(scenario)


def test_the_first_pass_of_a_child_links_to_the_pass_that_starts_it(place: Place) -> None:
    async def scenario() -> None:
        told = Told()
        parcel = parcels()
        family = orders(parcel)
        async with place.engine(family, parcel, observers=[told.observer]) as engine:
            await engine.start(family, "o", Family(("a", "b")))
            await engine.send("o", Pay())
            await quiet(engine)
        [_, starting, *_] = told.passes
        first, second = told.named("pass parcel")
        for each in (first, second):
            assert [link.context.span_id for link in each.links][:1] == [context(starting).span_id]
            assert context(each).trace_id != context(starting).trace_id

    run(scenario)
