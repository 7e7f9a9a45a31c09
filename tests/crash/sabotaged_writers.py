"""Writers of experiment 4 that break a promise on purpose: the checker must catch each of them."""

import asyncio
from collections.abc import Callable, Coroutine

from interlock.bench.durability import BOOK, FIRST_OWN, GIVE, OPENED, TAKE, TILLS, TURNS_MAX, Say, move, opening
from interlock.database.database import Database

Client = Callable[[Database, int], Coroutine[object, object, None]]


def acknowledges_early(say: Say, url: str, cache: str, cycle: int, clients: int, lease_s: float) -> None:
    """Says that a transaction is durable before it was even asked for."""

    async def client(db: Database, number: int) -> None:
        for turn in range(1, TURNS_MAX):
            say(f"+{number} {turn}")
            await db.transact(move, cycle, number, turn)

    asyncio.run(_all(say, url, cache, clients, lease_s, client))


def commits_in_pieces(say: Say, url: str, cache: str, cycle: int, clients: int, lease_s: float) -> None:
    """Three transactions where one was promised."""

    async def client(db: Database, number: int) -> None:
        for turn in range(1, TURNS_MAX):
            till = (number + turn) % TILLS
            await db.execute(BOOK, cycle, number, turn, till)
            await db.execute(TAKE, FIRST_OWN + number)
            await db.execute(GIVE, till)
            say(f"+{number} {turn}")

    asyncio.run(_all(say, url, cache, clients, lease_s, client))


def stops(say: Say, url: str, cache: str, cycle: int, clients: int, lease_s: float) -> None:
    """Ends by itself, so that nothing was killed."""
    say(OPENED)


async def _all(say: Say, url: str, cache: str, clients: int, lease_s: float, client: Client) -> None:
    async with opening(url, cache, lease_s) as db:
        say(OPENED)
        await asyncio.gather(*(client(db, number) for number in range(clients)))
