"""Reads: what is durable and nothing else, in the order that is promised, in pages (G7, B3, B7, B8)."""

import pytest

from interlock.errors import InvalidPayload
from interlock.store.protocol import Store
from interlock.store.records import Delivered, Letter, OwedEffect
from tests.conformance.store.places import ON_A_SERVER_TOO, Place
from tests.conformance.store.samples import MACHINE, begun, effect, letter, moved, run, started

MANY = 10_000


def test_a_load_of_very_many_ids_is_one_call(place: Place) -> None:
    """No store has a ceiling on parameters that a caller could meet."""

    async def scenario() -> None:
        async with place.opened() as store:
            ids = [f"w-{number}" for number in range(MANY)]
            await begun(store, *(started(each) for each in ids[:MANY:2]))
            assert set(await store.load(ids)) == set(ids[:MANY:2])
            assert await store.delivered([(each, "k") for each in ids]) == {}
            assert await store.load([]) == {}
            assert await store.delivered([]) == {}

    run(scenario)


def test_a_read_sees_every_commit_that_has_returned(place: Place) -> None:
    """G7: never a stale row."""

    async def scenario() -> None:
        async with place.opened() as store:
            change = started()
            for version in range(1, 30):
                await begun(store, change)
                assert (await store.load(["w"]))["w"].version == version
                assert len(await store.history("w")) == version
                change = moved(change.row)

    run(scenario)


