"""A small machine for what is observed: a step that calls a dependency, an undo, a guard, a time limit."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from interlock import Event, Machine, Retry, StepContext


class State(Enum):
    OPEN = "open"
    PAYING = "paying"
    BOOKING = "booking"
    DONE = "done"
    UNDOING = "undoing"
    FAILED = "failed"


@dataclass(frozen=True)
class Ticket:
    seat: str = ""


class TicketEvent(Event):
    pass


@dataclass(frozen=True)
class Buy(TicketEvent):
    pass


@dataclass(frozen=True)
class Paid(TicketEvent):
    pass


@dataclass(frozen=True)
class Booked(TicketEvent):
    pass


@dataclass(frozen=True)
class Cancel(TicketEvent):
    pass


TicketMachine = Machine[State, Ticket, TicketEvent]


def tickets(pay: Callable[[], None] | None = None) -> TicketMachine:
    """Made anew; `pay` may raise."""
    machine: TicketMachine = Machine(
        "ticket",
        states=State,
        context=Ticket,
        events=TicketEvent,
        initial=State.OPEN,
        final={State.DONE, State.FAILED},
        unwind={State.UNDOING: State.FAILED},
        version=1,
    )
    machine.on(Buy, State.OPEN, to=State.PAYING)
    machine.on(Paid, State.PAYING, to=State.BOOKING)
    machine.on(Booked, State.BOOKING, to=State.DONE)
    machine.on(Cancel, State.OPEN, State.PAYING, State.BOOKING, to=State.UNDOING)
    machine.dwell(State.OPEN, max_s=60)

    @machine.step(State.PAYING, timeout_s=5, retry=Retry(attempts=2), dependency="bank", failed=State.UNDOING)
    async def paying(ticket: Ticket, ctx: StepContext) -> Paid:
        if pay is not None:
            pay()
        return Paid()

    @machine.step(State.BOOKING, timeout_s=5, failed=State.UNDOING)
    async def booking(ticket: Ticket, ctx: StepContext) -> Booked:
        return Booked()

    return machine
