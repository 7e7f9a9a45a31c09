"""Leases in a real Redis, and what becomes of them when it is killed, frozen, emptied or restarted (C10, C11, G4)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from interlock import Admission, Breaker, Dependency, LeaseHeld, UnavailableError
from interlock.clock import RandomIds, SystemChance
from interlock.redis import connection
from interlock.redis import shared_leases as sharing
from interlock.redis.connection import ACQUIRE, CALLS_MAX, STILL_S, RedisLink
from interlock.redis.shared_leases import COUNT_BITS, Epochs, SharedLeases
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Granted, Held
from interlock.urls import parse_redis_url
from tests.integration.redis.living import PATIENCE_S, OwnClock, cluster_of, engine, outlet_of, run, until
from tests.integration.redis.server import Server

LONG_S = 600.0
OVER_S = -1.0


class Cluster:
    """What a process has of Redis, without an engine."""

    def __init__(self, server: Server, store: MemoryStore, home: str) -> None:
        self.link = RedisLink(parse_redis_url(server.url), SystemChance(), self._changed)
        self.epochs = Epochs(store.leases, SystemChance(), RandomIds(), notes=store)
        self.leases = SharedLeases(self.link, store.leases, self.epochs, OwnClock())
        self.leases.home = home
        self.link.listen(self.leases)

    def _changed(self, up: bool, reason: str) -> None:
        if not up:
            self.leases.lost()


@contextlib.asynccontextmanager
async def joined(server: Server, store: MemoryStore, *, home: str = "here") -> AsyncGenerator[Cluster]:
    """A process that has the same store as the others of a test."""
    cluster = Cluster(server, store, home)
    await cluster.link.begin()
    try:
        yield cluster
    finally:
        await cluster.link.close()


async def token(cluster: Cluster, name: str, owner: str, lease_s: float = LONG_S) -> int:
    """Acquire what must be free, as soon as Redis is past its pause."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await cluster.leases.acquire(name, owner, lease_s)
            if isinstance(answer, Granted):
                return answer.token
            assert answer.owner.startswith(("an unknown owner", "the last owner")), answer
            await asyncio.sleep(0.05)


async def holder(cluster: Cluster, name: str, owner: str = "somebody else") -> str:
    answer = await cluster.leases.acquire(name, owner, LONG_S)
    assert isinstance(answer, Held), answer
    return answer.owner


def test_the_contract_of_a_keeper_is_kept(server: Server) -> None:
    """C10, C11, G4, G9: what the conformance suite asks of a store."""

    async def scenario() -> None:
        async with joined(server, MemoryStore(OwnClock())) as here:
            leases = here.leases
            first = await token(here, "report", "a")
            assert await holder(here, "report", "b") == "a"
            assert await token(here, "report", "a") == first, "what may have happened can be repeated"
            assert await leases.release("report", first)
            assert not await leases.release("report", first)
            assert not await leases.renew("report", first, LONG_S)
            assert not await leases.renew("never heard of", 1, LONG_S)
            for_ever = await token(here, "for ever", "b", 1e18)
            assert await leases.renew("for ever", for_ever, 1e18)
            second = await token(here, "report", "b", OVER_S)
            assert second > first
            assert await leases.renew("report", second, OVER_S), "nobody has asked for it meanwhile"
            third = await token(here, "report", "c")
            assert third > second
            assert not await leases.renew("report", second, LONG_S)
            assert not await leases.release("report", second)
            before = await leases.acquire("report", "d", LONG_S)
            assert await leases.renew("report", third, LONG_S)
            after = await leases.acquire("report", "d", LONG_S)
            assert isinstance(before, Held)
            assert isinstance(after, Held)
            assert before.since_us == after.since_us <= before.now_us <= after.now_us

    run(scenario)


def test_the_error_says_who_holds_it_and_since_when_by_the_clock_of_redis(server: Server) -> None:
    """C10, C11: a process whose clock is an hour off neither sees nor does anything else."""

    async def scenario() -> None:
        async with engine(server.url, clock=OwnClock(3_600)) as wrong, engine(server.url) as right:
            async with right.lease("report", lease_s=LONG_S):
                with pytest.raises(LeaseHeld, match=r"since \d\d:\d\d:\d\d UTC \(for \d+ s\)") as caught:
                    await wrong.lease("report", wait_s=0).__aenter__()
                assert abs(caught.value.since.timestamp() - OwnClock().wall_s()) < 1_800
            async with wrong.lease("report", lease_s=LONG_S) as lease:
                with pytest.raises(LeaseHeld):
                    await right.lease("report", wait_s=0).__aenter__()
                assert await lease.held()

    run(scenario)


