"""The W3C `traceparent`: a span's context as text, for the store, headers and messages.

`carried(text)` makes it the current context of a block, so that events sent to an engine there belong to its trace. A
server does so with the header of a request.
"""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

PARTS = 4
TRACE_CHARACTERS, SPAN_CHARACTERS, FLAGS_CHARACTERS = 32, 16, 2


def traceparent_of(span: SpanContext) -> str:
    """Return the context as text."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def read_traceparent(text: str) -> SpanContext | None:
    """Parse a context; None for an invalid text."""
    parts = text.strip().split("-")
    if len(parts) < PARTS or parts[0] == "ff":
        return None
    if [len(part) for part in parts[1:PARTS]] != [TRACE_CHARACTERS, SPAN_CHARACTERS, FLAGS_CHARACTERS]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:PARTS])
    except ValueError:
        return None
    found = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return found if found.is_valid else None


@contextmanager
def carried(traceparent: str) -> Generator[None]:
    """Make the trace current in the block, so that events sent there belong to it. An invalid text is ignored."""
    found = read_traceparent(traceparent)
    if found is None:
        yield
        return
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(found)))
    try:
        yield
    finally:
        context.detach(token)
