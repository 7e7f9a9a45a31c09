"""What becomes of SIGINT in a block, and in every process that is started there.

A shell ignores SIGINT for what it runs in the background, and every process inherits that. A test that relies on
KeyboardInterrupt sets the handler of a terminal; a test about the background ignores the signal.
"""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

Handler = signal.Handlers | Callable[[int, FrameType | None], object]


@contextmanager
def interrupts(handler: Handler = signal.default_int_handler) -> Generator[None]:
    """Handle SIGINT like this, and as before afterwards."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