def test_without_redis_the_store_gives_higher_tokens_and_redis_gives_higher_ones_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """C10, G4: it is said once each time, and nobody has a lease twice."""

    async def scenario() -> None:
        store = MemoryStore(OwnClock())
        async with joined(server, store) as one, joined(server, store) as two:
            tokens = [await token(one, "report", "a", OVER_S), await token(two, "report", "b", OVER_S)]
            held = await token(one, "kept", "a", LONG_S)
            await two.leases.beat()
            server.kill()
            tokens += [await token(one, "report", "a2", OVER_S), await token(two, "report", "b2", OVER_S)]
            assert not one.link.up
            assert (await holder(two, "kept")).startswith("the last owner in Redis")
            with pytest.raises(UnavailableError, match="does not answer"):
                await one.leases.renew("kept", held, LONG_S)
            carried = await token(two, "carried", "b", LONG_S)
            server.start()
            await until(lambda: one.link.up and two.link.up)
            assert await holder(one, "carried") == "b", "what the store gave is known to Redis now"
            tokens += [await token(one, "report", "a3", OVER_S), await token(two, "report", "b3", OVER_S)]
            assert tokens == sorted(set(tokens))
            assert (await holder(one, "kept")).startswith("an unknown owner"), "it may be held still"
            assert await two.leases.release("carried", carried)
            assert await token(one, "carried", "a") > carried

    with caplog.at_level(logging.INFO, "interlock.operators"):
        run(scenario)
    said = [record.message for record in caplog.records if "Redis at" in record.message]
    assert len([text for text in said if "cannot be used" in text]) == 2, "once for each process"
    assert len([text for text in said if "there again" in text]) == 2


def test_a_redis_that_was_emptied_gives_higher_tokens_than_before(server: Server) -> None:
    """G4: what was held stays so for its time, although Redis knows nothing of it."""

    async def scenario() -> None:
        async with joined(server, MemoryStore(OwnClock())) as here:
            tokens = [await token(here, "report", str(turn), OVER_S) for turn in range(5)]
            held = await token(here, "kept", "a")
            await here.link._driver.flushall()  # type: ignore[attr-defined]
            tokens.append(await token(here, "report", "again", OVER_S))
            assert tokens == sorted(set(tokens))
            assert (await holder(here, "kept")).startswith("an unknown owner")
            assert not await here.leases.renew("kept", held, LONG_S), "its holder is told that it is lost"

    run(scenario)


async def from_an_old_copy(server: Server) -> list[int]:
    """Tokens before and after a restart with the data of yesterday, of which no process has been a witness."""
    store, kept = MemoryStore(OwnClock()), server.socket.parent / "appendonly.aof"
    async with joined(server, store) as here:
        tokens = [await token(here, "report", "first", OVER_S)]
        copy = kept.read_bytes()
        tokens += [await token(here, "report", str(turn), OVER_S) for turn in range(5)]
    server.kill()
    kept.write_bytes(copy)
    server.start()
    async with joined(server, store) as another:
        tokens.append(await token(another, "report", "again", OVER_S))
    return tokens


