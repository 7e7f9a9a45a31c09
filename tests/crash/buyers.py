"""What the killed processes of `test_sold_out` do: a crowd that buys one thing, or pays from a few shared balances.

Every purchase has a name. It is announced before it begins (`?name least most`, with what it may do to the stock) and
reported when it is over (`+name gone held`, with what it did). A purchase with a key is repeated by the next life under
the same name, as a whole: each of its parts happens once. Names with `~` have no key and are never repeated.

A life that is to be killed begins at most so many purchases and then waits for its end, however slowly it is killed:
there is always something left for the lives after it.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence

from interlock.database.database import Database
from interlock.hotrow.balances import Balance
from interlock.hotrow.stock import Stock
from tests.crash.workloads import believe, opened

TOTAL = 10_000
QUANTITY_MAX = 20
ACCOUNTS = 8
LIMIT = -50
"""How far each account may be overdrawn."""

Say = Callable[[str], None]
Effect = tuple[int, int]
"""What a purchase did: units gone for good, units held."""


def make(say: Say, url: str, cache: str | None) -> None:
    """Fill the shelves and the accounts, in a life that nobody kills."""

    async def main() -> None:
        async with opened(url, cache) as db:
            await Stock(db, "sku").add(TOTAL, key="delivery")
            for number in range(ACCOUNTS):
                await Balance(db, f"account-{number}").deposit(TOTAL // ACCOUNTS, key="opening")
        say("made")

    asyncio.run(main())


def buy(
    say: Say, url: str, cache: str | None, life: str, unknown: list[str], crowd: int, most: int, careless: bool
) -> None:
    """Buy, reserve, confirm, release and give back until nothing is left."""

    async def main() -> None:
        async with opened(url, cache) as db:
            stock = Stock(db, "sku")
            await _crowd(
                say,
                life,
                unknown,
                crowd,
                most,
                once=lambda name: _purchase(db, stock, name, careless=careless),
                may=lambda name: (0, _drawn(name)[1]),
                seen=stock.counts,
            )
        say("done")

    believe(url)
    asyncio.run(main())


def pay(
    say: Say, url: str, cache: str | None, life: str, unknown: list[str], crowd: int, most: int, careless: bool
) -> None:
    """Withdraw, deposit and transfer until the accounts are empty."""

    async def main() -> None:
        async with opened(url, cache) as db:
            accounts = [Balance(db, f"account-{number}", limit=LIMIT) for number in range(ACCOUNTS)]

            async def seen() -> list[int]:
                return [int(str(row[0])) for row in await db.query("SELECT value FROM hotrow_balance ORDER BY name")]

            await _crowd(
                say,
                life,
                unknown,
                crowd,
                most,
                once=lambda name: _payment(accounts, name),
                may=lambda name: (-_amount(name), _amount(name)),
                seen=seen,
            )
        say("done")

    believe(url)
    asyncio.run(main())


async def _crowd(
    say: Say,
    life: str,
    unknown: list[str],
    crowd: int,
    most: int,
    *,
    once: Callable[[str], Awaitable[Effect | None]],
    may: Callable[[str], tuple[int, int]],
    seen: Callable[[], Awaitable[Sequence[int]]],
) -> None:
    begun = 0
    killed = asyncio.Event()  # Which nobody sets: who waits for it waits for the kill.

    async def purchase(name: str) -> bool:
        lowest, highest = may(name)
        say(f"?{name} {lowest} {highest}")
        effect = await once(name)
        gone, held = effect or (0, 0)
        say(f"+{name} {gone} {held}")
        return effect is not None

    async def buyer(number: int) -> None:
        nonlocal begun
        turn = 0
        while not most or begun < most:
            begun += 1
            if not await purchase(f"{'~' if number % 4 == 0 else ''}{life}/{number}/{turn}"):
                return
            turn += 1

    say(f"={json.dumps(list(await seen()))}")
    await asyncio.gather(*(purchase(name) for name in unknown))
    await asyncio.gather(*(buyer(number) for number in range(crowd)))
    if most:
        await killed.wait()
    say(f"={json.dumps(list(await seen()))}")


def _drawn(name: str) -> tuple[float, int]:
    """The kind of a purchase and its quantity: the same whenever it is repeated."""
    chance = random.Random(name)
    return chance.random(), chance.randint(1, QUANTITY_MAX)


def _amount(name: str) -> int:
    """What is paid: more than is bought, or the accounts would never be empty."""
    return 2 * _drawn(name)[1]


async def _purchase(db: Database, stock: Stock, name: str, *, careless: bool) -> Effect | None:
    """One purchase; None when there was not enough."""
    kind, quantity = _drawn(name)
    if careless:
        return None if name.endswith("/3") else await _careless(db, stock, quantity)
    if name.startswith("~"):
        return (quantity, 0) if await stock.take(quantity) else None
    if kind >= 0.5:
        return await _reserved(stock, name, kind, quantity)
    if not await stock.take(quantity, key=name):
        return None
    if kind >= 0.4:
        await stock.give_back(quantity, key=f"{name}/back")
        return 0, 0
    return quantity, 0


async def _reserved(stock: Stock, name: str, kind: float, quantity: int) -> Effect | None:
    reservation = await stock.reserve(quantity, for_s=3600, key=name)
    if reservation is None:
        return None
    if kind < 0.8:
        assert await reservation.confirm()
        return quantity, 0
    if kind < 0.9:
        assert await reservation.release()
        return 0, 0
    return 0, quantity  # Left to expire, long after this.


async def _careless(db: Database, stock: Stock, quantity: int) -> Effect | None:
    """What `take` must never be: a check and a change that somebody can come between."""
    available, _, sold = await stock.counts()
    if available < quantity:
        return None
    sql = "UPDATE hotrow_stock SET available = $1, sold = $2 WHERE name = 'sku'"
    await db.execute(sql, available - quantity, sold + quantity)
    return quantity, 0


async def _payment(accounts: list[Balance], name: str) -> Effect | None:
    """One payment; None when there was not enough."""
    kind, amount = _drawn(name)[0], _amount(name)
    giver, taker = random.Random(f"{name}?").sample(accounts, 2)
    key = None if name.startswith("~") else name
    if kind < 0.4:
        return (0, 0) if await giver.transfer(taker, amount, key=key) else None
    if kind < 0.5:
        await giver.deposit(amount, key=key)
        return -amount, 0
    return (amount, 0) if await giver.withdraw(amount, key=key) else None
