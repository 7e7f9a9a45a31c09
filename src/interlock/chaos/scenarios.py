"""The scenarios of `interlock chaos`, and the run of several of them.

Each function disturbs, checks one promise, and returns what happened. SCENARIOS has them by name, in the order in which
they are run. A run has one folder and the servers that its scenarios need; each block ends on exit what it has started.
Ctrl-C and SIGTERM arrive as a cancellation between two steps, never within one.

Sections: Redis, frozen holder of a lock, PostgreSQL, payment gateway, workers, full disk, run.
"""

import asyncio
import contextlib
import functools
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from interlock.chaos.database_servers import OwnPostgres, OwnRedis
from interlock.chaos.locks import SECONDS, Locks, run_locks
from interlock.chaos.scenario import (
    POSTGRES,
    REDIS,
    WORKERS,
    ChaosReport,
    Scenario,
    ScenarioLoad,
    ScenarioVerdict,
    Servers,
    Stage,
    run,
)
from interlock.chaos.shop import ASKED, DECLINED_EVERY, GATEWAY, PLACES, RESET_S, Broken, in_thread
from interlock.chaos.worker_messages import DONE, FAILED, ServiceCall
from interlock.testing.faults import Processes, SmallDisk

if TYPE_CHECKING:
    from interlock.postgres.pool import Driver

SCENARIOS: dict[str, Scenario] = {}

Play = Callable[[Stage], Awaitable[str]]


def scenario(name: str, promise: str, *, needs: tuple[str, ...] = (POSTGRES,)) -> Callable[[Play], Play]:
    """Register a function as the scenario of this name."""

    def register(play: Play) -> Play:
        SCENARIOS[name] = Scenario(name, promise, needs, play)
        return play

    return register


def times(count: int) -> str:
    """Return `once`, `2 times`."""
    return "once" if count == 1 else f"{count:,} times"


