"""Streams: each key has one database, whoever asks; bounded (G6), tried again, and closed with their parent."""

import asyncio
import threading
from pathlib import Path

import pytest

from interlock.database.database import Database
from interlock.database.streams_and_shards import CLOSING_THREADS, Elsewhere
from interlock.database.transactions import TransactionEnded
from interlock.errors import Overloaded, UnavailableError
from interlock.lanes.file import owner_of
from interlock.lanes.lane import Lane
from interlock.urls import RESERVED_NAMES, parse_bucket_url, stream_url
from tests.unit.database.test_unopened import SlowOpening
from tests.unit.lanes.lanes import SetClock

TABLE = "CREATE TABLE IF NOT EXISTS counter (id bigint PRIMARY KEY, n bigint NOT NULL)"


def parent(folder: Path, *, clock: SetClock | None = None, **settings: float) -> "asyncio.Future[Database]":
    async def opened() -> Database:
        url = f"lanes://{folder}/x"
        return await Database.open(
            url, home=None, clock=clock, hand_off=None, cache=None, tool=None, db_per_write_stream=True, **settings
        )

    return asyncio.ensure_future(opened())


def test_what_failed_to_open_is_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        db = await parent(tmp_path)
        (tmp_path / "x.streams").write_text("in the way")
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await db.stream("a")
        (tmp_path / "x.streams").unlink()
        await (await db.stream("a")).execute(TABLE)
        await db.close()

    asyncio.run(scenario())


def test_a_stream_opened_from_one_event_loop_is_awaited_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = asyncio.run(opened(tmp_path))
    slow = SlowOpening(monkeypatch)
    first = asyncio.new_event_loop()
    asked = first.create_task(db.stream("a"))
    while not slow.begun.is_set():
        first.run_until_complete(asyncio.sleep(0))

    async def elsewhere() -> None:
        asking = asyncio.ensure_future(db.stream("a"))
        await asyncio.sleep(0)
        slow.go.set()
        stream = await asking
        await stream.execute(TABLE)
        await db.close()

    asyncio.run(elsewhere())
    assert first.run_until_complete(asked) is not None
    first.close()
    slow.finish()
    assert owner_of(tmp_path / "x.lane") is None
    assert owner_of(tmp_path / "x.streams" / "a.lane") is None


async def opened(folder: Path) -> Database:
    return await parent(folder)


def test_a_stream_that_is_opened_while_its_parent_closes_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        db = await parent(tmp_path)
        slow = SlowOpening(monkeypatch)
        asking = asyncio.ensure_future(db.stream("a"))
        await asyncio.to_thread(slow.begun.wait)
        closing = asyncio.ensure_future(db.close())
        await asyncio.sleep(0)
        assert not closing.done()
        slow.finish()
        await closing
        with pytest.raises(UnavailableError, match="closed"):
            await asking
        with pytest.raises(UnavailableError, match="closed"):
            await db.stream("a")
        assert owner_of(tmp_path / "x.streams" / "a.lane") is None

    asyncio.run(scenario())


def test_a_stream_that_rests_makes_room_for_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SetClock()
        db = await parent(tmp_path, clock=clock, streams_max=2, idle_s=10.0)
        first, _second = await db.stream("a"), await db.stream("b")
        with pytest.raises(Overloaded, match="streams_max") as caught:
            await db.stream("c")
        assert caught.value.retry_after_s == 10.0
        clock.now_monotonic_s = 11.0
        assert await db.stream("a") is first, "asked for again: now b rests longest"
        await db.stream("c")
        assert owner_of(tmp_path / "x.streams" / "b.lane") is None
        assert owner_of(tmp_path / "x.streams" / "a.lane") is not None
        with pytest.raises(Overloaded):
            await db.stream("b")
        clock.now_monotonic_s = 22.0
        await asyncio.gather(db.stream("b"), db.stream("b"))
        with pytest.raises(UnavailableError, match="closed"):
            await first.execute(TABLE)
        await db.close()

    asyncio.run(scenario())


