"""Many want one thing done: it is done once, and each of them hears of it."""

import asyncio

import pytest

from interlock.hotrow.tables import Once


def test_those_who_come_meanwhile_get_what_came_of_it() -> None:
    async def scenario() -> None:
        once, runs, go_on = Once[int](), list[int](), asyncio.Event()

        async def work() -> int:
            runs.append(len(runs))
            number = runs[-1]
            await go_on.wait()
            return number

        waiting = [asyncio.create_task(once.do("a", work)) for _ in range(5)]
        other = asyncio.create_task(once.do("b", work))
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.gather(*waiting) == [0] * 5
        assert await other == 1
        assert await once.do("a", work) == 2
        assert not once._under_way

    asyncio.run(scenario())


def test_a_caller_who_is_cancelled_leaves_it_to_the_others() -> None:
    async def scenario() -> None:
        once, go_on = Once[str](), asyncio.Event()

        async def work() -> str:
            await go_on.wait()
            return "done"

        first, second = (asyncio.create_task(once.do("a", work)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert await second == "done"
        assert first.cancelled()

    asyncio.run(scenario())


def test_a_failure_is_everybodys_and_is_not_remembered() -> None:
    async def scenario() -> None:
        once = Once[str]()

        async def fail() -> str:
            await asyncio.sleep(0)
            raise KeyError("no")

        async def work() -> str:
            return "done"

        found = await asyncio.gather(*[once.do("a", fail) for _ in range(3)], return_exceptions=True)
        assert [type(error) for error in found] == [KeyError] * 3
        assert await once.do("a", work) == "done"

    asyncio.run(scenario())


def test_event_loops_do_not_wait_for_each_other() -> None:
    once = Once[str]()

    async def never() -> str:
        await asyncio.Event().wait()
        return "never"

    async def cut_off() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await once.do("a", never)

    async def work() -> str:
        return "done"

    asyncio.run(cut_off())
    assert asyncio.run(once.do("a", work)) == "done"
