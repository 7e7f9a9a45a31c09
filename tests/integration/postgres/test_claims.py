"""Claims: each row to one claimer, again after its lease, with a higher token each time (C10, C11, G4)."""

import asyncio
import uuid

import msgspec

from interlock.store.protocol import Holder
from interlock.store.records import FREE, HOLD, Change
from tests.conformance.store.samples import MACHINE, begun, effect, moved, run, started
from tests.integration.postgres.stores import opened, several, somebody

replace = msgspec.structs.replace

LONG_S = 600.0
OVER_S = -1.0
"""A lease that is over when it is given, by the database's clock: nobody has to wait for it."""

FUTURE_US = 10**16
"""In the year 2286."""


def holder(owner: str, lease_s: float = LONG_S) -> Holder:
    """An engine that commits."""
    return Holder(owner, lease_s, str(uuid.uuid4()))


def held(change: Change, lease: int = 1) -> Change:
    """The change as one who looks after the workflow from then on makes it."""
    return replace(change, row=replace(change.row, lease=lease), hold=HOLD)


def test_two_claimers_never_get_the_same_workflow(postgres_url: str) -> None:
    """C10: however often and however much at once they ask."""

    async def scenario() -> None:
        async with several(postgres_url, 4) as stores:
            ids = [f"w-{number}" for number in range(300)]
            await begun(stores[0], *(started(each, wake_us=1_000) for each in ids))
            claims = await asyncio.gather(
                *(
                    store.claim(MACHINE, owner=f"o-{at}", limit=20, lease_s=LONG_S)
                    for _ in range(6)
                    for at, store in enumerate(stores)
                )
            )
            got = [row.id for claimed in claims for row in claimed]
            assert len(got) == len(set(got))
            while more := await stores[0].claim(MACHINE, owner="last", limit=50, lease_s=LONG_S):
                got += [row.id for row in more]
            assert sorted(got) == sorted(ids)

    run(scenario)


def test_only_what_is_due_and_of_the_machines_asked_for_is_claimed(postgres_url: str) -> None:
    """The longest due first, and no more than asked for."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await begun(
                store,
                started("late", wake_us=9_000),
                started("latest", wake_us=5_000),
                started("future", wake_us=FUTURE_US),
                started("never"),
                started("other", machine="other", wake_us=1),
            )
            first = await store.claim(MACHINE, owner="o", limit=1, lease_s=LONG_S)
            rest = await store.claim(MACHINE, owner="o", limit=9, lease_s=LONG_S)
            assert [row.id for row in (*first, *rest)] == ["latest", "late"]
            assert [row.id for row in await store.claim("other", owner="o", limit=9, lease_s=LONG_S)] == ["other"]

    run(scenario)


def test_a_lease_that_is_over_is_claimed_again_with_a_higher_token(postgres_url: str) -> None:
    """G4, C11: by the database's clock alone."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            await begun(one, started(wake_us=1_000))
            (first,) = await one.claim(MACHINE, owner="one", limit=9, lease_s=OVER_S)
            (second,) = await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S)
            assert (first.id, first.lease, second.lease) == ("w", 1, 2)
            assert second.revision == first.revision + 1
            assert second.version == first.version == 1
            assert await one.claim(MACHINE, owner="one", limit=9, lease_s=LONG_S) == []
            assert await one.renew({"w": first.lease}, owner="one", lease_s=LONG_S) == {"w"}
            assert await two.renew({"w": second.lease}, owner="two", lease_s=LONG_S) == set()

    run(scenario)


