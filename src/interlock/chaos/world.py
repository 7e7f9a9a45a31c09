"""Everything outside of the workers, behind one socket: the gateway, the customers, and what operators are told.

Nobody sleeps here until something may have happened: whatever happens wakes those who wait for it.
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
    GaveUp,
    Hello,
    Noticed,
    Ready,
    Refused,
    Repeated,
    Said,
    Stop,
    line_of,
    next_said,
)
from interlock.seams import SystemChance, SystemClock
from interlock.testing.faults.listening import stop_listening

ASKED_MAX = 4
"""Operations that a worker is asked for at once: one that stands still keeps so many, and others do the rest."""


class Broken(Exception):
    """A promise was not kept; the text says which, and what happened instead."""


class News(NamedTuple):
    """Something that operators were told."""

    worker: int
    at_s: float
    what: str
    subject: str
    detail: str


class World:
    """One world, from one seed."""

    def __init__(self, seed: int) -> None:
        self.now_s = SystemClock().monotonic_s
        self.gateway = Gateway(SystemChance(seed), self.now_s, self.changed)
        self.customers = Customers()
        self.news: list[News] = []
        self.ready: dict[int, asyncio.StreamWriter] = {}
        """The workers whose engines are open."""
        self.closed: set[int] = set()
        """Workers that were asked to close, and have."""
        self.fault: str | None = None
        """Something that nobody has disturbed has gone wrong."""
        self.fallen: int | None = None
        """A worker that has ended by itself."""
        self.waiting_for = ""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self, path: Path) -> None:
        """Let workers in."""
        self._server = await asyncio.start_unix_server(self._accepted, path)

    async def close(self) -> None:
        """Everybody is gone."""
        if self._server is not None:
            await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for something that has to happen by itself. Raises Broken when something has that may never be."""
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

    def told(self, what: str, subject: str | None = None, *, since_s: float = 0.0) -> set[int]:
        """The workers that have told of such a thing since then."""
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
        """Something has happened: hand out what customers want, and wake those whose time has come."""
        while self.ready:
            # Whoever has least to do, and of those whoever was asked least: everybody has their share.
            worker = min(self.ready, key=lambda each: (self.customers.asked_of(each), self.customers.given[each]))
            if self.customers.asked_of(worker) >= ASKED_MAX or (operation := self.customers.next(worker)) is None:
                break
            self.ready[worker].write(line_of(operation))
        for happened, future in self._waiting:
            if not future.done() and happened():
                future.set_result(None)

    # --- connections -------------------------------------------------------------------------------------------------

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        _ = self._begin(self._connected(reader, writer))

    def _begin(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault = f"the world outside is at fault: {error!r}"
            self.changed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = 0
        with contextlib.suppress(ConnectionError):
            while (said := await next_said(reader)) is not None:
                if isinstance(said, Hello):
                    worker = said.worker
                self._heard(said, worker, writer)
        self.ready.pop(worker, None)
        self.customers.put_back(worker)
        if worker not in self.closed:
            self.fault = f"worker {worker} has ended, and nobody has ended it"
            self.fallen = worker
        self.changed()

    def _heard(self, said: Said, worker: int, writer: asyncio.StreamWriter) -> None:
        match said:
            case Hello():
                return
            case Ready():
                self.ready[worker] = writer
            case Closed():
                self.closed.add(worker)
            case Call():
                task = self._begin(self._answered(said, worker, writer))
                self._calls[worker, said.number] = task
            case GaveUp(number):
                self._calls[worker, number].cancel()
            case Acknowledged() | Refused():
                self.customers.answered(said)
            case Repeated():
                self.customers.repeated[said.code] += 1
            case Noticed("ended", workflow, state):
                self.customers.ended[workflow] = state
            case Noticed(what, subject, detail, at_s):
                self.news.append(News(worker, at_s or self.now_s(), what, subject, detail))
        self.changed()

    async def _answered(self, call: Call, worker: int, writer: asyncio.StreamWriter) -> None:
        order = self.customers.orders[call.workflow]
        writer.write(line_of(Answer(call.number, await self.gateway.ask(call, worker, order))))
