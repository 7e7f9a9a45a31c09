"""The doctor's walk along a log: every object from the oldest snapshot to the end, and every snapshot on the way.

Unlike an owner it does not stop at the first damage. A slot that is missing or wrong ends the replay, and the chain is
followed on after it. The next snapshot makes the replay whole again, so the restorable states are known exactly. Where
a snapshot and the replay meet, their pages are compared.

Objects are read in windows, and only the pages of one group and a few parts of a snapshot are held in memory; the
replayed database is a temporary file.
"""

from pathlib import Path

from interlock.errors import CorruptionError
from interlock.lanes.objects import symptoms
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.cache import Cache
from interlock.lanes.objects.format import Entry, decode_entry, hash_of, log_key
from interlock.lanes.objects.manifest import Manifest, Snapshot
from interlock.lanes.objects.reading import Watch, check_hash, read_parts
from interlock.lanes.objects.slots import READ_AHEAD, Position, check_link


class Walk:
    """One walk from the beginning of the history to `end`. Raises BucketError."""

    def __init__(
        self, bucket: Bucket, manifest: Manifest, folder: Path, *, end: int, notes: symptoms.Notes, watch: Watch
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
            self._notes.add(symptoms.missing(log_key(self._missing_from), until - self._missing_from))
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
            self._notes.add(symptoms.damaged(error.what))
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

    def _linked(self, entry: Entry, key: str) -> bool:
        before = self._before or Position(int(key[4:]) - 1, entry.previous, entry.time_us)
        try:
            check_link(entry, self._database, before, self.epoch, key)
        except CorruptionError as error:
            self._notes.add(symptoms.misplaced(error.what))
            return False
        if entry.time_us < before.time_us:
            self._notes.add(symptoms.misplaced(f"{key} cannot be used: the lane's time goes back in it."))
            return False
        return True

    def _count(self, entry: Entry) -> None:
        if entry.kind == "fence":
            self.fences.add(entry.epoch)
        elif entry.epoch > self.epoch:
            if entry.seq == self._begin and entry.seq > 1:
                self.begun_below.add(entry.epoch)
            elif self._before is not None and (self.epoch or entry.seq == 1):
                problem = f"epoch {entry.epoch} begins at {log_key(entry.seq)} with a group, and not with its fence."
                self._notes.add(symptoms.fence_missing(problem))
        self.epoch = entry.epoch

    def _lose(self, seq: int) -> None:
        if self._lost_from is None:
            self._lost_from = seq

    def _close_lost(self, until: int) -> None:
        assert self._lost_from
        self.lost.append((self._lost_from, until))
        self._lost_from = None

    def _meet(self, snapshot: Snapshot, *, newest: bool) -> None:
        """Compare the snapshot at the walk's position with the replay, or begin the replay with it."""
        try:
            if self._before is not None:
                check_hash(snapshot, self._before.hash)
            if self._lost_from is None:
                self._compare(snapshot)
            else:
                self._load(snapshot)
        except CorruptionError as error:
            self._notes.add(symptoms.snapshot_damaged(error.what, newest=newest))
            if self._lost_from == 0:
                self._lost_from = snapshot.seq
        self._before = self._before or Position(snapshot.seq, bytes.fromhex(snapshot.hash), snapshot.time_us)

    def _compare(self, snapshot: Snapshot) -> None:
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
            self._notes.add(symptoms.snapshot_differs(snapshot.seq, differing))

    def _load(self, snapshot: Snapshot) -> None:
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

    def _belongs(self, epoch: int, snapshot: Snapshot) -> None:
        if snapshot.seq == self._begin and epoch not in self.fences:
            self.begun_below.add(epoch)
