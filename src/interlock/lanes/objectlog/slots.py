"""The slots of the log: one object per slot, dense, created only if absent, and never believed without a read.

A slot is written once. Any answer but success is resolved by reading the slot: my own nonce means done, another
writer's object shows that it was first, and an empty slot gets *the same bytes* again. "Empty" is not final, because
the first request may still land; so a slot that was tried is never skipped, and never tried with other bytes. Past the
deadline the outcome cannot be known: `OutcomeUnknown` (G9).
"""

from collections.abc import Iterator
from typing import NamedTuple

from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, Environment, Patience
from interlock.lanes.objectlog.format import (
    NO_HASH,
    LogObject,
    corrupt_error,
    decode_entry,
    encode_entry,
    hash_of,
    log_key,
)

READ_AHEAD = 32
"""Slots that are fetched concurrently when the log is read; the round trips overlap."""

READ_AHEAD_FIRST = 4
"""Slots of the first fetch; each further one doubles: most logs that are opened have nothing new."""


class Position(NamedTuple):
    """A position in the log: the last slot, its hash, and the lane's time there."""

    seq: int = 0
    hash: bytes = NO_HASH
    time_us: int = 0


class StoredObject(NamedTuple):
    """An object of the log as it was read, with the hash it is known by."""

    entry: LogObject
    hash: bytes
    size: int

    @property
    def position(self) -> Position:
        """Its position in the log."""
        return Position(self.entry.seq, self.hash, self.entry.time_us)


def write_slot(bucket: Bucket, entry: LogObject, world: Environment, limit_s: float) -> StoredObject:
    """Write the entry into its slot; return what stands there afterwards: this entry, or the one that was first.

    Raises OutcomeUnknown when that is still unknown at the deadline.
    """
    key, data = log_key(entry.seq), encode_entry(entry)
    patience = Patience(world, limit_s, f"the append of {key}")
    while True:
        try:
            bucket.create(key, data)
        except BucketError as error:
            unclear = error
        else:
            return StoredObject(entry, hash_of(data), len(data))
        try:
            found = bucket.get(key)
        except BucketError as error:
            unclear = error
        else:
            if found is not None:
                return _stored(found.data, key)
        patience.pause(unclear)


def read_slots(bucket: Bucket, database: bytes, start: Position, until: int | None = None) -> Iterator[StoredObject]:
    """Yield the log's objects after `start`, each checked against the one before; end at an empty slot.

    Raises CorruptionError for a chain that does not hold, BucketError when the bucket does not answer.
    """
    before, epoch, ahead = start, 0, min(READ_AHEAD, READ_AHEAD_FIRST)
    while until is None or before.seq < until:
        last = before.seq + ahead if until is None else min(until, before.seq + ahead)
        ahead = min(READ_AHEAD, 2 * ahead)
        keys = [log_key(seq) for seq in range(before.seq + 1, last + 1)]
        bodies = bucket.get_many(keys)
        found = next((at for at, data in enumerate(bodies) if data is None), len(bodies))
        for key, data in zip(keys[:found], bodies[:found], strict=True):
            assert data is not None
            stored = _stored(data, key)
            check_link(stored.entry, database, before, epoch, key)
            before, epoch = stored.position, stored.entry.epoch
            yield stored
        if found == len(bodies):
            continue
        if not any(bodies[found:]):
            break
        # The slots were read concurrently, so an empty one may have been written since. One that is still empty is not
        # the end: a fence in there would hide everything after it.
        if bucket.get(keys[found]) is None:
            raise corrupt_error(keys[found], "it is missing, and there are objects after it")
    if until is not None and before.seq < until:
        raise corrupt_error(log_key(before.seq + 1), "it is missing")


def check_link(entry: LogObject, database: bytes, before: Position, epoch: int, key: str) -> None:
    """Check that the entry follows `before`. Raises CorruptionError."""
    if entry.database != database:
        raise corrupt_error(key, f"it belongs to database {entry.database.hex()}, not to {database.hex()}")
    if entry.seq != before.seq + 1:
        raise corrupt_error(key, f"it says that it is number {entry.seq}")
    if entry.previous != before.hash:
        raise corrupt_error(key, "it does not follow the object before it (the hash chain is broken)")
    if entry.epoch < epoch:
        raise corrupt_error(key, f"its epoch {entry.epoch} is lower than the one before it, {epoch}")


def _stored(data: bytes, key: str) -> StoredObject:
    return StoredObject(decode_entry(data, key), hash_of(data), len(data))
