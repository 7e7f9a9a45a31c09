"""Helpers where they do not belong, or were not first used: inside a transaction, and in another event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import TransactionError
from tests.conformance.hotrow.places import LEASE_S, PATIENCE_S, Place, run

CALLS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "counter.add": lambda db: db.counter("n").add(1),
    "counter.add, sharded": lambda db: db.counter("n", kind="sharded").add(1),
    "counter.add, with a key": lambda db: db.counter("n").add(1, key="k"),
    "counter.value": lambda db: db.counter("n").value(),
    "stock.add": lambda db: db.stock("n").add(1),
    "stock.left": lambda db: db.stock("n").left(),
    "balance.deposit": lambda db: db.balance("n").deposit(1),
    "quota.take": lambda db: db.quota("n", limit=1, window_s=60).take(),
    "parent.touch": lambda db: db.parent("n").touch(),
}


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_helper_inside_a_transaction_is_refused_with_the_reason(place: Place, *, first: bool) -> None:
    """D17: whether its tables are there already or not, the reason is the same, and nothing has happened."""

    async def scenario() -> None:
        async with place.opened(counter_shard_count=2) as db:
            for call in () if first else CALLS.values():
                await call(db)
            for name, call in CALLS.items():

                async def inside(_tx: Transaction, call: Callable[[Database], Awaitable[object]] = call) -> None:
                    await call(db)

                with pytest.raises(TransactionError) as refused:
                    await db.transact(inside)
                assert "was used inside a transaction of" in refused.value.what, name
            assert await db.stock("n").left() == (0 if first else 1)

    run(scenario)


def test_helpers_go_on_in_another_event_loop(place: Place) -> None:
    """A program that calls asyncio.run several times uses one database in all of them."""

    async def opened() -> Database:
        return await Database.open(place.url("x"), cache=str(place.folder), counter_shard_count=2, lease_s=LEASE_S)

    async def crowd(call: Callable[[], Awaitable[object]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*[call() for _ in range(10)])

    db = asyncio.run(opened())
    for call in CALLS.values():
        asyncio.run(crowd(partial(call, db)))
    assert asyncio.run(db.stock("n").left()) == 10
    asyncio.run(db.close())
