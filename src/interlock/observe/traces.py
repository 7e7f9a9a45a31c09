"""Traces: one span per pass of a workflow, and in it one span per attempt of a step.

A pass begins when a workflow is moved or taken up in this process, and ends when nothing of it runs here any more: it
waits, it has ended, or another process goes on with it. A crash ends it without a word. The `traceparent` of the pass
is stored with the workflow, and so is that of the first one; every later pass is a trace of its own that links to both,
and so does the one after a crash. A pass that only takes over what nobody has tried yet goes on in the same trace: that
is how the context of whoever called reaches a step in another process.

An attempt runs in the context of its span, so whatever it calls is traced to it. Nothing is kept of a workflow between
its passes, and everything here is bounded.
"""

from collections.abc import Sequence
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

from interlock.errors import InterlockError, Refusal
from interlock.observe.carrying import read_traceparent, traceparent_of
from interlock.runtime.tracing import Begun
from interlock.seams import Clock, RandomIds, SystemClock
from interlock.store.values import Happened

PASSES_MAX = 100_000
"""Passes under way that are remembered; the oldest ends when there are more."""

CALLERS_MAX = 10_000
"""Callers that are remembered until their workflow moves."""

HASHES = 2**32
"""How many there are."""

TOLD_NS = 1_000_000_000
"""How long what is noted of a pass that goes on may wait: what a crash can take of a trace."""

Attributes = dict[str, str | int | float]

NOBODY = Context()
"""The context of what nobody has called: whatever happens to be current there is somebody else's."""


