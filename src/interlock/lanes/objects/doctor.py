"""The doctor of a database in a bucket: reads all of it, beside the owner or without one, and changes nothing.

It needs no lease. It reads the manifest, walks the history (`walk`), looks at what lies below it, replays into a
temporary file and lets SQLite check the pages. The owner goes on meanwhile: damage is believed only if the manifest
still promises what was read; otherwise it looks again.

The probe of the bucket's promises writes, so it runs only on request.
"""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock.errors import CorruptionError, UnavailableError, UnusableFile
from interlock.lanes.connection import Prepare
from interlock.lanes.doctor import Facts, look_at
from interlock.lanes.objects import probe, symptoms
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.format import HEADER_BYTES, decode_header, log_key, part_key
from interlock.lanes.objects.manifest import KEY, Manifest, read_manifest
from interlock.lanes.objects.reading import LOOKS_MAX, Watch, end_of_log, flaw_of, moved, no_database, silent
from interlock.lanes.objects.report import BucketOwner, BucketReport, SnapshotFacts, State
from interlock.lanes.objects.slots import Position
from interlock.lanes.objects.snapshots import GROUP_WEIGHT_BYTES
from interlock.lanes.objects.walk import Walk
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings
from interlock.seams import Clock

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
            report = _settled(bucket, name, Path(place), clock, prepare, watch)
    except OSError as error:
        raise UnusableFile(
            f"the database cannot be replayed into a temporary folder: {error.strerror or error}.",
            fix="Name a folder with space for the whole database in TMPDIR.",
        ) from error
    findings = report.findings
    if folder is not None:
        watch("probing the bucket", 0, 1)
        findings += symptoms.promises(probe.examine(folder, World(clock=clock)))
    ranks = ("error", "warning", "info")
    return msgspec.structs.replace(
        report,
        healthy=all(finding.severity == "info" for finding in findings),
        findings=sorted(findings, key=lambda finding: ranks.index(finding.severity)),
    )


def _settled(bucket: Bucket, name: str, place: Path, clock: Clock, prepare: Prepare, watch: Watch) -> BucketReport:
    for look in range(LOOKS_MAX):
        notes = symptoms.Notes()
        manifest = _manifest(bucket, name, notes)
        if manifest is None:
            return BucketReport(url=name, healthy=False, findings=notes.all())
        below = _below(bucket, manifest, notes)
        folder = place / str(look)
        folder.mkdir()
        walk = Walk(bucket, manifest, folder, end=below.end, notes=notes, watch=watch)
        replayed = walk.run()
        _compare_epochs(bucket, manifest, walk, below, notes)
        # Missing may mean collected: the owner goes on while we read.
        if notes.errors and moved(bucket, manifest):
            continue
        facts = _facts(replayed, clock, prepare, notes, watch) if replayed and walk.whole else None
        _weigh(manifest, walk, notes)
        return _report(name, manifest, walk, below, facts, notes)
    raise UnavailableError(
        f"{name} could not be looked at: {LOOKS_MAX} times, its owner has deleted what was just being read.",
        why="Its history is shorter than it takes to read it.",
        fix="Try again, from a machine nearer to the bucket, or raise retention_s of the database.",
    )


def _manifest(bucket: Bucket, name: str, notes: symptoms.Notes) -> Manifest | None:
    """Return the manifest, or None when the examination cannot go on without it."""
    try:
        found = read_manifest(bucket)
    except CorruptionError as error:
        notes.add(symptoms.manifest_wrong(error.what))
        return None
    if found is None:
        if not bucket.keys("log/"):
            raise no_database(name)
        notes.add(symptoms.manifest_wrong("the manifest is gone; there is a log."))
        return None
    flaw = flaw_of(found[0])
    if flaw:
        notes.add(symptoms.manifest_wrong(f"{KEY} cannot be used: {flaw}."))
        return None
    return found[0]


