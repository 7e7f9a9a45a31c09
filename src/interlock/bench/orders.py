"""Orders experiment: an engine on a lane, compared with the same orders written by hand on SQLite, on one disk.

An order is its start and four transitions, with a row of history for each. By hand every transition is a transaction
with the usual statements: read the order, update it if its version is unchanged, insert the row of history, commit.
Both wait for the disk before they answer, and take turns in one run. After each turn every acknowledged order must
have arrived, with all of its history.

By hand one connection writes, in a thread of its own: SQLite has one writer, and more connections would only wait.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Literal

import msgspec

from interlock.bench.load import ROUNDS, SECONDS_MAX, Load, ask_within, ground, median_point
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext
from interlock.engine.engine import Engine
from interlock.errors import BadUsage, CorruptionError
from interlock.urls import is_lane_url, lane_path

# --- Machines --------------------------------------------------------------------------------------------------------
# Only the price of durability is measured, so the steps do nothing. The second machine is the same order without
# steps, for clients that send its four events themselves.

TRANSITIONS = 4


class MeasuredState(Enum):
    """States of an order."""

    RECEIVED = "received"
    CHARGED = "charged"
    RESERVED = "reserved"
    PACKED = "packed"
    SHIPPED = "shipped"


@dataclass(frozen=True)
class MeasuredOrder:
    """Context of an order."""

    cents: int = 0


class MeasuredOrderEvent(Event):
    """Base of the events of an order."""


@dataclass(frozen=True)
class Charge(MeasuredOrderEvent):
    """The first step is done."""


@dataclass(frozen=True)
class Reserve(MeasuredOrderEvent):
    """The second step is done."""


@dataclass(frozen=True)
class Pack(MeasuredOrderEvent):
    """The third step is done."""


@dataclass(frozen=True)
class Ship(MeasuredOrderEvent):
    """The last step is done."""


def _declare(name: str) -> Machine[MeasuredState, MeasuredOrder, MeasuredOrderEvent]:
    machine = Machine(
        name,
        states=MeasuredState,
        context=MeasuredOrder,
        events=MeasuredOrderEvent,
        initial=MeasuredState.RECEIVED,
        final={MeasuredState.SHIPPED},
        version=1,
    )
    machine.on(Charge, MeasuredState.RECEIVED, to=MeasuredState.CHARGED)
    machine.on(Reserve, MeasuredState.CHARGED, to=MeasuredState.RESERVED)
    machine.on(Pack, MeasuredState.RESERVED, to=MeasuredState.PACKED)
    machine.on(Ship, MeasuredState.PACKED, to=MeasuredState.SHIPPED)
    return machine


stepped = _declare("order")
sent = _declare("sent_order")
EVENTS: tuple[MeasuredOrderEvent, ...] = (Charge(), Reserve(), Pack(), Ship())


@stepped.step(MeasuredState.RECEIVED, timeout_s=10)
async def charge(_order: MeasuredOrder, _ctx: StepContext) -> Charge:
    """Do nothing, as the first step."""
    return Charge()


@stepped.step(MeasuredState.CHARGED, timeout_s=10)
async def reserve(_order: MeasuredOrder, _ctx: StepContext) -> Reserve:
    """Do nothing, as the second step."""
    return Reserve()


@stepped.step(MeasuredState.RESERVED, timeout_s=10)
async def pack(_order: MeasuredOrder, _ctx: StepContext) -> Pack:
    """Do nothing, as the third step."""
    return Pack()


@stepped.step(MeasuredState.PACKED, timeout_s=10)
async def ship(_order: MeasuredOrder, _ctx: StepContext) -> Ship:
    """Do nothing, as the last step."""
    return Ship()


# --- Experiment ------------------------------------------------------------------------------------------------------

CLIENTS: Final = (1, 16, 64, 256)
QUICK_CLIENTS: Final = (1, 64)
CLIENTS_MAX: Final = 10_000
PAGE: Final = 1_000
FIGURES: Final = ("orders_per_s", "transitions_per_s", "p50_ms", "p99_ms", "cpu_ms")

Series = Literal["Interlock, steps", "Interlock, events", "SQLite by hand"]
SERIES: Final[tuple[Series, ...]] = ("Interlock, steps", "Interlock, events", "SQLite by hand")
BY_HAND: Final = "SQLite by hand"

CAVEAT: Final = (
    "An order is its start and four transitions, each durable with its row of history. By hand every transition is a "
    "transaction with a wait for the disk of its own; an engine makes those of many orders durable together. With one "
    "order at a time there is nothing to share."
)

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL, context TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE history (
    id TEXT NOT NULL, version INTEGER NOT NULL, from_state TEXT NOT NULL, to_state TEXT NOT NULL, event TEXT NOT NULL,
    context TEXT NOT NULL, created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (id, version)
) WITHOUT ROWID;
"""
START = "INSERT INTO orders (id, state, context, version) VALUES (?, 'received', '{\"cents\":999}', 1)"
READ = "SELECT state, context, version FROM orders WHERE id = ?"
MOVE = "UPDATE orders SET state = ?, version = version + 1 WHERE id = ? AND version = ?"
RECORD = "INSERT INTO history (id, version, from_state, to_state, event, context) VALUES (?, ?, ?, ?, ?, ?)"
ARRIVED = "SELECT count(*) FROM orders WHERE state = 'shipped'"
HISTORY = "SELECT count(*) FROM history"


class OrdersPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One series with one number of clients: the median of its rounds."""

    series: Series
    clients: int
    orders_per_s: float
    transitions_per_s: float
    p50_ms: float
    """Median latency of whole orders."""
    p99_ms: float
    cpu_ms: float
    """CPU time per transition."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Rate of an engine as a multiple of the rate by hand."""

    series: Series
    clients: int
    times_by_hand: float


class OrdersResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the whole experiment."""

    name: str = "orders"
    url: str
    seconds: float
    points: list[OrdersPoint]
    ratios: list[Ratio]
    caveat: str = msgspec.field(default=CAVEAT, name="told")


def check_bounds(url: str | None, *, clients: Sequence[int], seconds: float) -> None:
    """Raise BadUsage for values that are out of bounds, and for a URL that is not on a local disk."""
    if url is not None and not is_lane_url(url):
        raise BadUsage(
            f"{url!r:.200} is not on a local disk.",
            why="It is compared with a file of SQLite on the same disk.",
            fix="Write --url lanes:///folder, on the disk to measure; or leave it out for a temporary folder.",
        )
    if not all(1 <= count <= CLIENTS_MAX for count in clients):
        raise BadUsage(f"clients are {', '.join(map(str, clients))}; each must be from 1 to {CLIENTS_MAX:,}.")
    if not 0 < seconds <= SECONDS_MAX:
        raise BadUsage(f"seconds is {seconds!r}; it must be more than 0 and at most {SECONDS_MAX:g}.")


async def measure(
    *, url: str | None, clients: Sequence[int], seconds: float, watch: Callable[[OrdersPoint], None]
) -> OrdersResult:
    """Measure every series with every number of clients, in turns."""
    async with ground(url) as place:
        home = place.address("orders")
        lane = lane_path(home)
        assert lane is not None, "check_bounds lets only lanes through"
        lane.parent.mkdir(parents=True, exist_ok=True)
        by_hand = ByHand(lane.with_name("by-hand.db"))
        try:
            async with Engine.open(home, machines=[stepped, sent]) as engine:
                embedded = Embedded(engine)
                works: dict[Series, Callable[[], Awaitable[object]]] = {
                    "Interlock, steps": embedded.by_steps,
                    "Interlock, events": embedded.by_events,
                    BY_HAND: by_hand.order,
                }
                rounds: dict[tuple[Series, int], list[OrdersPoint]] = {}
                for count, _ in itertools.product(clients, range(ROUNDS)):
                    for series in SERIES:
                        load = await ask_within(seconds, [works[series]] * count)
                        rounds.setdefault((series, count), []).append(_point(series, count, load))
                        watch(rounds[series, count][-1])
                await embedded.check()
            await by_hand.check()
        finally:
            by_hand.close()
        points = [median_point(rounds[series, count], FIGURES) for count in clients for series in SERIES]
        return OrdersResult(url=place.public_url, seconds=seconds, points=points, ratios=_ratios(points))


def _point(series: Series, clients: int, load: Load) -> OrdersPoint:
    return OrdersPoint(
        series=series,
        clients=clients,
        orders_per_s=load.per_s,
        transitions_per_s=load.per_s * TRANSITIONS,
        p50_ms=load.latency_ms(0.5),
        p99_ms=load.latency_ms(0.99),
        cpu_ms=load.cpu_us / 1e3 / TRANSITIONS,
    )


def _ratios(points: Sequence[OrdersPoint]) -> list[Ratio]:
    by_hand = {point.clients: point.orders_per_s for point in points if point.series == BY_HAND}
    return [
        Ratio(series=point.series, clients=point.clients, times_by_hand=point.orders_per_s / by_hand[point.clients])
        for point in points
        if point.series != BY_HAND
    ]


class Embedded:
    """Orders on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = itertools.count()
        self._placed = {stepped.name: 0, sent.name: 0}

    async def by_steps(self) -> None:
        """Run one order by its steps; the client waits for its end."""
        workflow = f"o-{next(self._numbers)}"
        await self._engine.start(stepped, workflow, MeasuredOrder(cents=999))
        await self._engine.wait(workflow)
        self._placed[stepped.name] += 1

    async def by_events(self) -> None:
        """Run one order by events that the client sends."""
        workflow = f"o-{next(self._numbers)}"
        await self._engine.start(sent, workflow, MeasuredOrder(cents=999))
        for event in EVENTS:
            await self._engine.send(workflow, event)
        self._placed[sent.name] += 1

    async def check(self) -> None:
        """Raise CorruptionError unless every order has arrived, and the last one with its whole history."""
        for machine in (stepped, sent):
            found, cursor, last = 0, None, None
            while True:
                page = await self._engine.find(machine, state=MeasuredState.SHIPPED, limit=PAGE, cursor=cursor)
                found += len(page.items)
                last = page.items[-1].id if page.items else last
                cursor = page.cursor
                if cursor is None:
                    break
            versions = [] if last is None else [row.version for row in await self._engine.history(last)]
            _check_arrived(machine.name, found, self._placed[machine.name], [*range(1, TRANSITIONS + 2)] == versions)


