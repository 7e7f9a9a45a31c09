"""The local file of a lane on a bucket: a cache of the log, whose changed pages are captured after every commit.

The file is never a source of truth: a file that ran ahead of the bucket (by a group that was committed here and never
became durable) would resurrect what was never acknowledged. A clean close leaves a mark with its position in the log.
The file is used again only with such a mark, and only if the log still has the same object at that position. Otherwise
it is discarded and made anew. For the same reason nothing here is ever synced; what a machine wrote before it was last
started may be lost in part, so a mark counts only until then.

Sections: the cache, the capture of changed pages, the checksum of SQLite's write-ahead log.
"""

import contextlib
import functools
import os
import struct
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock.errors import CorruptionError
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment, Watch, silent
from interlock.lanes.objectlog.format import LogObject, Page, hash_of, log_key
from interlock.lanes.objectlog.manifest import LaneSnapshot, Manifest, read_parts
from interlock.lanes.objectlog.slots import Position

# --- Cache -----------------------------------------------------------------------------------------------------------


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

    def identity(self, world: Environment) -> str:
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

    def load(self, bucket: Bucket, manifest: Manifest, snapshot: LaneSnapshot, watch: Watch = silent) -> Position:
        """Make the file from a snapshot."""
        with self.path.open("wb") as file:
            for part in read_parts(bucket, manifest.database, snapshot):
                file.seek((part.first_page - 1) * part.page_bytes)
                file.write(part.data)
                watch(f"loading the snapshot at {snapshot.seq}", part.part + 1, part.parts)
        return Position(snapshot.seq, bytes.fromhex(snapshot.hash), snapshot.time_us)

    def apply(self, entry: LogObject) -> None:
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


# --- Capture ---------------------------------------------------------------------------------------------------------
# The pages that a group changed are read from SQLite's write-ahead log. Pages and not changesets, because pages miss
# nothing: tables without a primary key, schema changes and `sqlite_sequence` are all in them. The file is read beside
# SQLite, which costs a copy; a layer under SQLite would cost half a millisecond per commit.
#
# The odd choice is where to stop. After a large transaction was rolled back, frames of it stand after the last commit
# with valid salts; reading until the salts change would bring its rows back to life. So reading ends at the frame count
# that SQLite's own hook gave at the commit. The checksum, which runs through every frame from the header on, must be
# right at each one: anything else is a bug or a broken disk, and the lane stops before it hands on a wrong page.

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_MAGIC = 0x377F0683 if sys.byteorder == "big" else 0x377F0682
"""The log is always this machine's own, so its checksum reads words in this machine's order."""


class Changed(NamedTuple):
    """The changes of a group: the last state of each page, in the order of their numbers, and the database's size."""

    pages: tuple[Page, ...]
    page_bytes: int
    pages_in_all: int


class _Position(NamedTuple):
    """How far the log has been read: which log it is, and the running checksum after the last frame."""

    salts: bytes
    frames: int
    sums: tuple[int, int]


