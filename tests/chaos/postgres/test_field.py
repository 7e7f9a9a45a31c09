"""FIELD: how queues on PostgreSQL failed elsewhere, one test for each that the campaign does not name (see README)."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from interlock.core.values import StepContext
from interlock.engine.engine import Engine
from interlock.errors import InterlockError, OutcomeUnknown, TransactionError, UnavailableError
from interlock.store.postgres.store import PostgresStore
from interlock.store.protocol import DueWork, Stored
from interlock.store.records import Row
from interlock.testing.faults import Processes
from tests.chaos.postgres import parcels
from tests.chaos.postgres.parcels import ATTEMPTS, LEASE_S, Parcel, State, opened, parcel
from tests.conformance.store.samples import run
from tests.integration.postgres.stores import somebody

PATIENCE_S = 300.0
"""What has not happened after this time never will."""
IDLE_POLLS = 20
LONG_S = 600.0
"""A lease that no stall outlasts."""

WRITTEN = """
SELECT array_agg(ROW(tableoid, ctid, xmin, xmax)::text ORDER BY tableoid, ctid) FROM (
  SELECT tableoid, ctid, xmin, xmax FROM workflows UNION ALL SELECT tableoid, ctid, xmin, xmax FROM workflow_events
  UNION ALL SELECT tableoid, ctid, xmin, xmax FROM workflow_effects) AS rows"""
"""Not the leases: who looks for what has stalled has one, every few seconds, for all workers together."""


class Work:
    """Sends parcels: notes every attempt, and waits at the gate until it is open."""

    def __init__(self, patch: pytest.MonkeyPatch, *, opened: bool = True) -> None:
        self.attempts: Counter[str] = Counter()
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        if opened:
            self.gate.set()
        patch.setattr(parcels, "deeds", [self._send])

    async def _send(self, ctx: StepContext) -> None:
        self.attempts[ctx.workflow] += 1
        self.begun.set()
        await self.gate.wait()


async def left_behind(url: str, names: Sequence[str]) -> None:
    """Parcels that a node without workers has taken: somebody else has to send them."""
    async with opened(url, worker=False) as node:
        await asyncio.gather(*(node.start(parcel, name, Parcel()) for name in names))


async def all_sent(engine: Engine, names: Sequence[str]) -> None:
    await asyncio.gather(*(engine.wait(name, State.SENT, timeout_s=PATIENCE_S) for name in names))


def test_two_rescuers_never_run_the_same_workflow(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B6, G4: recovery elsewhere read a stale row, and two workers ran it (dbos-transact-py 742)."""
    names = [f"p-{number}" for number in range(60)]

    async def scenario() -> None:
        work = Work(monkeypatch)
        await left_behind(postgres_url, names)
        async with opened(postgres_url, lease_s=LONG_S) as one, opened(postgres_url, lease_s=LONG_S) as other:
            await asyncio.gather(all_sent(one, names), all_sent(other, names))
        assert work.attempts == dict.fromkeys(names, 1)

    run(scenario)


