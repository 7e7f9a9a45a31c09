"""Leases as programs use them: waiting, renewing, losing and giving up, in virtual time (C10, C11, G4)."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from interlock import BlockingEngine, Engine, Fenced, Lease, LeaseHeld, OutcomeUnknown, UnavailableError
from interlock.clock import SeededIds
from interlock.engine.leases import LeaseBook, Leasing
from interlock.errors import BadUsage, InvalidPayload
from interlock.store.memory import MemoryStore
from interlock.store.protocol import Granted, Held
from interlock.testing import VirtualClock, VirtualLoop
from tests.conformance.engine.shop import shop

LEASE_S = 30.0


class Luck:
    """Chance that says what it is told, and halves otherwise."""

    def __init__(self, *fractions: float) -> None:
        self.fractions = list(fractions)

    def fraction(self) -> float:
        return self.fractions.pop(0) if self.fractions else 0.5


async def passed(seconds: float) -> None:
    """Virtual time passes."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


class Keeper:
    """The leases of a store in memory; each request may go wrong first, and is written down with its time."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.leases = MemoryStore(clock).leases
        self.asked: list[tuple[str, float]] = []
        self.errors: list[Exception | None] = []
        self.after: list[Exception | None] = []
        """Raised when it was done: nobody knows that it was."""
        self.delay_s = 0.0

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        await self._begun("acquire")
        answer = await self.leases.acquire(name, owner, lease_s)
        if self.after and (error := self.after.pop(0)) is not None:
            raise error
        return answer

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        await self._begun("renew")
        return await self.leases.renew(name, token, lease_s)

    async def release(self, name: str, token: int) -> bool:
        await self._begun("release")
        return await self.leases.release(name, token)

    async def _begun(self, what: str) -> None:
        self.asked.append((what, round(self.clock.now_s, 3)))
        if self.delay_s:
            await passed(self.delay_s)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error

    def times(self, what: str) -> list[float]:
        return [time_s for name, time_s in self.asked if name == what]


class World:
    """A keeper and those who want leases of it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.keeper = Keeper(loop.clock)
        self.clock = loop.clock
        self.luck = Luck()
        self._ids = SeededIds(1)

    def book(self) -> LeaseBook:
        return LeaseBook(self.keeper, chance=self.luck, ids=self._ids)

    def lease(self, book: LeaseBook, *, wait_s: float = 0.0, lease_s: float = LEASE_S) -> Leasing:
        return Leasing(book, "nightly-report", wait_s=wait_s, lease_s=lease_s)


