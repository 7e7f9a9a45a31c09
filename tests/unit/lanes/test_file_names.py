"""One owner, whatever the file is called, and a lane whose lock or log is taken away stops before it loses anything."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.errors import LaneOwned, UnavailableError
from interlock.lanes import file as lane_file
from interlock.lanes.file import Ownership, lock_path, owner_of
from interlock.lanes.lane import Lane
from interlock.testing.faults import Processes
from tests.unit.lanes.lanes import SetClock, count, increment, make_counter, opened, rested, run
from tests.unit.lanes.test_idle import open_files

READ = "SELECT n FROM counter WHERE id = 1"


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_symbolic_link_is_no_second_lane(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(real)

    async def scenario() -> None:
        for first, second in ((real, link), (link, real)):
            with opened(first) as lane:
                if first is real:
                    await make_counter(lane)
                with pytest.raises(LaneOwned, match="this very process"), opened(second):
                    pass
                told = owner_of(second)
                assert told is not None
                assert told["pid"] == os.getpid()
                assert await lane.run(increment()) == 1
                assert lane.stats().log_bytes > 0
        with opened(link) as lane:
            assert await count(lane) == 2

    run(scenario)
    assert lock_path(link) == lock_path(real)
    assert [each.name for each in link.parent.iterdir()] == ["link"]


def test_another_process_is_kept_out_by_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Processes() as processes:
        owner = processes.start("tests.unit.lanes.owner:own", str(tmp_path / "real"))
        assert list(owner.lines(1)) == ["owned"]
        with pytest.raises(LaneOwned, match=f"process {owner.number}"), opened(tmp_path / "link"):
            pass
        owner.kill()
        assert owner.end() == -9
        owner.close()


def test_a_file_with_two_names_is_refused_by_both(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            (tmp_path / "y").hardlink_to(tmp_path / "x")
            with pytest.raises(UnavailableError, match=r"has 2 names \(hard links\)") as caught, opened(tmp_path / "y"):
                pass
            assert "beside one name" in caught.value.why
            assert await lane.run(increment()) == 1, "who has it open goes on"
        for name in "xy":
            with pytest.raises(UnavailableError, match="hard links"), opened(tmp_path / name):
                pass
            assert owner_of(tmp_path / name) is None
        (tmp_path / "y").unlink()
        with opened(tmp_path / "x") as lane:
            assert await count(lane) == 1

    run(scenario)


# --- the lock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle_s", [0.0, 60.0], ids=["resting", "in use"])
def test_an_owner_whose_lock_file_was_removed_stops(tmp_path: Path, idle_s: float) -> None:
    async def scenario() -> None:
        path = tmp_path / "x"
        with opened(path, idle_s=idle_s) as lane:
            await make_counter(lane)
            if not idle_s:
                await rested(lane)
            lock_path(path).unlink()
            with opened(path) as second:
                assert await second.run(increment()) == 1
                for expected in ("lock file", "has stopped"):
                    with pytest.raises(UnavailableError, match=expected):
                        await lane.run(increment())
                assert lane.state == "dead"
                assert await second.run(increment()) == 1
                assert await count(second) == 2, "only one of the two has written"
            told = lock_path(path).read_bytes()
        assert lock_path(path).read_bytes() == told == b"", "it leaves the lock of the other alone"

    run(scenario)


def test_a_lock_file_that_vanishes_while_it_is_taken_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    vanishes = 3

    def locked(descriptor: int, how: int) -> None:
        nonlocal vanishes
        flock(descriptor, how)
        if vanishes:
            vanishes -= 1
            lock_path(tmp_path / "x").unlink()

    monkeypatch.setattr(fcntl, "flock", locked)
    ownership = Ownership.take(tmp_path / "x", SetClock())
    ownership.refuse_if_lost()
    with pytest.raises(LaneOwned):
        Ownership.take(tmp_path / "x", SetClock())
    ownership.release()
    with pytest.raises(UnavailableError):
        ownership.refuse_if_lost()
    vanishes = lane_file.TAKES_MAX
    with pytest.raises(UnavailableError, match="was removed"):
        Ownership.take(tmp_path / "x", SetClock())
    assert open_files(tmp_path) == []


# --- the log ---------------------------------------------------------------------------------------------------------


def removed(log: Path) -> None:
    log.unlink()


def renamed(log: Path) -> None:
    log.rename(log.with_name("away"))


def replaced(log: Path) -> None:
    log.with_name("other").write_bytes(log.read_bytes())
    log.with_name("other").replace(log)


async def read(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute(READ).get)


@pytest.mark.parametrize("harm", [removed, renamed, replaced])
@pytest.mark.parametrize("readers", [0, 1])
def test_a_lane_whose_log_was_taken_away_saves_what_it_acknowledged_and_stops(
    tmp_path: Path, harm: Callable[[Path], None], readers: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "x"
        with opened(path, idle_s=60.0) as lane:
            await make_counter(lane)
            if readers:
                assert await read(lane) == 0
            assert await lane.run(increment()) == 1
            harm(log_of(path))
            with pytest.raises(UnavailableError, match="removed or replaced") as caught:
                await lane.run(increment())
            assert "was saved" in caught.value.why
            assert "did not happen" in caught.value.fix
            # Power fails now: nothing but the database file is left.
            (tmp_path / "after").write_bytes(path.read_bytes())
            with pytest.raises(UnavailableError, match="has stopped"):
                await lane.run(increment())
        for each in (tmp_path / "after", path):
            with opened(each) as lane:
                assert await count(lane) == 1

    run(scenario)


def test_a_log_that_could_not_be_saved_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            assert lane._writer is not None
            lane._writer.connection.close()  # Nothing can be folded.
            log_of(tmp_path / "x").unlink(missing_ok=True)
            with pytest.raises(UnavailableError, match="removed or replaced") as caught:
                await lane.run(increment())
            assert "could NOT be saved" in caught.value.why
            assert "may be missing" in caught.value.fix

    run(scenario)


def test_a_log_that_sqlite_itself_removes_is_not_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            for _ in range(5):
                await rested(lane)
                assert not log_of(tmp_path / "x").exists()
                assert await lane.run(increment()) == 1
            assert await count(lane) == 5

    run(scenario)