def test_the_lease_of_a_worker_that_nobody_knows_is_over_when_its_time_is(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: elsewhere the row of a worker was pruned, and what it did stayed "doing" for ever (procrastinate 1518)."""

    async def scenario() -> None:
        work = Work(monkeypatch)
        await left_behind(postgres_url, ["p"])
        async with somebody(postgres_url) as caller:
            await caller.execute(
                "UPDATE workflows SET lease_owner = 'pruned', lease_token = lease_token + 1, revision = revision + 1, "
                "lease_until = now() + $1 * interval '1 second'",
                LEASE_S,
            )
        async with opened(postgres_url, lease_s=LONG_S) as engine:
            await all_sent(engine, ["p"])
        assert work.attempts == {"p": 1}

    run(scenario)


def test_a_worker_that_comes_back_is_another_one(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: the same id after a restart would own what the life before has left, and never do it (procrastinate 1518)."""

    async def scenario() -> None:
        owners: list[str] = []
        for name in ("p-1", "p-2"):
            work = Work(monkeypatch, opened=False)
            async with opened(postgres_url) as engine, somebody(postgres_url) as caller:
                await engine.start(parcel, name, Parcel())
                await asyncio.wait_for(work.begun.wait(), PATIENCE_S)
                owner = await caller.fetchval("SELECT lease_owner FROM workflows WHERE id = $1", name)
                assert owner is not None
                owners.append(owner)
        assert len(set(owners)) == 2
        Work(monkeypatch)
        async with opened(postgres_url) as engine:
            await all_sent(engine, ["p-1", "p-2"])

    run(scenario)


def test_a_row_that_cannot_be_read_does_not_stop_the_rescue_of_the_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: elsewhere the rescuer itself stalls (procrastinate 1408)."""
    names = [f"p-{number}" for number in range(10)]

    async def scenario() -> None:
        Work(monkeypatch)
        await left_behind(postgres_url, ["broken", *names])
        async with somebody(postgres_url) as caller:
            await caller.execute("UPDATE workflows SET owed = '{' WHERE id = 'broken'")
        async with opened(postgres_url) as engine:
            await all_sent(engine, names)

    run(scenario)


@pytest.mark.parametrize("error", [UnavailableError, OutcomeUnknown, TransactionError])
def test_the_rescue_goes_on_after_the_server_has_refused_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, error: type[InterlockError]
) -> None:
    """B6, G9: elsewhere the rescuer itself stalls (procrastinate 1408)."""
    claim, refusals = PostgresStore.claim, [error("not now.") for _ in range(3)]

    async def refused(
        self: PostgresStore,
        machine: str,
        *,
        owner: str,
        limit: int,
        lease_s: float,
        timers: bool = False,
        states: Sequence[str] = (),
        ids: Sequence[str] = (),
        refused: Sequence[Stored] = (),
    ) -> list[Row]:
        if refusals:
            raise refusals.pop()
        return await claim(
            self,
            machine,
            owner=owner,
            limit=limit,
            lease_s=lease_s,
            timers=timers,
            states=states,
            ids=ids,
            refused=refused,
        )

    async def scenario() -> None:
        Work(monkeypatch)
        await left_behind(postgres_url, ["p"])
        monkeypatch.setattr(PostgresStore, "claim", refused)
        async with opened(postgres_url) as engine:
            await all_sent(engine, ["p"])
        assert not refusals

    run(scenario)


def test_a_worker_that_has_nothing_to_do_writes_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere one heartbeat row per worker saturated a database (hatchet 2604)."""
    due, polled = PostgresStore.due, asyncio.Semaphore(0)

    async def counted(self: PostgresStore, machines: Sequence[str]) -> DueWork:
        polled.release()
        return await due(self, machines)

    async def scenario() -> None:
        Work(monkeypatch)
        await left_behind(postgres_url, ["p"])
        monkeypatch.setattr(PostgresStore, "due", counted)
        async with opened(postgres_url) as engine, somebody(postgres_url) as caller:
            await all_sent(engine, ["p"])
            before = await caller.fetchval(WRITTEN)
            for _ in range(IDLE_POLLS):
                await asyncio.wait_for(polled.acquire(), PATIENCE_S)
            assert await caller.fetchval(WRITTEN) == before

    run(scenario)


@pytest.mark.slow
def test_an_item_that_kills_its_worker_is_given_up_after_its_attempts(postgres_url: str, tmp_path: Path) -> None:
    """C3: elsewhere an item was rejected before its attempt was counted, and poisoned its queue for ever (inngest)."""
    run(lambda: left_behind(postgres_url, ["poison"]))
    with Processes() as processes:
        ended: list[int] = []
        said: list[str] = []
        for _ in range(ATTEMPTS + 1):
            life = processes.start("tests.chaos.postgres.parcels:poisoned", postgres_url)
            said = list(life.lines())
            ended.append(life.end())
            life.close()
    assert ended == [-9] * ATTEMPTS + [0]
    assert said == [State.LOST.value]
