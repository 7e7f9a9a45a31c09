"""What search costs: the price per move of two searchable fields, and pages among 10⁶ workflows.

Two machines are the same order of a start and four steps that do nothing; one of them declares two fields searchable.
They take turns on the same stores, so that the ratio compares machines and not minutes. The stores with many workflows
are filled through the store itself, and their indexes are built afterwards, as when a field is added: how long that
takes, and the longest time that a lane's writer was busy with it, are figures too. Pages have 100 workflows.

`--quick` has a tenth of the workflows, and the names of its figures say so.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.clients import run_clients
from benchmarks.postgres import Server, server
from benchmarks.report import Figure, Round, arguments, interleaved, publish
from interlock import Engine, Machine, StepContext
from interlock.bench.orders import Charge, MeasuredOrderEvent, MeasuredState, Pack, Reserve, Ship
from interlock.clock import SystemClock
from interlock.core.search import MachineSearch, search_of
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from interlock.store.records import Change, Row

SIZE, QUICK_SIZE = 1_000_000, 100_000
GROUP = 5_000
IN_FLIGHT = 256
TURNS = 9
TRANSITIONS = 4
GOALS = {"lane_with_vs_without": 0.9, "postgres_with_vs_without": 0.9}
PAGE_MS = 50.0
BEGUN_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Order:
    """The context."""

    customer: str = ""
    cents: int = 0


OrderMachine = Machine[MeasuredState, Order, MeasuredOrderEvent]


def declared(name: str, search: tuple[str, ...] | None) -> OrderMachine:
    """The order of four steps."""
    machine = Machine(
        name,
        states=MeasuredState,
        context=Order,
        events=MeasuredOrderEvent,
        initial=MeasuredState.RECEIVED,
        final={MeasuredState.SHIPPED},
        search=search,
    )
    states = list(MeasuredState)
    for here, there, event in zip(states, states[1:], (Charge, Reserve, Pack, Ship), strict=False):
        machine.on(event, here, to=there)

        async def step(_order: Order, _ctx: StepContext, made: type[MeasuredOrderEvent] = event) -> MeasuredOrderEvent:
            return made()

        machine.step(here, timeout_s=10, name=f"leave_{here.value}")(step)
    return machine


WITHOUT, WITH = declared("plain", None), declared("searched", ("customer", "cents"))
SEARCHED: MachineSearch = WITH.search


class Load:
    """Orders of one machine on an engine."""

    def __init__(self, engine: Engine, machine: OrderMachine) -> None:
        self._engine = engine
        self._machine = machine
        self._count = 0

    async def one(self) -> None:
        """Run an order to its end."""
        self._count += 1
        number = f"{self._machine.name}-{self._count}"
        await self._engine.start(self._machine, number, Order(f"c-{self._count % 1_000}", self._count % 10_000))
        await self._engine.wait(number)

    async def round(self, seconds: float, cpu_seconds: Callable[[], float]) -> Round:
        """One turn."""
        found = await run_clients([self.one] * IN_FLIGHT, seconds=seconds, cpu_seconds=cpu_seconds)
        return Round(TRANSITIONS * found.operations, found.seconds, found.cpu_seconds)


async def price(places: Mapping[str, tuple[str, Callable[[], float]]], *, quick: bool) -> dict[str, Figure]:
    """Let both machines take turns at each place."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        contestants: dict[str, Callable[[], Round]] = {}
        for name, (url, cpu_seconds) in places.items():
            for machine in (WITHOUT, WITH):
                # Each machine has an engine and a home of its own.
                home = url.format(machine=machine.name)
                load = Load(await stack.enter_async_context(Engine.open(home, machines=[machine])), machine)

                def turn(load: Load = load, cpu_seconds: Callable[[], float] = cpu_seconds) -> Round:
                    made = load.round(1.0 if quick else 4.0, cpu_seconds)
                    return asyncio.run_coroutine_threadsafe(made, loop).result()

                contestants[f"{name}, {machine.name}"] = turn
        return await asyncio.to_thread(interleaved, contestants, rounds=5)


def stored(number: int, size: int, chance: random.Random) -> Change:
    """One finished workflow: a third belongs to one customer, the others to many."""
    customer = "acme" if number % 3 == 0 else f"c-{chance.randrange(size // 20)}"
    context = f'{{"customer":"{customer}","cents":{chance.randrange(100_000)}}}'.encode()
    state = MeasuredState.PACKED.value if number % 1_000 == 0 else MeasuredState.SHIPPED.value
    made_us, moved_us = BEGUN_US + 1_000 * number, BEGUN_US + 1_000 * size + 1_000 * chance.randrange(size)
    row = Row(
        f"w-{number:07}",
        WITH.name,
        1,
        state,
        context,
        1,
        1,
        active=False,
        created_us=made_us,
        updated_us=moved_us,
        entered_us=moved_us,
        digest=b"search",
    )
    return Change(row, 0)


