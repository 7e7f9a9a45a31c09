"""Clients that ask again as soon as they were answered, for a given time: a closed loop.

So the rate is what the lane does with so many clients, and not what a generator pushed at it. All clients start
together, and the last answer ends the measurement: nobody is stopped half-way.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

Ask = Callable[[], Awaitable[object]]


class Load(NamedTuple):
    """What the clients saw."""

    answers: int
    seconds: float
    cpu_s: float
    latencies_s: list[float]
    """Sorted."""

    def latency_ms(self, share: float) -> float:
        """The latency that this share of the answers did not exceed."""
        return 1e3 * self.latencies_s[min(self.answers - 1, int(share * self.answers))]


async def ask_for(seconds: float, *, clients: int, ask: Ask) -> Load:
    """Let so many clients ask for so many seconds; each asks at least once."""
    latencies: list[float] = []
    cpu = time.process_time()
    begun = time.perf_counter()
    end = begun + seconds

    async def client() -> None:
        asked = begun
        while True:
            await ask()
            answered = time.perf_counter()
            latencies.append(answered - asked)
            if answered >= end:
                return
            asked = answered

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    elapsed = time.perf_counter() - begun
    return Load(len(latencies), elapsed, time.process_time() - cpu, sorted(latencies))
