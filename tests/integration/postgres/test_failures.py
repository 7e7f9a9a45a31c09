"""Lost connections and servers: what did not happen is told apart from what may have happened, and both pass (G9)."""

import asyncio
import uuid
from collections.abc import Sequence

import asyncpg
import pytest

from interlock.clock import SystemClock
from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.postgres.pool import Link, Pool, PostgresRow, connected
from interlock.store.postgres.store import PostgresStore, open_postgres
from interlock.store.protocol import Holder
from interlock.urls import PostgresAddress, parse_postgres_url
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened, several, somebody

NAME = "application_name"


async def end_all(caller: asyncpg.Connection, name: str) -> int:
    """End every backend of an application; returns how many there were."""
    ended = await caller.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", name
    )
    assert isinstance(ended, int)
    return ended


def named(url: str) -> tuple[str, str]:
    """The address with a name of its own for its connections, to find them on the server."""
    name = parse_postgres_url(url).schema[-20:]
    return f"{url}&{NAME}={name}", name


FIRST, SECOND = (str(uuid.UUID(int=number)) for number in (1, 2))


def enveloped(envelope: str) -> Holder:
    """An engine that commits a group with this envelope."""
    return Holder("engine", 30.0, envelope)


def test_reads_and_writes_go_on_after_all_connections_were_ended(postgres_url: str) -> None:
    """FIELD: four of eight queues never came back."""
    url, name = named(postgres_url)

    async def scenario() -> None:
        async with opened(url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started())
            for _ in range(3):
                await asyncio.gather(*(store.load(["w"]) for _ in range(5)))
                assert await end_all(caller, name) >= 1
                assert await store.load(["w"]) == {"w": row}
                (row,) = await begun(store, moved(row))
                assert 1 <= store._pool.open <= 5

    run(scenario)


def test_a_connection_that_is_lost_in_a_commit_leaves_the_outcome_unknown(postgres_url: str) -> None:
    """G9: and the envelope tells whether it happened; here it did not."""
    url, name = named(postgres_url)

    async def scenario() -> None:
        async with opened(url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started())
            # A commit that is on its way and does not end: every row is checked very slowly.
            await caller.execute("ALTER TABLE workflows ADD CONSTRAINT slow CHECK (pg_sleep(60) IS NOT NULL) NOT VALID")
            under_way = asyncio.ensure_future(store.commit_as([moved(row)], enveloped(FIRST)))
            while not await caller.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'", name
            ):
                pass
            await end_all(caller, name)
            with pytest.raises(OutcomeUnknown):
                await under_way
            await caller.execute("ALTER TABLE workflows DROP CONSTRAINT slow")
            assert await store.settle([moved(row)], FIRST) == set()
            assert await store.commit_as([moved(row)], enveloped(FIRST)) == ["w"], "what is settled never happens"
            row = (await store.load(["w"]))["w"]
            assert await store.commit_as([moved(row)], enveloped(FIRST)) == []
            assert await store.settle([moved(row)], SECOND) == set()
            assert await store.settle([moved(row)], FIRST) == {"w"}

    run(scenario)


class Deaf:
    """A connection that is lost after a commit was executed and before its answer is heard."""

    def __init__(self) -> None:
        self.deaf = False

    async def connect(self, address: PostgresAddress) -> Link:
        link = await connected(address)
        write = link.write

        async def heard(sql: str, values: Sequence[object]) -> list[PostgresRow]:
            rows = await write(sql, values)
            if self.deaf:
                self.deaf = False
                link.driver.terminate()
                raise OutcomeUnknown("the connection was lost.")
            return rows

        link.write = heard  # type: ignore[method-assign]
        return link


def test_an_outcome_that_was_unknown_is_resolved_by_its_envelope(postgres_url: str) -> None:
    """G9: it did happen, and is applied once."""

    async def scenario() -> None:
        async with opened(postgres_url) as plain:
            (row,) = await begun(plain, started())
            deaf = Deaf()
            store = PostgresStore(Pool(parse_postgres_url(postgres_url), deaf.connect), SystemClock())
            await store.begin()
            deaf.deaf = True
            with pytest.raises(OutcomeUnknown):
                await store.commit_as([moved(row)], enveloped(FIRST))
            assert await store.settle([moved(row)], FIRST) == {"w"}
            assert await store.commit_as([moved(row)], enveloped(FIRST)) == ["w"]
            assert len(await store.history("w")) == 2
            await store.close()

    run(scenario)


