"""B5, C7: events over HTTP: one by one beside a POST that does nothing, in batches, and under twice the load admitted.

Everything is one server process, as `interlock serve` runs it, on a lane on the disk; the clients are bare sockets in
this process, so that two cores are enough. The POST that does nothing is a route of the same app: it is let in by the
same guard, reads and decodes the same body, and answers a small JSON. An event is answered when it is durable.

The load for the overload is an open loop: requests are due at an even pace, whoever was answered or not, and their
latencies count from when they were due. The server admits four tenths of what it was just measured to do with nothing
to refuse; the normal load is nine tenths of what is admitted, the overload twice of it.
"""

import asyncio
import importlib
import itertools
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

from benchmarks.report import Figure, Round, arguments, interleaved, percentile, publish
from benchmarks.serving.client import Paced, closed_loop, connected, request
from benchmarks.serving.process import Serving, serving
from benchmarks.serving.server import NOOP, name

GOALS = {
    "single_vs_noop_post_16": 0.5,
    "single_vs_noop_post_64": 0.65,
    "batch_vs_single": 5.0,
    "overload_p95_vs_normal": 2.0,
    "refused_p95_ms": 10.0,
    "rss_growth_mb": 8.0,
}
AT_MOST = ("overload_p95_vs_normal", "refused_p95_ms", "rss_growth_mb")
CONNECTIONS = (16, 64, 256)
USUAL = 64
LINES = 1_000
BATCHES = 4
"""Connections that send batches."""

ADMITTED = 0.4
NORMAL = 0.9
OVERLOAD = 2.0
BURST_S = 0.1
PACED_CONNECTIONS = 256
OVERLOAD_ROUNDS = 3

BODY = b'{"event":"SCAN","data":{"place":"Hamburg, Germany"}}'

Make = Callable[[], bytes]
Contestant = Callable[[], Round]


def noops() -> Make:
    """A POST that does nothing, with the body of an event."""
    return itertools.repeat(request(NOOP, BODY)).__next__


def singles(workflows: int) -> Make:
    """An event for one workflow after the other."""
    return itertools.cycle([request(f"/v1/workflows/{name(each)}/events", BODY) for each in range(workflows)]).__next__


def keyed(workflows: int, run: str) -> Make:
    """The same, each with a delivery key that nobody has used."""
    numbers = itertools.count()

    def make() -> bytes:
        number = next(numbers)
        path = f"/v1/workflows/{name(number % workflows)}/events"
        return request(path, BODY, f"idempotency-key: {run}-{number}\r\n")

    return make


def batches(workflows: int, lines: int) -> Make:
    """The same events, so many at once."""

    def line(number: int) -> bytes:
        return b'{"id":"%b",%b\n' % (name(number % workflows).encode(), BODY[1:])

    starts = range(0, max(workflows, lines), lines)
    bodies = [b"".join(line(number) for number in range(start, start + lines)) for start in starts]
    return itertools.cycle([request("/v1/events:batch", body) for body in bodies]).__next__


def all_applied(body: bytes, lines: int = LINES) -> bool:
    """Whether every line of a batch has moved its workflow."""
    return body.count(b'"version":') == lines and b'"status":' not in body


class Load:
    """The clients of one server."""

    def __init__(self, runner: asyncio.Runner, server: Serving, seconds: float) -> None:
        self._runner = runner
        self._server = server
        self._seconds = seconds

    def contestant(self, make: Make, connections: int, *, lines: int = 0) -> Contestant:
        """So many connections that ask as soon as they were answered."""

        def check(body: bytes) -> bool:
            return not lines or all_applied(body, lines)

        async def turn() -> Round:
            held = await connected(self._server.port, connections)
            try:
                return await closed_loop(
                    held,
                    make,
                    seconds=self._seconds,
                    cpu_seconds=self._server.cpu_seconds,
                    each=lines or 1,
                    check=check,
                )
            finally:
                for connection in held:
                    connection.close()

        return lambda: self._runner.run(turn())


