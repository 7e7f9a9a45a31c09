"""A lane whose file was taken away, replaced or damaged says so: it never goes on with an empty one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from interlock.errors import CorruptionError, UnavailableError
from interlock.lanes.lane import Lane
from tests.unit.lanes.lanes import count, increment, make_counter, opened, rested, run

READ = "SELECT n FROM counter WHERE id = 1"


async def read(lane: Lane) -> object:
    return await lane.read(lambda connection: connection.execute(READ).get)


def deleted(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def replaced_by_another_lane(path: Path) -> None:
    _another(path).replace(path)


def overwritten_by_another_lane(path: Path) -> None:
    shutil.copyfile(_another(path), path)


def replaced_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def _another(path: Path) -> Path:
    other = path.with_name("other")
    with opened(other) as lane:
        assert lane.state == "idle"
    return other


@pytest.mark.parametrize(
    "harm",
    [deleted, emptied, replaced_by_another_lane, overwritten_by_another_lane, replaced_by_a_copy],
)
def test_a_resting_lane_refuses_another_file(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    async def scenario() -> None:
        path = tmp_path / "x"
        with opened(path, idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            kept = path.read_bytes()
            number = path.stat().st_ino
            harm(path)
            there = path.read_bytes() if path.exists() else None
            for use in (read, lambda lane: lane.run(increment())):
                with pytest.raises(UnavailableError) as caught:
                    await use(lane)
                assert "the file of lane" in caught.value.what
                assert "did not happen" in caught.value.fix
            await rested(lane)
            assert (path.read_bytes() if path.exists() else None) == there, "nothing was made or changed"
            if path.exists() and path.stat().st_ino == number:
                path.write_bytes(kept)  # Put back: it goes on.
                assert await lane.run(increment()) == 1
                assert await read(lane) == 1

    run(scenario)


@pytest.mark.parametrize("harm", [deleted, replaced_by_another_lane])
def test_a_lane_in_use_refuses_another_file(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=60.0) as lane:
            await make_counter(lane)
            assert await read(lane) == 0
            harm(tmp_path / "x")
            with pytest.raises(UnavailableError, match="the file of lane"):
                await read(lane)
            with pytest.raises(UnavailableError, match="the file of lane"):
                await lane.run(increment())

    run(scenario)


def test_a_file_that_comes_back_is_used_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            (tmp_path / "x").rename(tmp_path / "away")
            with pytest.raises(UnavailableError, match="not there any more"):
                await lane.run(increment())
            (tmp_path / "away").rename(tmp_path / "x")
            assert await lane.run(increment()) == 1
            assert await count(lane) == 1

    run(scenario)


def test_a_file_that_became_garbage_is_damage_to_readers_and_writers(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            (tmp_path / "x").write_bytes(b"this is not a database, but long enough to be looked at" * 400)
            for _ in range(2):
                with pytest.raises(CorruptionError, match="not a database"):
                    await read(lane)
                with pytest.raises(CorruptionError, match="not a database"):
                    await lane.run(increment())

    run(scenario)


def test_a_page_that_became_garbage_is_damage(tmp_path: Path) -> None:
    """Found by a statement, long after the file was opened."""

    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            root = await lane.read(
                lambda connection: connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'counter'").get
            )
            assert isinstance(root, int)
            await rested(lane)
            content = bytearray((tmp_path / "x").read_bytes())
            content[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
            (tmp_path / "x").write_bytes(content)
            with pytest.raises(CorruptionError, match="malformed"):
                await read(lane)

    run(scenario)


def test_a_lane_keeps_its_identity(tmp_path: Path) -> None:
    def identity() -> object:
        with opened(tmp_path / "x"):
            pass
        connection = apsw.Connection(str(tmp_path / "x"))
        try:
            return connection.execute("SELECT lane FROM interlock_identity").get
        finally:
            connection.close()

    first = identity()
    assert len(str(first)) == 36
    assert identity() == first
