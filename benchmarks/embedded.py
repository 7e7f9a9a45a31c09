"""Interlock as anybody embeds it: an engine on a store, and the machines that the benchmarks move.

The order is written twice. In the first form its four steps do nothing and their results move it, so that a client only
starts it and waits. In the second form it has no steps, and the client sends the four events itself, one after the
other. Both write the same five rows of history. The counter is one workflow that everybody sends to.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from benchmarks.clients import run_clients
from benchmarks.report import Round
from interlock import Engine, Event, Machine
from interlock.bench.orders import EVENTS, TRANSITIONS, MeasuredOrder, MeasuredState, sent, stepped

__all__ = ["MACHINES", "TRANSITIONS", "Count", "Counter", "Embedded", "MeasuredOrder", "counter", "stepped"]


class Counting(Enum):
    """The only state of the counter."""

    COUNTING = "counting"


@dataclass(frozen=True)
class Counter:
    """What was counted."""

    n: int = 0


class CounterEvent(Event):
    """The counter's alphabet."""


@dataclass(frozen=True)
class Count(CounterEvent):
    """One more."""


counter = Machine(
    "counter",
    states=Counting,
    context=Counter,
    events=CounterEvent,
    initial=Counting.COUNTING,
    resting={Counting.COUNTING},
    version=1,
)


@counter.on(Count, Counting.COUNTING)
def count(counter: Counter, event: Count) -> Counter:
    """An internal transition: the state stays, the number grows."""
    del event
    return replace(counter, n=counter.n + 1)


MACHINES = (stepped, sent, counter)


class Embedded:
    """Orders on an open engine. CPU is this process's, or what `cpu_seconds` counts."""

    def __init__(
        self, engine: Engine, *, name: str = "order", cpu_seconds: Callable[[], float] = time.process_time
    ) -> None:
        self._engine = engine
        self._name = name
        self._cpu_seconds = cpu_seconds
        self._counting = itertools.count()
        self._placed: dict[str, int] = {stepped.name: 0, sent.name: 0}

    async def by_steps(self) -> None:
        """One order whose steps move it."""
        number = f"{self._name}-{next(self._counting)}"
        await self._engine.start(stepped, number, MeasuredOrder(cents=999))
        view = await self._engine.wait(number)
        assert view.state is MeasuredState.SHIPPED
        self._placed[stepped.name] += 1

    async def by_events(self) -> None:
        """One order that its client moves."""
        number = f"{self._name}-{next(self._counting)}"
        await self._engine.start(sent, number, MeasuredOrder(cents=999))
        *events, last = EVENTS
        for event in events:
            await self._engine.send(number, event)
        moved = await self._engine.send(number, last)
        assert moved.state is MeasuredState.SHIPPED
        self._placed[sent.name] += 1

    async def round(self, *, steps: bool, in_flight: int, seconds: float) -> Round:
        """One turn of one of the forms."""
        work = self.by_steps if steps else self.by_events
        result = await run_clients([work] * in_flight, seconds=seconds, cpu_seconds=self._cpu_seconds)
        return replace(result, operations=TRANSITIONS * result.operations)

    async def check(self) -> None:
        """The orders that were answered have arrived, with their five rows of history each."""
        for machine in (stepped, sent):
            found, cursor, last = 0, None, ""
            while True:
                page = await self._engine.find(machine, state=MeasuredState.SHIPPED, limit=1_000, cursor=cursor)
                found += len(page.items)
                last = page.items[-1].id if page.items else last
                cursor = page.cursor
                if cursor is None:
                    break
            placed = self._placed[machine.name]
            assert found == placed, f"{found:,} of {placed:,} orders arrived"
            if last:
                versions = [row.version for row in await self._engine.history(last)]
                assert versions == [1, 2, 3, 4, 5], f"history of {last}: {versions}"
