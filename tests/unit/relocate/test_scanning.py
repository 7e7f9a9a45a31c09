"""Between two looks a scan tells of every workflow, and of everything beside it, that was written."""

from pathlib import Path

import apsw

from interlock.clock import SystemClock
from interlock.relocate.workflow_lanes import Scan
from interlock.store.open_store import open_store
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
        scan = Scan()
        assert [key for _, key in scan.look(connection)] == ["w0", "w1", "w2", "w3", "w4", "last", "a", "b"]
        assert scan.look(connection) == []
        await begun(store, moved(rows[4], effects=(effect("e"),)))
        await store.note("b", "2")
        old = Old(machine="order", state="done", before_us=1)
        assert (await store.prune(old, after=None, limit=9)).workflows == ("w0",)
        old = Old(machine="order", state="done", before_us=2, history_only=True)
        assert (await store.prune(old, after=None, limit=9)).events == 1
        await store.leases.acquire("l", "me", 1.0)
        assert scan.look(connection) == [
            ("workflows", "w1"),
            ("workflows", "w4"),
            ("workflows", "w0"),
            ("workflow_effects", "e"),
            ("leases", "l"),
            ("notes", "b"),
        ]
        connection.close()
        await store.close()

    run(scenario)
