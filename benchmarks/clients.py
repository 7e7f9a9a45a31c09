"""Clients that ask as soon as they were answered, for a given time: the load of every benchmark with clients.

Each client is a coroutine with one request under way (a closed loop), so the throughput is what the contestant can do
with so many clients and not what a generator pushed at it. All clients of a round start together and none is stopped
half-way: the round ends when the last one was answered.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.report import Round

Ask = Callable[[], Awaitable[object]]


async def run_clients(
    asks: Sequence[Ask], *, seconds: float, cpu_seconds: Callable[[], float] = time.process_time
) -> Round:
    """Run one client per `ask` for so many seconds, each once at least. CPU is this process's, or by `cpu_seconds`."""
    latencies: list[float] = []
    gc.collect()
    cpu = cpu_seconds()
    begun = time.perf_counter()
    end = begun + seconds

    async def client(ask: Ask) -> None:
        now = time.perf_counter()
        while True:
            asked = now
            await ask()
            now = time.perf_counter()
            latencies.append(now - asked)
            if now >= end:
                return

    await asyncio.gather(*(client(ask) for ask in asks))
    elapsed = time.perf_counter() - begun
    return Round(len(latencies), elapsed, cpu_seconds() - cpu, latencies)
