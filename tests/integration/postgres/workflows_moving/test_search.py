"""D10, F4: workflows are found wherever they were moved, by what they had before and by what is written there."""

from pathlib import Path
from typing import Any

import msgspec

from interlock.clock import SystemClock
from interlock.core.search import MachineSearch, search_fields, search_of
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from tests.conformance.store.samples import MACHINE, begun, moved, run, started
from tests.integration.postgres.workflows_moving.moves import move


class Context(msgspec.Struct):
    n: int = 0


DECLARED = MachineSearch(MACHINE, 1, search_fields(Context, ("n",), MACHINE, ""))
ASKED: dict[str, Any] = {"updated_after": None, "updated_before": None, "states": (), "limit": 100, "cursor": None}


async def found(store: Store, first: int) -> list[str]:
    """The ids with at least this number, the greatest first; and by the time of the last move as many."""
    if await store.declare_search([DECLARED]):
        while await store.fill_search():
            pass
    by_field = await store.search(search_of(DECLARED, where=[("n", ">=", first)], order="-n", **ASKED))
    by_time = await store.search(search_of(DECLARED, where=[("n", ">=", first)], order="updated_at", **ASKED))
    assert len(by_time.rows) == len(by_field.rows)
    return [row.id for row in by_field.rows]


def test_workflows_are_found_there_and_back_and_there_again(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        assert await found(store, 0) == []
        rows = await begun(store, *(started(f"w{n}", context=b'{"n":%d}' % n) for n in range(10)))
        assert await found(store, 8) == ["w9", "w8"]
        await store.close()
        for epoch, (source, target) in enumerate([(home, postgres_url), (postgres_url, home), (home, postgres_url)], 1):
            await move(source, target, epoch=epoch)
            store = await open_store(target, clock=SystemClock(), epoch=epoch)
            rows = list((await store.load([row.id for row in rows])).values())
            await begun(store, started(f"new{epoch}", context=b'{"n":%d}' % (100 + epoch)))
            [rows[0]] = await begun(store, moved(rows[0], context=b'{"n":%d}' % (200 + epoch)))
            expected = [rows[0].id, *(f"new{each}" for each in range(epoch, 0, -1))]
            assert await found(store, 100) == expected
            assert len(await found(store, 0)) == 10 + epoch
            await store.close()

    run(scenario)
