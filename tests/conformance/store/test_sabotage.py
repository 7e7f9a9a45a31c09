"""The suite can fail: a store that is broken in one place is caught by a test of it."""

from collections.abc import Callable, Sequence

import apsw
import msgspec
import pytest

from interlock.errors import InternalError
from interlock.lanes.writer import Session, Work
from interlock.store import lane_store
from interlock.store.lane_store import SqliteStore, event_columns
from interlock.store.records import Change, Cursor
from tests.conformance.store import test_commit, test_lives, test_reads
from tests.conformance.store.places import Place

Sabotage = Callable[[pytest.MonkeyPatch], None]


def history_in_another_transaction(patch: pytest.MonkeyPatch) -> None:
    commit = SqliteStore.commit

    def write(session: Session, changes: Sequence[Change]) -> None:
        for change in changes:
            [(number,)] = session.query(lane_store.NUMBER, (change.row.id,))
            for each in change.history:
                columns = event_columns(int(str(number)), each)
                session.execute(lane_store.statement(lane_store.INSERT_EVENT, len(columns), 1), columns)  # type: ignore[arg-type]

    async def twice(store: SqliteStore, changes: Sequence[Change]) -> list[str]:
        lost = await commit(store, [msgspec.structs.replace(change, history=()) for change in changes])
        won = [change for change in changes if change.row.id not in lost]
        try:
            await store._lane.submit(Work(write, won))
        except Exception as error:
            raise InternalError("contradiction") from error
        return lost

    patch.setattr(SqliteStore, "commit", twice)


def no_look_at_the_revision(patch: pytest.MonkeyPatch) -> None:
    assert "AND revision = column3" in lane_store.MOVE
    patch.setattr(lane_store, "MOVE", lane_store.MOVE.replace("AND revision = column3", "AND column3 > 0"))


def history_for_losers(patch: pytest.MonkeyPatch) -> None:
    move_all = lane_store._move_all

    def none_lost(*arguments: object) -> set[str]:
        move_all(*arguments)  # type: ignore[arg-type]
        return set()

    patch.setattr(lane_store, "_move_all", none_lost)


def losers_with_their_part(patch: pytest.MonkeyPatch) -> None:
    move = lane_store._move

    def all_or_none(connection: apsw.Connection, cursor: apsw.Cursor, moves: Sequence[lane_store.Columns]) -> list[str]:
        return [str(each[1]) for each in moves] if move(connection, cursor, moves) else []

    patch.setattr(lane_store, "_move", all_or_none)


def rows_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane_store, "EXISTS", "SELECT ?")


def numbers_in_the_order_of_the_group(patch: pytest.MonkeyPatch) -> None:
    def start(connection: apsw.Connection, cursor: apsw.Cursor, starts: Sequence[lane_store.Columns]) -> dict[str, int]:
        lane_store._run_rows(cursor, lane_store.START, starts)
        first = connection.last_insert_rowid() - connection.changes() + 1
        return {str(start[0]): number for number, start in enumerate(starts, first)}

    patch.setattr(lane_store, "_start", start)


def no_look_at_the_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane_store, "USED", "SELECT column1 {source} WHERE column2 < 0")


def a_start_that_replaces(patch: pytest.MonkeyPatch) -> None:
    start = lane_store.START.replace("INSERT", "INSERT OR REPLACE").partition(" ON CONFLICT")[0]
    patch.setattr(lane_store, "START", start)


def numbers_believed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane_store, "MOVE", lane_store.MOVE.replace("id = column2", "column2 <> ''"))
    apply, start = lane_store.apply, lane_store._start

    def careless(
        connection: apsw.Connection, changes: Sequence[Change], numbers: dict[str, int], time_us: int
    ) -> lane_store.Applied:
        def believed(
            connection: apsw.Connection, cursor: apsw.Cursor, starts: Sequence[lane_store.Columns]
        ) -> dict[str, int]:
            learned = start(connection, cursor, starts)
            numbers.update(learned)
            return learned

        patch.setattr(lane_store, "_start", believed)
        return apply(connection, changes, numbers, time_us)

    patch.setattr(lane_store, "apply", careless)


def time_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane_store, "TIME", "SELECT ?")


def pages_that_forget_those_of_the_same_moment(patch: pytest.MonkeyPatch) -> None:
    find = lane_store._find_in_state

    def later(run: lane_store.Run, machine: str, state: str, begin: Cursor, limit: int) -> list[tuple[object, ...]]:
        return find(run, machine, state, begin._replace(number=2**60), limit)

    patch.setattr(lane_store, "_find_in_state", later)


SABOTAGES: list[tuple[Sabotage, Callable[[Place], None]]] = [
    (
        history_in_another_transaction,
        lambda place: test_commit.test_a_group_that_contradicts_history_leaves_nothing(place, "a version twice"),
    ),
    (no_look_at_the_revision, test_commit.test_a_change_upon_another_revision_is_lost_and_leaves_nothing),
    (losers_with_their_part, test_commit.test_only_the_lost_changes_of_a_large_group_are_missing),
    (rows_that_are_gone, test_commit.test_only_the_lost_changes_of_a_large_group_are_missing),
    (numbers_in_the_order_of_the_group, test_commit.test_only_the_lost_changes_of_a_large_group_are_missing),
    (history_for_losers, test_commit.test_a_change_upon_another_revision_is_lost_and_leaves_nothing),
    (no_look_at_the_key, test_commit.test_a_delivery_key_is_used_once_per_workflow),
    (a_start_that_replaces, test_commit.test_a_workflow_that_exists_is_not_started_again),
    (numbers_believed_at_once, test_commit.test_a_number_learned_by_a_group_that_failed_is_not_believed),
    (time_not_written, test_lives.test_time_does_not_go_behind_what_was_stored_when_it_is_opened_again),
    (
        pages_that_forget_those_of_the_same_moment,
        lambda place: test_reads.test_workflows_of_a_state_are_found_in_the_order_they_came_there(place, 1),
    ),
]


@pytest.mark.parametrize(("sabotage", "test"), SABOTAGES, ids=[sabotage.__name__ for sabotage, _ in SABOTAGES])
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_sabotage_is_caught(
    place: Place, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, test: Callable[[Place], None]
) -> None:
    """G1, G2, G3, B5, B8, G8: what the same test says of a sound store is green in its own module."""
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, InternalError)):
        test(place)
