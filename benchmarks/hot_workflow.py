"""One hot workflow: many senders on one workflow, and what its unrelated neighbours feel of it.

Everybody counts on the same workflow by an internal transition, with a row of history each. The baseline is the same by
hand on PostgreSQL: one statement on one row, 64 clients, with the number of connections that serves them best.
Neighbours are 16 clients with a workflow each, who send at a steady pace: their P99 beside the hot workflow, which is
sent to without a pause, is compared with their P99 when nobody sends to it.
"""

import asyncio
import functools
import gc
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.clients import run_clients
from benchmarks.embedded import MACHINES, Count, Counter, counter
from benchmarks.handwritten import Handwritten
from benchmarks.postgres import server
from benchmarks.report import Figure, Round, arguments, interleaved, publish
from interlock import Engine

SENDERS = (64, 256)
BASELINE_CLIENTS = 64
NEIGHBOURS = 16
PACE_S = 0.010
HOT = "hot"
POSTGRES = " on PostgreSQL"

GOALS = {
    "hot_workflow_per_s": 20_000.0,
    "unrelated_p99_vs_idle": 2.0,
    "hot_workflow_postgres_vs_handwritten": 10.0,
}
AT_MOST = ("unrelated_p99_vs_idle",)
HOT_BY_HAND = f"hot row by hand, {BASELINE_CLIENTS}"
ALONE = f"neighbours alone, {NEIGHBOURS}"
BESIDE = f"neighbours beside hot, {NEIGHBOURS}"

Contestant = Callable[[], Round]


class Hot:
    """The hot workflow on an engine, and its neighbours. CPU is this process's, or what `cpu_seconds` counts."""

    def __init__(self, engine: Engine, *, cpu_seconds: Callable[[], float] = time.process_time) -> None:
        self._engine = engine
        self._cpu_seconds = cpu_seconds
        self._sent = 0

    async def prepare(self) -> None:
        """Start all of them."""
        for workflow in (HOT, *_neighbours()):
            await self._engine.start(counter, workflow, Counter())

    async def round(self, senders: int, seconds: float) -> Round:
        """So many senders on the one workflow."""
        send = functools.partial(self._engine.send, HOT, Count())
        result = await run_clients([send] * senders, seconds=seconds, cpu_seconds=self._cpu_seconds)
        self._sent += result.operations
        return result

    async def neighbours(self, seconds: float, *, senders: int = 0) -> Round:
        """The neighbours at their pace; with senders, while these keep the hot workflow busy."""
        latencies: list[float] = []
        gc.collect()
        hot = asyncio.create_task(self.round(senders, seconds)) if senders else None
        await asyncio.sleep(0)  # The senders' own collection of garbage is over before the first neighbour asks.
        cpu, begun = time.process_time(), time.perf_counter()
        end = begun + seconds

        async def neighbour(workflow: str, first_s: float) -> None:
            due = begun + first_s
            while due < end:
                asked = due
                if (early_s := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early_s)
                    # How late a timer fires is not the engine's doing. A request that was held up by the answer before
                    # it is asked when it was due, so that a slow answer is not hidden by those it delayed.
                    asked = time.perf_counter()
                await self._engine.send(workflow, Count())
                latencies.append(time.perf_counter() - asked)
                due += PACE_S

        await asyncio.gather(
            *(neighbour(each, PACE_S * place / NEIGHBOURS) for place, each in enumerate(_neighbours()))
        )
        elapsed, used = time.perf_counter() - begun, time.process_time() - cpu
        if hot is not None:
            await hot
        return Round(len(latencies), elapsed, used, latencies)

    async def check(self) -> None:
        """Every acknowledged event was counted once."""
        view = await self._engine.of(counter).get(HOT)
        assert view.context.n == self._sent, f"counted {view.context.n:,}, acknowledged {self._sent:,}"
        assert view.version == self._sent + 1


def _neighbours() -> list[str]:
    return [f"neighbour-{number}" for number in range(NEIGHBOURS)]