def counted(count: int, noun: str) -> str:
    """Return `1 refund`, `2 refunds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def repetitions(stage: Stage) -> str:
    """Say how often operations had to be repeated."""
    count = stage.world.customers.repeated.total()
    return f"operations were repeated {times(count)}" if count else "no operation had to be repeated"


# --- Redis -----------------------------------------------------------------------------------------------------------
# Redis is optional: while it is gone, leases come from the store, and limits and breakers are local to each process.


@scenario(
    "kill-redis",
    "Redis is killed: workers say so, orders flow on local limits, leases come from the store, and it is used again",
    needs=(POSTGRES, REDIS),
)
async def kill_redis(stage: Stage) -> str:
    """Keep Redis away until every worker has reported it and work has continued without it."""
    world, acknowledged = stage.world, stage.world.customers.acknowledgements
    lives = [stage.life(worker, redis=stage.redis.url) for worker in (1, WORKERS)]

    def reported_by_all(what: str) -> bool:
        return len(world.workers_reporting(what, since_s=killed_s)) == WORKERS

    def leased(since_s: float) -> bool:
        return bool(world.workers_reporting("lease", since_s=since_s))

    async with stage.orders_flow("Redis is killed", lives):
        await stage.prepared("a lease is given by Redis", lambda: leased(0.0))
        killed_s = world.now_s()
        await in_thread(stage.redis.kill)
        await stage.until("every worker says that Redis is gone", lambda: reported_by_all("redis-gone"))
        gone_s, before = world.now_s(), len(acknowledged)
        await stage.until("leases are given by the store while Redis is gone", lambda: leased(gone_s))
        await stage.hold()
        stage.place(5)
        await stage.until("orders flow while Redis is gone", lambda: len(acknowledged) > before)
        operations = len(acknowledged) - before
        leases = sum(news.what == "lease" and news.at_s >= gone_s for news in world.news)
        await in_thread(stage.redis.start)
    await stage.until("every worker says that Redis is back", lambda: reported_by_all("redis-back"))
    back_s = world.now_s()
    await stage.until("a lease is given by Redis again", lambda: leased(back_s))
    stage.problems += _falling_tokens(stage)
    return (
        f"{WORKERS} workers reported that it was gone and that it was back; meanwhile {operations} operations "
        f"were acknowledged and {leases} leases given, tokens growing"
    )


def _falling_tokens(stage: Stage) -> Iterator[str]:
    """Yield each lease whose token is not higher than all before, from Redis or from the store."""
    highest = 0
    for news in sorted(stage.world.news, key=lambda each: each.at_s):
        if news.what == "lease":
            token = int(news.detail)
            if token <= highest:
                yield f"the lease {news.subject!r} was given with token {token} after {highest}: a fence would fail"
            highest = max(highest, token)


# --- Frozen holder of a lock -----------------------------------------------------------------------------------------
# No lock can keep a process from being frozen between the check of its lease and its write. The promise is that the
# write does no harm: the resource refuses a token that is lower than the highest it has accepted.

CONTENDERS, PROCESSES, LEASE_S = 50, 5, 1.0
LOCK_SECONDS_MIN = 2.0


@scenario(
    "freeze-lock-holder",
    f"{CONTENDERS} want one lock, its holder is frozen and wakes up late: what it writes then is refused",
    needs=(REDIS,),
)
async def freeze_lock_holder(stage: Stage) -> str:
    """Let many contenders in processes of their own compete for one lease, and freeze its holder."""
    stage.doing = "disturbed: the holder of a lock is frozen"
    seconds = min(SECONDS, max(LOCK_SECONDS_MIN, stage.load.seconds))
    contend = functools.partial(run_locks, contenders=CONTENDERS, processes=PROCESSES, seconds=seconds, lease_s=LEASE_S)
    locks = await in_thread(functools.partial(contend, stage.redis.url, stage.folder))
    stage.problems += lock_problems(locks)
    fair = locks.fairness
    turns = f"{locks.acquisitions:,} turns in {locks.processes} processes, {fair.least} to {fair.most} per contender"
    late = f"late writes were refused {times(locks.refused_late_writes)}"
    return f"{turns}; {late}; a clock an hour ahead changed nothing"


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


# --- PostgreSQL ------------------------------------------------------------------------------------------------------
# An engine waits for an absent server and retries safe statements; customers retry the operations that it gives up on,
# with the same key. No worker is restarted.

POSTGRES_ORDERS = 5
BYTES_PER_S, LATENCY_S = 60_000, 0.03
RETAKE_S = 0.05


async def _require_no_answers(stage: Stage) -> None:
    """Place orders while the server is away: otherwise the scenario would prove nothing."""
    stage.place(POSTGRES_ORDERS)
    await stage.hold()
    if stage.world.customers.answered_all:
        raise Broken("every operation was answered while PostgreSQL was away, which cannot have stored the orders")


@scenario(
    "restart-postgres", "PostgreSQL shuts down and comes back: no worker is restarted, and nothing acknowledged is lost"
)
async def restart_postgres(stage: Stage) -> str:
    """Stop the server in order, which ends every session, and start it after a while."""
    async with stage.orders_flow("PostgreSQL is shut down"):
        await in_thread(stage.postgres.stop)
        await _require_no_answers(stage)
        await in_thread(stage.postgres.start)
    return f"it was away for {stage.load.seconds:g} s; {repetitions(stage)}"


@scenario("kill-postgres", "every process of PostgreSQL is killed: it recovers from its log, and all workers continue")
async def kill_postgres(stage: Stage) -> str:
    """Kill every process of the server with SIGKILL; the next start recovers."""
    async with stage.orders_flow("PostgreSQL is killed"):
        await in_thread(stage.postgres.kill)
        await _require_no_answers(stage)
        await in_thread(stage.postgres.start)
    return f"killed, and started again after {stage.load.seconds:g} s; {repetitions(stage)}"


@scenario(
    "throttle-postgres",
    f"every answer of PostgreSQL is {LATENCY_S * 1000:g} ms late and comes drop by drop: orders flow, slower",
)
async def throttle_postgres(stage: Stage) -> str:
    """Throttle both directions of each worker's own wire until operations were acknowledged over it."""
    acknowledged, url = stage.world.customers.acknowledgements, stage.postgres.url
    wires = [stage.wire() for _ in range(WORKERS)]
    lives = [stage.life(worker, stage.schema(wire.url(url))) for worker, wire in enumerate(wires, 1)]
    async with stage.orders_flow("the wire is slow", lives):
        for wire in wires:
            wire.throttle(bytes_per_s=BYTES_PER_S, latency_s=LATENCY_S)
        before, passed = len(acknowledged), [wire.bytes_back for wire in wires]
        stage.place(POSTGRES_ORDERS)
        await stage.hold()

        def flows() -> bool:
            used = [wire.bytes_back for wire in wires]
            return len(acknowledged) > before and all(now > then for now, then in zip(used, passed, strict=True))

        await stage.until("orders flow over a slow wire", flows)
        operations = len(acknowledged) - before
        for wire in wires:
            wire.pass_on()
    return f"over the slow wire {counted(operations, 'operation')} came through and back"


