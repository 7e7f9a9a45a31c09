"""The process that the demo kills: an engine on a lane, and the customers whose orders it moves.

It speaks through its standard output, a line per piece of news, and only of what is certain: a move when it is durable,
an acknowledgement when the customer has it. It knows nothing of an earlier life but what the store and the books of the
world outside have kept. It ends when its standard input does, so that nobody leaves it behind, and leaves Ctrl-C to
whoever started it.
"""

import asyncio
import os
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import msgspec

from interlock.cli.demo.bank import BOOKS, Books, World, home_in
from interlock.cli.demo.observers import Faulty
from interlock.cli.demo.scenario import Journey, Scenario, hopeless, stray, wish
from interlock.core.breakers import Breaker
from interlock.core.events import wire_name
from interlock.core.policies import Dependency
from interlock.errors import Refusal
from interlock.examples.order import Order, OrderEvent, State, order
from interlock.examples.world import world
from interlock.runtime.engine import Engine
from interlock.runtime.views import View
from interlock.seams import SystemChance
from interlock.signals import Signal, TransitionApplied, TransitionRejected

IN_FLIGHT_MAX = 400
TOLD_EVERY_S = 0.01

# The world of the demo fails now and then, and with hundreds of calls at once five in a row come by soon: a share says
# more. It is back at once, so a probe comes soon.
_BREAKER = Breaker(failure_rate=0.5, reset_s=0.5)
OUTSIDE = [Dependency(name, IN_FLIGHT_MAX, breaker=_BREAKER, budget=1) for name in ("payments", "warehouse")]
PATIENCE_S = 60.0


class News:
    """What the parent is told: gathered for an instant, written in order."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None

    def tell(self, *words: object) -> None:
        """Tell something soon."""
        self._lines.append("\t".join(map(str, words)))
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(TOLD_EVERY_S, self.flush)

    def flush(self) -> None:
        """Tell it now."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        data = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._pipe, data) :]
        except BrokenPipeError:
            os._exit(0)  # Nobody is there any more to be told.


class InFlight:
    """An order on its way, as its customer knows it."""

    __slots__ = ("arrived", "journey", "spoken", "state", "strayed", "version")

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.version = 0
        self.state = State.PENDING
        self.arrived = asyncio.Event()
        """Set when it has moved."""
        self.strayed = False
        self.spoken = asyncio.Event()
        """Set when the customer has said what has no business there, and the world may go on."""


