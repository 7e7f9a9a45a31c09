"""What becomes of the engine when a store grows: 10³, 10⁵ and 10⁶ workflows, and the same work on each of them.

The stores are filled through the store itself with copies of an order that an engine has run, history included, because
filling them through the engine would take longer and leave the same rows. One in a hundred is still active and has a
timer, up to 10⁴ of them. Then the engines on the three stores take turns with the same orders, so that a ratio compares
sizes and not minutes. `--quick` leaves the history of the finished orders at its first and last row.

Memory is that of a process which has nothing but the engine on the largest store open, and has looked at every active
workflow; the same process with an empty store is subtracted. The same on PostgreSQL is `growth_postgres`.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from benchmarks.embedded import MACHINES, Embedded, MeasuredOrder, stepped
from benchmarks.report import Figure, Round, arguments, interleaved, publish
from interlock import Engine, Event, Machine
from interlock.clock import SystemClock
from interlock.engine.bound_machine import AnyMachine
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from interlock.store.records import Change, HistoryRecord

SIZES = (1_000, 100_000, 1_000_000)
ACTIVE_SHARE = 100
ACTIVE_MAX = 10_000
GROUP = 5_000
IN_FLIGHT = 256
OLD_S = 3_600.0
QUERIES = 9

GOALS = {"throughput_1e6_vs_1e5": 0.9}
LIMITS_MS = {"stalled_ms_1e6": 50.0, "find_ms_1e6": 50.0, "find_in_state_ms_1e6": 50.0}


class Parked(Enum):
    """Where a workflow waits."""

    WAITING = "waiting"
    GONE = "gone"


@dataclass(frozen=True)
class Nothing:
    """The context."""


class ParkedEvent(Event):
    """The alphabet."""


@dataclass(frozen=True)
class Leave(ParkedEvent):
    """What the timer sends."""


parked = Machine(
    "parked", states=Parked, context=Nothing, events=ParkedEvent, initial=Parked.WAITING, final={Parked.GONE}, version=1
)
parked.on(Leave, Parked.WAITING, to=Parked.GONE)
parked.after(Parked.WAITING, after_s=86_400.0, send=Leave())
parked.dwell(Parked.WAITING, max_s=OLD_S)

ALL: tuple[AnyMachine, ...] = (*MACHINES, parked)


async def patterns(folder: Path) -> tuple[Change, Change]:
    """A finished order and a parked workflow, as an engine leaves them."""
    url = f"lanes://{folder}"
    async with Engine.open(url, machines=ALL) as engine:
        await engine.start(stepped, "pattern", MeasuredOrder(cents=999))
        await engine.wait("pattern")
        await engine.start(parked, "parked", Nothing())
    store = await open_store(url, clock=SystemClock())
    try:
        rows = await store.load(["pattern", "parked"])
        return (
            Change(rows["pattern"], 0, tuple(await store.history("pattern"))),
            Change(rows["parked"], 0, tuple(await store.history("parked"))),
        )
    finally:
        await store.close()


def copied(pattern: Change, workflow: str, *, age_us: int, quick: bool) -> Change:
    """The same for another id, so much older."""
    row = pattern.row
    moved = {name: getattr(row, name) - age_us for name in ("created_us", "updated_us", "entered_us")}
    history: Sequence[HistoryRecord] = pattern.history
    if quick and len(history) > 1:
        history = (history[0], history[-1])
    return Change(
        msgspec.structs.replace(row, id=workflow, revision=1, **moved),
        0,
        tuple(msgspec.structs.replace(each, workflow=workflow) for each in history),
    )


async def fill(store: Store, size: int, finished: Change, waiting: Change, *, quick: bool) -> float:
    """Fill a store; returns how long it took."""
    begun = time.perf_counter()
    active = min(ACTIVE_MAX, size // ACTIVE_SHARE)
    every = size // active
    changes: list[Change] = []
    for number in range(size):
        pattern = waiting if number % every == 0 else finished
        age_us = int(2e6 * OLD_S) if number % (2 * every) == 0 else 0
        changes.append(copied(pattern, f"w-{number:07}", age_us=age_us, quick=quick))
        if len(changes) == GROUP or number == size - 1:
            assert not await store.commit(changes)
            changes = []
    return time.perf_counter() - begun


async def timed_ms(query: Callable[[], Coroutine[object, object, object]]) -> float:
    """The median of some turns, in milliseconds."""
    taken: list[float] = []
    for _ in range(QUERIES):
        begun = time.perf_counter()
        await query()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken)


async def queries(engine: Engine) -> dict[str, float]:
    """What `stalled` and `find` cost on this store."""
    last = ""

    async def deep() -> None:
        nonlocal last
        page = await engine.find(stepped, limit=100, cursor=last or None)
        last = page.cursor or ""

    return {
        "stalled_ms": await timed_ms(lambda: engine.stalled(parked, limit=100)),
        "stalled_all_ms": await timed_ms(lambda: engine.stalled(parked, limit=10_000)),
        "find_ms": await timed_ms(deep),
        "find_in_state_ms": await timed_ms(lambda: engine.find(parked, state=Parked.WAITING, limit=100)),
    }


def written_bytes() -> int:
    """What this process has written to files so far, as the kernel counts it."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"])


