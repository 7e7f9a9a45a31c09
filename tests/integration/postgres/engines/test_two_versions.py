"""Two versions of a machine on one schema: neither loses what the other has stored (a rolling deployment).

A process decides only on workflows of versions that it can read without losing anything. It answers events for other
workflows with an error that says "elsewhere, later", and leaves their steps, timers and effects to the other version.
"""

import asyncio

import psycopg
import pytest

from interlock import Engine, MachineMismatch
from tests.conformance.engine.places import run, settled
from tests.integration.postgres.engines.test_two_engines import opened
from tests.integration.postgres.engines.versions import Note, Order, Pack, RichOrder, State, Warehouse, order


async def claims_after(engine: Engine) -> list[str]:
    """What the worker holds after it has looked for work."""
    inside = engine._inside
    await settled(engine)
    return sorted(inside.runner.leases_to_renew(float("inf")))


def test_an_older_process_refuses_what_a_newer_one_wrote_and_changes_nothing(postgres_url: str) -> None:
    async def scenario() -> None:
        first, second = order(1), order(2)
        async with (
            opened(postgres_url, first, worker=False) as old,
            opened(postgres_url, second, worker=False) as new,
        ):
            await old.start(first, "o-1", Order())
            await new.send("o-1", Note())
            for _ in range(2):
                with pytest.raises(MachineMismatch, match="version 2") as refused:
                    await old.send("o-1", Note(), key="k")
                assert refused.value.retry == "later"
                assert "currency" in refused.value.why
            assert (await new.get("o-1")).context == RichOrder(1, "USD")
            assert (await new.send("o-1", Note(), key="k")).version == 3  # The same delivery, at another node.
            assert (await new.get("o-1")).context == RichOrder(2, "USD")

    run(scenario)


def test_versions_that_store_the_same_take_each_others_events(postgres_url: str) -> None:
    async def scenario() -> None:
        first, third = order(1), order(3)
        async with (
            opened(postgres_url, first, worker=False) as old,
            opened(postgres_url, third, worker=False) as new,
        ):
            await old.start(first, "o-1", Order())
            for engine in (new, old, new, old):
                await engine.send("o-1", Note())
            assert (await new.get("o-1")).context == Order(4)

    run(scenario)


def test_an_older_worker_leaves_steps_timers_and_effects_of_a_newer_version(postgres_url: str) -> None:
    async def scenario() -> None:
        world = Warehouse()
        first, second = order(1, world, after_s=0.01), order(2, world, after_s=0.01)
        async with opened(postgres_url, first) as old:
            async with opened(postgres_url, second, worker=False) as door:
                await door.start(second, "timer", RichOrder())
                await door.start(second, "step", RichOrder())
                await door.send("step", Pack())
                rows = await door._store.load(["timer", "step"])
                assert await claims_after(old) == []
                after = await door._store.load(["timer", "step"])
                assert {each: row.context for each, row in after.items()} == {
                    each: row.context for each, row in rows.items()
                }
            async with opened(postgres_url, second) as new:
                assert (await new.wait("step")).context == RichOrder()
                assert (await new.wait("timer")).state is State.DONE
                await settled(new)
            assert set(world.packed) == {2}
            assert set(world.told) == {2}

    run(scenario)


def test_a_result_of_an_older_worker_is_left_to_the_version_that_took_the_workflow_over(postgres_url: str) -> None:
    """The step runs again with the same key, under the newer version, without waiting for the lease to end."""

    async def scenario() -> None:
        world = Warehouse(gates={1: asyncio.Event()})
        first, second = order(1, world), order(2, world)
        async with (
            opened(postgres_url, first, lease_s=600) as old,
            opened(postgres_url, second, lease_s=600) as new,
        ):
            await old.start(first, "o-1", Order())
            await old.send("o-1", Pack())
            await world.begun.wait()
            await new.send("o-1", Note())
            world.gates[1].set()
            done = await new.wait("o-1")
            assert (done.state, done.context) == (State.DONE, RichOrder(1, "USD"))
            assert world.packed == [1, 2]

    run(scenario)


def test_a_transaction_of_the_caller_refuses_what_a_newer_version_wrote(postgres_url: str) -> None:
    async def scenario() -> None:
        first, second, third = order(1), order(2), order(3)
        address = postgres_url.partition("&schema=")[0]
        async with (
            opened(postgres_url, first, worker=False) as old,
            opened(postgres_url, second, worker=False) as new,
            opened(postgres_url, third, worker=False) as same,
            await psycopg.AsyncConnection.connect(address) as connection,
        ):
            await new.start(second, "o-1", RichOrder())
            await same.start(third, "o-3", Order())
            with pytest.raises(MachineMismatch):
                async with old.transaction(connection) as tx:
                    await tx.send("o-1", Note())
            await connection.rollback()
            async with old.transaction(connection) as tx:
                assert (await tx.send("o-3", Note())).version == 2
            await connection.commit()
            assert (await new.get("o-1")).version == 1

    run(scenario)
