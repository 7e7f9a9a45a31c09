"""Changes: each wholly or not at all, in order, checked by revision and key (G1, G3, B2, B3, B5)."""

import asyncio
from dataclasses import dataclass

import msgspec
import pytest

from interlock.errors import InternalError, InvalidPayload
from interlock.store.protocol import Old, Store
from interlock.store.records import Change, Row
from tests.conformance.store.places import ON_A_SERVER_TOO, Place
from tests.conformance.store.samples import MACHINE, begun, effect, letter, moved, nothing_of, run, started

replace = msgspec.structs.replace


@ON_A_SERVER_TOO
def test_what_was_committed_is_read_back_exactly(place: Place) -> None:
    """G2, B3: every field of the row and of its history."""

    async def scenario() -> None:
        async with place.opened() as store:
            first = started(wake_us=7)
            second = moved(first.row, key="k-1", effects=(effect("e"),), letters=(letter("l"),))
            assert await store.commit([first]) == []
            assert await store.load(["w"]) == {"w": first.row}
            assert await store.commit([second]) == []
            assert await store.load(["w", "unknown"]) == {"w": second.row}
            assert await store.history("w") == [*first.history, *second.history]
            assert await store.effects(limit=9) == [effect("e")]
            assert await store.letters() == [letter("l")]

    run(scenario)


@ON_A_SERVER_TOO
def test_a_change_upon_another_revision_is_lost_and_leaves_nothing(place: Place) -> None:
    """G1, B2: neither its row, nor history for a loser, nor what it owes."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            (kept,) = await begun(store, moved(row, state="packed"))
            late = moved(
                row,
                effects=(effect("e"),),
                effects_done=("other",),
                letters=(letter("l"),),
                letters_gone=("other",),
                key="k",
            )
            assert await store.commit([late]) == ["w"]
            ahead = moved(replace(kept, revision=9, version=9), key="k", effects=(effect("e"),))
            assert await store.commit([ahead]) == ["w"]
            assert await store.load(["w"]) == {"w": kept}
            assert [each.to_state for each in await store.history("w")] == ["new", "packed"]
            assert await store.effects(limit=9) == []
            assert await store.letters() == []
            assert await store.delivered([("w", "k")]) == {}

    run(scenario)


@ON_A_SERVER_TOO
def test_only_the_lost_changes_of_a_large_group_are_missing(place: Place) -> None:
    """G1, B2: a store may write many rows with one statement; each of them is kept or lost for itself."""

    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, *(started(f"w-{n}", key="k") for n in range(200)))
            gone = replace(
                (end := moved(rows[150], state="done", at_us=2_000, owed=b"")),
                row=replace(end.row, active=False),
            )
            await begun(store, gone)
            (rows[7],) = await begun(store, moved(rows[7]))
            old = Old(machine=MACHINE, state="done", before_us=3_000)
            assert (await store.prune(old, after=None, limit=10)).workflows == ("w-150",)
            rows[150] = gone.row
            stale = {7, 199}
            group = [
                moved(replace(row, revision=row.revision + 3) if n in stale else row, key="k" if n == 40 else f"k-{n}")
                for n, row in enumerate(rows)
            ]
            more = [started(f"v-{n}" if n != 60 else "w-3") for n in range(140)]
            assert sorted(await store.commit([*group, *(each for n, each in enumerate(more) if n != 60)])) == sorted(
                ["w-7", "w-199", "w-40", "w-150"]
            )
            kept = [each.row for n, each in enumerate(group) if n not in {7, 40, 150, 199}]
            kept += [each.row for n, each in enumerate(more) if n != 60]
            assert await store.load([row.id for row in kept]) == {row.id: row for row in kept}
            assert await store.load(["w-7", "w-199", "w-150"]) == {"w-7": rows[7], "w-199": rows[199]}
            for workflow, count in (("w-7", 2), ("w-199", 1), ("w-40", 1), ("w-150", 0), ("w-0", 2), ("v-139", 1)):
                assert len(await store.history(workflow)) == count, workflow
            # Whatever was lost, the others are found where they are: also those that were started beside a lost start.
            mixed = [started(f"u-{n}" if n % 3 else f"v-{n}") for n in range(100)]
            lost = [each.row.id for each in mixed if each.row.id.startswith("v-") and each.row.id != "v-60"]
            assert await store.commit(mixed) == lost
            kept += [each.row for each in mixed if each.row.id not in lost]
            again = await begun(store, *(moved(row) for row in kept))
            assert await store.load([row.id for row in again]) == {row.id: row for row in again}

    run(scenario)


def test_a_workflow_that_exists_is_not_started_again(place: Place) -> None:
    """B4: whatever it is started with."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            again = started(machine="other", state="elsewhere", key="k", context=b"[]")
            assert await store.commit([again]) == ["w"]
            assert await store.load(["w"]) == {"w": row}
            assert len(await store.history("w")) == 1
            assert await store.delivered([("w", "k")]) == {}

    run(scenario)


