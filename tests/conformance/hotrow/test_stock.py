"""Stock on every engine: never oversold, never negative, whatever happens at once (D8).

Reservations have a file of their own.
"""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.errors import ConstraintViolation, InvalidPayload, KeyReused
from interlock.hotrow.stock import Counts, Reservation, Stock
from tests.conformance.hotrow.places import Place, run
from tests.conformance.hotrow.shelves import held, let_all_expire


def test_units_that_were_added_can_be_taken_until_none_is_left(place: Place) -> None:
    """D8, and the calls of the public surface."""

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku-1")
            assert await stock.left() == 0
            assert not await stock.take(1)
            await stock.add(5)
            assert await stock.take(2)
            assert not await stock.take(4)
            assert await stock.left() == 3
            assert await stock.take(3)
            assert not await stock.take()
            assert await stock.counts() == Counts(0, 0, 5)
            await stock.give_back(4)
            assert await stock.left() == 4
            assert await Stock(db, "sku-2").left() == 0

    run(scenario)


def test_two_hundred_buyers_at_once_sell_exactly_what_there_is(place: Place) -> None:
    """D8: at full concurrency, takes of several sizes, with refunds in between."""

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "ticket")
            await stock.add(500)

            async def buyer(number: int) -> int:
                kept, chance = 0, random.Random(number)
                for _ in range(4):
                    quantity = chance.randint(1, 3)
                    if not await stock.take(quantity):
                        continue
                    if chance.random() < 0.2:
                        await stock.give_back(quantity)
                    else:
                        kept += quantity
                return kept

            bought = sum(await asyncio.gather(*(buyer(number) for number in range(200))))
            counts = await stock.counts()
            assert counts.sold == bought
            assert counts == Counts(500 - bought, 0, bought)

    run(scenario)


def test_a_mixed_crowd_never_sees_the_sum_change(place: Place) -> None:
    """D8: what was added is available, reserved or sold, in every transaction that anybody sees."""

    async def scenario() -> None:
        async with place.opened() as db:
            stock, total = Stock(db, "seat"), 120
            await stock.add(total)
            done = asyncio.Event()

            async def watcher() -> int:
                looks = 0
                while not done.is_set() or not looks:
                    counts = await stock.counts()
                    assert sum(counts) == total
                    assert min(counts) >= 0
                    looks += 1
                return looks

            async def guest(number: int) -> int:
                reservation = await stock.reserve(2, for_s=3600)
                if reservation is None:
                    return 0
                if number % 3 == 0:
                    assert await reservation.release()
                    return 0
                assert await reservation.confirm()
                return 2

            watching = asyncio.create_task(watcher())
            sold = sum(await asyncio.gather(*(guest(number) for number in range(40))))
            done.set()
            await watching
            assert await stock.counts() == Counts(total - sold, 0, sold)

    run(scenario)


@pytest.mark.parametrize("quantity", [0, -1, 1.0, True, "1", None, 2**63])
def test_what_is_no_quantity_is_refused_before_anything_happens(place: Place, quantity: object) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            for call in (stock.add, stock.take, stock.give_back):
                with pytest.raises(ValueError, match="whole number from 1"):
                    await call(quantity)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="whole number from 1"):
                await stock.reserve(quantity, for_s=1)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="seconds"):
                await stock.reserve(1, for_s=0)

    run(scenario)


