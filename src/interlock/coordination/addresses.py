"""Addresses of a Redis: `redis://host:6379/0?prefix=shop`, with `rediss` for TLS and `unix` for a socket.

With `cluster=yes` the address is one node of a Redis Cluster.

The prefix separates the users of one Redis: engines with the same prefix share leases, limits and breakers. Each key
has one hash tag, so that a Redis Cluster has all keys of a script in one slot.
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
    """The address of a Redis, and the prefix of its keys."""

    url: str
    """The driver's URL, without Interlock's own options; with its password, if it has one."""
    prefix: str
    shown: str
    """For people and logs: without user, password and options."""
    cluster: bool = False
    """Whether it is one node of a Redis Cluster, by which the others are found."""

    def __repr__(self) -> str:
        """Show the address without its password: it may stand in a traceback, or in a log."""
        return f"Address({self.shown!r}, prefix={self.prefix!r}, cluster={self.cluster})"

    def key(self, kind: str, name: str = "") -> str:
        """Return the key of an object that has a slot to itself, such as one breaker."""
        return f"{{{self.prefix}:{kind}}}" if not name else f"{{{self.prefix}:{kind}:{_plain(name)}}}"


def configured_redis(text: str | None, environment: Mapping[str, str] | None = None) -> Address | None:
    """Return this address, or that of the environment for None; an empty text means no Redis."""
    chosen = (os.environ if environment is None else environment).get(VARIABLE, "") if text is None else text
    return parsed(chosen) if chosen else None


def parsed(text: str) -> Address:
    """Parse an address. Raises BadUsage for an invalid one."""
    value: object = text  # Not every caller has a type checker.
    try:
        parts = urlsplit(text if isinstance(value, str) else "")
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
    """Return an invalid address as it may be shown: without user, password and options."""
    before, at, place = text.partition("?")[0].rpartition("@")
    scheme = before.partition("://")[0] + "://" if "://" in before else ""
    return f"{scheme}***@{place}" if at else place


def unknown_option(address: Address, error: Exception) -> BadUsage:
    """Return the error for an option that the driver has refused."""
    options = sorted(name for name, _ in parse_qsl(urlsplit(address.url).query, keep_blank_values=True))
    return BadUsage(
        f"the address {address.shown} has an option that the driver of Redis does not take, or a value that it "
        f"cannot read: {', '.join(options)}.",
        why=f"Everything after the question mark but prefix and cluster goes to the driver, which says: {error}",
        fix="Correct it, or take it out: redis://127.0.0.1:6379/0?prefix=shop.",
    )


def _refused(text: object) -> BadUsage:
    return BadUsage(
        f"{hidden(str(text))!r} is not the address of a Redis.",
        why="It begins with redis://, rediss:// or unix://, and names a host or a socket.",
        fix=f"Give it as redis://127.0.0.1:6379/0: in Engine.open(…, redis=…), with --redis, in {VARIABLE}, or as "
        "redis in interlock.toml.",
    )


def _plain(name: str) -> str:
    """Escape a name for a hash tag, which the first closing brace would end."""
    return name.replace("%", "%25").replace("}", "%7D").replace("{", "%7B")
