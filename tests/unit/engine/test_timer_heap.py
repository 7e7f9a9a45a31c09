"""B9: what has to be looked at later is called at its time by the store's clock, once per time and name."""

import asyncio

from interlock.engine.steps.runner import TimerHeap


class Store:
    def __init__(self) -> None:
        self.time_us = 1_000_000

    def now_us(self) -> int:
        return self.time_us


def test_calls_come_in_the_order_of_their_times_and_not_before() -> None:
    async def scenario() -> None:
        store, called = Store(), list[str]()
        timers = TimerHeap(store.now_us)
        timers.open()
        for time_us, name in ((3_000_000, "c"), (1_000_000, "a"), (2_000_000, "b"), (1_000_000, "a2")):
            timers.at(time_us, called.append, name)
        assert called == []
        timers._look()
        assert called == ["a", "a2"]
        assert timers.soonest_us() == 2_000_000
        store.time_us = 5_000_000
        timers._look()
        assert (called, len(timers), timers.soonest_us()) == (["a", "a2", "b", "c"], 0, None)
        timers.close()

    asyncio.run(scenario())


def test_what_is_due_now_is_called_by_the_loop_and_what_is_added_meanwhile_too() -> None:
    async def scenario() -> None:
        store, called, done = Store(), list[str](), asyncio.Event()
        timers = TimerHeap(store.now_us)
        timers.open()

        def again(name: str) -> None:
            called.append(name)
            if len(called) < 3:
                timers.at(store.time_us, again, name)
            else:
                done.set()

        timers.at(0, again, "a")
        await done.wait()
        assert called == ["a", "a", "a"]
        timers.close()

    asyncio.run(scenario())


def test_a_sooner_one_that_comes_later_is_not_held_up() -> None:
    async def scenario() -> None:
        store, called = Store(), asyncio.Event()
        timers = TimerHeap(store.now_us)
        timers.open()
        timers.at(store.time_us + 3_600_000_000, lambda _name: None, "late")
        timers.at(store.time_us, lambda _name: called.set(), "soon")
        await called.wait()
        timers.close()

    asyncio.run(scenario())


def test_the_same_time_for_the_same_name_is_kept_once() -> None:
    async def scenario() -> None:
        store, called = Store(), list[str]()
        timers = TimerHeap(store.now_us)
        timers.open()
        for _ in range(100):
            timers.at(2_000_000, called.append, "a")
            timers.at(2_000_000, called.append, "b")
        assert len(timers) == 2
        store.time_us = 2_000_000
        timers._look()
        timers.at(2_000_000, called.append, "a")
        timers._look()
        assert called == ["a", "b", "a"]
        timers.close()

    asyncio.run(scenario())


def test_nothing_is_called_after_closing() -> None:
    async def scenario() -> None:
        store, called = Store(), list[str]()
        timers = TimerHeap(store.now_us)
        timers.open()
        timers.at(0, called.append, "a")
        timers.close()
        timers.at(0, called.append, "b")
        for _ in range(5):
            await asyncio.sleep(0)
        assert (called, len(timers)) == ([], 0)

    asyncio.run(scenario())
