"""The machines of the engine simulation, and the external service that they call.

There is one machine with undos, a pipeline, and one with timers of all policies. Results carry the idempotency key of
their run, so that the checks know which run's result was applied.

The service is idempotent by key. An attempt may fail before or after the deed, hang, be declined, refuse for ever,
outlive its own cancellation, or kill the process. Calls of a dead process have no effect.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.pipeline import pipeline, step
from interlock.core.policies import Retry
from interlock.core.values import StepContext
from interlock.errors import NonRetryable
from interlock.testing.campaigns import Luck
from interlock.testing.virtual_time import Life, never

AFTER_S = 9.0
"""The time of the timers whose policies are checked."""

NOTES_MAX = 5


class Outside:
    """The gateway of the seed that runs now."""

    gateway: "FaultyService"


outside = Outside()


# --- Shop: two steps with undos, a way back from every state, effects ------------------------------------------------


class ShopState(Enum):
    """Where a purchase can be."""

    CART, CHARGING, RESERVING, DONE = "cart", "charging", "reserving", "done"
    UNDOING, CANCELLED = "undoing", "cancelled"


@dataclass(frozen=True)
class Purchase:
    """What a purchase knows."""

    cents: int = 0
    receipt: str = ""
    notes: int = 0


class ShopEvent(Event):
    """Everything that can happen to a purchase."""


@dataclass(frozen=True)
class Submit(ShopEvent):
    """The customer buys."""

    cents: int


@dataclass(frozen=True)
class Charged(ShopEvent):
    """The money is here."""

    by: str


@dataclass(frozen=True)
class Declined(ShopEvent):
    """The bank said no."""

    by: str


@dataclass(frozen=True)
class Reserved(ShopEvent):
    """The goods are put aside."""

    by: str


@dataclass(frozen=True)
class Note(ShopEvent):
    """A remark: an internal transition."""


@dataclass(frozen=True)
class Again(ShopEvent):
    """Charge anew: the state is left and entered again."""


@dataclass(frozen=True)
class Cancel(ShopEvent):
    """The customer changed their mind."""


shop = Machine(
    "shop",
    states=ShopState,
    context=Purchase,
    events=ShopEvent,
    initial=ShopState.CART,
    final={ShopState.CANCELLED},
    resting={ShopState.DONE},
    unwind={ShopState.UNDOING: ShopState.CANCELLED},
)


def worth_it(_purchase: Purchase, event: Submit) -> bool:
    """It costs something."""
    return event.cents > 0


@shop.on(Submit, ShopState.CART, to=ShopState.CHARGING, when=worth_it)
def submit(purchase: Purchase, event: Submit) -> Purchase:
    """Remember the price."""
    return replace(purchase, cents=event.cents)


@shop.on(Charged, ShopState.CHARGING, to=ShopState.RESERVING)
def charged(purchase: Purchase, event: Charged) -> Purchase:
    """Remember who charged."""
    return replace(purchase, receipt=event.by)


shop.on(Again, ShopState.CHARGING, to=ShopState.CHARGING)
shop.on(Declined, ShopState.CHARGING, to=ShopState.UNDOING)
shop.on(Reserved, ShopState.RESERVING, to=ShopState.DONE)
shop.on(Cancel, ShopState.CART, ShopState.CHARGING, ShopState.RESERVING, ShopState.DONE, to=ShopState.UNDOING)


def room_for_notes(purchase: Purchase, _event: Note) -> bool:
    """There are fewer than 5 notes."""
    return purchase.notes < NOTES_MAX


@shop.on(Note, ShopState.CART, ShopState.CHARGING, ShopState.RESERVING, ShopState.UNDOING, when=room_for_notes)
def note(purchase: Purchase, _event: Note) -> Purchase:
    """Count it."""
    return replace(purchase, notes=purchase.notes + 1)


@shop.step(ShopState.CHARGING, timeout_s=3, retry=Retry(attempts=4, first_s=0.5), failed=ShopState.UNDOING)
async def charge(_purchase: Purchase, ctx: StepContext) -> Charged | Declined:
    """Take the money."""
    return Charged(ctx.key) if await outside.gateway.act("charge", ctx) else Declined(ctx.key)


@charge.undo(Charged)
async def refund(_purchase: Purchase, _done: Charged | None, ctx: StepContext) -> None:
    """Give the money back."""
    await outside.gateway.act("refund", ctx)


@shop.step(ShopState.RESERVING, timeout_s=2, retry=Retry(attempts=3), failed=ShopState.UNDOING)
async def reserve(_purchase: Purchase, ctx: StepContext) -> Reserved:
    """Put the goods aside."""
    await outside.gateway.act("reserve", ctx)
    return Reserved(ctx.key)


@reserve.undo(Reserved)
async def release(_purchase: Purchase, _done: Reserved | None, ctx: StepContext) -> None:
    """Put the goods back."""
    await outside.gateway.act("release", ctx)


@shop.effect(ShopState.DONE, timeout_s=2, retry=Retry(attempts=3))
async def mail(_purchase: Purchase, ctx: StepContext) -> None:
    """Say thank you."""
    await outside.gateway.act("mail", ctx)


@shop.effect(ShopState.CANCELLED, ShopState.DONE, timeout_s=2, retry=Retry(attempts=3))
async def publish(_purchase: Purchase, ctx: StepContext) -> None:
    """Tell the others."""
    await outside.gateway.act("publish", ctx)


shop.after(ShopState.CART, after_s=20, send=Cancel())


# --- Parcel: a pipeline ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parcel:
    """What a parcel knows: who did what."""

    pay: str = ""
    pack: str = ""
    ship: str = ""


@step(timeout_s=2, read_only=True, retry=Retry(attempts=3))
async def weigh(parcel: Parcel, ctx: StepContext) -> Parcel:
    """Look at it."""
    await outside.gateway.act("weigh", ctx)
    return parcel


@step(timeout_s=2, retry=Retry(attempts=3))
async def pay(parcel: Parcel, ctx: StepContext) -> Parcel:
    """Take the money."""
    await outside.gateway.act("pay", ctx)
    return replace(parcel, pay=ctx.key)


@pay.undo
async def give_back(_parcel: Parcel, ctx: StepContext) -> None:
    """Give the money back."""
    await outside.gateway.act("give_back", ctx)


@step(timeout_s=2, retry=Retry(attempts=3))
async def pack(parcel: Parcel, ctx: StepContext) -> Parcel:
    """Put it into a box."""
    await outside.gateway.act("pack", ctx)
    return replace(parcel, pack=ctx.key)


@pack.undo
async def unpack(_parcel: Parcel, ctx: StepContext) -> None:
    """Take it out of the box."""
    await outside.gateway.act("unpack", ctx)


@step(timeout_s=2, retry=Retry(attempts=2))
async def ship(parcel: Parcel, ctx: StepContext) -> Parcel:
    """Send it."""
    await outside.gateway.act("ship", ctx)
    return replace(parcel, ship=ctx.key)


parcel = pipeline("parcel", context=Parcel, steps=[weigh, pay, pack, ship])


# --- Watch: timers of the three policies, a step without `failed=` ---------------------------------------------------


class Watch(Enum):
    """What a watch does."""

    IDLE, FIXED, PAUSED, ANEW, ASKING, ENDED = "idle", "fixed", "paused", "anew", "asking", "ended"


@dataclass(frozen=True)
class Ticks:
    """How often it has ticked."""

    ticks: int = 0
    answer: str = ""


class WatchEvent(Event):
    """Everything that can happen to a watch."""


@dataclass(frozen=True)
class Fix(WatchEvent):
    """Wait until a moment."""


@dataclass(frozen=True)
class Pause(WatchEvent):
    """Wait for AFTER_S of running time."""


@dataclass(frozen=True)
class Renew(WatchEvent):
    """Wait for AFTER_S since the last start."""


@dataclass(frozen=True)
class Ask(WatchEvent):
    """A request for an answer."""


@dataclass(frozen=True)
class Answered(WatchEvent):
    """The answer has arrived."""

    by: str


@dataclass(frozen=True)
class Tick(WatchEvent):
    """The time has come."""


@dataclass(frozen=True)
class Stop(WatchEvent):
    """No more."""


watch = Machine(
    "watch",
    states=Watch,
    context=Ticks,
    events=WatchEvent,
    initial=Watch.IDLE,
    final={Watch.ENDED},
    resting={Watch.IDLE},
)
watch.on(Fix, Watch.IDLE, to=Watch.FIXED)
watch.on(Pause, Watch.IDLE, to=Watch.PAUSED)
watch.on(Renew, Watch.IDLE, to=Watch.ANEW)
watch.on(Ask, Watch.IDLE, to=Watch.ASKING)
watch.on(Stop, watch.any, to=Watch.ENDED)


@watch.on(Tick, Watch.FIXED, Watch.PAUSED, Watch.ANEW, to=Watch.IDLE)
def tick(ticks: Ticks, _event: Tick) -> Ticks:
    """Count it."""
    return replace(ticks, ticks=ticks.ticks + 1)


@watch.on(Answered, Watch.ASKING, to=Watch.IDLE)
def answered(ticks: Ticks, event: Answered) -> Ticks:
    """Remember who answered."""
    return replace(ticks, answer=event.by)


@watch.step(Watch.ASKING, timeout_s=2, retry=Retry(attempts=2))
async def ask(_ticks: Ticks, ctx: StepContext) -> Answered:
    """Ask, and remember the answer."""
    await outside.gateway.act("ask", ctx)
    return Answered(ctx.key)


@watch.effect(Watch.FIXED, Watch.ENDED, timeout_s=2, retry=Retry(attempts=3))
async def ring(_ticks: Ticks, ctx: StepContext) -> None:
    """Make a noise."""
    await outside.gateway.act("ring", ctx)


watch.after(Watch.FIXED, after_s=AFTER_S, send=Tick(), policy="deadline")
watch.after(Watch.PAUSED, after_s=AFTER_S, send=Tick(), policy="remaining")
watch.after(Watch.ANEW, after_s=AFTER_S, send=Tick(), policy="restart")

MACHINES = (shop, parcel, watch)
UNDOS = {"refund": "charge", "release": "reserve", "give_back": "pay", "unpack": "pack"}
EFFECTS = {
    "mail": ("shop", {"done"}),
    "publish": ("shop", {"cancelled", "done"}),
    "ring": ("watch", {"fixed", "ended"}),
}
"""Effects, with the machine and the states on whose entering they are owed."""

RESULTS = {"CHARGED": "charge", "DECLINED": "charge", "RESERVED": "reserve", "ANSWERED": "ask"}
PIPELINE_RESULTS = {"PAY_DONE": "pay", "PACK_DONE": "pack", "SHIP_DONE": "ship"}
INTERNAL = {"NOTE"}
"""Events that do not enter a state."""


# --- External service ------------------------------------------------------------------------------------------------

FAULTS = (
    "fails",
    "fails",
    "done, answer lost",
    "done, answer lost",
    "hangs",
    "done, then hangs",
    "outlives its cancellation",
    "outlives its cancellation",
    "refuses",
    "kills",
    "done, then kills",
)


@dataclass(slots=True, eq=False)
class Visit:
    """One call of the gateway."""

    name: str
    workflow: str
    key: str
    attempt: int
    visit: int
    undoes: str | None
    life: int
    began: int
    ended: int | None = None
    deed: int | None = None
    """The tick of the deed; None if it was not done."""
    stopped: bool = False
    """The engine was closed while the call ran: the attempt is not counted."""


class FaultyService:
    """The external service of one seed."""

    def __init__(
        self,
        luck: Luck,
        *,
        faults: float,
        declines: float,
        tick: Callable[[], int],
        tell: Callable[[str, str], None],
        fault: Callable[[str], None],
    ) -> None:
        self.on = True
        self.life: Life | None = None
        self.number = 0
        """The number of the current life."""
        self.calls: list[Visit] = []
        self.done: dict[str, int] = {}
        """The tick of the first deed, by key."""
        self.undone: dict[str, int] = {}
        """The tick of the first undo, by the key of the undone run."""
        self._declined: set[str] = set()
        self._luck = luck
        self._faults = faults
        self._declines = declines
        self._tick = tick
        self._tell = tell
        self._fault = fault

    async def act(self, name: str, ctx: StepContext) -> bool:
        """Do the deed, once per key; return False when it is declined."""
        life = self.life
        if life is None or life.dead:
            await never()  # A dead process does nothing more.
        call = Visit(name, ctx.workflow, ctx.key, ctx.attempt, ctx.visit, ctx.undoes, self.number, self._tick())
        self.calls.append(call)
        self._tell(ctx.workflow, f"{name} begins, attempt {ctx.attempt}, visit {ctx.visit}, key {ctx.key[-6:]}")
        try:
            return await self._behave(call, life)
        finally:
            if life is not None and not life.dead:
                call.ended = self._tick()
                self._tell(ctx.workflow, f"{name} ends, key {ctx.key[-6:]}")

    async def _behave(self, call: Visit, life: Life | None) -> bool:
        if not self.on:
            self._do(call)
            return True
        luck = self._luck
        delay_s = luck.one((0.0, 0.0, 0.02, 0.4, 1.2))
        kind = luck.one(FAULTS) if luck.often(self._faults) else "works"
        if call.name == "charge" and call.key not in self.done and luck.often(self._declines):
            self._declined.add(call.key)
        if kind != "works":
            self._fault(kind)
        if kind.startswith("done"):
            self._do(call)
        if kind == "outlives its cancellation":
            await self._stubborn(life)
        else:
            await asyncio.sleep(delay_s)
        if kind.endswith("kills"):
            assert life is not None
            self._tell(call.workflow, f"{call.name} kills the process")
            life.end()
            await never()
        if kind.endswith("hangs"):
            await asyncio.sleep(3_600)
        if kind in {"fails", "done, answer lost"}:
            raise OSError(kind)
        if kind == "refuses" and call.undoes is None:
            raise NonRetryable(kind)
        return self._do(call)

    async def _stubborn(self, life: Life | None) -> None:
        """Sleep long, and ignore up to two cancellations: a request that was sent cannot be recalled."""
        luck = self._luck
        left_s = luck.between(0.5, 4.0)
        for _ in range(3):
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                if life is None or life.dead:
                    raise
                left_s = luck.between(0.0, 2.0)
            else:
                return

    def _do(self, call: Visit) -> bool:
        if call.key in self._declined:
            return False
        call.deed = self._tick()
        self.done.setdefault(call.key, call.deed)
        if call.name in UNDOS and call.undoes is not None:
            self.undone.setdefault(call.undoes, call.deed)
        return True
