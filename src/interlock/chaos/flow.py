"""Scenarios in which orders flow: before, during and after a disturbance, with an audit at the end.

A subclass of Flow adds its disturbance and its own checks. The audit is the same for all: no acknowledged operation is
lost, every order ends, money moves once. It compares the histories in the store, never an engine's memory, with the
customers' acknowledgements and the gateway's log.
"""

import asyncio
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

from interlock.chaos import orders
from interlock.chaos.messages import DONE, Life
from interlock.chaos.orders import CANCEL, CANCELLED, CANCELLED_EVERY, STARTED, Acknowledgement, State
from interlock.chaos.scenario import Played, Scenario
from interlock.chaos.stage import Stage
from interlock.chaos.world import DECLINED_EVERY, UNDOES, Line
from interlock.engine.engine import Engine

# --- Audit -----------------------------------------------------------------------------------------------------------
# `problems` is a pure function of the three records, so that tests can prove that it fails.

PAGE = 500


class Row(NamedTuple):
    """One row of a history."""

    version: int
    state: str
    event: str
    key: str | None = None
    run: str = ""
    """The key of the run whose result it is."""


class StoredOrder(NamedTuple):
    """One order, as it is in the store."""

    state: str
    rows: Sequence[Row]


async def load_orders(home: str) -> dict[str, StoredOrder]:
    """Load all orders of the store, by id. A dead letter is included under an id of its own."""
    found: dict[str, StoredOrder] = {}
    async with Engine.open(home, machines=[orders.order], worker=False, redis="", stall_check_s=0) as engine:
        cursor: str | None = None
        while True:
            page = await engine.find(orders.order, limit=PAGE, cursor=cursor)
            for view in page.items:
                rows = [
                    Row(row.version, str(row.to_state.value), row.event, row.key, getattr(row.payload, "run", ""))
                    for row in await engine.history(view.id)
                ]
                found[view.id] = StoredOrder(view.state.value, rows)
            cursor = page.cursor
            if cursor is None:
                break
        for letter in await engine.dead_letters():
            found[f"dead letter {letter.id}"] = StoredOrder(f"{letter.kind} {letter.name} of {letter.workflow}", ())
    return found


def problems(
    kept: Mapping[str, StoredOrder],
    acknowledgements: Iterable[Acknowledgement],
    lines: Sequence[Line],
    placed: Mapping[str, int],
) -> list[str]:
    """Return every broken guarantee as a sentence; an empty list means that all were kept."""
    return [
        *_lost(kept, acknowledgements),
        *_unfinished(kept, placed),
        *_broken_histories(kept),
        *_unwanted_compensations(kept, placed),
        *_unbalanced_orders(kept, lines),
    ]


def _lost(kept: Mapping[str, StoredOrder], acknowledgements: Iterable[Acknowledgement]) -> Iterator[str]:
    """Yield the acknowledged operations that the store lacks or has with another result (G2)."""
    for operation, version, state, ignored in acknowledgements:
        acknowledgement = f"{operation.what} of {operation.workflow} was acknowledged as version {version}, {state}"
        order = kept.get(operation.workflow)
        if order is None or len(order.rows) < version:
            yield f"{acknowledgement}, and is lost"
            continue
        row = order.rows[version - 1]
        if row.state != state:
            yield f"{acknowledgement}, and is {row.state}"
        # A cancelled order that has nothing to take back has ended in the same commit, a version later.
        elif (
            operation.what != STARTED
            and not ignored
            and operation.key not in {each.key for each in order.rows[:version]}
        ):
            yield f"{acknowledgement}, and its key is not there"


def _unfinished(kept: Mapping[str, StoredOrder], placed: Mapping[str, int]) -> Iterator[str]:
    """Yield the orders that have not ended, the dead letters, and the orders that were never placed."""
    ends = {State.DONE.value, State.CANCELLED.value}
    for workflow in placed:
        if workflow in kept and kept[workflow].state not in ends:
            yield f"{workflow} has not ended: it is {kept[workflow].state}"
    for workflow, order in kept.items():
        if workflow not in placed:
            yield f"{workflow}: no customer placed it ({order.state})"


def _broken_histories(kept: Mapping[str, StoredOrder]) -> Iterator[str]:
    """Yield the histories with a gap in their versions or with a result that was applied twice (G3, G5)."""
    for workflow, order in kept.items():
        for before, row in pairwise(order.rows):
            if row.version != before.version + 1:
                yield f"{workflow}: version {row.version} follows {before.version}"
        for run, times in Counter(row.run for row in order.rows if row.run).items():
            if times > 1:
                yield f"{workflow}: a late result was not refused, the one of run {run} was applied {times} times"