def resident_bytes() -> int:
    """The memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def look_at_all(url: str) -> None:
    """The body of the process whose memory is measured: open, look at every active workflow, tell."""
    begun = time.perf_counter()
    async with Engine.open(url, machines=ALL) as engine:
        opened_s = time.perf_counter() - begun
        cursor, seen = None, 0
        while True:
            page = await engine.find(parked, state=Parked.WAITING, limit=1_000, cursor=cursor)
            for view in page.items:
                await engine.get(view.id)
            seen += len(page.items)
            cursor = page.cursor
            if cursor is None:
                break
        print(resident_bytes(), opened_s, seen)


def memory(url: str) -> tuple[float, float, int]:
    """Resident megabytes, seconds to open and active workflows, of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--look", url]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603 -- ourselves.
    return int(told[0]) / 1e6, float(told[1]), int(told[2])


async def measure(folder: Path, *, quick: bool) -> tuple[dict[str, Figure], dict[str, float]]:
    """Fill, take turns, ask, weigh."""
    extra: dict[str, float] = {}
    finished, waiting = await patterns(folder / "pattern")
    for size in SIZES:
        store = await open_store(f"lanes://{folder}/{size}", clock=SystemClock())
        seconds = await fill(store, size, finished, waiting, quick=quick)
        await store.close()
        extra[f"fill_s_{size:.0e}".replace("e+0", "e")] = round(seconds, 1)
        print(f"filled {size:,} workflows in {seconds:.1f} s", file=sys.stderr)
    async with AsyncExitStack() as stack:
        engines = {
            size: await stack.enter_async_context(Engine.open(f"lanes://{folder}/{size}", machines=ALL))
            for size in SIZES
        }
        embedded = {size: Embedded(engine) for size, engine in engines.items()}
        loop = asyncio.get_running_loop()
        figures = await loop.run_in_executor(None, _turns, loop, embedded, 0.5 if quick else 1.0, 5 if quick else 9)
        for size, engine in engines.items():
            for name, value in (await queries(engine)).items():
                extra[f"{name}_{size:.0e}".replace("e+0", "e")] = round(value, 2)
        before = written_bytes()
        turn = await embedded[SIZES[-1]].round(steps=True, in_flight=IN_FLIGHT, seconds=1.0)
        extra["bytes_written_per_transition"] = round((written_bytes() - before) / turn.operations)
    empty_mb, _, _ = memory(f"lanes://{folder}/empty")
    full_mb, opened_s, active = memory(f"lanes://{folder}/{SIZES[-1]}")
    extra |= {"memory_mb_empty": empty_mb, "memory_mb_1e6": full_mb, "open_s_1e6": opened_s, "active_1e6": active}
    return figures, extra


def _turns(
    loop: asyncio.AbstractEventLoop, embedded: dict[int, Embedded], seconds: float, rounds: int
) -> dict[str, Figure]:
    def contestant(orders: Embedded) -> Callable[[], Round]:
        return lambda: asyncio.run_coroutine_threadsafe(
            orders.round(steps=True, in_flight=IN_FLIGHT, seconds=seconds), loop
        ).result()

    contestants = {f"{size:,} workflows": contestant(orders) for size, orders in embedded.items()}
    return interleaved(contestants, rounds=rounds)


def main() -> None:
    """Run it and print the report."""
    if "--look" in sys.argv:
        asyncio.run(look_at_all(sys.argv[-1]))
        return
    from benchmarks import growth_postgres  # noqa: PLC0415 -- it builds on this module.

    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="interlock-growth-") as folder:
        figures, extra = asyncio.run(measure(Path(folder), quick=options.quick))
        small, large = (figures[f"{size:,} workflows"].per_second for size in SIZES[1:])
        ratios = {"throughput_1e6_vs_1e5": large / small}
        found = growth_postgres.run(Path(folder) / "postgres", quick=options.quick)
    figures |= found.figures
    ratios |= found.ratios
    extra |= found.extra
    publish(
        "growth",
        figures=figures,
        ratios=ratios,
        goals={**GOALS, **growth_postgres.GOALS},
        unit="transitions/s, 256 orders in flight",
        file=options.json,
        extra=extra,
    )
    limits = {name: limit for name, limit in (LIMITS_MS | growth_postgres.LIMITS).items() if name in extra}
    for name in sorted(extra.keys() - limits.keys()):
        print(f"  {name} = {extra[name]:,.2f}")
    for name, limit in limits.items():
        print(f"  {name} = {extra[name]:,.2f}  goal ≤ {limit:g}: {'met' if extra[name] <= limit else 'MISSED'}")


if __name__ == "__main__":
    main()
