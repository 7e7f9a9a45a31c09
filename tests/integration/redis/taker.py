"""A process that wants in as often as it can: `taker.py REDIS RATE BURST`.

It says when it is there and the burst is used up, and is told from when on and until when to count, by the machine's
monotonic clock.

Prints how often it was let in between the two times, and for how long each of those calls was held up, in microseconds.
"""

import asyncio
import json
import sys
import time

from interlock import Admission, Engine
from interlock.errors import Overloaded
from tests.conformance.engine.shop import shop


async def main(redis: str, rate: float, burst: float) -> None:
    admission = Admission(rate_per_s=rate, burst=burst)
    costs: list[float] = []
    async with Engine.open("memory:", machines=[shop().machine], redis=redis, admission=admission) as engine:
        gate = engine._inside.gate
        while True:
            try:
                gate.enter()
                gate.leave()
            except Overloaded:
                break
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        from_s, until_s = map(float, sys.stdin.readline().split())
        while (now_s := time.monotonic()) < until_s:
            begun = time.perf_counter()
            try:
                gate.enter()
            except Overloaded:
                await asyncio.sleep(0.002)
                continue
            took_us = (time.perf_counter() - begun) * 1_000_000
            gate.leave()
            if now_s >= from_s:
                costs.append(took_us)
            await asyncio.sleep(0)
    costs.sort()
    sys.stdout.write(json.dumps({"admitted": len(costs), "p95_us": costs[len(costs) * 95 // 100] if costs else 0.0}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:])))