def test_what_a_former_holder_decided_is_lost(postgres_url: str) -> None:
    """G4: it was frozen past its lease, and wakes up with a result."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (frozen, other):
            await begun(frozen, started(wake_us=1_000))
            (mine,) = await frozen.claim(MACHINE, owner="frozen", limit=9, lease_s=OVER_S)
            (theirs,) = await other.claim(MACHINE, owner="other", limit=9, lease_s=LONG_S)
            assert await frozen.commit([moved(mine)]) == ["w"]
            assert await other.commit([moved(theirs)]) == []

    run(scenario)


def test_a_lease_that_is_renewed_is_kept_and_one_that_is_released_is_due_at_once(postgres_url: str) -> None:
    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            await begun(one, started(wake_us=1_000))
            (mine,) = await one.claim(MACHINE, owner="one", limit=9, lease_s=OVER_S)
            assert await one.renew({"w": mine.lease}, owner="one", lease_s=LONG_S) == set()
            assert await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S) == []
            assert await two.release({"w": mine.lease}, owner="two") == {"w"}, "it is not theirs to give"
            assert await one.release({"w": mine.lease, "unknown": 1}, owner="one") == {"unknown"}
            assert await one.renew({"w": mine.lease}, owner="one", lease_s=LONG_S) == {"w"}
            (theirs,) = await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S)
            assert theirs.lease == mine.lease + 1
            assert await one.renew({}, owner="one", lease_s=LONG_S) == set()

    run(scenario)


def test_a_lease_ends_with_the_visit_it_was_taken_for_and_not_before(postgres_url: str) -> None:
    """An event that does not leave the state lets its step go on; one that leaves it makes the next one due."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            await begun(one, started(wake_us=1_000))
            (mine,) = await one.claim(MACHINE, owner="one", limit=9, lease_s=LONG_S)
            row = (await two.load(["w"]))["w"]
            stayed = replace(row, revision=row.revision + 1)
            assert await two.commit([Change(stayed, row.revision)]) == []
            assert await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S) == []
            assert await one.renew({"w": mine.lease}, owner="one", lease_s=LONG_S) == set()
            await begun(two, moved(stayed, wake_us=2_000))
            assert await one.renew({"w": mine.lease}, owner="one", lease_s=LONG_S) == {"w"}
            (theirs,) = await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S)
            assert theirs.lease == mine.lease + 1

    run(scenario)


def test_a_row_that_somebody_is_writing_is_skipped_and_its_lease_is_not_lost(postgres_url: str) -> None:
    """B11: a caller's open transaction blocks neither claims nor heartbeats."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            await begun(store, started("a", wake_us=1_000), started("b", wake_us=1_000))
            claimed = await store.claim(MACHINE, owner="o", limit=9, lease_s=OVER_S)
            transaction = caller.transaction()
            await transaction.start()
            await caller.execute("SELECT 1 FROM workflows WHERE id = 'a' FOR UPDATE")
            leases = {row.id: row.lease for row in claimed}
            assert await store.renew(leases, owner="o", lease_s=OVER_S) == set()
            assert [row.id for row in await store.claim(MACHINE, owner="p", limit=9, lease_s=LONG_S)] == ["b"]
            await transaction.rollback()
            assert await store.renew(leases, owner="o", lease_s=LONG_S) == {"b"}

    run(scenario)


def test_leases_and_due_workflows_are_shown_to_people(postgres_url: str) -> None:
    """B1: who holds it, and until when."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            await begun(store, started("a", wake_us=1_000), started("b", wake_us=2_000))
            assert [row["id"] for row in await caller.fetch("SELECT id FROM workflows_due ORDER BY due_at")] == [
                "a",
                "b",
            ]
            await store.claim(MACHINE, owner="worker-7", limit=1, lease_s=LONG_S)
            assert [tuple(row) for row in await caller.fetch("SELECT id, lease_owner FROM workflow_leases")] == [
                ("a", "worker-7")
            ]
            assert [row["id"] for row in await caller.fetch("SELECT id FROM workflows_due")] == ["b"]

    run(scenario)


def test_a_commit_can_hold_what_it_makes_due(postgres_url: str) -> None:
    """G4, C10: a step that was just committed is run here at once, and nobody else claims it meanwhile."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            (old,) = await begun(one, started("old"))
            group = [
                held(started("new", wake_us=1_000)),
                held(moved(old, wake_us=1_000)),
                started("free", wake_us=1_000),
            ]
            assert await one.commit_as(group, holder("one")) == []
            rows = await two.load(["new", "old", "free"])
            assert {row.id: (row.lease, row.holder) for row in rows.values()} == {
                "new": (1, "one"),
                "old": (1, "one"),
                "free": (0, ""),
            }
            assert [row.id for row in await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S)] == ["free"]
            assert await one.renew({"new": 1, "old": 1}, owner="one", lease_s=OVER_S) == set()
            taken = await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S)
            assert {row.id: row.lease for row in taken} == {"new": 2, "old": 2}
            assert await one.commit_as([held(moved(group[1].row), 2)], holder("one")) == ["old"]

    run(scenario)


def test_a_commit_that_stays_in_the_state_leaves_the_lease_to_its_holder_unless_it_says_otherwise(
    postgres_url: str,
) -> None:
    """An event that stays in the state is written by whoever was sent it; the step goes on where it runs."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            assert await one.commit_as([held(started(wake_us=1_000))], holder("one")) == []
            row = (await two.load(["w"]))["w"]
            stays = replace(row, revision=row.revision + 1)
            assert await two.commit_as([Change(stays, row.revision)], holder("two")) == []
            assert await one.renew({"w": 1}, owner="one", lease_s=LONG_S) == set()
            assert (await two.load(["w"]))["w"].holder == "one"
            freed = replace(stays, revision=stays.revision + 1)
            assert await one.commit_as([Change(freed, stays.revision, hold=FREE)], holder("one")) == []
            (claimed,) = await two.claim(MACHINE, owner="two", limit=9, lease_s=LONG_S)
            assert claimed.lease == 2
            assert await one.renew({"w": 1}, owner="one", lease_s=LONG_S) == {"w"}

    run(scenario)


