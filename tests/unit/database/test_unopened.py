"""What cannot be opened is told in our own words, and an opening that nobody waits for leaves no owner behind."""

import asyncio
import errno
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from interlock import Engine
from interlock.catalog import open_lane
from interlock.catalog.open_lane import OPENING_MAX, Place
from interlock.database.database import Database, Opening
from interlock.database.lane_engine import OnLane
from interlock.errors import BadUsage, CorruptionError, InterlockError, LaneOwned, UnavailableError, UnusableFile
from interlock.examples.order import order
from interlock.lanes.file import owner_of
from interlock.lanes.handover import Arrived
from interlock.lanes.lane import Lane
from interlock.testing.faults import Processes


def open_it(url: str, home: str | None = None) -> InterlockError:
    async def scenario() -> None:
        async with Database.open(url, home=home):
            pass

    with pytest.raises(InterlockError) as caught:
        asyncio.run(scenario())
    assert caught.value.why
    assert caught.value.fix
    return caught.value


def below_a_file(folder: Path) -> str:
    (folder / "file").write_text("not a folder")
    return f"lanes://{folder}/file/stock"


def too_long(folder: Path) -> str:
    return f"lanes://{folder}/{'x' * 300}"


def too_long_for_its_lock(folder: Path) -> str:
    return f"lanes://{folder}/{'x' * 248}"


def a_folder(folder: Path) -> str:
    (folder / "stock.lane").mkdir()
    return f"lanes://{folder}/stock"


@pytest.mark.parametrize("impossible", [below_a_file, too_long, too_long_for_its_lock, a_folder])
def test_an_impossible_path_is_unavailable(tmp_path: Path, impossible: Callable[[Path], str]) -> None:
    error = open_it(impossible(tmp_path))
    assert type(error) is UnavailableError
    assert "opened" in error.what


def test_a_folder_without_permission_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("interlock.lanes.file.os.open", refuse)
    error = open_it(f"lanes://{tmp_path}/stock")
    assert type(error) is UnavailableError
    assert "Permission denied" in error.what


@pytest.mark.parametrize(
    "content", [b"garbage, and long enough to be looked at" * 100, b"SQLite format 3\x00" + b"\xff" * 4080]
)
def test_a_file_that_is_no_lane_is_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "stock.lane").write_bytes(content)
    assert type(open_it(f"lanes://{tmp_path}/stock")) is CorruptionError
    assert (tmp_path / "stock.lane").read_bytes() == content
    assert owner_of(tmp_path / "stock.lane") is None