def test_a_stream_in_memory_is_never_closed_for_another() -> None:
    async def scenario() -> None:
        clock = SetClock()
        async with Database.open("memory:", clock=clock, db_per_write_stream=True, streams_max=1) as db:
            first = await db.stream("a")
            clock.now_monotonic_s = 100.0
            with pytest.raises(Overloaded):
                await db.stream("b")
            assert await db.stream("a") is first

    asyncio.run(scenario())


def test_a_slash_at_the_end_of_the_address_leads_to_the_same_streams(tmp_path: Path) -> None:
    async def scenario() -> None:
        for url in (f"lanes://{tmp_path}/x", f"lanes://{tmp_path}/x/"):
            async with Database.open(url, db_per_write_stream=True) as db:
                await (await db.stream("a")).execute(TABLE)

    asyncio.run(scenario())
    assert [path.name for path in tmp_path.rglob("*.streams")] == ["x.streams"]


@pytest.mark.parametrize("key", sorted(RESERVED_NAMES))
def test_a_key_may_be_a_word_that_no_database_in_a_bucket_may_have_as_its_name(key: str) -> None:
    assert parse_bucket_url(stream_url("s3://bucket/shop/stock?region=eu", key)).folder == "shop/stock.streams"
    assert stream_url("lanes:///shop/stock", key) == f"lanes:///shop/stock.streams/{key}"


def test_streams_are_closed_side_by_side_and_the_database_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(CLOSING_THREADS, timeout=60)
    close, closed = Lane.close, list[str]()

    def slow(lane: Lane) -> None:
        assert lane.path is not None
        if lane.path.name != "x.lane":
            together.wait()
        close(lane)
        closed.append(lane.path.name)

    async def scenario() -> None:
        db = await parent(tmp_path)
        for number in range(2 * CLOSING_THREADS):
            await db.stream(str(number))
        monkeypatch.setattr(Lane, "close", slow)
        await db.close()

    asyncio.run(scenario())
    assert len(closed) == 2 * CLOSING_THREADS + 1
    assert closed[-1] == "x.lane"


def test_without_more_threads_streams_are_closed_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "interlock-close":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def scenario() -> None:
        db = await parent(tmp_path)
        await asyncio.gather(db.stream("a"), db.stream("b"))
        monkeypatch.setattr(threading.Thread, "start", refuse)
        await db.close()

    asyncio.run(scenario())
    assert owner_of(tmp_path / "x.streams" / "a.lane") is None
    assert owner_of(tmp_path / "x.streams" / "b.lane") is None


def test_closing_a_database_ends_the_transactions_of_its_streams(tmp_path: Path) -> None:
    async def scenario() -> None:
        db = await parent(tmp_path, transaction_timeout_s=3_600.0)
        tx = (await db.stream("a")).transaction()
        await tx.execute(TABLE)
        await db.close()
        with pytest.raises(TransactionEnded):
            await tx.commit()

    asyncio.run(scenario())


def test_a_cancelled_call_stops_no_other_that_waits_for_the_same_stream() -> None:
    async def scenario() -> None:
        elsewhere: Elsewhere[str] = Elsewhere()
        gate = asyncio.Event()
        closed: list[str] = []

        async def opens() -> str:
            await gate.wait()
            return "opened"

        async def close(found: str) -> None:
            closed.append(found)

        calls = [asyncio.ensure_future(elsewhere.find("k", None, opens)) for _ in range(3)]
        await asyncio.sleep(0)
        for call in calls[:2]:  # The first one has begun the opening.
            call.cancel()
        await asyncio.wait(calls[:2])
        gate.set()
        assert await calls[2] == "opened"
        assert await elsewhere.find("k", None, opens) == "opened"
        await elsewhere.close(close)
        assert closed == ["opened"]

    asyncio.run(scenario())
