"""Clients that ask again as soon as they were answered, for a given time: a closed loop.

So the rate is what the lane does with so many clients, and not what a generator pushed at it. All clients start
together, and the last answer ends the measurement: nobody is stopped half-way.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
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
        count = len(self.latencies_s)
        return 1e3 * self.latencies_s[min(count - 1, int(share * count))]


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


async def ask_within(seconds: float, asks: Sequence[Ask]) -> Load:
    """Let one client per question ask for so many seconds; the rate is that until the last answer within that time.

    For clients that wait long, and are answered many at once: the last answers of `ask_for` come while most clients
    have stopped already, and a rate that includes them would be that of fewer clients. Here they are awaited, too, so
    that nobody is stopped half-way, and their latencies are kept: they are the longest.
    """
    latencies: list[float] = []
    answers = 0
    cpu = time.process_time()
    begun = last = time.perf_counter()
    end = begun + seconds
    used = 0.0

    async def client(ask: Ask) -> None:
        nonlocal answers, last, used
        asked = begun
        while True:
            await ask()
            answered = time.perf_counter()
            latencies.append(answered - asked)
            late = answered >= end
            if late and not used:
                used = time.process_time() - cpu
            if not late or not answers:  # Not one answer in time: the first late one is all there is.
                answers += 1
                last = answered
            if late:
                return
            asked = answered

    async with asyncio.TaskGroup() as group:
        for ask in asks:
            group.create_task(client(ask))
    return Load(answers, last - begun, used, sorted(latencies))
