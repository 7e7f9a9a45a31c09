"""Addresses of a Redis, and the keys of a prefix."""

import asyncio
import subprocess
import sys

import pytest

from interlock.clock import SystemChance
from interlock.errors import BadUsage
from interlock.redis.connection import RedisLink
from interlock.urls import REDIS_VARIABLE, configured_redis, parse_redis_url


@pytest.mark.parametrize(
    ("text", "url", "prefix", "shown"),
    [
        ("redis://cache", "redis://cache", "interlock", "redis://cache:6379"),
        ("redis://cache:7000/2?prefix=shop", "redis://cache:7000/2", "shop", "redis://cache:7000/2"),
        (
            "rediss://me:secret@cache/0?prefix=a:b&ssl_cert_reqs=none",
            "rediss://me:secret@cache/0?ssl_cert_reqs=none",
            "a:b",
            "rediss://cache:6379/0",
        ),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1", "interlock", "unix:///run/redis.sock"),
    ],
)
def test_an_address_is_taken_apart(text: str, url: str, prefix: str, shown: str) -> None:
    assert parse_redis_url(text) == (url, prefix, shown, False)


def test_a_node_of_a_cluster_is_told_by_its_address() -> None:
    assert parse_redis_url("redis://node-1?cluster=yes") == ("redis://node-1", "interlock", "redis://node-1:6379", True)
    for wrong in ("redis://node-1?cluster=maybe", "unix:///run/redis.sock?cluster=yes"):
        with pytest.raises(BadUsage, match="yes or no"):
            parse_redis_url(wrong)


@pytest.mark.parametrize("text", ["cache:6379", "http://cache", "redis://", "redis://cache:port", "unix://", "memory:"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadUsage, match="not the address of a Redis"):
        parse_redis_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "rdis://me:secret@cache/0",
        "rdis://me:a/secret@cache",
        "redis://me:secret@cache:port",
        "redis:me:secret@cache",
        "cache?password=secret",
    ],
)
def test_a_refusal_does_not_tell_the_password(text: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_redis_url(text)
    assert "secret" not in str(caught.value)


def test_an_address_shows_itself_without_its_password() -> None:
    assert (
        repr(parse_redis_url("redis://me:secret@cache/0"))
        == "Address('redis://cache:6379/0', prefix='interlock', cluster=False)"
    )


def test_an_option_that_the_driver_does_not_know_is_refused_at_once() -> None:
    """It would only be noticed when the first connection is made, and again with every beat."""

    async def scenario(text: str) -> None:
        RedisLink(parse_redis_url(text), SystemChance(), lambda up, reason: None)

    for text in ("redis://me:secret@cache/0?colour=blue", "redis://me:secret@cache/0?max_connections=many"):
        with pytest.raises(BadUsage, match="the driver of Redis does not take") as caught:
            asyncio.run(scenario(text))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "a{b", "a b", "x" * 65, "ä"])
def test_a_prefix_that_would_spoil_a_key_is_refused(prefix: str) -> None:
    with pytest.raises(BadUsage, match="prefix"):
        parse_redis_url(f"redis://cache?prefix={prefix}")


def test_every_key_has_one_hash_tag_whatever_a_dependency_is_called() -> None:
    """A Redis Cluster hashes what stands between the first brace and the next closing one."""
    address = parse_redis_url("redis://cache?prefix=shop")
    keys = [address.key("leases"), *(address.key("breaker", name) for name in ("a", "a}b", "{a", "{}", "50%"))]
    assert keys[0] == "{shop:leases}"
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert key.startswith("{shop:")
        assert key.index("}") == len(key) - 1


def test_the_environment_names_a_redis_unless_the_program_does() -> None:
    environment = {REDIS_VARIABLE: "redis://far"}
    far, near = configured_redis(None, environment), configured_redis("redis://near", environment)
    assert far is not None
    assert near is not None
    assert (far.redacted_url, near.redacted_url) == ("redis://far:6379", "redis://near:6379")
    assert configured_redis("", environment) is None
    assert configured_redis(None, {}) is None


def test_an_engine_without_redis_does_not_import_the_driver() -> None:
    program = "import sys, interlock; from interlock import Engine; Engine.open; assert 'redis' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
