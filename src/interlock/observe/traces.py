"""Traces: one span per pass of a workflow, and in it one span per attempt of a step.

A pass begins when a workflow is moved or taken over in this process. It ends when nothing of it runs here any more: it
waits, it has ended, or another process continues it. A crash loses its span. The `traceparent` of the pass is stored
with the workflow, and so is that of the first pass. Every later pass is a trace of its own that links to both, also
after a crash. A pass that only takes over a first attempt stays in the same trace: the caller's context thus reaches a
step in another process.

An attempt runs in the context of its span, so its calls are traced to it. Nothing is kept of a workflow between its
passes, and everything here is bounded.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import Context as Variables
from contextvars import copy_context
from zlib import crc32

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from interlock.clock import Clock, RandomIds, SystemClock
from interlock.engine.tracer_protocol import AttemptTrace
from interlock.errors import InterlockError, Refusal
from interlock.store.records import HistoryRecord

# --- Traceparent -----------------------------------------------------------------------------------------------------
# `traceparent` (W3C) is a context of a span as text, for the store, headers and messages.

PROPAGATOR = TraceContextTextMapPropagator()


def traceparent_of(span: SpanContext) -> str:
    """Return the context as text."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def read_traceparent(text: str) -> SpanContext | None:
    """Parse a context; None for an invalid text."""
    found = trace.get_current_span(PROPAGATOR.extract({"traceparent": text})).get_span_context()
    return found if found.is_valid else None


@contextmanager
def carried(traceparent: str) -> Generator[None]:
    """Make the trace current in the block, so that events sent there belong to it. An invalid text is ignored."""
    found = read_traceparent(traceparent)
    if found is None:
        yield
        return
    token = contexts.attach(trace.set_span_in_context(NonRecordingSpan(found)))
    try:
        yield
    finally:
        contexts.detach(token)


# --- Passes and attempts ---------------------------------------------------------------------------------------------

PASSES_MAX = 100_000
"""Number of passes under way that are kept; the oldest ends when there are more."""

CALLERS_MAX = 10_000
"""Number of callers that are kept until their workflow moves."""

HASHES = 2**32
"""Number of values of crc32."""

FLUSH_NS = 1_000_000_000
"""How long records of a pass under way may wait for a flush: a crash loses these."""

Attributes = dict[str, str | int | float]

NO_PARENT = Context()
"""The context of a span without a parent: the current context may belong to another call."""


class PassSpan:
    """One pass of a workflow."""

    __slots__ = (
        "_context",
        "_flushed_ns",
        "_led",
        "_moves",
        "finished",
        "is_recording",
        "named",
        "span",
        "state",
        "step",
        "stored",
    )

    def __init__(self, span: Span, stored: str) -> None:
        self.span = span
        self.is_recording = span.is_recording()
        self._context: Context | None = None
        self.stored = ""
        """The `traceparent` of this pass, and of the first one if that was another: the next pass links to both."""
        if self.is_recording:
            self.stored = " ".join((traceparent_of(span.get_span_context()), *stored.split()[-1:]))
        self.named: dict[str, str] = {}
        self.state = ""
        """The workflow's state, as far as it is known."""
        self.step = ""
        """The last step that was begun."""
        self.finished: list[tuple[Span, Attributes, int]] = []
        """Attempts that have ended, with attributes and time. The state that they lead to is set when it is durable."""
        self._moves: list[tuple[HistoryRecord, int]] = []
        self._led: list[tuple[Span, Attributes, int]] = []
        self._flushed_ns = 0

    @property
    def context(self) -> Context:
        """The context in which its attempts begin; created when needed."""
        if self._context is None:
            self._context = trace.set_span_in_context(self.span, NO_PARENT)
        return self._context

    def note(self, state: str, moves: Sequence[HistoryRecord], now_ns: int) -> None:
        """Record durable transitions. They are passed to the provider later, in one batch, which costs less."""
        self.state = state
        for move in moves:
            self._moves.append((move, now_ns))
        for finished in self.finished:
            finished[1]["target.state"] = state
            self._led.append(finished)
        self.finished.clear()
        if now_ns - self._flushed_ns > FLUSH_NS:
            if self._flushed_ns:
                self.flush()
            self._flushed_ns = now_ns

    def flush(self) -> None:
        """Pass the recorded transitions and attempts to the provider."""
        for move, at_ns in self._moves:
            self.span.add_event(
                "state.transition", {"from": move.from_state, "to": move.to_state, "event": move.event}, at_ns
            )
        for span, attributes, ended_ns in self._led:
            span.set_attributes(attributes)
            span.end(ended_ns)
        self._moves.clear()
        self._led.clear()

    def end(self, state: str, why: str, now_ns: int) -> None:
        """End the span of the pass."""
        if self.is_recording:
            self.note(state, (), now_ns)
            self.flush()
            # In one call: each call for an attribute is a large part of a span's cost.
            self.span.set_attributes({**self.named, "order.state": state, "pipeline.step": self.step, "pass.end": why})
            self.span.end(now_ns)


