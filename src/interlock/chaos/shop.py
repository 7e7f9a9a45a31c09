"""The shop of an experiment: the machine of its orders, external services, customers, the world of both, and the audit.

An order is reserved, charged and shipped in two legs, or compensated. Every result carries the key of its run, so that
history shows whether one was applied twice. Shipping re-enters its own state: a worker that wakes up late finds the
order in the same state and another visit, where only the fence refuses its old result.

The world is the experiment's end of the workers' sockets. Waiting tasks do not poll: each change evaluates their
conditions. The audit compares what was acknowledged with what is stored and with what happened outside.

Sections: machine of the orders, external services, customers, world, audit.
"""

import asyncio
import contextlib
import functools
import socket
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from interlock.chaos.worker_messages import (
    DECLINED,
    DONE,
    FAILED,
    Acknowledged,
    CallAnswer,
    Closed,
    FromWorker,
    GaveUp,
    News,
    Operation,
    OperationRefused,
    Ready,
    Repeated,
    ServiceCall,
    StopWorker,
    WorkerOptions,
    line_of,
    next_from_worker,
)
from interlock.clock import Chance, SystemChance, SystemClock
from interlock.core.events import Event
from interlock.core.machine import EventT, Machine
from interlock.core.policies import Breaker, Dependency, Retry
from interlock.core.values import ContextT, StateT, StepContext
from interlock.engine.engine import Engine
from interlock.engine.views import View
from interlock.testing.faults import Process, Processes

# --- Machine of the orders -------------------------------------------------------------------------------------------

TIMEOUT_S = 30.0
"""Longer than any scenario makes a call hang, so that calls fail by refusal and never by timeout."""

CHARGES = Retry(attempts=6, first_s=0.05, max_s=0.3)
"""All attempts take less than a second: an outage that consumes attempts exhausts them, and the audit finds it."""

PATIENT = Retry(attempts=1_000, first_s=0.05, max_s=0.3)
PLACES = 10
RESET_S = 0.4
RATE_PER_S = 1_000.0

GATEWAY, WAREHOUSE, CARRIER = "gateway", "warehouse", "carrier"
_BREAKER = Breaker(failures=5, reset_s=RESET_S)
OUTSIDE = [
    Dependency(GATEWAY, PLACES, rate_per_s=RATE_PER_S, breaker=_BREAKER, budget=1),
    Dependency(WAREHOUSE, PLACES, breaker=_BREAKER, budget=1),
    Dependency(CARRIER, 3 * PLACES, breaker=_BREAKER, budget=1),
]


