"""The same engine on buckets behind real HTTP: one whole life of an order, and what is there in the next one."""

from tests.conformance.engine.places import Place, crash, run
from tests.conformance.engine.shop import Charged, Held, Note, Order, Outside, Ship, State, Submit, World, shop


def test_an_order_lives_through_a_crash_on_a_bucket_behind_http(served: Place) -> None:
    """B3, B5, B6, C6."""

    async def scenario() -> None:
        held = Held()
        order, world, _ = shop(World(charge=Outside(held, Charged())))
        engine = await served.engine(order)
        await engine.start(order, "o-1", Order())
        await engine.send("o-1", Submit(), key="click")
        await held.begun.wait()
        await engine.send("o-1", Note("x"))
        await crash(engine)
        async with served.engine(order) as engine:
            assert (await engine.wait("o-1")).state is State.DONE
            assert (await engine.send("o-1", Submit(), key="click")).duplicate
            await engine.send("o-1", Ship())
            rows = await engine.history("o-1")
            assert [row.version for row in rows] == [1, 2, 3, 4, 5, 6]
            assert [row.event for row in rows[-3:]] == ["CHARGED", "RESERVED", "SHIP"]
        assert world.charge.attempts == [1, 2]
        assert len(set(world.charge.keys)) == 1

    run(scenario)
