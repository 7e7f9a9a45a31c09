"""Deciding in memory: Interlock's `decide` beside `transitions` and python-statemachine, the same order in each.

An order has four transitions, one guard and one action. Every contestant is written as its own documentation does
it: one machine definition, one order object per order, made before the clock starts; only events are timed.
The peers change an object in place and keep no history; `decide` returns the next snapshot, the history record and
the commands, and checks what guard and action return.
"""

import timeit
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import transitions
from rich.console import Console
from statemachine import State as PeerState
from statemachine import StateMachine

from benchmarks.report import Figure, Round, arguments, interleaved, publish, timed
from interlock import Event, Machine
from interlock.core.values import Decision, Record, Snapshot

GOALS = {"decide_vs_transitions": 5.0, "decide_vs_python_statemachine": 30.0}
EVENTS_PER_ORDER = 4


# --- Interlock -------------------------------------------------------------------------------------------------------


class State(Enum):
    """Where the order is."""

    DRAFT = "draft"
    SUBMITTED = "submitted"
    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"


@dataclass(frozen=True)
class Order:
    """The context."""

    cents: int = 0


class OrderEvent(Event):
    """The alphabet."""


@dataclass(frozen=True)
class Submit(OrderEvent):
    """With a payload."""

    cents: int


@dataclass(frozen=True)
class Pay(OrderEvent):
    """Without one, like the next two."""


@dataclass(frozen=True)
class Ship(OrderEvent):
    """On its way."""


@dataclass(frozen=True)
class Deliver(OrderEvent):
    """There."""


order = Machine(
    "order", states=State, context=Order, events=OrderEvent, initial=State.DRAFT, final={State.DELIVERED}, version=1
)


def affordable(order: Order, event: Submit) -> bool:
    """The amount is positive."""
    del order
    return event.cents > 0


@order.on(Submit, State.DRAFT, to=State.SUBMITTED, when=affordable)
def submit(order: Order, event: Submit) -> Order:
    """Remember the amount."""
    return replace(order, cents=event.cents)


order.on(Pay, State.SUBMITTED, to=State.PAID)
order.on(Ship, State.PAID, to=State.SHIPPED)
order.on(Deliver, State.SHIPPED, to=State.DELIVERED)


def run_interlock(orders: int) -> Round:
    """All orders through all four events."""
    snapshots = [order.begin(Order()) for _ in range(orders)]
    pay, ship, deliver = Pay(), Ship(), Deliver()

    def work() -> None:
        decide = order.decide
        moved = snapshots[0]
        for snapshot in snapshots:
            moved = decide(snapshot, Submit(cents=999)).snapshot
            moved = decide(moved, pay).snapshot
            moved = decide(moved, ship).snapshot
            moved = decide(moved, deliver).snapshot
        assert moved.state is State.DELIVERED
        assert moved.context.cents == 999

    return timed(orders * EVENTS_PER_ORDER, work)


# --- transitions -----------------------------------------------------------------------------------------------------


class PeerOrder:
    """The model of `transitions`."""

    cents = 0
    # Put there by the machine.
    state: str
    submit: Callable[..., bool]
    pay: Callable[[], bool]
    ship: Callable[[], bool]
    deliver: Callable[[], bool]

    def affordable(self, cents: int) -> bool:
        """The guard."""
        return cents > 0

    def remember(self, cents: int) -> None:
        """The action."""
        self.cents = cents


PEER_TRANSITIONS = [
    {
        "trigger": "submit",
        "source": "draft",
        "dest": "submitted",
        "conditions": "affordable",
        "before": "remember",
    },
    {"trigger": "pay", "source": "submitted", "dest": "paid"},
    {"trigger": "ship", "source": "paid", "dest": "shipped"},
    {"trigger": "deliver", "source": "shipped", "dest": "delivered"},
]


def run_transitions(orders: int) -> Round:
    """The same through `transitions`: one machine, many models, no auto transitions."""
    models = [PeerOrder() for _ in range(orders)]
    transitions.Machine(
        models,
        states=[state.value for state in State],
        transitions=PEER_TRANSITIONS,
        initial="draft",
        auto_transitions=False,
    )

    def work() -> None:
        model = models[0]
        for model in models:
            model.submit(cents=999)
            model.pay()
            model.ship()
            model.deliver()
        assert model.state == "delivered"
        assert model.cents == 999

    return timed(orders * EVENTS_PER_ORDER, work)


