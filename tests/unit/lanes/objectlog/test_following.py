"""A lane in a bucket is left: a copy follows its log, the lease is shortened, and the mover takes it over alive."""

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from interlock.clock import SystemClock
from interlock.errors import CorruptionError, Fenced, LaneOwned, MovedElsewhere, TargetNotFound, UnavailableError
from interlock.lanes.handover import Arrived, Draft, Permission, Tombstone, tombstone_of
from interlock.lanes.lane import Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import log as objectlog_log
from interlock.lanes.objectlog import manifest as manifests
from interlock.lanes.objectlog.bucket_protocol import Environment, Unclear
from interlock.lanes.objectlog.format import log_key
from interlock.lanes.objectlog.lease import MOVER_LEASE_S, LaneLease
from interlock.lanes.objectlog.log import open_log
from interlock.lanes.objectlog.manifest import Manifest, manifest_at
from interlock.lanes.objectlog.snapshots import with_snapshot
from interlock.relocate import bucket_lane
from interlock.relocate.bucket_lane import HURRIED_LEASE_S, BucketCopy, ask_for, hurry, note_left, take_over, unhurry
from interlock.urls import BucketAddress, parse_bucket_url
from tests.unit.lanes.lanes import SetClock, count, increment, make_counter, run
from tests.unit.lanes.movers import THERE
from tests.unit.lanes.objectlog.buckets import (
    Fault,
    Owner,
    ScriptedBucket,
    StillClock,
    lost,
    still_world,
    stored_and_lost,
)
from tests.unit.lanes.objectlog.histories import NAME, History, examined, restore_from

LEASE_S = 0.2


def prepare(_connection: apsw.Connection, _now: Callable[[], int]) -> None:
    """Nothing is needed."""


def copy_of(bucket: ScriptedBucket, folder: Path) -> BucketCopy:
    return BucketCopy(NAME, folder / "mover", clock=SetClock(), prepare=prepare, bucket=bucket)


def rows_in(copy: BucketCopy) -> list[tuple[object, ...]]:
    return copy.connection().execute("SELECT a, b FROM t ORDER BY a").fetchall()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> ScriptedBucket:
    """What is behind every address."""
    made = ScriptedBucket()

    def found(_address: BucketAddress, **_options: object) -> ScriptedBucket:
        return made

    monkeypatch.setattr(objectlog_log, "open_proven", found)
    monkeypatch.setattr(objectlog_log, "open_bucket", found)
    return made


def opened(path: Path, permission: Permission = None) -> Lane:
    settings = LaneSettings(lease_s=LEASE_S)
    path.parent.mkdir(exist_ok=True)
    log = objectlog_log.log_opener(parse_bucket_url(NAME), settings=settings, clock=SystemClock())
    return Lane(path, settings=settings, clock=SystemClock(), prepare=prepare, open_log=log, permission=permission)


def taken(path: Path, short_s: float = math.inf) -> Lane:
    path.parent.mkdir(exist_ok=True)
    return take_over(
        NAME, path, settings=LaneSettings(lease_s=LEASE_S), clock=SystemClock(), prepare=prepare, short_s=short_s
    )


def manifest_of(bucket: ScriptedBucket) -> Manifest:
    return manifests.decode(bucket.objects[manifests.KEY])