class ExternalServices(Protocol):
    """The external services, as a step sees them."""

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Do the deed once for this key. Raises when it was refused or its outcome is unknown."""
        ...


outside: list[ExternalServices] = []
"""The services that the steps of this process call: the last entry."""


class ChaosState(Enum):
    """States of an order."""

    NEW = "new"
    RESERVING = "reserving"
    CHARGING = "charging"
    SHIPPING = "shipping"
    DONE = "done"
    UNDOING = "undoing"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class ChaosOrder:
    """One order."""

    number: int = 0
    charge: str = ""
    legs: int = 0


class ChaosOrderEvent(Event):
    """Base of the events of orders."""


@dataclass(frozen=True)
class Submit(ChaosOrderEvent):
    """The customer means it."""


@dataclass(frozen=True)
class Cancel(ChaosOrderEvent):
    """The customer has changed their mind."""


@dataclass(frozen=True)
class Reserved(ChaosOrderEvent):
    """The warehouse keeps it."""

    run: str


@dataclass(frozen=True)
class Charged(ChaosOrderEvent):
    """The gateway has the money."""

    run: str


@dataclass(frozen=True)
class Collected(ChaosOrderEvent):
    """The carrier has it."""

    run: str


@dataclass(frozen=True)
class Delivered(ChaosOrderEvent):
    """The customer has it."""

    run: str


order = Machine(
    "chaos-order",
    states=ChaosState,
    context=ChaosOrder,
    events=ChaosOrderEvent,
    initial=ChaosState.NEW,
    final={ChaosState.DONE, ChaosState.CANCELLED},
    unwind={ChaosState.UNDOING: ChaosState.CANCELLED},
)

order.on(Submit, ChaosState.NEW, to=ChaosState.RESERVING)
order.on(Reserved, ChaosState.RESERVING, to=ChaosState.CHARGING)
order.on(Delivered, ChaosState.SHIPPING, to=ChaosState.DONE)
order.on(Cancel, ChaosState.NEW, ChaosState.RESERVING, ChaosState.CHARGING, to=ChaosState.UNDOING)


@order.on(Charged, ChaosState.CHARGING, to=ChaosState.SHIPPING)
def charged(order: ChaosOrder, event: Charged) -> ChaosOrder:
    """Note the charge."""
    return replace(order, charge=event.run)


@order.on(Collected, ChaosState.SHIPPING, to=ChaosState.SHIPPING)
def collected(order: ChaosOrder, _event: Collected) -> ChaosOrder:
    """Count the leg. The event says which run it was."""
    return replace(order, legs=order.legs + 1)


@order.step(ChaosState.RESERVING, timeout_s=TIMEOUT_S, retry=PATIENT, dependency=WAREHOUSE, failed=ChaosState.UNDOING)
async def reserve(_order: ChaosOrder, ctx: StepContext) -> Reserved:
    """Have the warehouse keep it."""
    await outside[-1].ask("reserve", ctx)
    return Reserved(ctx.key)


@reserve.undo(Reserved)
async def release(_order: ChaosOrder, _done: Reserved | None, ctx: StepContext) -> None:
    """Put it back."""
    await outside[-1].ask("release", ctx)


@order.step(ChaosState.CHARGING, timeout_s=TIMEOUT_S, retry=CHARGES, dependency=GATEWAY, failed=ChaosState.UNDOING)
async def charge(_order: ChaosOrder, ctx: StepContext) -> Charged:
    """Take the money."""
    await outside[-1].ask("charge", ctx)
    return Charged(ctx.key)


@charge.undo(Charged)
async def refund(_order: ChaosOrder, _done: Charged | None, ctx: StepContext) -> None:
    """Give it back."""
    await outside[-1].ask("refund", ctx)


@order.step(ChaosState.SHIPPING, timeout_s=TIMEOUT_S, retry=PATIENT, dependency=CARRIER, failed=ChaosState.UNDOING)
async def ship(order: ChaosOrder, ctx: StepContext) -> Collected | Delivered:
    """Have it collected, then delivered."""
    if order.legs == 0:
        await outside[-1].ask("collect", ctx)
        return Collected(ctx.key)
    await outside[-1].ask("deliver", ctx)
    return Delivered(ctx.key)


class Shop(NamedTuple):
    """A machine of orders, as a worker serves it."""

    machine: Machine[Any, Any, Any]
    first: Callable[[int], object]
    """Return the context of a new order, by its number."""
    events: Mapping[str, Event]
    """The events that customers send: submit and cancel."""
    options: Mapping[str, Any]
    """Further options of `Engine.open`."""


SHOP = Shop(
    order, ChaosOrder, {"submit": Submit(), "cancel": Cancel()}, {"dependencies": OUTSIDE, "undo_timeout_s": TIMEOUT_S}
)

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


class LoggedCall(NamedTuple):
    """One line of the log."""

    what: str
    """asked, done, declined, or failed."""
    deed: str
    workflow: str
    key: str
    undoes: str
    worker: int
    at_s: float
    visit: int = 0


class Hold:
    """Calls that hang until they are released."""

    def __init__(self, matches: Callable[[ServiceCall, int], bool]) -> None:
        self.matches = matches
        self.waiting: list[tuple[ServiceCall, int]] = []
        self.released = asyncio.Event()


class Gateway:
    """The external services, with the log of all calls."""

    def __init__(self, chance: Chance, now_s: Callable[[], float], changed: Callable[[], None]) -> None:
        self.lines: list[LoggedCall] = []
        self.down = False
        """Whether every call for money is refused."""
        self._answers: dict[str, str] = {}
        self._holds: list[Hold] = []
        self._chance = chance
        self._now_s = now_s
        self._changed = changed

    async def ask(self, call: ServiceCall, worker: int, order: int) -> str:
        """Do the deed once for this key. It may fail before the deed, or lose the answer after it."""
        luck, latency_s = self._chance.fraction(), self._chance.fraction() * LATENCY_S
        self._write(ASKED, call, worker)
        if self.down and call.deed in {"charge", "refund"}:
            self._write(FAILED, call, worker)
            return FAILED
        await self.take_time(latency_s)
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

    async def take_time(self, latency_s: float) -> None:
        """Answer as slowly as a real service does."""
        await asyncio.sleep(latency_s)

    @contextlib.contextmanager
    def holding(self, matches: Callable[[ServiceCall, int], bool]) -> Generator[Hold, None, None]:
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

    def _do_deed(self, call: ServiceCall, worker: int, *, declines: bool) -> str:
        answer = self._answers.get(call.key)
        if answer is None:
            answer = self._answers[call.key] = DECLINED if declines else DONE
            if call.undoes:
                self._answers.setdefault(call.undoes, DECLINED)
            self._write(answer, call, worker)
        return answer

    def _write(self, what: str, call: ServiceCall, worker: int) -> None:
        line = LoggedCall(what, call.deed, call.workflow, call.key, call.undoes, worker, self._now_s(), call.visit)
        self.lines.append(line)
        self._changed()


# --- Customers -------------------------------------------------------------------------------------------------------
# An order is started, submitted, and, one in five, cancelled again. Each operation has its delivery key and goes to
# the least busy worker, so that the events of one order arrive at different nodes. An operation that a dead worker
# had not answered goes to another worker, with the same key.

CANCELLED_EVERY, CANCELLED = 5, 1
STARTED, SUBMITTED, CANCEL = "start", "submit", "cancel"


class Acknowledgement(NamedTuple):
    """The acknowledgement of one operation."""

    operation: Operation
    version: int
    state: str
    ignored: bool
    duplicate: bool = False


class Customers:
    """All customers of one scenario."""

    def __init__(self) -> None:
        self.acknowledgements: list[Acknowledgement] = []
        """Every acknowledgement, in the order they came."""
        self.refused: list[tuple[Operation, str]] = []
        self.repeated: Counter[str] = Counter()
        """Why operations were repeated, by the code of the error."""
        self.orders: dict[str, int] = {}
        """The numbers of the orders that were placed, by their ids."""
        self.ended: dict[str, str] = {}
        """The final states that workers have reported."""
        self.received: Counter[int] = Counter()
        """How many operations each worker has received."""
        self._ready: deque[Operation] = deque()
        self._assigned: dict[int, tuple[Operation, int]] = {}
        self._operations = 0

    def place(self) -> str:
        """Place another order; return its id."""
        number = len(self.orders) + 1
        workflow = f"order-{number}"
        self.orders[workflow] = number
        self.queue(STARTED, workflow)
        return workflow

    def next(self, worker: int) -> Operation | None:
        """Return the next operation for a worker; None if no operation is pending."""
        if not self._ready:
            return None
        operation = self._ready.popleft()
        self._assigned[operation.number] = (operation, worker)
        self.received[worker] += 1
        return operation

    def asked_of(self, worker: int) -> int:
        """Return how many operations a worker has not answered yet."""
        return sum(assignee == worker for _, assignee in self._assigned.values())

    def answered(self, answer: Acknowledged | OperationRefused) -> None:
        """Record a worker's answer, and queue the operation that follows."""
        operation, _ = self._assigned.pop(answer.number)
        if isinstance(answer, OperationRefused):
            self.refused.append((operation, answer.code))
            return
        self.acknowledgements.append(
            Acknowledgement(operation, answer.version, answer.state, answer.ignored, answer.duplicate)
        )
        self.follow(operation)

    def follow(self, operation: Operation) -> None:
        """Queue what the customer asks for after this operation was acknowledged."""
        if operation.what == STARTED:
            self.queue(SUBMITTED, operation.workflow)
        elif operation.what == SUBMITTED and operation.order % CANCELLED_EVERY == CANCELLED:
            self.queue(CANCEL, operation.workflow)

    def put_back(self, worker: int) -> None:
        """Queue the unanswered operations of a dead worker again; their outcome is unknown."""
        for number, (operation, assignee) in list(self._assigned.items()):
            if assignee == worker:
                del self._assigned[number]
                self._ready.appendleft(operation)

    @property
    def answered_all(self) -> bool:
        """Return whether every operation was answered."""
        return not self._ready and not self._assigned

    @property
    def quiet(self) -> bool:
        """Return whether every operation was answered and every order has ended."""
        return self.answered_all and len(self.ended) == len(self.orders)

    @property
    def open(self) -> list[str]:
        """Return the orders whose end was not reported."""
        return [workflow for workflow in self.orders if workflow not in self.ended]

    def queue(self, what: str, workflow: str) -> None:
        """Queue an operation. A second one of the same kind has the same delivery key."""
        self._operations += 1
        number = self._operations
        self._ready.append(Operation(number, what, workflow, self.orders[workflow], f"{what}-{workflow}"))


