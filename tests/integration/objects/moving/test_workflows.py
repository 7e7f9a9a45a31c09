"""D10, D11: workflows move from every place to every place, while they are written and while an engine runs them."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock import Engine
from interlock.clock import SystemClock
from interlock.engine import follow_moves, recovery
from interlock.errors import Fenced, MovedElsewhere
from interlock.relocate.workflow_move import abandon_workflows, plan_workflows
from interlock.store.open_store import open_store
from interlock.store.protocol import Granted, Held, Old, Store
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.objects.moving.buckets import without_key
from tests.integration.objects.servers import BUCKET, SeaweedFS
from tests.integration.postgres.workflows_following.flowing import Flow, made, problems
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled
from tests.unit.engine.follow_moves.shop import order

CLOCK = SystemClock()
KINDS = ("folder", "bucket", "postgres")
PAIRS = [(source, target) for source in KINDS for target in KINDS]
DEATHS = ("watch", "copy/aside", "copy/1", "catch up/0", "seal/0/before", "seal/0", "verify", "leave/before")
SHARE = max(1, 3 // int(os.environ.get("INTERLOCK_CRASHES") or "1"))
"""A pair takes this share of the points; together they take all of them."""
LEASE = {"lease_s": 0.5}
Make = Callable[[str], str]


@pytest.fixture
def make(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, postgres: str) -> Make:
    """Returns a home of a kind that no test has used."""
    without_key(seaweedfs, monkeypatch, str(tmp_path / "cache"))

    def home(kind: str) -> str:
        name = uuid.uuid4().hex[:18]
        if kind == "bucket":
            return f"s3://{BUCKET}/homes/{name}?endpoint={seaweedfs.endpoint}"
        return f"lanes://{tmp_path}/{name}" if kind == "folder" else f"{postgres}&schema=w_{name}"

    return home


@asynccontextmanager
async def store_at(home: str, epoch: int | None = None) -> AsyncGenerator[Store]:
    settings = None if home.startswith("postgresql") else LEASE
    store = await open_store(home, clock=CLOCK, settings=settings, epoch=epoch)
    try:
        yield store
    finally:
        with contextlib.suppress(Fenced, MovedElsewhere):
            await store.close()


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_they_move_with_what_is_written_meanwhile_and_back(source: str, target: str, make: Make) -> None:
    here, there = make(source), make(target)
    deaths = DEATHS[PAIRS.index((source, target)) % SHARE :: SHARE]

    async def scenario() -> None:
        async with store_at(here) as store:
            rows = await filled(store)
            ids = [row.id for row in rows]
        plan = await plan_workflows(here, there, epoch=1, clock=CLOCK)
        assert (plan.amounts[0].rows, plan.amounts[1].rows) == (30, 60)
        for number, point in enumerate(deaths):
            with pytest.raises(Died):
                await move(here, there, at=dying_at(point))
            async with store_at(here) as store:  # Nothing has moved.
                row = rows[number]
                await begun(store, moved(row, state="new", effects_done=(f"e{number}",), letters_gone=(f"l{number}",)))
                final = started("gone", machine="young", state="done", active=False, at_us=5)
                await begun(store, final, started(f"after {point}"))
                old = Old(machine="young", state="done", before_us=9)
                assert (await store.prune(old, after=None, limit=9)).workflows == ("gone",)
                await store.note("api-key/1", point)
                ids.append(f"after {point}")
        async with store_at(here) as store:
            before = await contents(store, ids)
        there_now = await move(here, there)
        assert there_now.resumed == (set(deaths) != {"watch"})
        async with store_at(there) as store:
            assert (await contents(store, ids))[:8] == before[:8]
            assert isinstance(await store.leases.acquire("held", "me", 1.0), Held)
            assert await store.leases.acquire("released", "me", 1.0) == Granted(2)
            await begun(store, started("at the target"))
            before = await contents(store, [*ids, "at the target"])
        with pytest.raises(MovedElsewhere) as told:
            async with store_at(here):
                pass
        assert told.value.epoch == 1
        with pytest.raises(Died):
            await move(there, here, epoch=2, at=dying_at("leave"))
        async with store_at(here, epoch=2) as store:  # Whoever has seen the tombstone finishes.
            assert (await contents(store, [*ids, "at the target"]))[:8] == before[:8]
        assert (await move(there, here, epoch=2)).resumed

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_they_stay_when_the_move_is_abandoned(source: str, target: str, make: Make) -> None:
    here, there = make(source), make(target)

    async def scenario() -> None:
        async with store_at(here) as store:
            await filled(store)
        for point in ("copy/1", "leave/before"):
            with pytest.raises(Died):
                await move(here, there, at=dying_at(point))
            assert await abandon_workflows(here, there, clock=CLOCK)
            async with store_at(here) as store:
                await begun(store, started(f"after {point}"))
        assert not await abandon_workflows(here, there, clock=CLOCK)
        assert (await move(here, there)).amounts[0].rows == 32
        with pytest.raises(MovedElsewhere):
            await abandon_workflows(here, there, clock=CLOCK)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_engine_goes_along_and_back(source: str, target: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its callers wait for a moment; every order is charged once and comes to its end."""
    here, there = make(source), make(target)
    monkeypatch.setattr(follow_moves, "WAITED_S", 60.0)  # However slow the machine is, its callers are not sent away.
    monkeypatch.setattr(recovery, "HELD_AT_BUCKET_US", 0)  # The gateway is one process: it would see an attempt twice.

    async def scenario() -> None:
        gateway, machine = made()
        async with Engine.open(here, machines=[machine], drain_s=0) as engine:
            flow = Flow(lambda workflow: order(engine, machine, workflow, keyed=True))
            async with flow.flowing():
                await flow.more(8)
                await move(here, there, epoch=1)
                await flow.more(8)
                await move(there, here, epoch=2)
                await flow.more(8)
            assert await problems(engine, flow, gateway) == []

    asyncio.run(scenario())
