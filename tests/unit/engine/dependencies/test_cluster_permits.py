"""C4, C8: who waits for a permit or a token of the cluster neither spins nor is forgotten, with Redis or without."""

import math

import pytest

from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.outlet import PERMIT_S, Forced
from tests.unit.engine.dependencies.queues import HairEarly, Queue, clock_of_the_loop, fails
from tests.unit.engine.shared.stores import passed, play

PROBED = Dependency("gateway", 50, breaker=Breaker(failures=1, reset_s=30))


class Elsewhere:
    """The other processes, as a test has them. They never stir anybody by themselves."""

    def __init__(self) -> None:
        self.up = True
        self.permits = 0
        self.tokens = math.inf
        self.wait_s = 0.2
        self.asked = 0
        """How often a permit was asked for."""
        self.given_back = 0

    def may_probe(self) -> bool:
        if not self.up:
            return True
        self.asked += 1
        self.permits -= 1
        return self.permits >= 0

    def announce(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """It is not of interest here."""

    def probed(self, *, announced: bool) -> None:
        self.given_back += not announced

    def forced(self, forced: Forced | None, reason: str) -> None:
        """It is not of interest here."""

    def key_token(self, key: str, *, take: bool) -> float | None:
        return self.token(0.0, take=take)

    def return_key_token(self, key: str) -> None:
        self.tokens += 1

    def token(self, now_s: float, *, take: bool) -> float | None:
        if not self.up:
            return None
        if self.tokens < 1:
            return self.wait_s
        self.tokens -= take
        return 0.0


def opened(others: Elsewhere, *, hair_early: bool = False) -> Queue:
    """A queue at a breaker that has just opened."""
    clock = clock_of_the_loop().clock
    queue = Queue(PROBED, HairEarly(clock) if hair_early else clock)
    queue.outlet.others = others
    fails(queue.outlet)
    return queue


def test_a_probe_without_a_permit_asks_now_and_then_and_is_made_when_it_has_one() -> None:
    """C4: twice a second, not as fast as it can."""

    async def scenario() -> None:
        others = Elsewhere()
        queue = opened(others)
        queue.wait("a", "b")
        await passed(40)
        assert queue.called == []
        assert 10 / PERMIT_S - 2 <= others.asked <= 10 / PERMIT_S + 2
        others.permits = 1
        queue.outlet.stir()
        assert queue.called == ["a"]

    play(scenario)


def test_a_permit_of_which_nobody_tells_is_found_all_the_same() -> None:
    """C4: others may forget to stir; nobody here waits for ever for that."""

    async def scenario() -> None:
        others = Elsewhere()
        queue = opened(others)
        queue.wait("a")
        await passed(31)
        others.permits = 1
        await passed(2 * PERMIT_S)
        assert queue.called == ["a"]

    play(scenario)


def test_a_probe_whose_time_comes_between_two_looks_asks_for_its_permit() -> None:
    """C4: it was refused a hair before its time, so nobody was asked, and nobody would stir it."""

    async def scenario() -> None:
        others = Elsewhere()
        others.permits = 1
        queue = opened(others, hair_early=True)
        queue.wait("a")
        await passed(31)
        assert (queue.called, others.asked) == (["a"], 1)

    play(scenario)


@pytest.mark.parametrize("stirred", [True, False])
def test_a_probe_that_waits_for_a_permit_needs_none_when_nobody_can_be_asked(stirred: bool) -> None:
    """C4: Redis is gone while it waits; and it is back when the next one waits."""

    async def scenario() -> None:
        others = Elsewhere()
        queue = opened(others)
        queue.wait("a", "b")
        await passed(31)
        others.up = False
        if stirred:
            queue.outlet.stir()
        await passed(2 * PERMIT_S)
        assert queue.called == ["a"]
        held = queue.line.reserve("a", queue.steps, "first")
        assert held is not None
        queue.outlet.leave("first", held.admitted, "failed", 0.0, "x")
        others.up, asked = True, others.asked
        await passed(31)
        assert queue.called == ["a"], "the others are asked again"
        assert 0 < others.asked - asked < 5
        others.permits = 1
        await passed(2 * PERMIT_S)
        assert queue.called == ["a", "b"]

    play(scenario)


def test_who_waits_for_a_token_of_the_others_looks_as_often_as_they_say() -> None:
    """C8: and has the rate of the process while they cannot be asked."""

    async def scenario() -> None:
        others = Elsewhere()
        others.tokens = 1
        queue = Queue(Dependency("gateway", 50, rate_per_s=2), clock_of_the_loop().clock)
        queue.outlet.others = others
        queue.wait(*"abcdef")
        await passed(3)
        assert queue.called == ["a"]
        assert queue.outlet.retry_in_s("first") == pytest.approx(0.2)
        others.tokens = 1
        await passed(0.3)
        assert queue.called == ["a", "b"]
        others.up = False
        await passed(0.3)
        assert queue.called == ["a", "b", "c"], "its own bucket was full"
        await passed(0.6)
        assert queue.called == ["a", "b", "c", "d"]
        others.up, others.tokens = True, math.inf
        queue.outlet.stir()
        assert queue.called == list("abcdef")

    play(scenario)


def test_a_permit_is_given_back_when_the_rate_is_in_the_way_after_all() -> None:
    """C4, C8: Redis may go between the look at the bucket and the token; its permit must not be lost here."""

    class Going(Elsewhere):
        """Gone between the look at the bucket and the token."""

        def token(self, now_s: float, *, take: bool) -> float | None:
            return math.inf if take else 0.0

    async def scenario() -> None:
        others = Going()
        clock = clock_of_the_loop().clock
        dependency = Dependency("gateway", 50, rate_per_s=1, breaker=Breaker(failures=1, reset_s=30))
        queue = Queue(dependency, clock)
        fails(queue.outlet)
        queue.outlet.others, others.permits = others, 1
        await passed(31)
        assert queue.outlet.ask("first") == "wait"
        assert others.given_back == 1

    play(scenario)
