"""D12, G2: experiment 4 on every engine. What was acknowledged survives every crash, and nothing is there by half.

40 crashes per engine; `make proof` (INTERLOCK_CRASHES) asks for 200. INTERLOCK_SEED starts from another seed. On a
bucket the local disk is lost every other time. On PostgreSQL the client is killed every time, and its server, too, in
one crash of three: one of its processes, all of them, or in its own way of crashing.
"""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.bench.durability import WRITER, Cycle, DurabilityResult, Strike, check, measure
from interlock.chaos.database_servers import OwnPostgres
from interlock.errors import CorruptionError, UnavailableError
from tests.chaos.postgres.campaign import own_postgres
from tests.crash.servers import Crashes
from tests.integration.objects.servers import SeaweedFS

FACTOR = int(os.environ.get("INTERLOCK_CRASHES") or "1")
SEED = int(os.environ.get("INTERLOCK_SEED") or "1")
CYCLES = min(40 * FACTOR, 200)
CLIENTS = 16
LEASE_S = 0.3


def run(
    url: str | None, *, cycles: int = CYCLES, writer: str = WRITER, strike: Strike | None = None
) -> DurabilityResult:
    seen: list[Cycle] = []
    result = asyncio.run(
        measure(
            url=url,
            cycles=cycles,
            clients=CLIENTS,
            seed=SEED,
            watch=seen.append,
            writer=writer,
            strike=strike,
            lease_s=LEASE_S,
        )
    )
    assert result.cycles == seen
    return result


def nothing_is_lost(result: DurabilityResult) -> None:
    check(result)
    assert len(result.cycles) == CYCLES
    assert (result.lost, result.torn) == (0, 0)
    assert result.found == result.acknowledged + result.in_doubt
    assert result.acknowledged > CYCLES, "the lives were killed before they did anything"


@pytest.mark.slow
def test_nothing_is_lost_on_a_local_lane(tmp_path: Path) -> None:
    nothing_is_lost(run(f"lanes://{tmp_path}/ledger"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_is_lost_in_a_bucket_with_and_without_the_disk(seaweedfs: SeaweedFS, folder: str) -> None:
    result = run(seaweedfs.url(f"{folder}/ledger"))
    nothing_is_lost(result)
    assert sum(cycle.disk_lost for cycle in result.cycles) == CYCLES // 2


@pytest.fixture(scope="module")
def server() -> Generator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.mark.slow
def test_nothing_is_lost_on_postgresql_whose_server_is_killed_too(server: OwnPostgres) -> None:
    strike = Crashes(server)
    nothing_is_lost(run(server.url, strike=strike))
    assert strike.count == CYCLES


def test_who_acknowledges_before_the_commit_is_caught() -> None:
    result = run(None, writer="tests.crash.sabotaged_writers:acknowledges_early")
    assert result.cycles[-1].lost > 0
    with pytest.raises(CorruptionError, match="acknowledged commits are gone"):
        check(result)


def test_who_commits_a_transaction_in_pieces_is_caught() -> None:
    result = run(None, writer="tests.crash.sabotaged_writers:commits_in_pieces")
    assert result.cycles[-1].torn > 0
    with pytest.raises(CorruptionError, match="do not agree with the ledger"):
        check(result)


def test_a_life_that_was_not_killed_shows_nothing_and_is_refused() -> None:
    with pytest.raises(UnavailableError, match="ended by itself"):
        run(None, cycles=3, writer="tests.crash.sabotaged_writers:stops")
