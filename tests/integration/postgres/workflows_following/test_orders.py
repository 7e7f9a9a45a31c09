"""D11: orders flow through steps while their workflows move from a lane to PostgreSQL, and nobody notices."""

import asyncio
import uuid
from pathlib import Path

import pytest

from interlock import Engine, MovedElsewhere
from interlock.catalog.catalog import Catalog
from interlock.clock import SystemClock
from interlock.engine import follow_moves
from interlock.engine.steps.runner import Runner
from interlock.store.open_store import open_store
from tests.integration.objects.servers import SeaweedFS
from tests.integration.postgres.workflows_following.flowing import Flow, made, problems
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.unit.engine.follow_moves.shop import Order, Submit, order

SOME = 10


@pytest.fixture(autouse=True)
def nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: callers wait."""
    monkeypatch.setattr(follow_moves, "WAITED_S", 60.0)


@pytest.mark.slow
def test_every_order_is_final_and_each_result_is_applied_once(tmp_path: Path, postgres_url: str) -> None:
    """G1, G3, G5: no key is charged twice, whoever waits is answered, and the home knows where they went."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=hash(workflow) % 2 == 0))
            async with flow.flowing():
                await flow.more(SOME)
                moved = await move(home, postgres_url)
                await flow.more(SOME)
            assert engine._inside.store.shared
            assert await problems(engine, flow, gateway) == []
            assert moved.rows > 0
            await gateway.counted("mail", len(flow.through))
        with pytest.raises(MovedElsewhere):
            await open_store(home, clock=SystemClock())
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:  # By the tombstone.
            page = await engine.find(machine, limit=1_000)
            found = len(page.items)
            while page.cursor is not None:
                page = await engine.find(machine, limit=1_000, cursor=page.cursor)
                found += len(page.items)
            assert found == len(flow.through)
        assert (await Catalog(home).entry("workflows", kind="workflows")).epoch == 1
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:  # And now by the catalog.
            assert await problems(engine, flow, gateway) == []

    asyncio.run(test())


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [None, "leave/before", "leave"])
def test_from_a_bucket_as_well(tmp_path: Path, seaweedfs: SeaweedFS, postgres_url: str, dies_at: str | None) -> None:
    """The mover takes the lane over from the engine, which opens it again, and finds it as it was or left."""

    async def test() -> None:
        home = seaweedfs.url(f"workflows-following/{uuid.uuid4().hex}")
        gateway, machine = made()
        async with Engine.open(home, machines=[machine], cache=str(tmp_path), lease_s=1.0, drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=True))
            async with flow.flowing():
                await flow.more(SOME)
                if dies_at is not None:
                    with pytest.raises(Died):
                        await move(home, postgres_url, at=dying_at(dies_at))
                    await flow.more(SOME)
                    assert engine._inside.store.shared == (dies_at == "leave")
                await move(home, postgres_url)
                await flow.more(SOME)
            assert engine._inside.store.shared
            assert await problems(engine, flow, gateway) == []

    asyncio.run(test())


@pytest.mark.slow
@pytest.mark.parametrize("point", ["copy/1", "seal/0", "verify", "leave/before", "leave"])
def test_a_mover_that_dies_is_noticed_by_nobody(tmp_path: Path, postgres_url: str, point: str) -> None:
    """Before the tombstone nothing has moved; behind it the engine finishes the arrival itself."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=True))
            async with flow.flowing():
                await flow.more(SOME)
                with pytest.raises(Died):
                    await move(home, postgres_url, at=dying_at(point))
                await flow.more(SOME)
                assert engine._inside.store.shared == (point == "leave")
                await move(home, postgres_url)
                await flow.more(SOME)
            assert engine._inside.store.shared
            assert await problems(engine, flow, gateway) == []

    asyncio.run(test())


def test_what_attempts_have_said_is_brought_along(tmp_path: Path, postgres_url: str) -> None:
    """G5: a result that finds the tombstone is applied without another call; what was cancelled is not counted."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        ends = {"o-1": asyncio.Event(), "o-2": asyncio.Event()}
        gateway.pauses = lambda workflow: ends[workflow].wait()
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            for workflow in ends:
                await engine.start(machine, workflow, Order())
                await engine.send(workflow, Submit())
            await gateway.until(lambda: len(gateway.calls) == 2)

            def at(point: str) -> None:
                if point == "leave":
                    ends["o-1"].set()  # Its result is the first that the tombstone is told to; the other still runs.

            await move(home, postgres_url, at=at)
            await engine.wait("o-1")
            await gateway.until(lambda: gateway.calls.count(gateway.calls[1]) == 2)
            ends["o-2"].set()
            await engine.wait("o-2")
            charges = [call for call in zip(gateway.calls, gateway.attempts, strict=True) if call[0][0] == "charge"]
            assert [(workflow, attempt) for (_, workflow, _), attempt in charges] == [
                ("o-1", 1),
                ("o-2", 1),
                ("o-2", 1),
            ]
        assert gateway.problems() == []

    asyncio.run(test())


def test_an_engine_that_does_nothing_notices_for_whoever_waits(tmp_path: Path, postgres_url: str) -> None:
    """Nothing is written at the old place any more; somebody else moves the workflow at the new one."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with Engine.open(home, machines=[machine], worker=False) as front:
            await front.start(machine, "o-1", Order())
            waiting = asyncio.ensure_future(front.wait("o-1"))
            await move(home, postgres_url)
            async with Engine.open(postgres_url, machines=[machine], drain_s=0) as worker:
                await worker.send("o-1", Submit())
                view = await waiting
            assert view.context == Order(charges=1, packs=1)
        assert gateway.problems() == []

    asyncio.run(test())


@pytest.mark.slow
def test_attempts_that_are_not_ended_are_noticed(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: the old inside goes on with its steps beside the new one, which begins the same."""
    monkeypatch.setattr(Runner, "abort", lambda self: [])
    monkeypatch.setattr(follow_moves, "_is_handed_over", lambda envelope: envelope.future is not None)

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        ended = asyncio.Event()
        gateway.pause = ended.wait
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            await engine.start(machine, "o-1", Order())
            await engine.send("o-1", Submit())
            await gateway.until(lambda: len(gateway.calls) == 1)
            await move(home, postgres_url)
            await gateway.until(lambda: len(gateway.calls) > 1)
            assert any("at once" in problem for problem in gateway.problems())
            ended.set()
            await engine.wait("o-1")

    asyncio.run(test())
