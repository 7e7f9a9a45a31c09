"""What chaos has left, read by somebody who knows nothing of any engine's memory, and everything that is wrong with it.

Three parties have written down what happened: the store its histories, the customers what they were told, the world
outside what it did. The audit compares them. It is a pure function of the three, so that tests can show that it fails.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from interlock.chaos import orders
from interlock.chaos.customers import CANCEL, CANCELLED, CANCELLED_EVERY, STARTED, Told
from interlock.chaos.gateway import DECLINED_EVERY, UNDOES, Line
from interlock.chaos.messages import DONE
from interlock.chaos.orders import State
from interlock.runtime.engine import Engine

PAGE = 500


class Row(NamedTuple):
    """One row of a history."""

    version: int
    state: str
    event: str
    key: str | None = None
    run: str = ""
    """The key of the run whose result it is."""


class Kept(NamedTuple):
    """One order, as the store has it."""

    state: str
    rows: Sequence[Row]


async def read(home: str) -> dict[str, Kept]:
    """Everything that the store has, by the ids of the orders. What gave up and waits for a person is no order."""
    found: dict[str, Kept] = {}
    async with Engine.open(home, machines=[orders.order], worker=False, redis="", stall_check_s=0) as engine:
        cursor: str | None = None
        while True:
            page = await engine.find(orders.order, limit=PAGE, cursor=cursor)
            for view in page.items:
                rows = [
                    Row(row.version, str(row.to_state.value), row.event, row.key, getattr(row.payload, "run", ""))
                    for row in await engine.history(view.id)
                ]
                found[view.id] = Kept(view.state.value, rows)
            cursor = page.cursor
            if cursor is None:
                break
        for letter in await engine.dead_letters():
            found[f"dead letter {letter.id}"] = Kept(f"{letter.kind} {letter.name} of {letter.workflow}", ())
    return found


def problems(
    kept: Mapping[str, Kept], told: Iterable[Told], lines: Sequence[Line], placed: Mapping[str, int]
) -> list[str]:
    """Everything that is wrong, in whole sentences; nothing is the good answer."""
    return [
        *_lost(kept, told),
        *_unfinished(kept, placed),
        *_broken_histories(kept),
        *_given_up(kept, placed),
        *_books(kept, lines),
    ]


def _lost(kept: Mapping[str, Kept], told: Iterable[Told]) -> Iterator[str]:
    """Whatever was acknowledged has to be there, as it was said (G2)."""
    for operation, version, state, ignored in told:
        said = f"{operation.what} of {operation.workflow} was acknowledged as version {version}, {state}"
        order = kept.get(operation.workflow)
        if order is None or len(order.rows) < version:
            yield f"{said}, and is lost"
            continue
        row = order.rows[version - 1]
        if row.state != state:
            yield f"{said}, and is {row.state}"
        # A cancelled order that has nothing to take back has ended in the same commit, a version later.
        elif (
            operation.what != STARTED
            and not ignored
            and operation.key not in {each.key for each in order.rows[:version]}
        ):
            yield f"{said}, and its key is not there"


def _unfinished(kept: Mapping[str, Kept], placed: Mapping[str, int]) -> Iterator[str]:
    """Every order has come to an end, and nothing waits for a person."""
    ends = {State.DONE.value, State.CANCELLED.value}
    for workflow in placed:
        if workflow in kept and kept[workflow].state not in ends:
            yield f"{workflow} has not ended: it is {kept[workflow].state}"
    for workflow, order in kept.items():
        if workflow not in placed:
            yield f"{workflow}: nobody ordered it ({order.state})"


def _broken_histories(kept: Mapping[str, Kept]) -> Iterator[str]:
    """Versions have no gap, and each result was applied once (G3, G5)."""
    for workflow, order in kept.items():
        for before, row in pairwise(order.rows):
            if row.version != before.version + 1:
                yield f"{workflow}: version {row.version} follows {before.version}"
        for run, times in Counter(row.run for row in order.rows if row.run).items():
            if times > 1:
                yield f"{workflow}: a late result was not refused, the one of run {run} was applied {times} times"


def _given_up(kept: Mapping[str, Kept], placed: Mapping[str, int]) -> Iterator[str]:
    """Only what the customer cancelled, or the carrier declined, is taken back: no order has run out of attempts."""
    for workflow, number in placed.items():
        order = kept.get(workflow)
        wanted = number % CANCELLED_EVERY == CANCELLED or number % DECLINED_EVERY == 0
        if order is not None and order.state == State.CANCELLED.value and not wanted:
            yield f"{workflow} was given up, and nobody wanted that: its attempts were used up"


def _books(kept: Mapping[str, Kept], lines: Sequence[Line]) -> Iterator[str]:
    """A finished order was paid once; of one that was taken back nothing is left."""
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


def cancelled_by_customers(told: Iterable[Told]) -> int:
    """How many orders were cancelled on request."""
    return sum(each.operation.what == CANCEL and not each.ignored for each in told)
