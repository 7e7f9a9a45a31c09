"""What an interactive transaction costs on a lane, beside single statements and `transact`: calls per second.

Each writes one row of its client. One client waits for the disk each time; many share commits, unless each holds the
writer for itself.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable

from interlock.database.database import Database
from interlock.sql.stored_values import Statements

CLIENTS = (1, 64)
READ, WRITE = "SELECT n FROM counter WHERE id = $1", "UPDATE counter SET n = $2 WHERE id = $1"


async def add(tx: Statements, client: int) -> None:
    """Read, then write."""
    [(n,)] = await tx.query(READ, client)
    assert isinstance(n, int)
    await tx.execute(WRITE, client, n + 1)


async def measure(url: str, seconds: float) -> None:
    """Print calls per second of each kind."""
    async with Database.open(url) as db:
        await db.execute("CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL)")
        await db.execute("INSERT INTO counter SELECT g, 0 FROM generate_series(1, 64) AS g")

        async def single(client: int) -> None:
            await db.execute("UPDATE counter SET n = n + 1 WHERE id = $1", client)

        async def in_function(client: int) -> None:
            await db.transact(add, client)

        async def interactive(client: int) -> None:
            async with db.transaction() as tx:
                await add(tx, client)

        async def read_only(client: int) -> None:
            async with db.transaction(read_only=True) as tx:
                await tx.query(READ, client)

        kinds: list[Callable[[int], Awaitable[None]]] = [single, in_function, interactive, read_only]
        for kind in kinds:
            rates = [await rate(kind, clients, seconds) for clients in CLIENTS]
            print(f"{kind.__name__:<12}" + "".join(f"{each:>10,.0f}" for each in rates))


async def rate(call: Callable[[int], Awaitable[None]], clients: int, seconds: float) -> float:
    """Calls per second of so many clients."""
    begun = time.monotonic()
    done = 0

    async def work(client: int) -> None:
        nonlocal done
        while time.monotonic() - begun < seconds:
            await call(client)
            done += 1

    await asyncio.gather(*(work(client) for client in range(1, clients + 1)))
    return done / (time.monotonic() - begun)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'per second':<12}" + "".join(f"{clients:>10}" for clients in CLIENTS))
        asyncio.run(measure(f"lanes://{folder}/interactive", chosen.seconds))
