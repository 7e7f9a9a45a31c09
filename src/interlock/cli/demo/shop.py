"""The worker process of the demo, which is killed: an engine on a lane, the customers and the dashboard.

The customers order, pay, cancel, ask for refunds, and send invalid events. In the next life of the worker they resume
their orders from the store, which is all that it knows of an earlier life. Every paid order is counted in one hot row.
The order's id is the idempotency key, so a repetition after a kill counts no order twice.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import zlib
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from interlock.cli.demo.bank import ShopEnd, call_at, home_in
from interlock.cli.demo.news import BANK, PAID, TILL, Life, News, serving
from interlock.cli.demo.outcome import Faulty
from interlock.cli.demo.scenario import Journey, Scenario, hopeless, stray, stuck_of, wish
from interlock.clock import SystemChance
from interlock.core.events import wire_name
from interlock.core.policies import Breaker, Dependency
from interlock.database.database import Database
from interlock.engine.engine import Engine
from interlock.engine.views import View
from interlock.errors import Refusal
from interlock.examples.order import Order, OrderEvent, State, order
from interlock.examples.world import world
from interlock.hotrow.counters.counter import Counter
from interlock.server.running import run_until_stopped
from interlock.signals import BreakerChanged, Signal, TransitionApplied, TransitionRejected

# --- Customers -------------------------------------------------------------------------------------------------------

IN_FLIGHT_MAX = 400
PATIENCE_S = 60.0
STALL_S = 1.5
"""The age in seconds from which an order on the packing table counts as stalled."""
LOOK_EVERY_S = 0.1
PAID_STATES = frozenset(
    {
        State.PAID,
        State.FULFILLMENT_PENDING,
        State.SHIPPED,
        State.DELIVERED,
        State.REFUND_PENDING,
        State.REFUNDED,
    }
)
"""The states that only paid orders reach."""


class InFlight:
    """An order that is not finished, as its customer knows it."""

    __slots__ = ("arrived", "counted", "journey", "spoken", "state", "strayed", "version")

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.version = 0
        self.state = State.PENDING
        self.arrived = asyncio.Event()
        """Set when the order has changed its state."""
        self.counted = False
        """Whether the counter of paid orders includes it."""
        self.strayed = False
        self.spoken = asyncio.Event()
        """Set when the customer has sent the invalid event, and the bank may answer."""


class Shop:
    """All customers of one life."""

    def __init__(self, news: News, orders: int, seed: int) -> None:
        self._news = news
        self._orders = orders
        self._journeys = Scenario(SystemChance(seed)).journeys(orders)
        self._started: dict[str, InFlight] = {}
        self._flying: dict[str, InFlight] = {}
        """Orders whose customers know their state."""
        self._missed: dict[str, asyncio.Event] = {}
        """Orders of an earlier life whose customers have not resumed them yet."""
        self._explained: set[str] = set()
        self._stuck: set[str] = set()
        self._at_table: set[str] = set()
        """Stuck orders whose customers wait at the packing table. On a slow machine the engine lists them first."""
        self._all_there = asyncio.Event()
        """Set when every order was started or found finished."""
        self._scanned = asyncio.Event()
        """Set when the packing table is fixed."""

    def __call__(self, signal: Signal, /) -> None:
        """Observe a signal of the engine."""
        if isinstance(signal, TransitionApplied):
            self._news.tell("T", signal.workflow, signal.version, signal.to_state, signal.event)
            flying = self._started.get(signal.workflow)
            if flying is not None:
                flying.version, flying.state = signal.version, State(signal.to_state)
                flying.arrived.set()
        elif isinstance(signal, TransitionRejected):
            self._news.tell("R", signal.workflow, signal.code)
        elif isinstance(signal, BreakerChanged):
            self._news.tell("B", signal.dependency, signal.after)

    # --- callbacks of the gateway ------------------------------------------------------------------------------------

    def declines(self, order_id: str) -> int:
        """Return how often the bank declines the card of this order's customer."""
        return self._flying[order_id].journey.declines

    async def waits(self, order_id: str, operation: str) -> None:
        """Wait until the customer has sent the events that come before this operation."""
        while (flying := self._flying.get(order_id)) is None:
            await self._missed.setdefault(order_id, asyncio.Event()).wait()
        journey = flying.journey
        if (operation == "confirm" and journey.cancel_in is State.PAYMENT_PROCESSING) or (
            operation == "reserve" and journey.refund_in is State.PAID
        ):
            await asyncio.Event().wait()  # The customer's event comes first, and cancels this call.
        if journey.stray_in is flying.state and not flying.strayed:
            await flying.spoken.wait()

    # --- customers ---------------------------------------------------------------------------------------------------

    async def serve(self, engine: Engine, paid: Counter, *, looks_after_stalls: bool) -> None:
        """Complete every order; orders of an earlier life continue from their stored state."""
        stored = await _load_states(engine)
        room = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as group:
            if looks_after_stalls and stuck_of(self._orders):
                group.create_task(self._look_after_stalls(engine))
            for order_id, journey in self._journeys:
                state = stored.pop(order_id, None)
                if journey.stuck:
                    self._stuck.add(order_id)
                await room.acquire()
                rests = state is not None and _is_at_rest(journey, state)
                ends = self._rested(order_id, state, paid) if rests else self._order(engine, order_id, journey, paid)
                customer = group.create_task(ends)
                customer.add_done_callback(lambda _task: room.release())
            self._all_there.set()
        self._news.tell("E")

    async def _rested(self, order_id: str, state: State | None, paid: Counter) -> None:
        """Report an order that an earlier life has completed. Count it again: it is unknown whether it was counted."""
        if state in PAID_STATES:
            await paid.add(1, key=order_id)
            self._news.tell("P", order_id)
        self._news.tell("D", order_id)

    async def _order(self, engine: Engine, order_id: str, journey: Journey, paid: Counter) -> None:
        begun = Order(order_id=order_id, user_id=f"user-{zlib.crc32(order_id.encode()) % 997}", items=journey.items)
        # Registered before the start: the order may move between the engine's answer and the moment it is read.
        flying = self._started[order_id] = InFlight(journey)
        now = await engine.start(order, order_id, begun)
        self._news.tell("A", order_id, now.version, now.state.value)
        if flying.version < now.version:
            flying.version, flying.state = now.version, now.state
        self._flying[order_id] = flying
        if order_id in self._missed:
            self._missed.pop(order_id).set()
        while True:
            flying.arrived.clear()
            if now.state in PAID_STATES and not flying.counted:
                await paid.add(1, key=order_id)
                flying.counted = True
                self._news.tell("P", order_id)
            if _is_at_rest(journey, now.state):
                break
            event = await self._speak(engine, flying, now)
            if event is not None:
                moved = await engine.send(order_id, event, key=f"{now.state.value}-{now.version}")
                self._news.tell("A", order_id, moved.version, moved.state.value)
            elif flying.version <= now.version and not await _is_set_in_time(flying.arrived):
                self._news.tell("!", order_id, f"it has not left {now.state.value} for {PATIENCE_S:g} s")
                return
            now = await engine.of(order).get(order_id)
        if journey.stray_in is now.state:
            await self._stray(engine, flying, order_id)
        del self._flying[order_id], self._started[order_id]
        self._news.tell("D", order_id)

    async def _speak(self, engine: Engine, flying: InFlight, now: View[State, Order]) -> OrderEvent | None:
        """Send the events that are refused; return the one that is accepted, if the customer sends it."""
        if flying.journey.stray_in is now.state:
            await self._stray(engine, flying, now.id)
        vain = hopeless(now.state, now.context)
        if vain is not None:
            await self._refused(engine, now.id, vain)
        if flying.journey.stuck and now.state is State.FULFILLMENT_PENDING and not self._scanned.is_set():
            self._news.tell("H", now.id)
            self._at_table.add(now.id)
            await self._scanned.wait()
        return wish(flying.journey, now.state, now.context)

    async def _stray(self, engine: Engine, flying: InFlight, order_id: str) -> None:
        if not flying.strayed:
            assert flying.journey.stray_in is not None
            await self._refused(engine, order_id, stray(flying.journey.stray_in, flying.journey.luck))
            flying.strayed = True
            flying.spoken.set()

    async def _refused(self, engine: Engine, order_id: str, event: OrderEvent) -> None:
        try:
            await engine.send(order_id, event)
        except Refusal as refusal:
            if refusal.code not in self._explained:
                self._explained.add(refusal.code)
                text = msgspec.json.encode([refusal.what, refusal.why, refusal.fix]).decode()
                self._news.tell("X", refusal.code, text)
            self._news.flush()
        else:
            self._news.tell("!", order_id, f"{wire_name(type(event))} was accepted where it has no business")

    # --- the operator ------------------------------------------------------------------------------------------------

    async def _look_after_stalls(self, engine: Engine) -> None:
        """List stalled orders until all stuck ones are found; then fix the packing table."""
        listed: set[str] = set()
        older_than_s = min(STALL_S, self._orders / 1_000)
        while not (self._stuck <= listed & self._at_table and self._stuck_are_known):
            await asyncio.sleep(LOOK_EVERY_S)
            late = await engine.stalled(order, older_than_s=older_than_s, states=[State.FULFILLMENT_PENDING])
            for view in late:
                if view.id in self._stuck and view.id not in listed:
                    listed.add(view.id)
                    self._news.tell("S", view.id)
        self._news.tell("L")
        self._scanned.set()

    @property
    def _stuck_are_known(self) -> bool:
        return len(self._stuck) == stuck_of(self._orders) or self._all_there.is_set()


