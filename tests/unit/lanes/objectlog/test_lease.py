"""D3, G4: one owner at a time; the one before can never acknowledge again, however late it is."""

from pathlib import Path

import msgspec
import pytest

from interlock.errors import CorruptionError, Fenced, LaneOwned, OutcomeUnknown, UnavailableError
from interlock.lanes.objectlog import manifest as manifests
from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Denied, Unclear
from interlock.lanes.objectlog.format import decode_entry, encode_entry
from tests.unit.lanes.objectlog.buckets import (
    Fault,
    Owner,
    ScriptedBucket,
    StillClock,
    lost,
    stored_and_lost,
    tag_of,
    told,
)

FAULTS: list[Fault] = [
    lost(ConditionFailed("409")),
    lost(Unclear("EOF")),
    stored_and_lost(ConditionFailed("412")),
    stored_and_lost(Unclear("500")),
]


def manifest_of(bucket: ScriptedBucket) -> manifests.Manifest:
    return manifests.decode(bucket.objects[manifests.KEY])


def kinds(bucket: ScriptedBucket) -> str:
    """The log as letters: F for a fence, g for a group."""
    entries = [decode_entry(bucket.objects[key], key) for key in bucket.keys("log/")]
    return "".join("F" if entry.kind == "fence" else "g" for entry in entries)


