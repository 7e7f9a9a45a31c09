"""What a user of Redis has to be allowed, and what is said of mistakes that no waiting would mend (C10)."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Admission, Breaker, Dependency, Engine, UnavailableError
from interlock.redis.redis_doctor import examine_redis
from interlock.urls import parse_redis_url
from tests.integration.ports import HeldPorts
from tests.integration.redis.living import cluster_of, engine, outlet_of, run, until
from tests.integration.redis.nodes import BUS
from tests.integration.redis.server import Server
from tests.unit.cli.running import run_program

RIGHTS = "resetkeys ~{shop:* +eval +evalsha +@hash +@sortedset +del +pexpire +time +info"
"""As docs/how-to/redis.md has them."""


async def allow(server: Server, rights: str) -> str:
    """A user with these rights; returns the address with which it comes."""
    import redis.asyncio  # noqa: PLC0415 -- an extra, without which the test is skipped.

    async with redis.asyncio.Redis(unix_socket_path=str(server.socket)) as driver:
        told = ("SETUSER", "shop", "reset", "on", ">secret", *rights.split())
        await driver.execute_command("ACL", *told)  # type: ignore[no-untyped-call]
    return f"unix://shop:secret@{server.socket}?prefix=shop"


def test_a_user_with_the_rights_of_the_guide_can_do_everything(server: Server) -> None:
    async def scenario() -> None:
        url = await allow(server, RIGHTS)
        gateway = Dependency("gateway", rate_per_s=1_000, breaker=Breaker(failures=1, reset_s=0.05))
        async with engine(url, dependencies=[gateway], admission=Admission(rate_per_s=1_000)) as here:
            assert cluster_of(here).up, cluster_of(here)._link.reason
            async with here.lease("report") as lease:
                assert await lease.held()
            here._inside.gate.enter()
            outlet = outlet_of(here)
            outlet.leave("first", outlet.ask("first"), "failed")
            await until(lambda: outlet.ask("first") == "probe")
            outlet.leave("first", "probe", "done")
            assert cluster_of(here).up, cluster_of(here)._link.reason

    run(scenario)


async def said_of(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """An engine opens all the same; what it says of its Redis."""

    async def works(here: Engine) -> None:
        async with here.lease("report"):
            pass

    async with engine(url) as here:
        assert not cluster_of(here).up
        await works(here)
    [said] = [record.message for record in caplog.records if "cannot be used" in record.message]
    assert "secret" not in caplog.text
    return said


MISTAKES: dict[str, tuple[str, Callable[[str], str], str]] = {
    "rights": ("~* +info", str, "lacks rights"),
    "password": (RIGHTS, lambda url: url.replace(":secret@", ":secrets@"), "refuses the user or the password"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_with_its_cause_and_without_the_password(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    rights, changed, cause = MISTAKES[name]

    async def scenario() -> None:
        assert cause in await said_of(changed(await allow(server, rights)), caplog)

    with caplog.at_level(logging.INFO):
        run(scenario)


@pytest.mark.parametrize(
    ("cluster", "option", "cause"),
    [("yes", "", "add cluster=yes"), ("no", "?cluster=yes", "take cluster=yes out")],
    ids=["node", "alone"],
)
def test_a_node_of_a_cluster_is_told_from_one_that_is_alone(
    server: Server, cluster: str, option: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The address must say which it is, and what is said tells how to mend it; so does the doctor."""
    with HeldPorts(beside=(BUS,)) as held:
        [port] = held.numbers
        server.kill()
        server._options = ("--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", cluster)
        server.start()
        url = f"redis://127.0.0.1:{port}{option}"

        async def scenario() -> None:
            assert cause in await said_of(url, caplog)

        with caplog.at_level(logging.INFO):
            run(scenario)
        if not option:
            report = examine_redis(parse_redis_url(url))
            assert [each.code for each in report.findings if each.severity == "error"] == ["redis-cluster"]
        else:
            with pytest.raises(UnavailableError, match="take cluster=yes out"):
                examine_redis(parse_redis_url(url))


@pytest.mark.slow
def test_the_doctor_says_what_is_not_as_it_should_be(server: Server, tmp_path: Path) -> None:
    done = run_program("doctor", server.url, folder=tmp_path)
    assert (done.code, done.out.splitlines()[-1]) == (0, "healthy"), done.err
    assert "standalone, master" in done.out
    report = examine_redis(parse_redis_url(server.url))
    assert (report.healthy, report.mode, report.role, report.policy) == (True, "standalone", "master", "noeviction")
    assert [each.code for each in report.findings] == ["redis-forgets"]
    server.kill()
    server._options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes")
    server.start()
    report = examine_redis(parse_redis_url(server.url))
    assert (report.healthy, [each.code for each in report.findings]) == (False, ["redis-evicts"])
    server.freeze()
    with pytest.raises(UnavailableError, match="cannot be used"):
        examine_redis(parse_redis_url(server.url))
