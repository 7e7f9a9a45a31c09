"""Everything outside of the killed processes: the gateway and the customers, behind one socket, and waiting for both.

A connection begins with a line that says what it is for. `customer LIFE`: operations out, `+ …` or `x …` back, and
`- CODE` for every answer after which the operation is repeated. `gateway LIFE`: calls in, answers out, one at a time.
`control LIFE`: open for as long as the process is well; a line on it asks the process to close.
Nobody sleeps here until something may have happened: whatever happens wakes those who wait for it.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from interlock.clock import SystemChance
from interlock.testing.faults.processes import stop_listening
from tests.chaos.postgres.customers import Customers
from tests.chaos.postgres.gateway import Call, Gateway
from tests.crash.engine.gateway import DONE, Line

END = "end"


class Stuck(AssertionError):
    """Something that has to happen by itself did not."""


class World:
    """One world, from one seed."""

    def __init__(self, seed: int) -> None:
        self.gateway = Gateway(SystemChance(seed * 10 + 1), self._told)
        self.customers = Customers(SystemChance(seed * 10 + 2))
        self.acknowledged: Counter[int] = Counter()
        """Operations that were answered, by life."""
        self.repeated: Counter[str] = Counter()
        """Answers after which an operation was repeated, by their code."""
        self.dead: set[int] = set()
        """Lives that were killed on purpose."""
        self.broken: str | None = None
        """A life has ended that nobody has killed."""
        self.controls: dict[int, asyncio.StreamWriter] = {}
        """Processes that are well."""
        self._ended: set[int] = set()
        self._closing = False
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        """All of them: one that was closed may wait for ever for a process that reads no more."""

    async def open(self, path: Path) -> None:
        """Let processes in."""
        self._server = await asyncio.start_unix_server(self._accepted, path)

    async def close(self) -> None:
        """Everybody is gone."""
        assert self._server is not None
        await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        # An aborted transport is gone when its protocol was told, however many turns that takes.
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def until(self, what: str, happened: Callable[[], bool], deadline_s: float) -> None:
        """Wait for something. Raises Stuck when it has not happened in time, or something has that may never be."""
        if not happened():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((lambda: self._fault is not None or happened(), future))
            try:
                await asyncio.wait_for(future, deadline_s)
            except TimeoutError:
                raise Stuck(f"after {deadline_s:g} s: {what}") from None
            finally:
                self._waiting = [each for each in self._waiting if each[1] is not future]
        if self._fault is not None:
            raise Stuck(self._fault)

    def stop(self) -> None:
        """Ask every process to close."""
        self._closing = True
        self._changed()
        for writer in self.controls.values():
            writer.write(f"{END}\n".encode())

    def ended(self, life: int) -> bool:
        """Whether a process has closed its engine."""
        return life in self._ended

    @property
    def _fault(self) -> str | None:
        return self.customers.problems[0] if self.customers.problems else self.broken

    def _changed(self) -> None:
        for happened, future in self._waiting:
            if not future.done() and happened():
                future.set_result(None)

    def _told(self, line: Line) -> None:
        self.customers.told(line.deed, line.workflow, done=line.what == DONE)
        self._changed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connected(reader, writer))
        self._tasks.add(task)
        self._writers.add(writer)
        task.add_done_callback(functools.partial(self._served, writer))

    def _served(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        writer.close()
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken = f"the world outside is at fault: {error!r}"
            self._changed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            said = (await reader.readline()).decode().split()
            if not said:
                return
            kind, life = said
            serve = {"customer": self._customer, "gateway": self._gateway, "control": self._control}[kind]
            await serve(int(life), reader, writer)
        except ConnectionError:
            pass  # Whoever it was is dead; what that means is known where it matters.

    async def _customer(self, life: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (operation := await self._next()) is not None:
            self.customers.asked[operation] = life
            try:
                writer.write(f"{operation}\n".encode())
                kind, words = await self._answer(reader)
            except (ConnectionError, ValueError):  # A line that was not finished was not said.
                self.customers.put_back(operation)
                self._changed()
                return
            self.acknowledged[life] += 1
            self.customers.answered(kind, operation, words)
            self._changed()
        writer.write(f"{END}\n".encode())

    async def _next(self) -> str | None:
        found: list[str] = []

        def ready() -> bool:
            operation = None if found else self.customers.next()
            if operation is not None:
                found.append(operation)
            return bool(found) or self._closing

        if not ready():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((ready, future))
            try:
                await future
            finally:
                self._waiting = [each for each in self._waiting if each[1] is not future]
        return found[0] if found else None

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, list[str]]:
        while True:
            line = (await reader.readline()).decode()
            if not line.endswith("\n"):
                raise ConnectionError
            kind, *words = line.split()
            if kind != "-":
                return kind, words
            self.repeated[words[0]] += 1

    async def _gateway(self, life: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        following = asyncio.ensure_future(reader.readline())
        while line := await following:
            deed, workflow, visit, key, undoes = line.decode().split()
            call = Call(life, Line("", deed, workflow, int(visit), key, undoes), asyncio.Event())
            following = asyncio.ensure_future(reader.readline())  # Ends early when nobody waits for the answer.
            following.add_done_callback(functools.partial(_gone, call))
            answer = await self.gateway.ask(call)
            if answer is not None:
                writer.write(f"{answer}\n".encode())

    async def _control(self, life: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.controls[life] = writer
        self._changed()
        said = await reader.readline()
        del self.controls[life]
        if said:
            self._ended.add(life)
        elif life not in self.dead:
            self.broken = f"process {life} has ended, and nobody has killed it"
        self._changed()


def _gone(call: Call, _: object) -> None:
    call.gone.set()