class AttemptSpan:
    """One sampled attempt."""

    __slots__ = ("_attributes", "_begun_s", "_pass", "_span", "_traces", "_workflow")

    def __init__(
        self, traces: "Traces", workflow: str, within: PassSpan | None, span: Span, attributes: Attributes
    ) -> None:
        self._traces = traces
        self._workflow = workflow
        self._pass = within
        self._span = span
        self._attributes = attributes
        """Set at the end in one call: each call costs as much as several attributes."""
        self._begun_s = traces.clock.monotonic_s()

    def ended(self, outcome: str, error: str | None, text: str) -> None:
        """End the attempt's span."""
        span, clock = self._span, self._traces.clock
        attributes = self._attributes
        attributes["latency.ms"] = 1_000 * (clock.monotonic_s() - self._begun_s)
        if outcome != "done":
            attributes["error.classification"] = outcome
            span.set_status(Status(StatusCode.ERROR, text or outcome))
            if error is not None:
                attributes["error.type"] = error
                span.add_event("exception", {"exception.type": error, "exception.message": text})
        if self._pass is not None and self._traces.is_under_way(self._workflow, self._pass):
            self._pass.finished.append((span, attributes, int(clock.wall_s() * 1e9)))
        else:
            span.set_attributes(attributes)
            span.end()


