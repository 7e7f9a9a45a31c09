"""The connection to Redis and its scripts: one per engine, with a heartbeat that finds out whether Redis answers.

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


class RedisDriver(Protocol):
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


class RedisListener(Protocol):
    """An object that is notified when Redis comes back, and at every beat."""

    async def returned(self) -> None:
        """React to Redis answering, for the first time or again. No other request runs meanwhile. May raise Gone."""
        ...

    async def beat(self) -> None:
        """React to a beat: half a second has passed and Redis is there. May raise Gone."""
        ...


class RedisLink:
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
        self._listeners: list[RedisListener] = []
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

    def listen(self, listener: RedisListener) -> None:
        """Notify this listener too, after the others."""
        with self._lock:  # A limit may be changed in any thread.
            self._listeners = [*self._listeners, listener]

    def ignore(self, listener: RedisListener) -> None:
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


def _driver(address: RedisAddress) -> tuple[RedisDriver, _Errors]:
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
    return cast("RedisDriver", driver), _Errors(NoScriptError, (RedisError, RedisClusterException, OSError))


@functools.cache
def _sha(script: str) -> str:
    """Return the name by which Redis knows a script. It is not a secret."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


# --- Scripts ---------------------------------------------------------------------------------------------------------
# Each script is one atomic step inside Redis, and touches the keys of one slot. The time is Redis's own (TIME), never
# that of a client (C11). Numbers of microseconds are written out, because Lua would write them with an exponent.
# A token of a lease has two parts, an epoch and a count. The count grows with every lease that is granted here, of any
# name, so that no name needs a key that lives for ever. The epoch comes from the store and is higher than all before. A
# Redis that was restarted or emptied, or a replica that took over, may have lost counts: `ACQUIRE` recognises it by the
# run that the epoch was given to, and grants nothing before it has a new epoch.

TIME = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function whole(number) return string.format('%.0f', number) end
"""

RUN = """
-- A user of Redis may be forbidden to ask. Then a restart from an old copy is not noticed, as the guide says.
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
"""

KEPT_US = 3_600_000_000
"""How long the record of a lease outlives the lease: a late caller still learns its last holder."""

HOME_US = 10_000_000
"""A home without a sign of life for this long is not counted any more."""

COUNT_MAX = 2**32 - 1

KEPT_MS_MAX = 10**12
"""The longest time to live, 31 years: Redis refuses a number that it cannot add to its time."""

GIVE = f"""
local function give(key, held, name, owner, epoch, count, since, until_us)
    redis.call('HSET', key, 'owner', owner, 'epoch', epoch, 'count', count, 'since', since, 'until', whole(until_us))
    local kept_ms = math.ceil((until_us - now + {KEPT_US}) / 1000)
    redis.call('PEXPIRE', key, whole(math.max(1, math.min({KEPT_MS_MAX}, kept_ms))))
    redis.call('ZADD', held, whole(until_us), name)
end
"""

ACQUIRE = f"""{TIME}{RUN}{GIVE}
-- KEYS: the lease, the fence, who holds what, what may be held. ARGV: name, owner, how long, the highest epoch that the
-- caller has seen: a Redis with a lower one was emptied, and got its epoch from a process that knew of none.
local name, owner, until_us = ARGV[1], ARGV[2], now + ARGV[3]
local fence = redis.call('HMGET', KEYS[2], 'epoch', 'run', 'count', 'quiet')
if not fence[1] or (run ~= '' and fence[2] ~= run) or tonumber(fence[3]) >= {COUNT_MAX}
    or tonumber(fence[1]) < tonumber(ARGV[4]) then
    return {{'epoch', whole(now)}}
end
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'count', 'since', 'until')
-- Since an epoch that is over now the store may have given the lease to others: then who asks again has a new token.
if found[1] == owner and found[2] == fence[1] then
    give(KEYS[1], KEYS[3], name, owner, found[2], found[3], found[4], until_us)
    return {{'granted', found[2], found[3]}}
end
if found[1] and found[1] ~= owner and tonumber(found[5]) > now then
    return {{'held', found[1], found[4], whole(now)}}
end
local unsure = redis.call('ZSCORE', KEYS[4], name)
if tonumber(fence[4]) > now or (unsure and tonumber(unsure) > now) then
    return {{'quiet', whole(now)}}
