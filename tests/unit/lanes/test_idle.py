"""D4: an idle lane costs no thread and no open file but its lock, and thousands of them fit into one process."""

import contextlib
import errno
import resource
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from interlock.errors import UnavailableError
from interlock.lanes import sqlite_connection
from tests.unit.lanes.lanes import count, increment, make_counter, opened, run

DESCRIPTORS = Path("/proc/self/fd")
READ = "SELECT n FROM counter WHERE id = 1"


def open_files(folder: Path) -> list[str]:
    found: list[str] = []
    for descriptor in DESCRIPTORS.iterdir():
        with contextlib.suppress(FileNotFoundError):  # The one that was open to look.
            target = descriptor.readlink()
            if target.is_relative_to(folder):
                found.append(target.name)
    return sorted(found)


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: this is about files that are open, not about disks."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(descriptor.name) for descriptor in DESCRIPTORS.iterdir()) + 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_two_thousand_idle_databases_in_one_process(memory_folder: Path, few_descriptors: int) -> None:
    """More than the soft limit allows: it is raised when it is met."""

    async def scenario() -> None:
        before = threading.active_count()
        lanes = []
        try:
            for number in range(2_000):
                opening = opened(memory_folder / f"{number}", idle_s=0.0)
                lanes.append((opening, opening.__enter__()))
            assert len(open_files(memory_folder)) == 2_000
            assert threading.active_count() <= before + 1
            for _, lane in lanes[::400]:
                await make_counter(lane)
                await lane.run(increment())
                assert await count(lane) == 1
        finally:
            for opening, _ in lanes:
                opening.__exit__(None, None, None)

    run(scenario)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few_descriptors


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many"), apsw.CantOpenError("unable to open")])
def test_at_the_hard_limit_there_is_a_clear_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connection, "_limits", lambda: (77, 77))
    with pytest.raises(UnavailableError) as caught:
        sqlite_connection.with_room(lambda: raises(error))
    assert "77 open files" in caught.value.why
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("limits", "raised"),
    [((256, resource.RLIM_INFINITY), (512, resource.RLIM_INFINITY)), ((256, 4_096), (4_096, 4_096))],
    ids=["without a hard limit", "with one"],
)
def test_the_limit_is_raised_as_far_as_it_goes(
    limits: tuple[int, int], raised: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception | str] = [OSError(errno.EMFILE, "too many"), "opened"]
    asked: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(sqlite_connection, "_limits", lambda: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda what, to: asked.append((what, to)))
    assert sqlite_connection.with_room(lambda: gives(answers.pop(0))) == "opened"
    assert asked == [(resource.RLIMIT_NOFILE, raised)]


@pytest.mark.parametrize("limits", [(256, resource.RLIM_INFINITY), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)])
def test_a_limit_that_cannot_be_raised_is_a_clear_error(
    limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_limits: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(sqlite_connection, "_limits", lambda: limits)
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(UnavailableError, match="too many"):
        sqlite_connection.with_room(lambda: raises(OSError(errno.EMFILE, "too many")))


def test_another_failure_stays_what_it_is() -> None:
    with pytest.raises(PermissionError):
        sqlite_connection.with_room(lambda: raises(PermissionError(errno.EACCES, "no")))


def raises(error: Exception) -> None:
    raise error


def gives(answer: Exception | str) -> str:
    if isinstance(answer, Exception):
        raise answer
    return answer
