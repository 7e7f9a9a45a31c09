"""Nobody else writes, but a reader that closes or recovers the file holds it for a moment: the writer waits for it."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from interlock.lanes.sqlite_connection import open_writer


class StopsOnce(apsw.VFS):
    """Files on which the first write to the database, or the first read of the log, stops until it may go on."""

    def __init__(self, name: str, *, stops: str) -> None:
        super().__init__(name, "", maxpathname=0)
        self.name = name
        self.stops = stops
        self.reached, self.go = threading.Event(), threading.Event()

    def stop(self) -> None:
        self.reached.set()
        self.go.wait()

    def xOpen(self, name: object, flags: list[int]) -> "_File":  # noqa: N802 -- SQLite's name.
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, vfs: StopsOnce, name: object, flags: list[int]) -> None:
        super().__init__("", name, flags)  # type: ignore[arg-type]
        self._stop: Callable[[], None] = vfs.stop
        self._log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        self._on = vfs.stops

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name.
        if self._on == "fold" and not self._log:
            self._stop()
        super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 -- SQLite's name.
        if self._on == "recovery" and self._log:
            self._stop()
        return super().xRead(amount, offset)


class Sleeping(apsw.VFS):
    """Tells when SQLite sleeps, which is when it has met a lock and waits for it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "", maxpathname=0)
        self.name = name
        self.slept = threading.Event()

    def xSleep(self, microseconds: int) -> int:  # noqa: N802 -- SQLite's name.
        self.slept.set()
        return super().xSleep(microseconds)


@pytest.fixture
def sleeping() -> Iterator[Sleeping]:
    vfs = Sleeping("sleeping-busy")
    yield vfs
    vfs.unregister()


@pytest.mark.parametrize("holds", ["fold", "recovery"])
def test_the_writer_waits_for_a_reader_that_holds_the_file(tmp_path: Path, sleeping: Sleeping, holds: str) -> None:
    slow = StopsOnce(f"stops-{holds}", stops=holds)
    path = tmp_path / "x"
    first = open_writer(path)
    first.execute("CREATE TABLE t (n INTEGER)")
    if holds == "recovery":
        path = tmp_path / "crashed"  # With its log, and without anybody who knows what is in it.
        for suffix in ("", "-wal"):
            shutil.copy(f"{tmp_path / 'x'}{suffix}", f"{path}{suffix}")
    reader = apsw.Connection(str(path), vfs=slow.name)

    seen: list[object] = []

    def hold() -> None:
        if holds == "fold":
            reader.close()  # The last one out folds the log, and nobody may come in meanwhile.
        else:
            seen.append(reader.execute("SELECT count(*) FROM t").get)

    if holds == "fold":
        assert reader.execute("SELECT count(*) FROM t").get == 0
    first.close()
    holding = threading.Thread(target=hold)
    holding.start()
    slow.reached.wait()
    answers: list[object] = []

    def write() -> None:
        try:
            writer = open_writer(path, vfs=sleeping.name)
            writer.execute("INSERT INTO t VALUES (7)")
            answers.append(writer.execute("SELECT n FROM t").get)
            writer.close()
        except apsw.Error as error:
            answers.append(error)
        sleeping.slept.set()

    writing = threading.Thread(target=write)
    writing.start()
    sleeping.slept.wait()
    slow.go.set()
    writing.join()
    holding.join()
    reader.close()
    slow.unregister()
    assert answers == [7]
    if holds == "recovery":
        assert seen in ([0], [1]), "before the insert or behind it: they were let go together"
