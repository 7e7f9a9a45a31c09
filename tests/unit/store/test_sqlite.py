"""The store on a lane: what a lane says is told in the words of a store, and nothing is left owned or believed."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from pathlib import Path

import apsw
import pytest

from interlock.catalog.open_lane import closing_thread
from interlock.clock import SystemClock
from interlock.errors import InterlockError, InvalidPayload, OutcomeUnknown, UnavailableError
from interlock.lanes.lane import HandedOff, Lane
from interlock.lanes.settings import LaneSettings
from interlock.store import lane
from interlock.store import open as store_open
from interlock.store.lane import SqliteStore, apply
from interlock.store.open import open_store
from tests.conformance.store.samples import begun, moved, run, started


async def opened(folder: Path) -> SqliteStore:
    store = await open_store(f"lanes://{folder}", clock=SystemClock())
    assert isinstance(store, SqliteStore)
    return store


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (apsw.FullError("full"), "the disk is full"),
        (apsw.InterruptError("late"), "statement_timeout_s"),
        (apsw.SQLError("no such table"), "a statement failed"),
    ],
)
def test_what_stops_a_group_is_told_and_nothing_of_it_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, told: str
) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)

        def stopped(connection: apsw.Connection, *more: object) -> object:
            apply(connection, *more)  # type: ignore[arg-type]
            raise raised

        monkeypatch.setattr(lane, "apply", stopped)
        with pytest.raises(UnavailableError, match=told) as caught:
            await store.commit([started()])
        assert not isinstance(caught.value, OutcomeUnknown)
        monkeypatch.setattr(lane, "apply", apply)
        assert await store.load(["w"]) == {}
        await begun(store, started())
        await store.close()

    run(scenario)


def test_a_commit_whose_outcome_nobody_knows_says_so(tmp_path: Path) -> None:
    """G9: and whoever opens the store again sees all of the group or nothing."""
    broken = [False]

    def hand_off() -> None:
        if broken[0]:
            raise OutcomeUnknown("the line is cut.")

    def lane() -> Lane:
        return Lane(
            tmp_path / "workflows.lane",
            settings=LaneSettings(),
            clock=SystemClock(),
            prepare=lambda _connection, _now: None,
            open_log=lambda _path: HandedOff(hand_off),
        )

    async def scenario() -> None:
        store = SqliteStore(lane(), SystemClock())
        await store.begin()
        (row,) = await begun(store, started())
        broken[0] = True
        with pytest.raises(OutcomeUnknown):
            await store.commit([moved(row)])
        with pytest.raises(UnavailableError):
            await store.commit([moved(row)])
        await store.close()
        broken[0] = False
        again = SqliteStore(lane(), SystemClock())
        await again.begin()
        found = (await again.load(["w"]))["w"]
        assert len(await again.history("w")) == found.version
        await again.close()

    run(scenario)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.load(["\ud800"]),
        lambda store: store.history("\ud800"),
        lambda store: store.find("\ud800", None, after=None, limit=1),
        lambda store: store.history("w", after=2**70),
    ],
)
def test_a_value_that_no_table_can_hold_is_refused(
    tmp_path: Path, read: Callable[[SqliteStore], asyncio.Future[object]]
) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        with pytest.raises(InvalidPayload, match="cannot be stored"):
            await read(store)
        await store.close()

    run(scenario)


def test_more_workflows_than_numbers_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: those that were forgotten are looked up by their ids."""
    monkeypatch.setattr(lane, "NUMBERS_MAX", 4)

    async def scenario() -> None:
        store = await opened(tmp_path)
        rows = await begun(store, *(started(each) for each in "abc"))
        rows += await begun(store, *(started(each) for each in "def"))
        assert len(store._numbers) <= 4
        for _ in range(3):
            rows = [(await begun(store, moved(row)))[0] for row in rows]
            assert len(store._numbers) <= 4
        assert [len(await store.history(each)) for each in "abcdef"] == [4] * 6
        await store.close()

    run(scenario)


def test_an_opening_that_is_cancelled_leaves_no_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = asyncio.Event()

    async def wait(_store: SqliteStore) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "begin", wait)
            task = asyncio.ensure_future(opened(tmp_path))
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        store = await opened(tmp_path)
        await store.close()

    run(scenario)


def test_an_opening_that_is_thrown_away_leaves_no_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an event loop does with everything that is in it when it is closed: nobody can wait then."""
    begun_to_close: list[Future[None]] = []
    entered: list[SqliteStore] = []

    async def wait(store: SqliteStore) -> None:
        entered.append(store)
        await asyncio.Event().wait()

    def close(function: Callable[[], None]) -> Future[None]:
        begun_to_close.append(closing_thread(function))
        return begun_to_close[0]

    class ThrownAway:
        def __await__(self) -> Generator[object, None, None]:
            coroutine = open_store(f"lanes://{tmp_path}", clock=SystemClock())
            steps = coroutine.__await__()
            step = next(steps)
            while not entered:
                yield step
                step = next(steps)
            coroutine.close()

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "begin", wait)
            patch.setattr(store_open, "closing_thread", close)
            await ThrownAway()
        await asyncio.wrap_future(begun_to_close[0])
        store = await opened(tmp_path)
        await store.close()

    run(scenario)


def test_tables_that_cannot_be_made_leave_no_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(lane, "TABLES", lane.TABLES + "CREATE TABLE workflows (twice TEXT);")
            with pytest.raises(InterlockError, match="already exists"):
                await opened(tmp_path)
        store = await opened(tmp_path)
        await begun(store, started())
        await store.close()

    run(scenario)


def test_a_close_that_is_cancelled_closes_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        task = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()  # Waits for the one that goes on.
        again = await opened(tmp_path)
        await again.close()

    run(scenario)


def test_reading_an_idle_store_writes_nothing(tmp_path: Path) -> None:
    """A store that is opened again and only looked at has made no group."""

    async def scenario() -> None:
        store = await opened(tmp_path)
        await begun(store, started())
        await store.close()
        store = await opened(tmp_path)
        await store.load(["w"])
        assert store._lane.stats().groups == 0
        await store.close()

    run(scenario)