CROWD_NAME = "foreign-application"
CROWD_RETRY_S = 0.1
CROWD_RETRIES_MAX = 300
"""How often the administrator retries to connect, half a minute in all."""
END_OTHER_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND application_name <> $2"
)


class Crowd:
    """All connections that a foreign application holds. The driver is imported by name: it is an extra."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._driver = import_module("asyncpg")
        self._connections: list[Driver] = []

    def __len__(self) -> int:
        """Return the number of held connections."""
        return len(self._connections)

    async def take(self) -> None:
        """Take all connections that are left."""
        with contextlib.suppress(self._driver.TooManyConnectionsError):
            while True:
                self._connections.append(await self._connect(self._url))

    async def push_out(self, administrator: str, user: str) -> int:
        """End all other connections of that user, as the administrator; return their number.

        PostgreSQL reserves connections for the administrator. Attempts that are about to be refused hold the reserved
        ones too until they are, so the first try can fail.
        """
        connection = await self._connect(administrator, retries=CROWD_RETRIES_MAX)
        try:
            return len(await connection.fetch(END_OTHER_CONNECTIONS, user, CROWD_NAME))
        finally:
            connection.terminate()

    def leave(self) -> None:
        """Close all of them."""
        for connection in self._connections:
            connection.terminate()
        self._connections.clear()

    async def _connect(self, url: str, *, retries: int = 0) -> "Driver":
        while True:
            try:
                connection: Driver = await self._driver.connect(url, server_settings={"application_name": CROWD_NAME})
            except self._driver.TooManyConnectionsError:
                if not retries:
                    raise
                retries -= 1
                await asyncio.sleep(CROWD_RETRY_S)
            else:
                return connection


@scenario(
    "exhaust-connections", "a foreign application takes every connection: workers wait, and continue when there is room"
)
async def exhaust_connections(stage: Stage) -> str:
    """Take all connections, also those that workers lose meanwhile."""
    world, crowd = stage.world, Crowd(stage.postgres.url)
    async with stage.orders_flow("no connection is left"):
        try:
            await crowd.take()
            if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
                raise Broken("the workers had no connection to lose")
            await _take_every_connection(stage, crowd)
            stage.place(POSTGRES_ORDERS)
            until_s = world.now_s() + stage.load.seconds
            while world.now_s() < until_s:
                await crowd.take()
                await asyncio.sleep(RETAKE_S)
            connections = len(crowd)
        finally:
            crowd.leave()
    return f"{connections} connections were taken for {stage.load.seconds:g} s; {repetitions(stage)}"


async def _take_every_connection(stage: Stage, crowd: Crowd) -> None:
    """End the workers' connections until they have none: they reconnect immediately."""
    until_s = stage.world.now_s() + stage.load.deadline_s
    while stage.world.now_s() < until_s:
        await crowd.take()
        if not await crowd.push_out(stage.postgres.administrator, stage.postgres.USER):
            return
    raise Broken("the workers had a connection all the time: the crowd could not take every one")


