"""A lane that gives its files back keeps nobody waiting meanwhile, and forgets nothing that comes meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from interlock.lanes.lane import Lane
from interlock.lanes.readers import Readers, _Reader
from interlock.lanes.writer import Writer
from tests.unit.lanes.lanes import count, increment, make_counter, opened, rested, run
from tests.unit.lanes.test_idle import READ, open_files


def closing(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Do something while a writer is being closed, as long as a large fold would take."""
    close = Writer.close

    def slow(writer: Writer) -> None:
        meanwhile()
        close(writer)

    monkeypatch.setattr(Writer, "close", slow)


def test_the_lock_is_free_while_the_log_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            free: list[bool] = []

            def meanwhile() -> None:
                free.append(lane._lock.acquire(blocking=False))
                if free[-1]:
                    lane._lock.release()

            closing(monkeypatch, meanwhile)
            await make_counter(lane)
            await rested(lane)
            assert free
            assert all(free), "an event loop that nudges would wait for the fold"

    run(scenario)


def test_work_that_comes_while_the_log_is_folded_is_done_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            begun, go = threading.Event(), threading.Event()

            driving: list[bool] = []

            def meanwhile() -> None:
                driving.append(lane._driving)
                begun.set()
                go.wait()

            closing(monkeypatch, meanwhile)
            assert await lane.run(increment()) == 1
            await asyncio.to_thread(begun.wait)
            waiting = asyncio.ensure_future(lane.run(increment()))
            while not lane._waiting:  # noqa: ASYNC110 -- it joins the queue in the next turn.
                await asyncio.sleep(0)
            lane._nudge()
            go.set()
            assert await waiting == 1
            assert all(driving), "nobody else may start to drive meanwhile, nor take the lane for closed"
            await rested(lane)
            assert open_files(tmp_path) == ["x.lock"]
            assert await count(lane) == 2

    run(scenario)


def test_the_lane_can_be_closed_while_it_comes_to_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            begun, go = threading.Event(), threading.Event()

            def meanwhile() -> None:
                begun.set()
                go.wait()

            closing(monkeypatch, meanwhile)
            assert await lane.run(increment()) == 1
            await asyncio.to_thread(begun.wait)
            ending = asyncio.ensure_future(asyncio.to_thread(lane.close))
            while not lane._closing:  # noqa: ASYNC110 -- set by the other thread at once.
                await asyncio.sleep(0)
            assert "x.lock" in open_files(tmp_path), "it is ours until SQLite has closed its files"
            go.set()
            await ending
            assert open_files(tmp_path) == []

    run(scenario)


def test_a_connection_that_a_read_leaves_behind_while_the_lane_comes_to_rest_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            close_idle = Readers.close_idle
            left: list[int] = []

            def closes(readers: Readers) -> None:
                close_idle(readers)
                if not left:
                    left.append(1)
                    readers._put_back(_Reader(lane._file, lane._prepare, lane._clock, lane._time))
                    lane._read_left()

            monkeypatch.setattr(Readers, "close_idle", closes)
            assert await lane.run(increment()) == 1
            await rested(lane)
            assert left
            assert open_files(tmp_path) == ["x.lock"]

    run(scenario)


def test_the_connection_of_a_read_that_was_given_up_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            begun, go = threading.Event(), threading.Event()

            def slow(connection: apsw.Connection) -> object:
                begun.set()
                go.wait()
                return connection.execute(READ).get

            reading = asyncio.ensure_future(lane.read(slow))
            await asyncio.to_thread(begun.wait)
            reading.cancel()
            await asyncio.wait({reading})
            await rested(lane)
            go.set()
            await all_left(lane)
            await rested(lane)
            assert open_files(tmp_path) == ["x.lock"]

    run(scenario)


async def all_left(lane: Lane) -> None:
    """Wait until no read runs."""
    assert lane._readers is not None
    while lane._readers._gate.inside:  # noqa: ASYNC110 -- the thread that reads is about to leave.
        await asyncio.sleep(0)


def test_a_connection_that_cannot_be_closed_keeps_nobody_from_driving(tmp_path: Path) -> None:
    class Stubborn:
        in_transaction = False

        def close(self) -> None:
            raise apsw.BusyError("not now")

    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            assert lane._readers is not None
            reader = _Reader(lane._file, lane._prepare, lane._clock, lane._time)
            real, reader.connection = reader.connection, Stubborn()  # type: ignore[assignment]
            lane._readers._put_back(reader)
            lane._read_left()
            await rested(lane)
            assert await lane.run(increment()) == 1
            real.close()

    run(scenario)


def test_a_nudge_that_finds_nothing_does_not_end_the_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rests(_lane: Lane) -> bool:
        raise AssertionError("it gives its files back, and needs them again at once")

    with opened(tmp_path / "x", idle_s=60.0) as lane:
        work = increment()
        waits = [lambda: None, lambda: lane._waiting.add(work)]

        def nudged(_timeout_s: float | None = None) -> bool:
            waits.pop(0)()
            return True

        with monkeypatch.context() as patched:
            patched.setattr(lane._arrived, "wait", nudged)
            patched.setattr(Lane, "_rests", rests)
            assert lane._gather() == [work]
