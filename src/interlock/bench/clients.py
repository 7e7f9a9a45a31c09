"""Closed-loop clients: each sends its next request as soon as the last was answered, for a given time.

So the rate is the lane's with that number of clients, not a generator's. All clients start together, and the last
answer ends the measurement: no request is interrupted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

Ask = Callable[[], Awaitable[object]]


class Load(NamedTuple):
    """Rate and latencies that the clients measured."""

    answers: int
    seconds: float
    cpu_s: float
    latencies_s: list[float]
    """Sorted."""

    def latency_ms(self, share: float) -> float:
        """Return the latency that this share of the answers did not exceed."""
        count = len(self.latencies_s)
        return 1e3 * self.latencies_s[min(count - 1, int(share * count))]


async def ask_for(seconds: float, *, clients: int, ask: Ask) -> Load:
    """Run `clients` clients for `seconds`; each sends at least one request."""
    latencies: list[float] = []
    cpu = time.process_time()
    begun = time.perf_counter()
    end = begun + seconds

    async def client() -> None:
        sent = begun
        while True:
            await ask()
            answered = time.perf_counter()
            latencies.append(answered - sent)
            if answered >= end:
                return
            sent = answered

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    elapsed = time.perf_counter() - begun
    return Load(len(latencies), elapsed, time.process_time() - cpu, sorted(latencies))


async def ask_within(seconds: float, asks: Sequence[Ask]) -> Load:
    """Run one client per request for `seconds`; the rate counts until the last answer within that time.

    For clients that wait long and are answered in groups: the last answers of `ask_for` arrive when most clients have
    stopped, and a rate that includes them would be that of fewer clients. Late answers are awaited here, too, and their
    latencies are kept: they are the longest.
    """
    latencies: list[float] = []
    answers = 0
    cpu = time.process_time()
    begun = last = time.perf_counter()
    end = begun + seconds
    used = 0.0

    async def client(ask: Ask) -> None:
        nonlocal answers, last, used
        sent = begun
        while True:
            await ask()
            answered = time.perf_counter()
            latencies.append(answered - sent)
            late = answered >= end
            if late and not used:
                used = time.process_time() - cpu
            if not late or not answers:  # Without an answer in time, the first late one counts.
                answers += 1
                last = answered
            if late:
                return
            sent = answered

    async with asyncio.TaskGroup() as group:
        for ask in asks:
            group.create_task(client(ask))
    return Load(answers, last - begun, used, sorted(latencies))
