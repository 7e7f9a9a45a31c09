"""F6: a new workflow from any version of another, on every store."""

import pytest

from interlock import StoredJson, WorkflowExists, WorkflowNotFound
from interlock.errors import BadUsage
from tests.conformance.engine.places import Place, run, settled
from tests.conformance.engine.shop import Cancel, Note, Order, Outside, Ship, State, Submit, World, shop


def test_a_fork_begins_with_a_version_of_another_and_goes_on_by_itself(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(mail=Outside(None)))
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("n"))
            await engine.send("o-1", Submit(7))
            await engine.wait("o-1", State.DONE)
            view = await engine.fork("o-1", 3, "o-2", by="ada")
            assert (view.id, view.state, view.version) == ("o-2", State.CHARGING, 1)
            assert view.context == Order(7, note="n")
            assert (await engine.wait("o-2", State.DONE)).version == 3
            rows = await engine.history("o-2")
            assert [(row.event, row.by) for row in rows] == [("FORKED", "ada"), ("CHARGED", None), ("RESERVED", None)]
            assert isinstance(rows[0].payload, StoredJson)
            assert rows[0].payload.text == '{"workflow":"o-1","version":3}'
            assert len(set(world.charge.keys)) == 2
            # The original is as it was, and the fork undoes only its own.
            assert (await engine.get("o-1")).version == 5
            await engine.send("o-2", Cancel())
            await engine.wait("o-2", State.CANCELLED)
            assert [call.ctx.undoes for call in world.refund.calls] == [world.charge.keys[1]]
            assert (await engine.get("o-1")).state is State.DONE

    run(scenario)


def test_a_fork_owes_no_effects_and_may_rest(place: Place) -> None:
    async def scenario() -> None:
        order, world, _ = shop()
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await settled(engine)
            while await engine._store.effects(limit=1):
                await settled(engine)
            assert (await engine.fork("o-1", 4, "o-2")).state is State.DONE
            await settled(engine)
            assert len(world.mail.calls) == 1
            await engine.send("o-2", Ship())
            assert (await engine.get("o-1")).state is State.DONE

    run(scenario)


def test_the_same_fork_again_returns_it_and_another_is_refused(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order, worker=False) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("n"))
            first = await engine.fork("o-1", 1, "o-2")
            assert await engine.fork("o-1", 1, "o-2") == first
            with pytest.raises(WorkflowExists):
                await engine.fork("o-1", 2, "o-2")
            with pytest.raises(WorkflowExists):
                await engine.start(order, "o-2", Order())

    run(scenario)


def test_what_cannot_be_forked_is_refused_with_the_reason(place: Place) -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await engine.wait("o-1", State.DONE)
            await engine.send("o-1", Cancel())
            await engine.wait("o-1", State.CANCELLED)
            with pytest.raises(BadUsage, match="version 5: in its state 'undoing' steps are undone"):
                await engine.fork("o-1", 5, "o-2")
            with pytest.raises(BadUsage, match="its state 'cancelled' is final"):
                await engine.fork("o-1", 6, "o-2")
            for version in (0, 7):
                with pytest.raises(
                    WorkflowNotFound, match=f"version {version} of workflow 'o-1' is not in its history"
                ):
                    await engine.fork("o-1", version, "o-2")
            with pytest.raises(WorkflowNotFound):
                await engine.fork("nobody", 1, "o-2")
            pause = await engine.pause(machine=order)
            assert pause.machine == "order"
            hidden = (await engine._store.find("interlock.pause", None, after=None, limit=1)).rows[0].id
            with pytest.raises(WorkflowNotFound):
                await engine.fork(hidden, 1, "o-2")

    run(scenario)
