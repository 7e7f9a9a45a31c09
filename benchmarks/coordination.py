"""What sharing through Redis costs, and whether it holds what it promises: limits, leases, contention. One run, ratios.

Four processes want more than a limit of 500 per second, and each call is timed beside one that is let in by a limit of
the process alone. A lease is taken and given back beside what everybody writes by hand, `SET NX PX` and a script that
deletes one's own; theirs has no token, so it protects nothing from a holder that was asleep. Fifty contenders in five
processes want one lease all the time: how often each has it is the fairness, where 1 is everybody equally often, and
1/50 is one of them alone. Redis is on this machine, on a socket.

Each process of its own is this module too: `python -m benchmarks.coordination limit|contend …`.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio

from benchmarks.embedded import MACHINES
from benchmarks.report import Figure, Round, arguments, percentile, publish
from interlock import Admission, Engine, InterlockError
from interlock.errors import Overloaded
from tests.integration.redis.server import Server

LIMIT = 500
TAKERS = 4
CONTENDERS = (5, 10)
"""Processes, and how many in each."""

GOALS = {"limit_error": 0.05, "admission_p95_ms": 1.0, "lease_vs_bare_cost": 3.0}

LEASE, BARE = "engine.lease", "SET NX PX by hand"

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


@asynccontextmanager
async def engine(url: str, admission: Admission | None = None) -> AsyncGenerator[Engine]:
    """An engine whose store is its own, and whose Redis is everybody's."""
    async with Engine.open("memory:", machines=MACHINES, redis=url, admission=admission or Admission()) as opened:
        yield opened


def say(value: object) -> None:
    """A line to whoever has started this process."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def told() -> list[float]:
    """A line of numbers from there."""
    return [float(each) for each in sys.stdin.readline().split()]


# --- one process -----------------------------------------------------------------------------------------------------


def entered(gate: Callable[[], None]) -> float | None:
    """How long it took to be let in, in seconds; None when it was refused."""
    begun_s = time.perf_counter()
    try:
        gate()
    except Overloaded:
        return None
    return time.perf_counter() - begun_s


async def limit(url: str) -> None:
    """Want in all the time, by the limit of all and by one of this process alone, and say how it went."""
    admission = Admission(rate_per_s=LIMIT, burst=LIMIT / 10)
    shared, alone = list[float](), list[float]()
    async with engine(url, admission) as one, engine("", admission) as two:
        gates = ((one._inside.gate, shared), (two._inside.gate, alone))  # noqa: SLF001 -- what start and send go by.
        for gate, _ in gates:
            while entered(gate.enter) is not None:
                gate.leave()
        say("ready")
        from_s, until_s = told()
        while (now_s := time.monotonic()) < until_s:
            let_in = False
            for gate, costs in gates:
                took_s = entered(gate.enter)
                if took_s is not None:
                    gate.leave()
                    let_in = let_in or costs is shared
                    if now_s >= from_s:
                        costs.append(took_s)
            await asyncio.sleep(0 if let_in else 0.002)
    say({"shared": shared, "alone": alone})


async def contend(url: str, contenders: int) -> None:
    """Want one lease all the time, and say how often each has had it."""
    turns = [0] * contenders

    async def one(number: int, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                async with here.lease("treasure", wait_s=left_s, lease_s=5.0):
                    turns[number] += 1
            except InterlockError:
                continue  # Held until the end, or Redis was slow once.

    async with engine(url) as here:
        say("ready")
        from_s, until_s = told()
        await asyncio.sleep(from_s - time.monotonic())
        await asyncio.gather(*(one(number, until_s) for number in range(contenders)))
    say(turns)


# --- all of them -----------------------------------------------------------------------------------------------------


async def processes(count: int, seconds: float, *given: str) -> list[Any]:
    """Start so many, let them begin in the same moment, and return what they say."""
    command = [sys.executable, "-m", "benchmarks.coordination", *given]
    pipe = asyncio.subprocess.PIPE
    children = [
        await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=2**26, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
        for _ in range(count)
    ]
    for child in children:
        assert child.stdout is not None
        assert json.loads(await child.stdout.readline()) == "ready"
    begin_s = time.monotonic() + 0.5
    answers = await asyncio.gather(
        *(each.communicate(f"{begin_s} {begin_s + seconds}\n".encode()) for each in children)
    )
    return [json.loads(out) for out, _ in answers]


async def leases(url: str, seconds: float, rounds: int) -> dict[str, Figure]:
    """Take a lease and give it back, ours and by hand in turns."""
    path = url.removeprefix("unix://")
    bare = redis.asyncio.Redis(unix_socket_path=path)
    release = bare.register_script(RELEASE)
    loop = asyncio.get_running_loop()

    async def by_hand() -> None:
        assert await bare.set("bare", "me", nx=True, px=30_000)
        assert await release(keys=["bare"], args=["me"])

    async with engine(url) as here:

        async def ours() -> None:
            async with here.lease("ours", lease_s=30):
                pass

        async def turn(once: Callable[[], Awaitable[None]]) -> Round:
            latencies, begun_s, cpu_s = list[float](), loop.time(), time.process_time()
            while (now_s := loop.time()) < begun_s + seconds:
                await once()
                latencies.append(loop.time() - now_s)
            return Round(len(latencies), loop.time() - begun_s, time.process_time() - cpu_s, latencies)

        figures = {LEASE: Figure(), BARE: Figure()}
        for _ in range(rounds):
            for name, once in ((LEASE, ours), (BARE, by_hand)):
                figures[name].rounds.append(await turn(once))
    await bare.aclose()
    return figures


def fairness(turns: Sequence[int]) -> float:
    """Jain's index: 1 for everybody equally often."""
    return sum(turns) ** 2 / (len(turns) * sum(each * each for each in turns)) if any(turns) else 0.0