def test_a_workflow_that_does_not_exist_is_not_moved(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            ghost = moved(started("ghost").row, effects=(effect("e"),), letters=(letter("l"),), key="k")
            assert await store.commit([ghost]) == ["ghost"]
            await nothing_of(store, "ghost")

    run(scenario)


def test_lost_changes_do_not_touch_their_neighbours(place: Place) -> None:
    """G1: the losers are told in the order given, and everybody else is written."""

    async def scenario() -> None:
        async with place.opened() as store:
            a, b, c = await begun(store, started("a"), started("b"), started("c"))
            group = [
                moved(replace(a, revision=7)),
                moved(b),
                started("c"),
                started("d"),
                moved(started("e").row),
            ]
            assert await store.commit(group) == ["a", "c", "e"]
            assert await store.load(["a", "b", "c", "d", "e"]) == {
                "a": a,
                "b": group[1].row,
                "c": c,
                "d": group[3].row,
            }
            assert [len(await store.history(each)) for each in "abcde"] == [1, 2, 1, 1, 0]

    run(scenario)


def test_a_delivery_key_is_used_once_per_workflow(place: Place) -> None:
    """B5: the second change with the key is lost; another workflow has keys of its own."""

    async def scenario() -> None:
        async with place.opened() as store:
            a, b = await begun(store, started("a", key="start"), started("b"))
            (moved_a,) = await begun(store, moved(a, key="k"))
            for used in ("k", "start"):
                assert await store.commit([moved(moved_a, key=used, effects=(effect("e"),))]) == ["a"]
            assert await store.load(["a"]) == {"a": moved_a}
            assert await store.effects(limit=9) == []
            fresh = started("c", key="k")
            await begun(store, moved(b, key="k"), fresh)
            assert set(await store.delivered([("a", "k"), ("b", "k"), ("c", "k")])) == {
                ("a", "k"),
                ("b", "k"),
                ("c", "k"),
            }

    run(scenario)


def test_a_key_behind_others_in_a_change_is_looked_at_too(place: Place) -> None:
    """B5: several events of one group are one change, and any of their keys may have been used."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            (row,) = await begun(store, moved(row, key="used"))
            one = moved(row, key="fresh")
            two = moved(one.row, key="used")
            both = Change(replace(two.row, revision=one.row.revision), row.revision, (*one.history, *two.history))
            assert await store.commit([both]) == ["w"]
            assert await store.load(["w"]) == {"w": row}
            assert await store.delivered([("w", "fresh")]) == {}

    run(scenario)


def test_a_change_may_have_no_history_or_much(place: Place) -> None:
    """Claims and retries write the row alone; several events of one group write several rows of history."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            claimed = replace(row, owed=b"claimed", revision=2)
            assert await store.commit([Change(claimed, 1)]) == []
            one = moved(claimed)
            two = moved(one.row, state="sent")
            last = replace(two.row, revision=3)
            assert await store.commit([Change(last, 2, (*one.history, *two.history))]) == []
            assert await store.load(["w"]) == {"w": last}
            assert [each.version for each in await store.history("w")] == [1, 2, 3]

    run(scenario)


def test_a_group_with_two_changes_of_a_workflow_is_refused_as_a_whole(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            with pytest.raises(InternalError, match="two changes of workflow 'w'"):
                await store.commit([started("v"), started("w"), started("w")])
            await nothing_of(store, "v", "w")

    run(scenario)


@dataclass
class Contradiction:
    """A change that has something twice which stands in history once."""

    name: str

    def of(self, row: Row) -> Change:
        one = moved(row, key="k")
        two = moved(one.row, key="k" if self.name == "a key twice" else None)
        second = two.history[0]
        if self.name == "a version twice":
            second = replace(second, version=one.row.version)
        if self.name == "a version of long ago":
            second = replace(second, version=1)
        return Change(
            replace(two.row, revision=one.row.revision),
            row.revision,
            (one.history[0], second),
            (effect("e"),),
            letters=(letter("l"),),
        )


@pytest.mark.parametrize("name", ["a key twice", "a version twice", "a version of long ago"])
def test_a_group_that_contradicts_history_leaves_nothing(place: Place, name: str) -> None:
    """G3: nothing of the whole group, its row and its neighbours included."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            with pytest.raises(InternalError):
                await store.commit([started("before"), Contradiction(name).of(row), started("behind")])
            assert await store.load(["before", "w", "behind"]) == {"w": row}
            assert len(await store.history("w")) == 1
            assert await store.effects(limit=9) == []
            assert await store.letters() == []
            await begun(store, moved(row), started("before"))

    run(scenario)


def test_effects_and_letters_are_put_in_changed_and_taken_out(place: Place) -> None:
    """B12: the same id again is the same effect with another count and time."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            (row,) = await begun(store, moved(row, effects=(effect("e"), effect("f")), letters=(letter("l"),)))
            (row,) = await begun(store, moved(row, effects=(effect("e", attempts=4, wake_us=1),)))
            assert await store.effects(limit=9) == [effect("e", attempts=4, wake_us=1), effect("f")]
            (row,) = await begun(store, moved(row, effects_done=("e", "never"), letters=(letter("m"),)))
            assert await store.effects(limit=9) == [effect("f")]
            (row,) = await begun(store, moved(row, letters_gone=("l", "never"), effects_done=("f",)))
            assert await store.effects(limit=9) == []
            assert await store.letters() == [letter("m")]
            await begun(store, moved(row, effects=(effect("g"),), effects_done=("g",)))
            assert await store.effects(limit=9) == []

    run(scenario)


def test_a_change_removes_what_an_earlier_change_of_its_group_has_written(place: Place) -> None:
    """B12: effects and letters are written in the order of the changes, moves and starts in turn."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started())
            owing = replace(started("new"), effects=(effect("e"),), letters=(letter("l"),))
            assert await store.commit([owing, moved(row, effects_done=("e",), letters_gone=("l",))]) == []
            assert await store.effects(limit=9) == []
            assert await store.letters() == []

    run(scenario)


def test_groups_that_are_under_way_together_are_committed_in_their_order(place: Place) -> None:
    """G1: of two changes upon one revision the first one wins, and the next may build upon it."""

    async def scenario() -> None:
        async with place.opened() as store:
            first = started()
            second, rival = moved(first.row, state="paid"), moved(first.row, state="stolen")
            third = moved(second.row, state="packed")
            answers = await asyncio.gather(*(store.commit([each]) for each in (first, second, rival, third)))
            assert answers == [[], [], ["w"], []]
            assert await store.load(["w"]) == {"w": third.row}
            assert [each.to_state for each in await store.history("w")] == ["new", "paid", "packed"]

    run(scenario)


def test_a_number_learned_by_a_group_that_failed_is_not_believed(place: Place) -> None:
    """G1: the next workflow may be given the number of one that was never started."""

    async def scenario() -> None:
        async with place.opened() as store:
            bad = started("gone")
            twice = Change(bad.row, 0, (*bad.history, *bad.history))
            with pytest.raises(InternalError):
                await store.commit([started("first"), twice])
            await begun(store, started("second"))
            assert await store.commit([moved(started("first").row), moved(bad.row)]) == ["first", "gone"]
            assert (await store.load(["second"]))["second"] == started("second").row
            assert len(await store.history("second")) == 1

    run(scenario)


def test_a_reader_beside_never_sees_a_row_without_its_history(place: Place) -> None:
    """G3, G7: whatever is under way, the history is at least as long as the row that was seen before it."""

    async def look(store: Store, under_way: "asyncio.Task[None]") -> None:
        while not under_way.done():
            rows = await store.load(["w"])
            history = await store.history("w")
            assert len(history) >= (rows["w"].version if rows else 0)
            await asyncio.sleep(0)  # A store in memory never lets anybody else in.

    async def move(store: Store) -> None:
        change = started()
        for _ in range(40):
            await begun(store, change)
            change = moved(change.row)

    async def scenario() -> None:
        async with place.opened() as store:
            under_way = asyncio.create_task(move(store))
            await look(store, under_way)
            await under_way
            assert len(await store.history("w")) == 40

    run(scenario)


def test_a_large_context_comes_back_whole(place: Place) -> None:
    """G6: up to `context_bytes_max`, in the row and in history."""

    async def scenario() -> None:
        async with place.opened() as store:
            context = b'"' + "é☂x".encode() * 174_762 + b'"'
            assert len(context) > 1_000_000
            (row,) = await begun(store, started(context=context))
            assert (await store.load(["w"]))["w"].context == context
            assert (await store.history("w"))[0].context == context
            await begun(store, moved(row))

    run(scenario)


@pytest.mark.parametrize("odd", ["nul\x00inside", "\x00", "lone \ud800 surrogate"])
def test_an_odd_text_is_kept_exactly_or_refused_and_harms_nobody(place: Place, odd: str) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started("w"))
            for change in (started(odd), started("x", state=odd), started("y", key=odd), moved(row, state=odd)):
                await kept_or_refused(store, change)
            await begun(store, started("z"))
            assert set(await store.load(["w", "z"])) == {"w", "z"}

    run(scenario)


async def kept_or_refused(store: Store, change: Change) -> None:
    workflow = change.row.id
    before: dict[str, Row] = {}
    try:
        before = await store.load([workflow])
        assert await store.commit([change]) == []
    except InvalidPayload:
        if workflow.isprintable():
            assert await store.load([workflow]) == before
            assert len(await store.history(workflow)) == len(before)
        return
    assert await store.load([workflow]) == {workflow: change.row}
    assert (await store.history(workflow))[-1:] == list(change.history)


def test_an_empty_group_is_no_trouble(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            assert await store.commit([]) == []

    run(scenario)
