"""D11: orders flow through steps while their workflows move from PostgreSQL back into a lane, and nobody notices."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from interlock import Engine, MovedElsewhere
from interlock.catalog.catalog import Catalog
from interlock.clock import SystemClock
from interlock.engine import follow_moves, recovery
from interlock.store.open_store import open_store
from tests.integration.postgres.workflows_following.flowing import Flow, made, problems
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.unit.engine.follow_moves.shop import Order, Submit, order

SOME = 10


@pytest.fixture(autouse=True)
def nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one engine: what it has begun it has ended before it is in the lane.

    Nobody is refused, however slow the machine is: that is looked at where it is said to the follower.
    """
    monkeypatch.setattr(recovery, "HELD_AT_BUCKET_US", 0)
    monkeypatch.setattr(follow_moves, "WAITED_S", 60.0)


@pytest.mark.slow
def test_every_order_is_final_there_and_back(tmp_path: Path, postgres_url: str) -> None:
    """G1, G3, G5: no key is charged twice, whoever waits is answered, and the home knows where they are."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=hash(workflow) % 2 == 0))
            async with flow.flowing():
                await flow.more(SOME)
                await move(home, postgres_url)
                await flow.more(SOME)
                assert engine._inside.store.shared
                moved = await move(postgres_url, home, epoch=2)
                await flow.more(SOME)
                assert not engine._inside.store.shared
            assert await problems(engine, flow, gateway) == []
            assert moved.rows > 0
            await gateway.counted("mail", len(flow.through))
        with pytest.raises(MovedElsewhere):
            await open_store(postgres_url, clock=SystemClock())
        assert (await Catalog(home).entry("workflows", kind="workflows")).epoch == 2
        for url in (home, postgres_url):  # By the catalog, and by the tombstone.
            async with Engine.open(url, machines=[machine], drain_s=0) as engine:
                assert await problems(engine, flow, gateway) == []

    asyncio.run(test())


@pytest.mark.campaign
@pytest.mark.parametrize("point", ["copy/1", "seal/0", "verify", "leave/before", "leave"])
def test_a_mover_that_dies_is_noticed_by_nobody(tmp_path: Path, postgres_url: str, point: str) -> None:
    """Before the tombstone nothing has moved; behind it the engine finishes the arrival itself."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(postgres_url, machines=[machine], drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=True))
            async with flow.flowing():
                await flow.more(SOME)
                with pytest.raises(Died):
                    await move(postgres_url, home, at=dying_at(point))
                await flow.more(SOME)
                assert engine._inside.store.shared == (point != "leave")
                await move(postgres_url, home)
                await flow.more(SOME)
            assert not engine._inside.store.shared
            assert await problems(engine, flow, gateway) == []

    asyncio.run(test())


def test_a_result_that_is_known_is_applied_in_the_lane(tmp_path: Path, postgres_url: str) -> None:
    """G5: the step ran under a lease of PostgreSQL, and its result is not lost with it: it is called once."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        ended = asyncio.Event()
        gateway.pause = ended.wait
        async with Engine.open(postgres_url, machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            await engine.send("o-1", Submit())
            await gateway.until(lambda: len(gateway.calls) == 1)

            def at(point: str) -> None:
                if point == "leave":  # Its report comes to a store that has just left.
                    ended.set()

            await move(postgres_url, home, at=at)
            view = await engine.wait("o-1")
            assert view.context == Order(charges=1, packs=1)
        there = await open_store(home, clock=SystemClock())
        assert (await there.load(["o-1"]))["o-1"].state == "done"
        await there.close()
        assert [name for name, _, _ in gateway.calls].count("charge") == 1
        assert gateway.problems() == []

    asyncio.run(test())


def _told(entered: "asyncio.Queue[Engine]", engine: Engine, _inside: object) -> None:
    entered.put_nowait(engine)


def follower_of(engine: Engine) -> follow_moves.Follower:
    """What leads the engine from place to place."""
    assert engine._follower is not None
    return engine._follower


def test_of_several_engines_one_goes_on_and_the_others_say_who(tmp_path: Path, postgres_url: str) -> None:
    """A lane has one owner. When it ends, the next one takes up what it has left."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        engines = [await Engine.open(postgres_url, machines=[machine], drain_s=0) for _ in range(2)]
        for number in range(SOME):
            await order(engines[number % 2], machine, f"o-{number}", keyed=True)
        entered: asyncio.Queue[Engine] = asyncio.Queue()
        for engine in engines:
            follower_of(engine).entered.append(partial(_told, entered, engine))
        await move(postgres_url, home)
        owner = await entered.get()
        [next_one] = [engine for engine in engines if engine is not owner]
        while not follower_of(next_one)._refusal:
            await owner.get("o-1")
        follower_of(next_one)._fail_callers()  # As when it has waited for long enough.
        with pytest.raises(MovedElsewhere) as refused:
            await next_one.start(machine, "n-1", Order())
        assert refused.value.retry == "now"
        assert "owned by process" in refused.value.why
        await order(owner, machine, "last", keyed=True)
        await owner.close()
        assert await entered.get() is next_one
        await order(next_one, machine, "next", keyed=True)
        assert (await next_one.get("last")).context == Order(notes=1, charges=1, packs=1)
        await next_one.close()
        assert gateway.problems() == []

    asyncio.run(test())
