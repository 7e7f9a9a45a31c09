"""B17: each row of history keeps the attempts that ended before it, on every store, whatever else is in its group."""

import msgspec

from interlock.store.records import Change
from tests.conformance.store.places import Place
from tests.conformance.store.samples import begun, moved, run, started

replace = msgspec.structs.replace

ANY = bytes(range(256))
"""A store does not read them."""


def in_two_steps(change: Change, *attempts: bytes) -> Change:
    """The change with a row of history for each, the last of which is where the workflow stands."""
    [last] = change.history
    first = last.version - len(attempts) + 1
    history = tuple(replace(last, version=first + at, attempts=each) for at, each in enumerate(attempts))
    return replace(change, history=history)


def test_the_attempts_of_a_group_stay_with_their_rows(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, started("a"), started("b"), started("c"))
            await begun(
                store,
                moved(rows[0], attempts=ANY),
                moved(rows[1], attempts=b""),
                in_two_steps(moved(replace(rows[2], version=2)), b"1", b""),
            )
            found = [[each.attempts for each in await store.history(workflow)] for workflow in ("a", "b", "c")]
            assert found == [[b"", ANY], [b"", b""], [b"", b"1", b""]]

    run(scenario)


def test_groups_of_single_moves_keep_them_too(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, started("a"), started("b", key="k-1"))
            await begun(store, moved(rows[0], attempts=ANY), moved(rows[1], attempts=b"", key="k-2"))
            found = [[each.attempts for each in await store.history(workflow)] for workflow in ("a", "b")]
            assert found == [[b"", ANY], [b"", b""]]

    run(scenario)
