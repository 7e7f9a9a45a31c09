"""Nobody waits for ever: not behind a workflow that somebody holds, and not beside one that cannot be read."""

import asyncio

import pytest

from interlock import Engine, InterlockError
from tests.conformance.store.samples import run
from tests.integration.postgres.review.shop import Finish, Note, Order, Outside, State, shop
from tests.integration.postgres.stores import somebody

LONG_S = 60.0


@pytest.mark.slow
def test_whoever_waits_behind_a_locked_workflow_is_told_when_the_engine_closes(postgres_url: str) -> None:
    """The event is parked while a transaction of somebody else is open; the engine gives up before that ends."""

    async def scenario() -> None:
        machine = shop(Outside())
        async with somebody(postgres_url) as connection:
            async with Engine.open(postgres_url, machines=[machine], worker=False, conflicts_max=1_000) as engine:
                await engine.start(machine, "o-1", Order())
                holding = connection.transaction()
                await holding.start()
                await connection.execute("SELECT FROM workflows FOR UPDATE")
                sending = asyncio.ensure_future(engine.send("o-1", Note("a")))
                while not engine._pipeline._parked:
                    await engine.get("o-1")
            with pytest.raises(InterlockError):
                async with asyncio.timeout(LONG_S):
                    await sending
            await holding.rollback()

    run(scenario)


@pytest.mark.slow
def test_one_workflow_that_cannot_be_read_does_not_keep_others_from_being_waited_for(postgres_url: str) -> None:
    """Somebody waits for each of the two; one is damaged, and the other moves on elsewhere."""

    async def scenario() -> None:
        machine = shop(Outside())
        async with (
            somebody(postgres_url) as connection,
            Engine.open(postgres_url, machines=[machine], worker=False) as one,
            Engine.open(postgres_url, machines=[machine], worker=False) as two,
        ):
            await one.start(machine, "broken", Order())
            await one.start(machine, "well", Order())
            waits = [asyncio.ensure_future(one.wait(each, State.DONE)) for each in ("broken", "well")]
            while len(one._inside.policy.polls.looks) < 2:  # type: ignore[union-attr]
                await two.get("well")
            await connection.execute("UPDATE workflows SET owed = '{' WHERE id = 'broken'")
            polling = one._inside._tasks[-1]
            async with asyncio.timeout(LONG_S):
                done, _ = await asyncio.wait([polling, *waits], timeout=2.5, return_when="FIRST_COMPLETED")
                assert polling not in done
                await two.send("well", Finish())
                await waits[1]
            waits[0].cancel()

    run(scenario)
