"""The machine that this suite runs, and the world outside it: every call takes the next of the answers it was given."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from interlock import Classification, Event, Machine, Retry, Step, StepContext, StepFailure


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    RESERVING = "reserving"
    DONE = "done"
    SHIPPED = "shipped"
    PAUSED = "paused"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    receipt: str = ""
    note: str = ""


class OrderEvent(Event):
    pass


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int = 5


@dataclass(frozen=True)
class Charged(OrderEvent):
    receipt: str = "r"


@dataclass(frozen=True)
class Declined(OrderEvent):
    pass


@dataclass(frozen=True)
class Reserved(OrderEvent):
    pass


@dataclass(frozen=True)
class Ship(OrderEvent):
    pass


@dataclass(frozen=True)
class Note(OrderEvent):
    text: str = ""


@dataclass(frozen=True)
class Again(OrderEvent):
    pass


@dataclass(frozen=True)
class Pause(OrderEvent):
    pass


@dataclass(frozen=True)
class Cancel(OrderEvent):
    pass


@dataclass(frozen=True)
class Broken(OrderEvent):
    how: str = "raises"


OrderMachine = Machine[State, Order, OrderEvent]


class Held:
    """An answer that does not come before `go` is set; `begun` says that it was asked for."""

    def __init__(self, answer: object = None, *, stubborn: bool = False) -> None:
        self.answer = answer
        self.stubborn = stubborn
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go = asyncio.Event()

    async def wait(self) -> object:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            if self.stubborn:
                await self.go.wait()
            raise
        return self.answer


class Call(NamedTuple):
    """One call from a step, an undo or an effect."""

    context: Order
    ctx: StepContext
    done: object = None


class Outside:
    """One dependency: a script of answers, the last of which is repeated, and everything it was asked."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []

    @property
    def keys(self) -> list[str]:
        return [call.ctx.key for call in self.calls]

    @property
    def attempts(self) -> list[int]:
        return [call.ctx.attempt for call in self.calls]

    async def answer(self, call: Call) -> object:
        self.calls.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Held):
            answer = await answer.wait()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class World:
    """Everything outside the machine."""

    def __init__(
        self,
        *,
        charge: Outside | None = None,
        reserve: Outside | None = None,
        refund: Outside | None = None,
        release: Outside | None = None,
        mail: Outside | None = None,
    ) -> None:
        self.charge = charge or Outside(Charged())
        self.reserve = reserve or Outside(Reserved())
        self.refund = refund or Outside(None)
        self.release = release or Outside(None)
        self.mail = mail or Outside(None)


def affordable(order: Order, event: Submit) -> bool:
    """The amount is between 1 cent and 100 euros."""
    return 0 < event.cents <= 10_000


def odd(order: Order, event: Broken) -> bool:
    if event.how == "guard raises":
        raise ZeroDivisionError("a guard that is wrong")
    return "yes" if event.how == "guard returns" else True  # type: ignore[return-value]


class Shop(NamedTuple):
    """A machine with the world that it was declared upon."""

    machine: OrderMachine
    world: World
    charge: Step[Order, OrderEvent]


def shop(
    world: World | None = None,
    *,
    name: str = "order",
    version: int = 1,
    attempts: int = 3,
    timeout_s: float = 20.0,
    failed: State | None = State.UNDOING,
    classify: Callable[[BaseException], Classification | None] | None = None,
    charges_at: str | None = None,
    reserves_at: str | None = None,
    declare: Callable[[OrderMachine], None] | None = None,
) -> Shop:
    """Draft, charge, reserve, done (resting), shipped; cancel unwinds from anywhere. Made anew for every test."""
    world = world or World()
    order: OrderMachine = Machine(
        name,
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.DRAFT,
        final={State.SHIPPED, State.CANCELLED},
        resting={State.DONE, State.PAUSED},
        unwind={State.UNDOING: State.CANCELLED},
        version=version,
    )
    _moves(order)
    charge = _steps(
        order,
        world,
        attempts=attempts,
        timeout_s=timeout_s,
        failed=failed,
        classify=classify,
        dependencies=(charges_at, reserves_at),
    )

    @order.effect(State.DONE, retry=Retry(attempts=attempts))
    async def mail(order: Order, ctx: StepContext) -> None:
        await world.mail.answer(Call(order, ctx))

    if declare is not None:
        declare(order)
    return Shop(order, world, charge)


def _moves(order: OrderMachine) -> None:
    @order.on(Submit, State.DRAFT, to=State.CHARGING, when=affordable)
    def submit(order: Order, event: Submit) -> Order:
        return replace(order, cents=event.cents)

    @order.on(Charged, State.CHARGING, to=State.RESERVING)
    def charged(order: Order, event: Charged) -> Order:
        return replace(order, receipt=event.receipt)

    @order.on(Note, State.DRAFT, State.CHARGING, State.DONE, State.UNDOING)
    def note(order: Order, event: Note) -> Order:
        return replace(order, note=order.note + event.text)

    @order.on(Broken, State.DRAFT, when=odd)
    def broken(order: Order, event: Broken) -> Order:
        if event.how == "raises":
            raise ZeroDivisionError("an action that is wrong")
        return "another type"  # type: ignore[return-value]

    order.on(Declined, State.CHARGING, to=State.CANCELLED)
    order.on(Reserved, State.RESERVING, to=State.DONE)
    order.on(Again, State.DRAFT, to=State.DRAFT)
    order.on(Again, State.CHARGING, to=State.CHARGING)
    order.on(Pause, State.CHARGING, to=State.PAUSED)
    order.on(Ship, State.DONE, to=State.SHIPPED)
    order.on(Cancel, order.any, to=State.UNDOING)


def _steps(
    order: OrderMachine,
    world: World,
    *,
    attempts: int,
    timeout_s: float,
    failed: State | None,
    classify: Callable[[BaseException], Classification | None] | None,
    dependencies: tuple[str | None, str | None],
) -> Step[Order, OrderEvent]:
    charges_at, reserves_at = dependencies
    # Waits that never grow to `max_s` have no floor: with `NoDelay` they are nothing, however many there are.
    retry = Retry(attempts=attempts, factor=1.0)

    @order.step(
        State.CHARGING, timeout_s=timeout_s, retry=retry, failed=failed, classify=classify, dependency=charges_at
    )
    async def charge(order: Order, ctx: StepContext) -> Charged | Declined | Again:
        return await world.charge.answer(Call(order, ctx))  # type: ignore[return-value]

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
        await world.refund.answer(Call(order, ctx, done))

    if failed is not None:

        @charge.failed
        def remember(order: Order, failure: StepFailure) -> Order:
            return replace(order, note=f"{failure.error} after {failure.attempts}")

    @order.step(State.RESERVING, timeout_s=20.0, retry=retry, failed=State.UNDOING, dependency=reserves_at)
    async def reserve(order: Order, ctx: StepContext) -> Reserved:
        return await world.reserve.answer(Call(order, ctx))  # type: ignore[return-value]

    @reserve.undo(Reserved)
    async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None:
        await world.release.answer(Call(order, ctx, done))

    return charge
