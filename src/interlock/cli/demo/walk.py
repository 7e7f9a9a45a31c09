"""The walk: orders in flight, one of them moves at a time, until every one has come to rest.

This is an engine in thirty lines and in memory: a decision, its records, its signals, and the steps that it owes. It
shows what the core alone gives; nothing is durable here. Orders are interleaved as they would be in a busy shop, and
which one moves next is drawn from the seed too.

The memory it takes does not grow with the number of orders: one that is done is verified, counted and let go.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from interlock.cli.demo.bank import Bank, in_this_world
from interlock.cli.demo.observers import Faulty, Tally
from interlock.cli.demo.scenario import Journey, Scenario
from interlock.cli.demo.verify import OrderRecord, OrderSnapshot, order_problems, total_problems
from interlock.core.events import wire_name
from interlock.core.values import Command, Decision, RunStep, StepContext
from interlock.errors import GuardRejected, Refusal
from interlock.examples.order import (
    Order,
    OrderEvent,
    State,
    confirm_cancel,
    order,
    refund,
    reserve_inventory,
    take_payment,
)
from interlock.examples.world import FakeWarehouse
from interlock.seams import SeededIds, SystemChance
from interlock.signals import Subscribers, TransitionApplied, TransitionRejected

IN_FLIGHT_MAX = 400
MOVES_PER_BREATH = 64
PROBLEMS_KEPT_MAX = 20

STEPS: Mapping[str, Callable[[Order, StepContext], Awaitable[OrderEvent]]] = {
    step.name: step for step in (take_payment, reserve_inventory, confirm_cancel, refund)
}


@dataclass(slots=True)
class InFlight:
    """One order on its way."""

    workflow: str
    journey: Journey
    snapshot: OrderSnapshot
    records: list[OrderRecord] = field(default_factory=list[OrderRecord])
    commands: tuple[Command, ...] = ()
    strayed: bool = False


@dataclass(slots=True)
class Outcome:
    """Everything that a walk has to tell, complete when the walk is over."""

    orders: int
    seed: int
    tally: Tally
    done: int = 0
    records: int = 0
    refusals: int = 0
    observer_failures: int = 0
    verifying_s: float = 0.0
    """How much of the time went into checking orders that were done. For display only."""
    fingerprint: str = ""
    examples: dict[str, Refusal] = field(default_factory=dict[str, Refusal])
    """The first refusal of each code."""
    longest: tuple[str, list[OrderRecord]] = ("", [])
    """The order with the longest history."""
    problems: list[str] = field(default_factory=list[str])


class Watcher(Protocol):
    """Anything that shows how far the walk is. Called often; it has to be quick."""

    def __call__(self, outcome: Outcome, /) -> None:
        """Look at the walk so far."""
        ...


class Walk:
    """All orders of one seed."""

    def __init__(self, orders: int, seed: int) -> None:
        self.outcome = Outcome(orders, seed, Tally(order.describe()))
        self._scenario = Scenario(SystemChance(seed), SeededIds(seed))
        self._bank = Bank()
        self._warehouse = FakeWarehouse()
        self._faulty = Faulty()
        self._hub = Subscribers()
        self._hub.subscribe(self._faulty)
        self._hub.subscribe(self.outcome.tally)
        self._digest = hashlib.sha256()

    async def run(self, watch: Watcher) -> Outcome:
        """Walk every order to its end."""
        outcome = self.outcome
        with in_this_world(self._bank, self._warehouse):
            arriving = enumerate(self._scenario.journeys(outcome.orders), start=1)
            flying: list[InFlight] = []
            moves = 0
            while True:
                if len(flying) < IN_FLIGHT_MAX and (arrival := next(arriving, None)):
                    flying.append(self._start(*arrival))
                elif not flying:
                    break
                index = self._scenario.turn(len(flying))
                if not await self._advance(flying[index]):
                    self._finish(flying[index])
                    flying[index] = flying[-1]
                    flying.pop()
                moves += 1
                if moves % MOVES_PER_BREATH == 0:
                    watch(outcome)
                    await asyncio.sleep(0)  # Steps of this world answer at once: without this, nobody could interrupt.
        self._conclude()
        watch(outcome)
        return outcome

    def _start(self, number: int, journey: Journey) -> InFlight:
        workflow = f"order-{number:06}"
        self._bank.open_account(workflow, journey.declines)
        begun = order.start(Order(order_id=workflow, user_id=f"user-{number % 997}", items=journey.items))
        flying = InFlight(workflow, journey, begun.snapshot)
        self._commit(flying, begun)
        return flying

    async def _advance(self, flying: InFlight) -> bool:
        """One move of one order, after whatever is refused on the way. False when nothing is left to happen."""
        state = flying.snapshot.state
        if flying.journey.stray_in is state and not flying.strayed:
            flying.strayed = True
            self._refuse(flying, self._scenario.stray(state))
        if (hopeless := self._scenario.hopeless(flying.snapshot)) is not None:
            self._refuse(flying, hopeless)
        event = self._scenario.wish(flying.journey, flying.snapshot) or await self._run_step(flying)
        if event is None:
            return False
        self._commit(flying, order.decide(flying.snapshot, event))
        return True

    async def _run_step(self, flying: InFlight) -> OrderEvent | None:
        for command in flying.commands:
            if isinstance(command, RunStep):
                visit = flying.snapshot.visit
                ctx = StepContext(
                    key=f"{flying.workflow}/{command.step}/{visit}", workflow=flying.workflow, visit=visit
                )
                return await STEPS[command.step](flying.snapshot.context, ctx)
        return None

    def _commit(self, flying: InFlight, decision: Decision[State, Order]) -> None:
        flying.snapshot = decision.snapshot
        flying.records += decision.records
        flying.commands = decision.commands
        for record in decision.records:
            self._hub.emit(
                TransitionApplied(
                    order.name,
                    flying.workflow,
                    record.from_state.value,
                    record.to_state.value,
                    record.event,
                    record.version,
                )
            )

    def _refuse(self, flying: InFlight, event: OrderEvent) -> None:
        try:
            order.decide(flying.snapshot, event)
        except Refusal as refusal:
            self.outcome.refusals += 1
            self.outcome.examples.setdefault(refusal.code, refusal)
            guard = refusal.guard if isinstance(refusal, GuardRejected) else None
            state = flying.snapshot.state.value
            self._hub.emit(TransitionRejected(order.name, flying.workflow, state, refusal.event, refusal.code, guard))
        else:
            self._complain(flying.workflow, f"{wire_name(type(event))} was accepted in {flying.snapshot.state.value}")

    def _finish(self, flying: InFlight) -> None:
        outcome = self.outcome
        began = time.perf_counter()
        account = self._bank.close_account(flying.workflow)
        reserved = self._warehouse.reserved.pop(flying.workflow, None)
        for problem in order_problems(flying.records, flying.snapshot, account, reserved):
            self._complain(flying.workflow, problem)
        outcome.done += 1
        outcome.records += len(flying.records)
        if len(flying.records) > len(outcome.longest[1]):
            outcome.longest = flying.workflow, flying.records
        for record in flying.records:
            told = f"{flying.workflow} {record.version} {record.event} {record.to_state.value} {record.payload!r}\n"
            self._digest.update(told.encode())
        outcome.verifying_s += time.perf_counter() - began

    def _conclude(self) -> None:
        outcome = self.outcome
        outcome.observer_failures = self._hub.failures
        outcome.fingerprint = self._digest.hexdigest()[:16]
        outcome.problems += total_problems(
            orders=outcome.orders,
            done=outcome.done,
            records=outcome.records,
            refusals=outcome.refusals,
            bank=self._bank,
            tally=outcome.tally,
            hub=self._hub,
            faulty=self._faulty,
        )

    def _complain(self, workflow: str, problem: str) -> None:
        if len(self.outcome.problems) < PROBLEMS_KEPT_MAX:
            self.outcome.problems.append(f"{workflow}: {problem}")
