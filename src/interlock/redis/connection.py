"""The connection to Redis: one per engine, with a heartbeat that finds out whether Redis answers.

A request without an answer raises `Gone`. From then on no request waits: all callers do without Redis until a beat is
answered again. Beats come twice a second. They notify the listeners, in order, that Redis is there again before
anything else is asked of it.

The driver does not repeat a request by itself: only the caller knows whether it may be repeated. Every request has its
deadline here, whatever the driver does meanwhile: it connects, asks several nodes, closes. Closing ends them all.
`why_gone` names the cause of an outage and its remedy.
"""

import asyncio
import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from interlock.clock import Chance
from interlock.errors import MissingExtra
from interlock.redaction import logger_of
from interlock.urls import RedisAddress, unknown_redis_option

# --- Refusals --------------------------------------------------------------------------------------------------------
# Most outages end by themselves. The rest are mistakes in the address or in the rights of its user, which waiting
# does not correct. No text contains a password: neither Redis nor the driver repeats one.

_CAUSES = (
    ("AuthenticationError", "", "it refuses the user or the password of the address"),
    ("NoPermissionError", "", "the user of the address lacks rights; docs/how-to/redis.md lists what it needs"),
    ("", "cluster mode is not enabled", "it is not a node of a Redis Cluster: take cluster=yes out of the address"),
    ("", "cluster support disabled", "it is not a node of a Redis Cluster: take cluster=yes out of the address"),
    ("ReadOnlyError", "", "it is a replica: give the address of its primary"),
    ("OutOfMemoryError", "", "its memory is full: raise maxmemory, or give Interlock a Redis of its own"),
    ("BusyLoadingError", "", "it is still loading its data"),
)
"""The kind of the error and a part of its text, either of which may be empty, and the cause with its remedy."""

_CLUSTER_NODE = "it is a node of a Redis Cluster: add cluster=yes to the address"
_CLUSTER_ERRORS = ("MovedError", "AskError", "ClusterCrossSlotError", "ClusterDownError")


def why_gone(error: Exception, *, cluster: bool) -> str:
    """Return one line: the known cause, and the error itself."""
    if isinstance(error.__cause__, Exception):
        error = error.__cause__  # The driver has wrapped what happened while it connected.
    kind, text = type(error).__name__, " ".join(str(error).split()).rstrip(".")
    error_line = f"{kind}: {text}" if text else kind
    if not cluster and (kind in _CLUSTER_ERRORS or text.startswith(("MOVED ", "ASK "))):
        return f"{_CLUSTER_NODE} ({error_line})"
    for name, part, meaning in _CAUSES:
        if (name and kind == name) or (part and part in text.lower()):
            return f"{meaning} ({error_line})"
    return error_line


# --- Link ------------------------------------------------------------------------------------------------------------

log = logger_of("interlock.operators")

BEAT_S = 0.5
ANSWER_S = 1.0
"""How long Redis may take to answer before it is taken for gone."""

FIRST_S = 2.0
"""The same while it is taken for gone: a connection is made first, and only the beat waits for it."""

CLOSE_S = 1.5
"""How long each part of closing may take, whether Redis answers or not."""

STILL_S = 0.5
"""A request that ends this much too late was not delayed by Redis alone: this process stood still."""

CALLS_MAX = 16
"""Concurrent calls, each with a connection; more of them wait. Beats have connections beside them."""

CONNECTIONS_MAX = 64


class Gone(Exception):
    """Redis does not answer. What was asked of it may have happened."""

    def __init__(self, why: str, *, still: bool = False) -> None:
        super().__init__(why)
        self.still = still
        """Whether this process itself stood still, and cannot know if Redis has answered."""


