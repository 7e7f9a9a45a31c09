"""The run of the demo: a worker moves the orders through an outage and is killed; another worker resumes them.

The parent owns only the bank and the warehouse. It reads the worker's news, records every acknowledgement, starts the
outage after a quarter of them, kills the worker with SIGKILL after about half, and starts the next one. In the end
acknowledgements are compared with the store. What a worker sent before a kill can be read after it, so the parent knows
exactly what was acknowledged.

Everything runs in one event loop, where Ctrl-C is a cancellation. It arrives only at an await, so every created process
and file is already registered for cleanup.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from interlock.cli.console import counted
from interlock.cli.demo.journeys import TROUBLE_FROM, Bank, BankCall, Part, WorkerPart
from interlock.cli.demo.outcome import BANK, STATES, Kill, Outage, Outcome, Stall, Tally
from interlock.errors import InternalError
from interlock.examples.order import order
from interlock.testing.faults import Process, Processes

# --- News of the worker ----------------------------------------------------------------------------------------------
# One line per fact, in order, and only of durable facts.

NAMED_MAX = 3
"""How many stalled orders a remark names."""

_refusal = msgspec.json.Decoder(tuple[str, str, str])


class NewsReader:
    """Reads the news of all lives."""

    def __init__(self, outcome: Outcome) -> None:
        self.acknowledged: dict[str, bytearray] = {}
        """By order: acknowledged pairs of a version and the number of its state."""
        self.opened_in_s: float | None = None
        self.ended = False
        """True when the worker has completed all orders."""
        self._outcome = outcome
        self._paid: set[str] = set()
        self._rejections: set[tuple[str, str]] = set()
        self._done: set[str] = set()

    def __call__(self, kind: str, words: list[str]) -> None:
        """Handle one line."""
        outcome = self._outcome
        match kind:
            case "moved":
                outcome.tally.moved(words[0], words[3], words[2])
                outcome.timeline.note(started=len(self.acknowledged), paid=outcome.paid, done=outcome.done)
            case "acknowledged":
                outcome.acknowledged += 1
                self.acknowledged.setdefault(words[0], bytearray()).extend((int(words[1]), STATES[words[2]]))
            case "done" if words[0] not in self._done:
                self._done.add(words[0])
                outcome.done += 1
                outcome.tally.forget(words[0])
            case "paid" if words[0] in self._paid:
                outcome.counted_again += 1
            case "paid":
                self._paid.add(words[0])
                outcome.paid += 1
            case "rejected" if (words[0], words[1]) not in self._rejections:
                self._rejections.add((words[0], words[1]))
                outcome.rejected[words[1]] += 1
            case "observer-failed":
                outcome.observer_failures += 1
            case _:
                self._read_rare(kind, words)

    def _read_rare(self, kind: str, words: list[str]) -> None:
        outcome = self._outcome
        match kind:
            case "example":
                outcome.examples.setdefault(words[0], _refusal.decode(words[1]))
            case "breaker" if words[0] == BANK:
                self._breaker(words[1])
            case "stuck" | "stalled" | "unstuck":
                self._stall(kind, words)
            case "problem":
                outcome.problems.append(f"{words[0]}: {words[1]}")
            case "opened":
                self.opened_in_s = float(words[0])
            case "ended":
                self.ended = True
            case _:
                pass

    def _breaker(self, state: str) -> None:
        outcome = self._outcome
        before, outcome.breaker = outcome.breaker, state
        outage, now_s = outcome.outage, outcome.timeline.now_s()
        if outage is None:
            return
        if state == "open" and outage.opened_s is None:
            outage.opened_s = now_s
            waiting = counted(len(self.acknowledged) - outcome.done, "order")
            outcome.remark(f"The breaker of {BANK} is open: calls have stopped, {waiting} on their way.", "bold")
        elif state == "half_open":
            outage.probes += 1
        elif state == "closed" and before != "closed" and outage.ended_s is not None and outage.closed_s is None:
            outage.closed_s = now_s
            outcome.remark(f"The breaker of {BANK} is closed: a probe got through, and calls resume.", "bold green")

    def _stall(self, kind: str, words: list[str]) -> None:
        outcome = self._outcome
        if outcome.stall is None:
            outcome.stall = Stall(outcome.timeline.now_s())
        stall = outcome.stall
        if kind == "stuck":
            stall.stuck.add(words[0])
        elif kind == "stalled":
            stall.listed.add(words[0])
        else:
            stall.ended_s = outcome.timeline.now_s()
            names = ", ".join(sorted(stall.listed)[:NAMED_MAX])
            more = ", …" if len(stall.listed) > NAMED_MAX else ""
            outcome.remark(
                f"Stalled: {counted(len(stall.listed), 'order')} on the packing table, listed by engine.stalled "
                f"({names}{more}). The packing table is fixed; they continue.",
                "bold yellow",
            )


# --- Walk ------------------------------------------------------------------------------------------------------------

WORKER = "interlock.cli.demo.killed_worker:live"
LINES_PER_LOOK = 64
OUTAGE_S = 3.0
"""How long the bank stays down after the breaker has opened; less in a small demo."""


Watcher = Callable[[Outcome], None]
"""A progress display. It is called often and must be quick."""


class WorkerConnection(asyncio.StreamReaderProtocol):
    """A connection whose reader gets every line that was sent, also by a worker that was killed with unread answers."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's own name.
        """End the reader after its last line. An error would drop the lines that are not read yet."""
        super().connection_lost(None)


