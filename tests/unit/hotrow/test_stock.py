"""Reservations by the clock of a lane (G8). The suite of all engines is in tests/conformance/hotrow."""

from pathlib import Path

from interlock.hotrow.stock import Counts, Stock
from interlock.testing.virtual_time import VirtualClock
from tests.conformance.hotrow.places import Place, run


def test_a_reservation_expires_when_the_lanes_clock_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        async with Place("memory", tmp_path, lambda _: "memory:").opened(clock=clock) as db:
            stock = Stock(db, "sku")
            await stock.add(4)
            early, late = await stock.reserve(1, for_s=60), await stock.reserve(2, for_s=60.5)
            assert early is not None
            assert late is not None
            assert repr(late).startswith(f"Reservation({late.id!r}, quantity=2, expires_at=")
            clock.now_s += 59.999
            assert await stock.left() == 1
            clock.now_s += 0.001
            assert not await early.confirm()
            assert await stock.left() == 2
            assert await late.confirm()
            assert await stock.counts() == Counts(2, 0, 2)

    run(scenario)


def test_the_clock_of_the_process_that_holds_it_does_not_count(tmp_path: Path) -> None:
    """G8: a lane's time never goes back, so a wall clock that does revives nothing."""

    async def scenario() -> None:
        clock = VirtualClock()
        async with Place("memory", tmp_path, lambda _: "memory:").opened(clock=clock) as db:
            stock = Stock(db, "sku")
            await stock.add(1)
            held = await stock.reserve(1, for_s=60)
            assert held is not None
            clock.now_s += 61
            assert await stock.left() == 1
            clock.now_s -= 61
            assert not await held.confirm()
            assert await stock.take(1)

    run(scenario)