class Driver(Protocol):
    """The methods of the driver that are used."""

    async def evalsha(self, sha: str, numkeys: int, *values: str) -> object:
        """Run a script that Redis knows."""
        ...

    async def eval(self, script: str, numkeys: int, *values: str) -> object:
        """Run a script, which Redis knows from then on."""
        ...

    async def info(self, *sections: str, **where: str) -> dict[str, object]:
        """Return Redis's own INFO."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Listener(Protocol):
    """An object that is notified when Redis comes back, and at every beat."""

    async def returned(self) -> None:
        """React to Redis answering, for the first time or again. No other request runs meanwhile. May raise Gone."""
        ...

    async def beat(self) -> None:
        """React to a beat: half a second has passed and Redis is there. May raise Gone."""
        ...


class Link:
    """One engine's connection. Lives in one event loop."""

    def __init__(self, address: RedisAddress, chance: Chance, changed: Callable[[bool, str], None]) -> None:
        self.address = address
        self._up = False
        self.reason = "it has not answered yet"
        """Why it is taken for gone."""
        self.still = False
        """Whether it is taken for gone because this process stood still; the next beat decides."""
        self._chance = chance
        self._changed = changed
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._driver, self._errors = _driver(address)
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._beating: asyncio.Task[None] | None = None
        self._reported_up: bool | None = None
        self._closing = asyncio.Event()
        self._is_up = asyncio.Event()
        self._asking: set[asyncio.Timeout] = set()
        """The deadlines of the requests under way."""
        self._idle = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    @property
    def up(self) -> bool:
        """Whether Redis is there. False once its event loop is closed."""
        return self._up and not self.loop.is_closed()

    def listen(self, listener: Listener) -> None:
        """Notify this listener too, after the others."""
        with self._lock:  # A limit may be changed in any thread.
            self._listeners = [*self._listeners, listener]

    def ignore(self, listener: Listener) -> None:
        """Stop notifying this listener."""
        with self._lock:
            self._listeners = [each for each in self._listeners if each is not listener]

    async def begin(self) -> None:
        """Connect for the first time, then start the beats. `up` says whether it has worked."""
        await self._try()
        self._beating = self.loop.create_task(self._beat())

    async def call(self, script: str, keys: Sequence[str], *values: str) -> object:
        """Run a script. Raises Gone immediately while Redis is known to be gone."""
        async with self._room:
            if not self.up:
                raise Gone(self.reason)
            return await self.ask(script, keys, *values)

    async def ask(self, script: str, keys: Sequence[str], *values: str) -> object:
        """Run a script, also while Redis is taken for gone: for listeners that test it."""
        if self._closing.is_set():
            raise Gone("the engine is being closed")
        limit_s = ANSWER_S if self._up else FIRST_S
        limit, begun_s = asyncio.timeout(limit_s), self.loop.time()
        try:
            async with limit:
                self._asking.add(limit)
                return await self._run(script, keys, *values)
        except TimeoutError as error:
            still = self.loop.time() - begun_s > limit_s + STILL_S
            self._lost(f"it has not answered for {limit_s:g} s", still=still)
            raise Gone(self.reason, still=still) from error
        except self._errors.unusable as error:
            self._lost(why_gone(error, cluster=self.address.cluster))
            raise Gone(self.reason) from error
        finally:
            self._asking.discard(limit)
            if self._closing.is_set() and not self._asking:
                self._idle.set()

    async def _run(self, script: str, keys: Sequence[str], *values: str) -> object:
        try:
            return await self._driver.evalsha(_sha(script), len(keys), *keys, *values)
        except self._errors.unknown:
            return await self._driver.eval(script, len(keys), *keys, *values)

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """The exceptions that the driver raises when Redis cannot be used."""
        return self._errors.unusable

    async def info(self, *, cluster: bool) -> dict[str, object]:
        """Return Redis's own INFO, whether it is taken for gone or not; of a cluster, that of one node."""
        return await (self._driver.info(target_nodes="random") if cluster else self._driver.info())

    async def back(self, wait_s: float) -> bool:
        """Wait for Redis to be there again; False if it is not in that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_up.wait()
        return self.up

    async def close(self) -> None:
        """Close the connection, within a few seconds even if Redis does not answer. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._up = False
        self._is_up.clear()
        for limit in self._asking:
            if not limit.expired():
                limit.reschedule(self.loop.time())
        if self._asking:
            # A driver that swallows its end (asyncio.wait_for does, up to Python 3.11) would go on connecting.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._idle.wait()
        if self._beating is not None:
            # It ends by itself. It may be in the store, which is better not left in the middle of something.
            await asyncio.wait([self._beating], timeout=CLOSE_S)
            self._beating.cancel()
            await asyncio.wait([self._beating], timeout=CLOSE_S)
        with contextlib.suppress(TimeoutError, *self._errors.unusable):
            async with asyncio.timeout(CLOSE_S):
                await self._driver.aclose()

    def _lost(self, why: str, *, still: bool = False) -> None:
        self._up, self.reason, self.still = False, " ".join(why.split()), still
        self._is_up.clear()
        if not self._closing.is_set():
            self._report_change(up=False)

    def _report_change(self, *, up: bool) -> None:
        if self._reported_up is up:
            return
        if up and self._reported_up is False:
            log.warning(
                "Redis at %s is there again: leases, limits and breakers are shared.", self.address.redacted_url
            )
        elif not up:
            log.error(
                "Redis at %s cannot be used: %s. Leases come from the store, limits and breakers are those of this "
                "process, until it can.",
                self.address.redacted_url,
                self.reason,
            )
        self._reported_up = up
        self._changed(up, self.reason)

    async def _beat(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S * (0.8 + 0.4 * self._chance.fraction())):
                    await self._closing.wait()
                    return
            await self._try()

    async def _try(self) -> None:
        try:
            if not self._up:
                for listener in tuple(self._listeners):
                    await listener.returned()
                if self._closing.is_set():
                    return
                self._up, self.reason = True, ""
                self._is_up.set()
                self._report_change(up=True)
            for listener in tuple(self._listeners):
                await listener.beat()
        except Gone as error:
            self._lost(str(error), still=error.still)
        except Exception as error:
            # A mistake here must not end the beats: the link would never come back.
            log.exception("a beat of Redis at %s has failed, and is tried again.", self.address.redacted_url)
            self._lost(f"{type(error).__name__}: {error}")


class _Errors(NamedTuple):
    unknown: type[Exception]
    """Redis does not know a script."""
    unusable: tuple[type[Exception], ...]


def _driver(address: RedisAddress) -> tuple[Driver, _Errors]:
    try:
        import redis.asyncio  # noqa: PLC0415 -- an extra, which may be missing.
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import NoScriptError, RedisClusterException, RedisError  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(
            f"{address.redacted_url} needs the driver of Redis, which is not installed.", extra="redis"
        ) from error
    kind = redis.asyncio.RedisCluster if address.cluster else redis.asyncio.Redis
    try:
        driver = kind.from_url(  # pyright: ignore[reportUnknownMemberType] -- its options are untyped.
            address.url,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            max_connections=CONNECTIONS_MAX,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=True,
        )
        if isinstance(driver, redis.asyncio.Redis):
            # It does not connect yet, and checks its options.
            driver.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise unknown_redis_option(address, error) from error
    return cast("Driver", driver), _Errors(NoScriptError, (RedisError, RedisClusterException, OSError))


@functools.cache
def _sha(script: str) -> str:
    """Return the name by which Redis knows a script. It is not a secret."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
