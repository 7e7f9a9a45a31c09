"""A lane is left beside its owner: writers wait at the seal and see the tombstone; a death leaves nothing halfway."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from interlock.clock import SystemClock
from interlock.errors import InterlockError, LaneOwned, MovedElsewhere, OutcomeUnknown, TargetNotFound, UnavailableError
from interlock.lanes import transact
from interlock.lanes.handover import Leaving, Tombstone, tombstone_of
from interlock.lanes.lane import Lane
from interlock.lanes.sqlite_connection import open_beside
from interlock.lanes.writer import Session, Work
from tests.unit.lanes.lanes import SetClock, count, group, increment, make_counter, opened, rested, rows, run, sql
from tests.unit.lanes.movers import THERE, WAIT_S, leave, leaving, meeting

COUNTER = {"counter": ["id"]}
TRIGGER = "CREATE TRIGGER x AFTER UPDATE ON counter BEGIN DELETE FROM interlock_touched; END"


def seen(connection: apsw.Connection) -> object:
    return connection.execute("SELECT n FROM counter").get


async def refused(lane: Lane) -> list[MovedElsewhere]:
    """The answers of a lane that was left."""
    answers = await asyncio.gather(lane.run(increment()), lane.read(seen), return_exceptions=True)
    moved = [answer for answer in answers if isinstance(answer, MovedElsewhere)]
    assert len(moved) == len(answers), answers
    return moved


@pytest.mark.parametrize("rests", [False, True], ids=["at work", "at rest"])
def test_whoever_uses_the_old_place_is_told_the_new_one(tmp_path: Path, *, rests: bool) -> None:
    path = tmp_path / "x"

    async def main() -> None:
        with opened(path, idle_s=0.0 if rests else 60.0) as lane:
            await make_counter(lane)
            assert await lane.read(seen) == 0
            if rests:
                await rested(lane)
            leave(path, epoch=3)
            for error in await refused(lane) + await refused(lane):
                assert (error.url, error.epoch, error.retry) == (THERE, 3, "now")
                assert "hidden" not in str(error)
            assert lane.state == "dead"
        with pytest.raises(MovedElsewhere) as caught, opened(path):
            pass
        assert (caught.value.url, caught.value.epoch) == (THERE, 3)

    run(main)


def test_a_place_that_was_left_is_known_although_somebody_owns_it(tmp_path: Path) -> None:
    with opened(tmp_path / "x"):
        for error in (LaneOwned, MovedElsewhere):
            with pytest.raises(error) as caught, opened(tmp_path / "x"):
                pass
            assert type(caught.value) is error
            if error is LaneOwned:
                leave(tmp_path / "x")


def test_a_reader_alone_sees_the_tombstone_behind_its_read(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)

            def read(connection: apsw.Connection) -> object:
                value = seen(connection)
                leave(tmp_path / "x")
                return value

            assert await lane.read(read) == 0, "what it has read is of an instant before the tombstone"
            with pytest.raises(MovedElsewhere):
                await lane.read(seen)

    run(main)


def test_groups_wait_at_the_seal_and_reads_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            with meeting() as met, mover.sealed(WAIT_S):
                waiting = [asyncio.ensure_future(lane.run(increment())) for _ in range(3)]
                await asyncio.to_thread(met.wait)
                assert await lane.read(seen) == 0
                assert not any(each.done() for each in waiting)
            assert await asyncio.gather(*waiting) == [1, 1, 1]
            with meeting() as met, mover.sealed(WAIT_S) as seal:
                late = asyncio.ensure_future(lane.run(increment()))
                await asyncio.to_thread(met.wait)
                seal.leave(THERE, 1)
            with pytest.raises(MovedElsewhere):
                await late
        with leaving(tmp_path / "x") as mover:
            assert seen(mover.connection) == 3, "what was told that it moved has not happened here"

    run(main)


def test_past_the_bound_a_group_is_refused_and_the_lane_lives(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x", seal_wait_s=0.01) as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            with mover.sealed(WAIT_S):
                for _ in range(2):  # The second one on a connection that is opened while the lane is sealed.
                    with pytest.raises(UnavailableError, match="seal_wait_s") as caught:
                        await lane.run(increment())
                    assert caught.value.retry == "later"
            assert await lane.run(increment()) == 1
            assert lane.state != "dead"

    run(main)


def test_a_lane_is_opened_while_it_is_sealed(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
        with leaving(tmp_path / "x") as mover, meeting() as met:
            with mover.sealed(WAIT_S):
                block = opened(tmp_path / "x")
                lane = block.__enter__()
                assert await lane.read(seen) == 0
                waiting = asyncio.ensure_future(lane.run(increment()))
                await asyncio.to_thread(met.wait)
            assert await waiting == 1
            block.__exit__(None, None, None)

    run(main)


def test_the_watchdog_does_not_take_the_wait_for_a_function_that_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    watched = transact.run_watched

    def counted(limit_s: float, interrupt: Callable[[], None], function: Callable[[], object]) -> object:
        begun.append(limit_s)
        return watched(limit_s, interrupt, function)

    def function(session: Session) -> object:
        return session.execute("UPDATE counter SET n = n + 1")

    async def main() -> None:
        with opened(tmp_path / "x") as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            monkeypatch.setattr(transact, "run_watched", counted)
            with meeting() as met, mover.sealed(WAIT_S):
                waiting = asyncio.ensure_future(lane.run(Work(function, limit_s=60.0)))
                await asyncio.to_thread(met.wait)
                assert not begun, "its time begins when it does"
            assert await waiting == 1
            assert begun == [60.0]

    run(main)


def test_a_group_that_is_run_again_looks_again(tmp_path: Path) -> None:
    """Between the two runs of a group that vanished nobody holds the lock: the mover may leave just there."""

    async def main() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            path, left = tmp_path / "x", list[bool]()

            def vanish(session: Session) -> object:
                session.own(lambda run: run("ROLLBACK"))
                if not left:
                    leave(path)
                    left.append(True)
                raise ValueError("gone")

            answers = await group(lane, increment(), Work(vanish), increment())
            assert [type(answer) for answer in answers] == [MovedElsewhere] * 3
            with leaving(path) as mover:
                assert seen(mover.connection) == 0

    run(main)


def test_without_leave_nothing_has_happened(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            mover.watch(COUNTER)
            with contextlib.suppress(KeyError), mover.sealed(WAIT_S) as seal:
                seal.connection.execute("DELETE FROM counter")
                raise KeyError("verify")
            with mover.sealed(WAIT_S):
                pass
            assert await count(lane) == 0
            assert mover.tombstone() is None

    run(main)


def test_leaving_takes_the_triggers_and_the_notes_along(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with opened(path) as lane:
        asyncio.run(make_counter(lane))
    with leaving(path) as mover:
        mover.watch(COUNTER)
        assert mover.write(lambda connection: connection.execute("UPDATE counter SET n = 1").fetchall()) == []
        with mover.sealed(WAIT_S) as seal:
            assert seal.leave(THERE, 2) == seal.left
        found = {str(name) for (name,) in mover.connection.execute("SELECT name FROM sqlite_schema")}
        assert not {name for name in found if "watch" in name or "touched" in name}
        stone = mover.tombstone()
        assert stone is not None
        assert stone[:2] == (THERE, 2)
        for refuse in (lambda: mover.watch(COUNTER), mover.sealed(WAIT_S).__enter__):
            with pytest.raises(MovedElsewhere):
                refuse()
        assert mover.touched(0, 10) == []
        mover.forget(10)
        mover.unwatch()


def test_the_tombstone_has_the_movers_time(tmp_path: Path) -> None:
    with opened(tmp_path / "x"):
        pass
    seen_us: list[int] = []
    mover = Leaving(tmp_path / "x", clock=SetClock(5.0), prepare=lambda _connection, now_us: seen_us.append(now_us()))
    with mover.sealed(WAIT_S) as seal:
        assert seal.leave("memory:", 1) == Tombstone("memory:", 1, 5_000_000)
    assert tombstone_of(mover.connection) == Tombstone("memory:", 1, 5_000_000)
    mover.close()
    assert seen_us == [5_000_000]


def test_a_commit_that_fails_is_unknown(tmp_path: Path) -> None:
    with opened(tmp_path / "x"):
        pass
    with leaving(tmp_path / "x") as mover:
        mover.connection.set_commit_hook(lambda: True)
        with pytest.raises(OutcomeUnknown), mover.sealed(WAIT_S) as seal:
            seal.leave(THERE, 1)
        mover.connection.set_commit_hook(None)
        assert mover.tombstone() is None


def test_a_lock_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    with opened(tmp_path / "x"):
        pass
    with leaving(tmp_path / "x") as first, leaving(tmp_path / "x") as second, first.sealed(WAIT_S):
        late = second.sealed(0.01)
        with pytest.raises(UnavailableError, match=r"could not be locked for 0\.01 s"):
            late.__enter__()


def test_there_must_be_a_lane(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound), leaving(tmp_path / "x"):
        pass
    with opened(tmp_path / "x"):
        pass

    def burn(_connection: apsw.Connection, _now: object) -> None:
        raise apsw.SQLError("cannot")

    with pytest.raises(InterlockError):
        Leaving(tmp_path / "x", clock=SetClock(), prepare=burn)


def test_a_mover_never_folds_the_owners_log_and_its_commits_are_counted(tmp_path: Path) -> None:
    """The owner's count of its log is of all frames, whoever wrote them: it folds when it is time to."""

    async def main() -> None:
        with opened(tmp_path / "x", wal_bytes_max=200_000) as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            mover.watch(COUNTER)
            log, sizes = tmp_path / "x-wal", set[int]()
            before = (tmp_path / "x").read_bytes()
            while log.stat().st_size < 180_000:
                mover.write(lambda connection: connection.execute("UPDATE counter SET n = n + 1").fetchall())
            assert (tmp_path / "x").read_bytes() == before, "it is all in the log"
            for _ in range(40):
                await lane.run(increment())
                sizes.add(log.stat().st_size)
            assert (tmp_path / "x").read_bytes() != before, "the owner has folded it"
            assert len(sizes) < 30, "and writes it from the beginning again"
            mover.close()
            assert await lane.run(increment()) == 1
        assert not (tmp_path / "x-wal").exists()

    run(main)


