"""Migrations: numbered, under a lock, recorded, shown before they are run, and nothing newer is touched."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from interlock.errors import BadUsage, UnavailableError, UnusableFile
from interlock.postgres.pool import Link
from interlock.postgres.translate_errors import Blocked
from interlock.store.open_store import migrate_store
from interlock.store.postgres import migrations
from interlock.store.postgres.migrations import known, migrate, script
from interlock.urls import PostgresAddress, parse_postgres_url
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened, several, somebody
from tests.unit.cli.running import run_program

TABLES = "SELECT array_agg(tablename::text ORDER BY tablename) FROM pg_tables WHERE schemaname = current_schema()"


def test_many_processes_that_start_together_migrate_once(postgres_url: str) -> None:
    """Under a lock; whoever comes later finds everything done."""

    async def scenario() -> None:
        done = await asyncio.gather(*(migrate(postgres_url) for _ in range(6)))
        assert sorted(len(each) for each in done) == [0] * 5 + [len(known())]
        async with somebody(postgres_url) as caller:
            recorded = await caller.fetch("SELECT number, name, applied_at FROM migrations ORDER BY number")
            assert [row["name"] for row in recorded] == [each.name for each in known()]
        async with several(postgres_url, 3) as stores:
            await begun(stores[0], started())

    run(scenario)


def test_a_dry_run_changes_nothing_and_its_text_does_the_same(postgres_url: str) -> None:
    """What it prints can be run by somebody else."""

    async def scenario() -> None:
        missing = await migrate(postgres_url, dry_run=True)
        assert missing == known()
        async with somebody(postgres_url) as caller:
            assert await caller.fetchval(TABLES) is None
            await caller.execute(script(parse_postgres_url(postgres_url).schema, missing))
        assert await migrate(postgres_url) == []
        async with opened(postgres_url) as store:
            await begun(store, started())

    run(scenario)


@pytest.mark.slow
def test_the_command_shows_applies_and_has_nothing_left_to_do(postgres_url: str, tmp_path: Path) -> None:
    shown = run_program("migrate", postgres_url, "--dry-run", folder=tmp_path)
    assert shown.code == 0
    assert "CREATE TABLE workflows" in shown.out
    done = run_program("migrate", postgres_url, folder=tmp_path)
    assert (done.code, "0001_workflows" in done.out) == (0, True)
    for words in ((postgres_url,), ("--home", postgres_url)):
        again = run_program("migrate", *words, "--dry-run", folder=tmp_path)
        assert (again.code, "is up to date" in again.out) == (0, True)
    nowhere = run_program("migrate", folder=tmp_path)
    assert (nowhere.code, "no store is given" in nowhere.err) == (2, True)


def test_a_later_schema_is_refused_and_stays_as_it_is(postgres_url: str) -> None:
    """Guessing at its meaning could lose workflows."""

    async def scenario() -> None:
        await migrate(postgres_url)
        async with somebody(postgres_url) as caller:
            number = len(known()) + 1
            await caller.execute(f"INSERT INTO migrations VALUES ({number}, '{number:04}_more', 'digest')")
            for refused in (migrate(postgres_url), migrate(postgres_url, dry_run=True)):
                with pytest.raises(UnusableFile, match=f"_more; this version of Interlock knows {number - 1}"):
                    await refused
            with pytest.raises(UnusableFile):
                async with opened(postgres_url):
                    pass

    run(scenario)


def test_a_migration_that_was_changed_after_it_was_applied_is_told(postgres_url: str) -> None:
    async def scenario() -> None:
        await migrate(postgres_url)
        async with somebody(postgres_url) as caller:
            await caller.execute("UPDATE migrations SET digest = 'other' WHERE number = 1")
        with pytest.raises(UnusableFile, match="another one than this version"):
            await migrate(postgres_url)

    run(scenario)


def test_tables_of_somebody_else_are_left_alone(postgres_url: str) -> None:
    async def scenario() -> None:
        async with somebody(postgres_url) as caller:
            place = parse_postgres_url(postgres_url).schema
            await caller.execute(f"CREATE SCHEMA {place}; CREATE TABLE {place}.workflows (mine text)")
            with pytest.raises(UnusableFile, match="no store has made"):
                await migrate(postgres_url)
            assert await caller.fetchval(TABLES) == ["workflows"]

    run(scenario)


def test_a_user_who_may_not_make_tables_is_told_and_nothing_is_left(postgres_url: str) -> None:
    """All migrations or none; and the schema may be somebody else's, where no right to make one is needed."""

    async def scenario() -> None:
        place = parse_postgres_url(postgres_url).schema
        poor = postgres_url.replace("//postgres:", f"//r_{place}:")
        async with somebody(postgres_url) as caller:
            await caller.execute(f"CREATE ROLE r_{place} LOGIN; CREATE SCHEMA {place}")
            await caller.execute(f"GRANT USAGE ON SCHEMA {place} TO r_{place}")
            with pytest.raises(UnavailableError, match=r"could not be migrated: .*permission denied"):
                await migrate(poor)
            assert await caller.fetchval(TABLES) is None
            await caller.execute(f"GRANT CREATE ON SCHEMA {place} TO r_{place}")
        async with opened(poor) as store:
            await begun(store, started())

    run(scenario)