def test_a_server_that_cannot_be_reached_means_that_nothing_happened(postgres_url: str) -> None:
    """G9: never OutcomeUnknown for what was not sent."""

    async def scenario() -> None:
        async with opened(postgres_url) as plain:
            await begun(plain, started())

            async def refuse(address: PostgresAddress) -> Link:
                raise UnavailableError(f"{address.redacted_url} cannot be reached.")

            store = PostgresStore(Pool(parse_postgres_url(postgres_url), refuse), SystemClock())
            for call in (store.load(["w"]), store.commit([started("v")])):
                with pytest.raises(UnavailableError) as caught:
                    await call
                assert not isinstance(caught.value, OutcomeUnknown)
            await store.close()

    run(scenario)


def test_connections_are_opened_when_needed_and_never_more_than_the_cap(postgres_url: str) -> None:
    """C16."""
    url, name = named(f"{postgres_url}&connections_max=3")

    async def scenario() -> None:
        async with opened(url) as store, somebody(postgres_url) as caller:
            count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
            assert await caller.fetchval(count, name) == 1
            await asyncio.gather(*(store.commit([started(f"w-{number}")]) for number in range(50)))
            assert await caller.fetchval(count, name) == 3
            assert store._pool.open == 3

    run(scenario)


@pytest.mark.slow
def test_a_foreign_client_that_takes_every_connection_is_told_and_passes(postgres: str, postgres_url: str) -> None:
    """FIELD: pool exhaustion; the store works again as soon as there is room."""
    url, _ = named(postgres_url)

    async def scenario() -> None:
        async with opened(url) as store, somebody(postgres_url) as caller:
            await caller.execute(f"CREATE ROLE r_{parse_postgres_url(url).schema} LOGIN CONNECTION LIMIT 0")
            role = f"r_{parse_postgres_url(url).schema}"
            poor = url.replace("//postgres:", f"//{role}:")
            assert poor != url
            with pytest.raises(UnavailableError, match="too many connections"):
                await open_postgres(f"{poor}&connect_timeout_s=3", clock=SystemClock())
            await caller.execute(f"ALTER ROLE {role} CONNECTION LIMIT 5")
            schema = parse_postgres_url(url).schema
            await caller.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
            await caller.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
            await caller.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
            async with opened(poor) as other:
                await begun(other, started())
            assert set(await store.load(["w"])) == {"w"}

    run(scenario)


def test_a_caller_who_gives_up_does_not_disturb_the_order_of_the_others(postgres_url: str) -> None:
    """G1: what is on its way is finished, and what builds upon it is not lost."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            first = started()
            second = moved(first.row)
            one, two = asyncio.ensure_future(store.commit([first])), asyncio.ensure_future(store.commit([second]))
            await asyncio.sleep(0)
            one.cancel()
            assert await two == []
            assert await store.load(["w"]) == {"w": second.row}

    run(scenario)


def test_a_schema_that_changes_under_prepared_statements_is_no_trouble(postgres_url: str) -> None:
    """A later version of Interlock may add a column while this one runs."""

    async def scenario() -> None:
        async with several(postgres_url, 1) as (store,), somebody(postgres_url) as caller:
            (row,) = await begun(store, started())
            assert await store.load(["w"]) == {"w": row}
            assert len(await store.history("w")) == 1
            await caller.execute("ALTER TABLE workflows ADD COLUMN novelty text")
            await caller.execute("ALTER TABLE workflow_events ALTER COLUMN event TYPE varchar")
            assert len(await store.history("w")) == 1
            assert await store.load(["w"]) == {"w": row}
            (row,) = await begun(store, moved(row))
            assert await store.load(["w"]) == {"w": row}

    run(scenario)