def throughput(
    runner: asyncio.Runner, folder: Path, *, seconds: float, rounds: int, workflows: int
) -> dict[str, Figure]:
    """Events one by one and in batches beside a POST that does nothing, on the disk and in memory."""
    with ExitStack() as stack:
        durable = stack.enter_context(serving(f"lanes://{folder}/home", workflows=workflows))
        passing = stack.enter_context(serving("memory:", workflows=workflows))
        disk, memory = (Load(runner, server, seconds) for server in (durable, passing))
        contestants: dict[str, Contestant] = {}
        for count in CONNECTIONS:
            contestants[f"no-op, {count}"] = disk.contestant(noops(), count)
            contestants[f"single, {count}"] = disk.contestant(singles(workflows), count)
        contestants[f"single with key, {USUAL}"] = disk.contestant(keyed(workflows, "run"), USUAL)
        contestants[f"batch of 100, {BATCHES}"] = disk.contestant(batches(workflows, 100), BATCHES, lines=100)
        contestants[f"batch of 1,000, {BATCHES}"] = disk.contestant(batches(workflows, LINES), BATCHES, lines=LINES)
        contestants[f"memory: no-op, {USUAL}"] = memory.contestant(noops(), USUAL)
        contestants[f"memory: single, {USUAL}"] = memory.contestant(singles(workflows), USUAL)
        return interleaved(contestants, rounds=rounds)


def ratios_of(figures: Mapping[str, Figure]) -> dict[str, float]:
    """Events beside no-ops with as many connections; batches beside the best that single events did."""
    found = {
        f"single_vs_noop_post_{count}": figures[f"single, {count}"].per_second / figures[f"no-op, {count}"].per_second
        for count in CONNECTIONS
    }
    best = max(figures[f"single, {count}"].per_second for count in CONNECTIONS)
    return {
        "batch_vs_single": figures[f"batch of 1,000, {BATCHES}"].per_second / best,
        **found,
        "single_vs_noop_post_cpu": figures[f"no-op, {USUAL}"].cpu_ms / figures[f"single, {USUAL}"].cpu_ms,
        "single_vs_noop_post_memory": figures[f"memory: single, {USUAL}"].per_second
        / figures[f"memory: no-op, {USUAL}"].per_second,
    }


async def paced(server: Serving, per_s: float, seconds: float) -> tuple[Paced, Round]:
    """One load at an even pace."""
    connections = await connected(server.port, PACED_CONNECTIONS)
    load = Paced(connections, singles(server.workflows))
    cpu, begun = server.cpu_seconds(), asyncio.get_running_loop().time()
    try:
        await load.offer(per_s, seconds)
    finally:
        for connection in connections:
            connection.close()
    elapsed, used = asyncio.get_running_loop().time() - begun, server.cpu_seconds() - cpu
    answered = len(load.took_s) + len(load.refused_s)
    if load.others:
        raise AssertionError(f"answered with neither 200 nor 429: {load.others}")
    return load, Round(answered, elapsed, used, load.took_s)


