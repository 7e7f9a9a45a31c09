"""A breaker of the whole cluster: open for one is open for all, one probe for all, and closed for all (C4)."""

import asyncio

from interlock import Dependency, Engine, Signal
from interlock.core.policies import Breaker, Verdict
from interlock.engine.dependencies.outlet import Outlet
from interlock.signals import AlertRaised, BreakerChanged, RedisChanged
from tests.integration.redis.living import PATIENCE_S, OwnClock, cluster_of, engine, outlet_of, run, until
from tests.integration.redis.server import Server

LONG = [Dependency("gateway", breaker=Breaker(failures=2, reset_s=600))]
SHORT = [Dependency("gateway", breaker=Breaker(failures=2, reset_s=0.2))]


def fail(outlet: Outlet, times: int = 2) -> None:
    """Calls are made, and fail."""
    for _ in range(times):
        assert outlet.ask("first") == "call"
        outlet.leave("first", "call", "failed", why="no route to host")


async def probe(engines: list[Engine]) -> tuple[Outlet, list[Verdict]]:
    """All of them want to call until one may; returns which, and what each was told in the end."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            verdicts = [outlet_of(each).ask("first") for each in engines]
            if "probe" in verdicts:
                return outlet_of(engines[verdicts.index("probe")]), verdicts
            await asyncio.sleep(0.01)


def test_what_opens_in_one_process_is_open_in_all(server: Server) -> None:
    """C4: with the reason and with who has said it; also for one that comes later."""

    async def scenario() -> None:
        told: list[Signal] = []
        async with (
            engine(server.url, dependencies=LONG) as one,
            engine(server.url, dependencies=LONG, observers=[told.append]) as two,
        ):
            fail(outlet_of(one))
            await until(lambda: outlet_of(two).phase == "open")
            assert outlet_of(two).ask("first") == "wait"
            view = two.breakers()["gateway"]
            assert view.scope == "cluster"
            assert view.reason.startswith("2 failures in a row, the last: no route to host")
            assert view.probes_in_s is not None
            assert 500 < view.probes_in_s <= 600
            assert [each.after for each in told if isinstance(each, BreakerChanged)] == ["open"]
            assert [each.kind for each in told if isinstance(each, AlertRaised)] == ["breaker_open"]
            async with engine(server.url, dependencies=LONG) as three:
                assert outlet_of(three).phase == "open"

    run(scenario)


def test_one_probe_is_made_for_all_and_closes_it_for_all(server: Server) -> None:
    """C4: the others wait, and come back in waves."""

    async def scenario() -> None:
        async with (
            engine(server.url, dependencies=SHORT) as one,
            engine(server.url, dependencies=SHORT) as two,
            engine(server.url, dependencies=SHORT) as three,
        ):
            all_of_them = [one, two, three]
            fail(outlet_of(one))
            await until(lambda: all(outlet_of(each).phase != "closed" for each in all_of_them))
            prober, verdicts = await probe(all_of_them)
            assert sorted(verdicts) == ["probe", "wait", "wait"]
            prober.leave("first", "probe", "done")
            await until(lambda: all(outlet_of(each).phase == "closed" for each in all_of_them))
            assert all(outlet_of(each).ask("first") == "call" for each in all_of_them)

    run(scenario)


def test_a_probe_that_fails_opens_it_again_for_all_and_one_that_says_nothing_is_made_again(server: Server) -> None:
    """C4."""

    async def scenario() -> None:
        async with engine(server.url, dependencies=SHORT) as one, engine(server.url, dependencies=SHORT) as two:
            both = [one, two]
            fail(outlet_of(one))
            prober, _ = await probe(both)
            prober.leave("first", "probe", "abandoned")
            prober, verdicts = await probe(both)
            assert verdicts.count("probe") == 1
            prober.leave("first", "probe", "failed", why="still no route")
            prober, verdicts = await probe(both)
            assert verdicts.count("probe") == 1
            prober.leave("first", "probe", "done")
            await until(lambda: all(outlet_of(each).phase == "closed" for each in both))

    run(scenario)


def test_what_a_person_holds_is_held_in_all_processes(server: Server) -> None:
    """C4: open, closed and let go."""

    async def scenario() -> None:
        async with engine(server.url, dependencies=LONG) as one, engine(server.url, dependencies=LONG) as two:
            one.force_breaker("gateway", "open")
            await until(lambda: outlet_of(two).forced == "open")
            assert outlet_of(two).ask("first") == "wait"
            two.force_breaker("gateway", "closed")
            await until(lambda: outlet_of(one).forced == "closed")
            one.force_breaker("gateway", "auto")
            await until(lambda: outlet_of(two).forced is None)
            assert two.breakers()["gateway"].state == "closed"

    run(scenario)


def test_without_redis_every_process_has_its_own_breaker_and_says_what_has_come_of_it(server: Server) -> None:
    """C4: what was open stays open, probes need no permit, and a Redis that knows nothing is told."""

    async def scenario() -> None:
        told: list[Signal] = []
        async with (
            engine(server.url, dependencies=SHORT, observers=[told.append]) as one,
            engine(server.url, dependencies=SHORT) as two,
        ):
            both = [one, two]
            fail(outlet_of(one))
            await until(lambda: outlet_of(two).phase != "closed")
            server.kill()
            await until(lambda: not any(cluster_of(each).up for each in both))
            assert one.breakers()["gateway"].scope == "process"
            assert [each.up for each in told if isinstance(each, RedisChanged)] == [True, False]
            assert "redis_gone" in [each.kind for each in told if isinstance(each, AlertRaised)]
            for each in both:
                prober, _ = await probe([each])
                prober.leave("first", "probe", "done")
            one.force_breaker("gateway", "open")
            server.start()
            await until(lambda: all(cluster_of(each).up for each in both))
            await until(lambda: outlet_of(two).forced == "open")
            assert [each.up for each in told if isinstance(each, RedisChanged)] == [True, False, True]
            assert [each.resolved for each in told if isinstance(each, AlertRaised) and each.kind == "redis_gone"] == [
                False,
                True,
            ]

    run(scenario)


def test_a_prober_that_dies_holds_up_the_others_only_for_the_reset(server: Server) -> None:
    """C4: its permit ends by itself."""

    async def scenario() -> None:
        async with engine(server.url, dependencies=SHORT) as one, engine(server.url, dependencies=SHORT) as two:
            fail(outlet_of(one))
            await until(lambda: outlet_of(two).phase != "closed")
            await probe([one])  # And nothing is heard of it any more.
            prober, _ = await probe([two])
            prober.leave("first", "probe", "done")
            await until(lambda: outlet_of(one).phase == "closed")

    run(scenario)


def test_engines_of_one_process_share_an_outlet_that_is_its_own_again_when_they_are_gone(server: Server) -> None:
    """C4: whichever of them is closed first."""

    async def scenario() -> None:
        clock = OwnClock()
        for first_goes_first in (True, False):
            one = await engine(server.url, dependencies=LONG, clock=clock)
            two = await engine(server.url, dependencies=LONG, clock=clock)
            outlet = outlet_of(one)
            assert outlet is outlet_of(two)
            first, second = (one, two) if first_goes_first else (two, one)
            await first.close()
            assert outlet.others is not None
            assert outlet.others.up
            await second.close()
            assert outlet.others is None

    run(scenario)
