"""Connections to one PostgreSQL, and their pool: opens on demand up to a cap, and reopens lost connections.

A connection carries no state from one user to the next, so nothing is reset between them. When one is found dead the
idle ones are closed too: they led to the same server, and each would cost its user a failure. The reserve for
compensation is a second, smaller cap: the last connections go only to callers that ask for the reserve (C16), so that
undos continue when ordinary work has taken all others.

When the server takes no more connections, a node that has some does not fail: it waits for one of its own. A node
without a connection tries again for `connect_timeout_s`. Connections are closed after a minute of idleness.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# asyncpg has no types of its own; mypy --strict looks at what is ours.

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from interlock.clock import Chance, SystemChance
from interlock.errors import OutcomeUnknown
from interlock.postgres.translate_errors import (
    Away,
    LostConnection,
    NotNow,
    Overdue,
    asyncpg,
    can_fail_to_connect,
    closed,
    is_stale,
    not_reached,
    translate_errors,
    waited_too_long,
)
from interlock.urls import PostgresAddress

# --- Connection ------------------------------------------------------------------------------------------------------
# Each statement is prepared once; after that it costs one round trip. Through PgBouncer in transaction mode two round
# trips may reach two servers, so nothing is prepared: each statement runs inside a transaction of its own, which keeps
# its round trips together. A prepared statement is named after its text, so a client that uses a pooler without the
# option gets an error, and never the rows of another statement.
#
# Settings make the planner plan once and use indexes: at the start of a connection, or of each transaction where a
# pooler refuses that. A group is an array of unknown length, and a plan made while the tables were empty would read all
# of them for each row of a group, until the statistics catch up.

PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
PLANNING_HERE = "".join(f"; SET LOCAL {name} = {value}" for name, value in PLANNING.items())
"""For one transaction. It goes with BEGIN and costs no round trip of its own."""

NAME = "interlock"


class PostgresRow(Protocol):
    """A row of an answer."""

    def __iter__(self) -> Iterator[Any]:
        """The values."""
        ...

    def __getitem__(self, place: int, /) -> Any:  # noqa: ANN401 -- as PostgreSQL has it; the reader gives it its type.
        """The value at a place."""
        ...


class Prepared(Protocol):
    """A statement that the server knows."""

    async def fetch(self, *values: object, timeout: float) -> list[PostgresRow]:  # noqa: ASYNC109 -- the driver's.
        """Run it."""
        ...


class Driver(Protocol):
    """As much of the driver's connection as is used here."""

    async def prepare(self, sql: str, /, *, name: str, timeout: float | None = None) -> Prepared:  # noqa: ASYNC109
        """Make a statement known to the server."""
        ...

    async def fetch(self, sql: str, /, *values: object, timeout: float | None = None) -> list[PostgresRow]:  # noqa: ASYNC109 -- the driver's.
        """Run a statement."""
        ...

    async def execute(self, sql: str, /, *, timeout: float | None = None) -> str:  # noqa: ASYNC109 -- the driver's.
        """Run a script."""
        ...

    def is_closed(self) -> bool:
        """Return whether the connection is closed."""
        ...

    def terminate(self) -> None:
        """Close the connection immediately."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the driver's.
        """End it politely; a statement that is under way is cancelled on the server."""
        ...


class Link:
    """A connection, used by one at a time."""

    def __init__(self, driver: Driver, address: PostgresAddress) -> None:
        self.driver = driver
        self.idle_since_s = 0.0
        """By the event loop's clock; kept by the pool."""
        self.spent = False
        """True after a user left it in the middle of a statement: the pool has to close it."""
        self._pooled = address.pgbouncer
        self._timeout_s = address.statement_timeout_s
        self._prepared: dict[str, Prepared] = {}
        self._generation = 0

    @property
    def usable(self) -> bool:
        """Return whether it is connected, as far as the driver knows, and no statement is under way on it."""
        return not self.spent and not self.driver.is_closed()

    async def read(self, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        """Run a statement that changes nothing."""
        with translate_errors(writing=False):
            if self._pooled:
                return await self._run_in_transaction("BEGIN READ ONLY", sql, values, end="ROLLBACK")
            try:
                return await (await self._statement(sql)).fetch(*values, timeout=self._timeout_s)
            except Exception as failure:
                if not is_stale(failure):
                    raise
                self._forget()
            return await (await self._statement(sql)).fetch(*values, timeout=self._timeout_s)

    async def write(self, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        """Run a statement that is a whole transaction.

        Raises OutcomeUnknown when it may have been committed, and LostConnection when it cannot have been: another
        connection may run it then.
        """
        if self._pooled:
            with translate_errors(writing=False):
                rows = await self._run_in_transaction("BEGIN", sql, values)
            with translate_errors(writing=True):
                await self.driver.execute("COMMIT", timeout=self._timeout_s)
            return rows
        try:
            return await self._write(sql, values)
        except Exception as failure:
            if failure.__cause__ is None or not is_stale(failure.__cause__):
                raise
            self._forget()
        return await self._write(sql, values)

    async def script(self, sql: str) -> None:
        """Run several statements as one transaction."""
        with translate_errors(writing=True):
            await self.driver.execute(sql)

    async def end(self, timeout_s: float) -> None:
        """End it, and what may be under way on it: the server alone would find out when that has run to its end."""
        self.spent = True
        try:
            with contextlib.suppress(Exception):  # Whatever it says, it ends here.
                await self.driver.close(timeout=timeout_s)
        finally:
            if not self.driver.is_closed():
                self.driver.terminate()

    async def _write(self, sql: str, values: Sequence[object]) -> list[PostgresRow]:
        with translate_errors(writing=False):
            # To prepare a statement is not to run it: what breaks here has changed nothing.
            prepared = await self._statement(sql)
        if self.driver.is_closed():
            # The driver would say the same as for a connection that breaks later. From here to where it sends nothing
            # else runs, so a connection that is open now gets the statement.
            raise LostConnection(
                "the connection to PostgreSQL was lost before a commit was sent.", why="The server ended it."
            )
        with translate_errors(writing=True):
            return await prepared.fetch(*values, timeout=self._timeout_s)

    async def _run_in_transaction(
        self, begin: str, sql: str, values: Sequence[object], *, end: str = ""
    ) -> list[PostgresRow]:
        """Run in a transaction; nothing happens before COMMIT. Without an `end` the transaction stays open."""
        try:
            await self.driver.execute(begin + PLANNING_HERE, timeout=self._timeout_s)
            rows = await self.driver.fetch(sql, *values, timeout=self._timeout_s)
            if end:
                await self.driver.execute(end, timeout=self._timeout_s)
        except BaseException as failure:
            # After a cancellation or a timeout, do not wait for a ROLLBACK: closing the connection rolls back.
            if isinstance(failure, TimeoutError) or not isinstance(failure, Exception):
                self.spent = True
            elif not self.driver.is_closed():
                await self.driver.execute("ROLLBACK", timeout=self._timeout_s)
            raise
        return rows

    async def _statement(self, sql: str) -> Prepared:
        prepared = self._prepared.get(sql)
        if prepared is None:
            name = f"interlock_{hashlib.sha256(sql.encode()).hexdigest()[:32]}_{self._generation}"
            prepared = await self.driver.prepare(sql, name=name, timeout=self._timeout_s)
            self._prepared[sql] = prepared
        return prepared

    def _forget(self) -> None:
        # The driver takes the old ones away when it likes; until then their names are taken.
        self._prepared.clear()
        self._generation += 1


async def connected(address: PostgresAddress) -> Link:
    """Open a connection. Raises UnavailableError when the server cannot be reached, NotNow when it may be soon."""
    return Link(await driver_of(address, PLANNING), address)


async def driver_of(address: PostgresAddress, settings: Mapping[str, str]) -> Driver:
    """The driver's connection with these settings of the server; a pooler takes none of them."""
    chosen = {"application_name": NAME} | ({} if address.pgbouncer else dict(settings))
    if "application_name=" in address.url:
        del chosen["application_name"]
    try:
        driver: object = await asyncpg.connect(
            address.url,
            timeout=address.connect_timeout_s,  # pyright: ignore[reportArgumentType] -- guessed from its default.
            statement_cache_size=0,
            server_settings=chosen,
        )
    except Exception as failure:
        if can_fail_to_connect(failure):
            raise not_reached(failure, address.redacted_url) from failure
        raise
    return cast("Driver", driver)


# --- Retries of refused connections ----------------------------------------------------------------------------------
# Hundreds of callers may wait for a server that is full or restarts. If each of them tried on its own, the server
# would be busy with refusals. So one of them tries at a time, and the pause between two tries grows, with jitter, up
# to a second. The first connection that is opened ends the schedule for all callers.

FIRST_PAUSE_S = 0.05
PAUSE_S_MAX = 1.0


class ConnectSchedule:
    """The retry state of one node: whether the server takes connections."""

    def __init__(self, chance: Chance) -> None:
        self.refusal: NotNow | None = None
        """Why the last connection was not opened; None when it was."""
        self._chance = chance
        self._reached = False
        self._trying = False
        self._tries = 0
        self._next_s = 0.0

    def may_try(self, now_s: float) -> bool:
        """Return whether it is time to open a connection."""
        return self.refusal is None or (not self._trying and now_s >= self._next_s)

    def pause_s(self, now_s: float) -> float:
        """Return the seconds to wait before asking again, unless the caller is woken earlier."""
        return PAUSE_S_MAX if self._trying else max(self._next_s - now_s, 0.0)

    @contextlib.contextmanager
    def trying(self) -> Generator[None]:
        """Surround one attempt. The first caller after a refusal keeps the others from trying too."""
        first = self.refusal is not None
        self._trying = self._trying or first
        try:
            yield
        finally:
            if first:
                self._trying = False

    def opened(self) -> None:
        """The server has taken a connection."""
        self._reached = True
        self.refusal = None
        self._tries = 0

    def refused(self, refusal: NotNow, now_s: float) -> None:
        """Record a refused connection. Raises the refusal when no server has ever answered at the address."""
        if isinstance(refusal, Away) and not self._reached:
            raise refusal
        longest_s = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2.0 ** min(self._tries, 16))
        self.refusal = refusal
        self._tries += 1
        self._next_s = now_s + longest_s * (1 + self._chance.fraction()) / 2


# --- Pool ------------------------------------------------------------------------------------------------------------

RESERVED_SHARE = 0.1
"""Of the connections; none when there are fewer than ten."""

ATTEMPTS_MAX = 3
"""What cannot have changed anything is repeated on another connection when its own was lost."""

IDLE_S_MAX = 60.0
"""A connection that is idle for this long is closed."""

CLOSE_ENOUGH_S = 0.001
CLOSE_TIMEOUT_S = 5.0


class Pool:
    """Connections to one address."""

    def __init__(
        self,
        address: PostgresAddress,
        connect: Callable[[PostgresAddress], Awaitable[Link]] = connected,
        *,
        chance: Chance | None = None,
    ) -> None:
        self.address = address
        self.open = 0
        """Connections there are, idle or in use or being opened."""
        self._opening = 0
        self._connect = connect
        self._schedule = ConnectSchedule(chance or SystemChance())
        self._idle: list[Link] = []
        """The longest idle first; the last one is taken."""
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()
        self._promised = 0
        """Waiters that were woken and have not run since. A caller that comes now must not take what they were woken
        for: one that loops without a pause would be faster every time, and a waiter would starve."""
        self._closed = False
        self._reserved = int(address.connections_max * RESERVED_SHARE)
        self._retiring: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def read(self, sql: str, *values: object) -> list[PostgresRow]:
        """Run a statement that changes nothing; repeated when the connection was lost."""
        return await self._retry(lambda link: link.read(sql, values), reserve=False)

    async def write(self, sql: str, values: Sequence[object], *, reserve: bool = False) -> list[PostgresRow]:
        """Run a statement that is a whole transaction; repeated only when it cannot have happened.

        Raises OutcomeUnknown when it may have happened, and UnavailableError when it has not.
        """
        return await self._retry(lambda link: link.write(sql, values), reserve=reserve)

    @contextlib.asynccontextmanager
    async def link(self, *, reserve: bool = False) -> AsyncGenerator[Link]:
        """Lend a connection for the block."""
        link = await self._take(reserve=reserve)
        try:
            yield link
        except BaseException as error:
            if isinstance(error, (LostConnection, OutcomeUnknown)) or not link.usable:
                self._lost(link)
            elif isinstance(error, (asyncio.CancelledError, Overdue)):
                # A statement may still run on it, so no other caller may get it. The other connections are sound.
                link.spent = True
            raise
        finally:
            self._give_back(link)

    async def close(self) -> None:
        """Close the idle connections, and each of the others when it is released."""
        self._closed = True
        self._wake_all()
        if self._retiring is not None:
            self._retiring.cancel()
        idle, self._idle = self._idle, []
        self._end(idle)
        while self._ending:
            await asyncio.wait(self._ending)

    async def _retry(self, call: Callable[[Link], Awaitable[list[PostgresRow]]], *, reserve: bool) -> list[PostgresRow]:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            async with self.link(reserve=reserve) as link:
                try:
                    return await call(link)
                except LostConnection:
                    self._lost(link)
                    if attempt == ATTEMPTS_MAX:
                        raise
        raise AssertionError("the last attempt has returned or raised")

    async def _take(self, *, reserve: bool) -> Link:
        loop = asyncio.get_running_loop()
        until_s: float | None = None
        while True:
            if self._closed:
                raise closed()
            while len(self._idle) > self._promised and self._may_take(reserve=reserve):
                link = self._idle.pop()
                if link.usable:
                    return link
                self.open -= 1
            if self.open < self._most(reserve=reserve) and self._schedule.may_try(loop.time()):
                opened = await self._open()
                if opened is not None:
                    return opened
            until_s = self._patience(until_s)
            pause_s = None if self._schedule.refusal is None else self._schedule.pause_s(loop.time())
            await self._wait(pause_s, reserve=reserve)

    def _patience(self, until_s: float | None) -> float | None:
        """Return when a refused caller stops waiting (loop time); None: when a connection is released."""
        now_s = asyncio.get_running_loop().time()
        refusal = self._schedule.refusal
        if refusal is None or self.open > self._opening:
            return None
        if until_s is None:
            return now_s + self.address.connect_timeout_s
        if now_s >= until_s:
            raise waited_too_long(refusal, self.address.connect_timeout_s) from refusal
        return until_s

    def _may_take(self, *, reserve: bool) -> bool:
        return self.open - len(self._idle) < self._most(reserve=reserve)

    def _most(self, *, reserve: bool) -> int:
        return self.address.connections_max - (0 if reserve else self._reserved)

    async def _open(self) -> Link | None:
        """Open a connection. Return None when the server takes none now."""
        before, link = self._schedule.refusal, None
        self.open += 1
        self._opening += 1
        try:
            with self._schedule.trying():
                link = await self._connect(self.address)
            self._schedule.opened()
        except NotNow as refusal:
            self._schedule.refused(refusal, asyncio.get_running_loop().time())
        finally:
            self._opening -= 1
            if link is None:
                self.open -= 1
                self._wake()
        if (before is None) is not (self._schedule.refusal is None):
            # Waiting callers must recompute their timeout: it depends on whether the server refuses connections.
            self._wake_all()
        return link

    async def _wait(self, pause_s: float | None, *, reserve: bool) -> None:
        """Wait until a connection was released, at most for `pause_s`."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((reserve, waiting))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                try:
                    await waiting
                    self._promised -= 1
                except asyncio.CancelledError:
                    if waiting.done() and not waiting.cancelled():
                        self._promised -= 1
                        self._wake()  # It was this one's turn, and it does not take it.
                    else:
                        self._waiting = deque(each for each in self._waiting if each[1] is not waiting)
                    raise

    def _give_back(self, link: Link) -> None:
        if self._closed:
            link.driver.terminate()
        if link.driver.is_closed():
            self.open -= 1
        elif link.spent:
            self._end([link])
        else:
            loop = asyncio.get_running_loop()
            link.idle_since_s = loop.time()
            self._idle.append(link)
            if self._retiring is None:
                self._retiring = loop.call_later(IDLE_S_MAX, self._retire)
        self._wake()

    def _retire(self) -> None:
        """Close what was idle for too long, and look again when the next one may have been."""
        loop = asyncio.get_running_loop()
        over = [link for link in self._idle if loop.time() - link.idle_since_s >= IDLE_S_MAX - CLOSE_ENOUGH_S]
        del self._idle[: len(over)]
        self._end(over)
        self._retiring = None
        if self._idle:
            self._retiring = loop.call_at(self._idle[0].idle_since_s + IDLE_S_MAX, self._retire)

    def _end(self, links: list[Link]) -> None:
        for link in links:
            task = asyncio.ensure_future(link.end(CLOSE_TIMEOUT_S))
            self._ending.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self.open -= 1
        self._wake()

    def _lost(self, link: Link) -> None:
        link.spent = True  # What may still be under way on it is ended too, so that it does not happen much later.
        idle, self._idle = self._idle, []
        self.open -= len(idle)
        for each in idle:
            each.driver.terminate()

    def _wake_all(self) -> None:
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
                self._promised += 1
        self._waiting.clear()

    def _wake(self) -> None:
        """Wake the first waiter that may have a connection; waiters for the reserve come first."""
        for wanted in (True, False):
            for place, (reserve, waiting) in enumerate(self._waiting):
                if reserve is wanted and not waiting.done() and self._may_take(reserve=reserve):
                    del self._waiting[place]
                    waiting.set_result(None)
                    self._promised += 1
                    return
