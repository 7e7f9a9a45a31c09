"""A process full of those who want one lease, and write to what it protects: `contender.py REDIS RESOURCE NAMES`.

Each takes the lease some times and writes under it, with its token. It never looks whether the lease is lost: only the
resource keeps a former holder from doing harm. The first of the names stops in the middle of its first turn, after it
has said so, until the test lets it go on. WRONG_BY_S in the environment shifts the clock of the process.
"""

import asyncio
import os
import sys
import time

from interlock import Engine, UnavailableError
from tests.conformance.engine.shop import shop

TURNS = int(os.environ.get("TURNS", "2"))
LEASE_S = 1.0
WAIT_S = 60.0


class Resource:
    """The way to what is protected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, text: str) -> str:
        self._writer.write(f"{text}\n".encode())
        return (await self._reader.readline()).decode().strip()


async def contend(engine: Engine, where: str, name: str, *, stops: bool) -> None:
    resource = Resource(*await asyncio.open_unix_connection(where))
    turn = 0
    while turn < TURNS:
        try:
            lease = await (leasing := engine.lease("treasure", wait_s=WAIT_S, lease_s=LEASE_S)).__aenter__()
        except UnavailableError:
            continue  # A process that is starved for long enough takes Redis for gone, until the next beat.
        try:
            await resource.say(f"write {name} {lease.token}")
            if stops and not turn:
                # The answer comes when the test has frozen this process and let it go on.
                await resource.say(f"stop {name} {os.getpid()}")
                await resource.say(f"lost {name} {lease.lost}")
            await resource.say(f"write {name} {lease.token}")
        finally:
            await leasing.__aexit__(None, None, None)
        turn += 1


async def main(redis: str, where: str, names: list[str]) -> None:
    async with Engine.open("memory:", machines=[shop().machine], redis=redis) as engine:
        stopping = os.environ.get("STOPS") == "1"
        await asyncio.gather(
            *(contend(engine, where, name, stops=stopping and not at) for at, name in enumerate(names))
        )


if __name__ == "__main__":
    wrong_by_s = float(os.environ.get("WRONG_BY_S", "0"))
    right = time.time
    time.time = lambda: right() + wrong_by_s
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3].split(",")))
