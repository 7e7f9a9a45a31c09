"""Records of children: written with changes, read by parent, and never set back (E1, E2)."""

import msgspec
import pytest

from interlock.store.protocol import Old, Store
from interlock.store.records import COUNTED, ENDED, LIVING, Change, ChildRecord, Row
from tests.conformance.store.places import Place
from tests.conformance.store.samples import MACHINE, begun, moved, run, started

replace = msgspec.structs.replace


def child(position: int, *, visit: int = 1, stage: int = LIVING, state: str = "") -> ChildRecord:
    """A child of the workflow `p`."""
    return ChildRecord(f"p.{visit}-{position}", "p", visit, position, state, stage)


def with_children(change: Change, *children: ChildRecord) -> Change:
    """The change, and the records."""
    return replace(change, children=children)


def test_children_are_read_by_visit_and_position_in_pages(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            records = [child(position, visit=visit) for visit in (1, 5) for position in range(4)]
            await begun(store, with_children(started("p"), *reversed(records)))
            assert await store.children("p", limit=100) == records
            assert await store.children("p", visit=5, limit=100) == records[4:]
            assert await store.children("p", limit=3) == records[:3]
            assert await store.children("p", after=records[2], limit=3) == records[3:6]
            newest = await store.children("p", newest_first=True, limit=3)
            assert newest == records[::-1][:3]
            assert await store.children("p", newest_first=True, after=newest[-1], limit=100) == records[::-1][3:]
            assert await store.children("q", limit=3) == []

    run(scenario)


def test_pages_leave_out_none_of_the_children_with_one_position(place: Place) -> None:
    """A function that goes over a set gives them in another order in the next process."""

    async def scenario() -> None:
        async with place.opened() as store:
            records = [ChildRecord(f"p.{name}", "p", 1, at) for at, names in enumerate(("Zab", "cé")) for name in names]
            await begun(store, with_children(started("p"), *reversed(records)))
            for newest, wanted in ((False, records), (True, records[::-1])):
                found: list[ChildRecord] = []
                while page := await store.children(
                    "p", after=found[-1] if found else None, limit=1, newest_first=newest
                ):
                    found += page
                assert found == wanted

    run(scenario)


def test_a_record_of_a_lost_change_is_not_written(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started("p"))
            late = with_children(moved(replace(row, revision=7)), child(0))
            assert await store.commit([late]) == ["p"]
            assert await store.children("p", limit=9) == []

    run(scenario)


def test_ends_that_are_not_counted_are_found_until_they_are(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            (row, *_) = await begun(store, started("p"), with_children(started("p.1-0"), child(0), child(1), child(2)))
            assert await store.parents_to_count(limit=9) == []
            (other,) = await begun(
                store,
                with_children(started("x"), *(child(at, stage=ENDED, state="done") for at in (0, 2)),
                              ChildRecord("q.a", "q", 1, 0, "done", ENDED)),
            )  # fmt: skip
            del other
            assert await store.parents_to_count(limit=9) == ["p", "q"]
            assert await store.parents_to_count(limit=1) == ["p"]
            assert await store.parents_to_count(after="p", limit=9) == ["q"]
            ended = await store.ended_children("p", limit=9)
            assert ended == [child(0, stage=ENDED, state="done"), child(2, stage=ENDED, state="done")]
            assert await store.ended_children("p", limit=1) == ended[:1]
            (row,) = await begun(store, with_children(moved(row), *(replace(each, stage=COUNTED) for each in ended)))
            assert await store.ended_children("p", limit=9) == []
            assert await store.parents_to_count(limit=9) == ["q"]

    run(scenario)


def test_a_stage_never_goes_back(place: Place) -> None:
    """An end that is written again does not make the parent count it again."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, with_children(started("p"), child(0, stage=COUNTED, state="done")))
            for stage in (ENDED, LIVING):
                (row,) = await begun(store, with_children(moved(row), child(0, stage=stage, state="again")))
            assert await store.children("p", limit=9) == [child(0, stage=COUNTED, state="done")]

    run(scenario)


def test_start_and_end_in_one_change_is_an_end(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            await begun(store, with_children(started("p.1-0"), child(0), child(0, stage=ENDED, state="done")))
            assert await store.ended_children("p", limit=9) == [child(0, stage=ENDED, state="done")]

    run(scenario)


def test_a_parent_stays_until_it_has_counted_its_children_and_takes_their_records_along(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            (row, *_) = await begun(store, with_children(started("p", active=False), child(0)), started("last"))
            old = Old(machine=MACHINE, state="new", before_us=10**15)
            assert (await _pruned(store, old)) == ()
            await begun(store, with_children(_idle(row), child(0, stage=COUNTED, state="done")))
            old = Old(machine=MACHINE, state="paid", before_us=10**15)
            assert (await _pruned(store, old)) == ("p",)
            assert await store.children("p", limit=9) == []

    run(scenario)


@pytest.mark.parametrize("stage", [LIVING, ENDED])
def test_a_parent_with_children_that_it_has_not_counted_is_never_removed(place: Place, stage: int) -> None:
    """Else the end of a child is a record of a parent that does not exist, and is looked for without end."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row, *_) = await begun(store, with_children(started("p"), child(0, stage=stage)), started("last"))
            await begun(store, _idle(row))
            old = Old(machine=MACHINE, state="paid", before_us=10**15, owing=True)
            assert (await _pruned(store, old)) == ()
            assert (await store.prune(old, after=None, limit=10, dry_run=True)).workflows == ()
            assert (await _pruned(store, replace(old, owing=False, history_only=True))) == ()
            assert (await _pruned(store, replace(old, history_only=True))) == ("p",)
            assert await store.children("p", limit=9) == [child(0, stage=stage)]

    run(scenario)


def test_a_child_stays_while_its_parent_is_in_the_visit_that_started_it(place: Place) -> None:
    """Else the join misses its context, and a start that is repeated makes it begin again."""

    async def scenario() -> None:
        async with place.opened() as store:
            one = with_children(started("p.1-0", active=False), child(0, stage=COUNTED, state="done"))
            (row, *_) = await begun(store, started("p"), one, started("last"))
            old = Old(machine=MACHINE, state="new", before_us=10**15, owing=True)
            assert (await _pruned(store, old)) == ()
            assert (await store.prune(old, after=None, limit=10, dry_run=True)).workflows == ()
            assert (await _pruned(store, replace(old, history_only=True))) == ("p.1-0",)
            left = moved(row)
            await begun(store, replace(left, row=replace(left.row, visit=2)))
            assert (await _pruned(store, old)) == ("p.1-0",)

    run(scenario)


def _idle(row: Row) -> Change:
    change = moved(row, owed=b"")
    return replace(change, row=replace(change.row, active=False))


async def _pruned(store: Store, old: Old) -> tuple[str, ...]:
    return (await store.prune(old, after=None, limit=10)).workflows
