"""Keys and audit in PostgreSQL: tables of their own, made once, and nothing of the store's is touched."""

import asyncio
from collections.abc import Callable

import pytest

from interlock.clock import SystemClock
from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.postgres.pool import connected
from interlock.server.security.keys import CreatedKey, KeyStore
from interlock.server.security.postgres_store import PostgresDocument, PostgresTrail
from interlock.server.security.stores import security_at
from interlock.store.open_store import migrate_store, open_store
from interlock.urls import parse_postgres_url
from tests.unit.server.security.homes import OPERATOR
from tests.unit.server.security.test_audit import entry_at

Create = Callable[..., CreatedKey]


async def answer(url: str, sql: str) -> list[tuple[object, ...]]:
    link = await connected(parse_postgres_url(url))
    try:
        return [tuple(row) for row in await link.driver.fetch(sql)]
    finally:
        await link.driver.close()


async def script(url: str, sql: str) -> None:
    link = await connected(parse_postgres_url(url))
    try:
        await link.script(sql)
    finally:
        await link.driver.close()


async def tables_of(url: str) -> set[object]:
    schema = parse_postgres_url(url).schema
    return {row[0] for row in await answer(url, f"SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = '{schema}')")}  # fmt: skip  # noqa: E501


def test_looking_makes_nothing(postgres_url: str) -> None:
    async def scenario() -> None:
        security = security_at(postgres_url, clock=SystemClock())
        assert await security.keys.load() == ()
        assert await security.audit.read() == []
        await security.close()
        assert await tables_of(postgres_url) == set()

    asyncio.run(scenario())


def test_the_tables_are_no_migration_of_the_store(postgres_url: str, create: Create) -> None:
    """Keys may come first, or workflows: a version that does not know of keys opens the schema all the same."""

    async def scenario() -> None:
        security = security_at(postgres_url, clock=SystemClock())
        await security.keys.add(create().record)
        assert await tables_of(postgres_url) == {"security_documents", "security_audit"}
        await (await open_store(postgres_url, clock=SystemClock())).close()
        assert (await migrate_store(postgres_url, dry_run=True)).names == []
        await security.audit.record(OPERATOR, "breaker.force", "gateway", None, None)
        assert len(await security.keys.load()) == len(await security.audit.read()) == 1
        await security.close()

    asyncio.run(scenario())


def test_many_processes_make_the_tables_at_once(postgres_url: str, create: Create) -> None:
    async def scenario() -> None:
        stores = [KeyStore(PostgresDocument(postgres_url), "here") for _ in range(6)]
        await asyncio.gather(*(store.add(create().record) for store in stores))
        assert {len(await store.load()) for store in stores} == {6}
        for store in stores:
            await store.close()

    asyncio.run(scenario())


def test_a_user_who_may_not_make_tables_is_told_who_can(postgres_url: str, create: Create) -> None:
    async def scenario() -> None:
        schema = parse_postgres_url(postgres_url).schema
        role = f"clerk_{schema}"
        await script(postgres_url, f"CREATE SCHEMA {schema}; CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}")  # fmt: skip  # noqa: E501
        as_clerk = postgres_url.replace("://postgres:", f"://{role}:")
        assert as_clerk != postgres_url
        clerk = KeyStore(PostgresDocument(as_clerk), "here")
        with pytest.raises(UnavailableError, match="could not be created"):
            await clerk.add(create().record)
        owner = KeyStore(PostgresDocument(postgres_url), "here")
        await owner.add(create().record)
        await script(postgres_url, f"GRANT SELECT, INSERT, UPDATE ON {schema}.security_documents TO {role}")
        await clerk.add(create().record)
        assert len(await clerk.load()) == 2
        await clerk.close()
        await owner.close()
        await script(postgres_url, f"DROP OWNED BY {role}; DROP ROLE {role}")

    asyncio.run(scenario())


@pytest.mark.parametrize("happened", [True, False])
def test_a_write_of_unknown_outcome_happens_once(
    postgres_url: str, create: Create, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    async def scenario() -> None:
        document, trail = PostgresDocument(postgres_url), PostgresTrail(postgres_url)
        store = KeyStore(document, "here")
        await store.add(create().record)
        for pool in (document._tables.pool, trail._tables.pool):
            real = pool.write

            async def lost(
                sql: str, values: tuple[object, ...], real: Callable[..., object] = real, pool: object = pool
            ) -> object:
                monkeypatch.setattr(pool, "write", real)
                if happened:
                    await real(sql, values)  # type: ignore[misc]
                raise OutcomeUnknown("the connection was lost")

            monkeypatch.setattr(pool, "write", lost)
        await store.add(create().record)
        await trail.append(entry_at(1))
        assert len(await store.load()) == 2
        assert len(await trail.read(10)) == 1
        await store.close()
        await trail.close()

    asyncio.run(scenario())


def test_rows_of_the_audit_log_are_bounded(postgres_url: str) -> None:
    async def scenario() -> None:
        trail = PostgresTrail(postgres_url, entries_max=3)
        for number in range(6):
            await trail.append(entry_at(number))
        await trail.prune(entry_at(0).at)
        assert [each.id for each in await trail.read(10)] == ["e-005", "e-004", "e-003"]
        await trail.close()

    asyncio.run(scenario())
