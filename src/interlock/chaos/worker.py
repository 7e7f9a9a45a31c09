"""The program of a worker: an engine, customers who use it, and steps that ask the world outside.

An operation that may or may not have happened is repeated with the same key until it is answered, as any client would.
The process ends when nobody listens any more, so that nobody leaves it behind, and leaves Ctrl-C to whoever started it.

The variable INTERLOCK_CHAOS_SABOTAGE names a function `module:function` that is called first. That is how the tests
break a worker on purpose: a show that cannot fail proves nothing.
"""

import asyncio
import contextlib
import ctypes
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from interlock.chaos import orders
from interlock.chaos.disk import use
from interlock.chaos.keeper import SET_PARENT_DEATH_SIGNAL
from interlock.chaos.messages import (
    DECLINED,
    DONE,
    Acknowledged,
    Answer,
    Call,
    Closed,
    GaveUp,
    Hello,
    Life,
    Noticed,
    Operation,
    Ready,
    Refused,
    Repeated,
    Said,
    line_of,
    next_told,
)
from interlock.core.values import StepContext
from interlock.errors import (
    InterlockError,
    LeaseHeld,
    NonRetryable,
    OutcomeUnknown,
    Refusal,
    TransactionError,
    UnavailableError,
    VersionConflict,
)
from interlock.runtime.engine import Engine
from interlock.runtime.opening import Opening
from interlock.seams import SystemClock
from interlock.signals import BreakerChanged, RedisChanged, ResultLate, Signal, TransitionApplied

LIFETIME_S = 3_600
"""No worker lives longer than this, whatever becomes of the one that started it."""

SABOTAGE = "INTERLOCK_CHAOS_SABOTAGE"

POLL_S = 0.1
LOOK_S = 0.1
"""How often it is asked whether the engine can go on."""

PAUSE_S = 0.05
"""Between two tries of something that is not there: everybody asking at once would not bring it back."""

ENDS = {state.name for state in orders.order.describe().states if state.final}

LEASE, LEASE_S, LEASE_WAIT_S, LEASE_EVERY_S = "nightly-report", 1.0, 3.0, 0.1


