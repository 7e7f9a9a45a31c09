"""B7: that Redis is gone is told once, also over a restart, and its return also when nobody was there to see it."""

from pathlib import Path

from interlock import Signal
from interlock.signals import AlertRaised
from tests.integration.redis.living import cluster_of, engine, run, until
from tests.integration.redis.server import Server


def alerts(told: list[Signal]) -> list[bool]:
    return [each.resolved for each in told if isinstance(each, AlertRaised) and each.kind == "redis_gone"]


def test_the_next_process_tells_that_redis_is_back(server: Server, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"

    async def scenario() -> None:
        first: list[Signal] = []
        second: list[Signal] = []
        third: list[Signal] = []
        async with engine(server.url, home, observers=[first.append]) as one:
            server.kill()
            await until(lambda: not cluster_of(one).up)
        assert alerts(first) == [False]
        async with engine(server.url, home, observers=[second.append]):
            pass
        assert alerts(second) == []
        server.start()
        async with engine(server.url, home, observers=[third.append]) as three:
            await until(lambda: cluster_of(three).up)
        assert alerts(third) == [True]
        async with engine(server.url, home, observers=[third.append]):
            pass
        assert alerts(third) == [True]

    run(scenario)