# --- World -----------------------------------------------------------------------------------------------------------

UNANSWERED_MAX = 4
"""Maximum number of unanswered operations per worker: a frozen one keeps these, and others process the rest."""


PROGRAM = "interlock.chaos.worker:forked"

ResultT = TypeVar("ResultT")


async def in_thread(call: Callable[[], ResultT]) -> ResultT:
    """Run the call in a thread, and wait for its end also when cancelled.

    A half-started server must not be ended concurrently. Each of these calls has a bound of its own.
    """
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class Broken(Exception):
    """A promise was not kept; the text says which, and what happened."""


class ChaosWorld:
    """The environment of the workers, from one seed."""

    def __init__(self, seed: int, *, gateway: type[Gateway] = Gateway, customers: Customers | None = None) -> None:
        self.now_s = SystemClock().monotonic_s
        self.gateway = gateway(SystemChance(seed), self.now_s, self.changed)
        self.customers = customers or Customers()
        self.news: list[News] = []
        self.ready: dict[int, asyncio.StreamWriter] = {}
        """The workers whose engines are open."""
        self.killed: set[int] = set()
        """Workers that were killed on purpose."""
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

    async def start(self, processes: Processes, options: WorkerOptions, log: Path) -> Process:
        """Start a worker, and serve it at this end of its socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            self._writers.add(writer)
            _ = self._begin(self._serve_worker(options.worker, reader, writer))
            arguments = msgspec.json.encode(options).decode(), str(log)
            return await in_thread(
                functools.partial(processes.start, PROGRAM, *arguments, descriptors=[theirs.fileno()])
            )

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
            writer.write(line_of(StopWorker()))

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
        if worker not in self.closed | self.killed:
            self.fault = f"worker {worker} has ended unexpectedly"
            self.fallen = worker
        self.changed()

    def _handle(self, message: FromWorker, worker: int, writer: asyncio.StreamWriter) -> None:
        match message:
            case Ready():
                self.ready[worker] = writer
            case Closed():
                self.closed.add(worker)
            case ServiceCall():
                task = self._begin(self._answer_call(message, worker, writer))
                self._calls[worker, message.number] = task
            case GaveUp(number):
                self._calls[worker, number].cancel()
            case Acknowledged() | OperationRefused():
                self.customers.answered(message)
            case Repeated():
                self.customers.repeated[message.code] += 1
            case News(what="ended"):
                self.customers.ended[message.subject] = message.detail
            case News():
                self.news.append(message)
        self.changed()

    async def _answer_call(self, call: ServiceCall, worker: int, writer: asyncio.StreamWriter) -> None:
        order = self.customers.orders[call.workflow]
        writer.write(line_of(CallAnswer(call.number, await self.gateway.ask(call, worker, order))))


# --- Audit -----------------------------------------------------------------------------------------------------------
# It compares the histories in the store, never an engine's memory, with the customers' acknowledgements and the log of
# the services. `problems` is a pure function of the three, so that tests can prove that it fails.

PAGE = 500


class AuditRow(NamedTuple):
    """One row of a history."""

    version: int
    state: str
    event: str
    key: str | None = None
    run: str = ""
    """The key of the run whose result it is."""


class StoredOrder(NamedTuple):
    """One order, as it is in the store."""

    state: str
    rows: Sequence[AuditRow]


async def view_pages(
    engine: Engine, machine: Machine[StateT, ContextT, EventT]
) -> AsyncIterator[Sequence[View[StateT, ContextT]]]:
    """Yield the views of all workflows of a machine, page by page."""
    cursor: str | None = None
    while True:
        page = await engine.find(machine, limit=PAGE, cursor=cursor)
        yield page.items
        if (cursor := page.cursor) is None:
            return


async def load_orders(home: str) -> dict[str, StoredOrder]:
    """Load all orders of the store, by id. A dead letter is included under an id of its own."""
    found: dict[str, StoredOrder] = {}
    async with Engine.open(home, machines=[order], worker=False, redis="", stall_check_s=0) as engine:
        views = [view async for page in view_pages(engine, order) for view in page]
        for view in views:
            rows = [
                AuditRow(row.version, str(row.to_state.value), row.event, row.key, getattr(row.payload, "run", ""))
                for row in await engine.history(view.id)
            ]
            found[view.id] = StoredOrder(view.state.value, rows)
        for letter in await engine.dead_letters():
            found[f"dead letter {letter.id}"] = StoredOrder(f"{letter.kind} {letter.name} of {letter.workflow}", ())
    return found


async def audit(home: str, world: ChaosWorld) -> list[str]:
    """Return every broken guarantee of a store, and every operation that was refused."""
    customers = world.customers
    found = problems(await load_orders(home), customers.acknowledgements, world.gateway.lines, customers.orders)
    return found + [
        f"{operation.what} of {operation.workflow} was refused: {code}" for operation, code in customers.refused
    ]


def problems(
    kept: Mapping[str, StoredOrder],
    acknowledgements: Iterable[Acknowledgement],
    lines: Sequence[LoggedCall],
    placed: Mapping[str, int],
) -> list[str]:
    """Return every broken guarantee as a sentence; an empty list means that all were kept."""
    return [
        *_lost(kept, acknowledgements),
        *_unfinished(kept, placed),
        *_broken_histories(kept),
        *_unwanted_compensations(kept, placed),
        *_unbalanced_orders(kept, lines),
    ]


def _lost(kept: Mapping[str, StoredOrder], acknowledgements: Iterable[Acknowledgement]) -> Iterator[str]:
    """Yield the acknowledged operations that the store lacks or has with another result (G2)."""
    for operation, version, state, ignored, _ in acknowledgements:
        acknowledgement = f"{operation.what} of {operation.workflow} was acknowledged as version {version}, {state}"
        order = kept.get(operation.workflow)
        if order is None or len(order.rows) < version:
            yield f"{acknowledgement}, and is lost"
            continue
        row = order.rows[version - 1]
        if row.state != state:
            yield f"{acknowledgement}, and is {row.state}"
        # A cancelled order that has nothing to take back has ended in the same commit, a version later.
        elif (
            operation.what != STARTED
            and not ignored
            and operation.key not in {each.key for each in order.rows[:version]}
        ):
            yield f"{acknowledgement}, and its key is not there"


def _unfinished(kept: Mapping[str, StoredOrder], placed: Mapping[str, int]) -> Iterator[str]:
    """Yield the orders that have not ended, the dead letters, and the orders that were never placed."""
    ends = {ChaosState.DONE.value, ChaosState.CANCELLED.value}
    for workflow in placed:
        if workflow in kept and kept[workflow].state not in ends:
            yield f"{workflow} has not ended: it is {kept[workflow].state}"
    for workflow, order in kept.items():
        if workflow not in placed:
            yield f"{workflow}: no customer placed it ({order.state})"


def _broken_histories(kept: Mapping[str, StoredOrder]) -> Iterator[str]:
    """Yield the histories with a gap in their versions or with a result that was applied twice (G3, G5)."""
    for workflow, order in kept.items():
        for before, row in pairwise(order.rows):
            if row.version != before.version + 1:
                yield f"{workflow}: version {row.version} follows {before.version}"
        for run, times in Counter(row.run for row in order.rows if row.run).items():
            if times > 1:
                yield f"{workflow}: a late result was not refused, the one of run {run} was applied {times} times"


def _unwanted_compensations(kept: Mapping[str, StoredOrder], placed: Mapping[str, int]) -> Iterator[str]:
    """Yield the orders that were compensated although no customer cancelled and the carrier did not decline them."""
    for workflow, number in placed.items():
        order = kept.get(workflow)
        wanted = number % CANCELLED_EVERY == CANCELLED or number % DECLINED_EVERY == 0
        if order is not None and order.state == ChaosState.CANCELLED.value and not wanted:
            yield f"{workflow} was given up without a cancellation: its attempts were used up"


def _unbalanced_orders(kept: Mapping[str, StoredOrder], lines: Sequence[LoggedCall]) -> Iterator[str]:
    """Yield finished orders that were not charged exactly once, and compensated ones with a deed left."""
    done: dict[tuple[str, str], set[str]] = defaultdict(set)
    taken_back: dict[tuple[str, str], set[str]] = defaultdict(set)
    times = Counter((line.deed, line.key) for line in lines if line.what == DONE)
    for line in lines:
        if line.what == DONE:
            done[line.workflow, line.deed].add(line.key)
            if line.deed in UNDOES:
                taken_back[line.workflow, UNDOES[line.deed]].add(line.undoes)
    for (deed, key), count in times.items():
        if count > 1:
            yield f"{deed} {key} was done {count} times"
    for workflow, order in kept.items():
        for deed in UNDOES.values():
            left = done[workflow, deed] - taken_back[workflow, deed]
            if order.state == ChaosState.DONE.value and len(left) != 1:
                yield f"{workflow} is done, and there are {len(left)} {deed}s that count"
            elif order.state == ChaosState.CANCELLED.value and left:
                yield f"{workflow} was taken back, and its {deed} was not: compensation is missing"
