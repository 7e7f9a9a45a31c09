"""E8: keys take turns at a dependency, each within its limits, the highest priority first (virtual time)."""

import asyncio
import itertools
from collections import Counter

import pytest

from interlock.core.policies import Dependency
from interlock.engine.dependencies.fair_queue import KEYS_MAX, FairQueue, KeyLimits, Turn
from interlock.engine.dependencies.wait_queue import KEY_HELD_MAX, Pass, Places, lines_of
from tests.unit.engine.dependencies.queues import clock_of_the_loop
from tests.unit.engine.shared.stores import Luck, now_s, passed, play

CALL_S = 1.0


class Shop:
    """Workflows of several keys that call one dependency, each call one virtual second long."""

    def __init__(self, dependency: Dependency, *, steps: int = 1_000) -> None:
        clock = clock_of_the_loop().clock
        self.line = lines_of([], [dependency], clock=clock, chance=Luck(), changed=lambda _: None)["gateway"]
        self.places = Places(steps, 1, 0, {"gateway": self.line})
        self.places.steps.called = self.call
        self.turns: dict[str, Turn] = {}
        self.begun: list[str] = []
        self.ended: dict[str, float] = {}
        """When the last call of each key ended."""
        self.most = Counter[str]()
        self._now = Counter[str]()
        self._loop = asyncio.get_running_loop()
        self.places.open()

    def add(self, name: str, key: str, priority: int = 0) -> None:
        self.turns[name] = key, priority
        self.places.wait(name, self.places.steps, self.line, "first", len(self.turns), self.turns[name])

    def call(self, name: str) -> None:
        pass_ = self.places.reserve(name, self.places.steps, self.line, "first", 0, self.turns[name])
        assert pass_ is not None
        key = self.turns[name][0]
        self.begun.append(name)
        self._now[key] += 1
        self.most[key] = max(self.most[key], self._now[key])
        self._loop.call_later(CALL_S, self._end, key, pass_)

    def _end(self, key: str, pass_: Pass) -> None:
        self._now[key] -= 1
        self.ended[key] = now_s()
        pass_.leave("done")

    async def drain(self, keys: int) -> None:
        """Let virtual time pass until all calls have ended."""
        for _ in range(1_000):
            if len(self.ended) == keys and not len(self.line) and not sum(self._now.values()):
                return
            await passed(CALL_S / 2)
        raise AssertionError("calls wait for ever.")


async def time_of_nine(*, flood: int) -> float:
    """How long nine tenants with ten calls each take, at 20 places, after a flood of another one."""
    shop = Shop(Dependency("gateway", 20))
    for number in range(flood):
        shop.add(f"flood-{number}", "flood")
    began_s = now_s()
    for number in range(10):
        for tenant in range(9):
            shop.add(f"{tenant}-{number}", f"tenant-{tenant}")
    for _ in range(100):
        if sum(len(name) == len("0-0") for name in shop.begun) == 90:
            break
        await passed(CALL_S / 2)
    await passed(CALL_S)
    ended = [ended_s for key, ended_s in shop.ended.items() if key != "flood"]
    shop.places.close()
    return max(ended) - began_s


def test_a_flood_of_one_tenant_at_most_doubles_the_time_of_the_others() -> None:
    async def scenario() -> None:
        alone_s = await time_of_nine(flood=0)
        flooded_s = await time_of_nine(flood=10_000)
        assert flooded_s <= 2 * alone_s, (flooded_s, alone_s)

    play(scenario)


def test_without_fair_turns_the_oldest_come_first() -> None:
    async def scenario() -> None:
        shop = Shop(Dependency("gateway", 1, fair=False))
        for number in range(5):
            shop.add(f"a{number}", "a")
        shop.add("b", "b")
        await shop.drain(2)
        assert shop.begun == ["a0", "a1", "a2", "a3", "a4", "b"]

    play(scenario)


def test_keys_take_turns_and_the_highest_priority_of_a_key_is_first() -> None:
    async def scenario() -> None:
        shop = Shop(Dependency("gateway", 1))
        for name, priority in (("a0", 0), ("a1", 0), ("a2", 5), ("a3", 1)):
            shop.add(name, "a", priority)
        for name in ("b0", "b1", "c0"):
            shop.add(name, name[0])
        await shop.drain(3)
        assert shop.begun == ["a0", "b0", "c0", "a2", "b1", "a3", "a1"]

    play(scenario)


