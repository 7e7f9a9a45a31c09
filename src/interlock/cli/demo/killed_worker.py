"""The worker process of the demo, which is killed: an engine on a lane, the customers and the dashboard.

The customers order, pay, cancel, ask for refunds, and send invalid events. In the next life of the worker they resume
their orders from the store, which is all that it knows of an earlier life. Every paid order is counted in one hot row.
The order's id is the idempotency key, so a repetition after a kill counts no order twice.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import msgspec

from interlock.chaos.shop import view_pages
from interlock.chaos.worker_messages import PendingCalls
from interlock.cli.demo.journeys import (
    BankCall,
    Journey,
    Operation,
    Verdict,
    WorkerPart,
    home_in,
    hopeless,
    journeys,
    stray,
    stuck_of,
    wish,
)
from interlock.cli.demo.outcome import BANK, PAID, TILL, Faulty
from interlock.core.events import wire_name
from interlock.core.policies import Breaker, Dependency
from interlock.database.database import Database
from interlock.engine.engine import Engine
from interlock.engine.views import View
from interlock.errors import Refusal, Retryable
from interlock.examples.order import Order, OrderEvent, State, order
from interlock.examples.world import world
from interlock.hotrow.counters import Counter
from interlock.server.asgi import asgi
from interlock.server.lifecycle import run_until_stopped, server_maker
from interlock.signals import BreakerChanged, Signal, TransitionApplied, TransitionRejected

# --- Connection to the parent process --------------------------------------------------------------------------------
# One line of tab-separated words per fact or call; the parent answers calls with a line each. A kill cuts the
# connection; deeds that the bank has done stay done.

FLUSH_EVERY_S = 0.01


class ParentConnection:
    """The parent process, which reads the news and has the bank. News is sent every 10 ms, calls immediately."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None
        self._calls: PendingCalls[Verdict] = PendingCalls()

    def tell(self, *words: object) -> None:
        """Queue a line."""
        self._lines.append("\t".join(map(str, words)))
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self.flush)

    def flush(self) -> None:
        """Send all queued lines."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._writer.write("".join(f"{line}\n" for line in self._lines).encode())
        self._lines.clear()

    async def ask(self, call: BankCall) -> Verdict:
        """Return the bank's answer to a call."""

        def send(number: int) -> None:
            self.tell("call", number, *call)
            self.flush()

        return await self._calls.ask(send)

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Resolve calls with their answers. Ends the process with its parent."""
        while line := await reader.readline():
            number, _, verdict = line.decode().rstrip("\n").partition("\t")
            self._calls.resolve(int(number), cast("Verdict", verdict))
        os._exit(0)


COMPLAINTS: dict[Verdict, str] = {
    "failed": "the bank does not answer the call to {operation}.",
    "lost": "the answer was lost on its way.",
    "down": "503 Service Unavailable, when asked to {operation}.",
}


class OutsideServices:
    """The payments and the warehouse that the steps of the example call.

    `declines` returns how often the bank declines an order. `waits` is called with the order and the operation; it
    returns when the customer has sent every event that comes first.
    """

    def __init__(
        self,
        ask: Callable[[BankCall], Awaitable[Verdict]],
        declines: Callable[[str], int],
        waits: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._bank = ask
        self._declines = declines
        self._waits = waits

    async def create_intent(self, order_id: str, *, key: str) -> str:
        """Announce a payment. The intent follows from the order, so a repeated call gets the same one."""
        await self._ask("create_intent", order_id, key)
        return f"pi-{order_id}"

    async def confirm(self, intent_id: str, *, key: str) -> bool:
        """Charge, once per key. False when the bank declines."""
        return await self._ask("confirm", intent_id.removeprefix("pi-"), key) == "done"

    async def cancel(self, intent_id: str, *, key: str) -> None:
        """Void the intent, or give back what was taken."""
        await self._ask("cancel", intent_id.removeprefix("pi-"), key)

    async def reserve(self, order_id: str, items: Mapping[str, int], *, key: str) -> None:
        """Put the goods aside."""
        del items
        await self._ask("reserve", order_id, key)

    async def release(self, order_id: str, *, key: str) -> None:
        """Put the goods back; nothing reserved is fine."""
        await self._ask("release", order_id, key)

    async def _ask(self, operation: Operation, order_id: str, key: str) -> Verdict:
        if operation != "release":
            await self._waits(order_id, operation)
        # After the wait: the customer of an order of an earlier life is not known before.
        declines = self._declines(order_id) if operation == "confirm" else 0
        verdict = await self._bank(BankCall(operation, order_id, key, declines))
        if verdict in COMPLAINTS:
            raise Retryable(COMPLAINTS[verdict].format(operation=operation.replace("_", " ")))
        return verdict


# --- Customers -------------------------------------------------------------------------------------------------------

IN_FLIGHT_MAX = 400
PATIENCE_S = 60.0
STALL_S = 1.5
"""The age in seconds from which an order on the packing table counts as stalled."""
LOOK_EVERY_S = 0.1
PAID_STATES = frozenset(
    {State.PAID, State.FULFILLMENT_PENDING, State.SHIPPED, State.DELIVERED, State.REFUND_PENDING, State.REFUNDED}
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


class DemoCustomers:
    """All customers of one life."""

    def __init__(self, news: ParentConnection, orders: int, seed: int) -> None:
        self._news = news
        self._orders = orders
        self._journeys = journeys(orders, seed)
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
            self._news.tell("moved", signal.workflow, signal.version, signal.to_state, signal.event)
            flying = self._started.get(signal.workflow)
            if flying is not None:
                flying.version, flying.state = signal.version, State(signal.to_state)
                flying.arrived.set()
        elif isinstance(signal, TransitionRejected):
            self._news.tell("rejected", signal.workflow, signal.code)
        elif isinstance(signal, BreakerChanged):
            self._news.tell("breaker", signal.dependency, signal.after)

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
        stored = {view.id: view.state async for page in view_pages(engine, order) for view in page}
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
        self._news.tell("ended")

    async def _rested(self, order_id: str, state: State | None, paid: Counter) -> None:
        """Report an order that an earlier life has completed. Count it again: it is unknown whether it was counted."""
        if state in PAID_STATES:
            await paid.add(1, key=order_id)
            self._news.tell("paid", order_id)
        self._news.tell("done", order_id)

    async def _order(self, engine: Engine, order_id: str, journey: Journey, paid: Counter) -> None:
        begun = Order(order_id=order_id, user_id=f"user-{zlib.crc32(order_id.encode()) % 997}", items=journey.items)
        # Registered before the start: the order may move between the engine's answer and the moment it is read.
        flying = self._started[order_id] = InFlight(journey)
        now = await engine.start(order, order_id, begun)
        self._news.tell("acknowledged", order_id, now.version, now.state.value)
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
                self._news.tell("paid", order_id)
            if _is_at_rest(journey, now.state):
                break
            event = await self._speak(engine, flying, now)
            if event is not None:
                moved = await engine.send(order_id, event, key=f"{now.state.value}-{now.version}")
                self._news.tell("acknowledged", order_id, moved.version, moved.state.value)
            elif flying.version <= now.version and not await _is_set_in_time(flying.arrived):
                self._news.tell("problem", order_id, f"it has not left {now.state.value} for {PATIENCE_S:g} s")
                return
            now = await engine.of(order).get(order_id)
        if journey.stray_in is now.state:
            await self._stray(engine, flying, order_id)
        del self._flying[order_id], self._started[order_id]
        self._news.tell("done", order_id)

    async def _speak(self, engine: Engine, flying: InFlight, now: View[State, Order]) -> OrderEvent | None:
        """Send the events that are refused; return the one that is accepted, if the customer sends it."""
        if flying.journey.stray_in is now.state:
            await self._stray(engine, flying, now.id)
        vain = hopeless(now.state, now.context)
        if vain is not None:
            await self._refused(engine, now.id, vain)
        if flying.journey.stuck and now.state is State.FULFILLMENT_PENDING and not self._scanned.is_set():
            self._news.tell("stuck", now.id)
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
                self._news.tell("example", refusal.code, text)
            self._news.flush()
        else:
            self._news.tell("problem", order_id, f"{wire_name(type(event))} was accepted where it has no business")

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
                    self._news.tell("stalled", view.id)
        self._news.tell("unstuck")
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


def _is_at_rest(journey: Journey, state: State) -> bool:
    return state in {State.CANCELLED, State.REFUNDED} or (
        state is State.DELIVERED and journey.refund_in is not State.DELIVERED
    )


# --- Program ---------------------------------------------------------------------------------------------------------
# The dashboard's socket belongs to the parent process, which passes it to every worker. Between a kill and the next
# worker, connections wait in the socket's backlog, so a browser sees only a pause.

# Single calls fail regularly, and with hundreds of concurrent calls five failures in a row are frequent. So the breaker
# uses a failure rate. The outage is short, so the breaker probes early.
_BREAKER = Breaker(failure_rate=0.5, reset_s=0.5)
OUTSIDE = [Dependency(name, IN_FLIGHT_MAX, breaker=_BREAKER, budget=1) for name in (BANK, "warehouse")]


def live(say: Callable[[str], None], life: str, line: int, dashboard: int | None = None) -> None:
    """Run one life, given as JSON, with the descriptors of the connection to the parent and of the dashboard."""
    del say  # It uses the connection alone.
    signal.alarm(0)  # The dashboard may stay for days.
    # The demo reports the open breaker itself, so its alert is not logged.
    logging.getLogger("interlock.alerts").addHandler(logging.NullHandler())
    run_until_stopped(_live(msgspec.json.decode(life, type=WorkerPart), socket.socket(fileno=line), dashboard))


async def _live(life: WorkerPart, line: socket.socket, dashboard: int | None) -> None:
    began_s = time.perf_counter()
    home = home_in(Path(life.folder))
    reader, writer = await asyncio.open_unix_connection(sock=line)
    parent = ParentConnection(writer)
    shop = DemoCustomers(parent, life.orders, life.seed)
    world.payments = world.warehouse = OutsideServices(parent.ask, shop.declines, shop.waits)
    faulty = Faulty(lambda: parent.tell("observer-failed"))
    async with AsyncExitStack() as stack:
        listening = asyncio.ensure_future(parent.listen(reader))
        stack.callback(listening.cancel)
        engine = await stack.enter_async_context(
            Engine.open(home, machines=[order], dependencies=OUTSIDE, observers=[faulty, shop])
        )
        till = await stack.enter_async_context(Database.open(TILL, home=home))
        await stack.enter_async_context(_serving(engine, {TILL: till}, dashboard))
        parent.tell("opened", f"{time.perf_counter() - began_s:.6f}")
        parent.flush()
        if life.part != "shows":
            paid = till.counter(PAID, kind="exact")
            await shop.serve(engine, paid, looks_after_stalls=life.part == "ends")
            parent.flush()
        if life.part != "ends":
            await asyncio.Event().wait()  # Wait for the parent's SIGKILL.
        await writer.drain()
    writer.close()
    await writer.wait_closed()


@contextlib.asynccontextmanager
async def _serving(
    engine: Engine, databases: dict[str, Database], descriptor: int | None
) -> AsyncGenerator[None, None]:
    """Serve an engine at the socket with this descriptor until the block ends."""
    if descriptor is None:
        yield
        return
    app = asgi(engine, databases=databases)
    server = server_maker()(app)
    task = asyncio.create_task(server.serve(sockets=[socket.socket(fileno=descriptor)]))
    try:
        yield
    finally:
        # Do not wait for open connections: the next life serves those browsers, or the demo is over.
        app.leave()
        server.should_exit = server.force_exit = True
        await task
        await app.close()