async def fill(store: Store, size: int) -> tuple[float, float]:
    """Fill a store, then build the indexes; return how long that took, and the longest part of it, in seconds."""
    chance = random.Random(size)
    for begin in range(0, size, GROUP):
        assert not await store.commit([stored(number, size, chance) for number in range(begin, begin + GROUP)])
    begun, longest = time.perf_counter(), 0.0
    more = await store.declare_search([SEARCHED])
    while more:
        part = time.perf_counter()
        more = await store.fill_search()
        longest = max(longest, time.perf_counter() - part)
    return time.perf_counter() - begun, longest


def shapes(size: int) -> dict[str, dict[str, Any]]:
    """The searches, from the friendliest to those that match nothing."""
    half = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=BEGUN_US + 1_500 * size)
    acme = ("customer", "=", "acme")
    return {
        "one_customer": {"where": [("customer", "=", "c-77")], "order": "-updated_at"},
        "large_customer": {"where": [acme]},
        "large_customer_latest": {"where": [acme], "order": "-updated_at"},
        "two_fields": {"where": [acme, ("cents", ">", 50_000)], "order": "-updated_at"},
        "by_field": {"order": "-cents"},
        "prefix": {"where": [("customer", "prefix", "c-1")], "order": "-updated_at"},
        "in_state": {"states": (MeasuredState.PACKED.value,), "order": "-updated_at"},
        "since": {"updated_after": half, "order": "customer"},
        "nothing": {"where": [("customer", "prefix", "c-"), ("cents", "<", 0)], "order": "-updated_at"},
        "nothing_by_many": {
            "where": [("customer", ">", "a"), ("customer", "<", "b"), ("cents", ">", 9)],
            "order": "cents",
        },
    }


ASKED: dict[str, Any] = {"where": (), "updated_after": None, "updated_before": None, "order": None, "states": ()}


async def pages(store: Store, size: int) -> dict[str, float]:
    """The median of some pages of each search, one after the other, in milliseconds."""
    found: dict[str, float] = {}
    for name, shape in shapes(size).items():
        taken: list[float] = []
        cursor: str | None = None
        for _ in range(TURNS):
            begun = time.perf_counter()
            page = await store.search(search_of(SEARCHED, **{**ASKED, **shape}, limit=100, cursor=cursor))
            taken.append(1e3 * (time.perf_counter() - begun))
            cursor = page.cursor
        found[name] = statistics.median(taken)
    return found


async def measure_pages(places: Mapping[str, str], size: int) -> dict[str, float]:
    """Fill a store at each place and search it."""
    extra: dict[str, float] = {}
    power = f"1e{len(str(size)) - 1}"
    for name, url in places.items():
        store = await open_store(url, clock=SystemClock())
        try:
            took_s, longest_s = await fill(store, size)
            extra[f"{name}_index_s_{power}"] = took_s
            extra[f"{name}_longest_part_ms_{power}"] = 1e3 * longest_s
            for shape, page_ms in (await pages(store, size)).items():
                extra[f"{name}_{shape}_ms_{power}"] = page_ms
        finally:
            await store.close()
    return extra


def run(folder: Path, running: Server, *, quick: bool) -> tuple[dict[str, Figure], dict[str, float], dict[str, float]]:
    """Measure both."""
    lane = (f"lanes://{folder}/{{machine}}", time.process_time)
    places = {"lane": lane, "postgres": (running.address("{machine}"), running.cpu_seconds)}
    figures = asyncio.run(price(places, quick=quick))
    ratios = {
        f"{name}_with_vs_without": figures[f"{name}, searched"].per_second / figures[f"{name}, plain"].per_second
        for name in places
    }
    many = {"lane": f"lanes://{folder}/many", "postgres": running.address("many")}
    return figures, ratios, asyncio.run(measure_pages(many, QUICK_SIZE if quick else SIZE))


def main() -> None:
    """Run it and print the report."""
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="interlock-search-") as folder, server(Path(folder)) as running:
        figures, ratios, extra = run(Path(folder), running, quick=options.quick)
    limits = {name: PAGE_MS for name in extra if "_index_s_" not in name and "postgres_longest" not in name}
    publish(
        "search",
        figures=figures,
        ratios=ratios,
        goals={**GOALS, **limits},
        unit="transitions/s, 256 orders in flight",
        file=options.json,
        extra=extra,
        at_most=list(limits),
    )
    for name in sorted(extra.keys() - limits.keys()):
        print(f"  {name} = {extra[name]:,.2f}")


if __name__ == "__main__":
    main()
