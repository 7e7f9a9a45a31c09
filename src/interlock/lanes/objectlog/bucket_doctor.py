"""The doctor of a database in a bucket: reads all of it, beside the owner or without one, and changes nothing.

It needs no lease. It reads the manifest, walks the history (`HistoryWalk`), looks at what lies below it, replays into a
temporary file and lets SQLite check the pages. The owner goes on meanwhile: damage is believed only if the manifest
still promises what was read; otherwise it looks again.

The probe of the bucket's promises writes, so it runs only on request.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock.clock import Clock
from interlock.errors import CorruptionError, UnusableFile
from interlock.lanes.lane_doctor import Facts, is_healthy, look_at, members, time_text, worst_first
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import probe
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment, Watch, answering, silent
from interlock.lanes.objectlog.doctor_report import (
    BoundedFindings,
    BucketOwner,
    BucketReport,
    LogState,
    SnapshotFacts,
    broken_promises,
)
from interlock.lanes.objectlog.format import HEADER_BYTES, LogObject, decode_entry, decode_header, hash_of, log_key
from interlock.lanes.objectlog.local_file import Cache
from interlock.lanes.objectlog.manifest import (
    KEY,
    LOOKS_MAX,
    LaneSnapshot,
    Manifest,
    check_hash,
    end_of_log,
    flaw_of,
    history_changed,
    history_too_short_error,
    no_database_error,
    read_manifest,
    read_parts,
)
from interlock.lanes.objectlog.slots import READ_AHEAD, Position, check_link
from interlock.lanes.objectlog.snapshots import GROUP_WEIGHT_BYTES, snapshot_weight, unknown_parts
from interlock.lanes.sqlite_connection import Prepare

# --- Walk ------------------------------------------------------------------------------------------------------------
# The walk goes along the log, from the oldest snapshot to the end. Unlike an owner it does not stop at the first
# damage. A slot that is missing or wrong ends the replay, and the chain is followed on after it. The next snapshot
# makes the replay whole again, so the restorable states are known exactly. Where a snapshot and the replay meet, their
# pages are compared.
#
# Objects are read in windows, and only the pages of one group and a few parts of a snapshot are held in memory; the
# replayed database is a temporary file.


class HistoryWalk:
    """One walk from the beginning of the history to `end`. Raises BucketError."""

    def __init__(
        self, bucket: Bucket, manifest: Manifest, folder: Path, *, end: int, notes: BoundedFindings, watch: Watch
    ) -> None:
        self._bucket = bucket
        self._manifest = manifest
        self._database = bytes.fromhex(manifest.database)
        self._replayed = folder / "replayed"
        self._loading = folder / "loading"
        self._end = end
        self._notes = notes
        self._watch = watch
        self._begin = manifest.kept or 1
        self._before: Position | None = None if manifest.kept else Position()
        """The previous object; None when it could not be read."""
        self._next = 1
        self._missing_from = 0
        self._lost_from: int | None = 0 if manifest.kept else None
        """Since when the replay is not whole; 0 before it begins."""
        self.lost: list[tuple[int, int]] = []
        self.epoch = 0
        self.fences: set[int] = set()
        """Epochs whose fence is in the history."""
        self.begun_below: set[int] = set()
        """Epochs whose fence must be older than the history."""
        self.objects = self.bytes = 0
        self.replay_objects = self.replay_bytes = 0
        self.first: Position | None = None
        """The first state that can be restored."""
        self.whole: Position | None = None
        """The newest state that can be restored, which the file holds."""

    def run(self) -> Path | None:
        """Walk the history; return the file with the newest state that is whole, if there is any."""
        snapshots = self._manifest.snapshots
        if not self._manifest.kept:
            self._replayed.touch()
        for snapshot in snapshots:
            # The slot where the history begins is kept too, for the sake of local files that stand there.
            self._walk(max(self._next, self._manifest.kept), snapshot.seq)
            self._meet(snapshot, newest=snapshot is snapshots[-1])
            self.replay_objects = self.replay_bytes = 0
        self._walk(self._next, self._end)
        if self._lost_from:
            self._close_lost(self._end)
        return self._replayed if self._replayed.exists() else None

    def _walk(self, first: int, last: int) -> None:
        for start in range(first, last + 1, READ_AHEAD):
            seqs = range(start, min(last + 1, start + READ_AHEAD))
            for seq, data in zip(seqs, self._bucket.get_many([log_key(seq) for seq in seqs]), strict=True):
                if data is None:
                    self._missing_from = self._missing_from or seq
                    self._lose(seq)
                    self._before = None
                else:
                    self._report_missing(seq)
                    self._take(seq, data)
            self._watch("checking the log", seqs[-1] - self._begin + 1, self._end - self._begin + 1)
        self._report_missing(last + 1)
        self._next = last + 1

    def _report_missing(self, until: int) -> None:
        if self._missing_from:
            count = until - self._missing_from
            more = "is" if count == 1 else f"and {count - 1:,} after it are"
            self._notes.add("object-missing", f"{log_key(self._missing_from)} {more} missing.")
            self._missing_from = 0

    def _take(self, seq: int, data: bytes) -> None:
        key = log_key(seq)
        self.objects += 1
        self.bytes += len(data)
        self.replay_objects += 1
        self.replay_bytes += len(data)
        try:
            entry = decode_entry(data, key)
        except CorruptionError as error:
            self._notes.add("object-damaged", error.what)
            self._lose(seq)
            self._before = None
            return
        if self._linked(entry, key):
            self._count(entry)
            if self._lost_from is None:
                Cache(self._replayed).apply(entry)
                self._restorable(Position(seq, hash_of(data), entry.time_us))
        else:
            self._lose(seq)
        self._before = Position(seq, hash_of(data), entry.time_us)

    def _linked(self, entry: LogObject, key: str) -> bool:
        before = self._before or Position(int(key[4:]) - 1, entry.previous, entry.time_us)
        try:
            check_link(entry, self._database, before, self.epoch, key)
        except CorruptionError as error:
            self._notes.add("object-misplaced", error.what)
            return False
        if entry.time_us < before.time_us:
            self._notes.add("object-misplaced", f"{key} cannot be used: the lane's time goes back in it.")
            return False
        return True

    def _count(self, entry: LogObject) -> None:
        if entry.kind == "fence":
            self.fences.add(entry.epoch)
        elif entry.epoch > self.epoch:
            if entry.seq == self._begin and entry.seq > 1:
                self.begun_below.add(entry.epoch)
            elif self._before is not None and (self.epoch or entry.seq == 1):
                problem = f"epoch {entry.epoch} begins at {log_key(entry.seq)} with a group, and not with its fence."
                self._notes.add("fence-missing", problem)
        self.epoch = entry.epoch

    def _lose(self, seq: int) -> None:
        if self._lost_from is None:
            self._lost_from = seq

    def _close_lost(self, until: int) -> None:
        assert self._lost_from
        self.lost.append((self._lost_from, until))
        self._lost_from = None

    def _meet(self, snapshot: LaneSnapshot, *, newest: bool) -> None:
        """Compare the snapshot at the walk's position with the replay, or begin the replay with it."""
        try:
            if self._before is not None:
                check_hash(snapshot, self._before.hash)
            if self._lost_from is None:
                self._compare(snapshot)
            else:
                self._load(snapshot)
        except CorruptionError as error:
            why = "Opening the database begins with this snapshot." if newest else ""
            self._notes.add("snapshot-damaged", error.what, why=why)
            if self._lost_from == 0:
                self._lost_from = snapshot.seq
        self._before = self._before or Position(snapshot.seq, bytes.fromhex(snapshot.hash), snapshot.time_us)

    def _compare(self, snapshot: LaneSnapshot) -> None:
        differing, size = 0, snapshot.page_bytes
        with self._replayed.open("rb") as file:
            for part in read_parts(self._bucket, self._manifest.database, snapshot):
                file.seek((part.first_page - 1) * size)
                replayed = file.read(len(part.data))
                differing += sum(
                    part.data[at : at + size] != replayed[at : at + size] for at in range(0, len(part.data), size)
                )
                self._watch(f"checking the snapshot at {snapshot.seq}", part.part + 1, part.parts)
                self._belongs(part.epoch, snapshot)
        differing += max(0, self._replayed.stat().st_size // size - snapshot.pages)
        if differing:
            seq = snapshot.seq
            self._notes.add(
                "snapshot-differs",
                f"the snapshot at {seq} is not what the log makes of the one before: {differing:,} pages differ.",
                fix=f"Please report it. Restore {seq - 1} and {seq}, compare them, and keep the bucket as it is.",
            )

    def _load(self, snapshot: LaneSnapshot) -> None:
        # Beside what was replayed so far: a snapshot that is not whole must not take its place.
        with self._loading.open("wb") as file:
            for part in read_parts(self._bucket, self._manifest.database, snapshot):
                file.write(part.data)
                self._watch(f"checking the snapshot at {snapshot.seq}", part.part + 1, part.parts)
                self._belongs(part.epoch, snapshot)
        self._loading.replace(self._replayed)
        if self._lost_from:
            self._close_lost(snapshot.seq - 1)
        self._lost_from = None
        self._restorable(Position(snapshot.seq, bytes.fromhex(snapshot.hash), snapshot.time_us))

    def _restorable(self, position: Position) -> None:
        self.first = self.first or position
        self.whole = position

    def _belongs(self, epoch: int, snapshot: LaneSnapshot) -> None:
        if snapshot.seq == self._begin and epoch not in self.fences:
            self.begun_below.add(epoch)


# --- Examination -----------------------------------------------------------------------------------------------------

HEADS_AT_ONCE = 100
OVERDUE = 4
"""How many times its usual weight the log after the newest snapshot may have before it is mentioned."""


def examine(
    bucket: Bucket, *, name: str, clock: Clock, prepare: Prepare, folder: Bucket | None = None, watch: Watch = silent
) -> BucketReport:
    """Examine the database of that name. `prepare` registers the functions that its schema may call.

    With `folder`, which the database shares with others, the bucket is also probed there, which writes and deletes.
    Raises TargetNotFound when there is no database, UnavailableError when the bucket does not answer.
    """
    try:
        with answering("look at the database"), tempfile.TemporaryDirectory(prefix="interlock-doctor-") as place:
            found = _examine_history(bucket, name, Path(place), clock, prepare, watch)
    except OSError as error:
        raise UnusableFile(
            f"the database cannot be replayed into a temporary folder: {error.strerror or error}.",
            fix="Name a folder with space for the whole database in TMPDIR.",
        ) from error
    findings = found.findings
    if folder is not None:
        watch("probing the bucket", 0, 1)
        findings += broken_promises(probe.examine(folder, Environment(clock=clock)))
    return msgspec.structs.replace(found, healthy=is_healthy(findings), findings=worst_first(findings))


def _examine_history(
    bucket: Bucket, name: str, place: Path, clock: Clock, prepare: Prepare, watch: Watch
) -> BucketReport:
    for look in range(LOOKS_MAX):
        notes = BoundedFindings()
        manifest = _manifest(bucket, name, notes)
        if manifest is None:
            return BucketReport(url=name, healthy=False, findings=notes.all())
        below = _below(bucket, manifest, notes)
        folder = place / str(look)
        folder.mkdir()
        walk = HistoryWalk(bucket, manifest, folder, end=below.end, notes=notes, watch=watch)
        replayed = walk.run()
        _compare_epochs(bucket, manifest, walk, below, notes)
        # Missing may mean collected: the owner goes on while we read.
        if notes.errors and history_changed(bucket, manifest):
            continue
        facts = _facts(replayed, clock, prepare, notes, watch) if replayed and walk.whole else None
        _weigh(manifest, walk, notes)
        return _report(name, manifest, walk, below, facts, notes)
    raise history_too_short_error(name, "looked at")


def _manifest(bucket: Bucket, name: str, notes: BoundedFindings) -> Manifest | None:
    """Return the manifest, or None when the examination cannot go on without it."""
    try:
        found = read_manifest(bucket)
    except CorruptionError as error:
        notes.add("manifest", error.what)
        return None
    if found is None:
        if not bucket.keys("log/"):
            raise no_database_error(name)
        notes.add("manifest", "the manifest is gone; there is a log.")
        return None
    flaw = flaw_of(found[0])
    if flaw:
        notes.add("manifest", f"{KEY} cannot be used: {flaw}.")
        return None
    return found[0]


class _Below(NamedTuple):
    """The result of a listing: where the log ends, and what lies below the history."""

    end: int
    fences: frozenset[int]
    """Epochs of fences below the history."""
    begins: bool
    """Whether the first slot of all still has its fence, or is part of the history."""


def _below(bucket: Bucket, manifest: Manifest, notes: BoundedFindings) -> _Below:
    first = manifest.kept
    seqs: list[int] = []
    old: list[int] = []
    strays, last = 0, manifest.floor
    for key in bucket.keys("log/"):
        number = key.removeprefix("log/")
        if not (number.isascii() and number.isdigit() and key == log_key(int(number))):
            strays += 1
            continue
        last = max(last, int(number))
        if int(number) < first:
            seqs.append(int(number))
    fences: set[int] = set()
    for start in range(0, len(seqs), HEADS_AT_ONCE):
        some = seqs[start : start + HEADS_AT_ONCE]
        heads = bucket.get_many([log_key(seq) for seq in some], bytes_max=HEADER_BYTES)
        for seq, head in zip(some, heads, strict=True):
            if head is None:
                continue  # It was collected since it was listed.
            try:
                entry = decode_header(head, log_key(seq))
            except CorruptionError as error:
                notes.add("object-damaged", error.what)
                continue
            if (entry.database.hex(), entry.seq) != (manifest.database, seq):
                notes.add("object-misplaced", f"{log_key(seq)} cannot be used: it belongs to another place.")
            elif entry.kind == "fence":
                fences.add(entry.epoch)
            elif seq <= manifest.collected:
                old.append(seq)
    # Those after what is collected go with the next collection, or are just being stored.
    parts = len(unknown_parts(bucket, manifest, manifest.collected + 1))
    if old or parts or strays:
        notes.add(
            "left-over",
            f"{len(old):,} groups below the history, {parts:,} parts of snapshots that the manifest does not name "
            f"and {strays:,} objects that are not Interlock's lie below the address.",
        )
    begins = first <= 1 or (bool(seqs) and seqs[0] == 1 and 1 not in old)
    return _Below(end_of_log(bucket, last), frozenset(fences), begins)


def _compare_epochs(
    bucket: Bucket, manifest: Manifest, walk: HistoryWalk, below: _Below, notes: BoundedFindings
) -> None:
    for epoch in sorted(walk.begun_below - below.fences - walk.fences):
        notes.add("fence-missing", f"the fence of epoch {epoch} is gone: groups of it are there, and it is not.")
    if not below.begins:
        notes.add("fence-missing", f"{log_key(1)} is gone, which is the fence of the first owner.")
    if walk.epoch > manifest.epoch:
        found = read_manifest(bucket)
        if found is not None and walk.epoch > found[0].epoch:
            problem = f"the manifest is at epoch {found[0].epoch}, and the log at epoch {walk.epoch}: it went back."
            notes.add("manifest", problem)


def _facts(replayed: Path, clock: Clock, prepare: Prepare, notes: BoundedFindings, watch: Watch) -> Facts | None:
    watch("checking the pages", 0, 1)
    try:
        facts = look_at(replayed, clock=clock, prepare=prepare)
    except CorruptionError as error:
        notes.add("object-damaged", error.what)
        return None
    for finding in facts.findings:
        # A database that was never opened to the end has no tables yet.
        if finding.code != "not-a-lane" or facts.pages:
            notes.add_finding(finding)
    watch("checking the pages", 1, 1)
    return facts


def _weigh(manifest: Manifest, walk: HistoryWalk, notes: BoundedFindings) -> None:
    weight = walk.replay_bytes + walk.replay_objects * GROUP_WEIGHT_BYTES
    expected = snapshot_weight(manifest, LaneSettings())
    if weight > OVERDUE * expected:
        notes.add(
            "snapshot-overdue",
            f"{walk.replay_objects:,} objects of {walk.replay_bytes:,} bytes lie after the newest snapshot; one is "
            f"usually taken when they weigh {expected:,}.",
        )


def _report(
    name: str, manifest: Manifest, walk: HistoryWalk, below: _Below, facts: Facts | None, notes: BoundedFindings
) -> BucketReport:
    owner = manifest.owner
    return BucketReport(
        url=name,
        healthy=False,
        database=manifest.database,
        revision=manifest.revision,
        epoch=manifest.epoch,
        owner=BucketOwner(pid=owner.pid, host=owner.host, lease_s=manifest.lease_s) if owner else None,
        snapshots=[
            SnapshotFacts(
                seq=each.seq,
                time=time_text(each.time_us),
                objects_behind=below.end - each.seq,
                parts=each.parts,
                pages=each.pages,
                bytes=each.bytes,
            )
            for each in manifest.snapshots
        ],
        log_objects=walk.objects,
        log_bytes=walk.bytes,
        fences=len(walk.fences),
        fences_below=len(below.fences),
        replay_objects=walk.replay_objects,
        replay_bytes=walk.replay_bytes,
        first=_state(walk.first),
        last=_state(walk.whole),
        lost=walk.lost,
        findings=notes.all(),
        **members(facts),
    )


def _state(position: Position | None) -> LogState | None:
    return LogState(seq=position.seq, time=time_text(position.time_us)) if position else None
