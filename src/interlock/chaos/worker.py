"""Program of a worker process: an engine, tasks that run customers' operations on it, and steps that call the gateway.

An operation with an unknown outcome is repeated with the same key until it is answered, as any client would do. The
process exits when the experiment's end of its socket is closed. It ignores Ctrl-C, which the experiment handles.

The variable INTERLOCK_CHAOS_SABOTAGE names a function `module:function` that is called first, as the options may. With
it the tests break a worker on purpose: an experiment that cannot fail proves nothing.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from interlock.chaos import shop
from interlock.chaos.server_parent import die_with_parent
from interlock.chaos.worker_messages import (
    DECLINED,
    DONE,
    Acknowledged,
    CallAnswer,
    Closed,
    FromWorker,
    GaveUp,
    News,
    Operation,
    OperationRefused,
    PendingCalls,
    Ready,
    Repeated,
    ServiceCall,
    WorkerOptions,
    line_of,
    next_to_worker,
)
from interlock.clock import SystemClock
from interlock.core.values import StepContext
from interlock.engine.engine import Engine
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
from interlock.signals import BreakerChanged, RedisChanged, ResultLate, Signal, TransitionApplied
from interlock.testing.faults import use_disk

LIFETIME_S = 3_600
"""Maximum lifetime of a worker, also when the experiment was killed."""

SABOTAGE = "INTERLOCK_CHAOS_SABOTAGE"

CUSTOMERS = 4
POLL_S = 0.1
LOOK_S = 0.1
"""Interval of the check whether the engine has stopped."""

PAUSE_S = 0.05
"""Pause between two attempts at an absent store or lease, so that attempts do not pile up."""

LEASE, LEASE_WAIT_S, LEASE_EVERY_S = "nightly-report", 3.0, 0.1
LEASE_S = 1.0
"""Seconds of a lease of that name, and of those on a shared store."""


class Worker:
    """One worker, from its start to its end."""

    def __init__(self, life: WorkerOptions, writer: asyncio.StreamWriter) -> None:
        self._life = life
        self._shop = cast("shop.Shop", _load(life.shop))
        self._ends = {each.name for each in self._shop.machine.describe().states if each.final or each.resting}
        self._writer = writer
        self._engine: Engine | None = None
        self._calls: PendingCalls[str] = PendingCalls()
        self._operations: asyncio.Queue[Operation] = asyncio.Queue()
        self._stopping = asyncio.Event()

    def say(self, message: FromWorker) -> None:
        """Send a message as one line."""
        self._writer.write(line_of(message))

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Call the external services (see `shop.ExternalServices`)."""
        answer = await self._calls.ask(
            lambda number: self.say(ServiceCall(number, deed, ctx.workflow, ctx.key, ctx.undoes or "", ctx.visit)),
            give_up=lambda number: self.say(GaveUp(number)),
        )
        if answer == DECLINED:
            raise NonRetryable(f"{deed} was declined")
        if answer != DONE:
            raise ConnectionError(f"{deed}: no answer, or the answer is lost")

    async def live(self, reader: asyncio.StreamReader) -> None:
        """Open the engine, serve until Stop, and close it. Reopen an engine that failed, as a supervisor would."""
        shop.outside.append(self)
        self._engine = await self._open_engine()
        self.say(Ready())
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._serve()) for _ in range(CUSTOMERS)]
            if self._life.redis:
                beside.append(group.create_task(self._hold_leases()))
            beside.append(group.create_task(self._listen(reader)))
            while not await self._wait_for_stop():
                await self._close()
                self._engine = await self._open_engine()
                self._report("reopened", self._life.home)
            for task in beside:
                task.cancel()
        await self._close()
        self.say(Closed())
        await self._writer.drain()

    async def _wait_for_stop(self) -> bool:
        """Wait until this worker receives Stop or its engine has failed."""
        assert self._engine is not None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    return await self._stopping.wait()
            try:
                self._engine._inside.refuse_if_closed()  # noqa: SLF001 -- as `interlock worker` does.
            except UnavailableError:
                return False

    async def _close(self) -> None:
        assert self._engine is not None
        with contextlib.suppress(UnavailableError):  # A failed engine has nothing to release in order.
            await self._engine.close()

    async def _open_engine(self) -> Engine:
        """Open the engine; retry while the store is away, as a supervisor would."""
        while True:
            try:
                return await Engine.open(
                    self._life.home,
                    machines=[self._shop.machine],
                    observers=[self._report_signal],
                    worker=self._life.runs_steps,
                    redis=self._life.redis,
                    drain_s=1,
                    undo_attempts=1_000,
                    lease_s=LEASE_S,
                    poll_s=POLL_S,
                    **self._shop.options,
                )
            except (UnavailableError, TransactionError):
                await asyncio.sleep(PAUSE_S)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (message := await next_to_worker(reader)) is not None:
            if isinstance(message, Operation):
                self._operations.put_nowait(message)
            elif isinstance(message, CallAnswer):
                self._calls.resolve(message.number, message.result)
            else:
                self._stopping.set()
                return
        os._exit(0)  # The experiment has ended.

    # --- customers ---------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            operation = await self._operations.get()
            self.say(await self._answer(operation))

    async def _answer(self, operation: Operation) -> FromWorker:
        number = operation.number
        while True:
            try:
                return await self._run_operation(operation)
            except Refusal as refusal:
                return OperationRefused(number, refusal.code)
            except (UnavailableError, OutcomeUnknown, VersionConflict) as error:
                self.say(Repeated(number, error.code))
                await asyncio.sleep(PAUSE_S)
            except InterlockError as error:
                return OperationRefused(number, error.code)

    async def _run_operation(self, operation: Operation) -> Acknowledged:
        engine = self._engine
        assert engine is not None
        number, workflow = operation.number, operation.workflow
        if operation.what == "start":
            view = await engine.start(self._shop.machine, workflow, self._shop.first(operation.order))
            return Acknowledged(number, view.version, view.state.value)
        event = self._shop.events[operation.what]
        moved = await engine.send(workflow, event, key=operation.key, if_allowed=operation.what == "cancel")
        return Acknowledged(number, moved.version, str(moved.state.value), moved.ignored, moved.duplicate)

    async def _hold_leases(self) -> None:
        """Acquire one cluster-wide lease repeatedly, and report its token for the check of the fence."""
        assert self._engine is not None
        while True:
            try:
                async with self._engine.lease(LEASE, wait_s=LEASE_WAIT_S, lease_s=LEASE_S) as lease:
                    self._report("lease", LEASE, str(lease.token))
                    await asyncio.sleep(LEASE_EVERY_S)
            except (LeaseHeld, UnavailableError, OutcomeUnknown) as error:
                self._report("no-lease", LEASE, error.code)
                await asyncio.sleep(LEASE_EVERY_S)

    # --- signals for operators ---------------------------------------------------------------------------------------

    def _report_signal(self, signal: Signal, /) -> None:
        if isinstance(signal, BreakerChanged):
            self._report(f"breaker-{signal.after}", signal.dependency, signal.reason)
        elif isinstance(signal, RedisChanged):
            self._report("redis-back" if signal.up else "redis-gone", signal.address, signal.reason)
        elif isinstance(signal, ResultLate):
            self._report("late", signal.workflow, signal.key)
        elif isinstance(signal, TransitionApplied) and signal.to_state in self._ends:
            self._report("ended", signal.workflow, signal.to_state)

    def _report(self, what: str, subject: str, detail: str = "") -> None:
        self.say(News(self._life.worker, SystemClock().monotonic_s(), what, subject, detail))


def _load(path: str) -> object:
    module, _, name = path.partition(":")
    return cast("object", getattr(importlib.import_module(module), name))


async def _live(life: WorkerOptions, line: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=line)
    with contextlib.closing(writer):
        await Worker(life, writer).live(reader)


def forked(say: Callable[[str], None], life: str, complaints: str, line: int) -> None:
    """Run the worker in a forked process; `life` is JSON, `line` the descriptor of its socket."""
    del say  # It communicates through its socket only.
    signal.alarm(LIFETIME_S)
    die_with_parent()  # Also while it is frozen.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    file = os.open(complaints, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, sys.stderr.fileno())
    logging.basicConfig(level=logging.WARNING)
    parameters = msgspec.json.decode(life, type=WorkerOptions)
    if sabotage := parameters.sabotage or os.environ.get(SABOTAGE):
        cast("Callable[[], None]", _load(sabotage))()
    simulated = use_disk(Path(parameters.disk), parameters.disk_kind) if parameters.disk else None
    asyncio.run(_live(parameters, socket.socket(fileno=line)))
    if simulated is not None:
        simulated.unregister()
