"""G7: no reader shows what a crash could still take back; reads are bounded and keep nobody else waiting."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.errors import CorruptionError, OutcomeUnknown, UnavailableError
from interlock.lanes import readers
from interlock.lanes.lane import DurableLog, HandedOff, HandOff, Lane, OpenLog
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Environment, Unclear
from interlock.lanes.objectlog.log import open_log
from interlock.testing.lane_simulation.bucket import MemoryBucket
from tests.sabotage.checks import SlowHandOff, read_count
from tests.unit.lanes.lanes import increment, make_counter, opened, rested, run


class SlowBucket(MemoryBucket):
    """Objects of the log are stored when the hand-off lets them, and not at all when it fails."""

    def __init__(self, hand_off: HandOff) -> None:
        super().__init__()
        self._hand_off = hand_off

    def create(self, key: str, data: bytes) -> object:
        if key.startswith("log/"):
            try:
                self._hand_off()
            except OSError as error:
                raise Unclear(str(error)) from error
        return super().create(key, data)


def through_a_bucket(hand_off: HandOff) -> OpenLog:
    settings = LaneSettings(append_deadline_s=0.1)

    def opened_log(path: Path | None) -> DurableLog:
        assert path is not None
        return open_log(SlowBucket(hand_off), path, settings=settings, world=Environment())

    return opened_log


def by_a_function(hand_off: HandOff) -> OpenLog:
    return lambda _path: HandedOff(hand_off)


Beyond = Callable[[HandOff], OpenLog]
BEYOND = pytest.mark.parametrize("beyond", [by_a_function, through_a_bucket], ids=["a function", "the object log"])


async def held_or_done(lane: Lane, reads: list["asyncio.Task[object]"]) -> None:
    while len(lane._held_reads) + sum(read.done() for read in reads) < len(reads):  # noqa: ASYNC110 -- one of both happens.
        await asyncio.sleep(0)


@BEYOND
def test_reads_are_held_while_the_hand_off_takes_its_time(tmp_path: Path, beyond: Beyond) -> None:
    async def scenario() -> None:
        hand_off = SlowHandOff(asyncio.get_running_loop())
        hand_off.open = True
        with opened(tmp_path / "x", open_log=beyond(hand_off)) as lane:
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
            assert len(lane._held_reads) == 5, "a read that was given up is forgotten"
            hand_off.let()
            assert await asyncio.gather(*reads[:5]) == [1] * 5
            assert await writing == 1
            assert not lane._held_reads

    run(scenario)


@BEYOND
@pytest.mark.parametrize("error", [OSError("the bucket is gone"), OutcomeUnknown("past its deadline")], ids=repr)
def test_a_hand_off_that_fails_is_never_shown(tmp_path: Path, beyond: Beyond, error: Exception) -> None:
    async def scenario() -> None:
        begun, let, fails = asyncio.Event(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hand_off() -> None:
            if fails.is_set():
                loop.call_soon_threadsafe(begun.set)
                let.wait()
                raise error

        with opened(tmp_path / "x", open_log=beyond(hand_off)) as lane:
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
                await lane.durable_up_to(lane.committed)

    run(scenario)


@BEYOND
def test_a_read_between_two_groups_is_never_forgotten(tmp_path: Path, beyond: Beyond) -> None:
    """A read that is held at the very moment its group becomes durable is let go with that group."""

    async def scenario() -> None:
        with opened(tmp_path / "x", open_log=beyond(lambda: None)) as lane:
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
            held = asyncio.ensure_future(lane.durable_up_to(lane.durable + 1))
            await asyncio.sleep(0)
            lane._let_go()
            await asyncio.sleep(0)
            assert list(lane._held_reads), "not before its group is durable"
            lane.durable += 1
            lane._let_go()  # It is told in the next turn of the loop.
            held.cancel()
            await asyncio.wait({held})
            assert held.cancelled()
            await asyncio.sleep(0)
            assert not complaints

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
                patch.setattr(readers, "_threads", Exhausted())
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
