"""D3, G2, G6: snapshots are the database byte for byte, and what is collected is never needed again."""

from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import msgspec
import pytest

from interlock.errors import Fenced
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import snapshots
from interlock.lanes.objectlog.bucket_protocol import Denied, Unclear
from interlock.lanes.objectlog.format import decode_entry, decode_part, log_key
from interlock.lanes.objectlog.local_file import Cache
from interlock.lanes.objectlog.manifest import KEY, LaneSnapshot, Manifest, decode
from tests.unit.lanes.objectlog.buckets import Owner, ScriptedBucket, StillClock, lost


def manifest_of(bucket: ScriptedBucket) -> Manifest:
    return decode(bucket.objects[KEY])


def busy(bucket: ScriptedBucket, folder: Path, groups: int, **knobs: float) -> Owner:
    owner = Owner(bucket, folder, 1, clock=None, boot="this machine", **knobs)
    for number in range(groups):
        owner.run("INSERT INTO t (b) VALUES (?)", f"row {number} " * 30)
        owner.log.run_upkeep()
    return owner


def snapshot_at(seq: int, time_us: int = 0) -> LaneSnapshot:
    return LaneSnapshot(seq=seq, hash="00", nonce="00", parts=1, pages=1, page_bytes=512, bytes=100, time_us=time_us)


EMPTY = Manifest(database="00", revision=1, nonce="0", epoch=1, owner=None, lease_s=1.0)


def test_a_snapshot_is_what_replay_would_have_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", 8_192)
    bucket = ScriptedBucket()
    owner = busy(bucket, tmp_path / "a", 100, snapshot_bytes_min=200_000, snapshots_retained=99, retention_s=1e6)
    for snapshot in owner.log.manifest.snapshots:
        replayed = Cache(tmp_path / f"replayed-{snapshot.seq}")
        for seq in range(1, snapshot.seq + 1):
            replayed.apply(decode_entry(bucket.objects[log_key(seq)], "x"))
        keys = [key for key in bucket.keys("snapshot/") if snapshot.nonce in key]
        assert len(keys) == snapshot.parts > 1
        data = b"".join(decode_part(bucket.objects[key], key).data for key in keys)
        assert data == replayed.path.read_bytes()


