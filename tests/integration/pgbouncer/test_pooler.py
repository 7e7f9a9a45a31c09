"""What a real PgBouncer in transaction mode does to its clients, and what ours make of it (C15, C16, G9)."""

import asyncio
from collections.abc import Generator

import pytest

from interlock import Engine
from interlock.errors import BadUsage, UnavailableError
from tests.conformance.engine.places import PATIENCE_S
from tests.conformance.engine.shop import Order, State, Submit, shop
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.pgbouncer.bouncer import SERVER_CONNECTIONS, Bouncer, version
from tests.integration.pgbouncer.conftest import PREPARING
from tests.integration.postgres.stores import opened, several, somebody
from tests.integration.postgres.test_failures import FIRST, SECOND, enveloped
from tests.integration.postgres.test_restarts import WORKERS, Work

STORES = 16
ORDERS = 30


@pytest.fixture
def own_pooler(pooler: Bouncer, postgres: str) -> Generator[Bouncer]:
    """A pooler of this test's own, because it is killed."""
    assert pooler.url
    with Bouncer(postgres) as bouncer:
        yield bouncer


def test_sixteen_stores_share_four_connections(postgres_url: str, direct_url: str, schema: str) -> None:
    """C15, C16: nothing is lost, nobody hears of it, and the server sees four."""
    name = schema[-20:]

    async def scenario() -> None:
        async with several(f"{postgres_url}&application_name={name}", STORES) as stores, somebody(direct_url) as caller:
            rows = await begun(stores[0], *(started(f"w-{at}") for at in range(STORES)))
            for _ in range(5):
                done = await asyncio.gather(
                    *(store.commit([moved(row)]) for store, row in zip(stores, rows, strict=True)),
                )
                assert done == [[]] * STORES
                loaded = await asyncio.gather(*(store.load([row.id for row in rows]) for store in stores))
                assert all(each == loaded[0] for each in loaded)
                rows = [loaded[0][row.id] for row in rows]
            count = await caller.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()", name
            )
            assert 1 <= count <= SERVER_CONNECTIONS
            assert [row.version for row in rows] == [6] * STORES

    run(scenario)


def test_envelopes_tell_what_happened(postgres_url: str) -> None:
    """G9."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            (row,) = await begun(store, started())
            assert await store.commit_as([moved(row)], enveloped(FIRST)) == []
            assert await store.settle([moved(row)], SECOND) == set()
            assert await store.settle([moved(row)], FIRST) == {"w"}

    run(scenario)


def test_the_planner_is_told_the_same_as_without_a_pooler(postgres_url: str) -> None:
    """For each transaction, together with its begin: tables that nobody has measured yet are not read whole."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, store._pool.link() as link:
            for query, values in ((store._queries.load, (["w"],)), (store._queries.find, ("order", 0, 10))):
                plan = await link.read(f"EXPLAIN {query}", values)
                text = "\n".join(line[0] for line in plan)
                assert "Index" in text, text
                assert "Seq Scan" not in text, text
            [(mode,)] = await link.read("SELECT current_setting('plan_cache_mode')", ())
            assert mode == "force_generic_plan"
            await link.driver.execute("BEGIN")
            [(left,)] = await link.driver.fetch("SELECT current_setting('plan_cache_mode')")
            await link.driver.execute("ROLLBACK")
            assert left == "auto", "whoever gets the session next has the settings of the server"

    run(scenario)


def test_whoever_does_not_say_that_there_is_a_pooler_is_told_the_option(pooler: Bouncer, schema: str) -> None:
    """PgBouncer refuses the settings that are said at the start."""
    order = shop().machine

    async def scenario() -> None:
        with pytest.raises(BadUsage, match="pooler") as caught:
            async with Engine.open(f"{pooler.url}&schema={schema}", machines=[order]):
                pass
        assert "?pgbouncer=true" in caught.value.fix

    run(scenario)


def test_a_prepared_statement_of_another_session_is_told_with_the_option(
    pooler: Bouncer, postgres: str, postgres_url: str
) -> None:
    """A pooler that drops the settings lets everybody in; a statement is named after its text and never another one."""
    assert pooler.url
    settings = {"max_prepared_statements": 0} if version() >= PREPARING else {}
    ignored = "plan_cache_mode,enable_seqscan,jit"

    async def scenario(url: str) -> None:
        async with opened(postgres_url) as store:
            await begun(store, started())
        with pytest.raises(UnavailableError, match="prepared statement") as caught:
            async with several(url, 2) as stores:
                await asyncio.gather(*(store.load(["w"]) for store in stores for _ in range(8)))
        assert "?pgbouncer=true" in caught.value.fix
        async with several(f"{url}&pgbouncer=true", 2) as stores:
            loaded = await asyncio.gather(*(store.load(["w"]) for store in stores for _ in range(8)))
            assert all(each.keys() == {"w"} for each in loaded)

    with Bouncer(postgres, ignore_startup_parameters=ignored, **settings) as careless:
        run(lambda: scenario(f"{careless.url}&{postgres_url.partition('&')[2].removesuffix('&pgbouncer=true')}"))


@pytest.mark.slow
def test_nothing_acknowledged_is_gone_after_the_pooler_was_killed(own_pooler: Bouncer, schema: str) -> None:
    """G2, G9: workers go on by themselves, and no version is written twice or left out."""

    async def scenario() -> None:
        url = f"{own_pooler.url}&schema={schema}&pgbouncer=true"
        work = Work(url)
        names = [f"w-{number}" for number in range(WORKERS)]
        async with opened(url) as store:
            await begun(store, *(started(name) for name in names))
        work.acknowledged = dict.fromkeys(names, 1)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(work.worker(name))
            for _ in range(3):
                await work.some()
                own_pooler.kill()
                await asyncio.to_thread(own_pooler.start)
            await work.some()
            work.enough = True
        async with opened(url) as store:
            rows = await store.load(names)
            for name in names:
                assert rows[name].version >= work.acknowledged[name]
                history = await store.history(name)
                assert [each.version for each in history] == list(range(1, rows[name].version + 1))

    run(scenario)


def test_what_begins_while_the_pooler_is_away_is_done_when_it_is_back(own_pooler: Bouncer, schema: str) -> None:
    """Nothing was sent, so nothing is unknown."""

    async def scenario() -> None:
        async with opened(f"{own_pooler.url}&schema={schema}&pgbouncer=true&connect_timeout_s=60") as store:
            (row,) = await begun(store, started())
            own_pooler.kill()
            reading, writing = (
                asyncio.ensure_future(store.load(["w"])),
                asyncio.ensure_future(store.commit([moved(row)])),
            )
            await asyncio.to_thread(own_pooler.start)
            assert (await reading).keys() == {"w"}
            assert await writing == []
            assert len(await store.history("w")) == 2

    run(scenario)


def test_an_engine_does_its_orders_behind_a_pooler(postgres_url: str) -> None:
    """C15: from start to rest, with every step and its history."""
    order = shop().machine

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), Engine.open(postgres_url, machines=[order]) as engine:
            names = [f"o-{number}" for number in range(ORDERS)]
            await asyncio.gather(*(engine.start(order, name, Order()) for name in names))
            await asyncio.gather(*(engine.send(name, Submit()) for name in names))
            views = await asyncio.gather(*(engine.of(order).wait(name) for name in names))
            assert [view.state for view in views] == [State.DONE] * ORDERS
            for name in names:
                assert [row.version for row in await engine.history(name)] == [1, 2, 3, 4]

    run(scenario)
