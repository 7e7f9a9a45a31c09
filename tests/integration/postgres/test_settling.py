"""G9: whether a group happened is settled for ever: what has not happened never will, also not by a late first try."""

import asyncio
import uuid

import msgspec
import pytest

from interlock.errors import UnavailableError
from interlock.store.postgres import store
from interlock.store.protocol import Holder
from interlock.store.records import Change
from tests.conformance.store.samples import MACHINE, begun, moved, run, started
from tests.integration.postgres.stores import opened, somebody

replace = msgspec.structs.replace

FIRST, SECOND = (str(uuid.UUID(int=number)) for number in (1, 2))


def enveloped(envelope: str) -> Holder:
    """An engine that commits a group with this envelope."""
    return Holder("engine", 30.0, envelope)


def test_each_change_of_a_group_is_settled_for_itself(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as store:
            rows = await begun(store, *(started(each) for each in ("done", "other", "gone")))
            group = [moved(row) for row in rows]
            assert await store.commit_as(group[:1], enveloped(FIRST)) == []
            assert await store.commit_as(group[1:2], enveloped(SECOND)) == []
            assert await store.settle(group, FIRST) == {"done"}
            assert await store.commit_as(group, enveloped(FIRST)) == ["done", "other", "gone"], "a late first try"
            assert await store.settle(group, FIRST) == {"done"}, "it is the same whenever it is asked"

    run(scenario)


def test_a_change_without_history_is_known_by_what_it_left(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await begun(store, started(wake_us=1))
            (claimed,) = await store.claim(MACHINE, owner="engine", limit=1, lease_s=30)
            left = replace(claimed, owed=b'{"dead":"step"}', revision=claimed.revision + 1)
            owed = Change(left, claimed.revision, hold=False)
            assert await store.commit_as([owed], enveloped(FIRST)) == []
            assert await store.settle([owed], FIRST) == {"w"}

    run(scenario)


def test_whoever_settles_waits_for_a_caller_that_holds_the_row_but_not_for_ever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_WAIT_MS", 20)

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started())
            async with caller.transaction():
                await caller.execute("SELECT FROM workflows WHERE id = 'w' FOR UPDATE")
                with pytest.raises(UnavailableError, match="has locked a workflow"):
                    await store.settle([moved(row)], FIRST)
            assert await store.settle([moved(row)], FIRST) == set()

    run(scenario)


def test_a_worker_without_machines_finds_nothing_due(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await begun(store, started(wake_us=1))
            due = await store.due([])
            assert (due.machines, due.effects_us) == ({}, None)
            assert (await store.due([MACHINE])).machines == {MACHINE: 1}
            assert await store.renew({}, owner="o", lease_s=1) == set()

    run(scenario)


def test_a_hint_is_heard_by_others_and_a_lost_ear_listens_again(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as store, opened(postgres_url) as other:
            await other.hinted()
            waiting = asyncio.ensure_future(other.hinted())
            await store.hint()
            await waiting
            waiting = asyncio.ensure_future(other.hinted())
            link = other._hints._link
            assert link is not None
            link.driver.terminate()
            await waiting
            waiting = asyncio.ensure_future(other.hinted())
            await store.hint()
            await waiting
            assert other._hints._link is not link

    run(scenario)