def test_a_key_at_its_limit_delays_no_other() -> None:
    async def scenario() -> None:
        shop = Shop(Dependency("gateway", 20, per_concurrency_max=2))
        for number in range(10):
            shop.add(f"a{number}", "a")
        for key in "bcd":
            shop.add(key, key)
        assert set(shop.begun) == {"a0", "a1", "b", "c", "d"}
        began_s = now_s()
        await shop.drain(4)
        assert (shop.most["a"], shop.ended["a"] - began_s) == (2, 5 * CALL_S)
        assert shop.line.outlet.keys._under_way == {}

    play(scenario)


def test_a_key_calls_at_its_rate() -> None:
    async def scenario() -> None:
        shop = Shop(Dependency("gateway", 20, per_rate_per_s=2.0))
        for number in range(9):
            shop.add(f"a{number}", "a")
        shop.add("b", "b")
        assert shop.begun == ["a0", "b"]
        began_s = now_s()
        await shop.drain(2)
        assert 4.0 <= shop.ended["a"] - began_s - CALL_S <= 4.1

    play(scenario)


def test_a_call_of_a_key_that_waits_is_not_overtaken_by_a_new_one() -> None:
    async def scenario() -> None:
        shop = Shop(Dependency("gateway", 20, per_concurrency_max=1))
        shop.add("a0", "a")
        shop.add("a1", "a")
        for key, free in (("a", False), ("b", True)):
            found = shop.line.reserve(None, shop.places.steps, "first", 0, (key, 0))
            assert (found is not None) == free
        await shop.drain(1)

    play(scenario)


def test_a_key_waits_in_memory_though_another_has_filled_the_queue() -> None:
    async def scenario() -> None:
        shop = Shop(Dependency("gateway", 1))
        for number in range(500):
            shop.add(f"a{number}", "a")
        assert shop.line.parks_s("first", 0, ("a", 0)) is not None
        for number in range(KEY_HELD_MAX + 1):
            held = shop.line.parks_s("first", 10**9, ("b", 0)) is None
            assert held == (number < KEY_HELD_MAX)
            shop.add(f"b{number}", "b")
        shop.places.close()

    play(scenario)


def test_what_is_remembered_of_keys_is_bounded() -> None:
    limits = KeyLimits(None, 1.0)
    queue = FairQueue[str](lambda _: 0.0, lambda: 0.0, fair=True)
    for number in range(2 * KEYS_MAX + 10):
        assert limits.take(f"k{number}", 0.0)
        limits.give_back(f"k{number}", unused=False)
        queue.put("x", 0, (f"k{number}", 0))
        assert queue.first == "x"
        assert queue.take() == ("x", 0)
    assert len(limits._buckets) <= KEYS_MAX
    assert len(queue._tags) <= KEYS_MAX + 1
    assert (limits._under_way, len(queue), queue.heap) == ({}, 0, [])


def test_a_key_that_is_blocked_again_and_again_is_due_at_its_last_time() -> None:
    """G6: nor does the queue grow with it. What is due costs the keys that are due, not all that are blocked."""
    now, waits = [0.0], itertools.count(1.0)
    queue = FairQueue[str](lambda _: next(waits) - now[0], lambda: now[0], fair=True)
    queue.put("x", 0, ("a", 0))
    for _ in range(2 * KEYS_MAX):
        assert queue.heap == []
        queue.unblock("a")
    assert queue.heap == []
    assert queue.soonest_s() == 2 * KEYS_MAX + 1
    assert len(queue._due) <= KEYS_MAX + 3
    queue.put("y", 0, ("b", 0))
    assert queue.heap == []
    now[0] = 2.0 * KEYS_MAX
    queue.unblock_due()
    assert queue.soonest_s() == 1.0
    queue.clear()
    assert (queue.soonest_s(), queue.heap) == (None, [])


def test_a_queue_that_skips_the_turn_of_a_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: a key that comes back joins at the first round, and then has all turns before the others."""
    take_turn = FairQueue._take_turn
    monkeypatch.setattr(FairQueue, "_take_turn", lambda queue, key, start: take_turn(queue, key, 0.0))
    with pytest.raises(AssertionError):
        test_keys_take_turns_and_the_highest_priority_of_a_key_is_first()


def test_an_older_call_that_others_overtake_again_and_again_is_listed_once() -> None:
    """G6: without turns, a key whose urgent calls come first must not grow the queue with each of them."""
    queue = FairQueue[str](lambda _: 0.0, lambda: 0.0, fair=False)
    for key in "ab":
        queue.put(f"old {key}", 1, (key, 0))
    for number in range(1_000):
        queue.put(f"urgent {number}", 2 + number, ("a", 5))
        assert queue.first == f"urgent {number}"
        assert queue.take() == (f"urgent {number}", 2 + number)
    assert len(queue._turns) <= 2 * len(queue)
    assert [queue.first, queue.take()[0], queue.first, queue.take()[0]] == ["old a", "old a", "old b", "old b"]
    assert queue.heap == []
