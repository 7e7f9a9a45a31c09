"""G7: no reader shows what a crash could still take back; reads are bounded and keep nobody else waiting."""

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

from interlock.errors import OutcomeUnknown, Overloaded, TransactionError, UnavailableError
from interlock.lanes.gate import Gate
from interlock.lanes.lane import Lane
from tests.sabotage.checks import SlowHandOff, read_count
from tests.unit.lanes.lanes import increment, make_counter, opened, run

ENDLESS = "WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"


async def held_or_done(lane: Lane, reads: list["asyncio.Task[object]"]) -> None:
    while len(lane._held) + sum(read.done() for read in reads) < len(reads):  # noqa: ASYNC110 -- one of both happens.
        await asyncio.sleep(0)


def test_reads_are_held_while_the_hand_off_takes_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        hand_off = SlowHandOff(asyncio.get_running_loop())
        hand_off.open = True
        with opened(tmp_path / "x", hand_off=hand_off) as lane:
            await make_counter(lane)
            assert await read_count(lane) == 0
            hand_off.begun.clear()
            hand_off.open = False
            writing = asyncio.ensure_future(lane.run(increment()))
            await hand_off.begun.wait()
            reads = [asyncio.ensure_future(read_count(lane)) for _ in range(10)]
            await held_or_done(lane, reads)
            assert not any(read.done() for read in reads)
            for read in reads[5:]:
                read.cancel()
            await asyncio.wait(reads[5:])
            assert len(lane._held) == 5, "a read that was given up is forgotten"
            hand_off.let()
            assert await asyncio.gather(*reads[:5]) == [1] * 5
            assert await writing == 1
            assert not lane._held

    run(scenario)


@pytest.mark.parametrize("error", [OSError("the bucket is gone"), OutcomeUnknown("past its deadline")], ids=repr)
def test_a_hand_off_that_fails_is_never_shown(tmp_path: Path, error: Exception) -> None:
    async def scenario() -> None:
        begun, let, fails = asyncio.Event(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hand_off() -> None:
            if fails.is_set():
                loop.call_soon_threadsafe(begun.set)
                let.wait()
                raise error

        with opened(tmp_path / "x", hand_off=hand_off) as lane:
            await make_counter(lane)
            fails.set()
            writing = asyncio.ensure_future(lane.run(increment()))
            await begun.wait()
            reads = [asyncio.ensure_future(read_count(lane)) for _ in range(3)]
            await held_or_done(lane, reads)
            let.set()
            answers = await asyncio.gather(writing, *reads, return_exceptions=True)
            assert isinstance(answers[0], OutcomeUnknown)
            for answer in answers[1:]:
                assert isinstance(answer, UnavailableError)
                assert "this lane has stopped" in answer.what
            with pytest.raises(UnavailableError):
                await lane._durable_up_to(lane.committed)

    run(scenario)


def test_a_read_between_two_groups_is_never_forgotten(tmp_path: Path) -> None:
    """A read that is held at the very moment its group becomes durable is let go with that group."""

    async def scenario() -> None:
        with opened(tmp_path / "x", hand_off=lambda: None) as lane:
            await make_counter(lane)
            for turn in range(200):
                writing = asyncio.ensure_future(lane.run(increment()))
                assert await read_count(lane) in {turn, turn + 1}
                await writing

    run(scenario)


@pytest.mark.parametrize("on_disk", [True, False], ids=["on disk", "in memory"])
def test_a_read_that_does_not_end_is_ended(tmp_path: Path, *, on_disk: bool) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x" if on_disk else None, statement_timeout_s=0.05) as lane:
            await make_counter(lane)
            with pytest.raises(TransactionError, match="statement_timeout_s"):
                await lane.read(lambda connection: connection.execute(ENDLESS).get)
            assert await read_count(lane) == 0

    run(scenario)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            for statement in ("UPDATE counter SET n = 7", "PRAGMA query_only = OFF", "DROP TABLE counter"):
                with pytest.raises(TransactionError):
                    await lane.read(lambda connection, sql=statement: connection.execute(sql).get)  # type: ignore[misc]
            assert await read_count(lane) == 0

    run(scenario)


def test_a_read_that_runs_while_the_lane_is_closed_closes_its_own_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, go = threading.Event(), threading.Event()
        used: list[apsw.Connection] = []

        def slow(connection: apsw.Connection) -> object:
            used.append(connection)
            begun.set()
            go.wait()
            return connection.execute("SELECT n FROM counter").get

        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            reading = asyncio.ensure_future(lane.read(slow))
            await asyncio.to_thread(begun.wait)
            lane.close()
            go.set()
            assert await reading == 0
        with pytest.raises(apsw.ConnectionClosedError):
            used[0].execute("SELECT 1")

    run(scenario)


def test_a_busy_lane_keeps_no_thread_from_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        go = threading.Event()

        def slow(_connection: apsw.Connection) -> object:
            return go.wait()

        with opened(tmp_path / "busy", readers_max=4) as busy, opened(tmp_path / "other") as other:
            await make_counter(other)
            reads = [asyncio.ensure_future(busy.read(slow)) for _ in range(20)]
            await asyncio.sleep(0)
            assert await read_count(other) == 0
            assert not any(read.done() for read in reads)
            go.set()
            assert await asyncio.gather(*reads) == [True] * 20

    run(scenario)


def test_the_gate_lets_in_as_many_as_there_are_places() -> None:
    async def scenario() -> None:
        gate = Gate(2, waiting_max=3)
        entered: list[int] = []

        async def visit(number: int) -> None:
            await gate.enter()
            entered.append(number)

        visits = [asyncio.ensure_future(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert entered == [0, 1]
        with pytest.raises(Overloaded, match="3 reads wait"):
            await gate.enter()
        visits[2].cancel()
        await asyncio.wait({visits[2]})
        gate.leave()
        await asyncio.wait({visits[3]})
        assert entered == [0, 1, 3], "one after the other, without the one that was cancelled"
        gate.hold()
        gate.leave()
        await asyncio.sleep(0)
        assert entered == [0, 1, 3]
        gate.let_go()
        await asyncio.wait({visits[4]})
        assert entered == [0, 1, 3, 4]
        assert gate.inside == 2

    run(scenario)


def test_a_place_given_to_one_who_is_cancelled_goes_to_the_next() -> None:
    async def scenario() -> None:
        gate = Gate(1, waiting_max=9)
        await gate.enter()
        first, second = asyncio.ensure_future(gate.enter()), asyncio.ensure_future(gate.enter())
        await asyncio.sleep(0)
        gate.leave()  # The place is the first one's, who does not know it yet and is cancelled now.
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        await second
        assert gate.inside == 1

    run(scenario)


def test_a_closed_loop_takes_no_place() -> None:
    gate = Gate(1, waiting_max=9)
    gone = asyncio.new_event_loop()
    gone.run_until_complete(gate.enter())
    waiting = gone.create_task(gate.enter())
    gone.call_soon(gone.stop)
    gone.run_forever()
    gone.close()
    gate.leave()
    assert gate.inside == 0
    asyncio.run(asyncio.wait_for(gate.enter(), 5))
    assert gate.inside == 1
    del waiting