@pytest.mark.parametrize("name", ["a%00b", "a\x00b", "a\nb", "a\tb", "\ud800", "[x"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    assert isinstance(open_it(f"lanes://{tmp_path}/{name}" if name != "[x" else "lanes://[x"), BadUsage)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    assert type(open_it("stock", home=f"lanes://{tmp_path}/a%00b")) is BadUsage
    (tmp_path / "file").write_text("")
    assert type(open_it("stock", home=f"lanes://{tmp_path}/file")) is UnusableFile


def test_settings_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interlock.toml").mkdir()
    monkeypatch.chdir(tmp_path)
    assert type(open_it("memory:")) is BadUsage


def test_a_file_locked_by_another_program_is_owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.lanes.sqlite_connection.BUSY_MS_MAX", 1)
    other = apsw.Connection(str(tmp_path / "stock.lane"))
    other.execute("CREATE TABLE t (x); BEGIN EXCLUSIVE")
    error = open_it(f"lanes://{tmp_path}/stock")
    other.close()
    assert type(error) is LaneOwned


class SlowOpening:
    """Opens take until `go`, in a thread of their own."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(1)
        patch.setattr(open_lane, "_threads", open_lane._threads._replace(opening=self._threads))
        lane = Opening._lane

        def slow(asked: Opening, place: Place, url: str, permission: Arrived | None = None) -> OnLane:
            self.begun.set()
            self.go.wait()
            return lane(asked, place, url, permission)

        patch.setattr(Opening, "_lane", slow)

    def finish(self) -> None:
        """Let it happen, and wait until the thread has nothing left to do."""
        self.go.set()
        self._threads.shutdown(wait=True)


async def _open(folder: Path) -> Database:
    return await Database.open(f"lanes://{folder}/x")


def test_cancelled_and_the_loop_closed_before_the_lane_was_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowOpening(monkeypatch)
    loop = asyncio.new_event_loop()

    async def scenario() -> None:
        asked = asyncio.ensure_future(_open(tmp_path))
        while not slow.begun.is_set():  # noqa: ASYNC110 -- the thread has begun at once.
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        assert asked.cancelled()

    loop.run_until_complete(scenario())
    loop.close()
    slow.finish()
    assert owner_of(tmp_path / "x.lane") is None


def test_cancelled_when_the_lane_was_open_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is done, the coroutine has not been told yet."""
    slow = SlowOpening(monkeypatch)

    async def scenario() -> None:
        asked = asyncio.ensure_future(_open(tmp_path))
        while not slow.begun.is_set():  # noqa: ASYNC110 -- the thread has begun at once.
            await asyncio.sleep(0)
        slow.finish()
        assert owner_of(tmp_path / "x.lane") is not None
        asked.cancel()
        await asyncio.wait({asked})
        assert asked.cancelled()
        assert owner_of(tmp_path / "x.lane") is None

    asyncio.run(scenario())


def test_a_cancelled_close_closes_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(open_lane, "_threads", open_lane._threads._replace(closing=threads))
    close = Lane.close

    def slow(lane: Lane) -> None:
        begun.set()
        go.wait()
        close(lane)

    async def scenario() -> None:
        db = await Database.open(f"lanes://{tmp_path}/x", db_per_write_stream=True)
        await db.stream("a")
        monkeypatch.setattr(Lane, "close", slow)
        closing = asyncio.ensure_future(db.close())
        while not begun.is_set():  # noqa: ASYNC110 -- the thread has begun at once.
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        go.set()

    asyncio.run(scenario())
    threads.shutdown(wait=True)
    assert owner_of(tmp_path / "x.lane") is None
    assert owner_of(tmp_path / "x.streams" / "a.lane") is None


def test_openings_that_wait_keep_no_thread_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    lane = Opening._lane
    begun = threading.Barrier(OPENING_MAX + 1, timeout=60)

    def slow(asked: Opening, place: Place, url: str, permission: Arrived | None = None) -> OnLane:
        begun.wait()
        go.wait()
        return lane(asked, place, url, permission)

    async def scenario() -> None:
        first = await Database.open(f"lanes://{tmp_path}/first")
        monkeypatch.setattr(Opening, "_lane", slow)
        asked = [asyncio.ensure_future(_open(tmp_path / str(n))) for n in range(OPENING_MAX)]
        await asyncio.to_thread(begun.wait)  # All of them are open at once, and a thread of the program is free.
        try:
            async with asyncio.timeout(60):
                await first.close()  # So is one to close with.
        finally:
            go.set()
        for db in await asyncio.gather(*asked):
            await db.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_forked_child_has_threads_of_its_own() -> None:
    with Processes() as processes:
        process = processes.start("tests.unit.database.forking:fork")
        assert list(process.lines()) == ["parent: opened", "child: ended 0", "parent: opened"]
        assert process.end() == 0


@pytest.mark.parametrize("first", range(4), ids=lambda first: f"from thread {first}")
@pytest.mark.parametrize("kind", ["database", "engine"])
def test_without_a_thread_a_lane_is_given_back(
    tmp_path: Path, kind: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system starts `first` threads and no more: whatever fails, the lane has no owner afterwards."""
    url, path = {
        "database": (f"lanes://{tmp_path}/stock", tmp_path / "stock.lane"),
        "engine": (f"lanes://{tmp_path}", tmp_path / "workflows.lane"),
    }[kind]
    started = itertools.count()
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if next(started) >= first:
            raise RuntimeError("can't start new thread")
        real(thread)

    async def scenario() -> None:
        opened = Database.open(url) if kind == "database" else Engine.open(url, machines=[order], worker=False)
        with monkeypatch.context() as scarce:
            scarce.setattr(open_lane, "_threads", open_lane._fresh_threads())
            scarce.setattr(threading.Thread, "start", start)
            with suppress(UnavailableError):
                await (await opened).close()
            assert owner_of(path) is None
        async with Database.open(f"lanes://{path.with_suffix('')}"):
            pass

    asyncio.run(scenario())


def test_a_database_that_was_not_awaited_says_how_to_open_it(tmp_path: Path) -> None:
    closed = Database.open(f"lanes://{tmp_path}/stock")
    with pytest.raises(AttributeError, match=r"'execute' cannot be used.*async with Database\.open"):
        _ = closed.execute  # type: ignore[attr-defined]
