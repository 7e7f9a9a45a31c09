"""C13: the W3C traceparent, there and back."""

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags

from interlock.observe.traces import carried, read_traceparent, traceparent_of

TEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_survives_being_written() -> None:
    span = SpanContext(
        0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, is_remote=False, trace_flags=TraceFlags(1)
    )
    assert traceparent_of(span) == TEXT
    found = read_traceparent(TEXT)
    assert found is not None
    assert (found.trace_id, found.span_id, found.trace_flags) == (span.trace_id, span.span_id, 1)
    assert found.is_remote


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473z-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf9-00f067aa0ba902b7-01",
    ],
)
def test_what_is_no_traceparent_changes_nothing(text: str) -> None:
    assert read_traceparent(text) is None
    with carried(text):
        assert not trace.get_current_span().get_span_context().is_valid


def test_a_later_version_with_more_in_it_is_read() -> None:
    assert read_traceparent(TEXT.replace("00-4", "01-4") + "-what-comes-later") is not None


def test_it_is_current_in_the_block_alone() -> None:
    with carried(TEXT):
        assert traceparent_of(trace.get_current_span().get_span_context()) == TEXT
    assert not trace.get_current_span().get_span_context().is_valid