class Worker:
    """One life of a worker."""

    def __init__(self, life: Life, writer: asyncio.StreamWriter) -> None:
        self._life = life
        self._writer = writer
        self._engine: Engine | None = None
        self._calls = 0
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._operations: asyncio.Queue[Operation] = asyncio.Queue()
        self._stopping = asyncio.Event()

    def say(self, said: Said) -> None:
        """One line, whole or not at all."""
        self._writer.write(line_of(said))

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Ask the world outside (see `orders.Asked`)."""
        self._calls += 1
        number = self._calls
        answered = self._answers[number] = asyncio.get_running_loop().create_future()
        self.say(Call(number, deed, ctx.workflow, ctx.key, ctx.undoes or ""))
        try:
            said = await answered
        except asyncio.CancelledError:
            self.say(GaveUp(number))
            raise
        finally:
            self._answers.pop(number, None)
        if said == DECLINED:
            raise NonRetryable(f"{deed} was declined")
        if said != DONE:
            raise ConnectionError(f"{deed}: nobody answers, or the answer is lost")

    async def live(self, reader: asyncio.StreamReader) -> None:
        """From opening the engine to closing it, and again for an engine that cannot go on, as a supervisor would."""
        self.say(Hello(self._life.worker))
        orders.outside.append(self)
        self._engine = await self._opened()
        self.say(Ready())
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._serve()) for _ in range(self._life.customers)]
            if self._life.redis:
                beside.append(group.create_task(self._hold_leases()))
            beside.append(group.create_task(self._listen(reader)))
            while not await self._stopped():
                await self._close()
                self._engine = await self._opened()
                self.say(Noticed("reopened", self._life.home))
            for task in beside:
                task.cancel()
        await self._close()
        self.say(Closed())
        await self._writer.drain()

    async def _stopped(self) -> bool:
        """Wait until this worker is told to stop, or its engine cannot go on."""
        assert self._engine is not None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    return await self._stopping.wait()
            try:
                self._engine._inside.refuse_if_closed()  # noqa: SLF001 -- as `interlock worker` asks it.
            except UnavailableError:
                return False

    async def _close(self) -> None:
        assert self._engine is not None
        with contextlib.suppress(UnavailableError):  # One that cannot go on has nothing to give up in order.
            await self._engine.close()

    async def _opened(self) -> Engine:
        """A store that is away is asked again: that is what starts programs, not an operator."""
        while True:
            try:
                return await self._opening()
            except (UnavailableError, TransactionError):
                await asyncio.sleep(PAUSE_S)

    def _opening(self) -> Opening[Engine]:
        life = self._life
        return Engine.open(
            life.home,
            machines=[orders.order],
            dependencies=orders.OUTSIDE,
            observers=[self._notice],
            redis=life.redis,
            drain_s=1,
            undo_attempts=1_000,
            undo_timeout_s=orders.TIMEOUT_S,
            lease_s=life.lease_s,
            poll_s=POLL_S,
        )

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (told := await next_told(reader)) is not None:
            if isinstance(told, Operation):
                self._operations.put_nowait(told)
            elif isinstance(told, Answer):
                answered = self._answers.get(told.number)
                if answered is not None and not answered.done():
                    answered.set_result(told.said)
            else:
                self._stopping.set()
                return
        os._exit(0)  # Nobody is there any more to listen.

    # --- customers ---------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            operation = await self._operations.get()
            self.say(await self._answer(operation))

    async def _answer(self, operation: Operation) -> Said:
        number = operation.number
        while True:
            try:
                return await self._asked(operation)
            except Refusal as refusal:
                return Refused(number, refusal.code)
            except (UnavailableError, OutcomeUnknown, VersionConflict) as error:
                self.say(Repeated(number, error.code))
                await asyncio.sleep(PAUSE_S)
            except InterlockError as error:
                return Refused(number, error.code)

    async def _asked(self, operation: Operation) -> Acknowledged:
        engine = self._engine
        assert engine is not None
        number, workflow = operation.number, operation.workflow
        if operation.what == "start":
            view = await engine.of(orders.order).start(workflow, orders.Order(operation.order))
            return Acknowledged(number, view.version, view.state.value)
        event = orders.Submit() if operation.what == "submit" else orders.Cancel()
        moved = await engine.send(workflow, event, key=operation.key, if_allowed=operation.what == "cancel")
        return Acknowledged(number, moved.version, str(moved.state.value), ignored=moved.ignored)

    async def _hold_leases(self) -> None:
        """One report at a time in the whole cluster, again and again; its token goes to whoever checks fences."""
        assert self._engine is not None
        while True:
            try:
                async with self._engine.lease(LEASE, wait_s=LEASE_WAIT_S, lease_s=LEASE_S) as lease:
                    self.say(Noticed("lease", LEASE, str(lease.token), SystemClock().monotonic_s()))
                    await asyncio.sleep(LEASE_EVERY_S)
            except (LeaseHeld, UnavailableError, OutcomeUnknown) as error:
                self.say(Noticed("no-lease", LEASE, error.code))
                await asyncio.sleep(LEASE_EVERY_S)

    # --- what operators are told -------------------------------------------------------------------------------------

    def _notice(self, signal: Signal, /) -> None:
        if isinstance(signal, BreakerChanged):
            self.say(Noticed(f"breaker-{signal.after}", signal.dependency, signal.reason))
        elif isinstance(signal, RedisChanged):
            self.say(Noticed("redis-back" if signal.up else "redis-gone", signal.address, signal.reason))
        elif isinstance(signal, ResultLate):
            self.say(Noticed("late", signal.workflow, signal.key))
        elif isinstance(signal, TransitionApplied) and signal.to_state in ENDS:
            self.say(Noticed("ended", signal.workflow, signal.to_state))


async def live(life: Life) -> None:
    """One life, over the socket of the world outside."""
    reader, writer = await asyncio.open_unix_connection(life.socket)
    with contextlib.closing(writer):
        await Worker(life, writer).live(reader)


def sabotage() -> None:
    """Break what is named, if something is."""
    named = os.environ.get(SABOTAGE)
    if named:
        module, _, function = named.partition(":")
        getattr(importlib.import_module(module), function)()


def _die_with_parent() -> None:
    """On Linux also while it is frozen, when it could not notice that nobody listens any more."""
    if sys.platform.startswith("linux"):
        control: Callable[..., int] = ctypes.CDLL(None).prctl
        control(SET_PARENT_DEATH_SIGNAL, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))


def forked(say: Callable[[str], None], life: str, complaints: str) -> None:
    """The program itself, in a process that was forked for it; the life is JSON."""
    del say  # It speaks through its socket, and only there.
    signal.alarm(LIFETIME_S)
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(complaints, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, sys.stderr.fileno())
    logging.basicConfig(level=logging.WARNING)
    sabotage()
    told = msgspec.json.decode(life, type=Life)
    pretending = use(Path(told.disk), told.disk_kind) if told.disk else None
    asyncio.run(live(told))
    if pretending is not None:
        pretending.close()
