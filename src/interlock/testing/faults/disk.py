"""A disk under SQLite that can lose power, tear writes, refuse to sync and run full.

kill -9 does not lose data that was written but not synced: the kernel still has it. A test of durability has to remove
what a power cut removes. This layer passes everything through to the real file, and also keeps the *durable* content:
that of the last sync. `power_cut` writes a copy of the files as a disk would have them afterwards: the durable content,
plus any part of the writes since, torn or whole, in any combination.

The odd choice is a copy instead of a crash in place: SQLite keeps the state of a file per process, so a database that
"lost power" could not be opened again in the same one.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from interlock.clock import Chance

SECTOR_BYTES = 512


class _Content:
    """One file: its durable content, and the writes since the last sync."""

    def __init__(self, durable: bytes) -> None:
        self.durable = bytearray(durable)
        self.since: list[tuple[int, bytes | None]] = []
        self.size = len(durable)

    def write(self, offset: int, data: bytes) -> None:
        self.since.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def truncate(self, size: int) -> None:
        self.since.append((size, None))
        self.size = min(self.size, size)

    def sync(self) -> None:
        for offset, data in self.since:
            _apply(self.durable, offset, data)
        self.since.clear()

    def after_power_cut(self, chance: Chance) -> bytes:
        content = bytearray(self.durable)
        for offset, data in self.since:
            if chance.fraction() < 0.5:  # noqa: PLR2004 -- a coin: the write reached the disk, or it did not.
                continue
            if data is None:
                _apply(content, offset, None)
                continue
            sectors = max(1, len(data) // SECTOR_BYTES)
            torn = int(chance.fraction() * (sectors + 1)) * SECTOR_BYTES
            _apply(content, offset, data if chance.fraction() < 0.5 else data[:torn])  # noqa: PLR2004 -- whole or torn.
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class FaultyDisk(apsw.VFS):
    """A VFS for one test. Give its `name` as `vfs` when a lane is opened."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "", maxpathname=0)
        self.name = name
        self.syncs = 0
        self.fails_sync: Callable[[int], bool] = lambda _number: False
        """Called with the number of each sync, from 1: True makes it fail."""
        self.bytes_max: int | None = None
        """The total size of the files at which the disk is full."""
        self.is_full: Callable[[str], bool] = lambda _path: False
        """Called with the path of each write: True makes the disk full for it."""
        self._contents: dict[str, _Content] = {}
        self._lock = threading.Lock()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name.
        """SQLite opens a file."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _FaultyFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 -- SQLite's signature.
        """SQLite deletes a file."""
        with self._lock:
            self._contents.pop(filename, None)
        super().xDelete(filename, syncdir)

    def content(self, path: str) -> _Content:
        """Return the content of a file; it starts with what is on the disk."""
        with self._lock:
            if path not in self._contents:
                real = Path(path)
                self._contents[path] = _Content(real.read_bytes() if real.exists() else b"")
            return self._contents[path]

    def bytes_used(self) -> int:
        """Return the total size of the files."""
        with self._lock:
            return sum(content.size for content in self._contents.values())

    def make_room(self, path: str, content: _Content, size: int) -> None:
        """Check that a file may grow to this size. Raises FullError when the disk is full."""
        grows = max(0, size - content.size)
        if self.is_full(path) or (grows and self.bytes_max is not None and self.bytes_used() + grows > self.bytes_max):
            raise apsw.FullError("the faulty disk is full")

    def power_cut(self, folder: Path, chance: Chance) -> list[Path]:
        """Write the files, as a power cut at this instant would leave them, into another folder."""
        with self._lock:
            found = {path: content.after_power_cut(chance) for path, content in self._contents.items()}
        folder.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for path, data in found.items():
            target = folder / Path(path).name
            target.write_bytes(data)
            written.append(target)
        return written

    def close(self) -> None:
        """Unregister the VFS."""
        self.unregister()


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, disk: FaultyDisk, path: str | None, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._path = path or ""
        self._content = disk.content(path) if path else None

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name.
        if self._content is not None:
            self._disk.make_room(self._path, self._content, offset + len(data))
            self._content.write(offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- SQLite's name.
        if self._content is not None:
            self._content.truncate(newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- SQLite's name.
        disk = self._disk
        disk.syncs += 1
        if disk.fails_sync(disk.syncs):
            raise apsw.IOError(f"[Errno {errno.EIO}] the faulty disk refuses to sync")
        super().xSync(flags)
        if self._content is not None:
            self._content.sync()
