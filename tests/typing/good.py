"""A correct program: both checkers accept every line, and infer the exact types that `assert_type` names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypedDict, assert_type

import msgspec
import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from interlock import (
    Admission,
    Allowed,
    BlockingEngine,
    BlockingTransaction,
    Child,
    Compensation,
    Counts,
    DeadLetter,
    Decision,
    Engine,
    Event,
    Family,
    Finding,
    HistoryRow,
    Machine,
    Moved,
    Page,
    PipelineState,
    Refused,
    Retry,
    Send,
    Signal,
    Snapshot,
    StepContext,
    StepFailure,
    Subscribers,
    Transaction,
    TransitionApplied,
    View,
    Workflow,
    Workflows,
    pipeline,
    step,
)


class State(Enum):
    DRAFT = "draft"
    CHARGING = "charging"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 0
    receipt: str = ""


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Submit(OrderEvent):
    cents: int


class Charged(OrderEvent):
    receipt: str
    tags: tuple[str, ...] = field(default_factory=tuple)


class Declined(OrderEvent): ...


class Cancel(OrderEvent, msgspec.Struct, frozen=True):
    reason: str = ""


def in_time(order: Order, event: Submit, at: datetime) -> bool:
    return at.year > 2000


assert_type(Charged("r", tags=("a",)).tags, tuple[str, ...])
assert_type(Cancel("late").reason, str)
assert Charged(receipt="r") == Charged("r")


order = Machine(
    "order",
    states=State,
    context=Order,
    events=OrderEvent,
    initial=State.DRAFT,
    final={State.DONE, State.CANCELLED},
    resting=set(),
    unwind={State.UNDOING: State.CANCELLED},
    version=1,
)
assert_type(order, Machine[State, Order, OrderEvent])


def affordable(order: Order, event: Submit) -> bool:
    return 0 < event.cents <= 10_000 - order.cents


def always(order: Order, event: OrderEvent) -> bool:
    return True


@order.on(Submit, State.DRAFT, to=State.CHARGING, when=affordable)
def submit(order: Order, event: Submit) -> Order:
    return replace(order, cents=event.cents)


@order.on(Charged, State.CHARGING, to=State.DONE)
def charged(order: Order, event: Charged) -> Order:
    return replace(order, receipt=event.receipt)


@order.on(Submit, State.DRAFT, to=State.CHARGING, when=in_time)
def submit_then(order: Order, event: Submit, at: datetime) -> Order:
    return replace(order, receipt=at.isoformat())


assert_type(submit_then(Order(), Submit(5), datetime.now(UTC)), Order)
order.apply(order.begin(Order()), Submit(5), at=datetime.now(UTC))
order.allowed(order.begin(Order()), Submit(5), at=datetime.now(UTC))
order.after(State.DRAFT, lambda order: timedelta(seconds=order.cents), send=Cancel())
order.after(State.DRAFT, after=lambda order: None if order.receipt else 5.0, send=Cancel())
order.after(State.DRAFT, timedelta(days=1), send=Cancel(), policy="restart")
order.after(State.DRAFT, after_s=timedelta(days=1), send=Cancel())
order.until(State.DRAFT, lambda order: None if order.receipt else datetime.now(UTC), send=Cancel())
Retry(first_s=timedelta(seconds=1))
order.on(Declined, State.CHARGING, to=State.CANCELLED, when=always)
order.on(Declined, State.CHARGING, when=lambda order, event: order.cents > 0 and event == Declined())
order.on(Cancel, State.DRAFT, State.CHARGING, to=State.UNDOING)
order.on(Cancel, order.any, to=State.UNDOING)


@order.step(
    State.CHARGING, timeout_s=4, heartbeat_s=0.5, retry=Retry(attempts=5), dependency="gateway", failed=State.UNDOING
)
async def charge(order: Order, ctx: StepContext) -> Charged | Declined:
    ctx.heartbeat()
    return Charged(ctx.key) if order.cents else Declined()


@charge.undo(Charged)
async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
    assert_type(ctx.undoes, str | None)


@charge.failed
def gave_up(order: Order, failure: StepFailure) -> Order:
    return replace(order, receipt=failure.message)


@order.effect(State.DONE)
async def mail(order: Order, ctx: StepContext) -> None: ...


order.after(State.DRAFT, after_s=3600, send=Cancel(), policy="remaining")
order.dwell(State.CHARGING, max_s=120)
order.task(State.DRAFT, role="clerk", title="Submit {cents}", events=(Submit, Cancel), due=timedelta(days=1))
order.task(State.CHARGING, role="clerk", title="Wait", events=[Cancel], due=lambda order: 5.0 if order.cents else None)

snapshot = order.begin(Order())
assert_type(snapshot, Snapshot[State, Order])
assert_type(order.apply(snapshot, Submit(cents=5)).context.cents, int)
assert_type(order.decide(snapshot, Submit(cents=5)), Decision[State, Order])
assert_type(order.at(State.CHARGING, Order(cents=7)).state, State)
assert_type(order.can(State.DRAFT, Submit), bool)
assert_type(order.can(State.DRAFT, Submit(cents=5)), bool)
assert_type(order.allowed(snapshot), list[Allowed[State]])
assert_type(order.allowed(snapshot, Submit(cents=5)), list[Allowed[State]])
assert_type(order.check(), list[Finding])
assert_type(order.mermaid() + order.dot() + order.svg() + order.table(), str)


class Sheet(TypedDict):
    rows: int


class Form(msgspec.Struct, frozen=True):
    rows: int = 0


sheets = Machine("sheet", states=State, context=Sheet, events=OrderEvent, initial=State.DRAFT)
forms = Machine("form", states=State, context=Form, events=OrderEvent, initial=State.DRAFT)


@sheets.on(Submit, State.DRAFT, to=State.DONE)
def fill(sheet: Sheet, event: Submit) -> Sheet:
    return {"rows": sheet["rows"] + event.cents}


@forms.on(Submit, State.DRAFT, to=State.DONE)
def fill_form(form: Form, event: Submit) -> Form:
    return Form(rows=form.rows + event.cents)


@dataclass(frozen=True)
class Checkout:
    cents: int = 0


@order.step(State.DRAFT, timeout_s=4, undone_in={State.UNDOING})
async def note(order: Order, ctx: StepContext) -> Charged:
    return Charged(ctx.key)


@order.step(
    State.DRAFT, timeout_s=4, per=lambda order: f"{order.cents}", priority=lambda order: order.cents, blocking=True
)
def call_slowly(order: Order, ctx: StepContext) -> Charged:
    return Charged("r")


@call_slowly.undo(Charged, blocking=True)
def undo_slowly(order: Order, done: Charged | None, ctx: StepContext) -> None: ...


@order.effect(State.DONE, blocking=True)
def mail_slowly(order: Order, ctx: StepContext) -> None: ...


@step(timeout_s=4, blocking=True)
def pay_slowly(checkout: Checkout, ctx: StepContext) -> Checkout:
    return checkout


@pay_slowly.undo
def repay_slowly(checkout: Checkout, ctx: StepContext) -> None: ...


@step(timeout_s=4, irreversible=True)
async def launch(checkout: Checkout, ctx: StepContext) -> Checkout:
    return checkout


@step(timeout_s=4, heartbeat_s=1)
async def pay(checkout: Checkout, ctx: StepContext) -> Checkout:
    return replace(checkout, cents=checkout.cents + 1)


@pay.undo
async def give_back(checkout: Checkout, ctx: StepContext) -> None: ...


checkout = pipeline("checkout", context=Checkout, steps=[pay])
assert_type(checkout.State.PAYING, PipelineState)
paying = checkout.at(checkout.State.PAYING, Checkout())
assert_type(checkout.apply(paying, checkout.Cancel(reason="too dear")).context, Checkout)

seen: list[Signal] = []


def watch(signal: Signal) -> None:
    if isinstance(signal, TransitionApplied):
        assert_type(signal.to_state, str)


subscribers = Subscribers()
subscribers.subscribe(seen.append)
subscribers.subscribe(watch)


def every(machines: Sequence[Machine[State, Order, OrderEvent]]) -> list[str]:
    return [machine.name for machine in machines]


every([order])


async def fake_charge(order: Order, ctx: StepContext) -> Charged:
    return Charged(ctx.key)


async def running() -> None:
    opening = Engine.open(
        "memory:",
        machines=[order, checkout],
        steps={charge: fake_charge, refund: refund, mail: mail, pay: pay},
        admission=Admission(rate_per_s=10, burst=20, in_flight_max=5),
        observers=[watch],
        drain_s=1,
    )
    async with opening as engine:
        assert_type(engine, Engine)
        started: Workflow[State, Order] = await engine.start(order, "o-1", Order())
        assert_type(started, View[State, Order])
        assert_type((await engine.start(checkout, "c-1", Checkout())).context, Checkout)
        moved = await engine.send("o-1", Submit(cents=5), key="k", if_allowed=True, expect_version=1)
        assert_type((moved.version, moved.duplicate, moved.ignored), tuple[int, bool, bool])
        await engine.send("o-1", Submit(cents=5), start=(order, Order()))
        await engine.send_many([("o-1", Cancel(), None, (order, Order()))])
        assert_type(await engine.of(order).send("o-1", Cancel(), start=Order()), Moved[State])
        orders = engine.of(order)
        assert_type(orders, Workflows[State, Order, OrderEvent])
        assert_type(await orders.get("o-1"), View[State, Order])
        assert_type((await orders.get("o-1")).state, State)
        assert_type((await orders.get("o-1")).context.cents, int)
        assert_type((await orders.get("o-1")).waiting, str | None)
        assert_type(await orders.send("o-1", Cancel()), Moved[State])
        assert_type(await orders.wait("o-1", State.DONE, State.CANCELLED, timeout_s=1), View[State, Order])
        assert_type(await orders.history("o-1"), list[HistoryRow[State, Order]])
        assert_type((await orders.history("o-1"))[0].from_state, State)
        assert_type(await orders.find(state=State.DONE), Page[State, Order])
        assert_type(await orders.allowed("o-1", Submit(cents=5)), list[Allowed[State]])
        assert_type(await engine.find(order, state=State.CHARGING, limit=5, cursor=None), Page[State, Order])
        assert_type(await engine.stalled(order, older_than_s=5, states=[State.CHARGING]), list[View[State, Order]])
        for answer in await engine.send_many([("o-1", Cancel(), "k"), ("o-1", Declined(), None)]):
            print(answer.error.code if isinstance(answer, Refused) else answer.version + 1)
        assert_type(await engine.stats("o-1"), Counts)
        assert_type(await engine.compensations(), list[Compensation])
        assert_type(await engine.dead_letters("step"), list[DeadLetter])
        await engine.retry_dead_letter("d-1")
        await engine.resolve_dead_letter("d-1", note="by hand")
        engine.subscribe(watch)


async def inside(engine: Engine, session: AsyncSession, awaited: psycopg.AsyncConnection) -> int:
    async with engine.transaction(awaited) as tx:
        assert_type(tx, Transaction)
        assert_type(await tx.start(order, "o-1", Order()), View[State, Order])
        await tx.send("o-1", Submit(cents=5), key="k", if_allowed=True, expect_version=1, start=(order, Order()))
    async with session.begin(), engine.transaction(session) as tx:
        return (await tx.send("o-1", Submit(cents=5))).version


def inside_without_a_loop(engine: BlockingEngine, session: Session, connection: psycopg.Connection) -> int:
    with connection.transaction(), engine.transaction(connection) as tx:
        assert_type(tx, BlockingTransaction)
        assert_type(tx.start(checkout, "c-1", Checkout()).context, Checkout)
    with session.begin(), engine.transaction(session) as tx:
        return tx.send("o-1", Submit(cents=5), key="k").version


def in_a_thread(engine: Engine, connection: psycopg.Connection) -> None:
    with engine.transaction(connection) as tx:
        assert_type(tx, BlockingTransaction)


# --- Workflows together ----------------------------------------------------------------------------------------------


class LabelEvent(Event): ...


class Stop(LabelEvent): ...


labels = Machine("label", states=State, context=Form, events=LabelEvent, initial=State.DRAFT, final={State.DONE})
batches = Machine("batch", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, final={State.DONE})


@batches.children(State.DRAFT, of=labels, cancel=Stop())
def label_of_each(order: Order) -> Iterable[Child[Form]]:
    yield Child("one", Form())


@batches.join(State.DRAFT, to=State.DONE, when=lambda family: family.count(State.DONE) >= 3)
def joined(order: Order, family: Family) -> Order:
    assert_type(family.contexts(Form), tuple[Form, ...])
    return order


batches.join(State.DRAFT, to=State.CANCELLED)


@batches.sends(State.DONE)
def told(order: Order) -> Iterable[Send]:
    return [Send("o-1", Cancel())]


async def many(engine: Engine, ctx: StepContext) -> None:
    assert_type(await engine.children("b-1"), Page[Enum, object])
    assert_type((await engine.get("b-1")).parent, str | None)
    await ctx.send("o-1", Cancel())
    await ctx.start(order, "o-1", Order())
