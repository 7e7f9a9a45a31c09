"""Where the time goes on PostgreSQL: the store alone, the plan of one group, and the engine with many orders in flight.

    python -m benchmarks.postgres_profile [--seconds N] [--plan] [--engine]

The store alone is given groups of changes of distinct workflows, in all phases of an order, one group after the other:
what it costs per change to encode, to wait for the server, and the server itself. The plan is EXPLAIN (ANALYZE,
BUFFERS, WAL) of a group of 128. The engine runs under cProfile, which makes it slower: its shares matter, not its rate.
A module is charged with its own time, whoever called it; what was awaited is told by the calls of the store.
"""

import argparse
import asyncio
import cProfile
import itertools
import pstats
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from benchmarks.embedded import MACHINES, Embedded, MeasuredOrder, stepped
from benchmarks.metering import Meter
from benchmarks.postgres import Server, server
from interlock import Engine
from interlock.clock import SystemClock
from interlock.postgres.pool import Link
from interlock.store.postgres.store import PostgresStore, open_postgres
from interlock.store.protocol import Holder
from interlock.store.records import FREE, HOLD, Change

GROUPS = (64, 128, 256)
SLOTS = 256
PHASES = 5
STEP_S = 10.0
OWNER = "profile"
IN_FLIGHT = 256
TIMED = ("load", "commit", "commit_as", "claim", "renew", "delivered")


class Feed:
    """Changes of orders in all phases at once, as an engine would write them. A group has a workflow once."""

    def __init__(self, pattern: Sequence[Change]) -> None:
        assert len(pattern) == PHASES, f"an order had {len(pattern)} changes"
        self._pattern = pattern
        self._counting = itertools.count()
        self._ids = [""] * SLOTS
        self._created_us = [0] * SLOTS
        self._phases = [-(slot % PHASES) for slot in range(SLOTS)]
        self._slot = 0

    def group(self, size: int) -> list[Change]:
        """The next changes."""
        changes: list[Change] = []
        for _ in range(SLOTS):
            if len(changes) == size:
                break
            slot, self._slot = self._slot, (self._slot + 1) % SLOTS
            phase = self._phases[slot]
            self._phases[slot] = (phase + 1) % PHASES if phase >= 0 else phase + 1
            if phase >= 0:
                changes.append(self._change(slot, phase))
        return changes

    def _change(self, slot: int, phase: int) -> Change:
        now_us, pattern = int(time.time() * 1e6), self._pattern[phase]
        if phase == 0:
            self._ids[slot] = f"order-{next(self._counting)}"
            self._created_us[slot] = now_us
        workflow = self._ids[slot]
        row = msgspec.structs.replace(
            pattern.row,
            id=workflow,
            revision=phase + 1,
            created_us=self._created_us[slot],
            updated_us=now_us,
            entered_us=now_us,
            wake_us=now_us + int(1e6 * STEP_S) if phase < PHASES - 1 else None,
        )
        history = tuple(msgspec.structs.replace(each, workflow=workflow, created_us=now_us) for each in pattern.history)
        return Change(row, phase, history, hold=HOLD if phase < PHASES - 1 else FREE)


