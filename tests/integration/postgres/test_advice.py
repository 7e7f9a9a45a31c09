"""D10 on a real PostgreSQL: sessions that wait for one row are evidence, window after window."""

import asyncio
from uuid import uuid4

import asyncpg

from interlock.clock import SystemClock
from interlock.hotrow.placement_advice import WINDOWS, advise, gather
from interlock.hotrow.tool_declarations import Tool
from interlock.urls import parse_postgres_url

SECONDS = 1.2
WAITING = "SELECT count(DISTINCT pid) = 3 FROM pg_locks WHERE NOT granted AND pid = ANY($1)"


def test_who_waits_in_postgresql_is_seen_in_every_window(postgres: str) -> None:
    async def scenario() -> None:
        url = parse_postgres_url(postgres).url
        schema = f"advice_{uuid4().hex}"
        sessions: list[asyncpg.Connection] = [await asyncpg.connect(url) for _ in range(4)]
        owner = sessions[0]
        await owner.execute(f"CREATE SCHEMA {schema}")
        await owner.execute(f"CREATE TABLE {schema}.stock (sku text PRIMARY KEY, n bigint NOT NULL)")
        await owner.execute(f"INSERT INTO {schema}.stock VALUES ('A-1', 0)")
        update = f"UPDATE {schema}.stock SET n = n + 1 WHERE sku = 'A-1'"
        try:
            await owner.execute("BEGIN")
            await owner.execute(update)
            waiting = [asyncio.ensure_future(each.execute(update)) for each in sessions[1:]]
            ours = [each.get_server_pid() for each in sessions]
            while not await owner.fetchval(WAITING, ours):
                pass
            seen = await gather(postgres, SECONDS, clock=SystemClock())
            await owner.execute("COMMIT")
            await asyncio.gather(*waiting)
        finally:
            await owner.execute(f"DROP SCHEMA {schema} CASCADE")
            for each in sessions:
                await each.close()
        assert len(seen.windows) == WINDOWS
        assert all(window.engine == "postgres" for window in seen.windows)
        assert all([row.key for row in window.rows] == ["A-1"] for window in seen.windows)
        assert any("pg_locks" in note for note in seen.notes)
        tool = Tool("stock", write_latency_budget=0.02, aggregate_write_rate=10, contention_flag_threshold=0)
        assert advise(tool, seen.windows[-1]).action == "stay"  # There is no place where they would not wait.

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())
