"""G4, G5 of effects on a shared store: whoever has lost an effect, or a letter, says nothing about it any more."""

import asyncio
from collections.abc import Awaitable, Sequence

import asyncpg
import pytest

from interlock import Engine, WorkflowNotFound
from interlock.errors import OutcomeUnknown
from interlock.postgres.pool import PostgresRow
from interlock.store.postgres.store import PostgresStore
from tests.conformance.store.samples import run
from tests.integration.postgres.review.shop import Finish, Note, Order, Outside, shop
from tests.integration.postgres.stores import somebody

LONG_S = 60.0


async def row_of(connection: asyncpg.Connection) -> tuple[int, str | None]:
    [row] = await connection.fetch("SELECT attempts, lease_owner FROM workflow_effects")
    return row["attempts"], row["lease_owner"]


async def soon(waited: Awaitable[int]) -> int:
    async with asyncio.timeout(LONG_S):
        return await waited


@pytest.mark.slow
def test_an_attempt_of_an_effect_that_was_taken_over_changes_nothing_any_more(postgres_url: str) -> None:
    """G4: a frozen worker comes back and says that the first attempt has failed, while the second is under way."""

    async def scenario() -> None:
        outside = Outside()
        machine = shop(outside)
        async with (
            somebody(postgres_url) as connection,
            Engine.open(postgres_url, machines=[machine], poll_s=60, lease_s=1, drain_s=0) as frozen,
        ):
            await frozen.start(machine, "o-1", Order())
            await frozen.send("o-1", Finish())
            assert await soon(outside.mailing.get()) == 1
            for task in frozen._inside._tasks:
                task.cancel()  # It renews nothing, and claims nothing.
            async with Engine.open(postgres_url, machines=[machine], poll_s=0.1, lease_s=30, drain_s=0) as worker:
                assert await soon(outside.mailing.get()) == 2
                before = await row_of(connection)
                outside.mail_ends[1].set_exception(OSError("it did not work"))
                while frozen._inside.runner.under_way or frozen._pipeline._task is not None:
                    await worker.get("o-1")
                assert await row_of(connection) == before
                outside.mail_ends[2].set_result(None)

    run(scenario)


async def dead_mail(engine: Engine, outside: Outside) -> str:
    """The letter of a mail that has failed."""
    assert await soon(outside.mailing.get()) == 1
    outside.mail_ends.pop(1).set_exception(OSError("it did not work"))
    async with asyncio.timeout(LONG_S):
        while not (letters := await engine.dead_letters("effect")):
            await engine.get("o-1")
    return letters[0].id


def test_a_dead_letter_of_an_effect_is_tried_again_once_although_two_engines_were_asked(postgres_url: str) -> None:
    """Whoever comes second finds it gone, as with steps; else a mail goes out that was sent already."""

    async def scenario() -> None:
        outside = Outside()
        machine = shop(outside, attempts=1)
        async with (
            Engine.open(postgres_url, machines=[machine], poll_s=0.1, drain_s=0) as one,
            Engine.open(postgres_url, machines=[machine], worker=False) as two,
        ):
            await one.start(machine, "o-1", Order())
            await one.send("o-1", Finish())
            name = await dead_mail(one, outside)
            both = await asyncio.gather(  # Two persons look at the same list,
                one.retry_dead_letter(name), two.retry_dead_letter(name), return_exceptions=True
            )
            assert [type(each) for each in both].count(WorkflowNotFound) == 1, both
            assert await soon(outside.mailing.get()) == 1
            outside.mail_ends[1].set_result(None)
            async with asyncio.timeout(LONG_S):
                while await two._store.effects(limit=1):
                    await two.get("o-1")
            with pytest.raises(WorkflowNotFound):
                await two.retry_dead_letter(name)  # and a third is a moment later.

    run(scenario)


def test_what_was_fenced_off_is_not_taken_for_done_when_the_answer_to_the_fence_is_lost(postgres_url: str) -> None:
    """G9: the commit never arrived; the connection that settles this is cut too, behind the fence."""

    async def scenario() -> None:
        outside = Outside()
        machine = shop(outside, attempts=1)
        async with (
            Engine.open(postgres_url, machines=[machine], poll_s=60, drain_s=0) as one,
            Engine.open(postgres_url, machines=[machine], worker=False) as two,
        ):
            await one.start(machine, "o-1", Order())
            await one.send("o-1", Finish())
            name = await dead_mail(one, outside)
            store = two._store
            assert isinstance(store, PostgresStore)
            write, fence = store._pool.write, store._settling._fence
            written: list[str] = []

            async def cut(sql: str, values: Sequence[object], *, reserve: bool = False) -> list[PostgresRow]:
                ours = "change AS MATERIALIZED" in sql or sql == fence
                written.extend([sql] * ours)
                if ours and len(written) == 1:
                    raise OutcomeUnknown("the connection was lost before the commit arrived.")
                rows = await write(sql, values, reserve=reserve)
                if ours and len(written) == 2:
                    raise OutcomeUnknown("the connection was lost behind the fence.")
                return rows

            store._pool.write = cut  # type: ignore[method-assign]
            await two.resolve_dead_letter(name, note="dealt with")
            assert written[1] == fence
            assert await one.dead_letters("effect") == []

    run(scenario)


def test_counts_are_added_once_although_the_workflow_moves_in_the_same_group(postgres_url: str) -> None:
    """B5: what was decided and will be written is not decided again."""

    async def scenario() -> None:
        machine = shop(Outside())
        async with Engine.open(postgres_url, machines=[machine], worker=False) as engine:
            await engine.start(machine, "o-1", Order())
            await engine.send("o-1", Note("a"), key="k")
            assert (await engine.send("o-1", Note("a"), key="k")).duplicate
            await engine.send("o-1", Note("b"))  # It is in memory now.
            moving = asyncio.ensure_future(engine.send("o-1", Note("c")))
            await asyncio.sleep(0)  # The event waits for its group,
            engine._inside.policy.save_counts()  # and the counts wait behind it.
            await moving
            await engine._pipeline.idle()
            assert (await engine.stats("o-1")).duplicate == 1

    run(scenario)
