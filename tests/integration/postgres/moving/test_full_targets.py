"""A target without room: nothing has moved, the source goes on, and the same move ends when there is room again."""

import asyncio
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import asyncpg
import pytest

from interlock import Database
from interlock.clock import SystemClock
from interlock.errors import UnavailableError
from interlock.relocate.local_lane import LaneDraft
from interlock.store.open_store import open_store
from interlock.urls import PostgresAddress, parse_postgres_url
from tests.conformance.store.samples import begun, run, started
from tests.integration.postgres.moving.places import Pair, contents, filled, moved, pair, whole
from tests.integration.postgres.workflows_moving.moves import move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents as workflows_in
from tests.integration.postgres.workflows_moving.test_everything_arrives import filled as filled_store

LARGE = "x" * 100_000
"""More than the free pages of a file have room for."""

POINTS = pytest.mark.parametrize("point", ["early", "late"])


class Disk:
    """The disk of a draft in a lane: SQLite itself refuses to grow the file while it is full."""

    def __init__(self) -> None:
        self.drafts: list[apsw.Connection] = []

    def fill(self) -> None:
        for each in self.drafts:
            each.execute("PRAGMA max_page_count = 1")

    def empty(self) -> None:
        """Do nothing: the limit ends with the connection."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of all drafts of the test."""
    disk, opened = Disk(), LaneDraft._opened

    def remembered(draft: LaneDraft, path: Path) -> apsw.Connection:
        connection = opened(draft, path)
        disk.drafts = [connection]
        return connection

    monkeypatch.setattr(LaneDraft, "_opened", remembered)
    return disk


class Server:
    """The disk of the server: it refuses every row of a draft as PostgreSQL does without room."""

    def __init__(self, threads: ThreadPoolExecutor, address: PostgresAddress) -> None:
        self._threads = threads
        self._address = address

    def fill(self) -> None:
        self._run("""
CREATE FUNCTION {draft}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
DO $$ DECLARE each text; BEGIN
    FOR each IN SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = '{draft}'::regnamespace AND relkind = 'r'
    LOOP
        EXECUTE 'CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {draft}.' || each
            || ' EXECUTE FUNCTION {draft}.refuse()';
    END LOOP; END $$""")

    def empty(self) -> None:
        self._run("DROP FUNCTION {draft}.refuse() CASCADE")

    def _run(self, sql: str) -> None:
        self._threads.submit(lambda: asyncio.run(self._execute(sql))).result()

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self._address.url)
        try:
            pattern = f"^{self._address.schema}__arriving"
            draft = await connection.fetchval("SELECT nspname FROM pg_namespace WHERE nspname ~ $1", pattern)
            await connection.execute(sql.replace("{draft}", draft))
        finally:
            await connection.close()


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    """For what happens while the mover is at a point."""
    with ThreadPoolExecutor(1) as threads:
        yield threads


def striking(points: tuple[str, ...], strike: Callable[[], None]) -> Callable[[str], None]:
    """Call it at the first of these points."""
    struck = False

    def at(reached: str) -> None:
        nonlocal struck
        if not struck and reached in points:
            struck = True
            strike()

    return at


@pytest.mark.campaign
@POINTS
@pytest.mark.parametrize("direction", ["lane-to-lane", "postgres-to-lane", "lane-to-postgres", "postgres-to-postgres"])
def test_a_database_stays_until_its_target_has_room(
    direction: str, point: str, postgres: str, tmp_path: Path, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    places: Pair = pair(direction, postgres, tmp_path)
    full = disk if direction.endswith("lane") else Server(threads, parse_postgres_url(places.target))

    async def write() -> None:
        async with Database.open(places.source) as db:
            await db.execute("INSERT INTO sale (article, note) VALUES (1, $1)", {"large": LARGE})

    def strike() -> None:
        if point == "late":
            threads.submit(lambda: asyncio.run(write())).result()
        full.fill()

    async def scenario() -> None:
        await filled(places.source)
        if point == "early":
            await write()
        with pytest.raises(UnavailableError, match=r"disk is full|No space left") as refused:
            await moved(places, striking(("draft",) if point == "early" else ("seal/0/before",), strike))
        assert refused.value.retry != "never"
        if full is disk:
            assert places.target.removeprefix("lanes://") in refused.value.what
            assert "cannot grow" in refused.value.what or "could not grow" in refused.value.what
        async with Database.open(places.source) as db:
            await db.execute("UPDATE article SET n = n + 1 WHERE id = 7")
            expected = await contents(db)
            assert db.url.partition(":")[0] == places.source.partition(":")[0]
        full.empty()
        assert (await moved(places)).resumed
        await whole(places.target, expected)

    asyncio.run(scenario())


@pytest.mark.campaign
@POINTS
@pytest.mark.parametrize("kind", ["lane", "postgres"])
def test_workflows_stay_until_their_target_has_room(
    kind: str, point: str, postgres: str, tmp_path: Path, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    home = f"lanes://{tmp_path}/home"
    there = f"lanes://{tmp_path}/there" if kind == "lane" else f"{postgres}&schema=f_{uuid.uuid4().hex[:18]}"
    full = disk if kind == "lane" else Server(threads, parse_postgres_url(there))

    async def write() -> None:
        store = await open_store(home, clock=SystemClock())
        await begun(store, started("large", context=b'"' + LARGE.encode() + b'"'))
        await store.close()

    def strike() -> None:
        if point == "late":
            threads.submit(lambda: asyncio.run(write())).result()
        full.fill()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        ids = [row.id for row in await filled_store(store)]
        await store.close()
        if point == "early":
            await write()
        with pytest.raises(UnavailableError, match=r"disk is full|No space left"):
            await move(home, there, at=striking(("copy/aside",) if point == "early" else ("seal/0/before",), strike))
        store = await open_store(home, clock=SystemClock())
        before = await workflows_in(store, [*ids, "large"])
        await store.close()
        full.empty()
        assert (await move(home, there)).resumed
        store = await open_store(there, clock=SystemClock())
        assert (await workflows_in(store, [*ids, "large"]))[:8] == before[:8]
        await store.close()

    run(scenario)