# --- Payment gateway -------------------------------------------------------------------------------------------------
# The promises are about slots and breakers: hanging charges do not block refunds, and open breakers protect a
# gateway that is down.

DECLINED_ORDERS = 2
"""Orders that are compensated while every slot for charges is taken."""


@scenario("gateway-latency", "charges hang until every place at the gateway is taken: refunds go through all the same")
async def gateway_latency(stage: Stage) -> str:
    """Let the carrier decline charged orders while all other charges hang."""
    gateway, customers = stage.world.gateway, stage.world.customers

    def declined(call: ServiceCall, _worker: int) -> bool:
        return call.deed == "collect" and customers.orders[call.workflow] % DECLINED_EVERY == 0

    async with stage.orders_flow("charges hang"):
        with gateway.holding(declined) as shipped:
            stage.place(DECLINED_ORDERS * DECLINED_EVERY)
            await stage.prepared("orders are charged", lambda: len(shipped.waiting) >= DECLINED_ORDERS)
            with gateway.holding(lambda call, _worker: call.deed == "charge") as charging:
                stage.place(4 * WORKERS * PLACES)
                # A cancelled charge would free its slot: no customer cancels from here on.
                await stage.prepared(
                    "customers have said what they want", lambda: stage.placed and customers.answered_all
                )
                await stage.prepared(
                    "every place at the gateway is taken", lambda: _fewest_calls(charging.waiting) >= PLACES
                )
                before, since = gateway.count(DONE, "refund"), len(gateway.lines)
                compensated = {call.workflow for call, _ in shipped.waiting}
                gateway.let_go(shipped)
                try:
                    await stage.until(
                        "refunds go through while every place at the gateway is taken",
                        lambda: compensated <= gateway.workflows(DONE, "refund", since=since),
                    )
                except Broken as broken:
                    raise Broken(f"compensation waits for charges that hang: {broken}") from None
                refunds = gateway.count(DONE, "refund") - before
    hung = f"{WORKERS * PLACES} charges hung for {stage.load.seconds:g} s"
    return f"{hung}; meanwhile the gateway did {counted(refunds, 'refund')}"


def _fewest_calls(waiting: list[tuple[ServiceCall, int]]) -> int:
    """Return the number of hanging calls of the worker that has the fewest."""
    counts = Counter(worker for _, worker in waiting)
    return min(counts[worker] for worker in range(1, WORKERS + 1))


@scenario(
    "gateway-outage",
    "the gateway is down: breakers open, orders wait and burn no attempts; then breakers close, refunds drain",
)
async def gateway_outage(stage: Stage) -> str:
    """Keep the gateway down until every breaker has opened, and for the load's seconds after that."""
    world, gateway = stage.world, stage.world.gateway
    async with stage.orders_flow("the gateway is down"):
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
        in_vain = gateway.count(FAILED, "charge") - before
        probes_max = int((world.now_s() - begun_s) / RESET_S) + 1
    await stage.until(
        "every breaker closes again", lambda: all(state == "closed" for state in stage.breakers().values())
    )
    # Besides the failures that open it: calls that were running then, and failures that open it again.
    allowed = WORKERS * (2 * PLACES + probes_max)
    if in_vain > allowed:
        stage.problems.append(
            f"the gateway was asked {in_vain} times while it was down; an open breaker allows {allowed}"
        )
    return (
        f"the breakers of {WORKERS} workers opened and closed; charges were tried in vain {times(in_vain)}, "
        f"the refunds drained ({gateway.count(DONE, 'refund')} in all)"
    )


# --- Workers ---------------------------------------------------------------------------------------------------------
# Other workers take both for dead. Both come back with old results, which the fence refuses.

VICTIM, OTHER = 1, 2
WORKER_ORDERS = 10


