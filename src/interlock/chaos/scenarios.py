"""The scenarios of `interlock chaos`, and the run of several of them.

Each class states one promise, disturbs, and checks the promise. SCENARIOS has them by name, in the order in which they
are run. A run has one folder and the servers that its scenarios need; each block ends on exit what it has started.
Ctrl-C and SIGTERM arrive as a cancellation between two steps, never within one.

Sections: payment gateway, PostgreSQL, full disk, frozen holder of a lock, Redis, workers, run.
"""

import asyncio
import contextlib
import functools
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from interlock.chaos.disk import SmallDisk
from interlock.chaos.flow import Flow
from interlock.chaos.locks import SECONDS, Locks, run_locks
from interlock.chaos.messages import DONE, FAILED, Call, Life
from interlock.chaos.network import Wire
from interlock.chaos.orders import GATEWAY, PLACES, RESET_S
from interlock.chaos.scenario import POSTGRES, REDIS, Played, Report, Scenario, Verdict, counted, run, stage_for, times
from interlock.chaos.servers import OwnPostgres, OwnRedis
from interlock.chaos.stage import Load, Servers, Stage, in_thread
from interlock.chaos.world import ASKED, DECLINED_EVERY, Broken
from interlock.testing.faults.processes import Processes

# --- Payment gateway -------------------------------------------------------------------------------------------------
# The promises are about slots and breakers: hanging charges do not block refunds, and open breakers protect a
# gateway that is down.

WORKERS = 2
DECLINED_ORDERS = 2
"""Orders that are compensated while every slot for charges is taken."""


class GatewayLatency(Flow):
    """Charges hang until every slot at the gateway is taken; refunds have slots of their own."""

    name = "gateway-latency"
    disturbance = "charges hang"
    promise = "charges hang until every place at the gateway is taken: refunds go through all the same"

    def __init__(self) -> None:
        self._refunds = 0

    async def disturb(self, stage: Stage) -> None:
        """Let the carrier decline charged orders while all other charges hang."""
        gateway, customers = stage.world.gateway, stage.world.customers

        def declined(call: Call, _worker: int) -> bool:
            return call.deed == "collect" and customers.orders[call.workflow] % DECLINED_EVERY == 0

        def charges(call: Call, _worker: int) -> bool:
            return call.deed == "charge"

        with gateway.holding(declined) as shipped:
            stage.place(DECLINED_ORDERS * DECLINED_EVERY)
            await stage.prepared("orders are charged", lambda: len(shipped.waiting) >= DECLINED_ORDERS)
            with gateway.holding(charges) as charging:
                stage.place(4 * WORKERS * PLACES)
                # A cancelled charge would free its slot: no customer cancels from here on.
                await stage.prepared(
                    "customers have said what they want", lambda: stage.placed and customers.answered_all
                )
                await stage.prepared(
                    "every place at the gateway is taken",
                    lambda: min(_by_worker(charging.waiting, WORKERS)) >= PLACES,
                )
                before, since = gateway.count(DONE, "refund"), len(gateway.lines)
                taken_back = {call.workflow for call, _ in shipped.waiting}
                gateway.let_go(shipped)
                try:
                    await stage.until(
                        "refunds go through while every place at the gateway is taken",
                        lambda: taken_back <= gateway.workflows(DONE, "refund", since=since),
                    )
                except Broken as broken:
                    raise Broken(f"compensation waits for charges that hang: {broken}") from None
                self._refunds = gateway.count(DONE, "refund") - before

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        hung = f"{WORKERS * PLACES} charges hung for {stage.load.seconds:g} s"
        return f"{hung}; meanwhile the gateway did {counted(self._refunds, 'refund')}"


def _by_worker(waiting: list[tuple[Call, int]], workers: int) -> list[int]:
    counts = Counter(worker for _, worker in waiting)
    return [counts[worker] for worker in range(1, workers + 1)]


