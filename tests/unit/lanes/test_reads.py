"""G7: no reader shows what a crash could still take back; reads are bounded and keep nobody else waiting."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from interlock.errors import CorruptionError, OutcomeUnknown, TransactionError, UnavailableError
from interlock.lanes import reads
from interlock.lanes.lane import Lane
from interlock.seams import SystemClock
from tests.sabotage.checks import SlowHandOff, read_count
from tests.unit.lanes.lanes import increment, make_counter, opened, rested, run

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


def test_a_read_that_is_given_up_just_as_it_is_let_go_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[object] = []
        loop.set_exception_handler(lambda _loop, complaint: complaints.append(complaint))
        with opened(tmp_path / "x", hand_off=lambda: None) as lane:
            held = asyncio.ensure_future(lane._durable_up_to(lane.durable + 1))
            await asyncio.sleep(0)
            lane._let_go()
            await asyncio.sleep(0)
            assert list(lane._held), "not before its group is durable"
            lane.durable += 1
            lane._let_go()  # It is told in the next turn of the loop.
            held.cancel()
            await asyncio.wait({held})
            assert held.cancelled()
            await asyncio.sleep(0)
            assert not complaints

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


class Watched(SystemClock):
    """A clock that stops a read at its second look and lets everything be overdue at the third."""

    def __init__(self) -> None:
        self.looks = 0
        self.looking, self.go = threading.Event(), threading.Event()

    def monotonic_s(self) -> float:
        if not threading.current_thread().name.startswith("interlock-read"):
            return 0.0
        self.looks += 1
        if self.looks == 2:
            self.looking.set()
            self.go.wait()
        return 0.0 if self.looks <= 2 else 1e9


def test_a_read_that_is_given_up_ends_long_before_its_time_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = Watched()
        with opened(tmp_path / "x", clock=clock, readers_max=1) as lane:
            await make_counter(lane)
            reading = asyncio.ensure_future(lane.read(lambda connection: connection.execute(ENDLESS).get))
            await asyncio.to_thread(clock.looking.wait)
            reading.cancel()
            await asyncio.wait({reading})
            later = asyncio.ensure_future(read_count(lane))
            await asyncio.sleep(0)
            assert not later.done(), "the one connection is still busy"
            clock.go.set()
            assert await later == 0, "nothing of the cancelling reaches the next read on the connection"
            assert clock.looks == 3, "two of the first read and one of the next: the first was not overdue"

    run(scenario)


def test_without_a_thread_a_read_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Callable[[], object]] = []
    happened: list[int] = []

    class Exhausted:
        def submit(self, function: Callable[..., object], *arguments: object) -> object:
            queued.append(lambda: function(*arguments))
            raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        with opened(tmp_path / "x", readers_max=1) as lane:
            await make_counter(lane)
            with monkeypatch.context() as patch:
                patch.setattr(reads, "_threads", Exhausted())
                for _ in range(2):
                    with pytest.raises(UnavailableError, match="can't start new thread"):
                        await lane.read(lambda _connection: happened.append(1))
            assert await read_count(lane) == 0
            for each in queued:
                assert each() is None
            assert not happened, "the thread that finds it later lets it be"

    run(scenario)


def test_a_file_that_cannot_be_read_is_told_in_our_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            (tmp_path / "x").write_bytes(b"this is no database at all" * 1_000)
            with pytest.raises(CorruptionError, match="not a database"):
                await read_count(lane)

    run(scenario)


def test_busy_lanes_keep_no_thread_from_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        go = threading.Event()

        def slow(_connection: apsw.Connection) -> object:
            return go.wait()

        with (
            opened(tmp_path / "busy", readers_max=100) as busy,
            opened(tmp_path / "too", readers_max=100) as too,
            opened(tmp_path / "other") as other,
        ):
            await make_counter(other)
            slow_reads = [asyncio.ensure_future(lane.read(slow)) for lane in (busy, too) for _ in range(50)]
            await asyncio.sleep(0)
            assert await read_count(other) == 0
            assert not any(read.done() for read in slow_reads)
            go.set()
            assert await asyncio.gather(*slow_reads) == [True] * 100

    run(scenario)
