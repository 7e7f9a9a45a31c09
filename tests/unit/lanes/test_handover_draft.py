"""A draft is opened by its mover, and by whoever has seen that it is the truth; by nobody else."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from interlock.backup.lane_copies import copy_lane
from interlock.clock import SystemClock
from interlock.errors import MovedElsewhere, TargetNotFound, UnavailableError
from interlock.lanes.handover import Arrived, Draft, Tombstone, admit, draft_of, left_for, write_tombstone
from interlock.lanes.lane_doctor import examine
from interlock.lanes.objectlog.bucket_protocol import silent
from interlock.lanes.sqlite_connection import open_beside, open_writer
from interlock.lanes.writer import Session, Work
from tests.unit.lanes.lanes import count, group, increment, make_counter, opened, run
from tests.unit.lanes.movers import THERE, leave, leaving

SOURCE = "postgresql://clerk:hidden@there/stock"
DRAFT = Draft(4, SOURCE)


def made(path: Path) -> None:
    """A draft with a counter in it."""
    with opened(path, permission=DRAFT) as lane:
        asyncio.run(make_counter(lane))


def test_a_draft_is_refused_until_its_mover_ends_it(tmp_path: Path) -> None:
    def end(session: Session) -> None:
        session.own(lambda run: run("DROP TABLE interlock_arriving"))

    made(tmp_path / "x")
    with pytest.raises(UnavailableError, match=r"is arriving: move 4 from") as caught, opened(tmp_path / "x"):
        pass
    assert caught.value.retry == "later"
    assert "hidden" not in str(caught.value)
    with opened(tmp_path / "x", permission=DRAFT) as lane:  # As a mover that begins again.
        asyncio.run(group(lane, increment(), Work(end)))
    with opened(tmp_path / "x") as lane:
        assert asyncio.run(count(lane)) == 1


def test_who_has_seen_the_tombstone_may_open_it_and_then_everybody(tmp_path: Path) -> None:
    made(tmp_path / "x")
    for other in (Arrived(3), Arrived(5), Draft(4, "elsewhere"), Draft(5, SOURCE)):
        with pytest.raises(UnavailableError, match="is arriving"), opened(tmp_path / "x", permission=other):
            pass
    with opened(tmp_path / "x", permission=Arrived(4)) as lane:
        assert asyncio.run(count(lane)) == 0
    for permission in (None, Arrived(4), Arrived(9)):
        with opened(tmp_path / "x", permission=permission) as lane:
            assert asyncio.run(count(lane)) == 0


def test_a_move_fills_nothing_but_its_own_draft(tmp_path: Path) -> None:
    with opened(tmp_path / "x") as lane:
        asyncio.run(make_counter(lane))
    with pytest.raises(UnavailableError, match="is a database already"), opened(tmp_path / "x", permission=DRAFT):
        pass
    leave(tmp_path / "x")
    for permission in (None, Draft(1, SOURCE), Arrived(1)):
        with pytest.raises(MovedElsewhere), opened(tmp_path / "x", permission=permission):
            pass
    with opened(tmp_path / "x", permission=DRAFT):  # A later move comes back to what was left.
        pass
    with pytest.raises(UnavailableError, match=r"is arriving: move 4 from"), opened(tmp_path / "x"):
        pass


def test_the_mark_is_there_from_the_first_instant(tmp_path: Path) -> None:
    with opened(tmp_path / "x", permission=DRAFT):
        pass
    connection = open_beside(tmp_path / "x")
    assert draft_of(connection) == DRAFT
    connection.close()


def test_a_lane_leaves_by_its_own_last_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            await lane.leave(Tombstone(THERE, 2, 1_000_000))
            with pytest.raises(MovedElsewhere) as caught:
                await lane.run(increment())
            assert (caught.value.url, caught.value.epoch) == (THERE, 2)

    run(main)


def test_the_doctor_and_a_backup_know_where_everything_lives(tmp_path: Path) -> None:
    def look(name: str) -> dict[str, str]:
        report = examine(tmp_path / name, clock=SystemClock(), prepare=lambda _connection, _now: None)
        return {finding.code: finding.what for finding in report.findings}

    def copy(name: str) -> Path:
        path = tmp_path / f"{name}-copy"
        copy_lane(tmp_path / name, path, force=False, watch=silent)
        return path

    made(tmp_path / "draft")
    assert "move 4 from postgresql://***@there/stock" in look("draft")["arriving"]
    with pytest.raises(UnavailableError, match="is arriving"):
        copy("draft")
    with opened(tmp_path / "x") as lane:
        asyncio.run(make_counter(lane))
    with leaving(tmp_path / "x") as mover:
        mover.watch({"counter": ["id"]})
    assert "a move is under way" in look("x")["leaving"]
    with opened(copy("x")), leaving(tmp_path / "x-copy") as copied:
        names = {str(name) for (name,) in copied.connection.execute("SELECT name FROM sqlite_schema")}
    assert "counter" in names
    assert not {name for name in names if "watch" in name or "touched" in name}, "nobody moves the copy"
    leave(tmp_path / "x")
    assert "everything lives at postgresql://***@there/stock now" in look("x")["moved"]
    (tmp_path / "x-copy").unlink()
    with pytest.raises(MovedElsewhere):
        copy("x")
    with pytest.raises(TargetNotFound):
        copy("nothing")


@pytest.mark.parametrize("mark", ["interlock_arriving", "interlock_moved"])
def test_a_mark_that_goes_while_it_is_looked_at_is_seen_whole(tmp_path: Path, mark: str) -> None:
    """Another process lets the draft arrive between the look at the schema and the read of the mark."""
    path = tmp_path / "x.lane"
    with contextlib.closing(open_writer(path)) as writer, contextlib.closing(open_beside(path)) as reader:
        admit(writer, DRAFT, path)
        write_tombstone(writer.cursor().execute, Tombstone("lanes:///there", 3, 0))

        def arrive(_cursor: object, sql: str, _values: object) -> bool:
            if f"FROM {mark}" in sql:
                reader.exec_trace = None
                admit(writer, Arrived(DRAFT.epoch), path)
            return True

        reader.exec_trace = arrive
        assert left_for(reader, None) == Tombstone("lanes:///there", 3, 0)
        assert draft_of(reader) is None
        assert left_for(reader, None) is None