class GatewayOutage(Flow):
    """The gateway refuses everything for a while."""

    name = "gateway-outage"
    disturbance = "the gateway is down"
    promise = "the gateway is down: breakers open, orders wait and burn no attempts; then breakers close, refunds drain"

    def __init__(self) -> None:
        self._in_vain = 0
        self._probes_max = 0

    async def disturb(self, stage: Stage) -> None:
        """Keep the gateway down until every breaker has opened, and for the load's seconds after that."""
        world, gateway = stage.world, stage.world.gateway
        before, begun_s = gateway.count(FAILED, "charge"), world.now_s()
        gateway.down = True
        try:
            stage.place(4 * WORKERS * DECLINED_EVERY)
            await stage.until(
                "every worker's breaker opens",
                lambda: len(world.workers_reporting("breaker-open", GATEWAY, since_s=begun_s)) == WORKERS,
            )
            await stage.hold()
        finally:
            gateway.down = False
        self._in_vain = gateway.count(FAILED, "charge") - before
        self._probes_max = int((world.now_s() - begun_s) / RESET_S) + 1

    async def afterwards(self, stage: Stage) -> None:
        """Wait until the breakers have closed by themselves."""
        await stage.until(
            "every breaker closes again",
            lambda: all(state == "closed" for state in stage.breakers().values()),
        )

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield a problem when an open breaker let more than its probes through."""
        del stage
        # Besides the failures that open it: calls that were running then, and failures that open it again.
        allowed = WORKERS * (2 * PLACES + self._probes_max)
        if self._in_vain > allowed:
            yield f"the gateway was asked {self._in_vain} times while it was down; an open breaker allows {allowed}"

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        undone = stage.world.gateway.count(DONE, "refund")
        return (
            f"the breakers of {WORKERS} workers opened and closed; charges were tried in vain {times(self._in_vain)}, "
            f"the refunds drained ({undone} in all)"
        )


# --- PostgreSQL ------------------------------------------------------------------------------------------------------
# An engine waits for an absent server and retries safe statements; customers retry the operations that it gives up on,
# with the same key. No worker is restarted. The crowd imports the driver by name: no other module of the package talks
# to PostgreSQL without an engine.

CROWD_NAME = "foreign-application"
CROWD_RETRY_S = 0.1
CROWD_RETRIES_MAX = 300
"""How often the administrator retries to connect, half a minute in all."""
END_OTHER_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND application_name <> $2"
)


class Connection(Protocol):
    """The methods of an asyncpg connection that are used here."""

    def terminate(self) -> None:
        """Close the socket without a message to the server."""
        ...

    def fetch(self, sql: str, *values: str) -> Awaitable[Sequence[object]]:
        """Run a query and return its rows."""
        ...


class Driver(Protocol):
    """The functions of asyncpg that are used here."""

    TooManyConnectionsError: type[Exception]

    def connect(self, url: str, *, server_settings: dict[str, str]) -> Awaitable[Connection]:
        """Open a connection."""
        ...


class Crowd:
    """All connections that the foreign application holds."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._driver = cast("Driver", import_module("asyncpg"))
        self._connections: list[Connection] = []

    def __len__(self) -> int:
        """Return the number of held connections."""
        return len(self._connections)

    async def take(self) -> None:
        """Take all connections that are left."""
        with contextlib.suppress(self._driver.TooManyConnectionsError):
            while True:
                self._connections.append(
                    await self._driver.connect(self._url, server_settings={"application_name": CROWD_NAME})
                )

    async def push_out(self, administrator: str, user: str) -> int:
        """End all other connections of that user; return their number."""
        connection = await self._connect(administrator)
        try:
            return len(await connection.fetch(END_OTHER_CONNECTIONS, user, CROWD_NAME))
        finally:
            connection.terminate()

    async def _connect(self, administrator: str) -> Connection:
        """Connect as the administrator, for whom PostgreSQL reserves connections.

        Attempts that are about to be refused hold the reserved ones too until they are, so the first try can fail.
        """
        for _ in range(CROWD_RETRIES_MAX):
            with contextlib.suppress(self._driver.TooManyConnectionsError):
                return await self._driver.connect(administrator, server_settings={"application_name": CROWD_NAME})
            await asyncio.sleep(CROWD_RETRY_S)
        return await self._driver.connect(administrator, server_settings={"application_name": CROWD_NAME})

    def leave(self) -> None:
        """Close all of them."""
        for connection in self._connections:
            connection.terminate()
        self._connections.clear()


