"""Digest of a set of rows that depends neither on their order nor on the engine.

Each row has a number of 128 bits, made of its stored form; the digest of a set of rows is the sum of their numbers. So
a row that is lost, doubled or changed changes it, values that were swapped between two rows change it, and it can be
kept up to date: subtract the row as it was, add the row as it is. The numbers are a cryptographic hash's, because with
plain checksums two changes cancel each other out too easily.

The stored form is the same wherever the row lives (`values`), so it needs no further normalising. Its writing tells
types apart: 1, 1.0, "1" and b"1" have four digests.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from interlock.database.moving.values import StoredRow

BITS: Final = 128
_MODULUS: Final = 1 << BITS
_BYTES: Final = BITS // 8


class Digest:
    """Running digest of some rows, with their number."""

    __slots__ = ("rows", "total")

    def __init__(self, total: int = 0, rows: int = 0) -> None:
        self.total = total
        self.rows = rows

    def add(self, rows: Iterable[StoredRow]) -> None:
        """Add rows."""
        count, total = _summed(rows)
        self.rows += count
        self.total = (self.total + total) % _MODULUS

    def remove(self, rows: Iterable[StoredRow]) -> None:
        """Subtract rows that were deleted or will be changed."""
        count, total = _summed(rows)
        self.rows -= count
        self.total = (self.total - total) % _MODULUS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and (self.rows, self.total) == (other.rows, other.total)

    def __hash__(self) -> int:
        return hash((self.rows, self.total))

    def __repr__(self) -> str:
        return f"Digest(rows={self.rows}, total={self.total:032x})"


def digest(rows: Iterable[StoredRow]) -> int:
    """Return the digest of a set of rows of one table."""
    return _summed(rows)[1] % _MODULUS


def checksum(digests: Mapping[str, Digest]) -> str:
    """Return one text for all tables of a database, which must be the same at both places."""
    listed = [(name, digests[name].rows, f"{digests[name].total:032x}") for name in sorted(digests)]
    return blake2b(msgspec.msgpack.encode(listed), digest_size=_BYTES).hexdigest()


def _summed(rows: Iterable[StoredRow]) -> tuple[int, int]:
    encode, number = msgspec.msgpack.encode, int.from_bytes
    count = total = 0
    for row in rows:
        total += number(blake2b(encode(row), digest_size=_BYTES).digest(), "big")
        count += 1
    return count, total
