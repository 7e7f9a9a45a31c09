"""The simulator must be able to fail: each of these lanes breaks one rule of the object log, and some seed notices.

A sabotage is the real code with one rule taken out. Each has SEEDS_MAX seeds to be caught in; `pytest -o log_cli=true`
shows how many it took.
"""

import contextlib
import logging
import struct
import sys
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from interlock.errors import Fenced
from interlock.lanes.lane import Lane, notify_waiters
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import lease as leases
from interlock.lanes.objectlog import log as logs
from interlock.lanes.objectlog import snapshots
from interlock.lanes.objectlog.bucket_protocol import Bucket, BucketError, ConditionFailed, Environment, Patience
from interlock.lanes.objectlog.format import LogObject, decode_header, encode_entry, hash_of, log_key
from interlock.lanes.objectlog.lease import LaneLease
from interlock.lanes.objectlog.local_file import FRAME_HEADER_BYTES, HEADER_BYTES, Capture, Changed, _Position
from interlock.lanes.objectlog.log import ObjectLog
from interlock.lanes.objectlog.manifest import LaneSnapshot, LeaseHolder, Manifest
from interlock.lanes.objectlog.slots import Position, StoredObject, _stored, read_slots, write_slot
from interlock.lanes.objectlog.snapshots import with_snapshot
from interlock.lanes.writer import Work
from interlock.testing.lane_simulation.simulate_lanes import simulate
from tests.simulation.tracing import untraced

SEEDS_MAX = 600

Sabotage = Callable[[pytest.MonkeyPatch], None]
WriteSlot = Callable[[Bucket, LogObject, Environment, float], StoredObject]


def _before_append(patch: pytest.MonkeyPatch, chosen: Callable[[Work], bool]) -> None:
    """Tell some of a group before it is appended."""
    write = Lane._write

    def eager(lane: Lane, group: Sequence[Work]) -> None:
        log = lane._log
        assert isinstance(log, ObjectLog)

        def append(frames: int, time_us: int) -> None:
            notify_waiters([work for work in group if chosen(work)])
            ObjectLog.append(log, frames, time_us)

        patch.setattr(log, "append", append)
        write(lane, group)

    patch.setattr(Lane, "_write", eager)


def acknowledge_before_append(patch: pytest.MonkeyPatch) -> None:
    _before_append(patch, lambda work: work.error is None)


def refusal_before_durability(patch: pytest.MonkeyPatch) -> None:
    _before_append(patch, lambda work: work.error is not None)


def read_before_durability(patch: pytest.MonkeyPatch) -> None:
    async def at_once(_lane: Lane, _groups: int) -> None:
        pass

    patch.setattr(Lane, "durable_up_to", at_once)


def read_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectLog, "is_current", lambda _log: True)


def takeover_without_waiting_for_the_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "_wait_for_lease", lambda _bucket, _world, _manifest: None)


def history_collected_too_early(patch: pytest.MonkeyPatch) -> None:
    def hasty(manifest: Manifest, snapshot: LaneSnapshot, settings: LaneSettings) -> Manifest:
        changed = with_snapshot(manifest, snapshot, settings)
        return msgspec.structs.replace(changed, kept=changed.snapshots[0].seq)

    patch.setattr(snapshots, "with_snapshot", hasty)


def snapshot_known_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def careless(
        bucket: Bucket,
        world: Environment,
        manifest: Manifest,
        source: snapshots.SnapshotSource,
        given_up: Callable[[], bool],
    ) -> LaneSnapshot:
        with contextlib.suppress(BucketError):
            return store(bucket, world, manifest, source, given_up)
        at = source.at
        return LaneSnapshot(
            seq=at.seq,
            hash=at.hash.hex(),
            nonce=world.nonce().hex(),
            parts=1,
            pages=1,
            page_bytes=512,
            bytes=1,
            time_us=at.time_us,
        )

    store = snapshots.store
    patch.setattr(snapshots, "store", careless)


def _write_slot(patch: pytest.MonkeyPatch, variant: WriteSlot) -> None:
    patch.setattr(logs, "write_slot", variant)
    patch.setattr(leases, "write_slot", variant)


def exists_already_as_success(patch: pytest.MonkeyPatch) -> None:
    def trusting(bucket: Bucket, entry: LogObject, world: Environment, limit_s: float) -> StoredObject:
        data = encode_entry(entry)
        try:
            bucket.create(log_key(entry.seq), data)
        except ConditionFailed:
            return StoredObject(entry, hash_of(data), len(data))
        except BucketError:
            return write_slot(bucket, entry, world, limit_s)
        return StoredObject(entry, hash_of(data), len(data))

    _write_slot(patch, trusting)


def exists_already_as_fenced(patch: pytest.MonkeyPatch) -> None:
    def fearful(bucket: Bucket, entry: LogObject, world: Environment, limit_s: float) -> StoredObject:
        data = encode_entry(entry)
        try:
            bucket.create(log_key(entry.seq), data)
        except ConditionFailed as error:
            raise Fenced("somebody else was first") from error
        except BucketError:
            return write_slot(bucket, entry, world, limit_s)
        return StoredObject(entry, hash_of(data), len(data))

    _write_slot(patch, fearful)


