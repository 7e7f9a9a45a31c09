"""Between two looks a scan tells of every workflow, and of everything beside it, that was written."""

from pathlib import Path

import apsw

from interlock.clock import SystemClock
from interlock.relocate.workflows.bucket_source import Scanning
from interlock.relocate.workflows.lane_source import Source
from interlock.store.open import open_store
from interlock.store.protocol import Old
from tests.conformance.store.samples import begun, effect, moved, run, started


def test_everything_that_was_written_since_the_last_look_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_store(f"lanes://{tmp_path}/home", clock=SystemClock())
        rows = await begun(
            store, *(started(f"w{at}", state="done", active=False, at_us=at) for at in range(5)), started("last")
        )
        await store.note("a", "1")
        await store.note("b", "1")
        connection = apsw.Connection(str(tmp_path / "home" / "workflows.lane"))
        source, scanning = Source(connection), Scanning()
        assert [key for _, _, key in scanning.look(source)] == [(1,), (2,), (3,), (4,), (5,), (6,), ("a",), ("b",)]
        assert scanning.look(source) == []
        await begun(store, moved(rows[4], effects=(effect("e"),)))
        await store.note("b", "2")
        old = Old(machine="order", state="done", before_us=1)
        assert (await store.prune(old, after=None, limit=9)).workflows == ("w0",)
        old = Old(machine="order", state="done", before_us=2, history_only=True)
        assert (await store.prune(old, after=None, limit=9)).events == 1
        await store.leases.acquire("l", "me", 1.0)
        assert sorted(scanning.look(source)) == [
            (9, "workflows", (2,)),
            (10, "workflows", (5,)),
            (11, "workflows", (1,)),
            (12, "workflow_effects", ("e",)),
            (13, "leases", ("l",)),
            (14, "notes", ("b",)),
        ]
        connection.close()
        await store.close()

    run(scenario)