BYTES_PER_S, LATENCY_S = 60_000, 0.03
RETAKE_S = 0.05
POSTGRES_ORDERS = 5


def repetitions(stage: Stage) -> str:
    """Say how often operations had to be repeated."""
    count = stage.world.customers.repeated.total()
    return f"operations were repeated {times(count)}" if count else "no operation had to be repeated"


async def _require_no_answers(stage: Stage) -> None:
    """Place orders while the server is away: otherwise the scenario would prove nothing."""
    stage.place(POSTGRES_ORDERS)
    await stage.hold()
    if stage.world.customers.answered_all:
        raise Broken("every operation was answered while PostgreSQL was away, which cannot have stored the orders")


class RestartPostgres(Flow):
    """Shut the server down in order, and start it again."""

    name = "restart-postgres"
    disturbance = "PostgreSQL is shut down"
    promise = "PostgreSQL shuts down and comes back: no worker is restarted, and nothing acknowledged is lost"

    async def disturb(self, stage: Stage) -> None:
        """Stop the server, which ends every session, and start it after a while."""
        await in_thread(stage.postgres.stop)
        await _require_no_answers(stage)
        await in_thread(stage.postgres.start)

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return f"it was away for {stage.load.seconds:g} s; {repetitions(stage)}"


class KillPostgres(Flow):
    """Kill every process of the server with SIGKILL."""

    name = "kill-postgres"
    disturbance = "PostgreSQL is killed"
    promise = "every process of PostgreSQL is killed: it recovers from its log, and all workers continue"

    async def disturb(self, stage: Stage) -> None:
        """Kill the server without a shutdown; the next start recovers."""
        await in_thread(stage.postgres.kill)
        await _require_no_answers(stage)
        await in_thread(stage.postgres.start)

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return f"killed, and started again after {stage.load.seconds:g} s; {repetitions(stage)}"


class ThrottlePostgres(Flow):
    """Make the wire to the server slow."""

    name = "throttle-postgres"
    disturbance = "the wire is slow"
    promise = f"every answer of PostgreSQL is {LATENCY_S * 1000:g} ms late and comes drop by drop: orders flow, slower"

    def __init__(self) -> None:
        self._wires: list[Wire] = []
        self._flowed = 0

    def lives(self, stage: Stage) -> list[Life]:
        """Give each worker a wire of its own."""
        self._wires = [stage.wire(), stage.wire()]
        return [
            stage.life(worker, stage.schema(wire.url(stage.postgres.url))) for worker, wire in enumerate(self._wires, 1)
        ]

    async def disturb(self, stage: Stage) -> None:
        """Throttle both directions until operations were acknowledged over the slow wires."""
        acknowledged = stage.world.customers.acknowledgements
        for wire in self._wires:
            wire.throttle(bytes_per_s=BYTES_PER_S, latency_s=LATENCY_S)
        before, passed = len(acknowledged), [wire.traffic.bytes_back for wire in self._wires]
        stage.place(POSTGRES_ORDERS)
        await stage.hold()

        def flows() -> bool:
            used = [wire.traffic.bytes_back for wire in self._wires]
            return len(acknowledged) > before and all(now > then for now, then in zip(used, passed, strict=True))

        await stage.until("orders flow over a slow wire", flows)
        self._flowed = len(acknowledged) - before
        for wire in self._wires:
            wire.pass_on()

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        del stage
        return f"over the slow wire {counted(self._flowed, 'operation')} came through and back"


