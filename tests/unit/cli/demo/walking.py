"""Walks without a screen, and a look into what they have stored."""

import asyncio
from pathlib import Path

from interlock.cli.demo.journeys import home_in
from interlock.cli.demo.kill_and_resume import OrdersWalk
from interlock.cli.demo.outcome import OrderHistory, Outcome
from interlock.cli.demo.verify import verify
from interlock.engine.engine import Engine
from interlock.engine.views import View
from interlock.examples.order import Order, State, order
from interlock.testing.faults import Processes


def walked(folder: Path, orders: int, seed: int = 1) -> OrdersWalk:
    """A walk that is over."""
    with Processes() as processes:
        walk = OrdersWalk(orders, seed, folder, processes)
        asyncio.run(walk.run(lambda _: None))
    return walk


def verified(walk: OrdersWalk) -> Outcome:
    """What is to be said of it."""
    asyncio.run(verify(walk))
    return walk.outcome


def stored(folder: Path, order_id: str) -> tuple[View[State, Order], OrderHistory]:
    """An order and its history."""

    async def read() -> tuple[View[State, Order], OrderHistory]:
        async with Engine.open(home_in(folder), machines=[order], worker=False) as engine:
            return await engine.of(order).get(order_id), await engine.of(order).history(order_id)

    return asyncio.run(read())