@dataclass
class WorkerProcess:
    """A worker process, and the connection to it."""

    process: Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answers: bool = True
    """Whether its calls are answered. An answer to a dead process would close the connection before its last line."""

    def kill(self) -> None:
        """Kill the process. What it has sent can still be read."""
        self.answers = False
        self.process.kill()


class OrdersWalk:
    """All orders of one seed, with one outage, one kill and one stall."""

    def __init__(
        self, orders: int, seed: int, folder: Path, processes: Processes, dashboard: socket.socket | None = None
    ) -> None:
        self.outcome = Outcome(orders, seed, Tally(order.describe()))
        self.folder = folder
        self.listener = NewsReader(self.outcome)
        self._dashboard = dashboard
        self._processes = processes
        self.bank = Bank(seed)
        self._recovery: asyncio.TimerHandle | None = None

    async def run(self, watch: Watcher) -> Outcome:
        """Complete every order, with the outage, the kill and the stall."""
        outcome = self.outcome
        outcome.timeline.begin()
        await self._until_killed(watch)
        watch(outcome)
        await self._to_the_end(watch)
        outcome.walking_s = outcome.timeline.now_s()
        if outcome.outage is not None:
            outcome.outage.refused = self.bank.refused
        watch(outcome)
        return outcome

    async def show(self, on_open: Callable[[], None]) -> None:
        """Run a worker that only serves the dashboard, until this process is interrupted."""
        async with self._worker("shows") as worker:
            if await self._listen(worker, lambda _: None, until=self._is_open):
                on_open()
                await self._listen(worker, lambda _: None)
            raise _ended_early(worker.process)

    def _is_open(self) -> bool:
        return self.listener.opened_in_s is not None

    async def _until_killed(self, watch: Watcher) -> None:
        outcome = self.outcome

        def half_way() -> bool:
            self._trouble()
            calm = outcome.outage is None or outcome.outage.closed_s is not None
            return (outcome.acknowledged >= 2 * outcome.orders and calm) or self.listener.ended

        async with self._worker("stays") as worker:
            if not await self._listen(worker, watch, until=half_way):
                raise _ended_early(worker.process)
            worker.kill()
            await self._listen(worker, watch)  # Read what it sent before the kill.
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
        async with self._worker("ends") as worker:
            if await self._listen(worker, watch, until=self._is_open):
                kill.gap_s = outcome.timeline.now_s() - kill.at_s
                kill.recovery_s = self.listener.opened_in_s or 0.0
                outcome.remark(
                    f"Another worker has opened the store and taken up what was owed in {kill.recovery_s:.2f} s.",
                    "bold green",
                )
                watch(outcome)
                await self._listen(worker, watch)
            if not self.listener.ended:
                raise _ended_early(worker.process)

    def _trouble(self) -> None:
        """Start the outage after a quarter of the calls, and end it after the breaker has opened."""
        outcome = self.outcome
        if outcome.outage is None:
            if outcome.orders >= TROUBLE_FROM and outcome.acknowledged >= outcome.orders:
                self.bank.down = True
                outcome.outage = Outage(outcome.timeline.now_s())
                outcome.remark("The bank is down: every call is answered with 503.", "bold red")
        elif (outcome.outage.opened_s is not None or self.listener.ended) and self._recovery is None:
            seconds = min(OUTAGE_S, outcome.orders / 1_000)
            self._recovery = asyncio.get_running_loop().call_later(seconds, self._recover)

    def _recover(self) -> None:
        outage = self.outcome.outage
        assert outage is not None
        self.bank.down = False
        outage.ended_s = self.outcome.timeline.now_s()
        self.outcome.remark(f"The bank is back, after {outage.ended_s - outage.began_s:.1f} s.", "bold green")

    @contextlib.asynccontextmanager
    async def _worker(self, part: Part) -> AsyncGenerator[WorkerProcess, None]:
        """Start a worker and yield it. It is killed when the block ends."""
        self.listener.opened_in_s = None
        life = WorkerPart(str(self.folder), self.outcome.orders, self.outcome.seed, part)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                descriptors = [end.fileno() for end in (theirs, self._dashboard) if end is not None]
                process = self._processes.start(WORKER, msgspec.json.encode(life).decode(), descriptors=descriptors)
            try:
                worker = await _connect(process, ours)
                try:
                    yield worker
                finally:
                    worker.answers = False
                    worker.writer.transport.abort()
            finally:
                process.close()

    async def _listen(self, worker: WorkerProcess, watch: Watcher, *, until: Callable[[], bool] | None = None) -> bool:
        """Read news and calls until the condition holds, or to the end. Return whether it held."""
        lines = 0
        while (line := await _next_line(worker.reader)) is not None:
            kind, *words = line.split("\t")
            if kind == "call":
                self._answer(worker, *words)
                continue
            self.listener(kind, words)
            lines += 1
            if lines % LINES_PER_LOOK == 0 or self.outcome.remarks:
                watch(self.outcome)
            if until is not None and until():
                return True
        return False

    def _answer(self, worker: WorkerProcess, number: str, *words: str) -> None:
        """Answer a call, immediately or with its delay."""
        verdict, late_s = self.bank.answer(msgspec.convert(words, BankCall, strict=False))

        def send() -> None:
            if worker.answers:
                worker.writer.write(f"{number}\t{verdict}\n".encode())

        if late_s:
            asyncio.get_running_loop().call_later(late_s, send)
        else:
            send()


async def _connect(process: Process, ours: socket.socket) -> WorkerProcess:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    transport, protocol = await loop.create_unix_connection(lambda: WorkerConnection(reader, loop=loop), sock=ours)
    return WorkerProcess(process, reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def _next_line(reader: asyncio.StreamReader) -> str | None:
    """Return the worker's next line; None at its end. A line that the kill has cut does not count."""
    line = await reader.readline()
    return line.decode().rstrip("\n") if line.endswith(b"\n") else None


def _ended_early(process: Process) -> InternalError:
    try:
        return InternalError(f"the demo's worker ended with {process.end()}.")
    except RuntimeError as error:
        return InternalError(f"the demo's worker failed: {error}")