def test_a_delivery_key_tells_what_it_was_used_for(place: Place) -> None:
    """B5."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started(key="first"))
            await begun(store, moved(row, key="second", digest=b"\x00\x01"))
            assert await store.delivered([("w", "first"), ("w", "second"), ("w", "third"), ("v", "first")]) == {
                ("w", "first"): Delivered(1, "new", b"d"),
                ("w", "second"): Delivered(2, "paid", b"\x00\x01"),
            }

    run(scenario)


@ON_A_SERVER_TOO
def test_history_is_in_the_order_of_versions_whatever_the_clock_said(place: Place) -> None:
    """B3: also when time stood still or went back between two machines."""

    async def scenario() -> None:
        async with place.opened() as store:
            (row,) = await begun(store, started(at_us=900))
            for at_us in (500, 500, 1, 700):
                (row,) = await begun(store, moved(row, at_us=at_us))
            assert [each.created_us for each in await store.history("w")] == [900, 500, 500, 1, 700]
            assert [each.version for each in await store.history("w", after=2)] == [3, 4, 5]
            assert [each.version for each in await store.history("w", after=1, limit=2)] == [2, 3]
            assert await store.history("w", after=5) == []
            assert await store.history("nobody") == []

    run(scenario)


async def found(store: Store, state: str | None, *, limit: int, machine: str = MACHINE) -> list[str]:
    """All pages, one after the other; every page but the last is full."""
    ids: list[str] = []
    after: str | None = None
    while True:
        page = await store.find(machine, state, after=after, limit=limit)
        ids += [row.id for row in page.rows]
        after = page.cursor
        if after is None:
            return ids
        assert len(page.rows) == limit


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_workflows_are_found_in_the_order_of_their_creation(place: Place, limit: int) -> None:
    """B8: in pages, and only those of the machine."""

    async def scenario() -> None:
        async with place.opened() as store:
            ids = ["z", "b", "a", "y", "c", "x"]
            for each in ids:
                await begun(store, started(each, at_us=100), started(f"other-{each}", machine="other"))
            (row,) = (await store.load(["b"])).values()
            await begun(store, moved(row))
            assert await found(store, None, limit=limit) == ids
            assert await found(store, None, limit=limit, machine="unknown") == []

    run(scenario)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_workflows_of_a_state_are_found_in_the_order_they_came_there(place: Place, limit: int) -> None:
    """B8: those that came at the same moment in the order of their creation."""

    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, *(started(each) for each in "abcdef"))
            a, b, c, d, e, _ = rows
            await begun(store, moved(a, at_us=900), moved(b, at_us=500), moved(c, at_us=500), moved(d, at_us=500))
            await begun(store, moved(e, at_us=100))
            assert await found(store, "paid", limit=limit) == ["e", "b", "c", "d", "a"]
            assert await found(store, "new", limit=limit) == ["f"]
            assert await found(store, "elsewhere", limit=limit) == []

    run(scenario)


def test_a_workflow_that_leaves_between_two_pages_hides_no_other(place: Place) -> None:
    """B8: a page begins behind the place where the last one ended, also when nobody stands there any more."""

    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, *(started(each, at_us=7) for each in "abcde"))
            page = await store.find(MACHINE, "new", after=None, limit=2)
            await begun(store, *(moved(row) for row in rows[:3]))
            rest = await store.find(MACHINE, "new", after=page.cursor, limit=2)
            assert [row.id for row in (*page.rows, *rest.rows)] == ["a", "b", "d", "e"]
            assert rest.cursor is None

    run(scenario)


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "1.x", "w", "1.1 ", "1.1; DROP TABLE workflows", "٣.٣"])
def test_what_no_page_has_given_is_no_cursor(place: Place, cursor: str) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            with pytest.raises(InvalidPayload, match="is not a cursor"):
                await store.find(MACHINE, None, after=cursor, limit=1)

    run(scenario)


def test_stalled_workflows_are_those_too_long_in_an_active_state(place: Place) -> None:
    """B7: longest first, by the time of each state, and none that rests or has ended."""

    async def scenario() -> None:
        async with place.opened() as store:
            await begun(
                store,
                started("young", at_us=500),
                started("old", at_us=100),
                started("older", at_us=50),
                started("exactly", at_us=300),
                started("resting", at_us=10, active=False),
                started("other-state", at_us=20, state="paid"),
                started("unasked", at_us=1, state="lost"),
                started("other-machine", machine="other", at_us=1),
            )
            asked = {"new": 300, "paid": 21, "empty": 900}
            assert [row.id for row in await store.stalled(MACHINE, asked, limit=9)] == ["other-state", "older", "old"]
            assert [row.id for row in await store.stalled(MACHINE, asked, limit=2)] == ["other-state", "older"]
            assert await store.stalled(MACHINE, {}, limit=9) == []
            assert await store.stalled(MACHINE, {"paid": 20}, limit=9) == []

    run(scenario)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_owed_effects_come_soonest_first_and_in_pages(place: Place, limit: int) -> None:
    """B12."""

    async def scenario() -> None:
        async with place.opened() as store:
            owed = [effect("d", wake_us=1), effect("a", wake_us=5), effect("c", wake_us=5), effect("b", wake_us=9)]
            (row,) = await begun(store, started())
            await begun(store, moved(row, effects=tuple(reversed(owed))))
            found_ones: list[OwedEffect] = []
            last: OwedEffect | None = None
            while page := await store.effects(after=last, limit=limit):
                found_ones += page
                last = page[-1]
            assert found_ones == owed

    run(scenario)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_dead_letters_come_oldest_first_and_in_pages(place: Place, limit: int) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            letters = [
                letter("d", since_us=1, kind="step"),
                letter("a", since_us=5),
                letter("c", since_us=5, kind="step"),
                letter("b", since_us=9),
            ]
            (row,) = await begun(store, started())
            await begun(store, moved(row, letters=tuple(reversed(letters))))
            for kind, wanted in ((None, letters), ("step", letters[::2]), ("undo", [])):
                found_ones: list[Letter] = []
                last: Letter | None = None
                while page := await store.letters(kind, after=last, limit=limit):
                    found_ones += page
                    last = page[-1]
                assert found_ones == wanted

    run(scenario)


def test_the_letters_of_one_workflow(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            mine = [letter("b", since_us=3, kind="step"), letter("c", since_us=4)]
            v, w = await begun(store, started("v"), started("w"))
            await begun(
                store, moved(v, letters=(letter("a", since_us=1, workflow="v"),)), moved(w, letters=tuple(mine))
            )
            assert await store.letters(workflow="w") == mine
            assert await store.letters("effect", workflow="w") == mine[1:]
            assert await store.letters(workflow="w", after=mine[0]) == mine[1:]
            assert await store.letters(workflow="x") == []

    run(scenario)


def test_the_living_are_counted_by_machine_version_and_state(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            assert await store.living() == {}
            a, *_ = await begun(
                store, started("a"), started("b"), started("c", machine_version=2), started("d", machine="other")
            )
            await begun(store, moved(a))
            assert await store.living() == {
                (MACHINE, 1, "paid"): 1,
                (MACHINE, 1, "new"): 1,
                (MACHINE, 2, "new"): 1,
                ("other", 1, "new"): 1,
            }

    run(scenario)


def test_the_last_note_under_a_name_stays(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            assert await store.notes() == {}
            await store.note("shape", "one")
            await store.note("other", "")
            await store.note("shape", "two ☂")
            assert await store.notes() == {"shape": "two ☂", "other": ""}

    run(scenario)