EARLIER = """ALTER TABLE {0}.workflow_events DROP COLUMN actor, DROP COLUMN attempts;
DROP TABLE {0}.workflow_charts;
DELETE FROM {0}.migrations WHERE number >= 3;"""
AS_BEFORE = """INSERT INTO workflow_events (workflow_id, version, from_state, to_state, event, context, created_at)
VALUES ($1, $2, 'paid', 'paid', 'Pay', '{}', now())"""
"""How the release before actors writes a row of history."""


def test_a_process_of_the_earlier_release_goes_on_beside_the_column_of_actors(postgres_url: str) -> None:
    """Its prepared statements, its rows and its reads stay valid; rows from before have no actor."""

    async def scenario() -> None:
        place = parse_postgres_url(postgres_url).schema
        async with opened(postgres_url) as store:
            (row,) = await begun(store, started("p", by=None))
        async with somebody(postgres_url) as older:
            await older.execute(EARLIER.format(place))
            insert = await older.prepare(AS_BEFORE)
            select = await older.prepare("SELECT version, key FROM workflow_events WHERE workflow_id = $1")
            await insert.fetch("p", 2)
            async with opened(postgres_url) as store:
                await insert.fetch("p", 3)
                await begun(store, moved(msgspec.structs.replace(row, version=3), by="ada", attempts=b"[1]"))
                assert [each.by for each in await store.history("p")] == [None, None, None, "ada"]
                assert [each.attempts for each in await store.history("p")] == [b"", b"", b"", b"[1]"]
                assert [each["version"] for each in await select.fetch("p")] == [1, 2, 3, 4]

    run(scenario)


def test_a_migration_waits_for_a_long_transaction_without_stopping_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup reads history for hours: writers do not queue after the migration, which is repeated."""
    monkeypatch.setattr(migrations, "MIGRATION_LOCK_MS", 50)
    monkeypatch.setattr(migrations, "MIGRATION_PAUSE_S", 0.01)
    migrated_once, blocked = migrations._migrated_once, asyncio.Queue[None]()

    async def observed(link: Link, address: PostgresAddress) -> list[migrations.Migration]:
        try:
            return await migrated_once(link, address)
        except Blocked:
            blocked.put_nowait(None)
            raise

    monkeypatch.setattr(migrations, "_migrated_once", observed)

    async def scenario() -> None:
        place = parse_postgres_url(postgres_url).schema
        async with opened(postgres_url) as store:
            await begun(store, started("p"))
        async with somebody(postgres_url) as backup, somebody(postgres_url) as writer:
            await writer.execute(EARLIER.format(place))
            backing_up = backup.transaction()
            await backing_up.start()
            await backup.fetch("SELECT * FROM workflow_events")
            migration = asyncio.create_task(migrate(postgres_url))
            for version in range(2, 6):
                await writer.fetch(AS_BEFORE, "p", version)
                await blocked.get()
            assert not migration.done()
            await backing_up.rollback()
            assert [each.name for each in await migration] == ["0003_actors", "0004_attempts", "0005_charts"]
        async with opened(postgres_url) as store:
            assert len(await store.history("p")) == 5

    run(scenario)


def test_a_migration_that_is_held_up_for_too_long_is_told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATION_LOCK_MS", 20)
    monkeypatch.setattr(migrations, "MIGRATION_S", -1.0)

    async def scenario() -> None:
        await migrate(postgres_url)
        async with somebody(postgres_url) as backup:
            await backup.execute(EARLIER.format(parse_postgres_url(postgres_url).schema))
            async with backup.transaction():
                await backup.fetch("SELECT * FROM workflow_events")
                with pytest.raises(UnavailableError, match="could not be migrated"):
                    await migrate(postgres_url)

    run(scenario)


@pytest.mark.parametrize("url", ["lanes:///var/shop", "memory:", "s3://bucket/shop", "shop"])
def test_only_postgresql_has_migrations(url: str) -> None:
    with pytest.raises(BadUsage, match="not an address of PostgreSQL"):
        asyncio.run(migrate_store(url, dry_run=True))


def test_every_index_and_table_is_explained_where_it_is_made() -> None:
    """A reader of the tables is a user, too."""
    for each in known():
        lines = each.sql.splitlines()
        for at, line in enumerate(lines):
            if re.match(r"CREATE (TABLE|INDEX|VIEW|SEQUENCE)", line) and "by_age" not in line and "to_wake" not in line:
                assert lines[at - 1].startswith("--"), line
