"""Invariants at the end of a seed, checked against everything the bucket ever stored.

Each guarantee is cited by its name. The checks compare every answer of a client and its time with what the bucket had
stored at that time. They replay the log with a reader of their own.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import apsw
import zstandard

from interlock.lanes.lane_settings import LaneSettings
from interlock.testing.lane_simulation.bucket import DRIFT_MAX, LaneStory, Observed, Server, Submission, short

# --- Replay of the log -----------------------------------------------------------------------------------------------
# This reader shares no code with the lane, so that an error must be in both to stay hidden. The layout is implemented
# again, from the reference of the format.

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


class ClientTables(NamedTuple):
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
    image = Image() if snapshot is None else _load_snapshot(objects, snapshot)
    while (data := objects.get(key := key_of(image.seq + 1))) is not None:
        image.follow(read_slot(data, key), key)
    return image


def _load_snapshot(objects: Mapping[str, bytes], snapshot: dict[str, Any]) -> Image:
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


def read_tables(data: bytearray, *, whole: bool = False) -> ClientTables:
    """Read the clients' tables. Raises BrokenLog when SQLite finds the database broken."""
    if not data:
        return ClientTables(0, [], 0)
    plain = bytearray(data)
    plain[18:20] = b"\x01\x01"  # A database in memory has no write-ahead log.
    connection = apsw.Connection(":memory:")
    try:
        connection.deserialize("main", bytes(plain))
        if whole and (result := connection.execute("PRAGMA integrity_check").get) != "ok":
            raise BrokenLog("the database", f"integrity_check: {result}")
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'counter'").get:
            return ClientTables(0, [], 0)
        number = cast("int", connection.execute("SELECT n FROM counter").get or 0)
        if not whole:
            return ClientTables(number, [], 0)
        rows = cast(
            "list[tuple[int, str]]", connection.execute("SELECT number, id FROM entries ORDER BY number").fetchall()
        )
        return ClientTables(number, rows, cast("int", connection.execute("SELECT count(*) FROM junk").get))
    except apsw.Error as error:
        raise BrokenLog("the database", f"SQLite cannot read it: {error}") from error
    finally:
        connection.close()