async def pattern_of(on: Server) -> list[Change]:
    """The changes of one order, as the engine gives them to the store."""
    seen: list[Change] = []

    def watched(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def commit(store: PostgresStore, changes: Sequence[Change], *others: object, **more: object) -> object:
            seen.extend(change for change in changes if change.history and change not in seen)
            return await method(store, changes, *others, **more)

        return commit

    with (
        patch.object(PostgresStore, "commit", watched(PostgresStore.commit)),
        patch.object(PostgresStore, "commit_as", watched(PostgresStore.commit_as)),
    ):
        async with Engine.open(on.address("pattern"), machines=list(MACHINES)) as engine:
            await engine.start(stepped, "pattern", MeasuredOrder(cents=999))
            await engine.wait("pattern")
    return seen


async def committed(store: Any, feed: Feed, size: int) -> int:  # noqa: ANN401 -- a store that is shared.
    """One group; returns how many changes it had."""
    changes = feed.group(size)
    lost = await store.commit_as(changes, Holder(OWNER, STEP_S, str(uuid.uuid4())))
    assert not lost, f"lost {lost}"
    return len(changes)


def store_alone(runner: asyncio.Runner, on: Server, pattern: Sequence[Change], seconds: float) -> None:
    """Groups of several sizes, one after the other."""
    print("the store alone, µs per change (this process | the server):")
    meter = Meter(runner, on)
    for size in GROUPS:
        store = runner.run(open_postgres(on.address(f"alone_{size}"), clock=SystemClock()))
        feed, timer = Feed(pattern), Timer()

        async def run(until: float, store: Any = store, feed: Feed = feed, size: int = size) -> int:  # noqa: ANN401
            done = 0
            while time.perf_counter() < until:
                done += await committed(store, feed, size)
            return done

        runner.run(run(time.perf_counter() + seconds / 4))
        with timer.watching(Link, "write"):
            before, cpu, wall = meter.read(), time.process_time(), time.perf_counter()
            changes = runner.run(run(wall + seconds))
            cpu, wall, after = time.process_time() - cpu, time.perf_counter() - wall, meter.read()
        print(
            f"  groups of {size:3}: {changes / wall:8,.0f}/s; wall {1e6 * wall / changes:5.1f}, of it the round "
            f"trip {1e6 * timer.seconds['write'] / changes:5.1f}; CPU {1e6 * cpu / changes:5.1f} | "
            f"{1e3 * (after.server_cpu_ms - before.server_cpu_ms) / changes:5.1f}; "
            f"WAL {(after.wal_bytes - before.wal_bytes) / changes:,.0f} bytes"
        )
        runner.run(store.close())
    meter.close()


class Timer:
    """How long the calls of a method took, waiting included, and how many there were."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    @contextmanager
    def watching(self, kind: type, name: str) -> Any:  # noqa: ANN401 -- a context manager.
        """While the block lasts."""
        method = getattr(kind, name)

        async def timed(*values: Any, **more: Any) -> object:  # noqa: ANN401 -- whatever the method takes.
            begun = time.perf_counter()
            try:
                return await method(*values, **more)
            finally:
                self.seconds[name] += time.perf_counter() - begun
                self.calls[name] += 1

        with patch.object(kind, name, timed):
            yield


class Explained(Exception):
    """The plan of the statement that was to be run. Not an error: it ends a commit whose statement was explained."""


async def plan(on: Server, pattern: Sequence[Change]) -> list[str]:
    """What the server does for a group of 128, once the tables have some rows."""
    store = await open_postgres(on.address("plan"), clock=SystemClock())
    feed = Feed(pattern)
    for _ in range(50):
        await committed(store, feed, 128)

    async def explain(link: Link, sql: str, values: Sequence[object]) -> object:
        lines = await link.driver.fetch(f"EXPLAIN (ANALYZE, BUFFERS, WAL) {sql}", *values)
        raise Explained([row[0] for row in lines])

    try:
        with patch.object(Link, "write", explain):
            await committed(store, feed, 128)
    except Explained as found:
        lines: list[str] = found.args[0]
        return lines
    finally:
        await store.close()
    raise AssertionError("a commit was not written by Link.write")


async def engine_profile(on: Server, seconds: float) -> None:
    """Orders by steps under cProfile, charged to modules, beside the waiting for the store."""
    async with Engine.open(on.address("engine"), machines=list(MACHINES)) as engine:
        orders, timer, profile = Embedded(engine), Timer(), cProfile.Profile()
        plain = await orders.round(steps=True, in_flight=IN_FLIGHT, seconds=seconds)
        watched = [name for name in TIMED if hasattr(PostgresStore, name)]
        with _all([timer.watching(PostgresStore, name) for name in watched]):
            profile.enable()
            turn = await orders.round(steps=True, in_flight=IN_FLIGHT, seconds=seconds)
            profile.disable()
    each = 1e6 / turn.operations
    print(
        f"the engine, {IN_FLIGHT} in flight: {plain.operations / plain.seconds:,.0f} transitions/s, "
        f"{1e6 * plain.cpu_seconds / plain.operations:.1f} µs CPU each; "
        f"under the profiler {turn.operations / turn.seconds:,.0f}/s. Waiting for the store, µs per transition:"
    )
    for name, spent in sorted(timer.seconds.items(), key=lambda each: -each[1]):
        calls = timer.calls[name]
        print(f"  {name:12} {spent * each:7.1f} in {calls} calls of {1e3 * spent / calls:.2f} ms")
    print("own time by module, µs per transition under the profiler:")
    own: Counter[str] = Counter()
    statistics: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = vars(pstats.Stats(profile))["stats"]
    for (file, _, function), (_, _, spent, _, _) in statistics.items():
        own[_module(file, function)] += int(1e9 * spent)
    for module, nanoseconds in own.most_common(28):
        print(f"  {nanoseconds / 1e9 * each:7.2f}  {module}")


@contextmanager
def _all(managers: Sequence[Any]) -> Any:  # noqa: ANN401 -- a context manager.
    if not managers:
        yield
        return
    with managers[0], _all(managers[1:]):
        yield


def _module(file: str, function: str) -> str:
    if file == "~":
        return function
    parts = Path(file).parts
    for root in ("interlock", "asyncpg", "asyncio", "benchmarks"):
        if root in parts:
            return "/".join(parts[len(parts) - 1 - parts[::-1].index(root) :])
    return parts[-1]


def main() -> None:
    """Run what was asked for; everything, when nothing was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--plan", action="store_true", help="only the plan of a group")
    parser.add_argument("--engine", action="store_true", help="only the engine")
    options = parser.parse_args()
    everything = not (options.plan or options.engine)
    with (
        tempfile.TemporaryDirectory(prefix="interlock-profile-") as folder,
        server(Path(folder)) as on,
        asyncio.Runner() as runner,
    ):
        pattern = runner.run(pattern_of(on))
        if everything:
            store_alone(runner, on, pattern, options.seconds)
        if everything or options.plan:
            print("\n".join(["the plan of a group of 128:", *runner.run(plan(on, pattern))]))
        if everything or options.engine:
            runner.run(engine_profile(on, options.seconds))


if __name__ == "__main__":
    main()
