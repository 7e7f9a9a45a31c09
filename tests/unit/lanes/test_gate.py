"""Reads wait in order, and the threads that read are shared out fairly: no lane starves for others' slow reads (D4)."""

import asyncio

import pytest

from interlock.errors import Overloaded
from interlock.lanes.gate import Gate, Shares
from tests.unit.lanes.lanes import run


def gate(places: int, shares: Shares | None = None, waiting_max: int = 9) -> Gate:
    return Gate(places, waiting_max=waiting_max, shares=shares or Shares(100))


def enter(into: Gate, times: int = 1) -> list["asyncio.Task[None]"]:
    return [asyncio.ensure_future(into.enter()) for _ in range(times)]


async def turn() -> None:
    """Whoever was let in knows it: a turn to be told, and one to go on."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_it_lets_in_as_many_as_there_are_places() -> None:
    async def scenario() -> None:
        door = gate(2, waiting_max=3)
        entered: list[int] = []

        async def visit(number: int) -> None:
            await door.enter()
            entered.append(number)

        visits = [asyncio.ensure_future(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert entered == [0, 1]
        with pytest.raises(Overloaded, match="3 reads wait"):
            await door.enter()
        visits[2].cancel()
        await asyncio.wait({visits[2]})
        door.leave()
        await asyncio.wait({visits[3]})
        assert entered == [0, 1, 3], "one after the other, without the one that was cancelled"
        door.hold()
        door.leave()
        await turn()
        assert entered == [0, 1, 3]
        door.let_go()
        await asyncio.wait({visits[4]})
        assert entered == [0, 1, 3, 4]
        assert door.inside == 2

    run(scenario)


def test_those_who_were_cancelled_take_no_room_in_the_queue() -> None:
    async def scenario() -> None:
        door = gate(1, waiting_max=3)
        await door.enter()
        for _ in range(10):
            waiting = enter(door, 3)
            await turn()
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
        assert not door._waiting
        [last] = enter(door)
        await turn()
        door.leave()
        await last

    run(scenario)


def test_a_place_given_to_one_who_is_cancelled_goes_to_the_next() -> None:
    async def scenario() -> None:
        door = gate(1)
        await door.enter()
        first, second = enter(door, 2)
        await asyncio.sleep(0)
        door.leave()  # The place is the first one's, who does not know it yet and is cancelled now.
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        await second
        assert door.inside == 1

    run(scenario)


def test_a_closed_loop_takes_no_place() -> None:
    shares = Shares(8)
    door = gate(1, shares)
    gone = asyncio.new_event_loop()
    gone.run_until_complete(door.enter())
    waiting = gone.create_task(door.enter())
    gone.call_soon(gone.stop)
    gone.run_forever()
    gone.close()
    door.leave()
    assert (door.inside, shares.free) == (0, 8)
    asyncio.run(door.enter())
    assert (door.inside, shares.free) == (1, 7)
    del waiting


def test_half_of_the_threads_are_kept_for_lanes_that_have_none() -> None:
    async def scenario() -> None:
        shares = Shares(8)
        greedy = gate(100, shares)
        enter(greedy, 9)
        await turn()
        assert greedy.inside == 4
        others = [gate(100, shares) for _ in range(5)]
        for other in others:
            enter(other, 3)
        await turn()
        assert [other.inside for other in others] == [1, 1, 1, 1, 0]
        assert shares.free == 0
        greedy.leave()
        await turn()
        assert (greedy.inside, others[4].inside) == (3, 1), "who has none comes before who has some"
        assert shares.free == 0

    run(scenario)


def test_beyond_the_first_they_take_turns() -> None:
    async def scenario() -> None:
        shares = Shares(8)
        slow, first, second = (gate(100, shares) for _ in range(3))
        enter(slow, 4)
        await turn()
        enter(first, 5)
        enter(second, 5)
        await turn()
        assert (first.inside, second.inside, shares.free) == (1, 1, 2)
        seen: list[tuple[int, int]] = []
        for _ in range(4):
            slow.leave()
            enter(first)  # More of them who wait are not more turns.
            await turn()
            seen.append((first.inside, second.inside))
        assert seen == [(1, 1), (1, 1), (2, 1), (2, 2)]

    run(scenario)


def test_a_gate_that_is_held_or_full_or_empty_stands_in_nobodys_way() -> None:
    async def scenario() -> None:
        shares = Shares(2)
        busy, held, full, empty, last = (gate(1, shares) for _ in range(5))
        await busy.enter()
        await full.enter()
        for each in (held, full, empty, last):
            enter(each)
        await turn()
        held.hold()
        for waiter in list(empty._waiting):
            waiter.future.cancel()
        await turn()
        busy.leave()
        await turn()
        assert [each.inside for each in (busy, held, full, empty, last)] == [0, 0, 1, 0, 1]
        last.leave()
        held.let_go()
        await turn()
        assert held.inside == 1
        assert shares.free == 0

    run(scenario)
