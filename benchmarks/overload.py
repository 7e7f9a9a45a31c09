"""C7: twice the load that can be done, for a minute: P95 of what is taken in, how soon the rest is refused, memory.

Parcels come at an even pace, whoever waits or not (an open loop: a slow engine does not slow the load down). What they
call has so many places and takes so long, so the capacity is known. The engine takes in eight tenths of that; the
normal load is seven tenths, the overload twice the capacity. Both are run on a lane on the disk, one after the other.
"""

import asyncio
import gc
import os
import resource
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import Figure, Round, arguments, percentile, publish
from interlock import Admission, Dependency, Engine, Overloaded, StepContext, pipeline, step

PLACES = 40
TAKES_S = 0.1
CAPACITY = PLACES / TAKES_S
TAKEN_IN = 0.8 * CAPACITY
LOADS = {"normal (0.7 x)": 0.7 * CAPACITY, "overload (2 x)": 2 * CAPACITY}
GOALS = {"overload_p95_vs_normal": 1.2, "refused_p99_ms": 5.0, "rss_growth_mb": 8.0}
PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True)
class Parcel:
    """What is carried."""

    grams: int = 100


@step(timeout_s=10, dependency="carrier", read_only=True)
async def carry(parcel: Parcel, ctx: StepContext) -> Parcel:
    """Take as long as the carrier takes."""
    del ctx
    await asyncio.sleep(TAKES_S)
    return parcel


parcels = pipeline("parcels", context=Parcel, steps=[carry])


@dataclass
class Load:
    """One load, as its clients saw it."""

    took_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    """In the middle and at the end."""

    @property
    def rss_growth_mb(self) -> float:
        """How much memory grew in the second half, when every cache was full."""
        return (self.rss_bytes[-1] - self.rss_bytes[0]) / 1e6


def rss_bytes() -> int:
    """The memory of this process now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


async def one(engine: Engine, load: Load, name: str, due_s: float) -> None:
    """One parcel, from when it was due to its end or its refusal."""
    try:
        await engine.start(parcels, name, Parcel())
    except Overloaded:
        load.refused_s.append(time.perf_counter() - due_s)
        return
    await engine.wait(name)
    load.took_s.append(time.perf_counter() - due_s)


async def offer(engine: Engine, load: Load, prefix: str, per_s: float, seconds: float) -> None:
    """Offer so many per second for so long, and wait for what was taken in."""
    async with asyncio.TaskGroup() as group:
        begun_s = time.perf_counter()
        for number in range(int(per_s * seconds)):
            due_s = begun_s + number / per_s
            if (ahead_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(ahead_s)
            group.create_task(one(engine, load, f"{prefix}-{number}", time.perf_counter()))
            if number in (int(per_s * seconds / 2), int(per_s * seconds) - 1):
                load.rss_bytes.append(rss_bytes())


async def measured(folder: Path, seconds: float) -> dict[str, tuple[Load, Round]]:
    """Both loads, on an engine of their own each."""
    found: dict[str, tuple[Load, Round]] = {}
    for at, (name, per_s) in enumerate(LOADS.items()):
        load = Load()
        async with Engine.open(
            f"lanes://{folder}/{at}",
            machines=[parcels],
            dependencies=[Dependency("carrier", concurrency_max=PLACES)],
            admission=Admission(rate_per_s=TAKEN_IN, burst=PLACES / 4),
            snapshots_max=1_000,
        ) as engine:
            await offer(engine, Load(), "warm", per_s, min(5.0, seconds / 4))
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            await offer(engine, load, "parcel", per_s, seconds)
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        found[name] = load, Round(len(load.took_s), wall_s, cpu_s, load.took_s)
    return found


def main() -> None:
    """Measure and report."""
    chosen = arguments(__doc__ or "")
    seconds = float(os.environ.get("INTERLOCK_OVERLOAD_S", "10" if chosen.quick else "60"))
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measured(Path(folder), seconds))
    (normal, _), (overload, _) = found.values()
    ratio = percentile(overload.took_s, 0.95) / percentile(normal.took_s, 0.95)
    publish(
        "overload",
        figures={name: Figure([turn]) for name, (_, turn) in found.items()},
        ratios={"overload_p95_vs_normal": ratio},
        goals=GOALS,
        unit="parcels",
        file=chosen.json,
        extra={
            "refused": len(overload.refused_s),
            "refused_share": round(len(overload.refused_s) / (len(overload.refused_s) + len(overload.took_s)), 3),
            "refused_p99_ms": round(1e3 * percentile(overload.refused_s, 0.99), 3),
            "rss_growth_mb": round(overload.rss_growth_mb, 2),
            "rss_growth_normal_mb": round(normal.rss_growth_mb, 2),
            "seconds": seconds,
        },
        at_most=set(GOALS),
    )


if __name__ == "__main__":
    main()
