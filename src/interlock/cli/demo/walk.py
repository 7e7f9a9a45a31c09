"""The walk: a worker moves the orders through an outage, is killed, and another one takes up where it was.

The parent owns nothing that the orders need but the world outside. It listens to what the worker says, notes every
acknowledgement, lets the bank fail when a quarter of them are there, kills the worker with SIGKILL when about half are,
starts the next one, and in the end compares what was acknowledged with what is stored. The odd choice is a pipe instead
of anything cleverer: what was written into it before a kill can be read after it, so the parent knows exactly what had
been acknowledged.

Everything happens in one event loop, where Ctrl-C is a cancellation: it comes between two steps, never within one, so
that no process and no file is made and not yet noted.
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

from interlock.cli.demo.bank import BOOKS, Bank, Books
from interlock.cli.demo.dashboard import NONE
from interlock.cli.demo.gateway import Gateway
from interlock.cli.demo.life import Life, Part
from interlock.cli.demo.listening import Listener
from interlock.cli.demo.observers import Tally
from interlock.cli.demo.outcome import Kill, Outage, Outcome
from interlock.cli.demo.scenario import TROUBLE_FROM
from interlock.errors import InternalError
from interlock.examples.order import order

WORKER = "interlock.cli.demo.worker"
LINES_PER_LOOK = 64
OUTAGE_S = 3.0
"""How long the bank is down after the breaker has noticed; less in a small demo."""


class Watcher(Protocol):
    """Anything that shows how far the walk is. Called often; it has to be quick."""

    def __call__(self, outcome: Outcome, /) -> None:
        """Look at the walk so far."""
        ...


class Running:
    """A worker, and what it says."""

    def __init__(self, process: "subprocess.Popen[bytes]", news: asyncio.StreamReader) -> None:
        self.process = process
        self.news = news


class Walk:
    """All orders of one seed, with one outage, one kill and one stall."""

    def __init__(self, orders: int, seed: int, folder: Path, dashboard: socket.socket | None = None) -> None:
        self.outcome = Outcome(orders, seed, Tally(order.describe()))
        self.folder = folder
        self.heard = Listener(self.outcome)
        self._dashboard = dashboard
        self._books = Books(folder / BOOKS)
        self._gateway = Gateway(Bank(self._books, seed))

    async def run(self, watch: Watcher) -> Outcome:
        """Walk every order to its end, through all that happens."""
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

    async def show(self, shown: Callable[[], None]) -> None:
        """Have a worker that does nothing but show what there is, until somebody interrupts this process."""
        self.heard.opened_in_s = None

        def is_open() -> bool:
            return self.heard.opened_in_s is not None

        async with self._worker("shows") as running:
            if await self._listen(running, _nobody, until=is_open):
                shown()
                await self._listen(running, _nobody)
            raise _ended_early(running.process.wait())

    def close(self) -> None:
        """Close the books."""
        self._books.close()

    async def _until_killed(self, watch: Watcher) -> None:
        outcome = self.outcome

        def half_way() -> bool:
            self._trouble()
            calm = outcome.outage is None or outcome.outage.closed_s is not None
            return (outcome.acknowledged >= 2 * outcome.orders and calm) or self.heard.ended

        async with self._worker("stays") as running:
            if not await self._listen(running, watch, until=half_way):
                raise _ended_early(running.process.wait())
            running.process.kill()
            await self._listen(running, watch)  # What it had said before it died.
        on_their_way = len(self.heard.acknowledged) - outcome.done
        outcome.kill = Kill(outcome.timeline.now_s(), outcome.acknowledged, on_their_way)
        outcome.remark(
            f"Killed the worker (SIGKILL) in the middle: {outcome.acknowledged:,} calls were acknowledged, "
            f"{on_their_way:,} orders on their way.",
            "bold red",
        )

    async def _to_the_end(self, watch: Watcher) -> None:
        outcome, kill = self.outcome, self.outcome.kill
        assert kill is not None
        self.heard.opened_in_s = None
        async with self._worker("ends") as running:
            if await self._listen(running, watch, until=lambda: self.heard.opened_in_s is not None):
                kill.gap_s = outcome.timeline.now_s() - kill.at_s
                kill.recovery_s = self.heard.opened_in_s or 0.0
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
        """Begin the outage when it is time, and end it when the breaker has noticed."""
        outcome, gateway = self.outcome, self._gateway
        if outcome.outage is None:
            if outcome.orders >= TROUBLE_FROM and outcome.acknowledged >= outcome.orders:
                gateway.fail()
                outcome.outage = Outage(outcome.timeline.now_s())
                outcome.remark("The bank is down: every call is answered with 503.", "bold red")
        elif outcome.outage.opened_s is not None or self.heard.ended:
            gateway.recover_in(min(OUTAGE_S, outcome.orders / 1_000), self.heard.bank_is_back)

    @contextlib.asynccontextmanager
    async def _worker(self, part: Part) -> AsyncGenerator[Running, None]:
        """A worker and what it says. It is killed on the way out, if it lives, whatever happens."""
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
            process_group=0,  # Ctrl-C in a terminal is for the watching process alone.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    async def _listen(self, running: Running, watch: Watcher, *, until: Callable[[], bool] | None = None) -> bool:
        """Hear news until something is so, or to the end. Returns whether it is so."""
        heard = 0
        while line := await running.news.readline():
            if not line.endswith(b"\n"):  # Half a line was not said.
                break
            self.heard(line.decode())
            heard += 1
            if heard % LINES_PER_LOOK == 0 or self.outcome.remarks:
                watch(self.outcome)
            if until is not None and until():
                return True
        return False


def _nobody(outcome: Outcome, /) -> None:
    """Nobody watches."""
    del outcome


def _ended_early(code: int) -> InternalError:
    return InternalError(f"the demo's worker ended with {code}; its complaint is above.")
