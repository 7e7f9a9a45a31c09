"""A server that takes no connection, as it is full or restarts: whoever has one waits for it, others for a while (C16).

The server is full for a user of the test's own, whose limit is what other clients leave for it.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from interlock.clock import SystemClock
from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.postgres.pool import Link, Pool, connected
from interlock.postgres.translate_errors import NotNow
from interlock.store.postgres.store import PostgresStore, open_postgres
from interlock.urls import PostgresAddress, parse_postgres_url
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened, somebody
from tests.integration.postgres.test_restarts import OwnServer, own_server

__all__ = ["own_server"]

SHORT_S = 3
"""For what is waited for in vain; longer than a machine stands still before anybody was told anything."""


class Refused:
    """Connects, and tells when it was refused."""

    def __init__(self) -> None:
        self.times = 0
        self.told = asyncio.Event()

    async def connect(self, address: PostgresAddress) -> Link:
        try:
            return await connected(address)
        except NotNow:
            self.times += 1
            self.told.set()
            raise


@asynccontextmanager
async def limited(url: str, limit: int) -> AsyncIterator[tuple[str, asyncpg.Connection]]:
    """A schema that is there, the address of a user with so many connections, and who can change that."""
    schema = parse_postgres_url(url).schema
    role = f"r_{schema}"
    async with opened(url), somebody(url) as owner:
        await owner.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT {limit}")
        await owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        await owner.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        await owner.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
        yield url.replace("//postgres:", f"//{role}:"), owner


async def all_ended(owner: asyncpg.Connection, role: str) -> None:
    """Wait until the server knows of no session of the user."""
    while await owner.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", role):
        pass


def test_a_node_that_has_connections_waits_for_one_of_them_when_the_server_is_full(postgres_url: str) -> None:
    """C16: forty at once with two connections; nobody hears of it."""

    async def scenario() -> None:
        async with limited(postgres_url, 2) as (url, _):
            refused = Refused()
            store = PostgresStore(
                Pool(parse_postgres_url(f"{url}&connect_timeout_s=60"), refused.connect), SystemClock()
            )
            assert await store.load(["w"]) == {}
            done = await asyncio.gather(*(store.commit([started(f"w-{number}")]) for number in range(40)))
            assert done == [[]] * 40
            assert 1 <= store._pool.open <= 2
            assert refused.times > 0
            await store.close()

    run(scenario)


def test_a_node_without_a_connection_goes_on_as_soon_as_there_is_room(postgres_url: str) -> None:
    """FIELD, pool exhaustion: reads and writes that never left wait for it."""

    async def scenario() -> None:
        async with limited(postgres_url, 0) as (url, owner):
            refused = Refused()
            store = PostgresStore(
                Pool(parse_postgres_url(f"{url}&connect_timeout_s=600"), refused.connect), SystemClock()
            )
            waiting = [asyncio.ensure_future(store.commit([started(f"w-{number}")])) for number in range(9)]
            reading = asyncio.ensure_future(store.load(["w-1"]))
            await refused.told.wait()
            assert not any(each.done() for each in (*waiting, reading))
            await owner.execute(f"ALTER ROLE r_{parse_postgres_url(url).schema} CONNECTION LIMIT 3")
            assert await asyncio.gather(*waiting) == [[]] * 9
            assert (await reading).keys() <= {"w-1"}
            await store.close()

    run(scenario)


@pytest.mark.slow
def test_a_node_without_a_connection_waits_for_so_long_and_says_so(postgres_url: str) -> None:
    """Nothing was sent: it is never OutcomeUnknown."""

    async def scenario() -> None:
        async with limited(postgres_url, 0) as (url, _):
            refused = Refused()
            store = PostgresStore(
                Pool(parse_postgres_url(f"{url}&connect_timeout_s={SHORT_S}"), refused.connect), SystemClock()
            )
            for call in (store.commit([started()]), store.load(["w"])):
                before = refused.times
                with pytest.raises(
                    UnavailableError, match=rf"too many connections .* again and again for {SHORT_S} s"
                ) as caught:
                    await call
                assert not isinstance(caught.value, OutcomeUnknown)
                assert "connect_timeout_s" in caught.value.fix
                assert refused.times > before
            with pytest.raises(UnavailableError, match="again and again"):
                await open_postgres(f"{url}&connect_timeout_s={SHORT_S}", clock=SystemClock())
            await store.close()

    run(scenario)


def test_an_address_where_nobody_ever_answered_is_not_waited_for(postgres_url: str) -> None:
    """It may be a wrong one, and is best found at once."""
    nowhere = postgres_url.replace("host=", "host=/nowhere")

    async def scenario() -> None:
        with pytest.raises(UnavailableError, match="cannot be reached") as caught:
            await open_postgres(f"{nowhere}&connect_timeout_s=600", clock=SystemClock())
        assert "again and again" not in caught.value.what

    run(scenario)


def control(server: OwnServer, *words: str) -> None:
    """Run pg_ctl as the owner of the server's files."""
    owner = server._data.stat().st_uid if os.geteuid() == 0 else None
    command = [str(server._control), "-D", str(server._data), "-w", "-l", str(server._data / "control.log"), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner)