def test_every_open_takes_a_new_epoch_and_writes_a_fence(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    for number in range(3):
        owner = Owner(bucket, tmp_path / "a", number)
        owner.run("INSERT INTO t (b) VALUES (?)", number)
        assert manifest_of(bucket).epoch == number + 1
        owner.close()
    assert kinds(bucket) == "FggFgFg"
    assert manifest_of(bucket).owner is None


def test_an_owner_that_was_replaced_never_acknowledges_again(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    old = Owner(bucket, tmp_path / "a", 1)
    old.run("INSERT INTO t (b) VALUES ('old')")
    new = Owner(bucket, tmp_path / "b", 2)
    assert new.rows() == [(1, "old")]
    with pytest.raises(Fenced, match=r"taken over .*epoch 2"):
        old.run("INSERT INTO t (b) VALUES ('late')")
    new.run("INSERT INTO t (b) VALUES ('new')")
    with pytest.raises(Fenced):
        old.run("INSERT INTO t (b) VALUES ('later')")
    new.close()
    assert Owner(bucket, tmp_path / "c", 3).rows() == [(1, "old"), (2, "new")]


def test_an_append_that_was_faster_than_the_fence_counts(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    old = Owner(bucket, tmp_path / "a", 1)

    def old_one_is_faster(bucket: ScriptedBucket, _call: str, _key: str, _data: bytes) -> None:
        bucket.faults = []
        old.run("INSERT INTO t (b) VALUES ('just in time')")

    bucket.faults = [None, old_one_is_faster]  # The manifest's swap passes, then comes the fence.
    new = Owner(bucket, tmp_path / "b", 2)
    assert new.rows() == [(1, "just in time")]
    assert kinds(bucket) == "FggF"


def test_a_faster_third_owner_fences_the_second(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    Owner(bucket, tmp_path / "a", 1)
    third: list[Owner] = []

    def a_third_one_comes(bucket: ScriptedBucket, _call: str, _key: str, _data: bytes) -> None:
        bucket.faults = []
        third.append(Owner(bucket, tmp_path / "c", 3))

    bucket.faults = [None, a_third_one_comes]
    with pytest.raises(Fenced, match="epoch 3"):
        Owner(bucket, tmp_path / "b", 2)
    third[0].run("INSERT INTO t (b) VALUES (1)")


def test_the_manifest_is_read_again_behind_the_fence(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    Owner(bucket, tmp_path / "a", 1)

    def epoch_moves_on(bucket: ScriptedBucket, _call: str, _key: str, _data: bytes) -> None:
        other = msgspec.structs.replace(manifest_of(bucket), epoch=9, nonce="other")
        bucket.objects[manifests.KEY] = msgspec.json.encode(other)

    bucket.faults = [None, epoch_moves_on]
    with pytest.raises(Fenced, match="epoch 9"):
        Owner(bucket, tmp_path / "b", 2)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(4))
def test_an_unclear_answer_at_any_point_of_opening_is_resolved(tmp_path: Path, fault: Fault, at: int) -> None:
    bucket = ScriptedBucket()
    first = Owner(bucket, tmp_path / "a", 1)
    first.run("INSERT INTO t (b) VALUES ('kept')")
    first.close()
    bucket.faults = [*[None] * at, fault]
    second = Owner(bucket, tmp_path / "b", 2)
    second.run("INSERT INTO t (b) VALUES ('more')")
    second.close()
    assert Owner(bucket, tmp_path / "c", 3).rows() == [(1, "kept"), (2, "more")]


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unclear_answer_while_the_manifest_is_made_is_resolved(tmp_path: Path, fault: Fault) -> None:
    bucket = ScriptedBucket()
    bucket.faults = [fault]
    Owner(bucket, tmp_path / "a", 1).run("INSERT INTO t (b) VALUES (1)")
    assert manifest_of(bucket).epoch == 1


def test_a_living_owner_is_named(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    first = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=10)
    pause = clock.pause

    def pause_and_let_it_work(seconds: float) -> None:
        pause(seconds)
        first.run("INSERT INTO t (b) VALUES (1)")

    clock.pause = pause_and_let_it_work  # type: ignore[method-assign]
    with pytest.raises(LaneOwned, match=r"owned by process \d+ on host .*renewed"):
        Owner(bucket, tmp_path / "b", 2, clock=clock)
    clock.pause = pause  # type: ignore[method-assign]
    first.run("INSERT INTO t (b) VALUES (2)")


def test_a_silent_owner_is_replaced_after_its_lease_by_our_own_clock(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    Owner(bucket, tmp_path / "a", 1, lease_s=10)
    begun_s = clock.now_s
    Owner(bucket, tmp_path / "b", 2, clock=clock)
    assert 10 <= clock.now_s - begun_s < 12


def test_an_owner_that_gave_the_lane_up_is_not_waited_for(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    Owner(bucket, tmp_path / "a", 1).close()
    begun_s = clock.now_s
    Owner(bucket, tmp_path / "b", 2, clock=clock)
    assert clock.now_s == begun_s


def test_the_same_local_file_means_that_the_owner_before_is_gone(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    Owner(bucket, tmp_path / "a", 1).connection.close()
    begun_s = clock.now_s
    Owner(bucket, tmp_path / "a", 2, clock=clock)
    assert clock.now_s == begun_s


def test_a_lease_is_renewed_while_there_is_work_and_read_before_it_is_trusted(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9)
    revision = manifest_of(bucket).revision
    clock.now_s += 2
    owner.run("INSERT INTO t (b) VALUES (1)")
    assert manifest_of(bucket).revision == revision
    clock.now_s += 2
    owner.run("INSERT INTO t (b) VALUES (1)")
    assert manifest_of(bucket).revision == revision + 1
    assert owner.log.is_current()
    clock.now_s += 9
    assert not owner.log.is_current()
    owner.log.renew()
    assert owner.log.is_current()
    assert manifest_of(bucket).revision == revision + 2


def test_an_idle_owner_that_was_replaced_notices_before_it_shows_anything(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    old = Owner(bucket, tmp_path / "a", 1, clock=clock)
    Owner(bucket, tmp_path / "b", 2)
    clock.now_s += 60
    assert not old.log.is_current()
    with pytest.raises(Fenced):
        old.log.renew()


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unclear_renewal_is_resolved(tmp_path: Path, fault: Fault) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock)
    clock.now_s += 60
    bucket.faults = [fault]
    owner.run("INSERT INTO t (b) VALUES (1)")
    clock.now_s += 60
    owner.run("INSERT INTO t (b) VALUES (2)")
    assert len(owner.rows()) == 2


def test_a_change_that_was_given_up_and_landed_later_is_built_upon(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, append_deadline_s=5)
    late: list[bytes] = []
    bucket.faults = [told(late, lost(Unclear("hang")))] * 100
    clock.now_s += 60
    with pytest.raises(OutcomeUnknown):
        owner.log.renew()
    bucket.faults = []
    bucket.objects[manifests.KEY] = late[0]
    owner.log.renew()
    owner.run("INSERT INTO t (b) VALUES (1)")
    assert manifest_of(bucket).revision == 3


def test_a_manifest_that_is_gone_or_went_back_stops_the_lane(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock)
    kept = bucket.objects.pop(manifests.KEY)
    clock.now_s += 60
    with pytest.raises(CorruptionError, match="deleted"):
        owner.log.renew()
    bucket.objects[manifests.KEY] = kept
    other = Owner(bucket, tmp_path / "b", 2, clock=clock)
    bucket.objects[manifests.KEY] = kept
    clock.now_s += 60
    with pytest.raises(CorruptionError, match="went back from epoch 2 to 1"):
        other.log.renew()


@pytest.mark.parametrize("body", [b"", b"{}", b"not json", b'{"format": 2}'])
def test_a_manifest_that_cannot_be_read_is_corruption(tmp_path: Path, body: bytes) -> None:
    bucket = ScriptedBucket()
    bucket.objects[manifests.KEY] = body
    with pytest.raises(CorruptionError, match="manifest cannot be used"):
        Owner(bucket, tmp_path / "a", 1)


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    Owner(bucket, tmp_path / "a", 1).close()
    newer = msgspec.structs.replace(manifest_of(bucket), format=2)
    bucket.objects[manifests.KEY] = msgspec.json.encode(newer)
    with pytest.raises(CorruptionError, match="version 2"):
        Owner(bucket, tmp_path / "a", 2)


@pytest.mark.parametrize("error", [Unclear("no route to host"), Denied("403 Forbidden")])
def test_a_bucket_that_does_not_answer_is_an_error_for_people(tmp_path: Path, error: BucketError) -> None:
    bucket = ScriptedBucket()
    bucket.unreadable = [error]
    with pytest.raises(UnavailableError, match=str(error)) as caught:
        Owner(bucket, tmp_path / "a", 1)
    assert "credentials" in caught.value.fix


def test_no_two_bodies_of_the_manifest_are_the_same(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock)
    tags = set[str]()
    for _ in range(20):
        clock.now_s += 60
        owner.log.renew()
        tags.add(tag_of(bucket.objects[manifests.KEY]))
    assert len(tags) == 20


def test_a_foreign_object_of_our_own_epoch_is_corruption(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = Owner(bucket, tmp_path / "a", 1)
    last = bucket.keys("log/")[-1]
    bucket.objects[f"log/{int(last[4:]) + 1:020d}"] = bucket.objects[last]
    with pytest.raises(CorruptionError, match="not by this owner"):
        owner.run("INSERT INTO t (b) VALUES (1)")


def test_a_slot_of_ours_that_was_collected_and_filled_by_a_late_fence_is_unknown(tmp_path: Path) -> None:
    """The append landed unheard, was replayed and collected, and a fence that was late took its place."""
    bucket, folder = ScriptedBucket(), tmp_path
    old = Owner(bucket, folder / "a", 1, append_deadline_s=5)
    new: list[Owner] = []

    def unheard(bucket: ScriptedBucket, _call: str, key: str, data: bytes) -> None:
        bucket.store(key, data)
        new.append(Owner(bucket, folder / "b", 2, snapshot_bytes_min=4_096, snapshots_retained=1, retention_s=0))
        for number in range(5):
            new[0].run("INSERT INTO t (b) VALUES (?)", number)
            new[0].log.run_upkeep()
        assert key not in bucket.objects, "it was not collected: this test shows nothing"
        first = decode_entry(bucket.objects[bucket.keys("log/")[0]], "x")
        fence = first._replace(seq=int(key[4:]), epoch=2, kind="fence")
        bucket.objects[key] = encode_entry(fence)
        raise Unclear("EOF")

    bucket.faults = [unheard]
    with pytest.raises(OutcomeUnknown, match="taken over"):
        old.run("INSERT INTO t (b) VALUES ('unheard')")
    assert (1, "unheard") in new[0].rows()


def test_a_log_without_its_manifest_is_not_begun_anew(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    Owner(bucket, tmp_path / "a", 1).close()
    del bucket.objects[manifests.KEY]
    before = dict(bucket.objects)
    with pytest.raises(CorruptionError, match="it is missing, although there is a log"):
        Owner(bucket, tmp_path / "b", 2)
    assert bucket.objects == before


def test_giving_the_lane_up_is_one_request(tmp_path: Path) -> None:
    """An outage must not make closing long; the lease runs out by itself."""
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock)
    bucket.calls.clear()
    bucket.faults = [lost(Unclear("no route to host"))] * 10
    begun_s = clock.now_s
    owner.close()
    assert [call for call, _ in bucket.calls] == ["replace"]
    assert clock.now_s == begun_s
