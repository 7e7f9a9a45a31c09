"""C4: breakers that a person holds, and what becomes of a breaker when its process ends and the next one begins."""

import pytest

from interlock import Breaker, Dependency
from tests.conformance.engine.outages import down, later, named, submit
from tests.conformance.engine.places import Place, SetClock, crash, run, settled
from tests.conformance.engine.shop import Charged, Held, Outside, State, World, shop

QUICK = Dependency("gateway", breaker=Breaker(failures=1))
"""Opens with the first failure."""


def test_a_person_holds_it_open_or_closed_or_lets_it_decide(place: Place) -> None:
    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(Charged(), down(), down(), Charged()))
        order = shop(world, charges_at="gateway").machine
        async with place.engine(order, clock=clock, dependencies=[QUICK]) as engine:
            engine.force_breaker("gateway", "open")
            await submit(engine, order, ["o-1"])
            assert world.charge.calls == []
            waiting = (await engine.get("o-1")).waiting
            assert waiting is not None
            assert "opened by hand" in waiting
            await later(engine, clock, 31.0)
            assert world.charge.calls == []
            engine.force_breaker("gateway", "closed")
            await later(engine, clock, 31.0)
            assert (await engine.wait("o-1")).state is State.DONE
            await submit(engine, order, ["o-2"])
            view = engine.breakers()["gateway"]
            assert (view.state, view.forced, len(world.charge.calls)) == ("closed", "closed", 2)
            engine.force_breaker("gateway", "auto")
            await submit(engine, order, ["o-3"])
            assert engine.breakers()["gateway"].state == "open"
            await later(engine, clock, 3_700.0)
            for workflow in ("o-2", "o-3"):
                assert (await engine.wait(workflow)).state is State.DONE

    run(scenario)


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_what_was_open_is_probed_first_after_a_restart(kept: Place, end: str) -> None:
    """C4: half-open, one at a time, and nobody runs into what is still down."""

    async def scenario() -> None:
        clock, held = SetClock(), Held(Charged())
        world = World(charge=Outside(*[down() for _ in range(5)], held, Charged()))
        order = shop(world, charges_at="gateway").machine
        engine = await kept.engine(order, clock=clock)
        await submit(engine, order, named(9))
        await engine._inside.publisher.close()
        await (engine.close() if end == "closed" else crash(engine))
        assert len(world.charge.calls) == 5
        async with kept.engine(shop(world, charges_at="gateway").machine, clock=SetClock(clock.now_s + 31.0)) as after:
            await settled(after)
            assert after.breakers()["gateway"].state == "half_open"
            await held.begun.wait()
            await settled(after)
            assert len(world.charge.calls) == 6
            held.go.set()
            for workflow in named(4, first=6):
                assert (await after.wait(workflow)).state is State.DONE
            assert after.breakers()["gateway"].state == "closed"

    run(scenario)


@pytest.mark.parametrize("forced", ["open", "closed"])
def test_what_a_person_holds_stays_held_after_a_restart(kept: Place, forced: str) -> None:
    async def scenario() -> None:
        clock = SetClock()
        world = World(charge=Outside(down()))
        order = shop(world, charges_at="gateway").machine
        async with kept.engine(order, clock=clock, dependencies=[QUICK]) as engine:
            engine.force_breaker("gateway", "open" if forced == "open" else "closed")
            await submit(engine, order, named(2))
        assert len(world.charge.calls) == (0 if forced == "open" else 2)
        again = shop(world, charges_at="gateway").machine
        async with kept.engine(again, clock=SetClock(clock.now_s + 31.0), dependencies=[QUICK]) as engine:
            await settled(engine)
            view = engine.breakers()["gateway"]
            assert (view.state, view.forced) == (forced, forced)
            await submit(engine, again, named(2, first=3))
            assert len(world.charge.calls) == (0 if forced == "open" else 4)

    run(scenario)
