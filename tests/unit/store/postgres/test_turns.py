"""GroupTurns: whoever writes the same workflow waits, whoever writes another one does not."""

import asyncio

from interlock.store.postgres.store import GroupTurns


def test_groups_that_share_a_workflow_go_one_after_the_other_in_their_order() -> None:
    """G1: also through a third one that shares something with both."""

    async def scenario() -> None:
        turns, order = GroupTurns(), list[str]()
        gates = {name: asyncio.Event() for name in ("ab", "bc", "cd", "xy")}

        async def group(name: str) -> None:
            async with turns.turn(list(name)):
                order.append(name)
                await gates[name].wait()

        tasks = [asyncio.ensure_future(group(name)) for name in gates]
        await asyncio.sleep(0)
        assert order == ["ab", "xy"]
        gates["cd"].set()
        gates["ab"].set()
        gates["bc"].set()
        gates["xy"].set()
        await asyncio.gather(*tasks)
        assert order == ["ab", "xy", "bc", "cd"]
        assert not turns._last

    asyncio.run(scenario())
