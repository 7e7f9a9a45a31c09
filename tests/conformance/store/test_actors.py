"""F1: each row of history keeps its actor, on every store, whatever else is in its group."""

import msgspec

from interlock.store.records import Change, HistoryRecord
from tests.conformance.store.places import Place
from tests.conformance.store.samples import begun, moved, run, started

replace = msgspec.structs.replace


def in_two_steps(change: Change, *actors: str | None) -> Change:
    """The change with a row of history for each actor, the last of which is where the workflow stands."""
    [last] = change.history
    first = last.version - len(actors) + 1
    history = tuple(replace(last, version=first + at, by=by) for at, by in enumerate(actors))
    return replace(change, history=history)


def actors(history: list[HistoryRecord]) -> list[str | None]:
    """The actor of each row."""
    return [each.by for each in history]


def test_the_actors_of_a_group_stay_with_their_rows(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, started("a", by="ada"), started("b"), started("c", by="grace", key="k-1"))
            await begun(store, moved(rows[0], by=None), moved(rows[1], by="linus", key="k-2"), moved(rows[2]))
            found = [actors(await store.history(each)) for each in ("a", "b", "c")]
            assert found == [["ada", None], [None, "linus"], ["grace", "ada ☂"]]

    run(scenario)


def test_each_of_several_moves_in_one_change_has_its_own_actor(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            row, other = await begun(store, started("a"), started("b", by="x" * 200))
            jump = moved(replace(row, version=2))
            await begun(store, in_two_steps(jump, "ada", None), moved(other, by=None))
            assert actors(await store.history("a")) == [None, "ada", None]
            assert actors(await store.history("b")) == ["x" * 200, None]

    run(scenario)


def test_a_group_without_actors_has_none(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            row, other = await begun(store, started("a"), started("b", key="k-1"))
            await begun(store, moved(row, by=None), moved(other, by=None, key="k-2"))
            assert actors(await store.history("a")) + actors(await store.history("b")) == [None] * 4

    run(scenario)
