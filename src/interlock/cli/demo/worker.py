"""The worker process of the demo, which is killed: an engine on a lane, the customers and the dashboard.

It writes news to its standard output, one line each, and only of facts: a durable transition, an acknowledgement that
the customer has received. It knows of an earlier life only what the store has kept. It ends when its standard input
closes, so it never outlives its parent. It ignores Ctrl-C, which the parent handles.
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

# Single calls fail regularly, and with hundreds of concurrent calls five failures in a row are frequent. So the breaker
# uses a failure rate. The outage is short, so the breaker probes early.
_BREAKER = Breaker(failure_rate=0.5, reset_s=0.5)
OUTSIDE = [Dependency(name, IN_FLIGHT_MAX, breaker=_BREAKER, budget=1) for name in (BANK, "warehouse")]


async def live(life: Life, news: News) -> None:
    """Run one life of the worker."""
    began_s = time.perf_counter()
    home = home_in(Path(life.folder))
    shop = Shop(news, life.orders, life.seed)
    faulty = Faulty(lambda: news.tell("F"))
    calling = Calling(shop.declines, shop.waits)
    world.payments = world.warehouse = calling
    async with AsyncExitStack() as stack:
        await call_at(life.line, calling)
        stack.callback(calling.close)
        engine = await stack.enter_async_context(
            Engine.open(home, machines=[order], dependencies=OUTSIDE, observers=[faulty, shop])
        )
        till = await stack.enter_async_context(Database.open(TILL, home=home))
        await stack.enter_async_context(serving(engine, {TILL: till}, life.dashboard))
        news.tell("O", f"{time.perf_counter() - began_s:.6f}")
        news.flush()
        if life.part != "shows":
            paid = till.counter(PAID, kind="exact")
            await shop.serve(engine, paid, looks_after_stalls=life.part == "ends")
            news.flush()
        if life.part != "ends":
            await asyncio.Event().wait()  # Wait for the parent's SIGKILL.


def _leave_with_parent() -> None:
    """End the process when the parent closes its standard input."""
    while os.read(0, 1_024):
        pass
    os._exit(0)


def main() -> None:
    """`python -m interlock.cli.demo.worker LIFE`, with the life as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    # The demo reports the open breaker itself, so its alert is not logged.
    logging.getLogger("interlock.alerts").addHandler(logging.NullHandler())
    life = msgspec.json.decode(sys.argv[1], type=Life)
    run_until_stopped(live(life, News(1)))


if __name__ == "__main__":
    main()
