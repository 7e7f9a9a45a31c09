"""The end of a lane: what waits is finished, what comes later is refused, and loops never wait for each other."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from interlock.errors import UnavailableError
from interlock.lanes.writer import Session, Work
from tests.conformance.lanes.places import EVERYWHERE, Place, opened
from tests.unit.lanes.lanes import count, increment, make_counter, rested, run


@EVERYWHERE
def test_what_waits_is_finished(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, group_commit_max_batch=3) as lane:
            await make_counter(lane)
            waiting = [asyncio.ensure_future(lane.run(increment())) for _ in range(20)]
            await asyncio.sleep(0)
            lane.close()
            assert await asyncio.gather(*waiting) == [1] * 20
            lane.close()
        if place.path() is not None:
            with opened(place) as lane:
                assert await count(lane) == 20

    run(scenario)


def test_what_waits_is_finished_even_before_anybody_was_nudged(place: Place) -> None:
    async def scenario() -> None:
        with opened(place, idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            work = increment()
            running = lane.run(work).__await__()
            next(running)  # It waits; the event loop has not turned since.
            lane.close()
            assert work.future is not None
            await asyncio.sleep(0)
            assert work.future.result() == 1
            running.close()

    run(scenario)


def test_use_after_close_is_refused(place: Place) -> None:
    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="the lane is closed"):
                await lane.run(increment())
            with pytest.raises(UnavailableError, match="the lane is closed"):
                await lane.read(lambda connection: connection)

    run(scenario)


def test_while_it_closes_new_work_is_refused(place: Place) -> None:
    async def scenario() -> None:
        begun, go = threading.Event(), threading.Event()

        def slow(session: Session) -> object:
            begun.set()
            go.wait()
            return session.execute("UPDATE counter SET n = n + 1 WHERE id = 1")

        with opened(place) as lane:
            await make_counter(lane)
            running = asyncio.ensure_future(lane.run(Work(slow)))
            await asyncio.to_thread(begun.wait)
            closing = asyncio.ensure_future(asyncio.to_thread(lane.close))
            while not lane._closing:  # noqa: ASYNC110 -- set by the other thread at once.
                await asyncio.sleep(0)
            with pytest.raises(UnavailableError, match="the lane is closed"):
                await lane.run(increment())
            go.set()
            await closing
            assert await running == 1

    run(scenario)


def test_work_that_slips_in_while_another_thread_closes_is_told(place: Place) -> None:
    """It passed the check, then the lane was closed, then it joined the queue: nobody would ever drive it."""

    async def scenario() -> None:
        with opened(place) as lane:
            await make_counter(lane)
            slipped = increment()
            slipped.future = asyncio.get_running_loop().create_future()
            lane.close()
            lane._waiting.add(slipped)
            lane._nudge()
            with pytest.raises(UnavailableError, match="the lane is closed"):
                await slipped.future

    run(scenario)


def test_closing_does_not_wait_for_company(place: Place) -> None:
    """A window of an hour is over at once, and a work that was cancelled in it leaves a group of nobody."""

    async def scenario() -> None:
        with opened(place, group_commit_window=3_600.0, group_commit_max_batch=2) as lane:
            waited = threading.Event()
            wait_for = lane._arrived.wait_for

            def waits(enough: Callable[[], bool], timeout_s: float | None = None) -> bool:
                waited.set()
                return wait_for(enough, timeout_s)

            lane._arrived.wait_for = waits  # type: ignore[method-assign,assignment]
            running = asyncio.ensure_future(lane.run(increment()))
            await asyncio.to_thread(waited.wait)
            running.cancel()
            await asyncio.wait({running})
            lane.close()
            assert lane.stats().groups == 0

    run(scenario)


def test_two_event_loops_in_two_threads_share_a_lane(place: Place) -> None:
    with opened(place) as lane:
        asyncio.run(make_counter(lane))

        async def client() -> None:
            for _ in range(50):
                await lane.run(increment())

        async def clients() -> None:
            await asyncio.gather(*(client() for _ in range(8)))

        threads = [threading.Thread(target=asyncio.run, args=(clients(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert asyncio.run(count(lane)) == 2 * 8 * 50


def test_a_loop_that_never_runs_again_keeps_nobody_waiting(place: Place) -> None:
    with opened(place) as lane:
        asyncio.run(make_counter(lane))
        abandoned = asyncio.new_event_loop()
        task = abandoned.create_task(lane.run(increment()))
        abandoned.call_soon(abandoned.stop)
        abandoned.run_forever()  # One turn: the work waits, and the nudge would come in the next.
        assert lane._nudging is abandoned
        assert asyncio.run(count(lane)) == 1
        abandoned.run_until_complete(task)
        abandoned.close()


def test_a_loop_that_is_closed_has_nobody_left_to_be_told(place: Place) -> None:
    with opened(place) as lane:
        asyncio.run(make_counter(lane))
        begun, go = threading.Event(), threading.Event()

        def slow(session: Session) -> object:
            begun.set()
            go.wait()
            return session.execute("UPDATE counter SET n = n + 1 WHERE id = 1")

        async def leave() -> None:
            task = asyncio.ensure_future(lane.run(Work(slow)))
            await asyncio.to_thread(begun.wait)
            task.cancel()

        asyncio.run(leave())
        go.set()
        assert asyncio.run(count(lane)) == 1, "cancelled too late: it happened wholly"