class ExhaustConnections(Flow):
    """Let a foreign application take every connection."""

    name = "exhaust-connections"
    disturbance = "no connection is left"
    promise = "a foreign application takes every connection: workers wait, and continue when there is room"

    def __init__(self) -> None:
        self._taken = 0

    async def disturb(self, stage: Stage) -> None:
        """Take all connections, also those that workers lose meanwhile."""
        crowd = Crowd(stage.postgres.url)
        try:
            await crowd.take()
            if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
                raise Broken("the workers had no connection to lose")
            await self._all_taken(stage, crowd)
            stage.place(POSTGRES_ORDERS)
            until_s = stage.world.now_s() + stage.load.seconds
            while stage.world.now_s() < until_s:
                await crowd.take()
                await asyncio.sleep(RETAKE_S)
            self._taken = len(crowd)
        finally:
            crowd.leave()

    @staticmethod
    async def _all_taken(stage: Stage, crowd: Crowd) -> None:
        """End the workers' connections until they have none: they reconnect immediately."""
        until_s = stage.world.now_s() + stage.load.deadline_s
        while stage.world.now_s() < until_s:
            await crowd.take()
            if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
                return
        raise Broken("the workers had a connection all the time: the crowd could not take every one")

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return f"{self._taken} connections were taken for {stage.load.seconds:g} s; {repetitions(stage)}"


# --- Full disk -------------------------------------------------------------------------------------------------------
# There is one worker: a lane has one owner. Writes that do not fit are refused, and acknowledged ones are kept. With
# room on the disk work continues, without a restart or a repair.

LANE_ORDERS = 10


class FillDisk(Flow):
    """Fill the disk to the last byte, and make room again."""

    name = "fill-disk"
    disturbance = "the disk is full"
    promise = "the disk of an embedded lane is full: what does not fit is refused, what was acknowledged is there"
    needs = ()

    def __init__(self) -> None:
        self._disk: SmallDisk | None = None

    def lives(self, stage: Stage) -> list[Life]:
        """Return the one worker, which owns the lane."""
        self._disk = SmallDisk(stage.folder / "disk")
        stage.resources.callback(self._disk.close)
        return [stage.life(1, self.home(stage), disk=self._disk)]

    def home(self, stage: Stage) -> str:
        """Return the address of the lane on the small disk."""
        return f"lanes://{stage.folder}/disk/home"

    async def disturb(self, stage: Stage) -> None:
        """Keep the disk full until an operation was refused, and for the load's seconds after that."""
        assert self._disk is not None
        codes = stage.world.customers.repeated
        before = codes.total()
        self._disk.fill()
        try:
            stage.place(LANE_ORDERS)
            await stage.until("an operation fails because the disk is full", lambda: codes.total() > before)
            await stage.hold()
        finally:
            self._disk.empty()

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        assert self._disk is not None
        reopened = sum(news.what == "reopened" for news in stage.world.news)
        again = f"; its engine stopped and was opened again {times(reopened)}" if reopened else ""
        return f"full for {stage.load.seconds:g} s; {repetitions(stage)}{again} ({self._disk.description})"


# --- Frozen holder of a lock -----------------------------------------------------------------------------------------
# No lock can keep a process from being frozen between the check of its lease and its write. The promise is that the
# write does no harm: the resource refuses a token that is lower than the highest it has accepted.

CONTENDERS, PROCESSES, LEASE_S = 50, 5, 1.0
LOCK_SECONDS_MIN = 2.0


class FreezeHolder(Scenario):
    """Many contenders compete for one lease, and its holder is frozen."""

    name = "freeze-lock-holder"
    promise = f"{CONTENDERS} want one lock, its holder is frozen and wakes up late: what it writes then is refused"
    needs = (REDIS,)

    async def play(self, stage: Stage) -> Played:
        """Run the contenders in processes of their own."""
        stage.doing = "disturbed: the holder of a lock is frozen"
        seconds = min(SECONDS, max(LOCK_SECONDS_MIN, stage.load.seconds))
        contended = functools.partial(
            run_locks,
            stage.redis.url,
            stage.folder,
            contenders=CONTENDERS,
            processes=PROCESSES,
            seconds=seconds,
            lease_s=LEASE_S,
        )
        locks = await in_thread(contended)
        fair = locks.fairness
        turns = (
            f"{locks.acquisitions:,} turns in {locks.processes} processes, {fair.least} to {fair.most} per contender"
        )
        late = f"late writes were refused {times(locks.refused_late_writes)}"
        return Played(f"{turns}; {late}; a clock an hour ahead changed nothing", list(lock_problems(locks)))


