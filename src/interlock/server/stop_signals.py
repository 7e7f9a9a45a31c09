"""Callbacks for the signals that ask this process to stop, beside the handlers of the server that runs the app.

A mounted app does not learn that its server stops. uvicorn ends the lifespan after the last connection has closed, and
a stream keeps its connection open until it ends itself. So answers without an end listen for the signals too.

The handlers of the server stay in charge: each is called after the callbacks, and is set again when the last callback
is removed. Only the main thread may set handlers; in another thread `listen` does nothing.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import cast

Handler = Callable[[int, FrameType | None], object]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Callbacks of one process for its stop signals."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._replaced: list[tuple[signal.Signals, Handler, Handler]] = []
        """Each signal, with the handler that was set here and the previous one."""

    @contextlib.contextmanager
    def listen(self, callback: Callable[[], None]) -> Generator[None]:
        """Call the callback on each stop signal in the block. It runs inside a signal handler."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._callbacks.append(callback)
        if not self._replaced:
            self._replace()
        try:
            yield
        finally:
            self._callbacks.remove(callback)
            if not self._callbacks:
                self._restore()

    def _replace(self) -> None:
        for number in SIGNALS:
            before = signal.getsignal(number)
            # Without a Python handler the process ends by itself, or ignores the signal: there is nothing to end.
            if callable(before):
                handler = self._handler(cast("Handler", before))
                signal.signal(number, handler)
                self._replaced.append((number, handler, cast("Handler", before)))

    def _restore(self) -> None:
        for number, handler, before in self._replaced:
            # The server may have restored its own handlers already, or have set others.
            if signal.getsignal(number) is handler:
                signal.signal(number, before)
        self._replaced.clear()

    def _handler(self, before: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            for callback in tuple(self._callbacks):
                callback()
            before(number, frame)

        return handle


STOP_SIGNALS = StopSignals()