@scenario(
    "freeze-worker",
    "a worker stands still past its lease: others take over, and what it says when it wakes up is refused",
)
async def freeze_worker(stage: Stage) -> str:
    """Freeze a worker in a call, let others take over, and wake it with an old result, in a later visit."""
    world, gateway = stage.world, stage.world.gateway
    orders: set[str] = set()

    def collecting(call: ServiceCall, worker: int) -> bool:
        return call.deed == "collect" and worker == VICTIM and world.customers.orders[call.workflow] % 5 != 0

    def delivering(call: ServiceCall, _worker: int) -> bool:
        return call.deed == "deliver" and call.workflow in orders

    def late() -> set[str]:
        return orders & {news.subject for news in world.news if news.what == "late" and news.at_s >= woken_s}

    def applied_twice() -> bool:
        """Return whether an order was delivered under two keys, because an old result moved it."""
        calls = (line for line in gateway.lines if line.what == ASKED and line.deed == "deliver")
        return len({(line.workflow, line.key) for line in calls if line.workflow in orders}) > len(orders)

    async with stage.orders_flow("a worker is frozen"):
        with gateway.holding(delivering) as delivered:
            with gateway.holding(collecting) as collected:
                stage.place(WORKER_ORDERS)
                await stage.prepared("the worker is in the middle of a call", lambda: bool(collected.waiting))
                stage.signal(VICTIM, signal.SIGSTOP)
                orders |= {call.workflow for call, _ in collected.waiting}
            try:
                await stage.until(
                    "another worker takes over what the frozen one has left",
                    lambda: orders <= {call.workflow for call, _ in delivered.waiting},
                )
                await stage.hold()
            finally:
                woken_s = world.now_s()
                stage.signal(VICTIM, signal.SIGCONT)
            await stage.until(
                "the worker that was frozen reports its old result, and is refused",
                lambda: late() == orders or applied_twice(),
            )
            refused = len(late())
    if missing := len(orders) - refused:
        stage.problems.append(
            f"the frozen worker was not refused {times(missing)}: it moved orders that others had taken over"
        )
    return (
        f"frozen for more than {stage.load.seconds:g} s; its orders were taken over, and its old results "
        f"were refused {times(refused)}"
    )


@scenario(
    "cut-node",
    "a worker hears nothing from its store any more: others take over its orders, and it comes back by itself",
)
async def cut_node(stage: Stage) -> str:
    """Silence the wire between one worker and the store until the other has finished its orders."""
    world, gateway, wire = stage.world, stage.world.gateway, stage.wire()
    lives = [stage.life(VICTIM, stage.schema(wire.url(stage.postgres.url))), stage.life(OTHER)]

    def of_victim(call: ServiceCall, worker: int) -> bool:
        return call.deed == "collect" and worker == VICTIM

    async with stage.orders_flow("a worker hears nothing", lives):
        with gateway.holding(of_victim) as collected:
            stage.place(WORKER_ORDERS)
            await stage.prepared("the worker is in the middle of a call", lambda: bool(collected.waiting))
            wire.silence()
            left, since = {call.workflow for call, _ in collected.waiting}, len(gateway.lines)
        try:
            await stage.until("others take over what it had begun", lambda: left <= set(world.customers.ended))
            await stage.hold()
        finally:
            wire.pass_on()
        by_other = {line.workflow for line in gateway.lines[since:] if line.worker == OTHER}
        if own := sorted(left - by_other):
            raise Broken(f"{own[0]} was finished by the worker that was cut off: its wire was not silent")
        calls = len(gateway.lines)
    stage.place(WORKER_ORDERS)
    await stage.until(
        "the worker that was cut off works again",
        lambda: any(line.worker == VICTIM and line.what == ASKED for line in gateway.lines[calls:]),
    )
    await stage.until("every order ends", lambda: world.customers.quiet)
    late = sum(news.what == "late" for news in world.news)
    back = f"it came back by itself, and was refused {times(late)} with old results"
    return f"its orders were finished by the other one; {back}"


# --- Full disk -------------------------------------------------------------------------------------------------------
# There is one worker: a lane has one owner. Writes that do not fit are refused, and acknowledged ones are kept. With
# room on the disk work continues, without a restart or a repair.

LANE_ORDERS = 10


