"""The local file of a lane on a bucket: a cache, and nothing else.

It is never a source of truth: a file that ran ahead of the bucket (by a group that was committed here and never became
durable) would resurrect what was never acknowledged. A clean close leaves a mark with its position in the log. The file
is used again only with such a mark, and only if the log still has the same object at that position. Otherwise it is
discarded and made anew. For the same reason nothing here is ever synced; what a machine wrote before it was last
started may be lost in part, so a mark counts only until then.
"""

import contextlib
from pathlib import Path

import msgspec

from interlock.lanes.objectlog.append import Position
from interlock.lanes.objectlog.bucket import Bucket, World
from interlock.lanes.objectlog.format import Entry, hash_of, log_key
from interlock.lanes.objectlog.manifest import Manifest, Snapshot, Watch, read_parts, silent


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The mark that a clean close leaves beside the file."""

    database: str
    seq: int
    hash: str
    time_us: int
    bytes: int
    boot: str
    """The machine, since it was last started."""


class Cache:
    """The pages of one database on the local disk, while SQLite does not have them open."""

    def __init__(self, path: Path, boot: str = "") -> None:
        self.path = path
        self._boot = boot
        self._mark = path.with_name(path.name + ".clean")

    def identity(self, world: World) -> str:
        """Return the unique name of this file among all machines: random, made once, kept beside it.

        The machine is part of it: a folder copied to another machine holds the same file, but not the same lock.
        """
        path = self.path.with_name(self.path.name + ".id")
        known = ""
        with contextlib.suppress(OSError):
            known = path.read_text()
        if not known:
            known = world.ids.new().hex
            path.write_text(known)
        return f"{known} {self._boot or world.ids.new().hex}"

    def reuse(self, bucket: Bucket, manifest: Manifest) -> Position | None:
        """Return the file's position in the log if it may be used; otherwise discard it and return None."""
        position = self._checked(bucket, manifest)
        # From here on the file may run ahead of the bucket; the mark comes back with the next clean close.
        self._mark.unlink(missing_ok=True)
        if position is None:
            self.discard()
        return position

    def _checked(self, bucket: Bucket, manifest: Manifest) -> Position | None:
        try:
            mark = msgspec.json.decode(self._mark.read_bytes(), type=_Mark)
            size = self.path.stat().st_size
        except (OSError, msgspec.MsgspecError):
            return None
        if not mark.boot or mark.boot != self._boot:
            return None
        if self._beside("-wal").exists() or self._beside("-journal").exists():
            return None
        if mark.database != manifest.database or mark.bytes != size or mark.seq < manifest.floor:
            return None
        found = bucket.get(log_key(mark.seq))
        if found is None or hash_of(found.data).hex() != mark.hash:
            return None
        return Position(mark.seq, bytes.fromhex(mark.hash), mark.time_us)

    def discard(self) -> None:
        """Delete the file, with everything SQLite keeps beside it."""
        for suffix in ("", "-wal", "-shm", "-journal", ".clean"):
            self._beside(suffix).unlink(missing_ok=True)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def load(self, bucket: Bucket, manifest: Manifest, snapshot: Snapshot, watch: Watch = silent) -> Position:
        """Make the file from a snapshot."""
        with self.path.open("wb") as file:
            for part in read_parts(bucket, manifest.database, snapshot):
                file.seek((part.first_page - 1) * part.page_bytes)
                file.write(part.data)
                watch(f"loading the snapshot at {snapshot.seq}", part.part + 1, part.parts)
        return Position(snapshot.seq, bytes.fromhex(snapshot.hash), snapshot.time_us)

    def apply(self, entry: Entry) -> None:
        """Write the pages of one group into the file."""
        if not entry.pages:
            return
        with self.path.open("r+b" if self.path.exists() else "w+b") as file:
            for number, page in entry.pages:
                file.seek((number - 1) * entry.page_bytes)
                file.write(page)
            file.truncate(entry.pages_in_all * entry.page_bytes)

    def page_one(self) -> bytes:
        """Return the first page as the log has it; empty for a database that is new."""
        try:
            with self.path.open("rb") as file:
                head = file.read(100)
                size = int.from_bytes(head[16:18])
                return head + file.read((65_536 if size == 1 else size) - len(head))
        except FileNotFoundError:
            return b""

    def keep(self, manifest: Manifest, position: Position) -> None:
        """Leave the mark: SQLite has closed the file, and everything in it is in the log."""
        if self._beside("-wal").exists():
            return  # SQLite could not fold its log; without it the file is not whole.
        with contextlib.suppress(OSError):
            mark = _Mark(
                database=manifest.database,
                seq=position.seq,
                hash=position.hash.hex(),
                time_us=position.time_us,
                bytes=self.path.stat().st_size,
                boot=self._boot,
            )
            self._mark.write_bytes(msgspec.json.encode(mark))