class Traces:
    """A tracer of workflows."""

    def __init__(self, tracer: Tracer, *, ratio: float = 1.0, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._tracer = tracer
        self._below = int(ratio * HASHES)
        """A workflow whose id has a smaller hash is sampled."""
        self._unsampled = PassSpan(NonRecordingSpan(_unsampled_context()), "")
        """Stands for all passes that are not sampled: they are many and identical."""
        self._nothing = _within(self._unsampled.context)
        """The context of their attempts, whose calls are not sampled either."""
        self._passes: dict[str, PassSpan] = {}
        self._callers: dict[str, Span] = {}

    def called(self, workflow: str) -> None:
        """Remember the span of the caller."""
        if not contexts.get_current():
            return  # Without a context there is no span: a cheap check.
        span = trace.get_current_span()
        if span.get_span_context().is_valid:
            if len(self._callers) >= CALLERS_MAX:
                del self._callers[next(iter(self._callers))]
            self._callers[workflow] = span

    def staged(self, machine: str, workflow: str, state: str, stored: str) -> str:
        """Begin the pass of a workflow that is about to be moved, unless it is under way."""
        del state
        here = self._passes.get(workflow)
        if here is None:
            here = self._begin(machine, workflow, stored)
        elif self._callers:
            self._callers.pop(workflow, None)  # The call joined a pass under way, and must not begin a later one.
        return here.stored or stored

    def began(
        self,
        machine: str,
        workflow: str,
        state: str,
        stored: str,
        step: str,
        kind: str,
        attempt: int,
        first: bool,  # noqa: FBT001 -- by position, as the protocol has it.
    ) -> AttemptTrace:
        """Begin an attempt, in the pass under way or in a new one that takes over the workflow."""
        here = self._passes.get(workflow)
        if here is None and kind != "effect":
            here = self._begin(machine, workflow, stored, goes_on=first)
        if here is not None and not here.is_recording:
            return AttemptTrace(self._nothing.copy())
        attributes: Attributes = {"order.id": workflow, "order.state": state, "pipeline.step": step, "step.name": step}
        if attempt > 1:
            attributes["step.attempt"] = attempt
        # An effect whose pass has ended gets a trace of its own.
        parent = NO_PARENT if here is None else here.context
        links = _links(stored) if here is None else None
        span = self._tracer.start_span(f"{kind} {step}", parent, links=links)
        within = None
        if here is not None and kind != "effect":
            within, here.step, here.state = here, step, state
        return AttemptTrace(
            _within(trace.set_span_in_context(span, parent)), AttemptSpan(self, workflow, within, span, attributes)
        )

    def durable(
        self,
        workflow: str,
        state: str,
        moves: Sequence[HistoryRecord],
        ended: bool,  # noqa: FBT001 -- by position, as the protocol has it.
        goes_on: bool,  # noqa: FBT001 -- the same.
    ) -> None:
        """Record durable transitions; end the pass unless it continues."""
        here = self._passes.get(workflow)
        if here is None:
            return
        now_ns = 0
        if here.is_recording:
            now_ns = int(self.clock.wall_s() * 1e9)
            here.note(state, moves, now_ns)
        if not goes_on:
            del self._passes[workflow]
            here.end(state, "ended" if ended else "parked", now_ns)

    def refused(self, workflow: str, error: InterlockError) -> None:
        """Record a refusal as an exception: in the caller's span, in the pass under way, or in a span of its own."""
        caller = self._callers.pop(workflow, None)
        if not isinstance(error, Refusal):
            return
        here = self._passes.get(workflow)
        attributes = {"order.id": workflow, "order.state": error.state, "event": error.event, "code": error.code}
        if caller is not None and caller.is_recording():
            caller.record_exception(error, attributes)
        elif here is not None:
            here.span.record_exception(error, attributes)
        else:
            context = NO_PARENT if caller is None else trace.set_span_in_context(caller, NO_PARENT)
            span = self._tracer.start_span(f"rejection {error.machine}", context, attributes=attributes)
            span.record_exception(error, attributes)
            span.set_status(Status(StatusCode.ERROR, error.what))
            span.end()

    def within(self, workflow: str) -> Variables:
        """Return the context of the caller, or of the pass under way."""
        caller, here = self._callers.get(workflow), self._passes.get(workflow)
        if caller is not None:
            return _within(trace.set_span_in_context(caller, NO_PARENT))
        return copy_context() if here is None else _within(here.context)

    def unchanged(self, workflow: str) -> None:
        """Forget the caller: it has its answer, and does not cause the next transition."""
        if self._callers:
            self._callers.pop(workflow, None)

    def left(self, workflow: str) -> None:
        """End the pass here: another process continues in a pass of its own."""
        here = self._passes.pop(workflow, None)
        if here is not None:
            here.end(here.state, "left", int(self.clock.wall_s() * 1e9))

    def stopped(self) -> None:
        """End all passes, so that they are sent: the engine is closed."""
        now_ns = int(self.clock.wall_s() * 1e9)
        passes, self._passes = self._passes, {}
        self._callers.clear()
        for each in passes.values():
            each.end(each.state, "stopped", now_ns)

    def is_under_way(self, workflow: str, which: PassSpan) -> bool:
        """Return whether that pass of the workflow has not ended."""
        return self._passes.get(workflow) is which

    def _begin(self, machine: str, workflow: str, stored: str, *, goes_on: bool = False) -> PassSpan:
        caller = self._callers.pop(workflow, None) if self._callers else None
        links = _links(stored) if stored else None
        here = self._unsampled
        if self._is_sampled(workflow, caller, links):
            here = self._sampled(machine, workflow, stored, caller, links, goes_on=goes_on)
        if len(self._passes) >= PASSES_MAX:
            oldest = self._passes.pop(next(iter(self._passes)))
            oldest.end(oldest.state, "forgotten", int(self.clock.wall_s() * 1e9))
        self._passes[workflow] = here
        return here

    def _is_sampled(self, workflow: str, caller: Span | None, links: list[Link] | None) -> bool:
        """Return whether to sample a pass: as the caller's span, or after a sampled pass, or by the hash of the id.

        A random choice per pass would trace most long workflows from the middle. Most passes are not sampled, and never
        reach the provider: its sampler alone takes a tenth of a transition.
        """
        if caller is not None:
            return caller.get_span_context().trace_flags.sampled
        return links is not None or crc32(workflow.encode()) < self._below

    def _sampled(
        self, machine: str, workflow: str, stored: str, caller: Span | None, links: list[Link] | None, *, goes_on: bool
    ) -> PassSpan:
        parent = NO_PARENT
        if caller is not None:
            parent = trace.set_span_in_context(caller, NO_PARENT)
        elif links and goes_on:
            parent = trace.set_span_in_context(NonRecordingSpan(links[0].context), NO_PARENT)
        here = PassSpan(self._tracer.start_span(f"pass {machine}", parent, SpanKind.CONSUMER, links=links), stored)
        here.named = {"machine": machine, "order.id": workflow}
        return here if here.is_recording else self._unsampled  # The provider's own sampler may refuse it.


def _unsampled_context() -> SpanContext:
    """Return a context that belongs to no trace: valid, and not sampled."""
    number = int(RandomIds().text().replace("-", ""), 16)
    return SpanContext(number, number >> 64, is_remote=False, trace_flags=TraceFlags(0))


def _within(context: Context) -> Variables:
    """Return a copy of the current variables with this OpenTelemetry context."""
    variables = copy_context()
    variables.run(contexts.attach, context)
    return variables


def _links(stored: str) -> list[Link] | None:
    found = [read_traceparent(each) for each in stored.split()]
    return [Link(each) for each in found if each is not None] or None
