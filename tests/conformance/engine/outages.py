"""What the tests of breakers and limits share: many orders at once, time that passes by hand, and what is counted.

A clock of the test has outlets of its own, so no test sees the breakers of another; another clock is another process.
"""

import asyncio
from collections.abc import Iterable

from interlock import BreakerChanged, Engine, RetryAfter, Signal
from interlock.engine.bound_machine import decode_owed
from tests.conformance.engine.places import SetClock, settled
from tests.conformance.engine.shop import Order, OrderMachine, Outside, Submit

HOUR_S = 3_600.0


def down(after_s: float = HOUR_S) -> RetryAfter:
    """A failure of the infrastructure after which its workflow leaves the dependency alone for a while."""
    return RetryAfter(after_s)


def named(count: int, *, first: int = 1) -> list[str]:
    """So many names of orders."""
    return [f"o-{number}" for number in range(first, first + count)]


async def submit(engine: Engine, order: OrderMachine, workflows: Iterable[str]) -> None:
    """Have orders charged, one after the other, and let everything happen that can."""
    for workflow in workflows:
        await engine.start(order, workflow, Order())
        await engine.send(workflow, Submit())
        await settled(engine)


async def later(engine: Engine, clock: SetClock, seconds: float) -> None:
    """So much time passes, and everybody who waits for it notices."""
    clock.now_s += seconds
    await look(engine)


async def look(engine: Engine) -> None:
    """Everybody who waits for the time looks at the clock."""
    inside = engine._inside
    inside.runner.timers._look()
    for line in inside.places.lines.values():
        line._on_timer()
    await settled(engine)


async def called(engine: Engine, outside: Outside, times: int) -> None:
    """It is called so many times, and then no more."""
    while len(outside.calls) < times:
        await settled(engine)
    await settled(engine)
    assert len(outside.calls) == times


async def attempts_of(engine: Engine, workflow: str) -> int:
    """The attempts of its step that are counted in the store."""
    run = decode_owed((await engine._store.load([workflow]))[workflow].owed).run
    return 0 if run is None else run.attempts


class Changes:
    """An observer that keeps what breakers did, and can be waited for."""

    def __init__(self) -> None:
        self.seen: list[BreakerChanged] = []
        self._come = asyncio.Event()

    def __call__(self, signal: Signal, /) -> None:
        if isinstance(signal, BreakerChanged):
            self.seen.append(signal)
            self._come.set()

    async def until(self, state: str) -> BreakerChanged:
        """Wait until a breaker is in that state."""
        while not self.seen or self.seen[-1].after != state:
            self._come.clear()
            await self._come.wait()
        return self.seen[-1]