def test_more_than_was_sold_cannot_be_given_back(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(10)
            await stock.take(3)
            with pytest.raises(ConstraintViolation, match="4 of 'sku' were given back") as refused:
                await stock.give_back(4, key="refund")
            assert "new units come with add" in refused.value.fix
            with pytest.raises(ConstraintViolation):
                await stock.give_back(4, key="refund")
            assert await stock.counts() == Counts(7, 0, 3)

    run(scenario)


def test_what_could_not_be_given_back_has_not_used_its_key_up(place: Place) -> None:
    """Only a committed transaction consumes its key: a refund that overtakes its sale is accepted later."""

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(10)
            with pytest.raises(ConstraintViolation):
                await stock.give_back(4, key="refund")
            await stock.take(5)
            await stock.give_back(4, key="refund")
            await stock.give_back(4, key="refund")
            assert await stock.counts() == Counts(9, 0, 1)

    run(scenario)


def test_a_key_takes_once_and_always_gives_the_same_answer(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(3, key="delivery")
            await stock.add(3, key="delivery")
            assert await stock.take(2, key="order-1")
            assert await stock.take(2, key="order-1")
            assert await stock.left() == 1
            assert not await stock.take(2, key="order-2")
            await stock.add(10)
            assert not await stock.take(2, key="order-2")
            with pytest.raises(KeyReused):
                await stock.take(1, key="order-1")
            other = Stock(db, "sku:2")
            await other.add(1, key="delivery")
            assert await other.take(1, key="order-1")
            await stock.give_back(2, key="refund")
            await stock.give_back(2, key="refund")
            assert await stock.counts() == Counts(13, 0, 0)

    run(scenario)


def test_a_key_that_was_refused_stays_refused_though_something_expires_later(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(2)
            await held(stock, 2)
            assert not await stock.take(1, key="order")
            assert await stock.reserve(1, for_s=60, key="hold") is None
            await let_all_expire(db)
            assert not await stock.take(1, key="order")
            assert await stock.reserve(1, for_s=60, key="hold") is None
            assert await stock.take(1, key="another")

    run(scenario)


@pytest.mark.parametrize("key", ["k" * 500, "k" * 10_000, "a:b:c", "%3A"])
def test_any_text_is_a_key(place: Place, key: str) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(4)
            assert await stock.take(1, key=key)
            assert await stock.take(1, key=key)
            assert await stock.take(1, key=key + "!")
            assert await stock.left() == 2
            with pytest.raises(InvalidPayload, match="must be a text"):
                await stock.take(1, key="")

    run(scenario)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_processes_that_come_first_at_the_same_time_make_the_tables_once(place: Place) -> None:
    """On PostgreSQL even CREATE TABLE IF NOT EXISTS fails when two sessions run it at once."""

    async def scenario() -> None:
        async with AsyncExitStack() as opened:
            databases = [await opened.enter_async_context(place.opened()) for _ in range(8)]
            await asyncio.gather(*(Stock(db, "sku").add(1) for db in databases))
            held_ones = await asyncio.gather(*(Stock(db, "sku").reserve(1, for_s=60) for db in databases))
            assert all(held_ones)
            assert await Stock(databases[0], "sku").counts() == Counts(0, 8, 0)

    run(scenario)


@pytest.mark.parametrize("name", ["", "x" * 501, "a\x00b", "\ud800", 7])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidPayload, match="1 to 500 characters"):
        Stock(None, name)  # type: ignore[arg-type]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "give_back", "reserve", "confirm", "release", "lapse", "expire"]),
        st.integers(1, 6),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
def test_any_sequence_of_calls_agrees_with_three_numbers(
    actions: list[tuple[str, int]], tmp_path_factory: object
) -> None:
    """D8 against a model that is three numbers and a list, in memory."""

    async def scenario() -> None:
        async with Place("memory", tmp_path_factory, lambda _: "memory:").opened() as db:  # type: ignore[arg-type]
            stock = Stock(db, "sku")
            available = sold = 0
            open_ones: list[Reservation] = []
            for action, n in actions:
                if action == "add":
                    await stock.add(n)
                    available += n
                elif action == "take":
                    assert await stock.take(n) is (available >= n)
                    available, sold = (available - n, sold + n) if available >= n else (available, sold)
                elif action == "give_back" and sold >= n:
                    await stock.give_back(n)
                    available, sold = available + n, sold - n
                elif action == "reserve":
                    reservation = await stock.reserve(n, for_s=60)
                    assert (reservation is not None) is (available >= n)
                    if reservation is not None:
                        open_ones.append(reservation)
                        available -= n
                elif action in {"confirm", "release"} and open_ones:
                    reservation = open_ones.pop(n % len(open_ones))
                    assert await (reservation.confirm() if action == "confirm" else reservation.release())
                    sold += (reservation.quantity or 0) if action == "confirm" else 0
                    available += (reservation.quantity or 0) if action == "release" else 0
                elif action == "lapse" and open_ones:
                    await let_all_expire(db)
                    available += sum(reservation.quantity or 0 for reservation in open_ones)
                    open_ones.clear()
                elif action == "expire":
                    await stock.expire()
                counts = await stock.counts()
                assert sum(counts) == available + sold + sum(reservation.quantity or 0 for reservation in open_ones)
                assert (await stock.left(), counts.sold) == (available, sold)

    run(scenario)