class Capture:
    """Reads one lane's write-ahead log from commit to commit. Used by the lane's driver alone."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-wal")
        self._position: _Position | None = None
        self._next: _Position | None = None

    def read_changes(self, frames: int) -> Changed | None:
        """Return the pages of every frame since the last call, up to the commit's frame count; None without any.

        The position advances only with `advance`: what could not be handed on is read again.
        """
        if not frames:
            return None
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        # Safe although SQLite has it open: its locks are on the -shm file, and only closing that one would drop them.
        try:
            header = os.pread(descriptor, HEADER_BYTES, 0)
            start, page_bytes = self._start(header)
            if frames == start.frames:
                return None
            size = FRAME_HEADER_BYTES + page_bytes
            data = os.pread(descriptor, (frames - start.frames) * size, HEADER_BYTES + start.frames * size)
        finally:
            os.close(descriptor)
        changed, self._next = _read(data, frames, start, page_bytes)
        return changed

    def advance(self) -> None:
        """Advance the position: the result of `read_changes` has been handed on."""
        self._position = self._next

    def _start(self, header: bytes) -> tuple[_Position, int]:
        """Return where to continue: after the last frame taken, or at the start when SQLite has restarted its log."""
        if len(header) < HEADER_BYTES:
            raise _broken("its header is cut off")
        magic, _, page_bytes, _, _, _, sum_1, sum_2 = struct.unpack(">8I", header)
        if magic != _MAGIC:
            raise _broken(f"its magic is {magic:#x}")
        salts = header[16:24]
        if self._position is not None and self._position.salts == salts:
            return self._position, page_bytes
        sums = running_checksum((0, 0), header[:24])
        if sums != (sum_1, sum_2):
            raise _broken("the checksum of its header is wrong")
        return _Position(salts, 0, sums), page_bytes


def _read(data: bytes, frames: int, start: _Position, page_bytes: int) -> tuple[Changed, _Position]:
    size = FRAME_HEADER_BYTES + page_bytes
    if frames < start.frames or len(data) != (frames - start.frames) * size:
        raise _broken(f"it ends before frame {frames}")
    sums, latest, pages_in_all = start.sums, dict[int, bytes](), 0
    for at in range(0, len(data), size):
        number, pages_in_all, _, _, sum_1, sum_2 = struct.unpack_from(">6I", data, at)
        page = data[at + FRAME_HEADER_BYTES : at + size]
        if data[at + 8 : at + 16] != start.salts:
            raise _broken(f"frame {start.frames + at // size + 1} belongs to an older log")
        sums = running_checksum(running_checksum(sums, data[at : at + 8]), page)
        if sums != (sum_1, sum_2):
            raise _broken(f"the checksum of frame {start.frames + at // size + 1} is wrong")
        latest[number] = page
    if not pages_in_all:
        raise _broken(f"frame {frames} is not the last one of a commit")
    # A page after the end was cut off by a later commit among these.
    kept = tuple(sorted((number, page) for number, page in latest.items() if number <= pages_in_all))
    return Changed(kept, page_bytes, pages_in_all), _Position(start.salts, frames, sums)


def _broken(why: str) -> CorruptionError:
    return CorruptionError(
        f"the local write-ahead log cannot be handed on: {why}.",
        why="Only pages that are certainly the group's may reach the bucket.",
        fix="Open the database again: its local file is made anew from the bucket. If it happens again, test the disk.",
    )


# --- Checksum --------------------------------------------------------------------------------------------------------
# SQLite's checksum of its write-ahead log, fast enough for every page of every group. The rule is a loop over words:
# `first, second = second, first + second + word`, modulo 2**32. In Python that loop takes longer than everything else
# that is done with a page. But it is linear: a word counts by Fibonacci numbers that depend only on how many words
# follow it. So the first half of a page can be shifted onto the second half and added to it, all words simultaneously,
# then the first half of what is left, and so on. Python's large integers do that with one multiplication per half: a
# page is one number, made of lanes of 64 bits that hold 32.
#
# The loop is still here, for short inputs and as the reference for the fast way.

Sums = tuple[int, int]

FAST_BYTES_MIN = 512
"""The smallest page that SQLite has; all are powers of two."""

_WORD = 0xFFFF_FFFF


def running_checksum(sums: Sums, data: bytes) -> Sums:
    """Return the checksum continued over more bytes, whose words are in this machine's order."""
    count = len(data)
    if count < FAST_BYTES_MIN or count & (count - 1) or sys.byteorder == "big":
        return word_by_word(sums, data)
    return _by_halves(sums, data)


def word_by_word(sums: Sums, data: bytes) -> Sums:
    """Compute the checksum by SQLite's own rule."""
    first, second = sums
    for word in memoryview(data).cast("I"):
        first, second = second, (first + second + word) & _WORD
    return first, second


class _Halving(NamedTuple):
    """How the first half is shifted onto the second: over how many words, in lanes of how many bits in all."""

    bits: int
    mask: int
    """The 32 bits of each lane that count."""
    beyond: int
    """2**32 in each lane, so that a subtraction borrows nothing from the next one."""
    weights: tuple[int, int, int]
    """Three consecutive Fibonacci numbers, the middle one that of the words moved over."""


def _by_halves(sums: Sums, data: bytes) -> Sums:
    halvings = _halvings(len(data) // 8)
    mask = halvings[0].mask | halvings[0].mask << halvings[0].bits
    words = int.from_bytes(data, "little")
    # A lane begins with two words, (x, y): they count as `x` and `x + y`.
    first = words & mask
    second = (first + (words >> 32 & mask)) & mask
    for bits, mask, beyond, (before, middle, after) in halvings:
        front_first, front_second = first & mask, second & mask
        # (before · a + middle · b, middle · a + after · b), with three multiplications instead of four.
        one = before * front_first & mask
        two = middle * front_second & mask
        both = after * ((front_first + front_second) & mask) & mask
        first = (one + two + (first >> bits)) & mask
        second = (both + beyond - one + (second >> bits)) & mask
    before, middle, after = _weights(len(data) // 4)
    return (
        (before * sums[0] + middle * sums[1] + first) & _WORD,
        (middle * sums[0] + after * sums[1] + second) & _WORD,
    )


@functools.cache
def _halvings(lanes: int) -> tuple[_Halving, ...]:
    """Return the steps from `lanes` lanes to one; there are as many different ones as page sizes."""
    found: list[_Halving] = []
    while lanes > 1:
        words, lanes = lanes, lanes // 2
        ones = int.from_bytes(b"\x01\0\0\0\0\0\0\0" * lanes, "little")
        found.append(_Halving(64 * lanes, ones * _WORD, ones << 32, _weights(words)))
    return tuple(found)


@functools.cache
def _weights(words: int) -> tuple[int, int, int]:
    """Return the three Fibonacci numbers around index `words`, modulo 2**32."""
    before, middle = 1, 0
    for _ in range(words):
        before, middle = middle, (before + middle) & _WORD
    return before, middle, (before + middle) & _WORD
