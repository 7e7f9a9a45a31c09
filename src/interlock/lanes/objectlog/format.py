"""The bytes of the object log: groups, fences and parts of snapshots. `docs/reference/object-log.md` has every offset.

Every object begins with a header of fixed size that says whose it is and where it belongs, and ends in a compressed
body of whole pages. The checksum covers everything but itself, the previous object's hash included, so the checksum of
an object is at the same time its hash: a chain from the first fence to the last group.

The version is part of the magic. A reader that meets another one refuses; it never guesses.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import Literal, NamedTuple

from interlock.errors import CorruptionError
from interlock.lanes.objectlog.bucket_protocol import missing_extra

try:
    import zstandard
except ModuleNotFoundError as error:
    raise missing_extra("zstandard") from error

VERSION = 1
MAGIC = b"ILKLOG"
SNAPSHOT_MAGIC = b"ILKSNP"

HASH_BYTES = 32
NO_HASH = bytes(HASH_BYTES)
"""The previous hash in the first object."""

COMPRESSION_LEVEL = 1
BODY_BYTES_MAX = 1 << 31
"""No body is larger than this when it is unpacked: a length that lies must not take all memory."""

_HEADER = struct.Struct(">6sHB3xI16sQQ32s16sqIII")
"""magic, version, kind, page size, database, epoch, seq, previous, nonce, time_us, pages here, pages in all, body."""

HEADER_BYTES = _HEADER.size + HASH_BYTES

_SNAPSHOT = struct.Struct(">6sH4xI16sQQ32s16sIIIII")
"""magic, version, page size, database, epoch, seq, hash, nonce, part, parts, first page, pages here, body."""

# To make one costs more than to pack a page with it. Each is used by one thread at a time, and never again after an
# error; there are no more of them than were in use simultaneously.
_compressors: list[zstandard.ZstdCompressor] = []
_decompressors: list[zstandard.ZstdDecompressor] = []

Kind = Literal["group", "fence"]
_KINDS: dict[Kind, int] = {"group": 1, "fence": 2}
_KIND_NAMES: dict[int, Kind] = {number: name for name, number in _KINDS.items()}

Page = tuple[int, bytes]
"""A page's number, from 1, and its bytes."""


class LogObject(NamedTuple):
    """One object of the log: a group of transactions, or the fence of a new owner."""

    kind: Kind
    database: bytes
    epoch: int
    seq: int
    previous: bytes
    nonce: bytes
    time_us: int
    page_bytes: int
    pages_in_all: int
    """How many pages the database has afterwards; 0 in a fence, which changes nothing."""
    pages: tuple[Page, ...]


class SnapshotPart(NamedTuple):
    """One part of a snapshot: consecutive pages of the database as it was at `seq`."""

    database: bytes
    epoch: int
    seq: int
    at_hash: bytes
    """The hash of the log's object at `seq`: replay goes on from there."""
    nonce: bytes
    part: int
    parts: int
    page_bytes: int
    first_page: int
    data: bytes


def log_key(seq: int) -> str:
    """Return the key of the log's object with that number: dense, and sorted by name."""
    return f"log/{seq:020d}"


def part_key(seq: int, nonce: bytes, part: int) -> str:
    """Return the key of a part of a snapshot. The nonce makes the name its writer's own."""
    return f"snapshot/{seq:020d}-{nonce.hex()}/{part:06d}"


def encode_entry(entry: LogObject) -> bytes:
    """Encode an object of the log."""
    numbers = struct.pack(f">{len(entry.pages)}I", *(number for number, _ in entry.pages))
    body = _packed([numbers, *(page for _, page in entry.pages)]) if entry.pages else b""
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        _KINDS[entry.kind],
        entry.page_bytes,
        entry.database,
        entry.epoch,
        entry.seq,
        entry.previous,
        entry.nonce,
        entry.time_us,
        len(entry.pages),
        entry.pages_in_all,
        len(body),
    )
    return header + _digest(header, body) + body