async def _is_set_in_time(event: asyncio.Event) -> bool:
    """Wait for the event; return False after PATIENCE_S, so that a failing demo ends."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await event.wait()
    except TimeoutError:
        return False


async def _load_states(engine: Engine) -> dict[str, State]:
    found: dict[str, State] = {}
    cursor: str | None = None
    while True:
        page = await engine.find(order, limit=1_000, cursor=cursor)
        found.update((view.id, view.state) for view in page.items)
        cursor = page.cursor
        if cursor is None:
            return found


def _is_at_rest(journey: Journey, state: State) -> bool:
    return state in {State.CANCELLED, State.REFUNDED} or (
        state is State.DELIVERED and journey.refund_in is not State.DELIVERED
    )


# --- Program ---------------------------------------------------------------------------------------------------------
# It writes news to its standard output. It ends when its standard input closes, so it never outlives its parent. It
# ignores Ctrl-C, which the parent handles.

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
    calling = ShopEnd(shop.declines, shop.waits)
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
    """`python -m interlock.cli.demo.shop LIFE`, with the life as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    # The demo reports the open breaker itself, so its alert is not logged.
    logging.getLogger("interlock.alerts").addHandler(logging.NullHandler())
    life = msgspec.json.decode(sys.argv[1], type=Life)
    run_until_stopped(live(life, News(1)))


if __name__ == "__main__":
    main()
