"""D3: what is captured from SQLite's write-ahead log is what SQLite committed, page for page."""

import struct
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import CorruptionError
from interlock.lanes.objectlog.local_file import Capture

INSERT = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO t (b) SELECT hex(randomblob(300)) FROM n"""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 60)),
        st.tuples(st.just("delete"), st.integers(1, 60)),
        st.tuples(st.just("roll back"), st.integers(1, 60)),
        st.tuples(st.just("fold"), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("schema"), st.integers(0, 3)),
        st.tuples(st.just("nothing"), st.just(0)),
    ),
    min_size=1,
    max_size=25,
)


class Copied:
    """A database, and a second one made only of what was captured."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "x.lane"
        self.capture = Capture(self.path)
        self.image = bytearray()
        self.open()

    def open(self) -> None:
        self.connection = apsw.Connection(str(self.path))
        self.frames = 0
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0")
        self.connection.execute("PRAGMA cache_size = 5")
        self.connection.set_wal_hook(self._committed)
        self.connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY AUTOINCREMENT, b)")
        self.take()

    def take(self) -> None:
        changed = self.capture.read_changes(self.frames)
        self.frames = 0
        if changed is None:
            return
        self.capture.advance()
        size = changed.pages_in_all * changed.page_bytes
        self.image.extend(bytes(max(0, size - len(self.image))))
        for number, page in changed.pages:
            self.image[(number - 1) * changed.page_bytes : number * changed.page_bytes] = page
        del self.image[size:]

    def step(self, what: str, count: int) -> None:
        run = self.connection.execute
        if what == "insert":
            run(INSERT, (count,))
        elif what == "delete":
            run("DELETE FROM t WHERE a IN (SELECT a FROM t ORDER BY a LIMIT ?)", (count,))
        elif what == "roll back":
            # More than the cache holds, so that it spills: its frames stay in the file, behind the last commit.
            run("BEGIN")
            run("UPDATE t SET b = hex(randomblob(300))")
            run(INSERT, (count,))
            run("ROLLBACK")
        elif what == "fold":
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        elif what == "reopen":
            self.connection.close()
            self.open()
        elif what == "schema":
            run(f"CREATE TABLE IF NOT EXISTS extra_{count} (a UNIQUE)")
            run(f"INSERT INTO extra_{count} VALUES (NULL)")
        self.take()

    def contents(self, path: Path) -> list[object]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            tables = [
                str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]
            rows: list[object] = [connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables]
            assert connection.execute("PRAGMA integrity_check").get == "ok"
            return [tables, *rows]
        finally:
            connection.close()

    def _committed(self, _connection: apsw.Connection, _database: str, frames: int) -> int:
        self.frames = frames
        return apsw.SQLITE_OK


@pytest.mark.slow
@given(steps=STEPS)
@settings(deadline=None)
def test_the_copy_is_the_database(steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("capture")
    copied = Copied(folder)
    for what, count in steps:
        copied.step(what, count)
    (folder / "copy").write_bytes(copied.image)
    copied.connection.close()
    assert copied.contents(folder / "copy") == copied.contents(copied.path)


def test_frames_of_a_rolled_back_transaction_are_left_where_they_are(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    copied.step("insert", 60)
    before = bytes(copied.image)
    wal = copied.path.with_name("x.lane-wal")
    size = wal.stat().st_size
    copied.connection.execute("BEGIN; UPDATE t SET b = hex(randomblob(300))")
    copied.connection.execute("ROLLBACK")
    assert wal.stat().st_size > size, "nothing was spilled: this test shows nothing"
    assert copied.capture.read_changes(copied.frames) is None
    copied.step("insert", 1)
    (tmp_path / "copy").write_bytes(copied.image)
    assert bytes(copied.image) != before
    copied.connection.close()
    assert copied.contents(tmp_path / "copy") == copied.contents(copied.path)


def test_what_was_not_taken_is_read_again(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    copied.connection.execute("INSERT INTO t (b) VALUES ('x')")
    first = copied.capture.read_changes(copied.frames)
    assert first is not None
    assert copied.capture.read_changes(copied.frames) == first
    copied.capture.advance()
    assert copied.capture.read_changes(copied.frames) is None


def _spoil(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("at", "data", "why"),
    [
        (0, b"\x00", "magic"),
        (5, b"\x07", "checksum of its header"),
        (24, b"\x00\x00\x00\x00", "checksum of its header"),
        (32 + 8, b"\x00\x00\x00\x00", "older log"),
        (32 + 16, b"\x00\x00\x00\x00", "checksum of frame 1"),
        (32 + 24 + 100, b"\xff", "checksum of frame 1"),
    ],
)
def test_a_log_that_is_not_what_it_should_be_is_not_handed_on(tmp_path: Path, at: int, data: bytes, why: str) -> None:
    copied = Copied(tmp_path)
    copied.connection.execute("INSERT INTO t (b) VALUES ('x')")
    wal = copied.path.with_name("x.lane-wal")
    _spoil(wal, at, data)
    with pytest.raises(CorruptionError, match=why):
        Capture(copied.path).read_changes(copied.frames)


def test_a_count_beyond_the_log_is_refused(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    with pytest.raises(CorruptionError, match="ends before frame"):
        Capture(copied.path).read_changes(copied.frames + 1_000)


def test_a_count_inside_a_commit_is_refused(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    copied.connection.execute(INSERT, (60,))
    data = copied.path.with_name("x.lane-wal").read_bytes()
    page_bytes = struct.unpack_from(">I", data, 8)[0]
    commits = [
        number + 1
        for number in range((len(data) - 32) // (24 + page_bytes))
        if struct.unpack_from(">I", data, 32 + number * (24 + page_bytes) + 4)[0]
    ]
    inside = next(number for number in range(1, copied.frames) if number not in commits)
    with pytest.raises(CorruptionError, match="not the last one of a commit"):
        Capture(copied.path).read_changes(inside)


def test_a_log_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.lane"
    path.with_name("x.lane-wal").write_bytes(b"short")
    with pytest.raises(CorruptionError, match="cut off"):
        Capture(path).read_changes(1)
