"""One scenario of `interlock chaos`: its stage, its run to a verdict, and the report.

A scenario states its promise in words, disturbs, and checks the outcome. Each broken promise is a sentence; without
any, the promise was kept. The stage has the servers, workers, external services and orders of one scenario. Orders are
placed before, during and after the disturbance. Every wait is for a condition and bounded: a recovery that takes longer
than `deadline_s` is a broken promise.
"""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from interlock.chaos.database_servers import OwnPostgres, OwnRedis
from interlock.chaos.shop import ASKED, Broken, ChaosWorld, audit, in_thread
from interlock.chaos.worker_messages import WorkerOptions
from interlock.errors import InterlockError
from interlock.testing.faults import Process, Processes, stop_listening

# --- Network ---------------------------------------------------------------------------------------------------------
# A relay on the loopback, in a thread of its own, that can pass on, throttle or silence connections at any time. When a
# call returns, the new behaviour is in force. Data sent into silence arrives late, after `pass_on`, as TCP would send
# it again. A connection made into silence is accepted by the system and receives nothing.

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES_MAX: Final = 65_536
PIECES_PER_S: Final = 20
"""Number of pieces per second on a throttled wire, so that data flows steadily."""

LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection and drops unsent data."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Way:
    """One behaviour, and the event that ends it."""

    silent: bool = False
    bytes_per_s: float | None = None
    latency_s: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        """Sleep, but not longer than this behaviour lasts."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), seconds)


class TcpProxy:
    """One wire. It passes on from the start."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._listening: asyncio.Server | None = None
        self._way = _Way()
        self._ends: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self.bytes_back = 0
        """Bytes passed on from the server to its clients."""
        self._thread = threading.Thread(target=self._run, name="interlock-chaos-wire", daemon=True)
        self._thread.start()
        self.port = self._call(self._listen())

    @property
    def address(self) -> tuple[str, int]:
        """The address at which clients connect."""
        return LOOPBACK, self.port

    def url(self, of_target: str) -> str:
        """Return the target's URL with this wire's address."""
        parts = urlsplit(of_target)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}{LOOPBACK}:{self.port}"))

    def pass_on(self) -> None:
        """Pass on everything immediately, also data that was held back."""
        self._change(_Way())

    def throttle(self, *, bytes_per_s: float | None = None, latency_s: float = 0.0) -> None:
        """Limit each direction of each connection to `bytes_per_s`, and delay each piece by `latency_s`."""
        assert bytes_per_s is None or bytes_per_s > 0, "a wire that passes on nothing is silent"
        self._change(_Way(bytes_per_s=bytes_per_s, latency_s=latency_s))

    def silence(self) -> None:
        """Pass on nothing: no data, no end, no reset. The connections stay open."""
        self._change(_Way(silent=True))

    def close(self) -> None:
        """Reset every connection, and stop listening. A second call does nothing."""
        if not self._loop.is_closed():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, do: Coroutine[None, None, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(do, self._loop).result()

    async def _listen(self) -> int:
        self._listening = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def _change(self, way: _Way) -> None:
        async def change() -> None:
            before, self._way = self._way, way
            before.changed.set()

        self._call(change())

    async def _end(self) -> None:
        assert self._listening is not None
        await stop_listening(self._listening)
        relays = list(self._ends)
        for relay in relays:
            for end in self._ends[relay]:
                _reset(end)
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
        await self._listening.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = self._loop.create_task(self._relay(reader, writer))
        self._ends[relay] = [writer]
        relay.add_done_callback(self._ends.__delitem__)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.current_task()
        assert relay is not None
        await self._wait_for_flow()
        try:
            from_target, to_target = await self._connect_target()
        except OSError:
            _reset(writer)
            return
        self._ends[relay].append(to_target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to_target))
                group.create_task(self._pump(from_target, writer, back=True))
        except* OSError:
            _reset(writer)
            _reset(to_target)
        finally:
            writer.close()
            to_target.close()

    async def _connect_target(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the target. The target may see the connection earlier than we do, and is reset all the same."""
        link = socket.socket()
        link.settimeout(0)
        try:
            await self._loop.sock_connect(link, self._target)
            return await asyncio.open_connection(sock=link)
        except BaseException:
            if link.fileno() >= 0:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            link.close()
            raise

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        """Copy one direction to its end, and pass the end on. A reset is passed on when the wire is not silent."""
        try:
            while data := await reader.read(CHUNK_BYTES_MAX):
                await self._deliver(data, writer, back=back)
        except OSError:
            await self._wait_for_flow()
            raise
        await self._wait_for_flow()
        writer.write_eof()

    async def _deliver(self, data: bytes, writer: asyncio.StreamWriter, *, back: bool) -> None:
        late = False
        while data:
            way = await self._wait_for_flow()
            if way.latency_s and not late:
                await way.pause(way.latency_s)
                late = True
                continue  # It may have fallen silent meanwhile.
            size = len(data) if way.bytes_per_s is None else max(1, int(way.bytes_per_s / PIECES_PER_S))
            piece, data = data[:size], data[size:]
            self.bytes_back += len(piece) if back else 0
            writer.write(piece)
            await writer.drain()
            if way.bytes_per_s is not None:
                await way.pause(len(piece) / way.bytes_per_s)

    async def _wait_for_flow(self) -> _Way:
        """Wait for the end of the silence; return the behaviour in force."""
        while self._way.silent:
            await self._way.changed.wait()
        return self._way


def _reset(end: asyncio.StreamWriter) -> None:
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    end.transport.abort()


# --- Stage -----------------------------------------------------------------------------------------------------------
# Workers are forked by a process that has imported everything already (`interlock.testing.faults`), so that a
# scenario starts fast. A worker exits when the other end of its socket is closed. Its standard error goes to a file,
# which is shown when a worker ends unexpectedly.

COMPLAINT_LINES_MAX = 12
WORKERS = 2
PARTS = 3
PREPARED_S = 60.0
"""Bound in seconds on preparations, which are not part of the promise: a busy machine is slow."""

CONNECTIONS_MAX = 6
STATEMENT_TIMEOUT_S = 2
CONNECT_TIMEOUT_S = 2
SAMPLES_MAX = 3

ResultT = TypeVar("ResultT")


class ScenarioLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Number of orders, durations, and seed of a scenario."""

    orders: int = 60
    seconds: float = 2.0
    """Minimum duration of a disturbance."""
    deadline_s: float = 30.0
    """Bound on each recovery."""
    seed: int = 1


class Servers(NamedTuple):
    """The servers of the whole run; None for one that is not needed."""

    postgres: OwnPostgres | None
    redis: OwnRedis | None


class Stage:
    """Everything that one scenario uses."""

    def __init__(self, name: str, folder: Path, servers: Servers, load: ScenarioLoad, processes: Processes) -> None:
        self.name = name
        self.folder = folder
        self.load = load
        self.world = ChaosWorld(load.seed)
        self.doing = "starting"
        """The current activity, for people."""
        self.placed = False
        """Whether all orders of the disturbance were placed."""
        self.home = ""
        """The address of the store that the audit reads; empty without orders."""
        self.problems: list[str] = []
        """Broken promises of this disturbance, besides those that the audit finds."""
        self.recovery_s: float | None = None
        self.resources = contextlib.ExitStack()
        """Callbacks that release resources at the end."""
        self._servers = servers
        self._processes = processes
        self._workers: dict[int, Process] = {}

    # --- servers and workers -----------------------------------------------------------------------------------------

    @property
    def postgres(self) -> OwnPostgres:
        """The PostgreSQL of the run."""
        assert self._servers.postgres is not None
        return self._servers.postgres

    @property
    def redis(self) -> OwnRedis:
        """The Redis of the run."""
        assert self._servers.redis is not None
        return self._servers.redis

    @property
    def audit_url(self) -> str:
        """The address of the scenario's own schema for the audit, without timeouts."""
        schema = f"chaos_{self.name.replace('-', '_')}"
        return f"{self.postgres.url}?schema={schema}&connections_max={CONNECTIONS_MAX}"

    def schema(self, url: str | None = None) -> str:
        """Return the schema's address for a worker, through any wire, with short timeouts so that it retries soon."""
        return (
            f"{url or self.postgres.url}?{self.audit_url.partition('?')[2]}"
            f"&statement_timeout_s={STATEMENT_TIMEOUT_S}&connect_timeout_s={CONNECT_TIMEOUT_S}"
        )

    def wire(self) -> TcpProxy:
        """Make a new wire to PostgreSQL."""
        wire = TcpProxy(self.postgres.address)
        self.resources.callback(wire.close)
        return wire

    def life(self, worker: int, home: str | None = None, *, redis: str = "") -> WorkerOptions:
        """Return the start parameters of a worker, by default on the schema."""
        return WorkerOptions(worker=worker, home=home or self.schema(), redis=redis)

    async def start(self, lives: list[WorkerOptions]) -> None:
        """Start the workers, and wait until their engines are open."""
        for life in lives:
            self._workers[life.worker] = await self.world.start(self._processes, life, self._log_path(life.worker))
        await self.prepared("the workers open their engines", lambda: len(self.world.ready) == len(lives))

    async def stop(self) -> None:
        """Ask the workers to close, and wait until they have."""
        workers = set(self.world.ready)
        self.world.stop()
        await self.until("the workers close", lambda: workers <= self.world.closed)

    def signal(self, worker: int, number: signal.Signals) -> None:
        """Send a signal to a worker: SIGSTOP freezes it at any point of its work, SIGCONT wakes it."""
        os.kill(self._workers[worker].number, number)

    def complaints(self, worker: int) -> str:
        """Return the last lines of a worker's standard error."""
        path = self._log_path(worker)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-COMPLAINT_LINES_MAX:])

    async def close(self) -> None:
        """Kill the workers, and end all connections. Workers that received Stop have closed before, or never will."""
        for process in self._workers.values():
            process.close()
        await self.world.close()
        await in_thread(self.resources.close)

    def _log_path(self, worker: int) -> Path:
        return self.folder / f"worker-{worker}.log"

    # --- orders ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def orders_flow(
        self, disturbance: str, lives: list[WorkerOptions] | None = None, home: str | None = None
    ) -> AsyncGenerator[None, None]:
        """Let orders flow before, during and after the block, which disturbs and undoes the disturbance.

        Every order must end without help after the block. There are two workers on PostgreSQL unless `lives` has
        others.
        """
        customers, share = self.world.customers, self.load.orders // PARTS
        self.home = home or self.audit_url
        await self.start(lives or [self.life(worker) for worker in range(1, WORKERS + 1)])
        self.doing = "orders flow"
        before = self.place(share)
        await self.prepared("orders flow", lambda: len(customers.ended) >= len(before) // 2)
        self.doing = f"disturbed: {disturbance}"
        placing = asyncio.ensure_future(self._place_over(share, self.load.seconds))
        try:
            yield
            over_s = self.world.now_s()
            self.doing = "over: coming back"
            await placing
        finally:
            placing.cancel()
        self.place(self.load.orders - 2 * share)
        await self.until("every order ends", lambda: customers.quiet)
        self.recovery_s = self.world.now_s() - over_s

    def place(self, count: int) -> list[str]:
        """Place `count` orders; return their ids."""
        placed = [self.world.customers.place() for _ in range(count)]
        self.world.changed()
        return placed

    async def _place_over(self, count: int, seconds: float) -> None:
        """Place `count` orders, spread over `seconds`."""
        for _ in range(count):
            self.place(1)
            await asyncio.sleep(seconds / count)
        self.placed = True
        self.world.changed()

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for a promised condition. Raises Broken after `deadline_s`."""
        await self._within(self.load.deadline_s, what, happened)

    async def prepared(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for a precondition of the disturbance, which is not promised. Raises Broken after a longer bound."""
        await self._within(max(PREPARED_S, self.load.deadline_s), what, happened)

    async def _within(self, bound_s: float, what: str, happened: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(bound_s):
                await self.world.until(happened)
        except TimeoutError:
            stuck = "; ".join([f"it did not happen within {bound_s:g} s that {what}", *self._obstacles()])
            raise Broken(stuck) from None

    async def hold(self) -> None:
        """Wait for the minimum duration of a disturbance."""
        await asyncio.sleep(self.load.seconds)

    def breakers(self) -> dict[tuple[int, str], str]:
        """Return the last reported state of each breaker, by worker and dependency."""
        prefix = "breaker-"
        return {
            (news.worker, news.subject): news.what.removeprefix(prefix)
            for news in self.world.news
            if news.what.startswith(prefix)
        }

    def _obstacles(self) -> Iterator[str]:
        """Yield the known obstacles: breakers that are not closed, and orders that have not ended."""
        for (worker, dependency), state in sorted(self.breakers().items()):
            if state != "closed":
                yield f"the breaker of {dependency!r} is still {state.replace('_', '-')} at worker {worker}"
        still = self.world.customers.open
        if still:
            yield f"{len(still)} orders have not ended ({', '.join(still[:SAMPLES_MAX])})"
        if self.world.customers.repeated:
            codes = ", ".join(f"{count} {code}" for code, count in self.world.customers.repeated.items())
            yield f"operations were repeated: {codes}"


# --- Scenario and its verdict ----------------------------------------------------------------------------------------

POSTGRES: Final = "PostgreSQL"
REDIS: Final = "Redis"

Outcome = Literal["kept", "broken", "not run"]


class Scenario(NamedTuple):
    """One disturbance, with its promise."""

    name: str
    promise: str
    needs: tuple[str, ...]
    play: Callable[[Stage], Awaitable[str]]
    """Disturb, check, and return a clause that says what happened. Raises Broken when it is pointless to continue."""


class ScenarioVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict on one scenario."""

    scenario: str
    promised: str
    happened: str
    outcome: Outcome
    problems: tuple[str, ...] = ()
    """Each broken promise, as a sentence."""
    recovery_s: float | None = None
    """From the end of the disturbance until every order had ended."""
    seconds: float = 0.0
    """The whole scenario, workers and audit included."""
    orders: int = 0
    acknowledged: int = 0
    calls: int = 0
    """Number of calls to external services."""


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of a whole run."""

    seed: int
    verdicts: tuple[ScenarioVerdict, ...]
    folder: str | None = None
    """The folder with the remaining files, if it was kept."""

    def named(self, outcome: Outcome) -> list[str]:
        """Return the scenarios with this outcome."""
        return [verdict.scenario for verdict in self.verdicts if verdict.outcome == outcome]


async def run(scenario: Scenario, stage: Stage) -> ScenarioVerdict:
    """Run a scenario to its verdict. The stage is always closed."""
    world, begun_s, happened = stage.world, stage.world.now_s(), ""
    try:
        happened = await scenario.play(stage)
        problems = await _audit(stage)
    except Broken as broken:
        problems = [str(broken)]
        if world.fallen is not None:
            problems.append(f"its last words: {stage.complaints(world.fallen)}")
    except Exception as error:  # noqa: BLE001 -- any error: the verdicts of other scenarios are still reported.
        # For example a server that does not come back, an unreadable store, or a worker that does not start.
        message = str(error) if isinstance(error, InterlockError) else repr(error)
        problems = [f"it could not be played to its end: {' '.join(message.split())}"]
    finally:
        await stage.close()
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ScenarioVerdict(
        scenario=scenario.name,
        promised=scenario.promise,
        happened=f"{problems[0]}{more}" if problems else happened,
        outcome="broken" if problems else "kept",
        problems=tuple(problems),
        recovery_s=stage.recovery_s,
        seconds=world.now_s() - begun_s,
        orders=len(world.customers.orders),
        acknowledged=len(world.customers.acknowledgements),
        calls=sum(line.what == ASKED for line in world.gateway.lines),
    )


async def _audit(stage: Stage) -> list[str]:
    """Close the workers, and return all broken promises, those of the store first."""
    if not stage.home:
        return stage.problems
    stage.doing = "audit"
    await stage.stop()
    return await audit(stage.home, stage.world) + stage.problems
