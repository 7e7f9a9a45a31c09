"""The process that the demo kills: an engine on a lane, the customers whose orders it moves, and the dashboard.

It speaks through its standard output, a line per piece of news, and only of what is certain: a move when it is durable,
an acknowledgement when the customer has it. It knows nothing of an earlier life but what the store has kept. It ends
when its standard input does, so that nobody leaves it behind, and leaves Ctrl-C to whoever started it.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from interlock.cli.demo.bank import home_in
from interlock.cli.demo.dashboard import serving
from interlock.cli.demo.gateway import Calling, call_at
from interlock.cli.demo.life import BANK, PAID, TILL, Life
from interlock.cli.demo.news import News
from interlock.cli.demo.observers import Faulty
from interlock.cli.demo.shop import IN_FLIGHT_MAX, Shop
from interlock.core.breakers import Breaker
from interlock.core.policies import Dependency
from interlock.database.database import Database
from interlock.examples.order import order
from interlock.examples.world import world
from interlock.runtime.engine import Engine
from interlock.server.running import run_until_stopped

# The world of the demo fails now and then, and with hundreds of calls at once five in a row come by soon: a share says
# more. Its outage is short, so a probe comes soon.
_BREAKER = Breaker(failure_rate=0.5, reset_s=0.5)
OUTSIDE = [Dependency(name, IN_FLIGHT_MAX, breaker=_BREAKER, budget=1) for name in (BANK, "warehouse")]


async def live(life: Life, news: News) -> None:
    """Live it."""
    began_s = time.perf_counter()
    home = home_in(Path(life.folder))
    shop = Shop(news, life.orders, life.seed)
    faulty = Faulty(lambda: news.tell("F"))
    calling = Calling(shop.declines, shop.waits)
    world.payments = world.warehouse = calling
    async with AsyncExitStack() as held:
        await call_at(life.line, calling)
        held.callback(calling.close)
        engine = await held.enter_async_context(
            Engine.open(home, machines=[order], dependencies=OUTSIDE, observers=[faulty, shop])
        )
        till = await held.enter_async_context(Database.open(TILL, home=home))
        await held.enter_async_context(serving(engine, {TILL: till}, life.dashboard))
        news.tell("O", f"{time.perf_counter() - began_s:.6f}")
        news.flush()
        if life.part != "shows":
            paid = till.counter(PAID, kind="exact")
            await shop.serve(engine, paid, looks_after_stalls=life.part == "ends")
            news.flush()
        if life.part != "ends":
            await asyncio.Event().wait()  # Whoever is going to kill this process may do so at any time.


def _leave_with_parent() -> None:
    """End when nobody is there any more to listen."""
    while os.read(0, 1_024):
        pass
    os._exit(0)


def main() -> None:
    """`python -m interlock.cli.demo.worker LIFE`, with the life as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    # An open breaker is part of the show, and told there.
    logging.getLogger("interlock.alerts").addHandler(logging.NullHandler())
    life = msgspec.json.decode(sys.argv[1], type=Life)
    run_until_stopped(live(life, News(1)))


if __name__ == "__main__":
    main()
