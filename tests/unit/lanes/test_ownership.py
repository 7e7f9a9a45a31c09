"""One writer per lane: the second one is told who the first is, and a dead owner owns nothing."""

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.errors import CorruptionError, LaneOwned, UnavailableError
from interlock.lanes.file import Ownership, lock_path, owner_of
from interlock.lanes.lane import Lane
from interlock.testing.faults import Processes
from tests.unit.lanes.lanes import SetClock, count, make_counter, opened, rested, run
from tests.unit.lanes.test_idle import open_files


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def test_another_process_is_named_and_its_death_releases_the_lane(tmp_path: Path, processes: Processes) -> None:
    owner = processes.start("tests.unit.lanes.owner:own", str(tmp_path / "x"))
    assert list(owner.lines(1)) == ["owned"]
    with pytest.raises(LaneOwned) as caught, opened(tmp_path / "x"):
        pass
    assert f"process {owner.number} on host {socket.gethostname()}" in caught.value.what
    assert "this very process" not in caught.value.what
    assert "Stop that process" in caught.value.fix
    told = owner_of(tmp_path / "x")
    assert told is not None
    assert told["pid"] == owner.number
    owner.kill()
    assert owner.end() == -9
    owner.close()
    assert owner_of(tmp_path / "x") is None

    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            assert await count(lane) == 0

    run(scenario)


def test_the_same_process_is_told_so(tmp_path: Path) -> None:
    with opened(tmp_path / "x"):
        with pytest.raises(LaneOwned) as caught, opened(tmp_path / "x"):
            pass
        assert f"{os.getpid()} (this very process)" in caught.value.what
        assert "open already" in caught.value.fix
    with opened(tmp_path / "x"):
        pass


def test_a_lane_that_could_not_be_opened_is_not_owned(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"this is not a database, but long enough to be looked at" * 100)
    with pytest.raises(CorruptionError, match="not a database"), opened(tmp_path / "x"):
        pass
    assert owner_of(tmp_path / "x") is None


def test_an_owner_that_has_not_written_its_name_yet_is_unknown(tmp_path: Path) -> None:
    ownership = Ownership.take(tmp_path / "x", SetClock())
    for text in ("", "{", "[1]"):
        lock_path(tmp_path / "x").write_text(text)
        with pytest.raises(LaneOwned, match="process unknown on host unknown"):
            Ownership.take(tmp_path / "x", SetClock())
    ownership.release()
    ownership.release()
    assert owner_of(tmp_path / "x") is None
    assert owner_of(tmp_path / "never") is None


def test_the_folders_above_are_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "a" / "b" / "c" / "x") as lane:
            await make_counter(lane)

    run(scenario)
    assert (tmp_path / "a" / "b" / "c" / "x").exists()


def refuses(number: int) -> Callable[..., None]:
    def refuse(*_args: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_lock_that_the_system_cannot_give_is_not_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuses(errno.ENOLCK))
        with pytest.raises(UnavailableError, match="No locks available") as caught, opened(tmp_path / "x"):
            pass
    assert not isinstance(caught.value, LaneOwned)
    assert open_files(tmp_path) == []
    with opened(tmp_path / "x"):
        pass


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_lane_can_be_owned_and_given_up_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuses(errno.ENOSPC))
        with opened(tmp_path / "x"), pytest.raises(LaneOwned, match="process unknown"), opened(tmp_path / "x"):
            pass
        with opened(tmp_path / "x"):
            pass
    assert owner_of(tmp_path / "x") is None


@pytest.mark.parametrize("fails", ["readers", "writer"])
def test_whatever_fails_while_it_closes_the_lane_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def burn(*_args: object) -> None:
        raise RuntimeError("on fire")

    async def scenario() -> None:
        with opened(tmp_path / "x", idle_s=0.0) as lane:
            await make_counter(lane)
            await rested(lane)
            with monkeypatch.context() as patch:
                if fails == "readers":
                    patch.setattr(lane._readers, "close", burn)
                else:
                    patch.setattr(Lane, "_close_writer", burn)
                with pytest.raises(RuntimeError, match="on fire"):
                    lane.close()
            assert owner_of(tmp_path / "x") is None

    run(scenario)