@pytest.mark.slow
def test_a_restart_is_survived_by_what_never_left(own_server: OwnServer) -> None:
    """G9: a read and a commit that begin while nobody is there are done when the server is back."""

    async def scenario() -> None:
        async with opened(own_server.url) as first:
            (row,) = await begun(first, started())
        refused = Refused()
        store = PostgresStore(
            Pool(parse_postgres_url(f"{own_server.url}&connect_timeout_s=600"), refused.connect), SystemClock()
        )
        assert await store.load(["w"]) == {"w": row}
        await asyncio.to_thread(control, own_server, "-m", "fast", "stop")
        reading = asyncio.ensure_future(store.load(["w"]))
        writing = asyncio.ensure_future(store.commit([moved(row)]))
        await refused.told.wait()
        await asyncio.to_thread(control, own_server, "restart")
        assert (await reading).keys() == {"w"}
        assert await writing == []
        assert len(await store.history("w")) == 2
        await store.close()

    run(scenario)


@pytest.mark.parametrize("options", ["", "&pgbouncer=true"])
def test_whoever_is_cancelled_leaves_neither_a_transaction_nor_a_half_used_connection(
    postgres_url: str, options: str
) -> None:
    """A load that is given up in the middle ends its session, and the next one gets another."""

    async def scenario() -> None:
        async with limited(postgres_url, 5) as (url, owner), opened(url + options) as store:
            await begun(store, started())
            role = f"r_{parse_postgres_url(url).schema}"
            slow = asyncio.ensure_future(store._pool.read("SELECT pg_sleep(600)"))
            while not await owner.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep'", role
            ):
                pass
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert not store._pool._idle
            await all_ended(owner, role)
            loads = [asyncio.ensure_future(store.load(["w"])) for _ in range(20)]
            for turns, each in enumerate(loads):
                for _ in range(turns):  # Each in another moment of its way.
                    await asyncio.sleep(0)
                each.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
            assert set(await store.load(["w"])) == {"w"}
            assert store._pool.open <= 5
            while await owner.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state LIKE 'idle in transaction%'", role
            ):
                pass

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "&pgbouncer=true"])
def test_what_takes_too_long_is_ended_on_the_server_too(postgres_url: str, options: str) -> None:
    """The server does not go on with what nobody waits for: a write would commit much later."""

    async def scenario() -> None:
        short = f"&statement_timeout_s={SHORT_S}{options}"
        async with limited(postgres_url, 5) as (url, owner), opened(url + short) as store:
            for call in (store._pool.read("SELECT pg_sleep(600)"), store._pool.write("SELECT pg_sleep(600)", ())):
                with pytest.raises(UnavailableError, match="did not answer"):
                    await call
                assert not store._pool._idle
                await all_ended(owner, f"r_{parse_postgres_url(url).schema}")

    run(scenario)
