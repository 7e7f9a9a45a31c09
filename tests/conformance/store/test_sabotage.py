"""The suite can fail: a store that is broken in one place is caught by a test of it."""

from collections.abc import Callable, Sequence

import apsw
import msgspec
import pytest

from interlock.errors import InternalError
from interlock.lanes.writer import Session, Work
from interlock.store import lane
from interlock.store.lane import SqliteStore, event_columns
from interlock.store.records import Change, Cursor
from tests.conformance.store import test_commit, test_lives, test_reads
from tests.conformance.store.places import Place

Sabotage = Callable[[pytest.MonkeyPatch], None]


def history_in_another_transaction(patch: pytest.MonkeyPatch) -> None:
    commit = SqliteStore.commit

    def write(session: Session, changes: Sequence[Change]) -> None:
        for change in changes:
            [(number,)] = session.query(lane.NUMBER, (change.row.id,))
            for each in change.history:
                session.execute(lane.INSERT_EVENT, event_columns(int(str(number)), each))  # type: ignore[arg-type]

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
    assert "revision = ? AND id" in lane.MOVE
    patch.setattr(lane, "MOVE", lane.MOVE.replace("AND revision = ? AND", "AND ? > 0 AND"))


def history_for_losers(patch: pytest.MonkeyPatch) -> None:
    moved = lane._moved

    def always(connection: apsw.Connection, cursor: apsw.Cursor, change: Change, number: int) -> bool:
        moved(connection, cursor, change, number)
        return True

    patch.setattr(lane, "_moved", always)


def no_look_at_the_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane, "USED", "SELECT 1 WHERE ? IS NULL AND ? IS NULL")


def a_start_that_replaces(patch: pytest.MonkeyPatch) -> None:
    start = lane.START.replace("INSERT", "INSERT OR REPLACE").partition(" ON CONFLICT")[0]
    patch.setattr(lane, "START", start)


def numbers_believed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane, "MOVE", lane.MOVE.replace("AND id = ?", "AND ? <> ''"))
    apply, started = lane.apply, lane._started

    def careless(
        connection: apsw.Connection, changes: Sequence[Change], numbers: dict[str, int], time_us: int
    ) -> lane.Applied:
        def believed(
            connection: apsw.Connection, cursor: apsw.Cursor, change: Change, learned: dict[str, int]
        ) -> int | None:
            number = started(connection, cursor, change, learned)
            numbers.update(learned)
            return number

        patch.setattr(lane, "_started", believed)
        return apply(connection, changes, numbers, time_us)

    patch.setattr(lane, "apply", careless)


def time_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane, "TIME", "SELECT ?")


def pages_that_forget_those_of_the_same_moment(patch: pytest.MonkeyPatch) -> None:
    find = lane._find_in_state

    def later(run: lane.Run, machine: str, state: str, begin: Cursor, limit: int) -> list[tuple[object, ...]]:
        return find(run, machine, state, begin._replace(number=2**60), limit)

    patch.setattr(lane, "_find_in_state", later)


SABOTAGES: list[tuple[Sabotage, Callable[[Place], None]]] = [
    (
        history_in_another_transaction,
        lambda place: test_commit.test_a_group_that_contradicts_history_leaves_nothing(place, "a version twice"),
    ),
    (no_look_at_the_revision, test_commit.test_a_change_upon_another_revision_is_lost_and_leaves_nothing),
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