def _unwanted_compensations(kept: Mapping[str, StoredOrder], placed: Mapping[str, int]) -> Iterator[str]:
    """Yield the orders that were compensated although no customer cancelled and the carrier did not decline them."""
    for workflow, number in placed.items():
        order = kept.get(workflow)
        wanted = number % CANCELLED_EVERY == CANCELLED or number % DECLINED_EVERY == 0
        if order is not None and order.state == State.CANCELLED.value and not wanted:
            yield f"{workflow} was given up without a cancellation: its attempts were used up"


def _unbalanced_orders(kept: Mapping[str, StoredOrder], lines: Sequence[Line]) -> Iterator[str]:
    """Yield finished orders that were not charged exactly once, and compensated ones with a deed left."""
    done: dict[tuple[str, str], set[str]] = defaultdict(set)
    taken_back: dict[tuple[str, str], set[str]] = defaultdict(set)
    times = Counter((line.deed, line.key) for line in lines if line.what == DONE)
    for line in lines:
        if line.what == DONE:
            done[line.workflow, line.deed].add(line.key)
            if line.deed in UNDOES:
                taken_back[line.workflow, UNDOES[line.deed]].add(line.undoes)
    for (deed, key), count in times.items():
        if count > 1:
            yield f"{deed} {key} was done {count} times"
    for workflow, order in kept.items():
        for deed in UNDOES.values():
            left = done[workflow, deed] - taken_back[workflow, deed]
            if order.state == State.DONE.value and len(left) != 1:
                yield f"{workflow} is done, and there are {len(left)} {deed}s that count"
            elif order.state == State.CANCELLED.value and left:
                yield f"{workflow} was taken back, and its {deed} was not: compensation is missing"


def cancelled_by_customers(acknowledgements: Iterable[Acknowledgement]) -> int:
    """Return the number of orders that customers cancelled."""
    return sum(each.operation.what == CANCEL and not each.ignored for each in acknowledgements)


# --- Flow ------------------------------------------------------------------------------------------------------------

PARTS = 3


class Flow(Scenario):
    """Orders flow while something is disturbed."""

    disturbance: ClassVar[str]
    """The disturbance, in a few words."""

    def lives(self, stage: Stage) -> list[Life]:
        """Return the workers: two on one PostgreSQL, unless a scenario overrides this."""
        return [stage.life(worker, stage.schema()) for worker in (1, 2)]

    @abstractmethod
    async def disturb(self, stage: Stage) -> None:
        """Disturb, and undo the disturbance. Recovery after that must happen without help."""

    async def afterwards(self, stage: Stage) -> None:
        """Wait for further recovery after every order has ended."""
        del stage

    @abstractmethod
    def happened(self, stage: Stage) -> str:
        """Summarize the outcome in a clause."""

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield the broken promises of this disturbance."""
        del stage
        yield from ()

    def home(self, stage: Stage) -> str:
        """Return the address of the store that the audit reads."""
        return stage.kept

    async def play(self, stage: Stage) -> Played:
        """Run the orders, the disturbance and the audit."""
        recovery_s = await self._orders_flow(stage)
        stage.doing = "audit"
        await stage.stop()
        customers = stage.world.customers
        kept = await load_orders(self.home(stage))
        found = problems(kept, customers.acknowledgements, stage.world.gateway.lines, customers.orders)
        found += [
            f"{operation.what} of {operation.workflow} was refused: {code}" for operation, code in customers.refused
        ]
        found += self.broken(stage)
        return Played(self.happened(stage), found, recovery_s)

    async def _orders_flow(self, stage: Stage) -> float:
        """Place orders before, during and after the disturbance; return the seconds until all had ended."""
        customers, share = stage.world.customers, stage.load.orders // PARTS
        await stage.start(self.lives(stage))
        stage.doing = "orders flow"
        before = stage.place(share)
        await stage.prepared("orders flow", lambda: len(customers.ended) >= len(before) // 2)
        stage.doing = f"disturbed: {self.disturbance}"
        placing = asyncio.ensure_future(stage.place_over(share, stage.load.seconds))
        try:
            await self.disturb(stage)
            stage.over_s = stage.world.now_s()
            stage.doing = "over: coming back"
            await placing
        finally:
            placing.cancel()
        stage.place(stage.load.orders - 2 * share)
        await stage.until("every order ends", lambda: customers.quiet)
        recovery_s = stage.world.now_s() - stage.over_s
        await self.afterwards(stage)
        return recovery_s
