"""Wrong programs. Each line marked `# wrong` must be reported by both checkers, and no other line by either.

`# wrong for basedpyright` marks what mypy cannot see: it joins the events a step returns into their alphabet.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from interlock import (
    BlockingEngine,
    Child,
    Engine,
    Event,
    Family,
    Machine,
    Send,
    StepContext,
    StepFailure,
    pipeline,
    step,
)


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    DONE = "done"


class OtherState(Enum):
    DRAFT = "draft"


@dataclass(frozen=True)
class Order:
    cents: int = 0


@dataclass(frozen=True)
class Parcel:
    grams: int = 0


class OrderEvent(Event): ...


class ParcelEvent(Event): ...


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int


class Charged(OrderEvent):
    receipt: str
    note: str = ""


class Declined(OrderEvent): ...


Charged(5)  # wrong: a field of another type
Charged()  # wrong: a field is missing
Charged("r", notes="x")  # wrong: misspelt field
Charged("r").receipt = "s"  # wrong: an event is never changed
Declined(5)  # wrong: it has no fields


@dataclass(frozen=True)
class Weighed(ParcelEvent):
    grams: int


order = Machine("order", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, final={State.DONE})
Machine("order", states=State, context=Order, events=Order, initial=State.DRAFT)  # wrong: not an alphabet


def affordable(order: Order, event: Submit) -> bool:
    return 0 < event.cents


def guard_of_parcels(parcel: Parcel, event: Submit) -> bool:
    return parcel.grams > 0


def until_text(order: Order, event: Submit, at: str) -> bool:
    return at > "2000"


def says_text(order: Order, event: Submit) -> str:
    return "yes"


async def asks_the_bank(order: Order, event: Submit) -> bool:
    return True


order.on(Submit, State.DARFT, to=State.CHARGING)  # wrong: misspelt state
order.on(Submit, State.DRAFT, to=State.CHARGIN)  # wrong: misspelt state
order.on(Submit, OtherState.DRAFT, to=State.CHARGING)  # wrong: another machine's state
order.on(Weighed, State.DRAFT, to=State.CHARGING)  # wrong: another machine's event
order.on(Submit, State.DRAFT, to=State.CHARGING, when=guard_of_parcels)  # wrong: another machine's guard
order.on(Charged, State.CHARGING, to=State.DONE, when=affordable)  # wrong: a guard for another event
order.on(Submit, State.DRAFT, to=State.CHARGING, when=says_text)  # wrong: a guard says True or False
order.on(Submit, State.DRAFT, to=State.CHARGING, when=asks_the_bank)  # wrong: a guard is pure


@order.on(Charged, State.CHARGING, to=State.DONE)  # wrong: an action for another event
def action_for_submit(order: Order, event: Submit) -> Order:
    return order


@order.on(Charged, State.CHARGING, to=State.DONE)  # wrong: an action is pure
async def async_action(order: Order, event: Charged) -> Order:
    return order


@order.on(Charged, State.CHARGING, to=State.DONE)  # wrong: an action returns the context
def forgets_to_return(order: Order, event: Charged) -> None: ...


@order.step(State.CHARGING)  # wrong: a step without a timeout
async def no_timeout(order: Order, ctx: StepContext) -> Charged:
    return Charged("")


@order.step(State.CHARGING, timeout_s=4)  # wrong: another machine's event from a step
async def weighs(order: Order, ctx: StepContext) -> Charged | Weighed:
    return Charged("")


@order.step(State.CHARGING, timeout_s=4)  # wrong: a step is async
def blocks(order: Order, ctx: StepContext) -> Charged:
    return Charged("")


@order.step(State.CHARGING, timeout_s=4, blocking=True)  # wrong: a blocking step is a plain function
async def blocks_and_awaits(order: Order, ctx: StepContext) -> Charged:
    return Charged("")


@order.step(State.CHARGING, timeout_s=4, blocking="yes")  # wrong: a switch is True or False
def switches(order: Order, ctx: StepContext) -> Charged:
    return Charged("")


@order.effect(State.DONE, blocking=True)  # wrong: a blocking effect is a plain function
async def mails_and_awaits(order: Order, ctx: StepContext) -> None: ...


@order.step(State.CHARGING, timeout_s=4)
async def charge(order: Order, ctx: StepContext) -> Charged | Declined:
    return Declined()


@order.step(State.CHARGING, timeout_s=4, heartbeat_s="1 s")  # wrong: seconds are a number
async def beats(order: Order, ctx: StepContext) -> Charged:
    ctx.heartbeat("still here")  # wrong: a heartbeat says nothing but that
    return Charged("")


@order.step(State.CHARGING, timeout_s=4, undone_in={OtherState.DRAFT})  # wrong: another machine's state
async def elsewhere(order: Order, ctx: StepContext) -> Charged:
    return Charged("")


@order.effect(State.DONE, heartbeat_s=1)  # wrong: only steps have a heartbeat
async def side_message(order: Order, ctx: StepContext) -> None: ...


@charge.undo(Weighed)  # wrong: another machine's event
async def undo_weighing(order: Order, done: Weighed | None, ctx: StepContext) -> None: ...


@charge.undo(Submit)  # wrong for basedpyright: the step never returns it
async def undo_submit(order: Order, done: Submit | None, ctx: StepContext) -> None: ...


@charge.undo(Charged)  # wrong: the outcome may be unknown, so `done` may be None
async def undo_known(order: Order, done: Charged, ctx: StepContext) -> None: ...


@charge.failed  # wrong: an action is pure
async def async_failed(order: Order, failure: StepFailure) -> Order:
    return order


order.after(State.DRAFT, after_s=60, send=Weighed(5))  # wrong: another machine's event
order.after(State.DRAFT, after_s=60, send=Submit)  # wrong: an instance is sent, not a class
order.after(State.DRAFT, after_s=60, send=Submit(5), policy="forever")  # wrong: no such policy
order.after(State.DRAFT, lambda order: "later", send=Submit(5))  # wrong: not a length of time
order.after(State.DRAFT, lambda order: order.grams, send=Submit(5))  # wrong: another context's field
order.until(State.DRAFT, lambda order: 5, send=Submit(5))  # wrong: a time is a datetime
order.until(State.DRAFT, datetime.now(UTC), send=Submit(5))  # wrong: a function of the context
order.on(Submit, State.DRAFT, to=State.DONE, when=until_text)  # wrong: the time is a datetime
order.apply(order.begin(Order()), Submit(5), at=5)  # wrong: the time is a datetime
order.dwell(State.DARFT, max_s=60)  # wrong: misspelt state

snapshot = order.begin(Order())
order.begin(Parcel())  # wrong: another context
order.apply(snapshot, Weighed(5))  # wrong: another machine's event
order.apply(snapshot, Submit(cents="5"))  # wrong: a field of another type
order.can(State.DRAFT, Weighed)  # wrong: another machine's event
order.can(OtherState.DRAFT, Submit)  # wrong: another machine's state
order.at(State.DRAFT, Parcel())  # wrong: another context
snapshot.context.cents = 5  # wrong: a context is never changed


@step()  # wrong: a step without a timeout
async def hurry(order: Order, ctx: StepContext) -> Order:
    return order


@step(timeout_s=4)
async def weigh(parcel: Parcel, ctx: StepContext) -> Parcel:
    return parcel


pipeline("checkout", context=Order, steps=[weigh])  # wrong: a step of another context


async def running(engine: Engine) -> None:
    await engine.start(order, "o-1", Parcel())  # wrong: another context
    await engine.find(order, state=OtherState.DRAFT)  # wrong: another machine's state
    await engine.find(order, state="draft")  # wrong: a state is a member of the Enum
    await engine.find(order, state=State.DARFT)  # wrong: misspelt state
    await engine.stalled(order, states=[OtherState.DRAFT])  # wrong: another machine's state
    await engine.send("o-1", "SUBMIT")  # wrong: an event is an instance of its class
    await engine.send("o-1", Submit)  # wrong: an instance is sent, not a class
    await engine.send_many(["o-1"])  # wrong: an event belongs to each item
    await engine.send("o-1", Submit(5), start=order)  # wrong: a start has a context too
    await engine.of(order).send("o-1", Submit(5), start=5)  # wrong: not a context of this machine
    await engine.wait("o-1", "done")  # wrong: a state is a member of the Enum
    await engine.resolve_dead_letter("d-1")  # wrong: somebody must say what was done
    orders = engine.of(order)
    await orders.send("o-1", Weighed(5))  # wrong: another machine's event
    await orders.wait("o-1", OtherState.DRAFT)  # wrong: another machine's state
    (await orders.get("o-1")).context.grams  # wrong: another context's field
    (await orders.get("o-1")).state = State.DONE  # wrong: a view is never changed
    Engine.open("memory:", machines=[order], drain_s="5")  # wrong: a setting is a number


async def inside(engine: Engine, blocking: BlockingEngine, connection: object) -> None:
    with engine.transaction(connection) as tx:
        await tx.send("o-1", Submit(cents=5))  # wrong: without an event loop nothing is awaited
        tx.start(order, "o-1", Parcel())  # wrong: another context
    async with engine.transaction(connection) as waited:
        waited.send("o-1", Submit(cents=5))  # wrong: it must be awaited
        (await waited.start(order, "o-1", Order())).context.grams  # wrong: another context's field
        await waited.send("o-1", Submit)  # wrong: an instance is sent, not a class
    async with blocking.transaction(connection) as tx:  # wrong: a blocking engine has no event loop for it
        pass
    async with engine.transaction() as waited:  # wrong: a connection is lent
        pass


# --- Workflows together ----------------------------------------------------------------------------------------------

shipping = Machine("parcel", states=OtherState, context=Parcel, events=ParcelEvent, initial=OtherState.DRAFT)


@order.children(State.DRAFT, of=shipping, cancel=Weighed(5))
def parcels(order: Order) -> list[Child[Parcel]]:
    return [Child("a", Parcel())]


@order.children(State.DRAFT, of=shipping, leave="abandon")  # wrong: children of another context
def orders_instead(order: Order) -> list[Child[Order]]:
    return [Child("a", order)]


order.children(OtherState.DRAFT, of=shipping)  # wrong: another machine's state
order.children(State.DRAFT, of=shipping, leave="kill")  # wrong: cancel or abandon
order.join(State.DRAFT, to=OtherState.DRAFT)  # wrong: another machine's state
order.join(State.DRAFT, to=State.DONE, when=lambda family: family.all)  # wrong: a family has no such field


@order.join(State.DRAFT, to=State.DONE)  # wrong: an action returns the context
def lost(order: Order, family: Family) -> Parcel:
    return Parcel()


@order.sends(State.DONE)  # wrong: messages are returned
def silent(order: Order) -> list[Order]:
    return [order]


# --- Tasks -----------------------------------------------------------------------------------------------------------

order.task(State.DRAFT, role="r", title="t", events=(Weighed,))  # wrong: another machine's event
order.task(State.DRAFT, role="r", title="t", events=(Submit(5),))  # wrong: the classes of the events
order.task(OtherState.DRAFT, role="r", title="t", events=(Submit,))  # wrong: another machine's state
order.task(State.DRAFT, role="r", title="t", events=(Submit,), due="1d")  # wrong: seconds, or a timedelta
order.task(State.DRAFT, role="r", title="t", events=(Submit,), due=lambda it: it.grams)  # wrong: no such field
order.task(State.DRAFT, title="t", events=(Submit,))  # wrong: a task without a role


async def with_tasks(engine: Engine) -> None:
    await engine.claim_task("o-1@1")  # wrong: a claim names a person
    (await engine.task("o-1@1")).role = "r"  # wrong: a task is never changed


async def by_hand(engine: Engine, ctx: StepContext) -> None:
    await ctx.send("o-1", "SUBMIT")  # wrong: an event is an instance of its class
    await ctx.start(order, "o-1", Parcel())  # wrong: another context
    Send("o-1", "SUBMIT")  # wrong: an event is an instance of its class
