"""Tokens of leases grow, also where some know less: of Redis, of the store, or of their own request (G4)."""

from pathlib import Path

import pytest

from interlock.clock import RandomIds, SystemChance
from interlock.engine.shared import shared_redis
from interlock.redis.shared_leases import COUNT_BITS, Epochs
from interlock.store.memory import MemoryStore
from tests.integration.redis.living import OwnClock, cluster_of, engine, run, until
from tests.integration.redis.server import Server
from tests.integration.redis.test_leases import OVER_S, joined, token


def test_who_is_cut_off_from_redis_does_not_leave_the_others_with_lower_tokens(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """G4: its address is wrong, say, so it never comes back; what it had from the store is over."""
    monkeypatch.setattr(shared_redis, "LEARN_BEATS", 1)

    async def scenario() -> None:
        home = f"lanes://{tmp_path}/home"
        async with engine(server.url, home) as here:
            cluster = cluster_of(here)
            async with here.lease("report") as lease:
                before = lease.token
            epochs = Epochs(here._inside.store.leases, SystemChance(), RandomIds(), notes=here._inside.store)
            cut_off = await epochs.new() << COUNT_BITS
            await until(lambda: cluster._leases._least == cut_off >> COUNT_BITS)
            async with here.lease("report", wait_s=0) as lease:
                assert before < cut_off < lease.token, "at once, without a pause"

    run(scenario)


def test_a_home_that_knows_no_epoch_cannot_make_an_emptied_redis_begin_anew(server: Server) -> None:
    """G4: a store that has just been made gives the epoch 1, long after another home has had higher ones there."""

    async def scenario() -> None:
        one, two = MemoryStore(OwnClock()), MemoryStore(OwnClock())
        for _ in range(3):
            await Epochs(one.leases, SystemChance(), RandomIds(), notes=one).new()
        async with joined(server, one) as here:
            before = await token(here, "report", "a", OVER_S)
            await here.link._driver.flushall()  # type: ignore[attr-defined]
            async with joined(server, two, home="there") as there:
                assert await token(there, "other", "b", OVER_S) >> COUNT_BITS == 1
                assert await token(here, "report", "c", OVER_S) > before

    run(scenario)


def test_who_asks_again_after_the_store_has_given_the_lease_to_others_has_a_higher_token(server: Server) -> None:
    """G4, G9: the first request was granted, and nobody heard of it; an epoch later its token is worth nothing."""

    async def scenario() -> None:
        store = MemoryStore(OwnClock())
        async with joined(server, store) as here:
            unheard = await token(here, "report", "a")
            meanwhile = await Epochs(store.leases, SystemChance(), RandomIds(), notes=store).new() << COUNT_BITS
            await here.leases._raise()
            assert unheard < meanwhile < await token(here, "report", "a")

    run(scenario)
