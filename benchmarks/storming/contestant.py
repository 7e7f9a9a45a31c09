"""The inside of a contestant's process: told what to do in one line, ready, told to go, done.

The work before "ready" warms it up: some orders in calm weather, so that code, plans and pools are there when the storm
begins, and what grows is what the storm makes grow. What became of the orders is written to a file. The process keeps
its connections until it is told to end, so that whoever measures can read what they have used.
"""

import asyncio
import gc
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from benchmarks.peers.answering import claim_answers
from benchmarks.storming.client import Client
from benchmarks.storming.interlocked import Interlocked
from benchmarks.storming.load import Orders, Outcome
from benchmarks.storming.naive import Naive
from benchmarks.storming.weather import Script

WARM_UP = 200
WARM_UP_FIRST = 10_000_000
WARM_UP_S_MAX = 20.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a contestant is asked to do."""

    kind: str
    """naive or interlocked."""
    url: str
    port: int
    script: Script
    in_flight: int
    connections: int
    timeout_s: float
    drain_s: float
    settings: dict[str, float] = {}
    """Of the engine."""
    report: str
    """The file for what became of the orders."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the orders, by their numbers."""

    seconds: float
    calls: int
    ends_s: list[float]
    outcomes: list[int]


class Contestant(Protocol):
    """Somebody who takes orders and says when they have ended."""

    ended: Callable[[int, Outcome], None]

    def place(self, number: int) -> None:
        """Take an order in."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def contestant(task: Task, client: Client) -> Contestant:
    """The one that is meant."""
    if task.kind == "naive":
        return Naive(task.url, client, in_flight=task.in_flight, connections=task.connections, timeout_s=task.timeout_s)
    return Interlocked(task.url, client, in_flight=task.in_flight, timeout_s=task.timeout_s, settings=task.settings)


async def run(task: Task, said: Callable[[str], None], heard: Callable[[], str]) -> None:
    """Warm up, say so, wait for the word, run, report, wait for the end."""
    loop = asyncio.get_running_loop()
    client = Client(task.port)
    async with contestant(task, client) as contending:
        warm = Orders(array("d", bytes(8 * WARM_UP)), first=WARM_UP_FIRST)
        contending.ended = warm.end
        await warm.run(contending.place, drain_s=WARM_UP_S_MAX)
        orders = Orders(task.script.arrivals())
        contending.ended = orders.end
        before = client.calls
        gc.collect()
        said("ready")
        await loop.run_in_executor(None, heard)
        seconds = await orders.run(contending.place, drain_s=task.drain_s)
        said("done")
        await loop.run_in_executor(None, heard)
        report = Report(
            seconds=seconds, calls=client.calls - before, ends_s=list(orders.ends), outcomes=list(orders.outcomes)
        )
        await asyncio.to_thread(Path(task.report).write_bytes, msgspec.json.encode(report))
        said("reported")
        await loop.run_in_executor(None, heard)
    client.close()


def main() -> None:
    """Talk over the pipes."""
    answers = claim_answers()
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    asyncio.run(run(task, lambda word: print(word, file=answers, flush=True), sys.stdin.readline))


if __name__ == "__main__":
    main()
