"""The line to the world outside: calls and answers, faults as what a step may retry, and an outage that ends."""

import asyncio
from pathlib import Path

import pytest

from interlock.cli.demo.bank import BOOKS, Bank, Books, Gateway, ShopEnd, call_at, entries
from interlock.errors import Retryable


async def _nobody_waits(_order_id: str, _asked: str) -> None:
    return


async def _insist(calling: ShopEnd, number: int) -> bool:
    for _ in range(2):
        try:
            return await calling.confirm(f"pi-order-{number}", key=f"k-{number}")
        except Retryable:
            continue
    raise AssertionError("a retry has to get through")


def test_a_line_that_is_cut_costs_nothing_twice(tmp_path: Path) -> None:
    """The second life asks again under the same keys, and is told what was done for the first."""
    books = Books(tmp_path / BOOKS)
    gateway = Gateway(Bank(books, 1))

    async def story() -> None:
        for _life in range(2):
            calling = ShopEnd(lambda _order_id: 0, _nobody_waits)
            async with gateway.line() as line:
                await call_at(line.detach(), calling)
                assert all(await asyncio.gather(*(_insist(calling, number) for number in range(100))))
                calling.close()

    asyncio.run(story())
    charged = [entry.key for entry in entries(books.path) if entry.deed == "charged"]
    assert sorted(charged) == sorted(f"k-{number}" for number in range(100))


def test_an_outage_begins_and_ends_and_says_so(tmp_path: Path) -> None:
    gateway = Gateway(Bank(Books(tmp_path / BOOKS), 1))

    async def story() -> None:
        back = asyncio.Event()
        calling = ShopEnd(lambda _order_id: 0, _nobody_waits)
        async with gateway.line() as line:
            await call_at(line.detach(), calling)
            gateway.recover_in(0, back.set)
            assert not back.is_set()  # There is nothing to recover from yet.
            gateway.fail()
            with pytest.raises(Retryable, match="503 Service Unavailable, when asked to create intent"):
                await calling.create_intent("order-1", key="k")
            assert (gateway.is_down, gateway.refused) == (True, 1)
            gateway.recover_in(0, back.set)
            await back.wait()
            assert not gateway.is_down
            assert await _insist(calling, 1)
            calling.close()

    asyncio.run(story())
