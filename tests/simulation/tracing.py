"""Simulations run untraced: a coverage run measures the core, and would only make thousands of stories slow."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def untraced() -> Generator[None]:
    """Without the tracing of a coverage run, in this thread and in those that begin here."""
    trace, thread_trace = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(thread_trace)
        sys.settrace(trace)