class Pass:
    """One pass of a workflow."""

    __slots__ = (
        "_context",
        "_led",
        "_moves",
        "_told_ns",
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
        """This pass, and the first one if that was another: what the next one links to."""
        if self.is_recording:
            self.stored = " ".join((traceparent_of(span.get_span_context()), *stored.split()[-1:]))
        self.named: dict[str, str] = {}
        self.state = ""
        """Where the workflow is, as far as is known."""
        self.step = ""
        """The last that was begun."""
        self.finished: list[tuple[Span, Attributes, int]] = []
        """Attempts that have ended, with what is known of them, and when; where they lead to is known when that is
        durable."""
        self._moves: list[tuple[Happened, int]] = []
        self._led: list[tuple[Span, Attributes, int]] = []
        self._told_ns = 0

    @property
    def context(self) -> Context:
        """What its attempts are begun in. Many a pass has none."""
        if self._context is None:
            self._context = trace.set_span_in_context(self.span, NOBODY)
        return self._context

    def note(self, state: str, moves: Sequence[Happened], now_ns: int) -> None:
        """What has become durable. It is told to the provider a little later, in one go, which costs less."""
        self.state = state
        for move in moves:
            self._moves.append((move, now_ns))
        for finished in self.finished:
            finished[1]["target.state"] = state
            self._led.append(finished)
        self.finished.clear()
        if now_ns - self._told_ns > TOLD_NS:
            if self._told_ns:
                self.tell()
            self._told_ns = now_ns

    def tell(self) -> None:
        """Tell what was noted."""
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
        """It is over."""
        if self.is_recording:
            self.note(state, (), now_ns)
            self.tell()
            # All at once: each attribute is a good part of what a span costs.
            self.span.set_attributes({**self.named, "order.state": state, "pipeline.step": self.step, "pass.end": why})
            self.span.end(now_ns)


class Attempted:
    """One attempt that is sampled."""

    __slots__ = ("_attributes", "_begun_s", "_pass", "_span", "_traces", "_workflow")

    def __init__(
        self, traces: "Traces", workflow: str, within: Pass | None, span: Span, attributes: Attributes
    ) -> None:
        self._traces = traces
        self._workflow = workflow
        self._pass = within
        self._span = span
        self._attributes = attributes
        """All of them are told at the end, in one go: each time costs as much as several of them."""
        self._begun_s = traces.clock.monotonic_s()

    def ended(self, outcome: str, error: str | None, text: str) -> None:
        """It has ended."""
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
        self._unsampled = Pass(NonRecordingSpan(_nobody()), "")
        """All passes that are not sampled: they are many, and differ in nothing."""
        self._nothing = _within(self._unsampled.context)
        """What their attempts run in: whatever these call is not sampled either."""
        self._passes: dict[str, Pass] = {}
        self._callers: dict[str, Span] = {}

    def called(self, workflow: str) -> None:
        """Remember whose call it is."""
        if not contexts.get_current():
            return  # Nobody's, as is quickly seen.
        span = trace.get_current_span()
        if span.get_span_context().is_valid:
            if len(self._callers) >= CALLERS_MAX:
                del self._callers[next(iter(self._callers))]
            self._callers[workflow] = span

    def staged(self, machine: str, workflow: str, state: str, stored: str) -> str:
        """A workflow is about to be moved: its pass has begun, or begins."""
        del state
        here = self._passes.get(workflow)
        if here is None:
            here = self._begin(machine, workflow, stored)
        elif self._callers:
            self._callers.pop(workflow, None)  # It has come into a pass under way, and is not to begin a later one.
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
    ) -> Begun:
        """An attempt begins, in the pass under way or in one that takes the workflow up."""
        here = self._passes.get(workflow)
        if here is None and kind != "effect":
            here = self._begin(machine, workflow, stored, goes_on=first)
        if here is not None and not here.is_recording:
            return Begun(self._nothing.copy())
        attributes: Attributes = {
            "order.id": workflow,
            "order.state": state,
            "pipeline.step": step,
            "step.name": step,
        }
        if attempt > 1:
            attributes["step.attempt"] = attempt
        # An effect whose pass is over has a trace of its own.
        parent = NOBODY if here is None else here.context
        links = _links(stored) if here is None else None
        span = self._tracer.start_span(f"{kind} {step}", parent, links=links)
        within = None
        if here is not None and kind != "effect":
            within, here.step, here.state = here, step, state
        return Begun(
            _within(trace.set_span_in_context(span, parent)), Attempted(self, workflow, within, span, attributes)
        )

    def durable(
        self,
        workflow: str,
        state: str,
        moves: Sequence[Happened],
        ended: bool,  # noqa: FBT001 -- by position, as the protocol has it.
        goes_on: bool,  # noqa: FBT001 -- the same.
    ) -> None:
        """The workflow has moved, or what it is owed has changed: the pass goes on, or is over."""
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
        """An event was refused: an exception of whoever sent it, of the pass under way, or of nobody."""
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
            context = NOBODY if caller is None else trace.set_span_in_context(caller, NOBODY)
            span = self._tracer.start_span(f"rejection {error.machine}", context, attributes=attributes)
            span.record_exception(error, attributes)
            span.set_status(Status(StatusCode.ERROR, error.what))
            span.end()

    def within(self, workflow: str) -> Variables:
        """The context of whoever has called, or of the pass under way."""
        caller, here = self._callers.get(workflow), self._passes.get(workflow)
        if caller is not None:
            return _within(trace.set_span_in_context(caller, NOBODY))
        return copy_context() if here is None else _within(here.context)

    def unchanged(self, workflow: str) -> None:
        """Whoever called has an answer; what moves the workflow next is somebody else's."""
        if self._callers:
            self._callers.pop(workflow, None)

    def left(self, workflow: str) -> None:
        """Another process goes on with it, in a pass of its own."""
        here = self._passes.pop(workflow, None)
        if here is not None:
            here.end(here.state, "left", int(self.clock.wall_s() * 1e9))

    def stopped(self) -> None:
        """The engine is closed: all passes end here, so that they are sent."""
        now_ns = int(self.clock.wall_s() * 1e9)
        passes, self._passes = self._passes, {}
        self._callers.clear()
        for each in passes.values():
            each.end(each.state, "stopped", now_ns)

    def is_under_way(self, workflow: str, which: Pass) -> bool:
        """Whether that pass of the workflow has not ended."""
        return self._passes.get(workflow) is which

    def _begin(self, machine: str, workflow: str, stored: str, *, goes_on: bool = False) -> Pass:
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
        """As the caller is; else whatever has a sampled past, so that a story is told to its end; else by its id.

        By luck, each later pass would be another chance, and a long story all but sure to be told from its middle. Most
        are not sampled, and are not even shown to the provider: its sampler alone takes a tenth of a transition.
        """
        if caller is not None:
            return caller.get_span_context().trace_flags.sampled
        return links is not None or crc32(workflow.encode()) < self._below

    def _sampled(
        self,
        machine: str,
        workflow: str,
        stored: str,
        caller: Span | None,
        links: list[Link] | None,
        *,
        goes_on: bool,
    ) -> Pass:
        parent = NOBODY
        if caller is not None:
            parent = trace.set_span_in_context(caller, NOBODY)
        elif links and goes_on:
            parent = trace.set_span_in_context(NonRecordingSpan(links[0].context), NOBODY)
        here = Pass(self._tracer.start_span(f"pass {machine}", parent, SpanKind.CONSUMER, links=links), stored)
        here.named = {"machine": machine, "order.id": workflow}
        return here if here.is_recording else self._unsampled  # The provider's own sampler has the last word.


def _nobody() -> SpanContext:
    """A context that belongs to no trace: valid, and not sampled."""
    number = int(RandomIds().text().replace("-", ""), 16)
    return SpanContext(number, number >> 64, is_remote=False, trace_flags=TraceFlags(0))


def _within(context: Context) -> Variables:
    """The variables of the current context, and this one for OpenTelemetry."""
    variables = copy_context()
    variables.run(contexts.attach, context)
    return variables


def _links(stored: str) -> list[Link] | None:
    found = [read_traceparent(each) for each in stored.split()]
    return [Link(each) for each in found if each is not None] or None
