"""`provide=`: steps, undos and effects get what they need by the type of a parameter, on every store."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import pytest

from interlock import App, DefinitionError, Event, Machine, NonRetryable, PipelineState, StepContext, pipeline, step
from interlock.errors import BadUsage
from interlock.testing import Harness
from tests.conformance.engine.places import Place, run, settled


class State(Enum):
    CHARGING = "charging"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    cents: int = 5


class OrderEvent(Event): ...


class Charged(OrderEvent): ...


class Cancel(OrderEvent): ...


class Client:
    """A resource that remembers its calls."""

    def __init__(self, name: str = "client") -> None:
        self.name = name
        self.calls: list[tuple[object, ...]] = []


class BetterClient(Client): ...


@dataclass
class Pool:
    calls: list[tuple[object, ...]] = field(default_factory=list)


OrderMachine = Machine[State, Order, OrderEvent]


def blank() -> OrderMachine:
    order = Machine(
        "order",
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.CHARGING,
        final={State.CANCELLED},
        resting={State.DONE},
        unwind={State.UNDOING: State.CANCELLED},
    )
    order.on(Charged, State.CHARGING, to=State.DONE)
    order.on(Cancel, State.CHARGING, State.DONE, to=State.UNDOING)
    return order


def shop() -> OrderMachine:
    order = blank()

    @order.step(State.CHARGING, timeout_s=30)
    async def charge(order: Order, ctx: StepContext, http: Client, limit: int = 5, *, pool: Pool) -> Charged:
        http.calls.append(("charge", ctx.machine, ctx.state, limit))
        pool.calls.append(("charge",))
        return Charged()

    @charge.undo(Charged, blocking=True)
    def refund(order: Order, done: Charged | None, ctx: StepContext, http: Client) -> None:
        http.calls.append(("refund", ctx.machine, ctx.state))

    @order.effect(State.DONE)
    async def mail(order: Order, ctx: StepContext, pool: Pool) -> None:
        pool.calls.append(("mail", ctx.machine, ctx.state))

    return order


WANTED = [("charge", "order", State.CHARGING, 5), ("refund", "order", State.UNDOING)]


def test_steps_undos_and_effects_get_their_resources(place: Place) -> None:
    async def scenario() -> None:
        order, http, pool = shop(), Client(), Pool()
        async with place.engine(order, provide=[http, pool]) as engine:
            await engine.start(order, "o-1", Order())
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            await settled(engine)
            assert http.calls == WANTED
            assert pool.calls == [("charge",), ("mail", "order", State.DONE)]

    run(scenario)


def test_a_harness_provides_the_same() -> None:
    order, http, pool = shop(), Client(), Pool()
    with Harness(order, provide=[http, pool]) as h:
        h.fail("charge", ConnectionError("away"))
        h.start("o-1", Order())
        h.drain()
        h.send("o-1", Cancel())
        h.drain()
        assert h.view("o-1").state is State.CANCELLED
    assert http.calls == WANTED
    with pytest.raises(DefinitionError, match="http: Client, which is not provided"):
        Harness(order, provide=[pool])


def test_the_exact_type_wins_and_a_class_below_matches() -> None:
    exact, better, pool = Client(), BetterClient(), Pool()
    for provide, used in (([better, pool], better), ([better, exact, pool], exact)):
        with Harness(shop(), provide=provide) as h:
            h.start("o-1", Order())
            h.drain()
        assert [call[0] for call in used.calls] == ["charge"]


@pytest.mark.parametrize(
    ("provide", "rule", "text"),
    [
        ([], "resource-missing", "step 'charge' of machine 'order' takes http: Client, which is not provided"),
        ([Client()], "resource-missing", "takes pool: Pool, which is not provided; provide= has Client"),
        (
            [Client, Pool()],
            "resource-missing",
            "takes http: Client, which is not provided; provide= has the class Client",
        ),
        ([Client(), Client(), Pool()], "resource-ambiguous", "which is provided 2 times"),
        ([BetterClient(), BetterClient(), Pool()], "resource-ambiguous", "which is provided 2 times"),
    ],
)
def test_a_missing_or_ambiguous_resource_is_refused_at_open(
    place: Place, provide: list[object], rule: str, text: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        _ = place.engine(shop(), provide=provide)
    assert caught.value.rule == rule
    assert text in caught.value.what
    assert "test_provided.py" in caught.value.location


def test_a_list_of_machines_is_refused_by_a_harness_and_a_machine_alone_by_an_app() -> None:
    with pytest.raises(BadUsage, match="is not a machine") as refused:
        Harness([shop()])  # type: ignore[arg-type]
    assert "Harness(order, parcel)" in refused.value.fix
    with pytest.raises(DefinitionError, match="machines= is the machine 'order'"):
        App(machines=shop())  # type: ignore[arg-type]


def test_an_engine_that_runs_no_steps_needs_no_resources(place: Place) -> None:
    async def scenario() -> None:
        order = shop()
        async with place.engine(order, worker=False) as engine:
            assert (await engine.start(order, "o-1", Order())).state is State.CHARGING

    run(scenario)


def test_a_swapped_step_has_needs_of_its_own() -> None:
    order = shop()
    seen: list[object] = []
    pool = Pool()

    async def fake(order: Order, ctx: StepContext, pool: Pool) -> Charged:
        seen.append(pool)
        return Charged()

    async def no_refund(order: Order, done: Charged | None, ctx: StepContext) -> None: ...

    refund = order._declared.steps[State.CHARGING].undos[0].function
    with Harness(order, steps={"charge": fake, refund: no_refund}, provide=[pool]) as h:
        h.start("o-1", Order())
        h.drain()
    assert seen == [pool]


@dataclass(frozen=True)
class Checkout:
    paid: bool = False


def test_steps_of_a_pipeline_get_their_resources(place: Place) -> None:
    @step(timeout_s=30)
    async def charge(context: Checkout, ctx: StepContext, http: Client) -> Checkout:
        http.calls.append(("charge", ctx.machine, getattr(ctx.state, "value", None)))
        return Checkout(paid=True)

    @charge.undo
    async def refund(context: Checkout, ctx: StepContext, *, http: Client) -> None:
        http.calls.append(("refund", ctx.machine, getattr(ctx.state, "value", None)))

    @step(timeout_s=30, blocking=True)
    def ship(context: Checkout, ctx: StepContext, http: Client) -> Checkout:
        raise NonRetryable(http.name)

    checkout = pipeline("checkout", context=Checkout, steps=[charge, ship])

    async def scenario() -> None:
        http = Client()
        async with place.engine(checkout, provide=[http]) as engine:
            await engine.start(checkout, "c-1", Checkout())
            view = await engine.of(checkout).wait("c-1")
            assert isinstance(view.state, PipelineState)
            assert view.state.value == "failed"
            assert http.calls == [("charge", "checkout", "charging"), ("refund", "checkout", "undoing")]

    run(scenario)


class Checkable(Protocol):
    def ping(self) -> None: ...


def _number(order: Order, ctx: StepContext, number: int) -> None: ...
def _event(order: Order, ctx: StepContext, event: Charged) -> None: ...
def _untyped(order, ctx, thing) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001


@pytest.mark.parametrize("function", [_number, _event, _untyped])
def test_a_parameter_that_is_no_resource_is_a_mistake(function: Callable[..., None]) -> None:
    with pytest.raises(DefinitionError, match="cannot be called with 2 arguments"):
        blank().effect(State.DONE, blocking=True)(function)


def test_a_protocol_that_cannot_be_checked_is_not_provided() -> None:
    order = blank()

    @order.step(State.CHARGING, timeout_s=30)
    async def charge(order: Order, ctx: StepContext, client: Checkable) -> Charged:
        return Charged()

    with pytest.raises(DefinitionError, match="client: Checkable, which is not provided"):
        Harness(order, provide=[Client()])
