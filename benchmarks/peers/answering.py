"""The inside of a peer's process: it takes a turn for every line it is asked with, and answers with a line.

This runs in the peer's own environment, so it needs nothing but the standard library. The clients are those of
`benchmarks.clients`: each has one order under way and places the next when it was answered.
"""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TextIO

Order = Callable[[int], Awaitable[object]]
"""Places one order and returns when it is done. It is given the number of its client, which counts from zero."""


def claim_answers() -> TextIO:
    """Keep standard output for answers; what a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


async def answer(answers: TextIO, order: Order) -> None:
    """Take turns until nobody asks any more."""
    loop = asyncio.get_running_loop()
    print(json.dumps({"ready": True}), file=answers)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        print(json.dumps(await turn(order, asked["in_flight"], asked["seconds"])), file=answers)


async def turn(order: Order, in_flight: int, seconds: float) -> dict[str, object]:
    """So many clients for so many seconds; the CPU is that of this process."""
    latencies: list[float] = []
    gc.collect()
    cpu, begun = time.process_time(), time.perf_counter()
    end = begun + seconds

    async def client(number: int) -> None:
        while True:
            asked = time.perf_counter()
            await order(number)
            latencies.append(time.perf_counter() - asked)
            if time.perf_counter() >= end:
                return

    await asyncio.gather(*(client(number) for number in range(in_flight)))
    elapsed = time.perf_counter() - begun
    return {"seconds": elapsed, "cpu_seconds": time.process_time() - cpu, "latencies_s": latencies}