def test_nobody_owns_the_lane_and_it_is_left_all_the_same(tmp_path: Path) -> None:
    with opened(tmp_path / "x") as lane:
        asyncio.run(make_counter(lane))
    leave(tmp_path / "x")
    assert not (tmp_path / "x-wal").exists(), "the last one out has folded it"
    with pytest.raises(MovedElsewhere), opened(tmp_path / "x"):
        pass


def test_statements_of_the_owner_are_prepared_anew_by_themselves(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            for change in (mover.unwatch, lambda: mover.watch(COUNTER)) * 3:
                assert await group(lane, increment(), increment(), rows("SELECT count(*) FROM counter")) == [
                    1,
                    1,
                    [(1,)],
                ]
                change()
            assert await lane.run(increment()) == 1
            assert [key for _, _, key in mover.touched(0, 10)] == [(1,)]
            version = mover.connection.execute("PRAGMA schema_version").get
            mover.watch(COUNTER)
            assert mover.connection.execute("PRAGMA schema_version").get == version, "asked again it changes nothing"

    run(main)


def test_users_cannot_touch_what_is_ours(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            mover.watch(COUNTER)
            await lane.run(increment())
            noted = mover.touched(0, 10)
            for statement in (
                "INSERT INTO interlock_touched (\"table\", key) VALUES ('counter', '[7]')",
                "DELETE FROM interlock_touched",
                "DROP TABLE interlock_touched",
                "DROP TRIGGER interlock_watch_insert_counter",
                "CREATE TRIGGER interlock_watch_x AFTER INSERT ON counter BEGIN DELETE FROM interlock_touched; END",
                f"{TRIGGER}; UPDATE counter SET n = 9",
                "CREATE VIEW interlock_watch_x AS SELECT * FROM interlock_keys",
                "CREATE INDEX interlock_x ON counter (n)",
                "CREATE TABLE interlock_moved (url, epoch, time_us)",
                "WITH interlock_watch_x AS (SELECT * FROM interlock_keys) SELECT * FROM interlock_watch_x",
            ):
                [answer] = await group(lane, sql(statement))
                assert "not allowed" in str(answer), statement
            assert mover.touched(0, 10) == noted
            assert await lane.run(sql("DROP TABLE counter")) is not None, "its triggers go with it"

    run(main)


def test_a_row_that_only_a_mover_counts_is_not_hot(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path / "x") as lane, leaving(tmp_path / "x") as mover:
            await make_counter(lane)
            mover.watch(COUNTER)
            for _ in range(20):
                await group(lane, increment(), increment())
            assert {row.table for row in lane.contention.worst(SystemClock().monotonic_s())} <= {"counter"}

    run(main)


def test_a_second_connection_like_a_movers_needs_the_file(tmp_path: Path) -> None:
    with pytest.raises(apsw.CantOpenError):
        open_beside(tmp_path / "x")
