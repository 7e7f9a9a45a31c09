"""Leases of several processes on one PostgreSQL: exactly one holder, whatever happens at the same time (C10, G4)."""

import asyncio
from itertools import pairwise

import pytest

from interlock.store.postgres.store import PostgresLeases
from interlock.store.protocol import Granted, Held
from tests.conformance.store.samples import run
from tests.integration.postgres.stores import opened, several, somebody

LONG_S = 600.0


@pytest.mark.slow
def test_of_32_requests_of_several_processes_one_wins(postgres_url: str) -> None:
    """C10: also for a name that nobody has asked for before, and again after every release."""

    async def scenario() -> None:
        async with several(postgres_url, 4) as stores:
            tokens: list[int] = []
            for _ in range(20):
                asked = [stores[each % 4].leases.acquire("report", f"owner {each}", LONG_S) for each in range(32)]
                answers = await asyncio.gather(*asked)
                [won] = [each for each in answers if isinstance(each, Granted)]
                assert {type(each) for each in answers} == {Granted, Held}
                tokens.append(won.token)
                assert await stores[0].leases.release("report", won.token), "the token says who, not the connection"
            assert tokens == list(range(1, 21))

    run(scenario)


def test_a_takeover_is_given_to_one_and_fences_the_holder_before(postgres_url: str) -> None:
    """G4: of all who find a lease over at the same time."""

    async def scenario() -> None:
        async with several(postgres_url, 4) as stores:
            last = 0
            for _ in range(20):
                await stores[0].leases.acquire("report", "frozen", -1.0)
                asked = [stores[each % 4].leases.acquire("report", f"owner {each}", -1.0) for each in range(8)]
                # All of them are over at once, so each may be given it; no two the same.
                tokens = sorted(each.token for each in await asyncio.gather(*asked) if isinstance(each, Granted))
                assert all(earlier < later for earlier, later in pairwise([last, *tokens]))
                last = tokens[-1]
                for stale in tokens[:-1]:
                    assert not await stores[1].leases.renew("report", stale, LONG_S)
                    assert not await stores[2].leases.release("report", stale)

    run(scenario)


def test_who_waits_for_a_lease_writes_nothing(postgres_url: str) -> None:
    """A held lease costs those who wait a read: no row version, no log."""

    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as people:
            await store.leases.acquire("report", "a", LONG_S)
            before = await people.fetchrow("SELECT xmin, xmax, ctid FROM leases")
            for _ in range(5):
                assert isinstance(await store.leases.acquire("report", "b", LONG_S), Held)
            assert await people.fetchrow("SELECT xmin, xmax, ctid FROM leases") == before

    run(scenario)


def test_a_lease_is_an_ordinary_row_that_people_can_read(postgres_url: str) -> None:
    """B1: by the database's clock; nothing is tied to a connection."""

    async def scenario() -> None:
        async with opened(f"{postgres_url}&application_name=lender") as store, somebody(postgres_url) as people:
            answer = await store.leases.acquire("report", "host:1/x", LONG_S)
            assert isinstance(answer, Granted)
            row = await people.fetchrow(
                "SELECT owner, token, since <= now() AS begun, until - since AS lasts FROM leases WHERE until > now()"
            )
            assert (row["owner"], row["token"], row["begun"]) == ("host:1/x", 1, True)
            assert abs(row["lasts"].total_seconds() - LONG_S) < 1
            locks = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE application_name = 'lender'"
            assert await people.fetchval(f"{locks} AND locktype = 'advisory'") == 0

    run(scenario)


def test_without_a_look_at_the_holder_the_race_has_many_winners(postgres_url: str) -> None:
    """The race can fail: with the condition of the takeover gone, everybody is given the lease."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            careless = PostgresLeases(store._schema, store._safely)
            condition = "WHERE (l.until > clock_timestamp() AND l.owner <> excluded.owner) IS NOT TRUE"
            assert condition in careless._acquire
            careless._acquire = careless._acquire.replace(condition, "").replace("h.owner <> $2)", "false)")
            answers = await asyncio.gather(*(careless.acquire("report", f"{each}", LONG_S) for each in range(8)))
            assert sum(isinstance(each, Granted) for each in answers) > 1

    run(scenario)