def lock_problems(locks: Locks) -> Iterator[str]:
    """Yield every broken promise."""
    if locks.violations:
        yield f"the resource took {locks.violations} writes that another holder had overtaken: the fence is missing"
    if not locks.holder_frozen:
        yield "no other contender had the lock while its holder was frozen"
    elif not locks.frozen_write_refused:
        yield "the late write of the frozen holder was not refused"
    elif not locks.holder_knew:
        yield "the lease of the frozen holder did not report that it is lost"
    if not locks.wrong_clock_acquisitions:
        yield "the process whose clock is an hour ahead never had the lock"


# --- Redis -----------------------------------------------------------------------------------------------------------
# Redis is optional: while it is gone, leases come from the store, and limits and breakers are local to each process.


class KillRedis(Flow):
    """Kill Redis, and require that every worker continues with the store and local limits."""

    name = "kill-redis"
    disturbance = "Redis is killed"
    promise = (
        "Redis is killed: workers say so, orders flow on local limits, leases come from the store, and it is used again"
    )
    needs = (POSTGRES, REDIS)

    def __init__(self) -> None:
        self._flowed = self._leases = 0
        self._killed_s = 0.0

    def lives(self, stage: Stage) -> list[Life]:
        """Return workers that share leases, limits and breakers."""
        return [stage.life(worker, stage.schema(), redis=stage.redis.url) for worker in (1, WORKERS)]

    async def disturb(self, stage: Stage) -> None:
        """Keep Redis away until every worker has reported it and work has continued without it."""
        world = stage.world
        acknowledged = world.customers.acknowledgements
        await stage.prepared("a lease is given by Redis", lambda: bool(world.workers_reporting("lease")))
        self._killed_s = world.now_s()
        await in_thread(stage.redis.kill)
        await stage.until(
            "every worker says that Redis is gone",
            lambda: len(world.workers_reporting("redis-gone", since_s=self._killed_s)) == WORKERS,
        )
        gone_s, before = world.now_s(), len(acknowledged)
        await stage.until(
            "leases are given by the store while Redis is gone",
            lambda: bool(world.workers_reporting("lease", since_s=gone_s)),
        )
        await stage.hold()
        stage.place(5)
        await stage.until("orders flow while Redis is gone", lambda: len(acknowledged) > before)
        self._flowed = len(acknowledged) - before
        self._leases = sum(news.what == "lease" and news.at_s >= gone_s for news in world.news)
        await in_thread(stage.redis.start)

    async def afterwards(self, stage: Stage) -> None:
        """Wait until every worker uses Redis again."""
        world = stage.world
        await stage.until(
            "every worker says that Redis is back",
            lambda: len(world.workers_reporting("redis-back", since_s=self._killed_s)) == WORKERS,
        )
        back_s = world.now_s()
        await stage.until(
            "a lease is given by Redis again", lambda: bool(world.workers_reporting("lease", since_s=back_s))
        )

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield each lease whose token is not higher than all before, from Redis or from the store."""
        highest = 0
        for news in sorted(stage.world.news, key=lambda each: each.at_s):
            if news.what == "lease":
                token = int(news.detail)
                if token <= highest:
                    yield f"the lease {news.subject!r} was given with token {token} after {highest}: a fence would fail"
                highest = max(highest, token)

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        del stage
        return (
            f"{WORKERS} workers reported that it was gone and that it was back; meanwhile {self._flowed} operations "
            f"were acknowledged and {self._leases} leases given, tokens growing"
        )


# --- Workers ---------------------------------------------------------------------------------------------------------
# Other workers take both for dead. Both come back with old results, which the fence refuses.

VICTIM, OTHER = 1, 2
WORKER_ORDERS = 10


class FreezeWorker(Flow):
    """Freeze a worker during a call, let others take over its orders, and wake it with an old result."""

    name = "freeze-worker"
    disturbance = "a worker is frozen"
    promise = "a worker stands still past its lease: others take over, and what it says when it wakes up is refused"

    def __init__(self) -> None:
        self._late = 0
        self._orders: set[str] = set()

    async def disturb(self, stage: Stage) -> None:
        """Answer the frozen worker's call before it wakes, when the order is already in a later visit."""
        world, gateway, crew = stage.world, stage.world.gateway, stage.crew

        def collecting(call: Call, worker: int) -> bool:
            return call.deed == "collect" and worker == VICTIM and world.customers.orders[call.workflow] % 5 != 0

        def delivering(call: Call, _worker: int) -> bool:
            return call.deed == "deliver" and call.workflow in self._orders

        with gateway.holding(delivering) as delivered:
            with gateway.holding(collecting) as collected:
                stage.place(WORKER_ORDERS)
                await stage.prepared("the worker is in the middle of a call", lambda: bool(collected.waiting))
                crew.freeze(VICTIM)
                self._orders = {call.workflow for call, _ in collected.waiting}
            try:
                await stage.until(
                    "another worker takes over what the frozen one has left",
                    lambda: self._orders <= {call.workflow for call, _ in delivered.waiting},
                )
                await stage.hold()
            finally:
                crew.wake(VICTIM)
            woken_s = world.now_s()
            await stage.until(
                "the worker that was frozen reports its old result, and is refused",
                lambda: self._refused(stage, woken_s) or self._applied_twice(stage),
            )

    def _refused(self, stage: Stage, since_s: float) -> bool:
        late = {news.subject for news in stage.world.news if news.what == "late" and news.at_s >= since_s}
        self._late = len(late & self._orders)
        return self._late == len(self._orders)

    def _applied_twice(self, stage: Stage) -> bool:
        """Return whether an order was delivered under two keys, because an old result moved it."""
        keys = {
            (line.workflow, line.key)
            for line in stage.world.gateway.lines
            if line.what == ASKED and line.deed == "deliver" and line.workflow in self._orders
        }
        return len(keys) > len(self._orders)

    def broken(self, stage: Stage) -> Iterator[str]:
        """Yield a problem unless every old result of the frozen worker was reported as late."""
        del stage
        if self._late < len(self._orders):
            missing = len(self._orders) - self._late
            yield f"the frozen worker was not refused {times(missing)}: it moved orders that others had taken over"

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        return (
            f"frozen for more than {stage.load.seconds:g} s; its orders were taken over, and its old results "
            f"were refused {times(self._late)}"
        )


