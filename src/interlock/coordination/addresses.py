"""Addresses of a Redis: `redis://host:6379/0?prefix=shop`, with `rediss` for TLS and `unix` for a socket.

With `cluster=yes` the address is one node of a Redis Cluster.

The prefix keeps those apart who share a Redis and nothing else: whoever has the same prefix has the same leases, limits
and breakers. Each key has one hash tag, so that a Redis Cluster has all keys of a script in one slot.
"""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from interlock.errors import BadUsage

VARIABLE = "INTERLOCK_REDIS"
SCHEMES = ("redis", "rediss", "unix")
PREFIX = "interlock"
CLUSTER = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Address(NamedTuple):
    """Where the Redis is, and how keys begin there."""

    url: str
    """Without what is ours; with its password, if it has one."""
    prefix: str
    shown: str
    """For people and logs: without user, password and options."""
    cluster: bool = False
    """It is one node of a Redis Cluster, and the others are found by it."""

    def __repr__(self) -> str:
        """Without its password: it may stand in a traceback, or in a log."""
        return f"Address({self.shown!r}, prefix={self.prefix!r}, cluster={self.cluster})"

    def key(self, kind: str, name: str = "") -> str:
        """The key of something that has a slot to itself, such as one breaker."""
        return f"{{{self.prefix}:{kind}}}" if not name else f"{{{self.prefix}:{kind}:{_plain(name)}}}"


def configured_redis(given: str | None, environment: Mapping[str, str] | None = None) -> Address | None:
    """The address that was given, or that of the environment; an empty one is none, and overrides the environment."""
    text = (os.environ if environment is None else environment).get(VARIABLE, "") if given is None else given
    return parsed(text) if text else None


def parsed(text: str) -> Address:
    """Read an address. Raises BadUsage for what is none."""
    given: object = text  # Not every caller has a type checker.
    try:
        parts = urlsplit(text if isinstance(given, str) else "")
        port = parts.port
    except ValueError:
        raise _refused(text) from None
    place = parts.path if parts.scheme == "unix" else parts.hostname
    if parts.scheme not in SCHEMES or not place:
        raise _refused(text)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", PREFIX)
    if not _PREFIX.fullmatch(prefix):
        raise BadUsage(
            f"the prefix of a Redis is {prefix!r}; it must be 1 to 64 letters, digits and any of _.:-",
            why="It is the beginning of every key, and part of the hash tag that chooses a slot.",
            fix="Give it so: redis://127.0.0.1:6379/0?prefix=shop.",
        )
    where = place if parts.scheme == "unix" else f"{place}:{port or 6379}{parts.path}"
    cluster = options.pop("cluster", "no")
    if cluster not in CLUSTER or (CLUSTER[cluster] and parts.scheme == "unix"):
        raise BadUsage(
            f"cluster of a Redis is {cluster!r}; it must be yes or no, and no for a socket.",
            why="It says whether the address is one node of a Redis Cluster, whose others are found by it.",
            fix="Give it so: redis://node-1:6379?cluster=yes.",
        )
    rest = f"?{urlencode(options)}" if options else ""
    return Address(text.partition("?")[0] + rest, prefix, f"{parts.scheme}://{where}", CLUSTER[cluster])


def hidden(text: str) -> str:
    """What may be shown of a text that should have been an address: no user, no password and no options."""
    before, at, place = text.partition("?")[0].rpartition("@")
    scheme = before.partition("://")[0] + "://" if "://" in before else ""
    return f"{scheme}***@{place}" if at else place


def unknown_option(address: Address, error: Exception) -> BadUsage:
    """The driver has refused what stands behind the question mark."""
    options = sorted(name for name, _ in parse_qsl(urlsplit(address.url).query, keep_blank_values=True))
    return BadUsage(
        f"the address {address.shown} has an option that the driver of Redis does not take, or a value that it "
        f"cannot read: {', '.join(options)}.",
        why=f"Everything behind the question mark but prefix and cluster goes to the driver, which says: {error}",
        fix="Correct it, or take it out: redis://127.0.0.1:6379/0?prefix=shop.",
    )


def _refused(text: object) -> BadUsage:
    return BadUsage(
        f"{hidden(str(text))!r} is no address of a Redis.",
        why="It begins with redis://, rediss:// or unix://, and names a host or a socket.",
        fix=f"Give it as redis://127.0.0.1:6379/0: in Engine.open(…, redis=…), with --redis, in {VARIABLE}, or as "
        "redis in interlock.toml.",
    )


def _plain(name: str) -> str:
    """A name inside a hash tag, which the first closing brace would end."""
    return name.replace("%", "%25").replace("}", "%7D").replace("{", "%7B")
