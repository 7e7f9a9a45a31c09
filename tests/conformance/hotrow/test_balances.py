"""Balances on every engine: never stale, never below the limit, transfers whole or not at all (D15, D17)."""

import asyncio
import random

import pytest

from interlock.errors import KeyReused, TransactionError
from interlock.hotrow.balances import Balance
from tests.conformance.hotrow.places import Place, run


def test_a_balance_never_goes_below_its_limit(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            alice = Balance(db, "alice")
            assert await alice.value() == 0
            assert not await alice.withdraw(1)
            await alice.deposit(10)
            assert await alice.withdraw(7)
            assert not await alice.withdraw(4)
            assert await alice.withdraw(3)
            assert await alice.value() == 0

    run(scenario)


def test_a_negative_limit_is_credit_also_for_who_never_paid_in(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            bob = Balance(db, "bob", limit=-5)
            assert not await bob.withdraw(6)
            assert await bob.withdraw(2)
            assert await bob.withdraw(3)
            assert not await bob.withdraw(1)
            assert await bob.value() == -5
            reserve = Balance(db, "reserve", limit=100)
            await reserve.deposit(150)
            assert not await reserve.withdraw(51)
            assert await reserve.withdraw(50)

    run(scenario)


def test_a_crowd_withdraws_exactly_what_is_there(place: Place) -> None:
    """D15: at full concurrency, deposits in between."""

    async def scenario() -> None:
        async with place.opened() as db:
            shared = Balance(db, "shared", limit=-20)

            async def member(number: int) -> int:
                chance, moved = random.Random(number), 0
                for _ in range(4):
                    amount = chance.randint(1, 9)
                    if number % 4 == 0:
                        await shared.deposit(amount)
                        moved += amount
                    elif await shared.withdraw(amount):
                        moved -= amount
                    assert await shared.value() >= -20
                return moved

            moved = sum(await asyncio.gather(*(member(number) for number in range(100))))
            assert await shared.value() == moved
            assert moved >= -20

    run(scenario)


def test_transfers_in_all_directions_keep_the_sum(place: Place) -> None:
    """D15: pairs that pay each other at the same time neither deadlock nor lose anything."""

    async def scenario() -> None:
        async with place.opened() as db:
            names = ["a", "b", "c"]
            accounts = [Balance(db, name) for name in names]
            for account in accounts:
                await account.deposit(30)

            async def payer(number: int) -> None:
                chance = random.Random(number)
                for _ in range(3):
                    giver, taker = chance.sample(accounts, 2)
                    await giver.transfer(taker, chance.randint(1, 20))

            async def watcher() -> None:
                for _ in range(10):
                    rows = await db.query("SELECT value FROM hotrow_balance ORDER BY name")
                    values = [row[0] for row in rows]
                    assert sum(int(str(value)) for value in values) == 90
                    assert min(int(str(value)) for value in values) >= 0

            await asyncio.gather(*(payer(number) for number in range(24)), watcher())
            assert sum([await account.value() for account in accounts]) == 90

    run(scenario)


def test_a_transfer_moves_all_or_nothing(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            rich, poor = Balance(db, "rich"), Balance(db, "poor")
            await rich.deposit(10)
            assert not await rich.transfer(poor, 11)
            assert (await rich.value(), await poor.value()) == (10, 0)
            assert await rich.transfer(poor, 4)
            assert not await poor.transfer(rich, 5)
            assert (await rich.value(), await poor.value()) == (6, 4)
            indebted = Balance(db, "new", limit=-3)
            assert await indebted.transfer(rich, 3)
            assert (await indebted.value(), await rich.value()) == (-3, 9)

    run(scenario)


def test_keys_make_each_call_happen_once_with_one_answer(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            one, other = Balance(db, "one"), Balance(db, "other", limit=-1)
            for _ in range(2):
                await one.deposit(5, key="first")
            for _ in range(2):
                await one.deposit(5, key="second")
            assert [await one.withdraw(4, key="w") for _ in range(2)] == [True, True]
            assert [await one.withdraw(7, key="much") for _ in range(2)] == [False, False]
            assert [await one.transfer(other, 2, key="t") for _ in range(2)] == [True, True]
            assert [await one.transfer(other, 9, key="t2") for _ in range(2)] == [False, False]
            assert [await other.withdraw(3, key="w") for _ in range(2)] == [True, True]
            await one.deposit(100)
            assert not await one.withdraw(7, key="much")
            assert not await one.transfer(other, 9, key="t2")
            assert (await one.value(), await other.value()) == (104, -1)
            with pytest.raises(KeyReused):
                await one.withdraw(5, key="w")

    run(scenario)


def test_a_transfer_over_two_databases_is_refused_with_the_reason(place: Place) -> None:
    """D17."""

    async def scenario() -> None:
        async with place.opened("here") as here, place.opened("there") as there:
            one, other = Balance(here, "a"), Balance(there, "b")
            await one.deposit(5)
            with pytest.raises(TransactionError, match="a transaction cannot span databases") as refused:
                await one.transfer(other, 1)
            assert "Each database commits alone" in refused.value.why
            assert await one.value() == 5
            with pytest.raises(ValueError, match="to itself"):
                await one.transfer(Balance(here, "a"), 1)

    run(scenario)


@pytest.mark.parametrize("amount", [0, -5, 0.5, False, 2**63])
def test_what_is_no_amount_is_refused(place: Place, amount: object) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            one, other = Balance(db, "one"), Balance(db, "other")
            for call in (one.deposit, one.withdraw):
                with pytest.raises(ValueError, match="whole number from 1"):
                    await call(amount)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="whole number from 1"):
                await one.transfer(other, amount)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="whole number"):
                await Balance(db, "one", limit=2**62).withdraw(2**62)

    run(scenario)
