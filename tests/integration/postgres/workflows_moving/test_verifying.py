"""D10, G8: what differs is found before anything has moved, and no time goes back."""

import asyncio
import math
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from interlock.clock import SystemClock
from interlock.errors import CorruptionError, UnavailableError
from interlock.relocate import workflow_move
from interlock.relocate.workflow_postgres import PostgresArrival
from interlock.relocate.workflow_records import Exchange, Exchanged
from interlock.store.open_store import open_store
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import begun, run, started
from tests.integration.postgres.stores import opened, somebody
from tests.integration.postgres.workflows_moving.moves import move
from tests.integration.postgres.workflows_moving.test_everything_arrives import filled


class Ahead(SystemClock):
    """A clock that is so many seconds ahead of the database's."""

    def __init__(self, by_s: float) -> None:
        self._by_s = by_s

    def wall_s(self) -> float:
        return super().wall_s() + self._by_s


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is counted under the seal, however slow the machine is."""
    monkeypatch.setattr(workflow_move, "SUMS_S_MAX", math.inf)


def doing(point: str, do: Callable[[], None]) -> Callable[[str], None]:
    """Do something when the mover is at that point."""

    def at(reached: str) -> None:
        if reached == point:
            do()

    return at


@pytest.mark.usefixtures("counted")
def test_a_write_that_the_mover_was_not_told_of_is_found(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    def write_secretly() -> None:
        connection = apsw.Connection(str(tmp_path / "home" / "workflows.lane"))
        triggers = list(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
        for name, _ in triggers:
            connection.execute(f'DROP TRIGGER "{name}"')
        connection.execute("UPDATE workflows SET revision = revision + 1 WHERE number = 3")
        for _, sql in triggers:
            connection.execute(sql)
        connection.close()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        with pytest.raises(UnavailableError, match="differs from the source"):
            await move(home, postgres_url, at=doing("seal/0/before", write_secretly))
        await begun(store, started("still here"))
        # The next mover compares everything that is there already, and moves what it is.
        await move(home, postgres_url)
        async with opened(postgres_url) as there:
            assert {row.revision for row in (await there.load(["w1", "w2"])).values()} == {2, 3}
        await store.close()

    run(scenario)


@pytest.mark.usefixtures("counted")
def test_a_draft_that_somebody_has_changed_is_found(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"
    schema = parse_postgres_url(postgres_url).schema

    async def spoil() -> None:
        async with somebody(postgres_url) as caller:
            await caller.execute(f"DELETE FROM {schema}__arriving.workflow_events WHERE workflow_id = 'w3'")

    def spoil_elsewhere() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(spoil()))
        thread.start()
        thread.join()

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        with pytest.raises(UnavailableError, match="differs from the source"):
            await move(home, postgres_url, at=doing("verify", spoil_elsewhere))
        await move(home, postgres_url)
        async with opened(postgres_url) as there:
            assert len(await there.history("w3")) == 2
        await store.close()

    run(scenario)


def test_what_is_read_back_otherwise_is_found(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that does not keep what it is given, here by one letter of a context."""
    home = f"lanes://{tmp_path}/home"
    exchange = PostgresArrival.exchange

    async def forgetful(draft: PostgresArrival, change: Exchange) -> Exchanged:
        done = await exchange(draft, change)
        return done._replace(events=done.events[:-1])

    monkeypatch.setattr(PostgresArrival, "exchange", forgetful)

    async def scenario() -> None:
        store = await open_store(home, clock=SystemClock())
        await filled(store)
        with pytest.raises(CorruptionError, match="did not arrive as it was sent"):
            await move(home, postgres_url)
        await begun(store, started("still here"))
        await store.close()

    run(scenario)


def test_a_clock_that_is_far_behind_is_refused_before_anything_has_moved(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=Ahead(60.0))
        await filled(store)
        store.now_us()
        await begun(store, started("now"))
        with pytest.raises(UnavailableError, match="before the time of the workflows"):
            await move(home, postgres_url)
        await begun(store, started("still here"))
        await store.close()

    run(scenario)


def test_times_do_not_go_back_where_the_clock_is_a_little_behind(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        store = await open_store(home, clock=Ahead(0.7))
        await filled(store)
        given_us = store.now_us()
        await begun(store, started("now", at_us=given_us))
        await move(home, postgres_url)
        async with opened(postgres_url) as there:
            assert there.now_us() >= given_us
        await store.close()

    run(scenario)
