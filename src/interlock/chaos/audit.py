"""The audit of a scenario with orders: nothing acknowledged is lost, every order ends, money moves once.

It compares the histories in the store, never an engine's memory, with the customers' acknowledgements and the
gateway's log. `problems` is a pure function of the three, so that tests can prove that it fails.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from interlock.chaos import orders
from interlock.chaos.messages import DONE
from interlock.chaos.orders import CANCELLED, CANCELLED_EVERY, STARTED, Acknowledgement, State
from interlock.chaos.outside_services import DECLINED_EVERY, UNDOES, Line, World
from interlock.core.machine import EventT, Machine
from interlock.core.values import ContextT, StateT
from interlock.engine.engine import Engine
from interlock.engine.views import View

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


async def view_pages(
    engine: Engine, machine: Machine[StateT, ContextT, EventT]
) -> AsyncIterator[Sequence[View[StateT, ContextT]]]:
    """Yield the views of all workflows of a machine, page by page."""
    cursor: str | None = None
    while True:
        page = await engine.find(machine, limit=PAGE, cursor=cursor)
        yield page.items
        if (cursor := page.cursor) is None:
            return


async def load_orders(home: str) -> dict[str, StoredOrder]:
    """Load all orders of the store, by id. A dead letter is included under an id of its own."""
    found: dict[str, StoredOrder] = {}
    async with Engine.open(home, machines=[orders.order], worker=False, redis="", stall_check_s=0) as engine:
        views = [view async for page in view_pages(engine, orders.order) for view in page]
        for view in views:
            rows = [
                Row(row.version, str(row.to_state.value), row.event, row.key, getattr(row.payload, "run", ""))
                for row in await engine.history(view.id)
            ]
            found[view.id] = StoredOrder(view.state.value, rows)
        for letter in await engine.dead_letters():
            found[f"dead letter {letter.id}"] = StoredOrder(f"{letter.kind} {letter.name} of {letter.workflow}", ())
    return found


async def audit(home: str, world: World) -> list[str]:
    """Return every broken guarantee of a store, and every operation that was refused."""
    customers = world.customers
    found = problems(await load_orders(home), customers.acknowledgements, world.gateway.lines, customers.orders)
    return found + [
        f"{operation.what} of {operation.workflow} was refused: {code}" for operation, code in customers.refused
    ]


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
