"""Walks without a screen, and a look into what they have stored."""

import asyncio
from pathlib import Path

from interlock.cli.demo.bank import home_in
from interlock.cli.demo.outcome import OrderHistory, Outcome
from interlock.cli.demo.verify import verify
from interlock.cli.demo.walk import Walk
from interlock.engine.engine import Engine
from interlock.engine.views import View
from interlock.examples.order import Order, State, order


def walked(folder: Path, orders: int, seed: int = 1) -> Walk:
    """A walk that is over."""
    walk = Walk(orders, seed, folder)
    asyncio.run(walk.run(lambda _: None))
    walk.close()
    return walk


def verified(walk: Walk) -> Outcome:
    """What is to be said of it."""
    asyncio.run(verify(walk))
    return walk.outcome


def stored(folder: Path, order_id: str) -> tuple[View[State, Order], OrderHistory]:
    """An order and its history."""

    async def read() -> tuple[View[State, Order], OrderHistory]:
        async with Engine.open(home_in(folder), machines=[order], worker=False) as engine:
            return await engine.of(order).get(order_id), await engine.of(order).history(order_id)

    return asyncio.run(read())
