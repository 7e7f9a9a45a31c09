"""Found by campaigns: processes that start together on a schema that nobody has used."""

from collections.abc import Sequence

from interlock.postgres.pool import PostgresRow, connected
from interlock.store.postgres.migrations import migrate, migrated
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import run


def test_tables_that_another_process_makes_at_this_moment_are_not_somebody_else_s(postgres_url: str) -> None:
    """C15: of forty times that five processes started together, one was told so nine times, and ended."""
    address = parse_postgres_url(postgres_url)

    async def scenario() -> None:
        link = await connected(address)
        read = link.read

        async def slow(sql: str, values: Sequence[object]) -> list[PostgresRow]:
            rows = await read(sql, values)
            await migrate(postgres_url)  # Another process, after the first look of this one.
            return rows

        link.read = slow  # type: ignore[method-assign]
        assert await migrated(link, address) == []
        await link.driver.close()

    run(scenario)
