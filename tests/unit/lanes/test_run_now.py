"""A group that an event loop runs itself: only while the driver rests, the disk is fast and nobody locks the lane."""

import asyncio
import threading
from pathlib import Path

import pytest

from interlock import faultpoints
from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.lanes import lane as lane_module
from interlock.lanes.writer import Session, Work
from interlock.testing.faults import FaultyDisk
from tests.unit.lanes.lanes import SetClock, at_rest, count, increment, make_counter, opened, rested, run
from tests.unit.lanes.movers import WAIT_S, leave, leaving


def thread_of(work: Work) -> list[str]:
    """The names of the threads that run it."""
    names: list[str] = []
    function = work.function

    def noted(session: Session) -> object:
        names.append(threading.current_thread().name)
        return function(session)

    work.function = noted
    return names


def test_a_group_is_run_by_the_loop_and_is_durable_when_the_call_returns(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await at_rest(lane)
            groups, work = lane.durable, increment()
            names = thread_of(work)
            assert lane.run_now(work)
            assert (work.result(), lane.durable - groups) == (1, 1)
            assert names == [threading.main_thread().name]
            failing = Work(lambda session: session.execute("UPDATE counter SET n = -1"), single=True)
            assert lane.run_now(failing)
            with pytest.raises(Exception, match="CHECK"):
                failing.result()
            assert await count(lane) == 1

    run(scenario)


def test_it_is_submitted_when_the_driver_has_work_or_has_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            assert not lane.run_now(increment()), "its files are closed"
        with opened(tmp_path / "y", idle_s=60.0) as lane:
            await make_counter(lane)
            await at_rest(lane)
            waiting = lane.submit(increment())
            assert not lane.run_now(increment()), "others came first"
            await waiting
            assert await count(lane) == 1
        assert not lane.run_now(increment()), "it is closed"

    run(scenario)


def test_a_slow_disk_and_a_long_log_are_left_to_the_driver(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await at_rest(lane)
            lane._commit_s = 2 * lane_module.RUN_NOW_S_MAX
            assert not lane.run_now(increment())
            lane._commit_s, lane.settings = 0.0, type(lane.settings)(wal_bytes_max=65_536)
            assert lane._writer is not None
            lane._writer._log_frames = 1_000
            assert not lane.run_now(increment())

    run(scenario)


def test_a_group_that_took_long_in_the_loop_leaves_the_next_ones_to_the_driver(tmp_path: Path) -> None:
    """Rows that are read from a slow disk take time before the commit."""
    clock = SetClock()

    def slow(session: Session) -> object:
        clock.now_monotonic_s += 1.0
        return session.execute("UPDATE counter SET n = n + 1")

    async def scenario() -> None:
        with opened(tmp_path / "x", clock=clock, idle_s=60.0) as lane:
            await make_counter(lane)
            await lane.run(Work(slow, single=True))
            await at_rest(lane)
            assert lane.run_now(Work(slow, single=True)), "in its own thread it may take as long as it likes"
            await at_rest(lane)
            assert not lane.run_now(increment())
            assert await count(lane) == 2

    run(scenario)


def test_no_loop_folds_the_log(tmp_path: Path) -> None:
    """The driver does, with the next group: it may take as long as many commits."""

    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0, wal_bytes_max=65_536) as lane:
            await make_counter(lane)
            points: list[tuple[str, threading.Thread]] = []
            faultpoints.listen(lambda point: points.append((point, threading.current_thread())))
            try:
                for _ in range(40):
                    await at_rest(lane)
                    lane._commit_s = 0.0
                    if not lane.run_now(increment()):
                        await lane.run(increment())
            finally:
                faultpoints.listen(None)
            by_loop = {point for point, thread in points if thread is threading.main_thread()}
            assert "group.durable" in by_loop
            assert "log.folded" not in by_loop
            assert "log.folded" in {point for point, _ in points}
            assert await count(lane) == 40

    run(scenario)


def test_a_log_that_was_taken_away_is_saved_before_the_lane_stops(tmp_path: Path) -> None:
    """G2: nothing can be saved once the group has begun."""
    path = tmp_path / "x"

    async def scenario() -> None:
        with opened(path, idle_s=60.0) as lane:
            await make_counter(lane)
            assert await lane.read(lambda connection: connection.execute("SELECT n FROM counter").get) == 0
            assert await lane.run(increment()) == 1
            await at_rest(lane)
            (tmp_path / "x-wal").unlink()
            work = increment()
            assert lane.run_now(work)
            with pytest.raises(UnavailableError, match="removed or replaced") as caught:
                work.result()
            assert "was saved" in caught.value.why
            assert lane.state == "dead"
            # Power fails now: nothing but the database file is left.
            (tmp_path / "after").write_bytes(path.read_bytes())
        with opened(tmp_path / "after") as lane:
            assert await count(lane) == 1

    run(scenario)


def test_a_failed_sync_stops_the_lane(tmp_path: Path) -> None:
    """G9: it is unknown what has reached the disk, and nothing else is tried there."""
    path = tmp_path / "x"
    disk = FaultyDisk("faulty-run-now")

    async def scenario() -> None:
        with opened(path, idle_s=60.0, vfs=disk.name) as lane:
            await make_counter(lane)
            assert await lane.run(increment()) == 1
            await at_rest(lane)
            disk.fails_sync = lambda _number: True
            failed = increment()
            assert lane.run_now(failed)
            with pytest.raises(OutcomeUnknown):
                failed.result()
            assert failed.value is None
            assert lane.state == "dead"
            assert not lane.run_now(increment())
            with pytest.raises(UnavailableError, match="has stopped"):
                await lane.run(increment())
            disk.fails_sync = lambda _number: False
        with opened(path, vfs=disk.name) as lane:
            assert await count(lane) in {1, 2}

    try:
        run(scenario)
    finally:
        disk.close()


def test_no_loop_waits_for_a_mover_that_has_sealed_the_lane(tmp_path: Path) -> None:
    path = tmp_path / "x"

    async def scenario() -> None:
        with opened(path, idle_s=60.0, seal_wait_s=WAIT_S) as lane:
            await make_counter(lane)
            await at_rest(lane)
            with leaving(path) as mover, mover.sealed(WAIT_S):
                assert not lane.run_now(increment())
            assert lane.run_now(increment()), "it is here still"
            leave(path)
            moved = increment()
            assert lane.run_now(moved)
            with pytest.raises(Exception, match="since move 1"):
                moved.result()
            assert lane.state == "dead"

    run(scenario)


def test_what_comes_from_another_loop_meanwhile_waits_and_is_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await at_rest(lane)
            came = threading.Event()
            answers: list[object] = []

            def other() -> None:
                async def submitted() -> None:
                    future = lane.submit(increment())
                    came.set()
                    answers.append(await future)

                asyncio.run(submitted())

            thread = threading.Thread(target=other)

            def while_it_comes(session: Session) -> object:
                thread.start()
                assert came.wait(WAIT_S)
                return session.execute("UPDATE counter SET n = n + 10")

            assert lane.run_now(Work(while_it_comes))
            await asyncio.to_thread(thread.join)
            assert answers == [1]
            assert await count(lane) == 11

    run(scenario)


def test_a_lane_that_is_closed_meanwhile_ends_after_the_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await at_rest(lane)
            closer = threading.Thread(target=lane.close)

            def while_it_closes(session: Session) -> object:
                closer.start()
                with lane._arrived:
                    assert lane._arrived.wait_for(lambda: lane._closing, WAIT_S)
                # The driver has looked: it waits again, and behind the one that closes.
                assert not threading.Event().wait(0.1)
                return session.execute("UPDATE counter SET n = n + 1")

            work = Work(while_it_closes)
            assert lane.run_now(work)
            assert work.result() == 1
            await asyncio.to_thread(closer.join, 20.0)
            assert not closer.is_alive()
        with opened(tmp_path / "x") as lane:
            assert await count(lane) == 1

    run(scenario)


def test_the_driver_stays_while_loops_run_groups(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.05) as lane:
            await make_counter(lane)
            held, driver = threading.Event(), lane._writer

            def longer_than_it_waits(session: Session) -> object:
                assert not held.wait(0.2)
                return session.execute("UPDATE counter SET n = n + 1")

            while not lane.run_now(Work(longer_than_it_waits)):
                await lane.run(
                    Work(lambda _session: None)
                )  # A busy machine may miss the time for which the driver rests.
                await at_rest(lane)
                driver = lane._writer
            assert lane._writer is driver, "the files are open still"
            await rested(lane)
            assert lane._writer is None
            assert await count(lane) == 1

    run(scenario)


def test_an_interrupt_from_the_keyboard_stops_the_lane(tmp_path: Path) -> None:
    """G9: it is unknown what has reached the disk."""

    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            await at_rest(lane)

            def interrupted(point: str) -> None:
                if point == "group.committed":
                    raise KeyboardInterrupt

            work = increment()
            faultpoints.listen(interrupted)
            try:
                with pytest.raises(KeyboardInterrupt):
                    lane.run_now(work)
            finally:
                faultpoints.listen(None)
            with pytest.raises(OutcomeUnknown):
                work.result()
            assert lane.state == "dead"

    run(scenario)