def decode_entry(data: bytes, key: str) -> LogObject:
    """Decode an object of the log. Raises CorruptionError, naming the key, when its bytes contradict themselves."""
    entry = decode_header(data, key)
    header, digest, body = data[: _HEADER.size], data[_HEADER.size : HEADER_BYTES], data[HEADER_BYTES:]
    *_, count, _, body_bytes = _HEADER.unpack(header)
    if len(body) != body_bytes or _digest(header, body) != digest:
        raise corrupt_error(key, "its checksum does not match its bytes")
    if not count:
        return entry
    raw = _unpacked(body, count * (4 + entry.page_bytes), key)
    numbers = struct.unpack_from(f">{count}I", raw)
    start, size = 4 * count, entry.page_bytes
    pages = tuple((number, raw[start + at * size : start + (at + 1) * size]) for at, number in enumerate(numbers))
    return entry._replace(pages=pages)


def decode_header(data: bytes, key: str) -> LogObject:
    """Decode the header of an object, without pages; check nothing but that it can be read."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        raise corrupt_error(key, "it is not an object of a lane's log")
    fields = _HEADER.unpack_from(data)
    _refuse_other_version(fields[1], key)
    _, _, kind, page_bytes, database, epoch, seq, previous, nonce, time_us, _, pages_in_all, _ = fields
    if kind not in _KIND_NAMES:
        raise corrupt_error(key, f"it is of an unknown kind, {kind}")
    return LogObject(_KIND_NAMES[kind], database, epoch, seq, previous, nonce, time_us, page_bytes, pages_in_all, ())


def hash_of(data: bytes) -> bytes:
    """Return the hash of a log's object, which is the checksum it carries."""
    return data[_HEADER.size : HEADER_BYTES]


def encode_part(part: SnapshotPart) -> bytes:
    """Encode one part of a snapshot."""
    body = _packed([part.data])
    header = _SNAPSHOT.pack(
        SNAPSHOT_MAGIC,
        VERSION,
        part.page_bytes,
        part.database,
        part.epoch,
        part.seq,
        part.at_hash,
        part.nonce,
        part.part,
        part.parts,
        part.first_page,
        len(part.data) // part.page_bytes,
        len(body),
    )
    return header + _digest(header, body) + body


def decode_part(data: bytes, key: str) -> SnapshotPart:
    """Decode one part of a snapshot. Raises CorruptionError, naming the key, when its bytes contradict themselves."""
    size = _SNAPSHOT.size
    if len(data) < size + HASH_BYTES or not data.startswith(SNAPSHOT_MAGIC):
        raise corrupt_error(key, "it is not a part of a lane's snapshot")
    header, digest, body = data[:size], data[size : size + HASH_BYTES], data[size + HASH_BYTES :]
    _, version, page_bytes, database, epoch, seq, at_hash, nonce, part, parts, first, count, body_bytes = (
        _SNAPSHOT.unpack(header)
    )
    _refuse_other_version(version, key)
    if len(body) != body_bytes or _digest(header, body) != digest:
        raise corrupt_error(key, "its checksum does not match its bytes")
    raw = _unpacked(body, count * page_bytes, key)
    return SnapshotPart(database, epoch, seq, at_hash, nonce, part, parts, page_bytes, first, raw)


def corrupt_error(key: str, why: str) -> CorruptionError:
    """Return the error for an invalid object."""
    return CorruptionError(
        f"{key} cannot be used: {why}.",
        why="What is read from a bucket is checked before it is believed.",
        fix="Run `interlock doctor URL`; `interlock restore URL --at SEQ FILE` gives back the state before it.",
    )


def _packed(pieces: Sequence[bytes]) -> bytes:
    try:
        compressor = _compressors.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)
    packed = compressor.compress(b"".join(pieces))
    _compressors.append(compressor)
    return packed


def _unpacked(body: bytes, size: int, key: str) -> bytes:
    if not 0 < size <= BODY_BYTES_MAX:
        raise corrupt_error(key, f"it claims to hold {size:,} bytes")
    try:
        decompressor = _decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    try:
        raw = decompressor.decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise corrupt_error(key, f"its body cannot be unpacked ({error})") from error
    _decompressors.append(decompressor)
    if len(raw) != size:
        raise corrupt_error(key, f"its body has {len(raw):,} bytes instead of {size:,}")
    return raw


def _digest(*pieces: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _refuse_other_version(version: int, key: str) -> None:
    if version != VERSION:
        raise CorruptionError(
            f"{key} is of format version {version}; this Interlock reads version {VERSION}.",
            why="Bytes of another version may mean something else.",
            fix="Open the database with the version of Interlock that wrote it, or a newer one.",
        )