def test_recovery_begins_at_the_newest_snapshot_and_costs_no_more_than_the_log_behind_it(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = busy(bucket, tmp_path / "a", 60, snapshot_bytes_min=65_536)
    rows, floor = owner.rows(), owner.log.manifest.floor
    assert floor > 30
    bucket.calls.clear()
    assert Owner(bucket, tmp_path / "b", 2).rows() == rows
    assert min(key for call, key in bucket.calls if call == "get" and key.startswith("log/")) == log_key(floor + 1)


def test_groups_that_the_history_no_longer_needs_are_deleted_and_fences_are_not(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    for number in range(6):
        owner = Owner(
            bucket, tmp_path / "a", number + 1, snapshot_bytes_min=16_384, snapshots_retained=1, retention_s=0
        )
        for row in range(10):
            owner.run("INSERT INTO t (b) VALUES (?)", row)
            owner.log.run_upkeep()
        owner.close()
    manifest = manifest_of(bucket)
    kinds = {int(key[4:]): decode_entry(bucket.objects[key], key).kind for key in bucket.keys("log/")}
    below = [kind for seq, kind in kinds.items() if seq <= manifest.collected]
    assert manifest.collected > 30
    assert set(below) == {"fence"}
    assert sum(kind == "fence" for kind in kinds.values()) == 6
    assert len(bucket.keys("snapshot/")) <= 2
    assert len(Owner(bucket, tmp_path / "b", 9).rows()) == 60


def test_the_history_is_kept_for_as_long_as_the_retention_says() -> None:
    settings = LaneSettings(snapshots_retained=2, retention_s=100)
    manifest = EMPTY
    for minute in range(0, 600, 60):
        manifest = snapshots.with_snapshot(manifest, snapshot_at(minute + 1, minute * 1_000_000), settings)
    kept = [each.time_us // 1_000_000 for each in manifest.snapshots]
    assert kept == [420, 480, 540], "from 440 on everything can be restored, which needs the snapshot before that"
    assert manifest.kept == 421


def test_the_beginning_of_the_log_is_kept_until_a_snapshot_covers_the_retention() -> None:
    settings = LaneSettings(snapshots_retained=1, retention_s=100)
    manifest = snapshots.with_snapshot(EMPTY, snapshot_at(50, 0), settings)
    assert manifest.kept == 0
    manifest = snapshots.with_snapshot(manifest, snapshot_at(90, 99_000_000), settings)
    assert (manifest.kept, [each.seq for each in manifest.snapshots]) == (0, [50, 90])
    manifest = snapshots.with_snapshot(manifest, snapshot_at(95, 100_000_000), settings)
    assert (manifest.kept, [each.seq for each in manifest.snapshots]) == (50, [50, 90, 95])


def test_as_many_snapshots_as_were_asked_for_are_kept_however_old() -> None:
    settings = LaneSettings(snapshots_retained=3, retention_s=0)
    manifest = EMPTY
    for number in range(10):
        manifest = snapshots.with_snapshot(manifest, snapshot_at(number + 1, number * 10**9), settings)
    assert [each.seq for each in manifest.snapshots] == [8, 9, 10]


def test_the_list_of_snapshots_is_bounded_and_keeps_its_ends() -> None:
    settings = LaneSettings(snapshots_retained=1, retention_s=1e9)
    manifest = EMPTY
    for number in range(300):
        manifest = snapshots.with_snapshot(manifest, snapshot_at(number + 1), settings)
    assert len(manifest.snapshots) == snapshots.SNAPSHOTS_MAX
    assert (manifest.snapshots[0].seq, manifest.floor) == (1, 300)


def test_a_snapshot_is_due_when_replay_costs_more() -> None:
    settings = LaneSettings(snapshot_bytes_min=1_000_000)
    assert not snapshots.snapshot_due(EMPTY, 100, 0, settings)
    assert snapshots.snapshot_due(EMPTY, 250, 0, settings)
    assert snapshots.snapshot_due(EMPTY, 1, 1_000_000, settings)
    large = msgspec.structs.replace(EMPTY, snapshots=(msgspec.structs.replace(snapshot_at(1), bytes=10_000_000),))
    assert not snapshots.snapshot_due(large, 250, 1_000_000, settings), (
        "a large snapshot is not made anew for a short log"
    )


def test_a_snapshot_that_fails_harms_nobody_and_is_tried_again(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, snapshot_bytes_min=16_384)
    for number in range(30):
        owner.run("INSERT INTO t (b) VALUES (?)", number)
        clock.now_s += 1
        bucket.faults = [lost(Unclear("503"))] if number < 15 else []
        owner.log.run_upkeep()
    assert owner.log.manifest.snapshots
    assert owner.log.upkeep_failed > 0
    owner.close()
    assert len(Owner(bucket, tmp_path / "b", 2).rows()) == 30


def test_an_owner_that_was_replaced_changes_nothing_with_its_upkeep(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    old = Owner(bucket, tmp_path / "a", 1, snapshot_bytes_min=4_096)
    old.run("INSERT INTO t (b) VALUES ('x')")
    old.log.run_upkeep()
    new = Owner(bucket, tmp_path / "b", 2)
    with pytest.raises(Fenced):
        old.log.run_upkeep()
    assert not manifest_of(bucket).snapshots
    new.run("INSERT INTO t (b) VALUES ('y')")


def test_leftovers_of_snapshots_that_nobody_knows_are_dropped(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    bucket.objects["snapshot/00000000000000000001-abcd/000000"] = b"left over"
    owner = busy(bucket, tmp_path / "a", 40, snapshot_bytes_min=16_384, snapshots_retained=1, retention_s=0)
    assert "snapshot/00000000000000000001-abcd/000000" not in bucket.objects
    owner.close()


def test_a_snapshot_shows_the_moment_it_was_begun(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = busy(bucket, tmp_path / "a", 3)
    source = snapshots.begin(owner.path, owner.log.position, owner.log._page_one)
    owner.run("INSERT INTO t (b) VALUES ('later')")
    snapshot = snapshots.store(bucket, owner.log._world, owner.log.manifest, source)
    assert snapshot.seq == owner.log.position.seq - 1
    loaded = Cache(tmp_path / "loaded")
    loaded.load(bucket, owner.log.manifest, snapshot)
    connection = apsw.Connection(str(loaded.path))
    assert connection.execute("SELECT count(*) FROM t").get == 3
    connection.close()


def test_work_that_runs_beside_is_finished_by_the_driver(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = Owner(bucket, tmp_path / "a", 1, snapshot_bytes_min=4_096)
    waiting: list[Callable[[], None]] = []

    def beside(work: Callable[[], None]) -> Callable[[], None]:
        waiting.append(work)
        return work

    kept = owner.log._upkeep
    world = kept._world
    kept._world = type(world)(
        clock=world.clock,
        chance=world.chance,
        ids=world.ids,
        pause=world.pause,
        beside=beside,
    )
    owner.run("INSERT INTO t (b) VALUES ('x')")
    owner.log.run_upkeep()
    owner.log.run_upkeep()
    assert not owner.log.manifest.snapshots
    [work] = waiting
    work()
    assert not manifest_of(bucket).snapshots
    owner.log.run_upkeep()
    assert manifest_of(bucket).snapshots
    owner.close()
    assert manifest_of(bucket).owner is None


def test_a_lane_that_is_closed_waits_for_one_part_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", 4_096)
    bucket = ScriptedBucket()
    owner = busy(bucket, tmp_path / "a", 20)
    source = snapshots.begin(owner.path, owner.log.position, owner.log._page_one)
    stored: list[str] = []
    bucket.faults = [lambda _bucket, _call, key, _data: stored.append(key)] * 100
    with pytest.raises(Unclear, match="being closed"):
        snapshots.store(bucket, owner.log._world, owner.log.manifest, source, lambda: bool(stored))
    assert len(stored) == 1


def test_the_read_transaction_ends_before_anything_is_sent(tmp_path: Path) -> None:
    """G6: while it is open SQLite cannot start its log anew, and an upload may take minutes."""
    bucket = ScriptedBucket()
    owner = busy(bucket, tmp_path / "a", 3)
    source = snapshots.begin(owner.path, owner.log.position, owner.log._page_one)

    def sent(_bucket: ScriptedBucket, _call: str, _key: str, _data: bytes) -> None:
        with pytest.raises(apsw.ConnectionClosedError):
            source.connection.execute("SELECT 1")

    bucket.faults = [sent]
    snapshots.store(bucket, owner.log._world, owner.log.manifest, source)
    assert not bucket.faults, "nothing was sent: this test shows nothing"


def test_a_collection_that_fails_keeps_no_snapshot_from_being_taken(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    knobs: dict[str, float] = {"snapshot_bytes_min": 16_384, "snapshots_retained": 1, "retention_s": 0}
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, boot="this machine", **knobs)

    def denied(keys: Sequence[str]) -> None:
        bucket.calls.append(("delete", ""))
        raise Denied("403")

    bucket.delete = denied  # type: ignore[method-assign]
    for number in range(200):
        owner.run("INSERT INTO t (b) VALUES (?)", number)
        clock.now_s += 1
        owner.log.run_upkeep()
    assert owner.log.manifest.floor > 150
    assert owner.log.upkeep_failed == sum(call == "delete" for call, _ in bucket.calls) <= 200 / snapshots.AGAIN_AFTER_S


def test_parts_of_snapshots_that_were_thinned_out_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 3)
    bucket = ScriptedBucket()
    owner = busy(bucket, tmp_path / "a", 80, snapshot_bytes_min=16_384, retention_s=1e9)
    owner.log.run_upkeep()
    assert owner.log.manifest.kept == 0
    assert len(bucket.keys("snapshot/")) <= 4