class ByHand:
    """The same orders on a file of SQLite, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="by-hand")
        self._numbers = itertools.count()
        self._placed = 0
        # Made here, and used in the one thread alone.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.executescript(SCHEMA)

    async def order(self) -> None:
        """Run one order in five transactions."""
        run = asyncio.get_running_loop().run_in_executor
        number = f"o-{next(self._numbers)}"
        await run(self._thread, self._start, number)
        for event in EVENTS:
            await run(self._thread, self._move, number, type(event).__name__.upper())
        self._placed += 1

    async def check(self) -> None:
        """Raise CorruptionError unless every order has arrived with its whole history."""
        found, rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._counts)
        _check_arrived(BY_HAND, found, self._placed, rows == self._placed * (TRANSITIONS + 1))

    def close(self) -> None:
        """Close the file, after the transaction that runs."""
        self._thread.shutdown()
        self._connection.close()

    def _start(self, number: str) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(START, (number,))
        connection.execute(RECORD, (number, 1, "received", "received", "STARTED", '{"cents":999}'))
        connection.execute("COMMIT")

    def _move(self, number: str, event: str) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        state, context, version = connection.execute(READ, (number,)).fetchone()
        states = [each.value for each in MeasuredState]
        after = states[states.index(state) + 1]
        assert connection.execute(MOVE, (after, number, version)).rowcount == 1
        connection.execute(RECORD, (number, version + 1, state, after, event, context))
        connection.execute("COMMIT")

    def _counts(self) -> tuple[int, int]:
        connection = self._connection
        return connection.execute(ARRIVED).fetchone()[0], connection.execute(HISTORY).fetchone()[0]


def _check_arrived(what: str, found: int, placed: int, whole: bool) -> None:  # noqa: FBT001 -- private, and the callers are above.
    if found != placed or (placed and not whole):
        raise CorruptionError(
            f"{what}: {found:,} of {placed:,} orders arrived, {'with' if whole else 'without'} their whole history.",
            why="An order that was answered must be there.",
            fix="Report it, with the command that found it.",
        )
