"""Virtual time: an event loop whose time jumps to the next timer when no callback is ready.

A year passes in as many turns as it has timers. Callbacks run in the order of their times, and those of one time in the
order they were scheduled, so that a run repeats exactly. It is asyncio's own event loop with another selector: instead
of waiting for a timeout, time jumps to it.

The invariant: time stands still while a callback is ready, and while a thread works (`holding`). The odd choice: it may
run inside a test that is itself run by another event loop, which is blocked meanwhile.
"""

import asyncio
import contextlib
import selectors
from asyncio import events
from collections.abc import Coroutine, Generator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from interlock.errors import InterlockError

ResultT = TypeVar("ResultT")

EPOCH_S = 1_800_000_000.0
"""The wall-clock time at which virtual time begins: 15 January 2027, 08:00 UTC."""

TURNS_MAX = 200_000
"""Turns of the event loop without a jump of time, after which it raises Stuck."""


class Stuck(InterlockError):
    """Raised when no event can happen any more in virtual time, or when it never ends."""

    code = "stuck"
    default_why = "Time jumps to the next timer by itself, and it cannot jump out of this."
    default_fix = "Look at what waits for what: the last lines of the history of each workflow say how far it got."


class VirtualClock:
    """The clock of one virtual time; its event loop uses the same time."""

    def __init__(self, *, epoch_s: float = EPOCH_S) -> None:
        self._epoch_s = epoch_s
        self.now_s = 0.0
        """Seconds since virtual time began."""

    def wall_s(self) -> float:
        """Seconds since the epoch of the world."""
        return self._epoch_s + self.now_s

    def monotonic_s(self) -> float:
        """Seconds since virtual time began."""
        return self.now_s

    def now(self) -> datetime:
        """Return `wall_s` as a datetime in UTC."""
        return datetime.fromtimestamp(self.wall_s(), UTC)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self._jumps = _Jumps(self)
        super().__init__(self._jumps)
        # Timers within a microsecond are due together: after a year of seconds a float cannot tell nanoseconds apart.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds."""
        return self.clock.now_s

    def run_forever(self) -> None:
        """As asyncio's, and also where another event loop runs: that one stands still meanwhile."""
        with self._alone():
            super().run_forever()

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine to its end; time jumps whenever it would have to wait. Raises Stuck when that is for ever."""
        with self._alone():
            return self.run_until_complete(coroutine)

    def settle(self) -> None:
        """Run everything that is ready at this moment. No time passes."""
        self.pass_until(self.clock.now_s)

    def pass_until(self, time_s: float) -> None:
        """Let time pass, and everything happen that happens by then. Ends at that time exactly."""
        self._jumps.limit_s = max(time_s, self.clock.now_s)
        try:
            self.run_forever()
        finally:
            self._jumps.limit_s = None

    def jump(self, limit_s: float) -> bool:
        """Advance time to the next timer and run its callbacks; return False when no timer is due up to the limit."""
        soonest_s = self.next_timer_s()
        if soonest_s is None or soonest_s > limit_s:
            return False
        self.pass_until(soonest_s)
        return True

    def next_timer_s(self) -> float | None:
        """When the next timer is due."""
        return min((timer.when() for timer in self._timers() if not timer.cancelled()), default=None)

    @contextlib.contextmanager
    def holding(self) -> Generator[None]:
        """Stop virtual time inside the block: the work of a thread takes no virtual time."""
        self._jumps.holders += 1
        try:
            yield
        finally:
            self._jumps.holders -= 1

    def abandon(self) -> None:
        """End everything that runs here, as the end of a process would: tasks are cancelled, timers forgotten.

        Raises Stuck for a task that does not let itself be cancelled.
        """
        for _ in range(100):
            for timer in self._timers():
                timer.cancel()
            tasks = asyncio.all_tasks(self)
            if not tasks:
                return
            # In the order they were made, so that a run repeats exactly.
            for task in sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name())):
                task.cancel()
            self.settle()
        names = ", ".join(sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(self)))  # type: ignore[union-attr]
        raise Stuck(f"these did not end although they were cancelled again and again: {names}.")

    def leave(self) -> None:
        """Abandon everything and close."""
        try:
            self.abandon()
            self.run(self.shutdown_asyncgens())
        finally:
            self.close()

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        outer = events._get_running_loop()  # noqa: SLF001 -- made for implementations of event loops.
        if outer is self:
            raise Stuck(
                "virtual time was asked to pass from inside of it.",
                why="What runs in virtual time is part of it, and cannot wait for it from outside.",
                fix="Await what you need inside, and call the harness from the test itself.",
            )
        events._set_running_loop(None)  # noqa: SLF001
        try:
            yield
        finally:
            events._set_running_loop(outer)  # noqa: SLF001

    def _timers(self) -> list[asyncio.TimerHandle]:
        return list(cast("list[asyncio.TimerHandle]", self._scheduled))  # type: ignore[attr-defined]


class _Jumps(selectors.BaseSelector):
    """The selector of a virtual loop: instead of waiting, time jumps."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._clock = loop.clock
        self._real = selectors.DefaultSelector()
        self._turns = 0
        self.holders = 0
        self.limit_s: float | None = None
        """The time at which the event loop stops; None: no limit."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready files of threads; otherwise advance time by `timeout`."""
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._turns += 1
            if self._turns > TURNS_MAX and not self.holders:
                raise Stuck(f"after {TURNS_MAX:,} turns of the event loop at one moment there was still more to do.")
            return ready
        if self.holders:
            return self._real.select(None)
        self._turns = 0
        if timeout is None and self.limit_s is None:
            raise Stuck("nothing can happen any more: there is no timer, and no task that could wake what waits.")
        target_s = None if timeout is None else self._clock.now_s + timeout
        if target_s is None or (self.limit_s is not None and target_s > self.limit_s):
            target_s = self.limit_s
            self._loop.stop()
        assert target_s is not None
        self._clock.now_s = target_s
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401 -- as selectors has it.
        """As every selector."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401 -- as above.
        """As every selector."""
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As every selector."""
        return self._real.get_map()

    def close(self) -> None:
        """As every selector."""
        self._real.close()
