"""Point-in-time restore of a database in a bucket into a local file, and the way back: a file becomes its state.

A restore takes no lease and writes nothing into the bucket, so it may run beside the owner. It loads the newest
snapshot that is not later (or one before it, if that is damaged), and replays the log after it, every link of it
checked. If the owner collects objects that are just being read, it begins again from what is kept now.

The file is new, checked by SQLite and synced; the caller gives it its name. After an error it is not whole.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from interlock.clock import Clock
from interlock.errors import CorruptionError, TargetNotFound, UnusableFile
from interlock.lanes.file import sync_file
from interlock.lanes.handover import moved_error, tombstone_of
from interlock.lanes.lane_doctor import Facts, look_at, opened_to_look
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment, Watch, answering, silent
from interlock.lanes.objectlog.format import HEADER_BYTES, corrupt_error, hash_of, log_key
from interlock.lanes.objectlog.lease import claim, fence, fenced_error
from interlock.lanes.objectlog.local_file import Cache, Changed
from interlock.lanes.objectlog.log import group_entry
from interlock.lanes.objectlog.manifest import (
    LOOKS_MAX,
    LaneSnapshot,
    Manifest,
    check_hash,
    end_of_log,
    history_changed,
    history_too_short_error,
    manifest_at,
    read_manifest,
)
from interlock.lanes.objectlog.slots import READ_AHEAD, Position, read_slots, write_slot
from interlock.lanes.sqlite_connection import Prepare

Moment = int | datetime | None
"""A position in the log by its number, by the lane's time, or the newest."""


class Restored(NamedTuple):
    """The result of a restore."""

    at: Position
    snapshot: int
    """The number of the snapshot that it began with; 0 when the log was replayed from its beginning."""
    pages: int
    page_bytes: int

    @property
    def time(self) -> datetime | None:
        """The lane's time at that position; None before its first group."""
        return _moment(self.at.time_us) if self.at.time_us else None


def restore(
    bucket: Bucket, path: Path, *, name: str, at: Moment, clock: Clock, prepare: Prepare, watch: Watch = silent
) -> Restored:
    """Restore the database of that name into a file. `prepare` registers the functions that its schema may call.

    Raises TargetNotFound for a database or a place of it that is not there, CorruptionError for an object that cannot
    be used, UnavailableError for a bucket that does not answer, MovedElsewhere for the newest state of a database that
    a move has left.
    """
    with answering("restore the database"):
        position, snapshot = _restore_state(bucket, path, name, at, watch)
    watch("checking the pages", 0, 1)
    facts = _checked(path, position.seq, clock, prepare)
    if at is None:
        _refuse_left(path)
    sync_file(path)
    watch("checking the pages", 1, 1)
    return Restored(position, snapshot, facts.pages, facts.page_bytes)


def _restore_state(bucket: Bucket, path: Path, name: str, at: Moment, watch: Watch) -> tuple[Position, int]:
    for _ in range(LOOKS_MAX):
        manifest = manifest_at(bucket, name)
        try:
            return _replayed(bucket, manifest, path, at, watch)
        except (CorruptionError, TargetNotFound):
            # Missing may mean collected: the owner goes on while we read.
            if not history_changed(bucket, manifest):
                raise
    raise history_too_short_error(name, "restored")


def _replayed(bucket: Bucket, manifest: Manifest, path: Path, at: Moment, watch: Watch) -> tuple[Position, int]:
    starts = _starts(manifest, at)
    until = _until(bucket, manifest, at)
    cache = Cache(path)
    position = _loaded(bucket, manifest, cache, starts, watch)
    begun, groups = position.seq, 0
    for stored in read_slots(bucket, bytes.fromhex(manifest.database), position, until):
        if isinstance(at, datetime) and stored.entry.time_us > _us(at):
            break
        cache.apply(stored.entry)
        position = stored.position
        groups += stored.entry.kind == "group"
        watch("replaying the log", position.seq - begun, until - begun)
    else:
        if not isinstance(at, int):
            _refuse_hole(bucket, until)
    if isinstance(at, datetime) and not begun and not groups:
        raise _not_kept(f"of {at.isoformat()}", "it has no group that is so old")
    return position, begun


def _starts(manifest: Manifest, at: Moment) -> list[LaneSnapshot]:
    """Return the snapshots that are not later, newest first; empty for the beginning of the log."""
    snapshots = manifest.snapshots[::-1]
    if at is None or not snapshots:
        return list(snapshots)
    if isinstance(at, int):
        early, label = [each for each in snapshots if each.seq <= at], f"at {at}"
    else:
        early, label = [each for each in snapshots if each.time_us <= _us(at)], f"of {at.isoformat()}"
    if not early and manifest.kept:
        first = snapshots[-1]
        raise _not_kept(label, f"the first that is kept is {first.seq}, of {_moment(first.time_us).isoformat()}")
    return early


