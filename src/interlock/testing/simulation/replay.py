"""An independent reader of the log: it shares no code with the lane, so that an error must be in both to stay hidden.

The layout is implemented again, from the reference of the format. A replay gives the pages after each object, and the
clients' tables in them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import apsw
import zstandard

_ENTRY = struct.Struct(">6sHB3xI16sQQ32s16sqIII")
_PART = struct.Struct(">6sH4xI16sQQ32s16sIIIII")
_DIGEST = 32
_FENCE = 2


class BrokenLog(Exception):
    """The log is broken: the key of the slot, and the reason."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key


class Slot(NamedTuple):
    """One decoded object of the log."""

    seq: int
    epoch: int
    fence: bool
    previous: bytes
    digest: bytes
    page_bytes: int
    time_us: int
    pages_in_all: int
    pages: list[tuple[int, bytes]]


class Seen(NamedTuple):
    """The clients' tables: the counter, the rows in order, and the number of rows that must not exist."""

    number: int
    rows: list[tuple[int, str]]
    junk: int


def key_of(seq: int) -> str:
    """The key of a slot."""
    return f"log/{seq:020d}"


def read_slot(data: bytes, key: str) -> Slot:
    """Decode an object of the log. Raises BrokenLog."""
    if len(data) < _ENTRY.size + _DIGEST:
        raise BrokenLog(key, "too short")
    fields = _ENTRY.unpack_from(data)
    magic, _, kind, page_bytes, _, epoch, seq, previous, _, time_us, count, in_all, body_bytes = fields
    digest, body = data[_ENTRY.size : _ENTRY.size + _DIGEST], data[_ENTRY.size + _DIGEST :]
    if magic != b"ILKLOG" or len(body) != body_bytes or _hash(data[: _ENTRY.size], body) != digest:
        raise BrokenLog(key, "its checksum is wrong")
    pages: list[tuple[int, bytes]] = []
    if count:
        raw = zstandard.ZstdDecompressor().decompress(body, max_output_size=count * (4 + page_bytes))
        numbers = struct.unpack_from(f">{count}I", raw)
        at = 4 * count
        pages = [(number, raw[at + n * page_bytes : at + (n + 1) * page_bytes]) for n, number in enumerate(numbers)]
    return Slot(seq, epoch, kind == _FENCE, previous, digest, page_bytes, time_us, in_all, pages)


class Image:
    """The pages of a database at one place of the log."""

    def __init__(self, seq: int = 0, digest: bytes = bytes(_DIGEST), data: bytes = b"") -> None:
        self.seq = seq
        self.digest = digest
        self.epoch = self.time_us = 0
        self.data = bytearray(data)

    def follow(self, slot: Slot, key: str) -> None:
        """Apply the next object. Raises BrokenLog when it does not follow (G1)."""
        if slot.seq != self.seq + 1:
            raise BrokenLog(key, f"it is number {slot.seq}, not {self.seq + 1}")
        if slot.previous != self.digest:
            raise BrokenLog(key, "the chain of hashes is broken")
        if slot.epoch < self.epoch:
            raise BrokenLog(key, f"its epoch {slot.epoch} is lower than {self.epoch}")
        if slot.time_us < self.time_us:
            raise BrokenLog(key, "G8: the lane's time goes back")
        if slot.fence and slot.epoch == self.epoch:
            raise BrokenLog(key, f"a second fence of epoch {slot.epoch}: every open takes a new one")
        self.seq, self.digest, self.epoch, self.time_us = slot.seq, slot.digest, slot.epoch, slot.time_us
        if not slot.pages:
            return
        size = slot.pages_in_all * slot.page_bytes
        if len(self.data) < size:
            self.data.extend(bytes(size - len(self.data)))
        for number, page in slot.pages:
            self.data[(number - 1) * slot.page_bytes : number * slot.page_bytes] = page
        del self.data[size:]


def manifest_of(objects: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest, as plain JSON."""
    return cast("dict[str, Any]", json.loads(objects["manifest"]))


def recover(objects: Mapping[str, bytes], snapshot: dict[str, Any] | None) -> Image:
    """Rebuild the image from a snapshot (None: from the first slot) and the log. Raises BrokenLog."""
    image = Image() if snapshot is None else _load(objects, snapshot)
    while (data := objects.get(key := key_of(image.seq + 1))) is not None:
        image.follow(read_slot(data, key), key)
    return image


def _load(objects: Mapping[str, bytes], snapshot: dict[str, Any]) -> Image:
    data = bytearray()
    for number in range(snapshot["parts"]):
        key = f"snapshot/{snapshot['seq']:020d}-{snapshot['nonce']}/{number:06d}"
        stored = objects.get(key)
        if stored is None:
            raise BrokenLog(key, "a part of a snapshot that the manifest names is missing")
        body = stored[_PART.size + _DIGEST :]
        if _hash(stored[: _PART.size], body) != stored[_PART.size : _PART.size + _DIGEST]:
            raise BrokenLog(key, "its checksum is wrong")
        *_, page_bytes, _, _, _, _, _, _, _, first, count, _ = _PART.unpack_from(stored)
        if (first - 1) * page_bytes != len(data):
            raise BrokenLog(key, "it does not begin where the part before it ended")
        data += zstandard.ZstdDecompressor().decompress(body, max_output_size=count * page_bytes)
    return Image(snapshot["seq"], bytes.fromhex(snapshot["hash"]), bytes(data))


def look(data: bytearray, *, whole: bool = False) -> Seen:
    """Read the clients' tables. Raises BrokenLog when SQLite finds the database broken."""
    if not data:
        return Seen(0, [], 0)
    plain = bytearray(data)
    plain[18:20] = b"\x01\x01"  # A database in memory has no write-ahead log.
    connection = apsw.Connection(":memory:")
    try:
        connection.deserialize("main", bytes(plain))
        if whole and (result := connection.execute("PRAGMA integrity_check").get) != "ok":
            raise BrokenLog("the database", f"integrity_check: {result}")
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'counter'").get:
            return Seen(0, [], 0)
        number = cast("int", connection.execute("SELECT n FROM counter").get or 0)
        if not whole:
            return Seen(number, [], 0)
        rows = cast(
            "list[tuple[int, str]]", connection.execute("SELECT number, id FROM entries ORDER BY number").fetchall()
        )
        return Seen(number, rows, cast("int", connection.execute("SELECT count(*) FROM junk").get))
    except apsw.Error as error:
        raise BrokenLog("the database", f"SQLite cannot read it: {error}") from error
    finally:
        connection.close()


def _hash(*pieces: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