def test_tokens_never_go_back(postgres_url: str) -> None:
    """G4: whatever a commit says about them."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            await begun(store, started(wake_us=1_000))
            (row,) = await store.claim(MACHINE, owner="o", limit=9, lease_s=LONG_S)
            await begun(store, moved(replace(row, lease=0)))
            assert (await store.load(["w"]))["w"].lease == 1

    run(scenario)


def test_an_effect_is_given_to_one_who_tries_it_until_its_lease_is_over(postgres_url: str) -> None:
    """B12, C10: soonest first, and again when nobody has said what became of it."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            (row,) = await begun(one, started())
            owed = [effect("b", wake_us=2_000), effect("a", wake_us=1_000), effect("later", wake_us=FUTURE_US)]
            (row,) = await begun(one, moved(row, effects=tuple(owed)))
            assert await one.claim_effects([MACHINE], owner="one", limit=1, lease_s=LONG_S) == [owed[1]]
            assert await two.claim_effects([MACHINE], owner="two", limit=9, lease_s=OVER_S) == [owed[0]]
            assert await one.claim_effects([MACHINE], owner="one", limit=9, lease_s=LONG_S) == [owed[0]]
            assert await two.claim_effects([MACHINE], owner="two", limit=9, lease_s=LONG_S) == []
            again = effect("a", wake_us=3_000, attempts=1)
            change = replace(moved(row, effects_done=("b",)), effects_again=((again, 0), (effect("done long ago"), 0)))
            await begun(one, change)
            assert await two.claim_effects([MACHINE], owner="two", limit=9, lease_s=LONG_S) == [again]
            assert [each.id for each in await one.effects(limit=9)] == ["a", "later"]
            await one.release_effects(["a"], owner="one")
            assert await one.claim_effects([MACHINE], owner="one", limit=9, lease_s=LONG_S) == []
            await two.release_effects(["a"], owner="two")
            assert await one.claim_effects([MACHINE], owner="one", limit=9, lease_s=LONG_S) == [again]

    run(scenario)


def test_a_commit_can_hold_the_effects_that_it_owes(postgres_url: str) -> None:
    """B12: tried at once where they were committed, and not by others meanwhile."""

    async def scenario() -> None:
        async with several(postgres_url, 2) as (one, two):
            (row,) = await begun(one, started())
            change = replace(moved(row, effects=(effect("mine"), effect("free"))), effects_held=("mine",))
            assert await one.commit_as([change], holder("one")) == []
            assert await two.claim_effects([MACHINE], owner="two", limit=9, lease_s=LONG_S) == [effect("free")]
            await two.renew_effects(["mine"], owner="two", lease_s=OVER_S)
            assert await two.claim_effects([MACHINE], owner="two", limit=9, lease_s=LONG_S) == []
            await one.renew_effects(["mine"], owner="one", lease_s=OVER_S)
            assert await two.claim_effects([MACHINE], owner="two", limit=9, lease_s=LONG_S) == [effect("mine")]
            assert await one.effects(limit=9) == [effect("free"), effect("mine")]

    run(scenario)


def test_claimers_of_effects_never_get_the_same(postgres_url: str) -> None:
    async def scenario() -> None:
        async with several(postgres_url, 3) as stores:
            (row,) = await begun(stores[0], started())
            await begun(stores[0], moved(row, effects=tuple(effect(f"e-{number}") for number in range(60))))
            claims = await asyncio.gather(
                *(
                    store.claim_effects([MACHINE], owner=f"o-{at}", limit=7, lease_s=LONG_S)
                    for _ in range(4)
                    for at, store in enumerate(stores)
                )
            )
            got = [each.id for claimed in claims for each in claimed]
            assert len(got) == len(set(got))

    run(scenario)