class Shop:
    """All customers of one life."""

    def __init__(self, news: News, seed: int) -> None:
        self._news = news
        self._scenario = Scenario(SystemChance(seed))
        self._heard: dict[str, InFlight] = {}
        self._flying: dict[str, InFlight] = {}
        """Those whose customers know where they are."""
        self._missed: dict[str, asyncio.Event] = {}
        """Orders that an earlier life has left, and whose customers have not come back to them yet."""
        self._shown: set[str] = set()

    def __call__(self, signal: Signal, /) -> None:
        """Hear what the engine has to tell."""
        if isinstance(signal, TransitionApplied):
            self._news.tell("T", signal.workflow, signal.version, signal.to_state, signal.event)
            flying = self._heard.get(signal.workflow)
            if flying is not None:
                flying.version, flying.state = signal.version, State(signal.to_state)
                flying.arrived.set()
        elif isinstance(signal, TransitionRejected):
            self._news.tell("R", signal.workflow, signal.code)

    # --- what the world outside asks ---------------------------------------------------------------------------------

    def declines(self, order_id: str) -> int:
        """How often the bank declines a payment of this order."""
        return self._flying[order_id].journey.declines

    async def waits(self, order_id: str, asked: str) -> None:
        """Let the customer speak first, where they have something to say."""
        while (flying := self._flying.get(order_id)) is None:
            await self._missed.setdefault(order_id, asyncio.Event()).wait()
        journey = flying.journey
        if (asked == "confirm" and journey.cancel_in is State.PAYMENT_PROCESSING) or (
            asked == "reserve" and journey.refund_in is State.PAID
        ):
            await asyncio.Event().wait()  # The customer is quicker: this call is cancelled when the order has moved on.
        if journey.stray_in is flying.state and not flying.strayed:
            await flying.spoken.wait()

    # --- what the customers do ---------------------------------------------------------------------------------------

    async def serve(self, engine: Engine, orders: int) -> None:
        """Bring every order to its end; those of an earlier life are taken up where they are."""
        stored = await _stored(engine)
        room = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as group:
            for order_id, journey in self._scenario.journeys(orders):
                state = stored.pop(order_id, None)
                if state is not None and _rests(journey, state):
                    self._news.tell("D", order_id)
                    continue
                await room.acquire()
                customer = group.create_task(self._order(engine, order_id, journey))
                customer.add_done_callback(lambda _task: room.release())

    async def _order(self, engine: Engine, order_id: str, journey: Journey) -> None:
        begun = Order(order_id=order_id, user_id=f"user-{zlib.crc32(order_id.encode()) % 997}", items=journey.items)
        # Heard from before it is asked for: it may move between the answer and the moment when that is read.
        flying = self._heard[order_id] = InFlight(journey)
        now = await engine.start(order, order_id, begun)
        self._news.tell("A", order_id, now.version, now.state.value)
        if flying.version < now.version:
            flying.version, flying.state = now.version, now.state
        self._flying[order_id] = flying
        if order_id in self._missed:
            self._missed.pop(order_id).set()
        while not _rests(journey, now.state):
            flying.arrived.clear()
            event = await self._speak(engine, flying, now)
            if event is not None:
                moved = await engine.send(order_id, event, key=f"{now.state.value}-{now.version}")
                self._news.tell("A", order_id, moved.version, moved.state.value)
            elif flying.version <= now.version and not await _soon(flying.arrived):
                self._news.tell("!", order_id, f"it has not left {now.state.value} for {PATIENCE_S:g} s")
                return
            now = await engine.of(order).get(order_id)
        if journey.stray_in is now.state:
            await self._stray(engine, flying, order_id)
        del self._flying[order_id], self._heard[order_id]
        self._news.tell("D", order_id)

    async def _speak(self, engine: Engine, flying: InFlight, now: View[State, Order]) -> OrderEvent | None:
        """Whatever the customer says that is refused; returns what they say then."""
        if flying.journey.stray_in is now.state:
            await self._stray(engine, flying, now.id)
        vain = hopeless(now.state, now.context)
        if vain is not None:
            await self._refused(engine, now.id, vain)
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
            if refusal.code not in self._shown:
                self._shown.add(refusal.code)
                told = msgspec.json.encode([refusal.what, refusal.why, refusal.fix]).decode()
                self._news.tell("X", refusal.code, told)
            self._news.flush()
        else:
            self._news.tell("!", order_id, f"{wire_name(type(event))} was accepted where it has no business")


async def _soon(event: asyncio.Event) -> bool:
    """Wait for it; False when it does not come, so that a demo that fails does not wait for ever."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await event.wait()
    except TimeoutError:
        return False


async def _stored(engine: Engine) -> dict[str, State]:
    found: dict[str, State] = {}
    cursor: str | None = None
    while True:
        page = await engine.find(order, limit=1_000, cursor=cursor)
        found.update((view.id, view.state) for view in page.items)
        cursor = page.cursor
        if cursor is None:
            return found


def _rests(journey: Journey, state: State) -> bool:
    return state in {State.CANCELLED, State.REFUNDED} or (
        state is State.DELIVERED and journey.refund_in is not State.DELIVERED
    )


async def live(folder: Path, orders: int, seed: int, news: News, *, stays: bool) -> None:
    """One life of the worker."""
    began_s = time.perf_counter()
    shop = Shop(news, seed)
    faulty = Faulty(lambda: news.tell("F"))
    world.payments = world.warehouse = World(Books(folder / BOOKS), shop.declines, shop.waits, seed)
    async with Engine.open(home_in(folder), machines=[order], dependencies=OUTSIDE, observers=[faulty, shop]) as engine:
        news.tell("O", f"{time.perf_counter() - began_s:.6f}")
        news.flush()
        await shop.serve(engine, orders)
        news.flush()
        if stays:
            await asyncio.Event().wait()  # Whoever is going to kill this process may do so at any time.


def _leave_with_parent() -> None:
    """End when nobody is there any more to listen."""
    while os.read(0, 1_024):
        pass
    os._exit(0)


def main() -> None:
    """`python -m interlock.cli.demo.worker FOLDER ORDERS SEED stays|ends`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    folder, orders, seed, stays = sys.argv[1:]
    asyncio.run(live(Path(folder), int(orders), int(seed), News(1), stays=stays == "stays"))


if __name__ == "__main__":
    main()
