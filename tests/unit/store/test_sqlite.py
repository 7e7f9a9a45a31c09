"""The store on a lane: what a lane says is told in the words of a store, and nothing is left owned or believed."""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from pathlib import Path

import apsw
import msgspec
import pytest

from interlock.catalog.open_lane import closing_thread
from interlock.clock import SystemClock
from interlock.errors import InterlockError, InvalidPayload, OutcomeUnknown, UnavailableError
from interlock.lanes.lane import HandedOff, Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.writer import Work
from interlock.store import lane_store
from interlock.store import open_store as store_open
from interlock.store.chart_store import chart_record
from interlock.store.lane_store import SqliteStore, apply
from interlock.store.open_store import open_store
from interlock.store.records import ChildRecord
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

        monkeypatch.setattr(lane_store, "apply", stopped)
        with pytest.raises(UnavailableError, match=told) as caught:
            await store.commit([started()])
        assert not isinstance(caught.value, OutcomeUnknown)
        monkeypatch.setattr(lane_store, "apply", apply)
        assert await store.load(["w"]) == {}
        await begun(store, started())
        await store.close()

    run(scenario)


def test_only_a_small_group_is_written_by_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot workflow is one change of a thousand rows: while these are written the loop runs for others."""
    run_now, asked = Lane.run_now, list[bool]()

    def noted(lane: Lane, work: Work) -> bool:
        asked.append(True)
        return run_now(lane, work)

    async def scenario() -> None:
        store = await opened(tmp_path)
        monkeypatch.setattr(Lane, "run_now", noted)
        first = started()
        await store.commit([first])
        assert len(asked) == 1
        row = first.row
        for count, total in ((lane_store.SMALL_MAX, 2), (lane_store.SMALL_MAX + 1, 2)):
            begin, last = row.version, moved(row)
            history = tuple(
                msgspec.structs.replace(last.history[0], version=begin + number) for number in range(1, count + 1)
            )
            row = msgspec.structs.replace(last.row, version=begin + count)
            await store.commit([msgspec.structs.replace(last, row=row, history=history)])
            assert len(asked) == total
        for count, total in ((lane_store.SMALL_MAX, 3), (lane_store.SMALL_MAX + 1, 3)):
            assert await store.commit([started(f"{count}-{number}") for number in range(count)]) == []
            assert len(asked) == total
        assert len(await store.history("w")) == row.version
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
    monkeypatch.setattr(lane_store, "NUMBERS_MAX", 4)

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
            patch.setattr(lane_store, "TABLES", lane_store.TABLES + "CREATE TABLE workflows (twice TEXT);")
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


def test_a_store_of_an_earlier_release_gets_the_table_of_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        (row,) = await begun(store, started("p"))
        await execute(store, "DROP TABLE workflow_children")
        await execute(store, "DROP INDEX dead_letters_by_workflow")
        await store.close()
        store = await opened(tmp_path)
        assert await store.letters(workflow="p") == []
        [(*_, plan)] = await store._all(f"EXPLAIN QUERY PLAN {lane_store.LETTERS_OF}", 0, "", None, 9, "p")
        assert "dead_letters_by_workflow (workflow=? AND" in plan
        assert await store.children("p", limit=9) == []
        record = ChildRecord("p.a", "p", 1, 0)
        await begun(store, msgspec.structs.replace(moved(row), children=(record,)))
        assert await store.children("p", limit=9) == [record]
        await store.close()

    run(scenario)


def test_a_store_of_an_earlier_release_gets_the_table_of_charts(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        await begun(store, started("p"))
        await store._write(lambda connection: connection.cursor().execute("DROP TABLE workflow_charts").fetchall())
        await store.close()
        store = await opened(tmp_path)
        record = chart_record(60, 0, "order", "new", 1)
        await store.charts.add([record])
        assert (await store.charts.read("", 0, 60_000_000, 60_000_000)).records == [record]
        await store.close()

    run(scenario)


@pytest.mark.parametrize("missing", [("actor", "attempts"), ("attempts",)])
def test_a_store_of_an_earlier_release_gets_the_columns_of_actors_and_attempts(
    tmp_path: Path, missing: tuple[str, ...]
) -> None:
    """Its rows have none, no row is written again, and that release still writes beside the new rows."""

    async def scenario() -> None:
        store = await opened(tmp_path)
        (row,) = await begun(store, started("p", by=None))
        for column in missing:
            await execute(store, f"ALTER TABLE workflow_events DROP COLUMN {column}")
        await store.close()
        store = await opened(tmp_path)
        assert [(each.by, each.attempts) for each in await store.history("p")] == [(None, b"")]
        (row,) = await begun(store, moved(row, by="ada", attempts=b"[1]"))
        await execute(store, AS_BEFORE, (1, "p", row.version + 1, "paid", "paid", "Pay", "{}", "{}", 9, None, None))
        assert [each.by for each in await store.history("p")] == [None, "ada", None]
        await store.close()
        store = await opened(tmp_path)
        assert [each.by for each in await store.history("p")] == [None, "ada", None]
        assert [each.attempts for each in await store.history("p")] == [b"", b"[1]", b""]
        await store.close()

    run(scenario)


AS_BEFORE = """INSERT INTO workflow_events (workflow, workflow_id, version, from_state, to_state, event, payload,
context, created_at, key, key_digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
"""How the release before actors writes a row of history."""


async def execute(store: SqliteStore, sql: str, values: tuple[object, ...] = ()) -> None:
    """Run a statement in the writer."""
    await store._write(lambda connection: connection.cursor().execute(sql, values).fetchall())
