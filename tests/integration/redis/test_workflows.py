"""Workflows of two processes that call one gateway: limited, stopped and let go together (C4, C8)."""

from interlock import Breaker, Dependency, Engine
from tests.conformance.engine.shop import Charged, Order, Outside, Shop, State, Submit, World, shop
from tests.integration.redis.living import OwnClock, outlet_of, run, until
from tests.integration.redis.server import Server

ORDERS = 20


async def ordered(engine: Engine, place: Shop) -> None:
    for number in range(ORDERS):
        await engine.start(place.machine, f"o-{number}", Order())
        await engine.send(f"o-{number}", Submit())


async def done(engine: Engine) -> None:
    for number in range(ORDERS):
        await engine.wait(f"o-{number}", State.DONE, timeout_s=60)


def test_workflows_that_wait_for_a_token_of_the_cluster_are_called_when_it_comes(server: Server) -> None:
    """C8: nobody is forgotten, in neither process."""

    async def scenario() -> None:
        gateway = [Dependency("gateway", rate_per_s=40)]
        shops = [shop(charges_at="gateway"), shop(charges_at="gateway")]
        opened = [
            Engine.open("memory:", machines=[each.machine], redis=server.url, dependencies=gateway, clock=OwnClock())
            for each in shops
        ]
        async with opened[0] as one, opened[1] as two:
            for engine, place in zip((one, two), shops, strict=True):
                await ordered(engine, place)
            for engine in (one, two):
                await done(engine)
        assert [len(each.world.charge.calls) for each in shops] == [ORDERS, ORDERS]

    run(scenario)


def test_an_outage_that_one_process_meets_spares_the_other_and_both_go_on_after_one_probe(server: Server) -> None:
    """C4: the second process has not made one call in vain."""

    async def scenario() -> None:
        gateway = [Dependency("gateway", breaker=Breaker(failures=3, reset_s=1.0), concurrency_max=3)]
        outage = Outside(*[ConnectionError("no route to host")] * 3, Charged())
        failing = shop(World(charge=outage), charges_at="gateway", attempts=10)
        sound = shop(charges_at="gateway")
        opened = [
            Engine.open("memory:", machines=[each.machine], redis=server.url, dependencies=gateway, clock=OwnClock())
            for each in (failing, sound)
        ]
        async with opened[0] as one, opened[1] as two:
            await ordered(one, failing)
            await until(lambda: outlet_of(two).phase != "closed")
            await ordered(two, sound)
            await done(one)
            await done(two)
            assert outlet_of(one).phase == outlet_of(two).phase == "closed"
        assert len(sound.world.charge.calls) == ORDERS

    run(scenario)
