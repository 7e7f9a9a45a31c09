"""G8: a lane's time never goes back, whatever the wall clock does."""

from collections.abc import Callable

import apsw

from interlock.lanes.lane import Lane
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import EVERYWHERE, Place, opened
from tests.unit.lanes.lanes import SetClock, group, rested, run


def now() -> Work:
    return Work(lambda session: session.now_us())


@EVERYWHERE
def test_time_follows_the_wall_clock_and_never_goes_back(place: Place) -> None:
    clock = SetClock(100.0)

    async def scenario() -> None:
        with opened(place, clock=clock) as lane:
            assert await lane.run(now()) == 100_000_000
            clock.now_wall_s = 200.0
            assert await lane.run(now()) == 200_000_000
            clock.now_wall_s = 50.0
            assert await lane.run(now()) == 200_000_000
            clock.now_wall_s = 201.5
            assert await lane.run(now()) == 201_500_000

    run(scenario)


def test_time_stands_still_inside_a_transaction(place: Place) -> None:
    clock = SetClock(100.0)

    def asks_twice(session: Session) -> object:
        before = session.now_us()
        clock.now_wall_s += 1.0
        return before, session.now_us()

    async def scenario() -> None:
        with opened(place, clock=clock) as lane:
            assert await group(lane, Work(asks_twice), Work(asks_twice)) == [
                (100_000_000, 100_000_000),
                (101_000_000, 101_000_000),
            ]

    run(scenario)


def test_time_does_not_go_back_when_the_lane_is_opened_again(place: Place) -> None:
    clock = SetClock(200.0)

    async def scenario() -> None:
        with opened(place, clock=clock) as lane:
            assert await lane.run(now()) == 200_000_000
        clock.now_wall_s = 10.0
        with opened(place, clock=clock) as lane:
            assert await lane.run(now()) == 200_000_000

    run(scenario)


def test_time_does_not_go_back_when_the_lane_wakes_up(place: Place) -> None:
    clock = SetClock(200.0)

    async def scenario() -> None:
        with opened(place, clock=clock, idle_s=0.0) as lane:
            assert await lane.run(now()) == 200_000_000
            clock.now_wall_s = 10.0
            assert await lane.run(now()) == 200_000_000

    run(scenario)


def register(connection: apsw.Connection, now_us: Callable[[], int]) -> None:
    connection.create_scalar_function("the_time", lambda *_values: now_us(), 0)


async def read_time(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute("SELECT the_time()").get)


def test_a_time_that_a_read_has_shown_is_not_taken_back(place: Place) -> None:
    clock = SetClock(200.0)

    async def scenario() -> None:
        with opened(place, clock=clock, prepare=register, idle_s=0.0) as lane:
            assert await read_time(lane) == 200_000_000
            clock.now_wall_s = 10.0
            assert await read_time(lane) == 200_000_000, "by another read"
            await rested(lane)
            assert await read_time(lane) == 200_000_000, "by a read on another connection"
            assert await lane.run(now()) == 200_000_000, "by the writer"
        with opened(place, clock=clock) as lane:
            assert await lane.run(now()) == 200_000_000, "and the writer has logged it"

    run(scenario)


def test_reads_do_not_see_time_going_back_either(place: Place) -> None:
    clock = SetClock(200.0)
    times: list[object] = []

    async def scenario() -> None:
        with opened(place, clock=clock, prepare=register) as lane:
            times.append(await lane.run(now()))
            clock.now_wall_s = 10.0
            times.append(await read_time(lane))
            clock.now_wall_s = 300.0
            times.append(await read_time(lane))
        clock.now_wall_s = 10.0
        with opened(place, clock=clock, prepare=register) as lane:
            times.append(await read_time(lane))

    run(scenario)
    assert times == [200_000_000, 200_000_000, 300_000_000, 200_000_000]
