"""The walk: a worker moves the orders through an outage and is killed; another worker resumes them.

The parent owns only the bank and the warehouse. It reads the worker's news, records every acknowledgement, starts the
outage after a quarter of them, kills the worker with SIGKILL after about half, and starts the next one. In the end
acknowledgements are compared with the store. The odd choice is a pipe: what a worker wrote before a kill can be read
after it, so the parent knows exactly what was acknowledged.

Everything runs in one event loop, where Ctrl-C is a cancellation. It arrives only at an await, so every created process
and file is already registered for cleanup.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from interlock.cli.demo.bank import BOOKS, Bank, Books, Gateway
from interlock.cli.demo.news import NONE, Life, Listener, Part
from interlock.cli.demo.outcome import Kill, Outage, Outcome, Tally
from interlock.cli.demo.scenario import TROUBLE_FROM
from interlock.errors import InternalError
from interlock.examples.order import order

WORKER = "interlock.cli.demo.shop"
LINES_PER_LOOK = 64
OUTAGE_S = 3.0
"""How long the bank stays down after the breaker has opened; less in a small demo."""


class Watcher(Protocol):
    """A progress display. It is called often and must be quick."""

    def __call__(self, outcome: Outcome, /) -> None:
        """Show the current outcome."""
        ...


class Running:
    """A worker process and the stream of its news."""

    def __init__(self, process: "subprocess.Popen[bytes]", news: asyncio.StreamReader) -> None:
        self.process = process
        self.news = news


class Walk:
    """All orders of one seed, with one outage, one kill and one stall."""

    def __init__(self, orders: int, seed: int, folder: Path, dashboard: socket.socket | None = None) -> None:
        self.outcome = Outcome(orders, seed, Tally(order.describe()))
        self.folder = folder
        self.listener = Listener(self.outcome)
        self._dashboard = dashboard
        self._books = Books(folder / BOOKS)
        self._gateway = Gateway(Bank(self._books, seed))

    async def run(self, watch: Watcher) -> Outcome:
        """Complete every order, with the outage, the kill and the stall."""
        outcome = self.outcome
        outcome.timeline.begin()
        await self._until_killed(watch)
        watch(outcome)
        await self._to_the_end(watch)
        outcome.walking_s = outcome.timeline.now_s()
        if outcome.outage is not None:
            outcome.outage.refused = self._gateway.refused
        watch(outcome)
        return outcome

    async def show(self, on_open: Callable[[], None]) -> None:
        """Run a worker that only serves the dashboard, until this process is interrupted."""
        self.listener.opened_in_s = None

        def is_open() -> bool:
            return self.listener.opened_in_s is not None

        async with self._worker("shows") as running:
            if await self._listen(running, _watch_nothing, until=is_open):
                on_open()
                await self._listen(running, _watch_nothing)
            raise _ended_early(running.process.wait())

    def close(self) -> None:
        """Close the books."""
        self._books.close()

    async def _until_killed(self, watch: Watcher) -> None:
        outcome = self.outcome

        def half_way() -> bool:
            self._trouble()
            calm = outcome.outage is None or outcome.outage.closed_s is not None
            return (outcome.acknowledged >= 2 * outcome.orders and calm) or self.listener.ended

        async with self._worker("stays") as running:
            if not await self._listen(running, watch, until=half_way):
                raise _ended_early(running.process.wait())
            running.process.kill()
            await self._listen(running, watch)  # Read what it wrote before the kill.
        on_their_way = len(self.listener.acknowledged) - outcome.done
        outcome.kill = Kill(outcome.timeline.now_s(), outcome.acknowledged, on_their_way)
        outcome.remark(
            f"Killed the worker (SIGKILL) in the middle: {outcome.acknowledged:,} calls were acknowledged, "
            f"{on_their_way:,} orders on their way.",
            "bold red",
        )

    async def _to_the_end(self, watch: Watcher) -> None:
        outcome, kill = self.outcome, self.outcome.kill
        assert kill is not None
        self.listener.opened_in_s = None
        async with self._worker("ends") as running:
            if await self._listen(running, watch, until=lambda: self.listener.opened_in_s is not None):
                kill.gap_s = outcome.timeline.now_s() - kill.at_s
                kill.recovery_s = self.listener.opened_in_s or 0.0
                outcome.remark(
                    f"Another worker has opened the store and taken up what was owed in {kill.recovery_s:.2f} s.",
                    "bold green",
                )
                watch(outcome)
                await self._listen(running, watch)
            code = running.process.wait()
            if code != 0:
                raise _ended_early(code)

    def _trouble(self) -> None:
        """Start the outage after a quarter of the calls, and end it after the breaker has opened."""
        outcome, gateway = self.outcome, self._gateway
        if outcome.outage is None:
            if outcome.orders >= TROUBLE_FROM and outcome.acknowledged >= outcome.orders:
                gateway.fail()
                outcome.outage = Outage(outcome.timeline.now_s())
                outcome.remark("The bank is down: every call is answered with 503.", "bold red")
        elif outcome.outage.opened_s is not None or self.listener.ended:
            gateway.recover_in(min(OUTAGE_S, outcome.orders / 1_000), self.listener.bank_is_back)

    @contextlib.asynccontextmanager
    async def _worker(self, part: Part) -> AsyncGenerator[Running, None]:
        """Start a worker and yield it. It is killed when the block ends."""
        async with self._gateway.line() as line:
            process = self._started(part, line)
            line.close()
            assert process.stdin is not None
            assert process.stdout is not None
            with process.stdin, process.stdout:
                try:
                    news = asyncio.StreamReader()
                    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                        lambda: asyncio.StreamReaderProtocol(news), process.stdout
                    )
                    with contextlib.closing(transport):
                        yield Running(process, news)
                finally:
                    process.kill()
                    process.wait()

    def _started(self, part: Part, line: socket.socket) -> "subprocess.Popen[bytes]":
        dashboard = NONE if self._dashboard is None else self._dashboard.fileno()
        life = Life(str(self.folder), self.outcome.orders, self.outcome.seed, part, line.fileno(), dashboard)
        return subprocess.Popen(  # noqa: S603 -- our own module, our own interpreter.
            [sys.executable, "-m", WORKER, msgspec.json.encode(life).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor for descriptor in (line.fileno(), dashboard) if descriptor != NONE],
            process_group=0,  # A terminal's Ctrl-C must reach the parent alone.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    async def _listen(self, running: Running, watch: Watcher, *, until: Callable[[], bool] | None = None) -> bool:
        """Read news until the condition holds, or to the end. Return whether it held."""
        lines = 0
        while line := await running.news.readline():
            if not line.endswith(b"\n"):  # The kill cut this line: it does not count.
                break
            self.listener(line.decode())
            lines += 1
            if lines % LINES_PER_LOOK == 0 or self.outcome.remarks:
                watch(self.outcome)
            if until is not None and until():
                return True
        return False


def _watch_nothing(outcome: Outcome, /) -> None:
    """Do nothing: a watcher without a display."""
    del outcome


def _ended_early(code: int) -> InternalError:
    return InternalError(f"the demo's worker ended with {code}; its complaint is above.")