def slot_skipped_after_an_unclear_append(patch: pytest.MonkeyPatch) -> None:
    def hasty(bucket: Bucket, entry: LogObject, world: Environment, limit_s: float) -> StoredObject:
        patience = Patience(world, limit_s, "the append")
        while True:
            data = encode_entry(entry)
            try:
                bucket.create(log_key(entry.seq), data)
            except BucketError as error:
                patience.pause(error)
                entry = entry._replace(seq=entry.seq + 1)
            else:
                return StoredObject(entry, hash_of(data), len(data))

    _write_slot(patch, hasty)


def slot_tried_with_other_bytes(patch: pytest.MonkeyPatch) -> None:
    def changing(bucket: Bucket, entry: LogObject, world: Environment, limit_s: float) -> StoredObject:
        patience = Patience(world, limit_s, "the append")
        tried = entry
        while True:
            data = encode_entry(tried)
            try:
                bucket.create(log_key(entry.seq), data)
            except BucketError as error:
                unclear = error
            else:
                return StoredObject(entry, hash_of(data), len(data))
            try:
                found = bucket.get(log_key(entry.seq))
            except BucketError as error:
                unclear = error
            else:
                if found is not None:
                    stored = _stored(found.data, "")
                    return stored._replace(entry=entry) if stored.entry.nonce == tried.nonce else stored
            tried = entry._replace(nonce=world.nonce())
            patience.pause(unclear)

    _write_slot(patch, changing)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    def unfenced(
        bucket: Bucket, _world: Environment, _settings: LaneSettings, lease: LaneLease, replayed: Position
    ) -> Iterator[StoredObject]:
        yield from read_slots(bucket, bytes.fromhex(lease.manifest.database), replayed)

    patch.setattr(logs, "fence", unfenced)


def fence_collected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshots, "decode_header", lambda data, key: decode_header(data, key)._replace(kind="group"))


def local_file_trusted_after_a_failed_append(patch: pytest.MonkeyPatch) -> None:
    close = ObjectLog.close

    def trusting(log: ObjectLog, *, clean: bool) -> None:
        if clean:
            close(log, clean=True)
        else:
            log._cache.keep(log.manifest, log.position)

    patch.setattr(ObjectLog, "close", trusting)


def capture_until_the_salts_change(patch: pytest.MonkeyPatch) -> None:
    def changed(capture: Capture, frames: int) -> Changed | None:
        if not frames:
            return None
        data = capture._path.read_bytes()
        salts, page_bytes = data[16:24], struct.unpack_from(">I", data, 8)[0]
        size = FRAME_HEADER_BYTES + page_bytes
        before = capture._position
        count = before.frames if before is not None and before.salts == salts else 0
        if count == frames:
            return None
        latest: dict[int, bytes] = {}
        in_all = 0
        for at in range(HEADER_BYTES + count * size, len(data), size):
            number, pages, found = *struct.unpack_from(">2I", data, at), data[at + 8 : at + 16]
            if found != salts:
                break
            in_all, count = pages or in_all, count + 1
            latest[number] = data[at + FRAME_HEADER_BYTES : at + size]
        capture._next = _Position(salts, frames, (0, 0))
        return Changed(tuple(sorted(latest.items())), page_bytes, in_all)

    patch.setattr(Capture, "read_changes", changed)


def manifest_without_nonce(patch: pytest.MonkeyPatch) -> None:
    nonce = Environment.nonce

    def none_for_the_manifest(world: Environment) -> bytes:
        return bytes(16) if sys._getframe(1).f_code.co_name in {"next_revision", "_take"} else nonce(world)

    patch.setattr(Environment, "nonce", none_for_the_manifest)


def equal_epoch_reopened(patch: pytest.MonkeyPatch) -> None:
    take = leases._take

    def modest(
        bucket: Bucket,
        world: Environment,
        settings: LaneSettings,
        owner: LeaseHolder,
        before: Manifest | None,
        tag: object,
    ) -> LaneLease | None:
        if before is not None and before.owner is not None and before.owner.cache == owner.cache:
            before = msgspec.structs.replace(before, epoch=before.epoch - 1)
        return take(bucket, world, settings, owner, before, tag)

    patch.setattr(leases, "_take", modest)


SABOTAGES: list[Sabotage] = [
    acknowledge_before_append,
    refusal_before_durability,
    read_before_durability,
    read_without_a_lease,
    takeover_without_waiting_for_the_lease,
    history_collected_too_early,
    snapshot_known_before_it_is_stored,
    exists_already_as_success,
    exists_already_as_fenced,
    slot_skipped_after_an_unclear_append,
    slot_tried_with_other_bytes,
    no_fence,
    fence_collected,
    local_file_trusted_after_a_failed_append,
    capture_until_the_salts_change,
    manifest_without_nonce,
    equal_epoch_reopened,
]


@pytest.mark.campaign
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=[sabotage.__name__ for sabotage in SABOTAGES])
def test_sabotage_is_caught(monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage) -> None:
    sabotage(monkeypatch)
    with untraced():
        for seed in range(SEEDS_MAX):
            result = simulate(seed)
            if result.complaints:
                told = result.complaints[0]
                logging.getLogger(__name__).warning("%s: seed %s: %s", sabotage.__name__, seed, told)
                return
    pytest.fail(f"{SEEDS_MAX} seeds did not notice: {sabotage.__name__}")


def test_a_server_that_ignores_conditions_is_noticed() -> None:
    with untraced():
        assert any(simulate(seed, conditions_ignored=True).complaints for seed in range(50))
