"""D10: a move that an earlier version began goes on: its triggers, its notes and its draft are understood."""

import contextlib
from pathlib import Path

import apsw
import pytest

from interlock.clock import SystemClock
from interlock.errors import BadUsage
from interlock.lanes.handover import Draft, Leaving, admit
from interlock.lanes.sqlite_connection import open_writer
from interlock.store.lane_store import FORMAT, TABLES
from interlock.store.open_store import open_store
from interlock.store.postgres.migrations import draft_of
from interlock.urls import parse_postgres_url, redact_url
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened, somebody
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled

BY_NUMBER = {
    "workflows": ("number",),
    "workflow_events": ("workflow",),
    "workflow_effects": ("id",),
    "dead_letters": ("id",),
    "leases": ("name",),
    "notes": ("name",),
}
"""What an earlier version noted of a write: a workflow by its number."""


def watched_as_before(home: Path) -> None:
    leaving = Leaving(home / "workflows.lane", clock=SystemClock(), prepare=lambda _connection, _now_us: None)
    with contextlib.closing(leaving):
        leaving.watch(BY_NUMBER)


def begun_as_before(path: Path, mark: Draft) -> None:
    """Make a draft in a lane with a part of the workflows, as an earlier version left it when it died."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection: apsw.Connection = open_writer(path)
    with contextlib.closing(connection), connection:
        admit(connection, mark, path)
        connection.execute(TABLES)
        connection.execute("INSERT INTO workflow_store VALUES (1, ?, 0)", (FORMAT,))
        row = ("w1", "order", 1, "new", "{}", 1, 1, 1, 0, 0, 0, b"", b"", None, 0, 0, 0, 1)
        connection.execute(f"INSERT INTO workflows VALUES (900{', ?' * 18})", row)
        connection.execute("INSERT INTO notes VALUES ('gone since', '1')")


def without_actors(path: Path) -> None:
    """The lane as the release before actors has written it."""
    connection: apsw.Connection = open_writer(path)
    with contextlib.closing(connection):
        connection.execute("ALTER TABLE workflow_events DROP COLUMN actor")
        connection.execute("ALTER TABLE workflow_events DROP COLUMN attempts")
        connection.execute("DROP TABLE workflow_charts")


def test_a_lane_without_actors_moves_as_it_is(tmp_path: Path, postgres_url: str) -> None:
    """Its owner may be a process of the earlier release, which nothing is changed under."""
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await begun(store, started("a", by="ada"), started("b"))
        await store.close()
        without_actors(tmp_path / "home" / "workflows.lane")
        await move(home, postgres_url)
        async with opened(postgres_url) as there:
            found = [each for row in rows for each in await there.history(row.id)]
            assert [(each.by, each.attempts) for each in found] == [(None, b""), (None, b"")]

    run(scenario)


def test_a_draft_without_actors_in_a_lane_gets_them(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            ids = [row.id for row in await filled(store)]
            before = await contents(store, ids)
        with pytest.raises(Died):
            await move(postgres_url, home, at=dying_at("copy/aside"))
        without_actors(tmp_path / "home" / "workflows.lane")
        assert (await move(postgres_url, home)).resumed
        there = await open_store(home, clock=SystemClock())
        assert await contents(there, ids) == before
        await there.close()

    run(scenario)


def test_a_draft_of_an_earlier_release_in_postgresql_is_migrated(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        ids = [row.id for row in await filled(store)]
        before = await contents(store, ids)
        await store.close()
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("copy/aside"))
        draft = draft_of(parse_postgres_url(postgres_url))
        async with somebody(postgres_url) as caller:
            await caller.execute(f"ALTER TABLE {draft}.workflow_events DROP COLUMN actor, DROP COLUMN attempts")
            await caller.execute(f"DROP TABLE {draft}.workflow_children, {draft}.workflow_charts")
            await caller.execute(f"DELETE FROM {draft}.migrations WHERE number > 1")
        assert (await move(home, postgres_url)).resumed
        async with opened(postgres_url) as there:
            assert await contents(there, ids) == before

    run(scenario)


def test_notes_by_number_do_no_harm(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        rows = await filled(store)
        with pytest.raises(Died):
            await move(home, postgres_url, at=dying_at("copy/1"))
        watched_as_before(tmp_path / "home")
        await begun(store, moved(rows[3], state="written late"), started("7", machine="young"), started("last"))
        ids = [*(row.id for row in rows), "7", "last"]
        before = await contents(store, ids)
        await store.close()
        assert (await move(home, postgres_url)).resumed
        async with opened(postgres_url) as there:
            assert await contents(there, ids) == before

    run(scenario)


def test_a_draft_in_a_lane_is_filled_by_the_same_move_alone(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            ids = [row.id for row in await filled(store)]
            before = await contents(store, ids)
        begun_as_before(tmp_path / "home" / "workflows.lane", Draft(1, redact_url(postgres_url)))
        with pytest.raises(BadUsage, match="another move"):
            await move(postgres_url, home, epoch=2)
        assert (await move(postgres_url, home)).resumed
        there = await open_store(home, clock=SystemClock())
        assert await contents(there, ids) == before
        await there.close()

    run(scenario)
