"""Experiment's side of the workers' socket: the gateway, the customers, and the signals for operators.

Waiting tasks do not poll: each change evaluates their conditions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

from interlock.chaos.customers import Customers
from interlock.chaos.gateway import Gateway
from interlock.chaos.messages import (
    Acknowledged,
    Answer,
    Call,
    Closed,
    FromWorker,
    GaveUp,
    Hello,
    Noticed,
    Ready,
    Refused,
    Repeated,
    Stop,
    line_of,
    next_from_worker,
)
from interlock.seams import SystemChance, SystemClock
from interlock.testing.faults.listening import stop_listening

UNANSWERED_MAX = 4
"""Maximum number of unanswered operations per worker: a frozen one keeps these, and others process the rest."""


class Broken(Exception):
    """A promise was not kept; the text says which, and what happened."""


class News(NamedTuple):
    """A signal that a worker reported to operators."""

    worker: int
    at_s: float
    what: str
    subject: str
    detail: str


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
        self.waiting_for = ""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self, path: Path) -> None:
        """Listen for workers."""
        self._server = await asyncio.start_unix_server(self._accept, path)

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        if self._server is not None:
            await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for a condition. Raises Broken on a fault."""
        self.waiting_for = what
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
        self.waiting_for = ""

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

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        _ = self._begin(self._serve_worker(reader, writer))

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

    async def _serve_worker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = 0
        with contextlib.suppress(ConnectionError):
            while (message := await next_from_worker(reader)) is not None:
                if isinstance(message, Hello):
                    worker = message.worker
                self._handle(message, worker, writer)
        self.ready.pop(worker, None)
        self.customers.put_back(worker)
        if worker not in self.closed:
            self.fault = f"worker {worker} has ended unexpectedly"
            self.fallen = worker
        self.changed()

    def _handle(self, message: FromWorker, worker: int, writer: asyncio.StreamWriter) -> None:
        match message:
            case Hello():
                return
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
            case Noticed("ended", workflow, state):
                self.customers.ended[workflow] = state
            case Noticed(what, subject, detail, at_s):
                self.news.append(News(worker, at_s or self.now_s(), what, subject, detail))
        self.changed()

    async def _answer_call(self, call: Call, worker: int, writer: asyncio.StreamWriter) -> None:
        order = self.customers.orders[call.workflow]
        writer.write(line_of(Answer(call.number, await self.gateway.ask(call, worker, order))))
