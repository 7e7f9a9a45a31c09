"""The environment of the workers: the external services, the customers, and the reports for operators.

It is the experiment's end of the workers' socket. Waiting tasks do not poll: each change evaluates their conditions.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Generator
from typing import NamedTuple

from interlock.chaos.messages import (
    DECLINED,
    DONE,
    FAILED,
    Acknowledged,
    Answer,
    Call,
    Closed,
    FromWorker,
    GaveUp,
    News,
    Ready,
    Refused,
    Repeated,
    Stop,
    line_of,
    next_from_worker,
)
from interlock.chaos.orders import Customers
from interlock.clock import Chance, SystemChance, SystemClock

# --- External services -----------------------------------------------------------------------------------------------
# An idempotency key stands for one deed, from any worker. Undoing a deed that was never done closes its key: a call
# of a worker that was frozen before it arrives too late. Calls fail before or after the deed; a scenario can make
# them hang or refuse them.

ASKED = "asked"
UNDOES = {"refund": "charge", "release": "reserve"}

FAILS, LOSES = 0.02, 0.04
"""Cumulative shares of calls that fail before the deed, and that lose their answer after it."""

LATENCY_S = 0.03
DECLINED_EVERY = 5


class Line(NamedTuple):
    """One line of the log."""

    what: str
    """asked, done, declined, or failed."""
    deed: str
    workflow: str
    key: str
    undoes: str
    worker: int
    at_s: float


class Hold:
    """Calls that hang until they are released."""

    def __init__(self, matches: Callable[[Call, int], bool]) -> None:
        self.matches = matches
        self.waiting: list[tuple[Call, int]] = []
        self.released = asyncio.Event()


class Gateway:
    """The external services, with the log of all calls."""

    def __init__(self, chance: Chance, now_s: Callable[[], float], changed: Callable[[], None]) -> None:
        self.lines: list[Line] = []
        self.down = False
        """Whether every call for money is refused."""
        self._answers: dict[str, str] = {}
        self._holds: list[Hold] = []
        self._chance = chance
        self._now_s = now_s
        self._changed = changed

    async def ask(self, call: Call, worker: int, order: int) -> str:
        """Do the deed once for this key. It may fail before the deed, or lose the answer after it."""
        luck, latency_s = self._chance.fraction(), self._chance.fraction() * LATENCY_S
        self._write(ASKED, call, worker)
        if self.down and call.deed in {"charge", "refund"}:
            self._write(FAILED, call, worker)
            return FAILED
        await asyncio.sleep(latency_s)
        for hold in self._holds:
            if hold.matches(call, worker):
                hold.waiting.append((call, worker))
                self._changed()
                try:
                    await hold.released.wait()
                finally:
                    hold.waiting.remove((call, worker))
        if luck < FAILS:
            self._write(FAILED, call, worker)
            return FAILED
        answer = self._do_deed(call, worker, declines=call.deed == "collect" and order % DECLINED_EVERY == 0)
        if luck < LOSES and answer == DONE:
            return FAILED
        return answer

    @contextlib.contextmanager
    def holding(self, matches: Callable[[Call, int], bool]) -> Generator[Hold, None, None]:
        """Let matching calls hang until the block is left."""
        hold = Hold(matches)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self.let_go(hold)

    def let_go(self, hold: Hold) -> None:
        """Answer the hanging calls. A second call does nothing."""
        hold.released.set()
        self._holds = [each for each in self._holds if each is not hold]

    def count(self, what: str, deed: str) -> int:
        """Return the number of matching lines."""
        return sum(line.what == what and line.deed == deed for line in self.lines)

    def workflows(self, what: str, deed: str, *, since: int = 0) -> set[str]:
        """Return the workflows of matching lines."""
        return {line.workflow for line in self.lines[since:] if line.what == what and line.deed == deed}

    def _do_deed(self, call: Call, worker: int, *, declines: bool) -> str:
        answer = self._answers.get(call.key)
        if answer is None:
            answer = self._answers[call.key] = DECLINED if declines else DONE
            if call.undoes:
                self._answers.setdefault(call.undoes, DECLINED)
            self._write(answer, call, worker)
        return answer

    def _write(self, what: str, call: Call, worker: int) -> None:
        line = Line(what, call.deed, call.workflow, call.key, call.undoes, worker, self._now_s())
        self.lines.append(line)
        self._changed()


# --- World -----------------------------------------------------------------------------------------------------------

UNANSWERED_MAX = 4
"""Maximum number of unanswered operations per worker: a frozen one keeps these, and others process the rest."""


class Broken(Exception):
    """A promise was not kept; the text says which, and what happened."""


class World:
    """The environment of the workers, from one seed."""

    def __init__(self, seed: int) -> None:
        self.now_s = SystemClock().monotonic_s
        self.gateway = Gateway(SystemChance(seed), self.now_s, self.changed)
        self.customers = Customers()
        self.news: list[News] = []
        self.ready: dict[int, asyncio.StreamWriter] = {}
        """The workers whose engines are open."""
        self.closed: set[int] = set()
        """Workers that have closed after a Stop."""
        self.fault: str | None = None
        """An error that no disturbance explains."""
        self.fallen: int | None = None
        """A worker that has ended unexpectedly."""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    async def connect(self, worker: int, line: socket.socket) -> None:
        """Serve a worker at this end of its socket."""
        reader, writer = await asyncio.open_unix_connection(sock=line)
        self._writers.add(writer)
        _ = self._begin(self._serve_worker(worker, reader, writer))

    async def close(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a condition. Raises Broken on a fault."""
        if self.fault is None and not happened():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiter = (lambda: self.fault is not None or happened(), future)
            self._waiting.append(waiter)
            try:
                await future
            finally:
                self._waiting.remove(waiter)
        if self.fault is not None:
            raise Broken(self.fault)

    def workers_reporting(self, what: str, subject: str | None = None, *, since_s: float = 0.0) -> set[int]:
        """Return the workers that have reported such a signal since then."""
        return {
            each.worker
            for each in self.news
            if each.what == what and subject in {None, each.subject} and each.at_s >= since_s
        }

    def stop(self) -> None:
        """Ask every worker to close."""
        for writer in self.ready.values():
            writer.write(line_of(Stop()))

    def changed(self) -> None:
        """Hand out pending operations, and wake the tasks whose condition holds. Called after every change."""
        while self.ready:
            # The worker with the fewest unanswered operations; among equals, the one that received the fewest.
            worker = min(self.ready, key=lambda each: (self.customers.asked_of(each), self.customers.received[each]))
            if self.customers.asked_of(worker) >= UNANSWERED_MAX or (operation := self.customers.next(worker)) is None:
                break
            self.ready[worker].write(line_of(operation))
        for happened, future in self._waiting:
            if not future.done() and happened():
                future.set_result(None)

    # --- connections -------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault = f"the experiment itself has failed: {error!r}"
            self.changed()

    async def _serve_worker(self, worker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while (message := await next_from_worker(reader)) is not None:
                self._handle(message, worker, writer)
        self.ready.pop(worker, None)
        self.customers.put_back(worker)
        if worker not in self.closed:
            self.fault = f"worker {worker} has ended unexpectedly"
            self.fallen = worker
        self.changed()

    def _handle(self, message: FromWorker, worker: int, writer: asyncio.StreamWriter) -> None:
        match message:
            case Ready():
                self.ready[worker] = writer
            case Closed():
                self.closed.add(worker)
            case Call():
                task = self._begin(self._answer_call(message, worker, writer))
                self._calls[worker, message.number] = task
            case GaveUp(number):
                self._calls[worker, number].cancel()
            case Acknowledged() | Refused():
                self.customers.answered(message)
            case Repeated():
                self.customers.repeated[message.code] += 1
            case News(what="ended"):
                self.customers.ended[message.subject] = message.detail
            case News():
                self.news.append(message)
        self.changed()

    async def _answer_call(self, call: Call, worker: int, writer: asyncio.StreamWriter) -> None:
        order = self.customers.orders[call.workflow]
        writer.write(line_of(Answer(call.number, await self.gateway.ask(call, worker, order))))
