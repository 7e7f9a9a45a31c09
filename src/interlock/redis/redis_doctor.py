"""The doctor of a Redis: whether it answers, and is fit to keep leases, limits and breakers.

`interlock doctor redis://…` asks for nothing but `INFO`, and changes nothing. It finds what would otherwise show only
in an outage: keys that are evicted, a replica that refuses to write, one node of a cluster taken for all of it.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from interlock.clock import SystemChance
from interlock.core.values import Finding
from interlock.errors import UnavailableError
from interlock.redis.connection import CLOSE_S, FIRST_S, RedisLink, why_gone
from interlock.urls import RedisAddress

VERSION_MIN = (6, 2)


class RedisReport(msgspec.Struct, frozen=True, kw_only=True):
    """The doctor's report on a Redis."""

    url: str
    healthy: bool
    """No finding is worse than info."""
    prefix: str
    version: str
    mode: str
    role: str
    round_trip_ms: float
    used_bytes: int
    bytes_max: int
    """0: unlimited."""
    policy: str
    keeps: Literal["nothing", "everything"]
    """The data that surely survives a restart: snapshots are from some time ago."""
    findings: list[Finding]


def examine_redis(address: RedisAddress) -> RedisReport:
    """Examine the Redis at this address. Raises UnavailableError when it does not answer, or refuses us."""
    return asyncio.run(_examine(address))


async def _examine(address: RedisAddress) -> RedisReport:
    link = RedisLink(address, SystemChance(), lambda _up, _reason: None)
    try:
        async with asyncio.timeout(FIRST_S):
            facts, round_trip_s = await _facts(link, cluster=address.cluster)
    except TimeoutError as error:
        raise _away(address, f"it has not answered for {FIRST_S:g} s") from error
    except link.refusals as error:
        raise _away(address, why_gone(error, cluster=address.cluster)) from error
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * CLOSE_S):
                await link.close()
    findings = list(findings_of(facts, cluster=address.cluster))
    return RedisReport(
        url=address.redacted_url,
        healthy=all(each.severity == "info" for each in findings),
        prefix=address.prefix,
        version=facts.get("redis_version", "unknown"),
        mode=facts.get("redis_mode", "unknown"),
        role=facts.get("role", "unknown"),
        round_trip_ms=round(round_trip_s * 1_000, 3),
        used_bytes=int(facts.get("used_memory", "0")),
        bytes_max=int(facts.get("maxmemory", "0")),
        policy=facts.get("maxmemory_policy", "unknown"),
        keeps=_keeps(facts),
        findings=findings,
    )


async def _facts(link: RedisLink, *, cluster: bool) -> tuple[dict[str, str], float]:
    """Return the facts of INFO; of a cluster, those of one of its nodes."""
    await link.info(cluster=cluster)  # The first one connects.
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    answer = await link.info(cluster=cluster)
    took_s = loop.time() - begun_s
    return {name: str(value) for name, value in answer.items()}, took_s


def findings_of(facts: Mapping[str, str], *, cluster: bool) -> Iterator[Finding]:
    """Yield the findings that the facts of INFO show."""
    version = tuple(int(part) for part in facts.get("redis_version", "0").split(".")[:2] if part.isdecimal())
    if version < VERSION_MIN:
        yield Finding(
            code="redis-old",
            severity="error",
            what=f"this is Redis {facts.get('redis_version', 'unknown')}; it must be 6.2 or later.",
            why="Its scripts must be able to look at the clock before they write.",
            fix="Use a later one, or what speaks its language.",
        )
    if facts.get("role") == "slave":
        yield Finding(
            code="redis-replica",
            severity="error",
            what="this is a replica.",
            why="A replica takes no writes, so nothing can be shared through it.",
            fix="Give the address of its primary.",
        )
    if (facts.get("redis_mode") == "cluster") is not cluster:
        what = "is not a node of a Redis Cluster, but the address says cluster=yes."
        fix = "Take cluster=yes out of the address."
        if not cluster:
            what, fix = "is a node of a Redis Cluster, and the address does not say so.", "Add cluster=yes to it."
        yield Finding(
            code="redis-cluster",
            severity="error",
            what=f"this {what}",
            why="The keys of a cluster are on several nodes; only a client that knows it finds them.",
            fix=fix,
        )
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        limited = facts.get("maxmemory", "0") != "0"
        yield Finding(
            code="redis-evicts",
            severity="warning" if limited else "info",
            what=f"its maxmemory-policy is {policy}"
            + ("." if limited else ", which does nothing while it has no maxmemory."),
            why="A lease whose key is evicted is lost, and a breaker is forgotten.",
            fix="Set maxmemory-policy noeviction, or use a Redis that is not a cache.",
        )
    if _keeps(facts) == "nothing":
        yield Finding(
            code="redis-forgets",
            severity="info",
            what="it has no append-only file (appendonly no).",
            why="Tokens grow all the same. After a restart it gives no lease for up to ten seconds.",
            fix="Nothing to do; with appendonly yes that pause is shorter.",
        )


def _keeps(facts: Mapping[str, str]) -> Literal["nothing", "everything"]:
    return "everything" if facts.get("aof_enabled") == "1" else "nothing"


def _away(address: RedisAddress, why: str) -> UnavailableError:
    return UnavailableError(
        f"Redis at {address.redacted_url} cannot be used: {why}.",
        why="Engines that have this address go on without it, with leases of the store and limits of each process.",
        fix="Look whether it runs and can be reached from here, and whether the address is right.",
    )