def _loaded(bucket: Bucket, manifest: Manifest, cache: Cache, starts: list[LaneSnapshot], watch: Watch) -> Position:
    """Load the newest of these snapshots that is whole: an earlier one costs only a longer replay."""
    damage: CorruptionError | None = None
    for start in starts:
        cache.discard()
        try:
            [head] = bucket.get_many([log_key(start.seq)], bytes_max=HEADER_BYTES)
            if head is not None:
                check_hash(start, hash_of(head))
            return cache.load(bucket, manifest, start, watch)
        except CorruptionError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    cache.discard()
    cache.path.touch()
    return Position()


def _until(bucket: Bucket, manifest: Manifest, at: Moment) -> int:
    """Return the last slot to replay: the requested one, or the last that there is now."""
    if isinstance(at, int) and at <= manifest.floor:
        return at
    last = end_of_log(bucket, manifest.floor)
    if isinstance(at, int) and at > last:
        raise TargetNotFound(
            f"there is no state {at}; the last one is {last}.",
            why="Every group and every new owner of the database takes one number of its log.",
            fix=f"Name a number up to {last}, or leave out --at for the newest state.",
        )
    return at if isinstance(at, int) else last


def _not_kept(state: str, reason: str) -> TargetNotFound:
    return TargetNotFound(
        f"the state {state} is not there; {reason}.",
        why="Older groups are deleted: retention_s says for how long every state is kept.",
        fix="Name a later state; `interlock doctor URL` shows which ones there are.",
    )


def _refuse_hole(bucket: Bucket, last: int) -> None:
    """Raise CorruptionError when the log stops at a missing slot with others after it: then it is not the end."""
    next_keys = [log_key(seq) for seq in range(last + 1, last + 1 + READ_AHEAD)]
    if any(bucket.get_many(next_keys, bytes_max=HEADER_BYTES)[1:]) and bucket.get(next_keys[0]) is None:
        raise corrupt_error(next_keys[0], "it is missing, and there are others after it")


def _checked(path: Path, seq: int, clock: Clock, prepare: Prepare) -> Facts:
    try:
        facts = look_at(path, clock=clock, prepare=prepare)
    except CorruptionError as error:
        raise _damaged(seq, error.what) from error
    for finding in facts.findings:
        if finding.code == "damaged":
            raise _damaged(seq, finding.what)
    return facts


def _refuse_left(path: Path) -> None:
    """Raise MovedElsewhere for the newest state of a database that a move has left; earlier ones can be restored."""
    with opened_to_look(path) as (connection, _):
        stone = tombstone_of(connection)
    if stone is not None:
        raise moved_error(stone)


def _damaged(seq: int, problem: str) -> CorruptionError:
    return CorruptionError(
        f"the database as it was at {seq} is damaged: {problem}",
        why="Every object is as it was stored, so the pages were wrong already when they were.",
        fix="Restore an earlier state with --at; no file was written.",
    )


def _us(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def _moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


# --- Seeding from a file ---------------------------------------------------------------------------------------------
# The pages of the file become one group of the log. Nothing about the result is special: the seeding process is the
# owner for that time and fences the owner before. The next owner replays the group or finds a snapshot of it. An
# existing history stays: the group comes after it, and earlier states can still be restored.

SEED_BYTES_MAX: Final = 1_073_741_824
"""G6: the group is made in memory."""


def seed(bucket: Bucket, file: Path, *, name: str, settings: LaneSettings, world: Environment, force: bool) -> int:
    """Make the pages of a file the state of the database in a bucket; return its position in the log.

    Raises UnusableFile for an existing database, unless `force`; LaneOwned when it has a live owner.
    """
    size = file.stat().st_size
    if size > SEED_BYTES_MAX:
        raise UnusableFile(
            f"{file} has {size:,} bytes; at most {SEED_BYTES_MAX:,} are put into a bucket as one object.",
            why="The object is made in memory.",
            fix="Put it back as a lane.",
        )
    with answering("look for a database"):
        found = read_manifest(bucket)
    if found is not None and not force:
        raise UnusableFile(
            f"there is a database at {name}.",
            why="Its state would be another one; its history stays.",
            fix="Name another place, or say --force.",
        )
    lease = claim(bucket, world, settings, f"restoring {world.ids.new().hex}")
    try:
        position = Position()
        if lease.manifest.snapshots:
            last = lease.manifest.snapshots[-1]
            position = Position(last.seq, bytes.fromhex(last.hash), last.time_us)
        with answering("read the log"):
            for stored in fence(bucket, world, settings, lease, position):
                position = stored.position
            now_us = int(world.clock.wall_s() * 1_000_000)
            entry = group_entry(lease.manifest, position, world.nonce(), now_us, _changes_of(file))
            written = write_slot(bucket, entry, world, settings.append_deadline_s)
        if written.entry.nonce != entry.nonce:
            raise fenced_error(written.entry.epoch)
        return written.position.seq
    finally:
        lease.release()


def _changes_of(file: Path) -> Changed:
    """Return all pages of a file as the changes of one group."""
    data = file.read_bytes()
    size = int.from_bytes(data[16:18])
    page_bytes = 65_536 if size == 1 else size
    starts = range(0, len(data), page_bytes)
    pages = tuple((number, data[start : start + page_bytes]) for number, start in enumerate(starts, 1))
    return Changed(pages, page_bytes, len(pages))
