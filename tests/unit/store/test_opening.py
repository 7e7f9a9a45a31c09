"""Opening stores: addresses, homes that were moved, settings from everywhere, and owners."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import CatalogEntry
from interlock.clock import SystemClock
from interlock.errors import (
    BadUsage,
    DefinitionError,
    InterlockError,
    LaneOwned,
    MissingExtra,
    UnavailableError,
    UnusableFile,
)
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.writer import Work
from interlock.store.lane_store import SqliteStore
from interlock.store.memory import MemoryStore
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from tests.conformance.store.samples import begun, started

NO_ADDRESSES = [
    "",
    "shop",
    "/var/shop",
    "lanes://",
    "lanes:///",
    "lanes://host/x",
    "lanes:///x?y=1",
    "lanes:///x/../y",
    "redis://x",
    "memory:x",
    "sqlite:///x",
]


async def opened(url: str, **settings: float) -> Store:
    return await open_store(url, clock=SystemClock(), settings=settings)


def refused(url: object) -> InterlockError:
    with pytest.raises(InterlockError) as caught:
        asyncio.run(opened(url))  # type: ignore[arg-type]
    assert caught.value.why
    assert caught.value.fix
    return caught.value


def test_memory_is_a_new_store_each_time() -> None:
    async def scenario() -> None:
        first, second = await opened("memory:"), await opened("memory:")
        assert isinstance(first, MemoryStore)
        await begun(first, started())
        assert await second.load(["w"]) == {}

    asyncio.run(scenario())


def test_workflows_live_in_a_database_of_their_name_at_the_home(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(f"lanes://{tmp_path}/shop")
        await store.close()

    asyncio.run(scenario())
    assert (tmp_path / "shop" / "workflows.lane").exists()
    assert "workflows" in FolderCatalog(f"lanes://{tmp_path}/shop").names()


def test_a_database_that_was_moved_is_followed(tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"
    FolderCatalog(home).enter("workflows", CatalogEntry(f"lanes://{tmp_path}/elsewhere/flows", 1))

    async def scenario() -> None:
        store = await opened(home)
        await store.close()

    asyncio.run(scenario())
    assert (tmp_path / "elsewhere" / "flows.lane").exists()
    assert not (tmp_path / "shop" / "workflows.lane").exists()


@pytest.mark.parametrize("wrong", NO_ADDRESSES)
def test_what_is_no_address_is_refused(wrong: str) -> None:
    assert isinstance(refused(wrong), BadUsage)


def test_a_path_is_no_address(tmp_path: Path) -> None:
    assert "PosixPath" in refused(tmp_path).what


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_server_that_cannot_be_reached_is_told_without_its_password(scheme: str, tmp_path: Path) -> None:
    error = refused(f"{scheme}://user:secret@/shop?host={tmp_path}")
    assert isinstance(error, UnavailableError)
    assert "PostgreSQL cannot be reached" in error.what
    assert str(tmp_path) in error.what
    assert "secret" not in str(error)


def test_without_the_driver_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        each
        for each in sys.modules
        if each.startswith("asyncpg") or (each.startswith("interlock.") and "postgres" in each)
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    error = refused("postgresql://host/shop")
    assert isinstance(error, MissingExtra)
    assert "interlock[postgres]" in error.fix


def test_a_schema_that_needs_quoting_is_refused() -> None:
    assert isinstance(refused("postgresql://host/shop?schema=My+Shop"), BadUsage)


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    async def scenario() -> LaneOwned:
        store = await opened(f"lanes://{tmp_path}/shop")
        try:
            with pytest.raises(LaneOwned) as caught:
                await opened(f"lanes://{tmp_path}/shop")
        finally:
            await store.close()
        return caught.value

    told = asyncio.run(scenario()).what
    assert str(os.getpid()) in told
    assert socket.gethostname() in told


def test_settings_are_those_of_a_lane(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(f"lanes://{tmp_path}/shop", idle_s=0.25)
        assert isinstance(store, SqliteStore)
        assert store._lane.settings.idle_s == 0.25
        await store.close()
        for url in (f"lanes://{tmp_path}/shop", "memory:"):
            with pytest.raises(DefinitionError, match="Did you mean idle_s"):
                await opened(url, idle=0.25)

    asyncio.run(scenario())


def test_settings_come_from_the_file_for_workflows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "interlock.toml"
    file.write_text("[databases.workflows]\nidle_s = 0.5\nreaders_max = 2\n")
    monkeypatch.setenv("INTERLOCK_CONFIG", str(file))

    async def scenario() -> None:
        store = await opened(f"lanes://{tmp_path}/shop", readers_max=3)
        assert isinstance(store, SqliteStore)
        assert (store._lane.settings.idle_s, store._lane.settings.readers_max) == (0.5, 3)
        await store.close()

    asyncio.run(scenario())


def change_tables(folder: Path, sql: str) -> None:
    lane = Lane(
        folder / "workflows.lane", settings=LaneSettings(), clock=SystemClock(), prepare=lambda _connection, _now: None
    )

    async def scenario() -> None:
        await lane.run(Work(lambda session: session.execute(sql)))

    try:
        asyncio.run(scenario())
    finally:
        lane.close()


def test_a_later_format_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(f"lanes://{tmp_path}")
        await begun(store, started())
        await store.close()

    asyncio.run(scenario())
    change_tables(tmp_path, "UPDATE workflow_store SET format = 2")
    for _ in range(2):  # The lane is given up each time.
        error = refused(f"lanes://{tmp_path}")
        assert isinstance(error, UnusableFile)
        assert "format 2; this version knows 1" in error.what
    change_tables(tmp_path, "UPDATE workflow_store SET format = 1")

    async def again() -> None:
        store = await opened(f"lanes://{tmp_path}")
        assert set(await store.load(["w"])) == {"w"}
        await store.close()

    asyncio.run(again())


def test_tables_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    change_tables(tmp_path, "CREATE TABLE notes (mine TEXT)")
    error = refused(f"lanes://{tmp_path}")
    assert isinstance(error, UnusableFile)
    assert "'notes'" in error.what
