"""Behind a pooler in transaction mode: each transaction may go to another server connection (C15).

The pooler here is the strictest there can be: it never gives a client the same connection twice in a row, and wipes the
session of the one it takes back, prepared statements included.
"""

from collections.abc import Callable

import asyncpg
import pytest

from interlock.clock import Clock
from interlock.postgres.pool import Driver, Link, Pool, PostgresRow, Prepared, connected
from interlock.store.postgres.migrations import migrated
from interlock.store.postgres.store import PostgresStore
from interlock.store.protocol import Store
from interlock.urls import PostgresAddress, parse_postgres_url
from tests.conformance.store import test_commit, test_lives, test_reads
from tests.conformance.store.places import Place
from tests.conformance.store.samples import run


class Pooled:
    """What a client sees of the pooler: one connection, which is two."""

    def __init__(self, servers: list[Driver]) -> None:
        self.servers = servers
        self.transaction = False

    async def execute(self, sql: str, /, *, timeout: float | None = None) -> str:  # noqa: ASYNC109 -- the driver's.
        if sql.startswith("BEGIN"):
            self.transaction = True
        done = await self.servers[0].execute(sql, timeout=timeout)
        if sql in {"COMMIT", "ROLLBACK"}:
            self.transaction = False
        await self.next()
        return done

    async def fetch(self, sql: str, /, *values: object, timeout: float | None = None) -> list[PostgresRow]:  # noqa: ASYNC109
        assert self.transaction, "two round trips of one statement may reach two servers"
        return await self.servers[0].fetch(sql, *values, timeout=timeout)

    async def prepare(self, sql: str, /, *, name: str, timeout: float | None = None) -> Prepared:  # noqa: ASYNC109
        raise AssertionError(f"a prepared statement outlives its transaction: {name} {timeout} {sql}")

    async def next(self) -> None:
        if not self.transaction:
            await self.servers[0].execute("DISCARD ALL")
            self.servers.reverse()

    def is_closed(self) -> bool:
        return any(server.is_closed() for server in self.servers)

    def terminate(self) -> None:
        for server in self.servers:
            server.terminate()

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the driver's.
        for server in self.servers:
            await server.close(timeout=timeout)


async def through_the_pooler(address: PostgresAddress) -> Link:
    """A connection to the pooler, which has two to the server."""
    direct = [await connected(address) for _ in range(2)]
    return Link(Pooled([link.driver for link in direct]), address)


@pytest.fixture
def place(postgres_url: str) -> Place:
    """A store behind the pooler."""

    async def open_it(clock: Clock) -> Store:
        pool = Pool(parse_postgres_url(f"{postgres_url}&pgbouncer=true"), through_the_pooler)
        async with pool.link() as link:
            await migrated(link, pool.address)
        store = PostgresStore(pool, clock)
        await store.begin()
        return store

    return Place(open_it)


TESTS: list[Callable[[Place], None]] = [
    test_commit.test_what_was_committed_is_read_back_exactly,
    test_commit.test_a_change_upon_another_revision_is_lost_and_leaves_nothing,
    test_commit.test_lost_changes_do_not_touch_their_neighbours,
    test_commit.test_a_delivery_key_is_used_once_per_workflow,
    test_commit.test_effects_and_letters_are_put_in_changed_and_taken_out,
    test_commit.test_groups_that_are_under_way_together_are_committed_in_their_order,
    test_commit.test_a_reader_beside_never_sees_a_row_without_its_history,
    lambda place: test_commit.test_a_group_that_contradicts_history_leaves_nothing(place, "a version twice"),
    lambda place: test_commit.test_an_odd_text_is_kept_exactly_or_refused_and_harms_nobody(place, "\x00"),
    test_lives.test_opened_again_it_shows_exactly_what_was_committed,
    test_lives.test_what_is_under_way_is_finished_when_it_is_closed,
    lambda place: test_reads.test_workflows_of_a_state_are_found_in_the_order_they_came_there(place, 2),
    test_reads.test_stalled_workflows_are_those_too_long_in_an_active_state,
]


@pytest.mark.parametrize("test", range(len(TESTS)))
def test_the_suite_of_stores_passes_behind_a_pooler(place: Place, test: int) -> None:
    """C15: no session state is relied on."""
    TESTS[test](place)


def test_the_pooler_of_these_tests_can_be_noticed(postgres_url: str) -> None:
    """A store that was not told of the pooler prepares its statements, and is caught."""

    async def scenario() -> None:
        pool = Pool(parse_postgres_url(postgres_url), through_the_pooler)
        with pytest.raises(AssertionError, match="outlives its transaction"):
            await pool.write("SELECT 1", ())
        await pool.close()

    run(scenario)


def test_nothing_is_said_to_the_server_at_the_start_that_a_pooler_refuses(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C15: PgBouncer knows a handful of settings and ends the connection at any other."""
    settings: list[dict[str, str]] = []
    connect = asyncpg.connect

    async def noted(*words: object, server_settings: dict[str, str], **options: object) -> object:
        settings.append(server_settings)
        return await connect(*words, server_settings=server_settings, **options)

    monkeypatch.setattr(asyncpg, "connect", noted)

    async def scenario() -> None:
        link = await connected(parse_postgres_url(f"{postgres_url}&pgbouncer=true"))
        await link.driver.close()

    run(scenario)
    assert settings == [{"application_name": "interlock"}]
