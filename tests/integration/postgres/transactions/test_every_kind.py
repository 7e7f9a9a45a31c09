"""B11: what must be true of every kind of connection."""

import pytest

from interlock import GuardRejected, InvalidTransition, KeyReused, VersionConflict, WorkflowExists, WorkflowNotFound
from tests.conformance.store.samples import run
from tests.integration.postgres.transactions.callers import KINDS, bought, buy, called, lent, shop
from tests.integration.postgres.transactions.machine import Note, Order, State, Submit, order

pytestmark = pytest.mark.parametrize("kind", KINDS)

ODD = 'a "quoted" \\ {brace}, 100 % of $1 and %s, NULL, \u00e9\u2603\U0001f600'


def test_an_event_commits_with_the_callers_own_row(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            await caller.begin()
            await buy(caller, postgres_url, "p-1")
            async with lent(engine, caller) as tx:
                moved = await tx.send("o-1", Submit(5), key="click", by="ada")
            assert (moved.state, moved.version) == (State.PAYING, 2)
            assert (await engine.get("o-1")).state is State.DRAFT
            assert await bought(postgres_url) == []
            await caller.commit()
            assert await bought(postgres_url) == ["p-1"]
            assert (await engine.of(order).get("o-1")).context == Order(cents=5)
            history = await engine.history("o-1")
            assert [(row.event, row.key, row.version, row.by) for row in history] == [
                ("STARTED", None, 1, None),
                ("SUBMIT", "click", 2, "ada"),
            ]
            [owed] = await engine._store.effects(limit=10)
            assert (owed.workflow, owed.name, owed.attempts) == ("o-1", "mail", 0)

    run(scenario)


def test_an_event_may_start_its_workflow_in_the_transaction(postgres_url: str, kind: str) -> None:
    """E5."""

    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await caller.begin()
            async with lent(engine, caller) as tx:
                with pytest.raises(GuardRejected):
                    await tx.send("o-1", Submit(-1), start=(order, Order()))
                assert (await tx.send("o-1", Submit(5), key="k", start=(order, Order()))).version == 2
                assert (await tx.send("o-1", Submit(5), key="k", start=(order, Order()))).duplicate
            with pytest.raises(WorkflowNotFound):
                await engine.get("o-1")
            await caller.commit()
            assert [row.event for row in await engine.history("o-1")] == ["STARTED", "SUBMIT"]

    run(scenario)


def test_a_rollback_takes_both_back(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            await caller.begin()
            await buy(caller, postgres_url, "p-1")
            async with lent(engine, caller) as tx:
                await tx.send("o-1", Submit(5), key="click")
                await tx.start("o-2", Order())
            await caller.rollback()
            assert await bought(postgres_url) == []
            assert (await engine.get("o-1")).version == 1
            assert len(await engine.history("o-1")) == 1
            assert await engine._store.effects(limit=10) == []
            with pytest.raises(WorkflowNotFound):
                await engine.get("o-2")

    run(scenario)


def test_a_refusal_leaves_the_transaction_usable(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Note("first"), key="n")
            await caller.begin()
            await buy(caller, postgres_url, "p-1")
            async with lent(engine, caller) as tx:
                with pytest.raises(GuardRejected):
                    await tx.send("o-1", Submit(0))
                with pytest.raises(KeyReused):
                    await tx.send("o-1", Note("second"), key="n")
                with pytest.raises(VersionConflict):
                    await tx.send("o-1", Submit(5), expect_version=7)
                with pytest.raises(WorkflowNotFound):
                    await tx.send("o-9", Submit(5))
                with pytest.raises(WorkflowExists):
                    await tx.start("o-1", Order(cents=9))
                await tx.send("o-1", Submit(5), expect_version=2)
                with pytest.raises(InvalidTransition):
                    await tx.send("o-1", Submit(5))
                await buy(caller, postgres_url, "p-2")
            await caller.commit()
            assert await bought(postgres_url) == ["p-1", "p-2"]
            assert [row.event for row in await engine.history("o-1")] == ["STARTED", "NOTE", "SUBMIT"]

    run(scenario)


def test_a_delivery_is_applied_once_and_counted(postgres_url: str, kind: str) -> None:
    """B5: also within one transaction, and across two."""

    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await engine.start(order, "o-1", Order())
            for _ in range(2):
                await caller.begin()
                async with lent(engine, caller) as tx:
                    first = await tx.send("o-1", Submit(5), key="click")
                    again = await tx.send("o-1", Submit(5), key="click")
                    late = await tx.send("o-1", Submit(5), key="other", if_allowed=True)
                await caller.commit()
                assert (first.state, first.version) == (again.state, again.version) == (State.PAYING, 2)
                assert again.duplicate
                assert late.ignored
            assert len(await engine.history("o-1")) == 2
            stats = await engine.stats("o-1")
            assert (stats.applied, stats.duplicate, stats.ignored) == (1, 3, 2)

    run(scenario)


def test_a_start_is_idempotent_and_can_be_sent_to_in_the_same_block(postgres_url: str, kind: str) -> None:
    """B4: also for a context with all that drivers treat specially."""

    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            context = Order(note=ODD)
            for turn in range(2):
                await caller.begin()
                async with lent(engine, caller) as tx:
                    view = await tx.start("o-1", context)
                    if turn == 0:
                        assert (view.version, view.context) == (1, context)
                        await tx.send("o-1", Note(ODD[::-1]), key=ODD)
                        await tx.send("o-1", Submit(7))
                await caller.commit()
            stored = await engine.of(order).get("o-1")
            assert (stored.version, stored.context) == (3, Order(7, ODD[::-1]))
            history = await engine.history("o-1")
            assert [row.event for row in history] == ["STARTED", "NOTE", "SUBMIT"]
            assert history[1].key == ODD
            assert [row.created_at for row in history] == sorted(row.created_at for row in history)

    run(scenario)


def test_the_bound_on_waiting_does_not_stay_in_the_callers_transaction(postgres_url: str, kind: str) -> None:
    async def scenario() -> None:
        async with shop(postgres_url) as engine, called(kind, postgres_url) as caller:
            await caller.begin()
            async with lent(engine, caller) as tx:
                await tx.start("o-1", Order())
            [(timeout,)] = await caller.execute("SHOW lock_timeout")
            assert timeout == "0"
            await caller.rollback()

    run(scenario)