end
local count = redis.call('HINCRBY', KEYS[2], 'count', 1)
give(KEYS[1], KEYS[3], name, owner, fence[1], count, whole(now), until_us)
return {{'granted', fence[1], whole(count)}}
"""

RENEW = f"""{TIME}{GIVE}
-- KEYS: the lease, who holds what. ARGV: name, epoch, count, how long.
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'count', 'since')
if not found[1] or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then return 0 end
give(KEYS[1], KEYS[2], ARGV[1], found[1], found[2], found[3], found[4], now + ARGV[4])
return 1
"""

RELEASE = """
-- KEYS: the lease, who holds what, what may be held. ARGV: name, epoch, count.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'count')
if found[1] ~= ARGV[2] or found[2] ~= ARGV[3] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return 1
"""

ADOPT = f"""{TIME}{GIVE}
-- A lease that the store gave while Redis was gone. KEYS: the lease, who holds what.
-- ARGV: name, owner, epoch, count, for how long it is held already, how long.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'count', 'until', 'owner')
local same = found[4] == ARGV[2] or (found[1] == ARGV[3] and found[2] == ARGV[4])
if found[1] and not same and tonumber(found[3]) > now then return 0 end
give(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4], whole(now - ARGV[5]), now + ARGV[6])
return 1
"""

RAISE = f"""{TIME}{RUN}
-- KEYS: the fence, what may be held. ARGV: an epoch, how long to give nothing after a loss of data, how long after a
-- return, and then names that were held before the loss, each with how long that may still be.
local epoch = tonumber(ARGV[1])
local found = redis.call('HMGET', KEYS[1], 'epoch', 'run', 'quiet')
local known = tonumber(found[1] or '0')
if epoch <= known then return known end
local quiet = 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now))
if not found[1] or (run ~= '' and found[2] ~= run) then
    quiet = tonumber(ARGV[2])
    for at = 4, #ARGV, 2 do redis.call('ZADD', KEYS[2], whole(now + ARGV[at + 1]), ARGV[at]) end
elseif epoch > known + 1 then
    quiet = tonumber(ARGV[3])
end
local until_us = math.max(tonumber(found[3] or '0'), now + quiet)
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'run', run, 'count', '0', 'quiet', whole(until_us))
return epoch
"""

BEAT = f"""{TIME}
-- KEYS: who holds what, the homes, the fence. ARGV: how many names at most, the home of who asks. How many homes there
-- are, the epoch, and the names with the most time left, each with that time.
redis.call('ZADD', KEYS[2], whole(now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now - {HOME_US}))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
local answer = {{whole(redis.call('ZCARD', KEYS[2])), redis.call('HGET', KEYS[3], 'epoch') or '0'}}
local found = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
for at = 1, #found, 2 do
    answer[at + 2], answer[at + 3] = found[at], whole(found[at + 1] - now)
end
return answer
"""

TAKE = f"""{TIME}
-- KEYS: a bucket. ARGV: rate per second, burst, how many are wanted, how many come back; fewer than 0 were borrowed.
local rate, burst, want, back = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = burst
if found[1] then
    level = math.min(burst, found[1] + math.max(0, now - found[2]) * rate / 1000000)
end
level = math.min(burst, level + back)
local given = math.max(0, math.floor(math.min(level, want)))
level = level - given
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', whole(now))
redis.call('PEXPIRE', KEYS[1], whole(math.min({KEPT_MS_MAX}, math.ceil((burst - level) / rate * 1000) + 60000)))
return {{given, string.format('%.6f', level)}}
"""

LOOK = f"""{TIME}
-- KEYS: a breaker. Everything about it, with the time until probes are admitted.
local found = redis.call('HMGET', KEYS[1], 'generation', 'state', 'until', 'forced', 'reason', 'by', 'life')
if not found[1] then return {{'0', 'closed', '0', '', '', '', ''}} end
return {{found[1], found[2], whole(math.max(0, found[3] - now)), found[4], found[5], found[6], found[7]}}
"""

SAY = f"""{TIME}
-- KEYS: a breaker, its probes. ARGV: what (open, closed, force), the generation that is known, how long it stays open,
-- how it is forced, why, by whom, the life that is known, a new one. Of two reports about one generation the first
-- counts. A life begins when Redis knows nothing of the breaker: generations of two lives cannot be compared.
local what, seen, reset, forced, why, by = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local found = redis.call('HMGET', KEYS[1], 'generation', 'state', 'until', 'forced', 'life')
local known, life = tonumber(found[1] or '0'), found[5] or ARGV[8]
local state, until_us, held = found[2] or 'closed', found[3] or '0', found[4] or ''
if what ~= 'force' and found[1] and (life ~= ARGV[7] or known > seen) then return 0 end
if what == 'open' then
    state, until_us = 'open', whole(now + reset)
elseif what == 'closed' then
    state, until_us = 'closed', '0'
else
    if forced == '' and held ~= '' then state, until_us = 'closed', '0' end
    held = forced
end
local generation = whole(known + 1)
redis.call('HSET', KEYS[1], 'generation', generation, 'state', state, 'until', until_us, 'forced', held,
    'reason', why, 'by', by, 'life', life)
redis.call('DEL', KEYS[2])
return 1
"""

PROBE = f"""{TIME}
-- KEYS: a breaker, its probes. ARGV: the generation that is known, probes_max, the permit, how long a probe may take.
local found = redis.call('HMGET', KEYS[1], 'generation', 'state', 'until')
if found[1] ~= ARGV[1] or found[2] ~= 'open' or tonumber(found[3]) > now then return 0 end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now))
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[2], whole(now + ARGV[4]), ARGV[3])
redis.call('PEXPIRE', KEYS[2], whole(math.ceil(ARGV[4] / 1000) + 1000))
return 1
"""

ABANDON = """
-- A probe has reported nothing. KEYS: the probes of a breaker. ARGV: who has asked.
return redis.call('ZREM', KEYS[1], ARGV[1])
"""