class CutNode(Flow):
    """Silence the wire between one worker and the store."""

    name = "cut-node"
    disturbance = "a worker hears nothing"
    promise = "a worker hears nothing from its store any more: others take over its orders, and it comes back by itself"

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._calls = 0

    def lives(self, stage: Stage) -> list[Life]:
        """Give the first worker a wire of its own."""
        self._wire = stage.wire()
        return [
            stage.life(VICTIM, stage.schema(self._wire.url(stage.postgres.url))),
            stage.life(OTHER, stage.schema()),
        ]

    async def disturb(self, stage: Stage) -> None:
        """Keep the wire silent until other workers have finished the orders of this one."""
        assert self._wire is not None
        world, gateway = stage.world, stage.world.gateway

        def of_victim(call: Call, worker: int) -> bool:
            return call.deed == "collect" and worker == VICTIM

        with gateway.holding(of_victim) as collected:
            stage.place(WORKER_ORDERS)
            await stage.prepared("the worker is in the middle of a call", lambda: bool(collected.waiting))
            self._wire.silence()
            left, since = {call.workflow for call, _ in collected.waiting}, len(gateway.lines)
        try:
            await stage.until("others take over what it had begun", lambda: left <= set(world.customers.ended))
            await stage.hold()
        finally:
            self._wire.pass_on()
        by_others = {line.workflow for line in gateway.lines[since:] if line.worker == OTHER}
        if own := sorted(left - by_others):
            raise Broken(f"{own[0]} was finished by the worker that was cut off: its wire was not silent")
        self._calls = len(gateway.lines)

    async def afterwards(self, stage: Stage) -> None:
        """Wait until the worker works again."""
        stage.place(WORKER_ORDERS)
        await stage.until(
            "the worker that was cut off works again", lambda: self._has_called(stage, self._calls, VICTIM)
        )
        await stage.until("every order ends", lambda: stage.world.customers.quiet)

    @staticmethod
    def _has_called(stage: Stage, since: int, worker: int) -> bool:
        return any(line.worker == worker and line.what == ASKED for line in stage.world.gateway.lines[since:])

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        late = len([news for news in stage.world.news if news.what == "late"])
        back = f"it came back by itself, and was refused {times(late)} with old results"
        return f"its orders were finished by the other one; {back}"


