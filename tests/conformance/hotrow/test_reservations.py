"""Reservations on every engine: confirmed, released or expired, one of the three and once (D8).

Time passes by a statement that makes reservations due: no test waits for a clock.
"""

import asyncio

import pytest

from interlock.errors import InvalidPayload
from interlock.hotrow import stock as module
from interlock.hotrow.stock import Counts, Stock
from tests.conformance.hotrow.places import Place, run
from tests.conformance.hotrow.shelves import held, let_all_expire


def test_a_reservation_is_confirmed_or_released_once(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(10)
            first, second = await held(stock, 4), await held(stock, 5)
            assert (first.quantity, first.expires_at is not None) == (4, True)
            assert await stock.counts() == Counts(1, 9, 0)
            assert await stock.reserve(2, for_s=60) is None
            assert await first.confirm()
            assert not await first.release()
            assert await second.release()
            assert not await second.confirm()
            assert await stock.counts() == Counts(6, 0, 4)
            # Whoever did not hear the answer asks again, and hears the same.
            assert await first.confirm()
            assert await second.release()
            assert await stock.counts() == Counts(6, 0, 4)

    run(scenario)


def test_a_reservation_is_found_again_by_its_id_after_a_restart(kept: Place) -> None:
    async def scenario() -> None:
        async with kept.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(3)
            identifier = (await held(stock, 2, key="cart-7")).id
        async with kept.opened() as db:
            stock = Stock(db, "sku")
            assert (await held(stock, 2, key="cart-7")).id == identifier
            assert await stock.reservation(identifier).confirm()
            assert await stock.counts() == Counts(1, 0, 2)
        async with kept.opened() as db:
            assert await Stock(db, "sku").reservation(identifier).confirm()

    run(scenario)


def test_an_id_of_another_stock_or_of_none_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            one, other = Stock(db, "one"), Stock(db, "other")
            await one.add(1)
            reservation = await held(one, 1)
            assert not await other.reservation(reservation.id).confirm()
            assert not await one.reservation("00000000-0000-4000-8000-000000000000").release()
            with pytest.raises(InvalidPayload, match="'seven' is not the id of a reservation"):
                one.reservation("seven")
            assert await reservation.confirm()

    run(scenario)


def test_what_has_expired_goes_back_by_itself(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(6)
            reservations = [await held(stock, 2) for _ in range(3)]
            assert not await stock.take(1)
            await let_all_expire(db)
            assert not await reservations[0].confirm()
            assert await stock.take(5)  # Who finds too little looks for what has expired.
            assert await stock.counts() == Counts(1, 0, 5)
            await held(stock, 1)
            await let_all_expire(db)
            assert await stock.left() == 1  # So does who asks.
            again = await held(stock, 1)
            await let_all_expire(db)
            assert (await held(stock, 1)).id != again.id  # So does who reserves.
            await let_all_expire(db)
            assert await stock.expire() == 1
            assert await stock.expire() == 0
            assert not await again.release()
            assert await stock.counts() == Counts(1, 0, 5)

    run(scenario)


def test_a_reservation_of_another_stock_is_left_alone_by_expire(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as db:
            one, other = Stock(db, "one"), Stock(db, "other")
            await one.add(1)
            await other.add(1)
            await held(one, 1)
            await held(other, 1)
            await let_all_expire(db)
            assert await one.expire() == 1
            assert await other.counts() == Counts(0, 1, 0)

    run(scenario)


def test_one_call_gives_back_a_bounded_number(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: also when all of them expire at the same instant."""
    monkeypatch.setattr(module, "EXPIRED_MAX", 4)

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(10)
            await asyncio.gather(*(held(stock, 1) for _ in range(10)))
            await let_all_expire(db)
            assert [await stock.expire() for _ in range(4)] == [4, 4, 2, 0]
            assert await stock.counts() == Counts(10, 0, 0)

    run(scenario)


def test_confirming_and_expiring_at_once_do_one_of_the_two(place: Place) -> None:
    """D8: whoever comes first, units are sold or back, never both."""

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(12)
            reservations = [await held(stock, 1) for _ in range(12)]

            async def expiring() -> bool:
                await let_all_expire(db)
                await stock.expire()
                return False

            confirmed = await asyncio.gather(
                *(reservation.confirm() for reservation in reservations[:6]),
                expiring(),
                *(reservation.confirm() for reservation in reservations[6:]),
            )
            await stock.expire()
            assert await stock.counts() == Counts(12 - sum(confirmed), 0, sum(confirmed))

    run(scenario)


def test_everybody_who_comes_for_what_has_expired_gets_his_unit(place: Place) -> None:
    """D8: who finds too little while another gives back what has expired is not sent away with units left."""

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(20)
            for _ in range(20):
                await held(stock, 1)
            await let_all_expire(db)
            taken = await asyncio.gather(*[stock.take(1) for _ in range(10)])
            reserved = await asyncio.gather(*[stock.reserve(1, for_s=60) for _ in range(10)])
            assert (sum(taken), len([each for each in reserved if each is not None])) == (10, 10)
            assert await stock.counts() == Counts(0, 10, 10)

    run(scenario)


def test_all_that_has_expired_can_be_taken_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """D8: one transaction gives back a bounded number, and a caller needs what several of them give back."""
    monkeypatch.setattr(module, "EXPIRED_MAX", 3)

    async def scenario() -> None:
        async with place.opened() as db:
            stock = Stock(db, "sku")
            await stock.add(10)
            for again in range(3):
                for _ in range(10):
                    await held(stock, 1)
                await let_all_expire(db)
                match again:
                    case 0:
                        assert await stock.left() == 10
                    case 1:
                        assert await (await held(stock, 10)).release()
                    case _:
                        assert await stock.take(10)
            assert await stock.counts() == Counts(0, 0, 10)

    run(scenario)
