"""Detection of a blocked event loop, within a second, and of the step that blocks it (C20).

A timer of the loop counts its turns; a thread reads the count and sleeps. After three readings without a turn, the
thread takes the stack of the loop's thread, finds the attempt in it, and logs both immediately. Observers and alerts
run in the event loop: they get the report when the loop turns again.

A late reading means that the process was suspended or the machine is overloaded: the count begins anew, so that neither
is attributed to a step. The same holds for a loop that is not running. There is one thread per event loop, for all its
engines; it ends with the loop.
"""

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

import msgspec

from interlock.clock import SystemClock
from interlock.engine.steps.runner import running_attempt
from interlock.engine.tracer_protocol import Current
from interlock.redaction import logger_of, redacted_text

TICK_S = 0.25
"""How often the loop counts a turn, and how often the thread reads the count."""

READINGS_MIN = 3
"""Readings without a turn after which the loop is blocked: at least half a second, at most one."""

OTHER_READINGS_MIN = 20
"""The same for code that is not a step: five seconds. A program that starts on a busy machine may take a second."""

LATE_S = 0.2
"""A reading that is later than this is ignored."""

FRAMES_MAX = 20

log = logger_of("interlock.steps")


class BlockedLoop(msgspec.Struct, frozen=True):
    """A blocked event loop."""

    stack: str
    """The stack of the loop's thread, the innermost frame last."""
    attempt: Current | None
    """The running attempt; None for code other than a step, undo or effect."""
    duration_s: float = 0.0
    """How long it was blocked; 0 while it still is."""

    @property
    def name(self) -> str:
        """The code that blocked, for people."""
        if self.attempt is None:
            return "code that is not a step"
        return f"{self.attempt.step!r} of workflow {self.attempt.workflow!r} of machine {self.attempt.machine!r}"


Listener = Callable[[BlockedLoop], None]


class Readings:
    """The thread's readings of the count of turns."""

    def __init__(self, turns: int, now_s: float) -> None:
        self._turns = turns
        self._last_s = now_s
        self.missed = 0
        """Consecutive readings without a turn."""

    def found_blocked(self, turns: int, now_s: float, *, running: bool = True) -> bool:
        """Take one more reading; return True once per blockage. A loop that is not `running` is not blocked."""
        late = now_s - self._last_s > TICK_S + LATE_S
        self._last_s = now_s
        if late or not running or turns != self._turns:
            self._turns, self.missed = turns, 0
            return False
        self.missed += 1
        return self.missed == READINGS_MIN


class LoopWatch:
    """Watches one event loop, from a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.listeners: list[Listener] = []
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._clock = SystemClock()
        self._turns = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="interlock loop watch", daemon=True)
        self._thread.start()
        self._timer = loop.call_later(TICK_S, self._turn)

    def close(self) -> None:
        """End the thread. In the loop's thread."""
        self._timer.cancel()
        self._stop.set()
        self._thread.join()

    def _turn(self) -> None:
        self._turns += 1
        self._timer = self._loop.call_later(TICK_S, self._turn)

    def _read(self) -> None:
        """Read the count of turns periodically. In the thread."""
        readings, reported = Readings(self._turns, self._clock.monotonic_s()), False
        while not self._stop.wait(TICK_S):
            now_s = self._clock.monotonic_s()
            if self._loop.is_closed():  # Its engines were not closed.
                with _LOCK:
                    _WATCHES.pop(self._loop, None)
                return
            if readings.found_blocked(self._turns, now_s, running=self._loop.is_running()):
                reported = self._report(now_s - READINGS_MIN * TICK_S, step=True)
            elif readings.missed == OTHER_READINGS_MIN and not reported:
                self._report(now_s - OTHER_READINGS_MIN * TICK_S, step=False)

    def _report(self, since_s: float, *, step: bool) -> bool:
        """Log the code that blocks the loop and return True. With `step`, only if that is an attempt."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 -- the one way to see another thread's stack.
        if frame is None or _is_idle(frame):
            return False  # It waits for events, and is not blocked.
        stack = redacted_text("".join(traceback.format_stack(frame, limit=FRAMES_MAX)).rstrip("\n"))
        blocked = BlockedLoop(stack, running_attempt(frame))
        current = blocked.attempt
        if step and current is None:
            return False
        fields = None if current is None else {"order_id": current.workflow, "machine": current.machine}
        log.error(
            "the event loop is blocked by %s: nothing else runs and no timeout fires. Await what it waits for, "
            "or declare it with blocking=True. It is here:\n%s",
            blocked.name,
            stack,
            extra=fields if current is None else {**(fields or {}), "state": current.state, "step": current.step},
        )
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
            self._loop.call_soon_threadsafe(self._report_end, blocked, since_s)
        return True

    def _report_end(self, blocked: BlockedLoop, since_s: float) -> None:
        """Report the end of a blockage to the engines. In the loop's thread."""
        blocked = msgspec.structs.replace(blocked, duration_s=self._clock.monotonic_s() - since_s)
        for listener in tuple(self.listeners):
            listener(blocked)


def _is_idle(frame: FrameType) -> bool:
    caller = frame.f_back
    return frame.f_code.co_name == "select" and caller is not None and caller.f_code.co_name == "_run_once"


_WATCHES: dict[asyncio.AbstractEventLoop, LoopWatch] = {}
_LOCK = threading.Lock()


def watch_loop(listener: Listener) -> Callable[[], None]:
    """Call the listener after each blockage of the running event loop; return a function that ends the watch."""
    loop = asyncio.get_running_loop()
    with _LOCK:
        watch = _WATCHES.get(loop)
        if watch is None:
            watch = _WATCHES[loop] = LoopWatch(loop)
        watch.listeners.append(listener)

    def unwatch() -> None:
        with _LOCK:
            if listener in watch.listeners:
                watch.listeners.remove(listener)
            if watch.listeners or _WATCHES.get(loop) is not watch:
                return
            del _WATCHES[loop]
        watch.close()

    return unwatch
