"""A process that wants in as often as it can: `taker.py REDIS RATE BURST TIMES`.

It says when it is there, begins when it is told, and ends when it was let in so many times and has given back what it
had in hand. However long the machine keeps it from the processor, Redis is not taken for gone.

Prints for how long each call was held up, in microseconds, at the 95th of a hundred. A call that waited for something
is held up for as long as it took, one that did not for as long as it worked: what others do with the processor
meanwhile is not its doing.
"""

import asyncio
import json
import resource
import sys
import time

from interlock import Admission, Engine
from interlock.engine.path.admission import Gate
from interlock.errors import Overloaded
from interlock.redis import connection
from interlock.redis.cluster_breakers import SharedTokens
from tests.conformance.engine.shop import shop

PATIENCE_S = 60.0


async def main(redis: str, rate: float, burst: float, times: float) -> None:
    connection.ANSWER_S = connection.FIRST_S = PATIENCE_S
    admission = Admission(rate_per_s=rate, burst=burst)
    costs: list[float] = []
    async with Engine.open("memory:", machines=[shop().machine], redis=redis, admission=admission) as engine:
        gate = engine._inside.gate
        tokens = gate._tokens
        assert isinstance(tokens, SharedTokens)
        await tokens._ask(0, keep=0)  # It begins with nothing in hand.
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        await tokens._ask(0)  # And with nothing that it could borrow: the bucket was poured out meanwhile.
        while len(costs) < times:
            took_us = let_in(gate)
            if took_us is None:
                await asyncio.sleep(0.002)
                continue
            costs.append(took_us)
            await asyncio.sleep(0)
        while not tokens._fetched:  # noqa: ASYNC110 -- what is on its way could not be given back.
            await asyncio.sleep(0.002)
    costs.sort()
    sys.stdout.write(json.dumps({"p95_us": costs[len(costs) * 95 // 100]}))


def let_in(gate: Gate) -> float | None:
    """For how long a call was held up; None when it was refused."""
    waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    begun, worked = time.perf_counter(), time.thread_time()
    try:
        gate.enter()
    except Overloaded:
        return None
    took, worked = time.perf_counter() - begun, time.thread_time() - worked
    gate.leave()
    waited = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > waits
    return (took if waited else worked) * 1_000_000


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:])))