# --- python-statemachine ---------------------------------------------------------------------------------------------


class PeerMachine(StateMachine):
    """The same for python-statemachine, synchronous."""

    draft = PeerState(initial=True)
    submitted = PeerState()
    paid = PeerState()
    shipped = PeerState()
    delivered = PeerState(final=True)

    submit = draft.to(submitted, cond="affordable", on="remember")
    pay = submitted.to(paid)
    ship = paid.to(shipped)
    deliver = shipped.to(delivered)

    cents = 0

    def affordable(self, cents: int) -> bool:
        """The guard."""
        return cents > 0

    def remember(self, cents: int) -> None:
        """The action."""
        self.cents = cents


def run_statemachine(orders: int) -> Round:
    """The same through python-statemachine."""
    machines = [PeerMachine() for _ in range(orders)]

    def work() -> None:
        machine = machines[0]
        for machine in machines:
            machine.submit(cents=999)
            machine.pay()
            machine.ship()
            machine.deliver()
        assert machine.delivered.is_active
        assert machine.cents == 999

    return timed(orders * EVENTS_PER_ORDER, work)


# --- the floor -------------------------------------------------------------------------------------------------------

FLOOR = {("draft", Submit): "submitted", ("submitted", Pay): "paid", ("paid", Ship): "shipped"}
FLOOR[("shipped", Deliver)] = "delivered"


def run_floor(orders: int) -> Round:
    """A bare dictionary: no guard, no context, no history, no checks. What the language itself costs."""
    events = [Submit(cents=999), Pay(), Ship(), Deliver()]

    def work() -> None:
        state = ""
        for _ in range(orders):
            state = "draft"
            for event in events:
                state = FLOOR[state, type(event)]
        assert state == "delivered"

    return timed(orders * EVENTS_PER_ORDER, work)


def profile() -> dict[str, float]:
    """Where the time of one decision (SUBMIT: guard, action, record, snapshot) goes, in nanoseconds."""
    before = order.begin(Order())
    event = Submit(cents=999)
    after = order.apply(before, event)
    record = Record(2, before.state, after.state, "SUBMIT", event, after.context)

    def cost(work: Callable[[], object]) -> float:
        number = 50_000
        empty = min(timeit.repeat(lambda: None, number=number, repeat=5))
        return max(0.0, (min(timeit.repeat(work, number=number, repeat=5)) - empty) / number * 1e9)

    parts = {
        "whole decision": cost(lambda: order.decide(before, event)),
        "the user's guard": cost(lambda: affordable(before.context, event)),
        "the user's action (dataclasses.replace)": cost(lambda: submit(before.context, event)),
        "snapshot, record, decision made": cost(
            lambda: Decision(
                Snapshot(after.state, after.context, 2, 2, ()),
                (Record(2, before.state, after.state, "SUBMIT", event, after.context),),
                (),
            )
        ),
    }
    known = sum(list(parts.values())[1:])
    parts["looking up, checking, calling (the rest)"] = max(0.0, parts["whole decision"] - known)
    assert record.to_state is after.state
    return parts


def main() -> None:
    """Run, compare, show the profile of one decision."""
    options = arguments(__doc__ or "")
    size = 1 if options.quick else 4
    figures: dict[str, Figure] = interleaved(
        {
            "interlock decide": lambda: run_interlock(20_000 * size),
            "transitions": lambda: run_transitions(2_000 * size),
            "python-statemachine": lambda: run_statemachine(300 * size),
            "bare dictionary (floor)": lambda: run_floor(50_000 * size),
        },
        rounds=5 if options.quick else 9,
    )
    ours = figures["interlock decide"].per_second
    ratios = {
        "decide_vs_transitions": ours / figures["transitions"].per_second,
        "decide_vs_python_statemachine": ours / figures["python-statemachine"].per_second,
    }
    parts = profile()
    publish(
        "core",
        figures=figures,
        ratios=ratios,
        goals=GOALS,
        unit="transitions",
        file=options.json,
        extra={"profile_ns": {part: round(value, 1) for part, value in parts.items()}},
    )
    console = Console()
    console.print("\nProfile of one decision with guard and action:")
    for part, nanoseconds in parts.items():
        share = nanoseconds / parts["whole decision"] if parts["whole decision"] else 0.0
        console.print(f"  {nanoseconds:7.0f} ns  {share:4.0%}  {part}")


if __name__ == "__main__":
    main()
