"""Pruning: what is final and old leaves, batch by batch, with everything of its own and nothing of others (B4)."""

import msgspec
import pytest

from interlock.store.protocol import Old, Store
from interlock.store.records import Change, Cursor, Row
from tests.conformance.store.places import Place
from tests.conformance.store.samples import MACHINE, begun, effect, letter, moved, run, started

replace = msgspec.structs.replace

BEFORE_US = 10_000
OLD = Old(machine=MACHINE, state="done", before_us=BEFORE_US)


def ended(before: Row, **more: object) -> Change:
    """A workflow ends."""
    change = moved(before, state="done", owed=b"", **more)  # type: ignore[arg-type]
    return replace(change, row=replace(change.row, active=False))


async def filled(store: Store) -> None:
    """Workflows of every kind, and behind all of them one that is young: a lane keeps the last of all."""
    ids = ("old", "older", "young", "owing", "lettered", "leased", "active", "resting", "other", "last")
    rows = dict(zip(ids, await begun(store, *(started(each, key="k") for each in ids)), strict=True))
    await begun(
        store,
        ended(rows["old"], at_us=5_000, key="click"),
        ended(rows["older"], at_us=4_000),
        ended(rows["young"], at_us=BEFORE_US),
        ended(rows["owing"], at_us=3_000, effects=(effect("e", workflow="owing"),)),
        ended(rows["lettered"], at_us=3_000, letters=(letter("l", workflow="lettered"),)),
        ended(rows["leased"], at_us=3_000, wake_us=1),
        moved(rows["active"], state="done", at_us=3_000),
        replace((rest := moved(rows["resting"], at_us=3_000)), row=replace(rest.row, active=False)),
        moved(rows["other"], state="paid", at_us=3_000),
    )


async def prune(store: Store, old: Old, *, limit: int = 100, dry_run: bool = False) -> tuple[list[str], int, int]:
    """All batches: which workflows, how many rows of history, how many batches."""
    after: Cursor | None = None
    workflows: list[str] = []
    events = batches = 0
    while True:
        batch = await store.prune(old, after=after, limit=limit, dry_run=dry_run)
        workflows += batch.workflows
        events, batches, after = events + batch.events, batches + 1, batch.after
        if after is None:
            return sorted(workflows), events, batches


def test_only_what_is_final_and_old_and_owes_nothing_leaves(place: Place) -> None:
    """Never an active one, a resting one, or one that must be woken."""

    async def scenario() -> None:
        async with place.opened() as store:
            await filled(store)
            assert await prune(store, OLD) == (["old", "older"], 4, 1)
            assert await prune(store, OLD) == ([], 0, 1)
            everybody = (await store.find(MACHINE, None, after=None, limit=99)).rows
            assert [row.id for row in everybody] == [
                "young", "owing", "lettered", "leased", "active", "resting", "other", "last",
            ]  # fmt: skip
            assert await store.load(["old", "older"]) == {}
            assert await store.history("old") == []
            assert await store.delivered([("old", "k"), ("old", "click")]) == {}
            assert [len(await store.history(row.id)) for row in everybody] == [2] * 7 + [1]
            assert len(await store.effects(limit=9)) == len(await store.letters(limit=9)) == 1

    run(scenario)


def test_what_owes_something_leaves_when_it_is_told_to_with_what_it_owes(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            await filled(store)
            assert (await prune(store, replace(OLD, owing=True)))[0] == ["lettered", "old", "older", "owing"]
            assert not await store.effects(limit=9)
            assert not await store.letters(limit=9)

    run(scenario)


def test_history_alone_leaves_and_a_repeated_start_is_still_known(place: Place) -> None:
    """B4: the digest stays on the workflow."""

    async def scenario() -> None:
        async with place.opened() as store:
            await filled(store)
            before = await store.load(["old", "older"])
            assert await prune(store, replace(OLD, history_only=True)) == (["old", "older"], 4, 1)
            assert await prune(store, replace(OLD, history_only=True)) == ([], 0, 1), "there is nothing left of them"
            assert await store.load(["old", "older"]) == before
            assert await store.history("old") == []
            assert await store.delivered([("old", "click")]) == {}
            assert await prune(store, OLD) == (["old", "older"], 0, 1)

    run(scenario)


@pytest.mark.parametrize("history_only", [False, True])
def test_a_dry_run_counts_the_same_and_removes_nothing(place: Place, *, history_only: bool) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            await filled(store)
            old = replace(OLD, history_only=history_only)
            counted = await prune(store, old, dry_run=True)
            assert await prune(store, old, dry_run=True, limit=2) == (*counted[:2], 4)
            assert await prune(store, old) == counted

    run(scenario)


def test_batches_are_bounded_and_go_on_where_the_last_one_ended(place: Place) -> None:
    """Also where many came to the state at the same time, and where some of them stay."""

    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, *(started(f"w-{number:02}") for number in range(25)), started("last"))
            await begun(
                store,
                *(
                    ended(row, at_us=3_000, effects=(effect(f"e-{row.id}", workflow=row.id),) * (number % 5 == 0))
                    for number, row in enumerate(rows[:-1])
                ),
            )
            batch = await store.prune(OLD, after=None, limit=10)
            assert len(batch.workflows) == 8, "it has looked at ten"
            assert batch.after is not None
            workflows, events, batches = await prune(store, OLD, limit=10)
            assert (len(workflows), events, batches) == (12, 24, 2)
            assert len((await store.find(MACHINE, "done", after=None, limit=99)).rows) == 5

    run(scenario)


def test_an_id_that_was_pruned_can_be_started_again(place: Place) -> None:
    """And pages that were begun before neither hide it nor show another twice."""

    async def scenario() -> None:
        async with place.opened() as store:
            await filled(store)
            page = await store.find(MACHINE, None, after=None, limit=5)
            await prune(store, OLD)
            await begun(store, started("old", context=b'{"n":7}'))
            rest = await store.find(MACHINE, None, after=page.cursor, limit=99)
            assert [row.id for row in rest.rows] == ["leased", "active", "resting", "other", "last", "old"]
            assert [row.version for row in await store.history("old")] == [1]
            [again] = (await store.load(["old"])).values()
            await begun(store, moved(again, key="click"))

    run(scenario)


def test_whoever_decided_upon_a_pruned_workflow_has_lost(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            await filled(store)
            [stale] = (await store.load(["old"])).values()
            await prune(store, OLD)
            assert await store.commit([moved(stale)]) == ["old"]
            assert await store.load(["old"]) == {}
            assert await store.history("old") == []

    run(scenario)
