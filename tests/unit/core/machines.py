"""The machines that the tests of the core look at: small, complete, and made anew for every test."""

from dataclasses import dataclass, replace
from enum import Enum

from interlock.core.events import Event
from interlock.core.machine import Machine, Step
from interlock.core.values import Snapshot, StepContext, StepFailure


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    RESERVING = "reserving"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 0
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
class Note(OrderEvent):
    text: str = ""


@dataclass(frozen=True)
class Again(OrderEvent):
    pass


@dataclass(frozen=True)
class Cancel(OrderEvent):
    pass


OrderMachine = Machine[State, Order, OrderEvent]
OrderSnapshot = Snapshot[State, Order]


def affordable(order: Order, event: Submit) -> bool:
    """The amount is between 1 cent and 100 euros.

    Only this first line is the reason.
    """
    return 0 < event.cents <= 10_000


def blank_machine(name: str = "order", *, resting: frozenset[State] = frozenset()) -> OrderMachine:
    """Nothing declared yet but the states."""
    return Machine(
        name,
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.DRAFT,
        final={State.DONE, State.CANCELLED},
        resting=resting,
        unwind={State.UNDOING: State.CANCELLED},
    )


def order_machine(name: str = "order") -> OrderMachine:
    """Draft, charge (with undos for both outcomes), reserve (with one), done; cancel unwinds from anywhere."""
    order = blank_machine(name)

    @order.on(Submit, State.DRAFT, to=State.CHARGING, when=affordable)
    def submit(order: Order, event: Submit) -> Order:
        return replace(order, cents=event.cents)

    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Declined, State.CHARGING, to=State.UNDOING)
    order.on(Reserved, State.RESERVING, to=State.DONE)
    order.on(Again, State.CHARGING, State.RESERVING, to=State.CHARGING)
    order.on(Cancel, order.any, to=State.UNDOING)

    @order.on(Note, State.DRAFT, State.CHARGING, State.UNDOING)
    def note(order: Order, event: Note) -> Order:
        return replace(order, note=event.text)

    charge = declare_charge(order)
    declare_undos(charge)

    @order.step(State.RESERVING, timeout_s=4, failed=State.UNDOING)
    async def reserve(order: Order, ctx: StepContext) -> Reserved:
        return Reserved()

    @reserve.undo(Reserved)
    async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None: ...

    @reserve.failed
    def remember(order: Order, failure: StepFailure) -> Order:
        return replace(order, note=failure.error)

    @order.effect(State.CANCELLED, State.DONE)
    async def mail(order: Order, ctx: StepContext) -> None: ...

    order.after(State.DRAFT, after_s=3_600, send=Cancel())
    for state in (State.DRAFT, State.CHARGING, State.RESERVING, State.UNDOING):
        order.dwell(state, 60)
    return order


def declare_charge(order: OrderMachine) -> Step[Order, OrderEvent]:
    @order.step(State.CHARGING, timeout_s=4, failed=State.UNDOING, dependency="gateway")
    async def charge(order: Order, ctx: StepContext) -> Charged | Again:
        return Charged(ctx.key)

    return charge


def declare_undos(charge: Step[Order, OrderEvent]) -> None:
    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    @charge.undo(Again)
    async def forget(order: Order, done: Again | None, ctx: StepContext) -> None: ...