async def measured(url: str, *, quick: bool) -> tuple[dict[str, Figure], dict[str, float], dict[str, object]]:
    """Everything, one after the other."""
    seconds = 4.0 if quick else 10.0
    takers = await processes(TAKERS, seconds, "limit", url)
    shared = [cost for each in takers for cost in each["shared"]]
    alone = [cost for each in takers for cost in each["alone"]]
    figures = await leases(url, 0.3, 4 if quick else 10)
    count, each_has = CONTENDERS
    by_process = await processes(count, seconds, "contend", url, str(each_has))
    turns = [turn for each in by_process for turn in each]
    admitted_per_s = len(shared) / seconds
    mean = {name: 1 / figures[name].per_second for name in (LEASE, BARE)}
    ratios = {
        "limit_error": abs(admitted_per_s / LIMIT - 1),
        "admission_p95_ms": percentile(shared, 0.95) * 1_000,
        "lease_vs_bare_cost": mean[LEASE] / mean[BARE],
        "fairness": fairness(turns),
    }
    extra = {
        "admitted_per_s": admitted_per_s,
        "admission_us": {"shared": _us(shared), "alone": _us(alone)},
        "turns_per_s": sum(turns) / seconds,
        "turns_least_most": [min(turns), max(turns)],
        "turns_by_process": [sum(each) for each in by_process],
    }
    return figures, ratios, extra


def _us(costs: Sequence[float]) -> dict[str, float]:
    return {name: round(percentile(costs, share) * 1_000_000, 1) for name, share in (("p50", 0.5), ("p95", 0.95))}


def main() -> None:
    """Run, compare, report; or be one of the processes."""
    if sys.argv[1:2] == ["limit"]:
        return asyncio.run(limit(sys.argv[2]))
    if sys.argv[1:2] == ["contend"]:
        return asyncio.run(contend(sys.argv[2], int(sys.argv[3])))
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="redis-") as folder, Server(Path(folder)) as server:
        figures, ratios, extra = asyncio.run(measured(server.url, quick=options.quick))
    sys.stdout.write(json.dumps(extra, indent=2) + "\n")
    publish(
        "coordination",
        figures=figures,
        ratios=ratios,
        goals=GOALS,
        at_most={"limit_error", "admission_p95_ms", "lease_vs_bare_cost"},
        unit="leases",
        file=options.json,
        extra=extra,
    )
    return None


if __name__ == "__main__":
    main()
