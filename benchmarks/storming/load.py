"""The load: orders that arrive when the script says so, whatever has become of those before (an open loop).

Both contestants are fed by this, in their own process. Every order has its number, its time of arrival and its end; the
time counts from when it should have arrived, so a contestant that is late in taking it in does not hide that.
"""

import asyncio
from array import array
from collections.abc import Callable
from enum import IntEnum

FINEST_S = 0.001
"""Arrivals within this time are placed together."""


class Outcome(IntEnum):
    """What became of an order."""

    OPEN = 0
    COMPLETED = 1
    DECLINED = 2
    FAILED = 3
    REFUSED = 4


def order_name(number: int) -> str:
    """The id of an order."""
    return f"order-{number}"


def order_number(name: str) -> int:
    """The number of an order."""
    return int(name.removeprefix("order-"))


class Orders:
    """The orders of a run: when they arrive, and when and how they ended. The first has the number `first`."""

    def __init__(self, arrivals: "array[float]", *, first: int = 0) -> None:
        self.arrivals = arrivals
        self._first = first
        self.ends = array("d", bytes(8 * len(arrivals)))
        self.outcomes = bytearray(len(arrivals))
        self._left = len(arrivals)
        self._begun_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._all_final = asyncio.Event()

    def end(self, number: int, outcome: Outcome) -> None:
        """The order is final: the first end counts."""
        number -= self._first
        if self.outcomes[number] == Outcome.OPEN:
            self.outcomes[number] = outcome
            self.ends[number] = self._loop.time() - self._begun_s
            self._left -= 1
            if not self._left:
                self._all_final.set()

    async def run(self, place: Callable[[int], None], *, drain_s: float) -> float:
        """Place every order in its time, then wait until all are final; returns the seconds that it took."""
        loop, arrivals = self._loop, self.arrivals
        self._begun_s = loop.time()
        number, count = 0, len(arrivals)
        while number < count:
            elapsed_s = loop.time() - self._begun_s
            while number < count and arrivals[number] <= elapsed_s:
                place(self._first + number)
                number += 1
            if number < count:
                await asyncio.sleep(max(FINEST_S, arrivals[number] - elapsed_s))
        if count:
            try:
                async with asyncio.timeout(drain_s):
                    await self._all_final.wait()
            except TimeoutError:
                pass
        return loop.time() - self._begun_s