def test_a_redis_that_is_restarted_from_an_old_copy_gives_higher_tokens_than_before(
    keeping: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4: the counts of the copy are those of yesterday."""
    monkeypatch.setattr(sharing, "UNKNOWN_S", 0.1)

    async def scenario() -> None:
        tokens = await from_an_old_copy(keeping)
        assert tokens == sorted(set(tokens))

    run(scenario)


def test_without_a_look_at_its_run_a_redis_from_an_old_copy_gives_a_token_twice(
    keeping: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: the proof above can fail."""
    blind = ACQUIRE.replace("(run ~= '' and fence[2] ~= run)", "false")
    assert blind != ACQUIRE
    monkeypatch.setattr(sharing, "ACQUIRE", blind)

    async def scenario() -> None:
        tokens = await from_an_old_copy(keeping)
        assert tokens[-1] in tokens[:-1]

    run(scenario)


def test_a_store_that_gave_no_epochs_would_give_lower_tokens_than_redis(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: without the epoch a former holder in Redis would win against the one that the store has chosen."""

    async def no_epoch(epochs: Epochs) -> int:
        return 0

    async def scenario() -> None:
        async with joined(server, MemoryStore(OwnClock())) as here:
            before = await token(here, "report", "a", OVER_S)
            server.kill()
            await until(lambda: not here.link.up)
            monkeypatch.setattr(Epochs, "new", no_epoch)
            assert await token(here, "report", "b", OVER_S) < before

    run(scenario)


def test_a_lease_outlives_a_restart_of_redis_that_keeps_its_data(keeping: Server) -> None:
    """C10: its holder renews it, and nobody else has it meanwhile."""

    async def scenario() -> None:
        async with joined(keeping, MemoryStore(OwnClock())) as here:
            held = await token(here, "kept", "a")
            keeping.kill()
            with pytest.raises(UnavailableError):
                await here.leases.renew("kept", held, LONG_S)
            keeping.start()
            await until(lambda: here.link.up)
            assert await here.leases.renew("kept", held, LONG_S)
            assert await holder(here, "kept") == "a"

    run(scenario)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_holder_gives_up_in_time_when_redis_does_not_answer(server: Server) -> None:
    """C10: by its own clock, from before the last request that was answered; frozen is as good as dead."""

    async def scenario() -> None:
        async with engine(server.url) as here, here.lease("report", lease_s=1.5) as lease:
            server.freeze()
            await until(lambda: lease.lost and not cluster_of(here).up)
            async with here.lease("report") as again:
                assert again.token > lease.token
                assert again.token & ((1 << COUNT_BITS) - 1) == 0, "it comes from the store"
            server.thaw()

    run(scenario)


def test_a_process_that_stood_still_does_not_take_from_the_store_what_others_have_in_redis(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C10: its request is over by its own clock, and all that it knew of who holds what; Redis was there."""
    monkeypatch.setattr(sharing, "BACK_S", PATIENCE_S)

    async def scenario() -> None:
        store, loop = MemoryStore(OwnClock()), asyncio.get_running_loop()
        now_s = loop.time
        async with joined(server, store) as here, joined(server, store) as there:
            await token(there, "report", "a")
            asked = here.link._room
            server.freeze()
            asking = asyncio.ensure_future(here.leases.acquire("report", "b", LONG_S))
            await until(lambda: asked._value < CALLS_MAX)
            server.thaw()
            # For nobody here any time has passed between two turns of the loop, and it is late all the same.
            monkeypatch.setattr(loop, "time", lambda: now_s() + connection.ANSWER_S + 2 * STILL_S)
            here.leases._known.clear()
            answer = await asking
            assert isinstance(answer, Held)
            assert answer.owner == "a"

    run(scenario)


def test_an_engine_opens_without_redis_and_joins_it_when_it_comes(server: Server) -> None:
    async def scenario() -> None:
        server.kill()
        async with engine(server.url) as here:
            assert not cluster_of(here).up
            async with here.lease("report") as lease:
                without = lease.token
            server.start()
            await until(lambda: cluster_of(here).up)
            async with here.lease("report", wait_s=PATIENCE_S) as lease:
                assert lease.token > without

    run(scenario)


def test_engines_of_several_homes_have_no_leases_without_redis(server: Server) -> None:
    """C10: their stores would not keep them apart; also after a restart, and not after the others have gone."""

    async def scenario() -> None:
        one, two = MemoryStore(OwnClock()), MemoryStore(OwnClock())
        async with joined(server, one) as here, joined(server, two, home="there") as there:
            tokens = [await token(here, "report", "a", OVER_S), await token(there, "report", "b", OVER_S)]
            await here.leases.beat()
            server.kill()
            for each in (here, there):
                await until(lambda each=each: not each.link.up)  # type: ignore[misc]
                with pytest.raises(UnavailableError, match="does not answer"):
                    await each.leases.acquire("report", "c", LONG_S)
            server.start()
            await until(lambda: here.link.up and there.link.up)
            tokens += [await token(there, "report", "d", OVER_S), await token(here, "report", "e", OVER_S)]
            assert tokens == sorted(set(tokens)), "although each store has counted by itself"

    run(scenario)


@pytest.mark.slow
def test_a_home_that_has_done_without_redis_since_then_gives_higher_tokens(server: Server, tmp_path: Path) -> None:
    """G4: somebody has taken it out of the configuration."""

    async def scenario() -> None:
        home = f"lanes://{tmp_path}/home"
        async with engine(server.url, home) as here, here.lease("report") as lease:
            first = lease.token
        async with engine("", home) as here, here.lease("report") as lease:
            second = lease.token
        async with engine(server.url, home) as here, here.lease("report", wait_s=PATIENCE_S) as lease:
            assert first < second < lease.token

    run(scenario)


@pytest.mark.slow
def test_every_key_of_a_script_is_in_one_slot(server: Server) -> None:
    """A Redis Cluster refuses a script that touches two slots; here is one, of one node that has all slots."""

    async def scenario() -> None:
        async with joined(server, MemoryStore(OwnClock())) as here:
            driver = here.link._driver
            slots = " ".join(map(str, range(16_384)))
            await driver.execute_command("CLUSTER", "ADDSLOTS", *slots.split())  # type: ignore[attr-defined]
            await until(lambda: here.link.up)
            first = await token(here, "report", "a", OVER_S)
            assert await here.leases.renew("report", first, LONG_S)
            assert await here.leases.release("report", first)
        gateway = Dependency("gateway {1}", rate_per_s=1_000, breaker=Breaker(failures=1, reset_s=0.05))
        async with engine(server.url, dependencies=[gateway], admission=Admission(rate_per_s=1_000)) as one:
            one._inside.gate.enter()
            outlet = outlet_of(one, "gateway {1}")
            assert outlet.ask("first") == "call"
            outlet.leave("first", "call", "failed")
            await until(lambda: outlet.ask("first") == "probe")
            outlet.leave("first", "probe", "abandoned")
            await until(lambda: outlet.ask("first") == "probe")
            outlet.leave("first", "probe", "done")
            assert cluster_of(one).up

    server.kill()
    server._options = ("--cluster-enabled", "yes")
    server.start()
    run(scenario)