def contestants(
    runner: asyncio.Runner, hot: Hot | None, by_hand: Handwritten | None, *, size: int, seconds: float
) -> dict[str, Contestant]:
    """The turns of this benchmark; those without an engine or without a server are left out."""
    found: dict[str, Contestant] = {}
    if hot is not None:
        for count in SENDERS:
            found[hot_name(count)] = lambda count=count: runner.run(hot.round(count, seconds))  # type: ignore[misc]
        found[ALONE] = lambda: runner.run(hot.neighbours(2 * seconds))
        found[BESIDE] = lambda: runner.run(hot.neighbours(2 * seconds, senders=SENDERS[0]))
    if by_hand is not None:
        found[HOT_BY_HAND] = lambda: runner.run(
            by_hand.round(by_hand.count_one, size=size, in_flight=BASELINE_CLIENTS, seconds=seconds, operations=1)
        )
    return found


def postgres_contestants(runner: asyncio.Runner, hot: Hot, *, seconds: float) -> dict[str, Contestant]:
    """The hot workflow on PostgreSQL; its neighbours are measured on the lane."""
    return {
        hot_name(count, POSTGRES): lambda count=count: runner.run(hot.round(count, seconds))  # type: ignore[misc]
        for count in SENDERS
    }


def hot_name(senders: int, store: str = "") -> str:
    """The contestant's name."""
    return f"hot workflow{store}, {senders}"


def ratios_of(figures: Mapping[str, Figure]) -> dict[str, float]:
    """What can be compared of what has run. A workflow is as fast as its best number of senders."""
    ratios: dict[str, float] = {}
    for store, rate, ratio in (
        ("", "hot_workflow_per_s", "hot_workflow_embedded_vs_handwritten"),
        (POSTGRES, "hot_workflow_postgres_per_s", "hot_workflow_postgres_vs_handwritten"),
    ):
        ours = [figures[name].per_second for count in SENDERS if (name := hot_name(count, store)) in figures]
        if ours:
            ratios[rate] = max(ours)
        if ours and HOT_BY_HAND in figures:
            ratios[ratio] = max(ours) / figures[HOT_BY_HAND].per_second
    if ALONE in figures and BESIDE in figures:
        alone, beside = figures[ALONE].latency_ms(0.99), figures[BESIDE].latency_ms(0.99)
        assert alone is not None
        assert beside is not None
        ratios["unrelated_p99_vs_idle"] = beside / alone
    return ratios


async def best_size(by_hand: Handwritten, seconds: float) -> int:
    """The number of connections that serves the hot row best. It has counted meanwhile."""
    await by_hand.heat()
    return await by_hand.best_size(by_hand.count_one, in_flight=BASELINE_CLIENTS, seconds=seconds)


def main() -> None:
    """Run, compare, report."""
    options = arguments(__doc__ or "")
    seconds = 0.5 if options.quick else 1.0
    with (
        tempfile.TemporaryDirectory(prefix="interlock-hot-") as name,
        asyncio.Runner() as runner,
        server(Path(name)) as running,
    ):
        stack = AsyncExitStack()
        engine = runner.run(stack.enter_async_context(Engine.open(f"lanes://{name}/engine", machines=list(MACHINES))))
        by_hand = runner.run(stack.enter_async_context(Handwritten(running)))
        hot = Hot(engine)
        runner.run(hot.prepare())
        size = runner.run(best_size(by_hand, seconds / 2))
        figures = interleaved(
            contestants(runner, hot, by_hand, size=size, seconds=seconds), rounds=5 if options.quick else 15
        )
        runner.run(hot.check())
        counted, rows = runner.run(by_hand.counted())
        assert counted == rows
        runner.run(stack.aclose())
    publish(
        "hot_workflow",
        figures=figures,
        ratios=ratios_of(figures),
        goals=GOALS,
        at_most=AT_MOST,
        unit="events",
        file=options.json,
        extra={"connections_by_hand": size},
    )


if __name__ == "__main__":
    main()