def _hash(*pieces: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


# --- Checks ----------------------------------------------------------------------------------------------------------

Marks = tuple[str, ...]


class Durable:
    """The log as the bucket stored it: for each transaction, its slot and the time it became durable."""

    def __init__(self, server: Server) -> None:
        self.slots: list[Slot] = []
        self.numbers: list[tuple[int, float]] = [(0, 0.0)]
        """By the counter's value: the first slot with it, and when that was stored."""
        image = Image()
        written = server.written
        while (stored := written.get(key := key_of(image.seq + 1))) is not None:
            slot = read_slot(stored[0].data, key)
            image.follow(slot, key)
            self.slots.append(slot)
            if slot.pages:
                self._count(read_tables(image.data).number, slot.seq, stored[0].time_s)
        beyond = [key for key in written if int(key[4:]) > image.seq]
        if beyond:
            raise BrokenLog(key_of(image.seq + 1), f"G1: a hole in the log: {short(min(beyond))} is after it")
        self.image = image
        self.tables = read_tables(image.data, whole=True)
        self.names = dict(self.tables.rows)

    def _count(self, number: int, seq: int, time_s: float) -> None:
        if number < len(self.numbers) - 1:
            raise BrokenLog(key_of(seq), f"G1: the counter goes back from {len(self.numbers) - 1} to {number}")
        self.numbers += [(seq, time_s)] * (number - len(self.numbers) + 1)


def check(story: LaneStory, server: Server, settings: LaneSettings) -> None:
    """Look for contradictions; each is a complaint of the story."""
    try:
        durable = Durable(server)
        _check_bucket(story, server, durable)
        _check_history(story, server, settings)
    except BrokenLog as error:
        story.complain(f"the log is broken: {error}", error.key, key_before(error.key))
        return
    _check_tables(story, durable)
    by_id: dict[str, list[Submission]] = {}
    for attempt in story.attempts:
        by_id.setdefault(attempt.id, []).append(attempt)
    times = Counter(name for _, name in durable.tables.rows)
    for name, attempts in by_id.items():
        _check_transaction(story, name, attempts, times[name])
        for attempt in attempts:
            if attempt.answer == "acknowledged":
                _check_acknowledged(story, durable, attempt)
    acknowledged = sorted((each.answered_s, each.number) for each in story.attempts if each.answer == "acknowledged")
    for observed in story.observed:
        _check_observed(story, durable, observed)
        _check_fresh(story, observed, acknowledged, settings.lease_s)


def key_before(key: str) -> str:
    """The key of the slot before."""
    return key_of(int(key[4:]) - 1) if key.startswith("log/") else key


def _check_bucket(story: LaneStory, server: Server, durable: Durable) -> None:
    """Fences stay, and every snapshot that is kept leads to the same pages."""
    for slot in durable.slots:
        key = key_of(slot.seq)
        if slot.fence and server.objects.get(key) != server.written[key][0].data:
            story.complain(f"G4: the fence {short(key)} of epoch {slot.epoch} is gone", key)
    snapshots = manifest_of(server.objects)["snapshots"]
    for snapshot in snapshots or [None]:
        image = recover(server.objects, snapshot)
        where = "the first slot" if snapshot is None else f"the snapshot at {snapshot['seq']}"
        if image.seq != durable.image.seq:
            story.complain(f"G2: recovery from {where} ends at slot {image.seq}, not {durable.image.seq}")
        elif image.data != durable.image.data:
            story.complain(f"G2: recovery from {where} does not give the same pages as the whole log")


def _check_history(story: LaneStory, server: Server, settings: LaneSettings) -> None:
    """Nothing is collected that is needed to restore a state of the time that is to be kept."""
    manifest = manifest_of(server.objects)
    if not manifest["collected"]:
        return
    oldest, newest = manifest["snapshots"][0], manifest["snapshots"][-1]
    kept_s = (newest["time_us"] - oldest["time_us"]) / 1_000_000
    if kept_s < settings.retention_s:
        story.complain(
            f"the history reaches back for {kept_s:.1f} s instead of {settings.retention_s:g} s, "
            f"but slots up to {manifest['collected']} are deleted"
        )


def _check_tables(story: LaneStory, durable: Durable) -> None:
    tables = durable.tables
    if [number for number, _ in tables.rows] != list(range(1, tables.number + 1)):
        story.complain(f"G3: the counter is {tables.number}, the rows are {[number for number, _ in tables.rows]}")
    if tables.junk:
        story.complain(f"G3: {tables.junk} rows of a transaction that was rolled back are there")


def _check_transaction(story: LaneStory, name: str, attempts: list[Submission], times: int) -> None:
    answers = {attempt.answer for attempt in attempts}
    marks: Marks = (name, *(attempt.by for attempt in attempts))
    if times > 1:
        story.complain(f"G9: transaction {name} is there {times} times", *marks)
    elif "acknowledged" in answers and not times:
        story.complain(f"G2: transaction {name} was acknowledged and is not there", *marks)
    elif answers == {"absent"} and times:
        story.complain(f"G9: transaction {name} was answered as if it had not happened ({attempts[0].why})", *marks)


def _check_acknowledged(story: LaneStory, durable: Durable, attempt: Submission) -> None:
    number = attempt.number
    marks: Marks = (attempt.id, attempt.by)
    if not 0 < number < len(durable.numbers) or durable.names.get(number) != attempt.id:
        story.complain(f"G2: transaction {attempt.id} was acknowledged as number {number}, which is another", *marks)
        return
    seq, stored_s = durable.numbers[number]
    epoch = durable.slots[seq - 1].epoch
    marks = (*marks, key_of(seq))
    if stored_s > attempt.answered_s:
        story.complain(
            f"G2: transaction {attempt.id} was acknowledged {stored_s - attempt.answered_s:.3f} s before it was stored",
            *marks,
        )
    if epoch > attempt.epoch or (attempt.key is None and epoch != attempt.epoch):
        story.complain(
            f"G4: transaction {attempt.id} was acknowledged by epoch {attempt.epoch}, and is in the log of {epoch}",
            *marks,
        )


def _check_observed(story: LaneStory, durable: Durable, observed: Observed) -> None:
    """G7: an observed state is a prefix of the log that was durable at that time."""
    marks: Marks = (observed.by, *([observed.id] if observed.id else []))
    if observed.number >= len(durable.numbers) or durable.names.get(observed.number) != observed.id:
        story.complain(
            f"G7: a {observed.how} showed {observed.number} ({observed.id}), which the log never was", *marks
        )
        return
    seq, stored_s = durable.numbers[observed.number]
    if stored_s > observed.answered_s:
        story.complain(
            f"G7: a {observed.how} showed {observed.number} ({observed.id}) before it was durable", *marks, key_of(seq)
        )


def _check_fresh(story: LaneStory, observed: Observed, acknowledged: list[tuple[float, int]], lease_s: float) -> None:
    """G7: an observed state includes everything acknowledged before, up to the clock drift within a lease."""
    limit_s = observed.asked_s - 4 * DRIFT_MAX * lease_s
    latest = max((number for answered_s, number in acknowledged if answered_s < limit_s), default=0)
    if latest > observed.number:
        story.complain(
            f"G7: a {observed.how} by {observed.by} showed {observed.number} although {latest} was acknowledged before",
            observed.by,
        )
