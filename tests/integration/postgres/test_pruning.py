"""Pruning beside a service on PostgreSQL: neither waits for the other, and each batch is short."""

import asyncio

from interlock.store.postgres.store import prune_statement
from interlock.store.protocol import Old
from tests.conformance.store.samples import MACHINE, begun, run, started
from tests.conformance.store.test_pruning import ended
from tests.integration.postgres.stores import opened, several, somebody

OLD = Old(machine=MACHINE, state="done", before_us=10_000)


def test_a_workflow_that_somebody_holds_is_passed_over(postgres_url: str) -> None:
    """A caller's own transaction has a row in its hands; the batch does not wait, and the next run takes it."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as people:
            rows = await begun(store, *(started(each) for each in "abc"))
            await begun(store, *(ended(row, at_us=3_000) for row in rows))
            async with people.transaction():
                await people.execute("SELECT * FROM workflows WHERE id = 'b' FOR KEY SHARE")
                assert sorted((await store.prune(OLD, after=None, limit=10)).workflows) == ["a", "c"]
            assert (await store.prune(OLD, after=None, limit=10)).workflows == ("b",)
            assert await people.fetchval("SELECT count(*) FROM workflow_events") == 0

    run(scenario)


def test_two_who_prune_at_once_remove_each_workflow_once(postgres_url: str) -> None:
    async def scenario() -> None:
        async with several(postgres_url, 2) as stores:
            rows = await begun(stores[0], *(started(f"w-{number}") for number in range(200)))
            await begun(stores[0], *(ended(row, at_us=3_000) for row in rows))
            batches = await asyncio.gather(*(each.prune(OLD, after=None, limit=500) for each in stores * 2))
            assert sorted(each for batch in batches for each in batch.workflows) == sorted(row.id for row in rows)
            assert sum(batch.events for batch in batches) == 400

    run(scenario)


def test_a_batch_reads_no_more_than_its_own_rows(postgres_url: str) -> None:
    """Without statistics and among many others: by the index of states, and by the key of history."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as people:
            rows = await begun(store, *(started(f"w-{number}") for number in range(2_000)))
            await begun(store, *(ended(row, at_us=3_000) for row in rows))
            await people.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
            for old in (OLD, Old(machine=MACHINE, state="done", before_us=10_000, history_only=True)):
                sql = prune_statement(store._schema, old, dry_run=False)
                async with people.transaction():
                    await people.execute("PREPARE batch(text, text, bigint, bigint, bigint, bigint) AS " + sql)
                    plan = await people.fetch(
                        "EXPLAIN (COSTS OFF) EXECUTE batch('order', 'done', -4503599627370496, 0, 10000, 10)"
                    )
                    await people.execute("DEALLOCATE batch")
                text = "\n".join(row[0] for row in plan)
                assert "workflows_by_state" in text
                assert "Seq Scan on workflow_events" not in text, text
                assert "Seq Scan on workflows" not in text, text

    run(scenario)
