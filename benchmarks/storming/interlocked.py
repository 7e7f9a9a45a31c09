"""The same chain as a machine: four steps, two of which call the gateway and can be undone.

Each step writes what the naive chain writes: the order's row and a row of history, durably. What differs is who looks
after it: the engine keeps the attempts, the backoff, the limit and the breaker of the gateway, and undoes what was or
may have been done when an order fails. An order is started and nobody waits for it; an observer is told of its end.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from types import TracebackType
from typing import Self

from benchmarks.storming.client import Client
from benchmarks.storming.load import Outcome, order_name, order_number
from interlock import Breaker, Dependency, Engine, Event, Machine, NonRetryable, Retry, Retryable, StepContext
from interlock.errors import Overloaded
from interlock.signals import Signal, TransitionApplied

CENTS = 999
GATEWAY = "gateway"
RETRY = Retry(attempts=10, first_s=0.1, factor=2.0, max_s=2.0)
UNDO_ATTEMPTS = 10


class State(Enum):
    """Where the order is."""

    VALIDATING = "validating"
    CHARGING = "charging"
    RESERVING = "reserving"
    COMPLETING = "completing"
    COMPLETED = "completed"
    DECLINED = "declined"
    UNDOING = "undoing"
    FAILED = "failed"


ENDS = {
    State.COMPLETED.value: Outcome.COMPLETED,
    State.DECLINED.value: Outcome.DECLINED,
    State.FAILED.value: Outcome.FAILED,
}


@dataclass(frozen=True)
class Order:
    """The context."""

    cents: int = CENTS


class OrderEvent(Event):
    """The alphabet."""


@dataclass(frozen=True)
class Validated(OrderEvent):
    """The order makes sense."""


@dataclass(frozen=True)
class Charged(OrderEvent):
    """The money is here."""


@dataclass(frozen=True)
class Declined(OrderEvent):
    """The bank said no."""


@dataclass(frozen=True)
class Reserved(OrderEvent):
    """The goods are put aside."""


@dataclass(frozen=True)
class Completed(OrderEvent):
    """Everything is done."""


def machine(client: Client, *, timeout_s: float, retry: Retry) -> Machine[State, Order, OrderEvent]:
    """The machine, with steps that call the gateway over this client."""
    order = Machine(
        "storm_order",
        states=State,
        context=Order,
        events=OrderEvent,
        initial=State.VALIDATING,
        final={State.COMPLETED, State.DECLINED, State.FAILED},
        unwind={State.UNDOING: State.FAILED},
        version=1,
    )
    order.on(Validated, State.VALIDATING, to=State.CHARGING)
    order.on(Charged, State.CHARGING, to=State.RESERVING)
    order.on(Declined, State.CHARGING, to=State.DECLINED)
    order.on(Reserved, State.RESERVING, to=State.COMPLETING)
    order.on(Completed, State.COMPLETING, to=State.COMPLETED)

    @order.step(State.VALIDATING, timeout_s=timeout_s)
    async def validate(order: Order, ctx: StepContext) -> Validated:
        del ctx
        if order.cents <= 0:
            raise NonRetryable("an order without a price is refused")
        return Validated()

    @order.step(State.CHARGING, timeout_s=timeout_s, retry=retry, dependency=GATEWAY, failed=State.UNDOING)
    async def charge(order: Order, ctx: StepContext) -> Charged | Declined:
        status = await client.charge(ctx.workflow, order.cents, key=ctx.key)
        if status == HTTPStatus.PAYMENT_REQUIRED:
            return Declined()
        _check(status)
        return Charged()

    @charge.undo(Charged)
    async def refund(order: Order, done: Charged | None, ctx: StepContext) -> None:
        del order, done
        assert ctx.undoes is not None
        _check(await client.refund(ctx.workflow, undoes=ctx.undoes, key=ctx.key))

    @order.step(State.RESERVING, timeout_s=timeout_s, retry=retry, dependency=GATEWAY, failed=State.UNDOING)
    async def reserve(order: Order, ctx: StepContext) -> Reserved:
        del order
        _check(await client.reserve(ctx.workflow, key=ctx.key))
        return Reserved()

    @reserve.undo(Reserved)
    async def release(order: Order, done: Reserved | None, ctx: StepContext) -> None:
        del order, done
        assert ctx.undoes is not None
        _check(await client.release(ctx.workflow, undoes=ctx.undoes, key=ctx.key))

    @order.step(State.COMPLETING, timeout_s=timeout_s)
    async def complete(order: Order, ctx: StepContext) -> Completed:
        del order, ctx
        return Completed()

    return order


def _check(status: int) -> None:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Retryable(f"the gateway answered {status}")
    if status != HTTPStatus.OK:
        raise NonRetryable(f"the gateway answered {status}")


class Interlocked:
    """The machine on an engine."""

    def __init__(
        self,
        url: str,
        client: Client,
        *,
        in_flight: int,
        timeout_s: float,
        retry: Retry = RETRY,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        self._machine = machine(client, timeout_s=timeout_s, retry=retry)
        self._opening = Engine.open(
            url,
            machines=[self._machine],
            dependencies=dependencies(in_flight),
            observers=[self._told],
            undo_timeout_s=timeout_s,
            undo_attempts=UNDO_ATTEMPTS,
            drain_s=0.0,
            **(settings or {}),  # type: ignore[arg-type]  # Settings only, never one of the named arguments.
        )
        self._engine: Engine | None = None
        self.ended: Callable[[int, Outcome], None] = lambda _number, _outcome: None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._engine = await self._opening.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opening.__aexit__(kind, error, trace)

    def place(self, number: int) -> None:
        """Take an order in."""
        task = asyncio.get_running_loop().create_task(self._start(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, number: int) -> None:
        assert self._engine is not None
        try:
            await self._engine.start(self._machine, order_name(number), Order())
        except Overloaded:
            self.ended(number, Outcome.REFUSED)

    def _told(self, signal: Signal) -> None:
        if isinstance(signal, TransitionApplied) and (outcome := ENDS.get(signal.to_state)) is not None:
            self.ended(order_number(signal.workflow), outcome)


def dependencies(in_flight: int) -> Sequence[Dependency]:
    """What the engine knows of the gateway.

    A share opens the breaker and not failures in a row: with a hundred calls at once and a fifth of them failing, five
    in a row come by every second, and most calls still work. One probe is cheap, so it is tried often.
    """
    breaker = Breaker(failure_rate=0.5, window_calls=50, calls_min=20, reset_s=0.25)
    return [Dependency(GATEWAY, concurrency_max=in_flight, breaker=breaker, budget=0.2)]