@scenario(
    "fill-disk",
    "the disk of an embedded lane is full: what does not fit is refused, what was acknowledged is there",
    needs=(),
)
async def fill_disk(stage: Stage) -> str:
    """Keep the disk full until an operation was refused, and for the load's seconds after that."""
    disk = SmallDisk(stage.folder / "disk")
    stage.resources.callback(disk.close)
    home = f"lanes://{disk.folder}/home"
    life = msgspec.structs.replace(stage.life(1, home), disk=str(disk.folder), disk_kind=disk.kind)
    async with stage.orders_flow("the disk is full", [life], home):
        codes = stage.world.customers.repeated
        before = codes.total()
        disk.fill()
        try:
            stage.place(LANE_ORDERS)
            await stage.until("an operation fails because the disk is full", lambda: codes.total() > before)
            await stage.hold()
        finally:
            disk.empty()
    reopened = sum(news.what == "reopened" for news in stage.world.news)
    again = f"; its engine stopped and was opened again {times(reopened)}" if reopened else ""
    return f"full for {stage.load.seconds:g} s; {repetitions(stage)}{again} ({disk.description})"


# --- Run -------------------------------------------------------------------------------------------------------------

LOOK_S = 0.1

Watch = Callable[[Scenario, Stage | None, ScenarioVerdict | None], None]
"""Callback with the running scenario, its stage while it runs, and its verdict when it has ended."""


async def run_all(names: Sequence[str], load: ScenarioLoad, watch: Watch, *, keep: bool = False) -> ChaosReport:
    """Run these scenarios in sequence. `keep` leaves the folder for inspection."""
    missing = {
        name: reason
        for name, server in ((POSTGRES, OwnPostgres), (REDIS, OwnRedis))
        if (reason := server.installed()) is not None
    }
    chosen = [SCENARIOS[name] for name in names]
    runnable = [each for each in chosen if not missing.keys() & set(each.needs)]
    verdicts: list[ScenarioVerdict] = []
    folder = Path(tempfile.mkdtemp(prefix="interlock-chaos-"))
    try:
        async with contextlib.AsyncExitStack() as resources:
            processes = resources.enter_context(Processes())
            servers = await _start_servers(folder, {need for each in runnable for need in each.needs}, resources)
            for each in chosen:
                if each in runnable:
                    own = folder / each.name
                    own.mkdir()
                    verdict = await _run_watched(each, Stage(each.name, own, servers, load, processes), watch)
                else:
                    verdict = _not_run(each, missing)
                verdicts.append(verdict)
                watch(each, None, verdict)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return ChaosReport(seed=load.seed, verdicts=tuple(verdicts), folder=str(folder) if keep else None)


async def _start_servers(folder: Path, needs: set[str], resources: contextlib.AsyncExitStack) -> Servers:
    """Start these servers. They are ended in a thread when the block is left.

    They are killed, because their data is deleted with them and an orderly shutdown could delay the report.
    """
    servers = Servers(OwnPostgres(folder) if POSTGRES in needs else None, OwnRedis(folder) if REDIS in needs else None)
    for server in servers:
        if server is not None:
            resources.push_async_callback(in_thread, server.close)
            resources.push_async_callback(in_thread, server.kill)
            await in_thread(server.start)
    return servers


async def _run_watched(chosen: Scenario, stage: Stage, watch: Watch) -> ScenarioVerdict:
    async def report_progress() -> None:
        while True:
            watch(chosen, stage, None)
            await asyncio.sleep(LOOK_S)

    progress = asyncio.ensure_future(report_progress())
    try:
        return await run(chosen, stage)
    finally:
        progress.cancel()


def _not_run(chosen: Scenario, missing: dict[str, str]) -> ScenarioVerdict:
    reasons = "; ".join(missing[need] for need in chosen.needs if need in missing)
    return ScenarioVerdict(
        scenario=chosen.name,
        promised=chosen.promise,
        happened=f"not run: {reasons} (pip install 'interlock[chaos]' has all of it)",
        outcome="not run",
    )