class _Below(NamedTuple):
    """The result of a listing: where the log ends, and what lies below the history."""

    end: int
    fences: frozenset[int]
    """Epochs of fences below the history."""
    begins: bool
    """Whether the first slot of all still has its fence, or is part of the history."""


def _below(bucket: Bucket, manifest: Manifest, notes: symptoms.Notes) -> _Below:
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
                notes.add(symptoms.damaged(error.what))
                continue
            if (entry.database.hex(), entry.seq) != (manifest.database, seq):
                notes.add(symptoms.misplaced(f"{log_key(seq)} cannot be used: it belongs to another place."))
            elif entry.kind == "fence":
                fences.add(entry.epoch)
            elif seq <= manifest.collected:
                old.append(seq)
    known = {part_key(each.seq, bytes.fromhex(each.nonce), 0).rpartition("/")[0] for each in manifest.snapshots}
    # Those after what is collected go with the next collection, or are just being stored.
    below = part_key(manifest.collected + 1, b"", 0).partition("-")[0]
    parts = sum(
        key.rpartition("/")[0] not in known and key.partition("-")[0] < below for key in bucket.keys("snapshot/")
    )
    for finding in symptoms.left_over(len(old), parts, strays):
        notes.add(finding)
    begins = first <= 1 or (bool(seqs) and seqs[0] == 1 and 1 not in old)
    return _Below(end_of_log(bucket, last), frozenset(fences), begins)


def _compare_epochs(bucket: Bucket, manifest: Manifest, walk: Walk, below: _Below, notes: symptoms.Notes) -> None:
    for epoch in sorted(walk.begun_below - below.fences - walk.fences):
        notes.add(symptoms.fence_missing(f"the fence of epoch {epoch} is gone: groups of it are there, and it is not."))
    if not below.begins:
        notes.add(symptoms.fence_missing(f"{log_key(1)} is gone, which is the fence of the first owner."))
    if walk.epoch > manifest.epoch:
        found = read_manifest(bucket)
        if found is not None and walk.epoch > found[0].epoch:
            problem = f"the manifest is at epoch {found[0].epoch}, and the log at epoch {walk.epoch}: it went back."
            notes.add(symptoms.manifest_wrong(problem))


def _facts(replayed: Path, clock: Clock, prepare: Prepare, notes: symptoms.Notes, watch: Watch) -> Facts | None:
    watch("checking the pages", 0, 1)
    try:
        facts = look_at(replayed, clock=clock, prepare=prepare)
    except CorruptionError as error:
        notes.add(symptoms.damaged(error.what))
        return None
    for finding in facts.findings:
        # A database that was never opened to the end has no tables yet.
        if finding.code != "not-a-lane" or facts.pages:
            notes.add(symptoms.in_bucket(finding))
    watch("checking the pages", 1, 1)
    return facts


def _weigh(manifest: Manifest, walk: Walk, notes: symptoms.Notes) -> None:
    weight = walk.replay_bytes + walk.replay_objects * GROUP_WEIGHT_BYTES
    last_bytes = manifest.snapshots[-1].bytes if manifest.snapshots else 0
    expected = max(LaneSettings().snapshot_bytes_min, last_bytes)
    if weight > OVERDUE * expected:
        notes.add(symptoms.overdue(walk.replay_objects, walk.replay_bytes, expected))


def _report(
    name: str, manifest: Manifest, walk: Walk, below: _Below, facts: Facts | None, notes: symptoms.Notes
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
                time=_time_text(each.time_us),
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
        page_bytes=facts.page_bytes if facts else None,
        pages=facts.pages if facts else None,
        pages_free=facts.pages_free if facts else None,
        schema_version=facts.schema_version if facts else None,
        tables=facts.tables if facts else None,
        keys=facts.keys if facts else None,
        lane_time=_time_text(facts.lane_time_us or 0) if facts else None,
        findings=notes.all(),
    )


def _state(position: Position | None) -> State | None:
    return State(seq=position.seq, time=_time_text(position.time_us)) if position else None


def _time_text(time_us: int) -> str | None:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat(timespec="seconds") if time_us else None
