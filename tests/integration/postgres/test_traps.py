"""The traps of grouped statements, each of which somebody has fallen into before (FIELD and the design)."""

import asyncio

import pytest

from interlock.errors import InternalError
from tests.conformance.store.samples import begun, effect, letter, moved, run, started
from tests.integration.postgres.stores import opened, several, somebody

WORKFLOWS = 200


def test_groups_of_two_processes_in_opposite_order_never_deadlock(postgres_url: str) -> None:
    """G1: sorted arrays alone deadlocked. Of each workflow one of the two wins, and nobody gets an error."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            rows = await begun(one, *(started(f"w-{number}") for number in range(WORKFLOWS)))
            for _ in range(10):
                forth, back = [moved(row) for row in rows], [moved(row) for row in reversed(rows)]
                lost_forth, lost_back = await asyncio.gather(one.commit(forth), two.commit(back))
                loaded = await one.load([row.id for row in rows])
                for row in rows:
                    won = (row.id not in lost_forth) + (row.id not in lost_back)
                    assert won <= 1
                    assert loaded[row.id].version == row.version + won
                rows = list(loaded.values())
            history = [await one.history(row.id) for row in rows]
            assert [len(each) for each in history] == [row.version for row in rows]

    run(scenario)


def test_starts_of_two_processes_in_opposite_order_never_deadlock(postgres_url: str) -> None:
    """G1, B4: of two starts of one id one wins."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            for turn in range(10):
                ids = [f"{turn}-{number}" for number in range(WORKFLOWS)]
                forth, back = [started(each) for each in ids], [started(each) for each in reversed(ids)]
                lost_forth, lost_back = await asyncio.gather(one.commit(forth), two.commit(back))
                assert sorted([*lost_forth, *lost_back]) == sorted(ids)
                assert len(await two.load(ids)) == len(ids)

    run(scenario)


def test_an_open_transaction_of_a_caller_blocks_nobody_else(postgres_url: str) -> None:
    """B2, B11: one row held open once stopped a group of 200."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            rows = await begun(store, *(started(f"w-{number}") for number in range(WORKFLOWS)))
            transaction = caller.transaction()
            await transaction.start()
            await caller.execute("SELECT 1 FROM workflows WHERE id = 'w-7' FOR UPDATE")
            changes = [moved(row) for row in rows]
            assert await store.commit(changes) == ["w-7"]
            assert len(await store.history("w-7")) == 1
            await transaction.rollback()
            assert await store.commit([changes[7]]) == []

    run(scenario)


def test_a_foreign_key_to_a_workflow_does_not_make_it_lose(postgres_url: str) -> None:
    """B11: a caller's open transaction that only refers to the workflow does not hold it."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started())
            await caller.execute('CREATE TABLE invoices (workflow text COLLATE "C" REFERENCES workflows (id))')
            transaction = caller.transaction()
            await transaction.start()
            await caller.execute("INSERT INTO invoices VALUES ('w')")
            assert await store.commit([moved(row)]) == []
            await transaction.rollback()

    run(scenario)


def test_a_start_in_an_open_transaction_of_a_caller_blocks_nobody_else(postgres_url: str) -> None:
    """B4, B11: whoever starts the same id is told to look again; the others of the group begin."""

    async def scenario() -> None:
        async with several(postgres_url, 1) as (store,), somebody(postgres_url) as caller:
            (row,) = await begun(store, started("other"))
            transaction = caller.transaction()
            await transaction.start()
            await caller.execute(
                "INSERT INTO workflows (id, workflow_type, state, context, version, created_at, updated_at, entered_at,"
                " visit, machine_version, active, revision, number, duplicates, ignored, refused, digest, owed)"
                " VALUES ('w-3', 'order', 'new', '{}', 1, now(), now(), now(), 1, 1, true, 1, 0, 0, 0, 0, '', '')"
            )
            group = [moved(row, effects=(effect("e"),)), *(started(f"w-{number}") for number in range(8))]
            assert await store.commit(group) == ["w-3"]
            assert set(await store.load([f"w-{number}" for number in range(8)])) == {
                f"w-{number}" for number in range(8) if number != 3
            }
            assert await store.history("w-3") == []
            assert len(await store.history("other")) == 2
            await transaction.rollback()
            assert await store.commit([started("w-3")]) == []

    run(scenario)


def test_a_duplicate_id_in_a_group_is_refused_before_it_is_sent(postgres_url: str) -> None:
    """G1: PostgreSQL would write one of the two and say nothing about the other."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            (row,) = await begun(store, started())
            with pytest.raises(InternalError, match="two changes of workflow 'w'"):
                await store.commit([moved(row, state="paid"), moved(row, state="sent")])
            assert (await store.load(["w"]))["w"] == row

    run(scenario)


def test_losers_leave_neither_history_nor_effects_nor_letters(postgres_url: str) -> None:
    """G3: of two processes that decide upon the same row, in one group with others who win."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            a, b = await begun(one, started("a"), started("b"))
            (kept,) = await begun(two, moved(a, state="packed"))
            late = moved(a, key="k", effects=(effect("e", workflow="a"),), letters=(letter("l", workflow="a"),))
            fine = moved(b, effects=(effect("f", workflow="b"),), letters=(letter("m", workflow="b"),))
            assert await one.commit([late, fine]) == ["a"]
            assert await one.load(["a", "b"]) == {"a": kept, "b": fine.row}
            assert [each.to_state for each in await one.history("a")] == ["new", "packed"]
            assert [each.id for each in await one.effects(limit=9)] == ["f"]
            assert [each.id for each in await one.letters()] == ["m"]
            assert await one.delivered([("a", "k")]) == {}

    run(scenario)


def test_nothing_is_answered_from_memory(postgres_url: str) -> None:
    """G7: a stale row would let the engine refuse what is allowed by now."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            assert one.shared
            (row,) = await begun(one, started())
            assert await one.load(["w"]) == {"w": row}
            (row,) = await begun(two, moved(row, key="k"))
            assert await one.load(["w"]) == {"w": row}
            assert set(await one.delivered([("w", "k")])) == {("w", "k")}
            assert [each.version for each in await one.history("w")] == [1, 2]

    run(scenario)


@pytest.mark.slow
def test_no_group_meets_the_ceiling_of_parameters(postgres_url: str) -> None:
    """FIELD: a statement has at most 65,535 parameters; 12,000 changes have more than 500,000 values."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            ids = [f"w-{number}" for number in range(12_000)]
            await begun(store, *(started(each, key="k") for each in ids))
            assert len(await store.load([*ids, *(f"no-{number}" for number in range(66_000))])) == len(ids)
            assert len(await store.delivered([(each, "k") for each in ids])) == len(ids)

    run(scenario)