def test_a_copy_follows_the_log_and_reads_only_what_is_new(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.insert(40)
    copy = copy_of(history.bucket, tmp_path)
    for _ in range(3):
        assert copy.forward() == history.last
        assert rows_in(copy) == history.states[history.last]
        history.insert(2)
        history.bucket.calls.clear()
        before = history.last
        copy.forward()
        read = {key for call, key in history.bucket.calls if call == "get" and key.startswith(("log/", "snapshot/"))}
        assert log_key(before) in read
        assert log_key(before - 2) not in read
        assert not {key for key in read if key.startswith("snapshot/")}
    assert copy.forward() == history.last, "nothing is new"
    copy.close()
    assert not copy.path.exists()


def test_a_copy_begins_anew_when_what_it_needs_was_collected(tmp_path: Path) -> None:
    history = History(tmp_path, snapshots_kept=1)
    history.insert(3)
    copy = copy_of(history.bucket, tmp_path)
    early = copy.forward()
    while history.manifest.collected <= early:
        history.insert(10)
    assert copy.forward() == history.last
    assert rows_in(copy) == history.states[history.last]
    copy.close()


def test_a_copy_does_not_read_what_is_just_being_collected(tmp_path: Path) -> None:
    """The owner has raised the floor, and is deleting: `collected` still has its old value."""
    history = History(tmp_path, snapshots_kept=1)
    history.insert(3)
    copy = copy_of(history.bucket, tmp_path)
    early = copy.forward()
    while history.manifest.kept <= early + 4:
        history.insert()
    history.change_manifest(collected=0)
    history.bucket.objects.pop(log_key(early + 1), None)
    history.bucket.objects[log_key(early + 2)] = history.bucket.objects[log_key(history.last)]
    assert copy.forward() == history.last
    assert rows_in(copy) == history.states[history.last]
    copy.close()


def test_what_is_collected_while_it_is_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(tmp_path, snapshots_kept=1)
    history.insert(3)
    copy = copy_of(history.bucket, tmp_path)
    looks: list[int] = []

    def late(bucket: ScriptedBucket, name: str) -> Manifest:
        found = manifest_at(bucket, name)
        looks.append(found.kept)
        if len(looks) == 1:
            while history.manifest.collected <= 5:
                history.insert(10)
        return found

    monkeypatch.setattr(bucket_lane, "manifest_at", late)
    assert copy.forward() == history.last
    assert len(looks) == 2
    monkeypatch.setattr(bucket_lane, "history_changed", lambda _bucket, _before: True)
    history.flip(log_key(history.last))
    history.flip(log_key(history.manifest.floor + 1))
    copy._at = None
    with pytest.raises(UnavailableError, match="5 times"):
        copy.forward()
    monkeypatch.undo()
    with pytest.raises(CorruptionError):
        copy.forward()


def test_there_must_be_a_database(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    copy = copy_of(bucket, tmp_path)
    with pytest.raises(TargetNotFound):
        copy.forward()
    with pytest.raises(TargetNotFound):
        hurry(NAME, clock=SetClock(), bucket=bucket)
    copy.keep()
    copy.close()


def test_a_living_owner_is_replaced_at_once_and_the_old_place_leads_on(tmp_path: Path, bucket: ScriptedBucket) -> None:
    async def main() -> None:
        owner = opened(tmp_path / "owner" / "x")
        await make_counter(owner)
        copy = BucketCopy(NAME, tmp_path / "mover", clock=SystemClock(), prepare=prepare)
        copy.forward()
        await owner.run(increment())
        short_s = hurry(NAME, clock=SystemClock()).short_s
        await owner.run(increment())
        bucket.calls.clear()
        lane = taken(copy.keep(), short_s)
        read = {key for call, key in bucket.calls if call == "get"}
        assert log_key(2) not in read, "the copy was used: only what came since was read"
        with pytest.raises(Fenced) as caught:
            await owner.run(increment())
        assert caught.value.retry == "now"
        owner.close()
        assert await count(lane) == 2
        await lane.leave(Tombstone(THERE, 7, 5))
        lane.close()
        for last in (False, True):  # By the tombstone in the log, and by the manifest's word.
            if last:
                note_left(NAME, Tombstone(THERE, 7, 5), clock=SystemClock())
                bucket.calls.clear()
            for path in (tmp_path / "owner" / "x", tmp_path / "new" / "x"):
                with pytest.raises(MovedElsewhere) as moved:
                    opened(path)
                assert (moved.value.url, moved.value.epoch) == (THERE, 7)
                assert manifest_of(bucket).owner is None, "nobody has to wait for a lease to find out"
        assert {call for call, _ in bucket.calls} == {"get"}, "and nothing is written for it"
        with pytest.raises(MovedElsewhere):
            taken(tmp_path / "late" / "x")
        with pytest.raises(MovedElsewhere):
            restore_from(bucket, tmp_path / "restored.lane")
        assert restore_from(bucket, tmp_path / "restored.lane", at=3).at.seq == 3
        assert "moved" in {finding.code for finding in examined(bucket).findings}
        final = copy_of(bucket, tmp_path)
        final.forward()
        assert tombstone_of(final.connection()) == Tombstone(THERE, 7, 5)
        final.close()

    run(main)


def test_a_mover_that_dies_behind_its_takeover_has_done_nothing(tmp_path: Path, bucket: ScriptedBucket) -> None:
    async def main() -> None:
        owner = opened(tmp_path / "owner" / "x")
        await make_counter(owner)
        mover = taken(tmp_path / "mover" / "x")
        with pytest.raises(Fenced):
            await owner.run(increment())
        owner.close()
        again = opened(tmp_path / "owner" / "x")  # The mover does nothing any more, so its lease runs out.
        assert await again.run(increment()) == 1
        assert await count(again) == 1
        with pytest.raises(Fenced):
            await mover.leave(Tombstone(THERE, 7, 5))
        mover.close()
        assert await again.run(increment()) == 1
        again.close()

    run(main)


def test_nobody_takes_a_living_owners_lane_without_asking_for_it(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    world = still_world(2, clock)

    def renew(seconds: float) -> None:
        clock.pause(seconds)
        owner.run("INSERT INTO t (b) VALUES (1)")

    with pytest.raises(LaneOwned):
        open_log(
            bucket, tmp_path / "b", settings=LaneSettings(), world=dataclasses.replace(world, pause=_each(renew, 4))
        )
    owner.close()


def _each(renew: Callable[[float], None], times: int) -> Callable[[float], None]:
    """Renew in every pause; the lease is renewed after a third of its time."""

    def pause(seconds: float) -> None:
        for _ in range(times):
            renew(seconds)

    return pause


@pytest.mark.parametrize("hurried", ["not", "just now", "long ago", "by another"])
def test_a_takeover_outlasts_the_reads_of_the_owner_before(tmp_path: Path, hurried: str) -> None:
    """The fence stops writes; an owner that does not know of it answers reads until its lease is over."""
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    short_s = math.inf
    if hurried != "not":
        short_s = hurry(NAME, clock=clock, bucket=bucket).short_s
        assert short_s == clock.now_s + 9.0
    if hurried != "just now":
        clock.pause(9.0)
        owner.run("INSERT INTO t (b) VALUES (1)")  # Which renews the lease.
        assert owner.log.manifest.lease_s == (9.0 if hurried == "not" else HURRIED_LEASE_S)
        assert owner.log.is_current()
    began_s = clock.now_s
    log = open_log(
        bucket,
        tmp_path / "b",
        settings=LaneSettings(),
        world=still_world(2, clock),
        short_s=math.inf if hurried == "by another" else short_s,
    )
    assert not owner.log.is_current(), "it asks before it answers, and finds itself replaced"
    waited_s = clock.now_s - began_s
    assert waited_s == pytest.approx(HURRIED_LEASE_S if hurried == "long ago" else 9.0, abs=0.1)
    with pytest.raises(Fenced):
        owner.run("INSERT INTO t (b) VALUES (2)")
    assert log.manifest.lease_before_s == 0.0
    log.close(clean=True)
    owner.close(clean=False)


def test_nothing_is_waited_for_where_nobody_reads(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0).close()
    began_s = clock.now_s
    for number, path in enumerate((tmp_path / "b", tmp_path / "b")):
        log = open_log(bucket, path, settings=LaneSettings(), world=still_world(number + 2, clock), short_s=math.inf)
        if number:
            log.close(clean=True)
    assert clock.now_s == began_s


def test_the_lease_is_what_it_was_when_the_move_is_given_up(tmp_path: Path) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    unhurry(NAME, clock=clock, bucket=bucket)
    first = hurry(NAME, clock=clock, bucket=bucket)
    clock.pause(1.0)
    second = hurry(NAME, clock=clock, bucket=bucket)
    assert second.epoch == first.epoch
    assert second.short_s > first.short_s, "who comes second knows only that it is short"
    owner.run("INSERT INTO t (b) VALUES (1)")
    unhurry(NAME, clock=clock, bucket=bucket)
    clock.pause(9.0)
    owner.run("INSERT INTO t (b) VALUES (1)")
    assert (owner.log.manifest.lease_s, owner.log.manifest.lease_before_s) == (9.0, 0.0)
    owner.close()
    assert hurry(NAME, clock=clock, bucket=bucket).short_s == clock.now_s, "nobody has a lease"


def test_a_change_without_a_clear_answer_is_looked_at(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = Owner(bucket, tmp_path / "a", 1, clock=StillClock(), lease_s=9.0)
    bucket.faults = [lost(Unclear("EOF")), stored_and_lost(Unclear("500"))]
    bucket.unreadable = [Unclear("EOF")]
    hurry(NAME, clock=SystemClock(), bucket=bucket)
    assert manifest_of(bucket).lease_s == HURRIED_LEASE_S
    assert not bucket.faults
    owner.close()


def test_a_snapshot_is_entered_once_although_a_mover_came_between(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.insert(60)
    manifest, [*_, snapshot] = history.manifest, history.manifest.snapshots
    assert with_snapshot(manifest, snapshot, LaneSettings()) == manifest


def test_a_draft_in_a_bucket_is_refused_until_it_has_arrived(tmp_path: Path, bucket: ScriptedBucket) -> None:
    draft = Draft(3, "lanes:///var/shop/stock")
    lane = opened(tmp_path / "mover" / "x", draft)
    asyncio.run(make_counter(lane))
    lane.close()
    with pytest.raises(UnavailableError, match="is arriving"):
        opened(tmp_path / "other" / "x")
    lane = opened(tmp_path / "follower" / "x", Arrived(3))
    lane.close()  # Nothing but the opening was written, and that is in the log, too.
    lane = opened(tmp_path / "other" / "x")
    assert asyncio.run(count(lane)) == 0
    lane.close()
    assert bucket.objects


class Asking:
    """An owner that finds in every pause of the mover what is done there."""

    def __init__(self, clock: StillClock, during: Callable[[], object]) -> None:
        self.clock = clock
        self._during = during

    def environment(self, *, clock: StillClock) -> Environment:
        """Stand in for `Environment`, of which the mover makes one."""

        def pause(seconds: float) -> None:
            clock.pause(seconds)
            self._during()

        return dataclasses.replace(still_world(7, clock), pause=pause, boot="this machine")


def asked(
    bucket: ScriptedBucket, path: Path, clock: StillClock, during: Callable[[], object], patch: pytest.MonkeyPatch
) -> float | None:
    path.parent.mkdir(exist_ok=True)
    with patch.context() as patched:
        patched.setattr(bucket_lane, "Environment", Asking(clock, during).environment)
        return ask_for(NAME, path, clock=clock, bucket=bucket)


def test_an_owner_that_is_asked_stops_between_two_groups_and_its_file_stays_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2, G4, G7: nothing is refused, nothing is answered any more, and nobody waits for a lease."""
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    ended: list[float] = []

    def work() -> None:
        if not ended:
            owner.run("INSERT INTO t (b) VALUES (1)")
            with contextlib.suppress(Fenced):
                owner.log.run_upkeep()
                return
            ended.append(clock.now_s)

    clock.pause(9.0)  # The next group renews the lease.
    mine = tmp_path / "b" / "x.lane"
    handed_over_s = asked(bucket, mine, clock, work, monkeypatch)
    assert handed_over_s is not None
    assert not owner.log.is_current(), "it answers no read"
    assert (manifest_of(bucket).handover_to, manifest_of(bucket).lease_s) == (None, MOVER_LEASE_S)
    owner.close()
    began_s = clock.now_s
    world = dataclasses.replace(still_world(2, clock), boot="this machine")
    log = open_log(bucket, mine, settings=LaneSettings(), world=world, short_s=math.inf)
    assert clock.now_s == began_s, "the lease of a live owner is not waited for"
    with pytest.raises(Fenced):
        owner.log.renew()
    log.close(clean=True)
    bucket.calls.clear()
    again = Owner(bucket, tmp_path / "a", 3, clock=clock)
    read = {key for call, key in bucket.calls if call == "get" and key.startswith(("log/", "snapshot/"))}
    assert log_key(1) not in read, "its file was used again"
    assert again.rows() == [(1, 1)]
    again.close()


@pytest.mark.parametrize("release", ["this", "before"])
def test_an_owner_that_does_not_answer_is_not_waited_for_longer_than_its_lease(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle owner is silent. One of an earlier release renews its lease, and does not know that it is asked."""
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)

    def renew() -> None:
        if release == "before":
            renewed = manifests.next_revision(manifest_of(bucket), still_world(5))
            bucket.objects[manifests.KEY] = msgspec.json.encode(msgspec.structs.replace(renewed, handover_to=None))

    began_s = clock.now_s
    assert asked(bucket, tmp_path / "b" / "x.lane", clock, renew, monkeypatch) is None
    assert clock.now_s - began_s == pytest.approx(9.0 if release == "this" else 0.0, abs=0.1)
    assert manifest_of(bucket).owner == owner.log.manifest.owner
    owner.close()


def test_an_owner_that_is_not_asked_any_more_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    assert asked(bucket, tmp_path / "b" / "x.lane", clock, lambda: None, monkeypatch) is None
    owner.run("INSERT INTO t (b) VALUES (1)")
    assert owner.log.manifest.handover_to is not None
    unhurry(NAME, clock=clock, bucket=bucket)
    owner.log.run_upkeep()
    owner.run("INSERT INTO t (b) VALUES (2)")
    assert owner.log.is_current()
    assert manifest_of(bucket).owner == owner.log.manifest.owner
    owner.close()


@pytest.mark.parametrize("answer", [lost(Unclear("EOF")), stored_and_lost(Unclear("500"))])
def test_a_hand_over_without_a_clear_answer_is_looked_at(
    answer: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    assert asked(bucket, tmp_path / "b" / "x.lane", clock, lambda: None, monkeypatch) is None
    owner.run("INSERT INTO t (b) VALUES (1)")
    bucket.faults = [answer]
    with pytest.raises(Fenced):
        owner.log.run_upkeep()
    holder = manifest_of(bucket).owner
    assert holder is not None
    assert holder.mover
    owner.close()
    assert manifest_of(bucket).owner == holder, "what is the mover's is not released"


def test_a_lane_that_a_mover_asks_for_hands_it_over_and_opens_again_with_its_file(
    tmp_path: Path, bucket: ScriptedBucket
) -> None:
    async def main() -> None:
        owner = opened(tmp_path / "owner" / "x")
        await make_counter(owner)
        mine = tmp_path / "mover" / "x"
        mine.parent.mkdir()
        asking = asyncio.create_task(asyncio.to_thread(ask_for, NAME, mine, clock=SystemClock()))
        acknowledged = await _until_fenced(owner)
        assert await asking is not None
        lane = taken(mine)
        owner.close()
        assert await count(lane) == acknowledged
        lane.close()
        bucket.calls.clear()
        again = opened(tmp_path / "owner" / "x")
        read = {key for call, key in bucket.calls if call == "get" and key.startswith(("log/", "snapshot/"))}
        assert log_key(2) not in read, "its file was used again"
        assert await count(again) == acknowledged
        again.close()

    run(main)


async def _until_fenced(lane: Lane) -> int:
    """Increment until it is fenced; return how often that was acknowledged."""
    acknowledged = 0
    with contextlib.suppress(Fenced):
        while await lane.run(increment()):
            acknowledged += 1
    return acknowledged


def test_an_idle_lane_that_was_replaced_refuses_before_it_writes_and_keeps_its_file(
    tmp_path: Path, bucket: ScriptedBucket
) -> None:
    async def main() -> None:
        owner = opened(tmp_path / "owner" / "x")
        await make_counter(owner)
        lane = taken(tmp_path / "mover" / "x")  # It has waited for the owner's lease.
        with pytest.raises(Fenced):
            await owner.run(increment())
        owner.close()
        lane.close()
        bucket.calls.clear()
        again = opened(tmp_path / "owner" / "x")
        assert log_key(2) not in {key for call, key in bucket.calls if call == "get"}, "its file was used again"
        assert await count(again) == 0
        again.close()

    run(main)


def test_a_group_that_was_refused_by_the_fence_does_not_come_back_with_the_file(
    tmp_path: Path, bucket: ScriptedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G4: it was committed in the local file, which is ahead of the log then."""

    async def main() -> None:
        owner = opened(tmp_path / "owner" / "x")
        await make_counter(owner)
        taken(tmp_path / "mover" / "x").close()
        monkeypatch.setattr(LaneLease, "renew_if_due", lambda _lease: None)
        with pytest.raises(Fenced):
            await owner.run(increment())
        owner.close()
        again = opened(tmp_path / "owner" / "x")
        assert await count(again) == 0
        again.close()

    run(main)


def test_a_mover_that_dies_after_the_hand_over_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane rests until the mover's lease has run out. Then the owner before opens it again, with its own file."""
    bucket, clock = ScriptedBucket(), StillClock()
    owner = Owner(bucket, tmp_path / "a", 1, clock=clock, lease_s=9.0)
    assert asked(bucket, tmp_path / "b" / "x.lane", clock, lambda: None, monkeypatch) is None
    owner.run("INSERT INTO t (b) VALUES (1)")
    with pytest.raises(Fenced):
        owner.log.run_upkeep()
    owner.close()
    began_s = clock.now_s
    again = Owner(bucket, tmp_path / "a", 3, clock=clock)
    assert clock.now_s - began_s == pytest.approx(MOVER_LEASE_S, abs=0.1)
    again.run("INSERT INTO t (b) VALUES (2)")
    assert again.rows() == [(1, 1), (2, 2)]
    again.close()