# --- Run -------------------------------------------------------------------------------------------------------------

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        KillRedis,
        FreezeHolder,
        RestartPostgres,
        KillPostgres,
        ThrottlePostgres,
        ExhaustConnections,
        GatewayLatency,
        GatewayOutage,
        FreezeWorker,
        CutNode,
        FillDisk,
    )
}


CONNECTIONS_MAX = 40
LOOK_S = 0.1

Watch = Callable[[Scenario, Stage | None, Verdict | None], None]
"""Callback with the running scenario, its stage while it runs, and its verdict when it has ended."""


async def run_all(names: Sequence[str], load: Load, watch: Watch, *, keep: bool = False) -> Report:
    """Run these scenarios in sequence. `keep` leaves the folder for inspection."""
    missing = {
        name: reason
        for name, server in ((POSTGRES, OwnPostgres), (REDIS, OwnRedis))
        if (reason := server.installed()) is not None
    }
    chosen = [SCENARIOS[name]() for name in names]
    runnable = [each for each in chosen if not missing.keys() & set(each.needs)]
    verdicts: list[Verdict] = []
    folder = Path(tempfile.mkdtemp(prefix="interlock-chaos-"))
    try:
        async with contextlib.AsyncExitStack() as resources:
            processes = resources.enter_context(Processes())
            servers = await _start_servers(folder, runnable, resources)
            for scenario in chosen:
                if scenario in runnable:
                    verdict = await _run_watched(scenario, stage_for(scenario, folder, servers, load, processes), watch)
                else:
                    verdict = _not_run(scenario, missing)
                verdicts.append(verdict)
                watch(scenario, None, verdict)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return Report(seed=load.seed, verdicts=tuple(verdicts), folder=str(folder) if keep else None)


async def _start_servers(folder: Path, scenarios: Sequence[Scenario], resources: contextlib.AsyncExitStack) -> Servers:
    """Start the servers that these scenarios need. They are ended in a thread when the block is left.

    They are killed, because their data is deleted with them and an orderly shutdown could delay the report.
    """
    needed = {need for scenario in scenarios for need in scenario.needs}
    postgres = OwnPostgres(folder, connections_max=CONNECTIONS_MAX) if POSTGRES in needed else None
    redis = OwnRedis(folder) if REDIS in needed else None
    for server in (postgres, redis):
        if server is not None:
            resources.push_async_callback(in_thread, server.close)
            resources.push_async_callback(in_thread, server.kill)
            await in_thread(server.start)
    return Servers(postgres, redis)


async def _run_watched(scenario: Scenario, stage: Stage, watch: Watch) -> Verdict:
    looking = asyncio.ensure_future(_report_progress(scenario, stage, watch))
    try:
        return await run(scenario, stage)
    finally:
        looking.cancel()


async def _report_progress(scenario: Scenario, stage: Stage, watch: Watch) -> None:
    while True:
        watch(scenario, stage, None)
        await asyncio.sleep(LOOK_S)


def _not_run(scenario: Scenario, missing: dict[str, str]) -> Verdict:
    reasons = "; ".join(missing[need] for need in scenario.needs if need in missing)
    return Verdict(
        scenario=scenario.name,
        promised=scenario.promise,
        happened=f"not run: {reasons} (pip install 'interlock[chaos]' has all of it)",
        outcome="not run",
    )