class Overload:
    """Normal load and overload in turns, on a server that admits a known rate."""

    def __init__(self, admitted_per_s: float) -> None:
        self.admitted_per_s = admitted_per_s
        self.normal: list[tuple[Paced, Round]] = []
        self.over: list[tuple[Paced, Round]] = []
        self.rss_bytes: list[int] = []
        """Before the first overload, when every cache was warm, and behind each."""

    async def run(self, server: Serving, *, normal_s: float, overload_s: float) -> None:
        """Warm up, then take turns."""
        await paced(server, OVERLOAD * self.admitted_per_s, min(2.0, overload_s))
        self.rss_bytes.append(server.rss_bytes())
        for _ in range(OVERLOAD_ROUNDS):
            self.normal.append(await paced(server, NORMAL * self.admitted_per_s, normal_s))
            self.over.append(await paced(server, OVERLOAD * self.admitted_per_s, overload_s))
            self.rss_bytes.append(server.rss_bytes())

    @property
    def p95_ratio(self) -> float:
        """The median P95 of what was admitted under overload, beside that of the normal load."""
        over, normal = (
            statistics.median(percentile(load.took_s, 0.95) for load, _ in turns) for turns in (self.over, self.normal)
        )
        return over / normal

    def refused_ms(self, share: float) -> float:
        """How soon this share of the refusals was told: the median over the turns."""
        found = [percentile(load.refused_s, share) for load, _ in self.over if load.refused_s]
        return round(1e3 * statistics.median(found), 3) if found else 0.0

    def figures(self) -> dict[str, Figure]:
        """For the report: rates are those of answers, latencies those of what was admitted."""
        return {
            "normal load (0.9 x admitted)": Figure([turn for _, turn in self.normal]),
            "overload (2 x admitted)": Figure([turn for _, turn in self.over]),
        }

    def extra(self) -> dict[str, object]:
        """What became of everything that was offered, and the server's memory."""
        taken = sum(len(load.took_s) for load, _ in self.over)
        refused = sum(len(load.refused_s) for load, _ in self.over)
        seconds = sum(turn.seconds for _, turn in self.over)
        return {
            "admitted_rate_per_s": round(self.admitted_per_s, 1),
            "overload_seconds": round(seconds, 1),
            "taken_in_per_s": round(taken / seconds, 1),
            "refused_per_s": round(refused / seconds, 1),
            "refused_p50_ms": self.refused_ms(0.50),
            "refused_p95_ms": self.refused_ms(0.95),
            "refused_p99_ms": self.refused_ms(0.99),
            "rss_before_mb": round(self.rss_bytes[0] / 1e6, 2),
            "rss_after_mb": round(self.rss_bytes[-1] / 1e6, 2),
            "rss_growth_mb": round((self.rss_bytes[-1] - self.rss_bytes[0]) / 1e6, 2),
        }


def overloaded(
    runner: asyncio.Runner, folder: Path, admitted_per_s: float, *, workflows: int, turns_s: Sequence[float]
) -> Overload:
    """Offer twice what is admitted."""
    load = Overload(admitted_per_s)
    normal_s, overload_s = turns_s
    with serving(
        f"lanes://{folder}/limited", workflows=workflows, rate_per_s=admitted_per_s, burst=BURST_S * admitted_per_s
    ) as server:
        runner.run(load.run(server, normal_s=normal_s, overload_s=overload_s))
    return load


def clients_loop() -> asyncio.Runner:
    """The clients' event loop: that of uvloop where it is installed, so that they cost less than the server."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        factory = cast("Callable[[], asyncio.AbstractEventLoop]", importlib.import_module("uvloop").new_event_loop)
    return asyncio.Runner(loop_factory=factory)


def main() -> None:
    """Measure and report."""
    chosen = arguments(__doc__ or "")
    seconds, rounds, workflows = (0.6, 3, 2_000) if chosen.quick else (3.0, 5, 10_000)
    overload_s = float(os.environ.get("INTERLOCK_OVERLOAD_S", "10" if chosen.quick else "60"))
    turns_s = (overload_s / OVERLOAD_ROUNDS, overload_s / OVERLOAD_ROUNDS) if chosen.quick else (20.0, overload_s)
    with tempfile.TemporaryDirectory() as folder, clients_loop() as runner:
        figures = throughput(runner, Path(folder), seconds=seconds, rounds=rounds, workflows=workflows)
        ratios = ratios_of(figures)
        admitted_per_s = ADMITTED * figures[f"single, {USUAL}"].per_second
        load = overloaded(runner, Path(folder), admitted_per_s, workflows=workflows, turns_s=turns_s)
    publish(
        "http",
        figures={**figures, **load.figures()},
        ratios={**ratios, "overload_p95_vs_normal": load.p95_ratio},
        goals=GOALS,
        unit="events",
        file=chosen.json,
        extra=load.extra(),
        at_most=AT_MOST,
    )


if __name__ == "__main__":
    main()
