"""A sample of machines that work together: an order, its parcels, and a cart that is told."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from interlock import Child, Engine, Event, Family, Machine, Send, StepContext
from tests.conformance.engine.places import settled


class ParcelState(Enum):
    PACKING = "packing"
    SENT = "sent"
    LOST = "lost"
    RETURNING = "returning"
    RETURNED = "returned"


class ParcelEvent(Event): ...


class Packed(ParcelEvent): ...


class Lose(ParcelEvent): ...


class CancelParcel(ParcelEvent): ...


class Back(ParcelEvent): ...


@dataclass(frozen=True)
class Parcel:
    sku: str
    weight: int = 1


ParcelMachine = Machine[ParcelState, Parcel, ParcelEvent]


def parcels() -> ParcelMachine:
    """A parcel: packed and sent, or lost; what was sent can be returned."""
    machine = Machine(
        "parcel",
        states=ParcelState,
        context=Parcel,
        events=ParcelEvent,
        initial=ParcelState.PACKING,
        final={ParcelState.LOST, ParcelState.RETURNED},
        resting={ParcelState.SENT},
    )

    @machine.on(Packed, ParcelState.PACKING, to=ParcelState.SENT)
    def packed(parcel: Parcel, event: Packed) -> Parcel:
        return replace(parcel, weight=parcel.weight + 1)

    machine.on(Lose, ParcelState.PACKING, to=ParcelState.LOST)
    machine.on(CancelParcel, ParcelState.PACKING, to=ParcelState.RETURNED)
    machine.on(CancelParcel, ParcelState.SENT, to=ParcelState.RETURNING)
    machine.on(Back, ParcelState.RETURNING, to=ParcelState.RETURNED)
    return machine


class OrderState(Enum):
    NEW = "new"
    FULFILLING = "fulfilling"
    SHIPPED = "shipped"
    UNDOING = "undoing"
    FAILED = "failed"
    CANCELLED = "cancelled"


class OrderEvent(Event): ...


class Pay(OrderEvent): ...


class Refund(OrderEvent): ...


class Cancel(OrderEvent): ...


@dataclass(frozen=True)
class Order:
    items: tuple[str, ...] = ()
    sent: int = 0
    lost: int = 0
    weights: int = 0
    cart: str = ""


OrderMachine = Machine[OrderState, Order, OrderEvent]


def orders(
    of: ParcelMachine,
    *,
    leave: Literal["cancel", "abandon"] = "cancel",
    lost_max: int = 0,
    told: tuple[str, ...] = ("order",),
) -> OrderMachine:
    """An order with a parcel for each item; more lost parcels than `lost_max` end it, and a cart is told so much."""
    machine = Machine(
        "order",
        states=OrderState,
        context=Order,
        events=OrderEvent,
        initial=OrderState.NEW,
        final={OrderState.FAILED, OrderState.CANCELLED},
        resting={OrderState.SHIPPED},
        unwind={OrderState.UNDOING: OrderState.FAILED},
    )
    machine.on(Pay, OrderState.NEW, to=OrderState.FULFILLING)
    machine.on(Cancel, OrderState.FULFILLING, to=OrderState.CANCELLED)
    machine.on(Refund, OrderState.FULFILLING, OrderState.SHIPPED, to=OrderState.UNDOING)
    cancel = CancelParcel() if leave == "cancel" else None

    @machine.children(OrderState.FULFILLING, of=of, cancel=cancel, leave=leave)
    def parcel_of_each_item(order: Order) -> Iterable[Child[Parcel]]:
        return [Child(item, Parcel(item)) for item in order.items]

    @machine.join(
        OrderState.FULFILLING, to=OrderState.CANCELLED, when=lambda family: family.count(ParcelState.LOST) > lost_max
    )
    def too_many_lost(order: Order, family: Family) -> Order:
        return replace(order, lost=family.count(ParcelState.LOST))

    @machine.join(OrderState.FULFILLING, to=OrderState.SHIPPED)
    def shipped(order: Order, family: Family) -> Order:
        weights = sum(parcel.weight for parcel in family.contexts(Parcel))
        return replace(order, sent=family.count(ParcelState.SENT), lost=family.count(ParcelState.LOST), weights=weights)

    @machine.sends(OrderState.SHIPPED)
    def tell_the_cart(order: Order) -> Iterable[Send]:
        return [Send(order.cart, Arrived(what)) for what in told] if order.cart else []

    return machine


class TripState(Enum):
    OUT = "out"
    BACK = "back"
    HOME = "home"


class TripEvent(Event): ...


class Onward(TripEvent): ...


@dataclass(frozen=True)
class Trip: ...


TripMachine = Machine[TripState, Trip, TripEvent]


def trips(of: ParcelMachine, *, ended_min: int = 1) -> TripMachine:
    """A trip with a parcel each way, which are cancelled by different events; out it waits for so many ends."""
    machine = Machine(
        "trip",
        states=TripState,
        context=Trip,
        events=TripEvent,
        initial=TripState.OUT,
        final={TripState.HOME},
    )
    machine.on(Onward, TripState.OUT, to=TripState.BACK)
    machine.on(Onward, TripState.BACK, to=TripState.HOME)

    @machine.children(TripState.OUT, of=of, cancel=Lose())
    def there(trip: Trip) -> Iterable[Child[Parcel]]:
        return [Child("out", Parcel("out"))]

    @machine.children(TripState.BACK, of=of, cancel=CancelParcel())
    def back(trip: Trip) -> Iterable[Child[Parcel]]:
        return [Child("home", Parcel("home"))]

    machine.join(TripState.OUT, to=TripState.BACK, when=lambda family: family.ended >= ended_min)
    machine.join(TripState.BACK, to=TripState.HOME)
    return machine


class CartState(Enum):
    OPEN = "open"
    CLOSED = "closed"


class CartEvent(Event): ...


@dataclass(frozen=True)
class Arrived(CartEvent):
    what: str
    note: str = field(default="", repr=False)


class Close(CartEvent): ...


@dataclass(frozen=True)
class Cart:
    arrived: tuple[str, ...] = ()


CartMachine = Machine[CartState, Cart, CartEvent]


def carts() -> CartMachine:
    """A cart that counts what has arrived."""
    machine = Machine(
        "cart", states=CartState, context=Cart, events=CartEvent, initial=CartState.OPEN, final={CartState.CLOSED}
    )

    @machine.on(Arrived, CartState.OPEN)
    def arrived(cart: Cart, event: Arrived) -> Cart:
        return Cart((*cart.arrived, event.what))

    machine.on(Close, CartState.OPEN, to=CartState.CLOSED)
    return machine


class CallerState(Enum):
    CALLING = "calling"
    DONE = "done"


class CallerEvent(Event): ...


class Called(CallerEvent): ...


@dataclass(frozen=True)
class Call:
    cart: str


CallerMachine = Machine[CallerState, Call, CallerEvent]


def callers(cart: CartMachine, *, failures: int = 0) -> CallerMachine:
    """A workflow whose step starts a cart and sends to it, and fails so many times after that."""
    machine = Machine(
        "caller",
        states=CallerState,
        context=Call,
        events=CallerEvent,
        initial=CallerState.CALLING,
        final={CallerState.DONE},
    )
    machine.on(Called, CallerState.CALLING, to=CallerState.DONE)

    @machine.step(CallerState.CALLING, timeout_s=60, read_only=True)
    async def call(context: Call, ctx: StepContext) -> Called:
        await ctx.start(cart, context.cart, Cart())
        await ctx.send(context.cart, Arrived("call"))
        await ctx.send(context.cart, Arrived("call", "a field that repr() leaves out"))
        if ctx.attempt <= failures:
            raise TimeoutError("after the message")
        return Called()

    return machine


async def quiet(engine: Engine) -> None:
    """Wait until nothing is on its way between the workflows."""
    families = engine._inside.families
    while True:
        await settled(engine)
        task = families._counting
        if task is None:
            if not await _pending(engine):
                return
        else:
            await task


async def _pending(engine: Engine) -> bool:
    """Whether ends are not counted, or an attempt runs."""
    if engine._inside.runner.under_way or engine._inside.families._due:
        return True
    return engine._inside.families._counting is not None
