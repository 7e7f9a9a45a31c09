"""The program of `test_families_killed`: it starts an order, ends its parcels, and may be killed anywhere.

It prints a line for each group of ends that was acknowledged, so that the test knows how far it is.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from interlock import Engine
from interlock.errors import Refusal, UnavailableError
from tests.conformance.engine.families import Order, OrderState, Packed, Pay, orders, parcels

GROUP = 20
GROUPS_MAX = 200


Result = TypeVar("Result")


def say(line: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(url: str, count: int) -> None:
    """Take the order as far as possible, and print how far it is."""
    parcel = parcels()
    order = orders(parcel)
    names = tuple(f"s{number}" for number in range(count))
    size = max(GROUP, count // GROUPS_MAX)
    async with Engine.open(url, machines=[order, parcel], lease_s=2.0) as engine:
        await persist(lambda: engine.start(order, "o", Order(names)))
        await persist(lambda: engine.send("o", Pay(), key="pay"))
        say("paid")
        begin = 0
        while begin < count:
            group = [(f"o.{name}", Packed(), "packed") for name in names[begin : begin + size]]
            answers = await persist(lambda: engine.send_many(group))  # noqa: B023 -- it is called in this round.
            errors = [getattr(each, "error", None) for each in answers]
            if any(isinstance(each, Refusal) for each in errors):
                raise SystemExit(f"refused: {errors}")
            if any(errors):
                await asyncio.sleep(0.01)  # Some have not started yet, or the store is away.
                continue
            begin += size
            say(f"ended {begin}")
        view = await persist(lambda: engine.wait("o", OrderState.SHIPPED))
        assert isinstance(view.context, Order)
        say(f"joined {view.context.sent}")


async def persist(call: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a call, with the same key, until the store answers."""
    while True:
        try:
            return await call()
        except UnavailableError:
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
