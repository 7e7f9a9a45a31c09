"""A machine with everything that can go wrong between two engines: a long step, its undo, timers, and an effect."""

import asyncio
from dataclasses import dataclass, replace
from enum import Enum

from interlock import Event, Machine, Retry, StepContext


class State(Enum):
    DRAFT, CHARGING, DONE, UNDOING, CANCELLED, LATE = "draft", "charging", "done", "undoing", "cancelled", "late"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    note: str = ""


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Note(OrderEvent):
    text: str


@dataclass(frozen=True)
class Submit(OrderEvent):
    pass


@dataclass(frozen=True)
class Charged(OrderEvent):
    pass


@dataclass(frozen=True)
class Cancel(OrderEvent):
    pass


@dataclass(frozen=True)
class Expire(OrderEvent):
    pass


@dataclass(frozen=True)
class Finish(OrderEvent):
    pass


class Outside:
    """What the test knows of the world outside, and how it holds things up there."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.charging: asyncio.Queue[int] = asyncio.Queue()
        self.charge_ends = asyncio.Event()
        self.mailing: asyncio.Queue[int] = asyncio.Queue()
        self.mail_ends: dict[int, asyncio.Future[None]] = {}


def shop(
    outside: Outside, *, name: str = "shop", timer_s: float = 3600, policy: str = "deadline", attempts: int = 5
) -> Machine[State, Order, OrderEvent]:
    """A new machine of that name."""
    machine = Machine(
        name, states=State, context=Order, events=OrderEvent, initial=State.DRAFT,
        final={State.DONE, State.CANCELLED, State.LATE}, unwind={State.UNDOING: State.CANCELLED},
    )  # fmt: skip

    @machine.on(Note, State.DRAFT, State.CHARGING)
    def note(order: Order, event: Note) -> Order:
        return replace(order, note=event.text)

    machine.on(Submit, State.DRAFT, to=State.CHARGING)
    machine.on(Charged, State.CHARGING, to=State.DONE)
    machine.on(Finish, State.DRAFT, to=State.DONE)
    machine.on(Cancel, State.CHARGING, to=State.UNDOING)
    machine.on(Expire, State.DRAFT, State.CHARGING, to=State.LATE)
    machine.after(State.CHARGING, after_s=timer_s, send=Expire(), policy=policy)  # type: ignore[arg-type]

    @machine.step(State.CHARGING, timeout_s=600)
    async def charge(order: Order, ctx: StepContext) -> Charged:
        outside.charging.put_nowait(ctx.attempt)
        try:
            await outside.charge_ends.wait()
        finally:
            outside.log.append("charge ended")
        return Charged()

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
        outside.log.append("refunded")

    @machine.effect(State.DONE, retry=Retry(attempts=attempts, first_s=0.001))
    async def mail(order: Order, ctx: StepContext) -> None:
        outside.mailing.put_nowait(ctx.attempt)
        ends = outside.mail_ends.setdefault(ctx.attempt, asyncio.get_running_loop().create_future())
        await asyncio.shield(ends)

    return machine