def play(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in virtual time."""
    loop = VirtualLoop()
    try:
        loop.run(scenario(World(loop)))
    finally:
        loop.leave()


def test_a_lease_is_held_inside_its_block_and_free_behind_it() -> None:
    """C10."""

    async def scenario(world: World) -> None:
        book = world.book()
        async with world.lease(book) as lease:
            assert (lease.name, lease.token, lease.lost) == ("nightly-report", 1, False)
            assert await lease.held()
            lease.check()
            with pytest.raises(LeaseHeld):
                async with world.lease(book):
                    raise AssertionError
        assert lease.lost, "what was given up is not held"
        async with world.lease(book) as lease:
            assert lease.token == 2

    play(scenario)


def test_the_error_says_who_holds_it_and_since_when() -> None:
    """C10: a person can act on it."""

    async def scenario(world: World) -> None:
        await world.keeper.leases.acquire("nightly-report", "db1:4711/9a", 10**6)
        await passed(31)
        with pytest.raises(LeaseHeld) as caught:
            await world.lease(world.book()).__aenter__()
        error = caught.value
        assert error.what == "lease 'nightly-report' is held by db1:4711/9a since 08:00:00 UTC (for 31 s)."
        assert isinstance(error, TimeoutError)
        assert (error.code, error.retry, error.owner, error.lease) == (
            "lease-held", "later", "db1:4711/9a", "nightly-report",
        )  # fmt: skip
        assert error.since == world.clock.now().replace(second=0)
        await passed(86_400)
        with pytest.raises(
            LeaseHeld, match=r"since 2027-01-15 08:00:00 UTC \(for 86,4\d\d s\). It was waited for 1 s."
        ):
            await world.lease(world.book(), wait_s=1).__aenter__()

    play(scenario)


def test_waiting_asks_again_after_100_to_300_ms_by_chance() -> None:
    """C10: and once more when the time is over."""

    async def scenario(world: World) -> None:
        await world.keeper.leases.acquire("nightly-report", "somebody", 10**6)
        world.luck.fractions = [0.0, 0.999_999, 0.5]
        with pytest.raises(LeaseHeld):
            await world.lease(world.book(), wait_s=0.7).__aenter__()
        assert world.keeper.times("acquire") == [0.0, 0.1, 0.4, 0.6, 0.7]

    play(scenario)


def test_without_time_to_wait_it_asks_once() -> None:
    async def scenario(world: World) -> None:
        await world.keeper.leases.acquire("nightly-report", "somebody", 10**6)
        with pytest.raises(LeaseHeld):
            await world.lease(world.book(), wait_s=0).__aenter__()
        assert world.keeper.times("acquire") == [0.0]

    play(scenario)


def test_who_waits_gets_it_when_it_is_released() -> None:
    async def scenario(world: World) -> None:
        holder, waiter = world.book(), world.book()

        async def wait() -> Lease:
            return await world.lease(waiter, wait_s=60).__aenter__()

        async with world.lease(holder) as first:
            waiting = asyncio.ensure_future(wait())
            await passed(45)
            assert not first.lost
            assert not waiting.done()
        second = await waiting
        assert second.token == first.token + 1
        assert world.clock.now_s <= 45.3
        await waiter.give_up(second)

    play(scenario)


def test_a_lease_is_renewed_in_the_background_three_times_in_its_time() -> None:
    async def scenario(world: World) -> None:
        async with world.lease(world.book()) as lease:
            await passed(95)
            assert not lease.lost
        assert world.keeper.times("renew") == [10.0 * each for each in range(1, 10)]
        assert world.keeper.times("release") == [95.0]
        await passed(100)
        assert len(world.keeper.times("renew")) == 9, "nobody renews what was given up"

    play(scenario)


def test_a_renewal_that_fails_is_tried_again_until_the_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """C11: the time is counted from before the last renewal that was answered, by the holder's own clock."""

    async def scenario(world: World) -> None:
        async with world.lease(world.book()) as lease:
            world.keeper.errors = [UnavailableError("no server."), None]
            await passed(10.5)
            assert world.keeper.times("renew") == [10.0, 10.2]
            world.keeper.errors = [UnavailableError("no server.")] * 1_000
            await passed(29.69)
            assert not lease.lost, "10.2 s + 30 s are not over"
            await passed(0.02)
            assert lease.lost
            with pytest.raises(Fenced, match="lease 'nightly-report' with token 1 is lost"):
                lease.check()
            world.keeper.errors = []
            assert not await lease.held(), "once lost it stays lost"

    with caplog.at_level(logging.WARNING, "interlock.operators"):
        play(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "lease 'nightly-report' with token 1 is lost while its block runs: it could not be renewed: no server..",
        "the block of lease 'nightly-report' with token 1 has ended after the lease was lost.",
    ]


def test_a_lease_that_went_to_somebody_else_is_lost_and_leaving_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G4: a process that was frozen past its lease finds out at its next renewal, and hurts nobody."""

    async def scenario(world: World) -> None:
        async with world.lease(world.book()) as lease:
            await world.keeper.leases.acquire("nightly-report", "somebody", 10**6)  # Refused: it is held.
            await world.keeper.leases.release("nightly-report", lease.token)
            taken = await world.keeper.leases.acquire("nightly-report", "somebody", 10**6)
            assert taken == Granted(2)
            assert not lease.lost, "nobody has told it yet"
            assert not await lease.held()
            with pytest.raises(Fenced):
                lease.check()
        assert isinstance(await world.keeper.leases.acquire("nightly-report", "third", 1), Held)

    with caplog.at_level(logging.WARNING, "interlock.operators"):
        play(scenario)
    assert "has ended after the lease was lost" in caplog.text


def test_an_answer_that_comes_after_the_time_is_over_brings_nothing_back() -> None:
    async def scenario(world: World) -> None:
        async with world.lease(world.book()) as lease:
            world.keeper.delay_s = 40
            assert not await lease.held()
            world.keeper.delay_s = 0
        world.keeper.delay_s = 40
        with pytest.raises(UnavailableError, match="expired before the answer arrived"):
            await world.lease(world.book()).__aenter__()

    play(scenario)


def test_a_request_of_which_nobody_knows_the_outcome_is_repeated_and_granted() -> None:
    """G9: it was granted the first time, to the same owner."""

    async def scenario(world: World) -> None:
        world.keeper.after = [OutcomeUnknown("the connection is gone.")]
        async with world.lease(world.book(), wait_s=1) as lease:
            assert lease.token == 1
        world.keeper.after = [OutcomeUnknown("the connection is gone.")]
        with pytest.raises(OutcomeUnknown):
            await world.lease(world.book()).__aenter__()

    play(scenario)


def test_who_is_cancelled_while_it_asks_leaves_nothing_held() -> None:
    async def scenario(world: World) -> None:
        book = world.book()
        world.keeper.delay_s = 1
        asking = asyncio.ensure_future(world.lease(book, wait_s=60).__aenter__())
        await passed(0.5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        world.keeper.delay_s = 0
        await book.close()
        assert world.keeper.times("release"), "what was granted all the same was given up"
        async with world.lease(book) as lease:
            assert lease.token == 2

    play(scenario)


def test_what_cannot_be_released_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        async with world.lease(world.book()):
            world.keeper.errors = [UnavailableError("no server.")]
        async with world.lease(world.book(), wait_s=60) as lease:
            assert lease.token == 2
        assert 29.999 <= world.clock.now_s <= 30.3

    with caplog.at_level(logging.WARNING, "interlock.operators"):
        play(scenario)
    assert "could not be released and ends by itself: no server." in caplog.text


@pytest.mark.parametrize(
    ("name", "wait_s", "lease_s", "error"),
    [
        ("", 1.0, 30.0, InvalidPayload),
        ("a/b", 1.0, 30.0, InvalidPayload),
        ("a\nb", 1.0, 30.0, InvalidPayload),
        ("x" * 201, 1.0, 30.0, InvalidPayload),
        ("a", -1.0, 30.0, BadUsage),
        ("a", float("nan"), 30.0, BadUsage),
        ("a", 1.0, 0.5, BadUsage),
        ("a", 1.0, float("inf"), BadUsage),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(
    name: str, wait_s: float, lease_s: float, error: type[Exception]
) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(error):
            Leasing(world.book(), name, wait_s=wait_s, lease_s=lease_s)

    play(scenario)


def test_an_engine_has_leases_and_gives_them_up_when_it_closes() -> None:
    """C10: also one that runs no steps."""

    async def scenario() -> None:
        engine = await Engine.open("memory:", machines=[shop().machine], worker=False)
        async with engine.lease("report") as lease:
            with pytest.raises(LeaseHeld):
                await engine.lease("report", wait_s=0).__aenter__()
            await engine.close()
            with pytest.raises(Fenced):
                lease.check()
        with pytest.raises(UnavailableError):
            engine.lease("report")

    asyncio.run(scenario())


def test_a_blocking_engine_has_the_same_leases() -> None:
    """C10: threads keep each other out."""
    with BlockingEngine.open("memory:", machines=[shop().machine]) as engine:
        with engine.lease("report") as lease:
            assert (lease.name, lease.token, lease.lost, lease.held()) == ("report", 1, False, True)
            lease.check()
            refused: list[LeaseHeld] = []

            def ask() -> None:
                try:
                    with engine.lease("report", wait_s=0):
                        pass
                except LeaseHeld as error:
                    refused.append(error)

            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            assert [error.lease for error in refused] == ["report"]
        with engine.lease("report", wait_s=0) as lease:
            assert lease.token == 2
            engine.close()
        assert lease.lost
