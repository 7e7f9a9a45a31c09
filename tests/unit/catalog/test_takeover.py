"""After a takeover: what the manifest says decides whether a lane in a bucket is opened again."""

import dataclasses

import msgspec
import pytest

from interlock.catalog.open_lane import LOOK_S, is_free
from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.lanes.objectlog.manifest import KEY, LeaseHolder, Left, Manifest, decode
from tests.unit.lanes.objectlog.buckets import ScriptedBucket

MOVER = LeaseHolder(id="x", pid=1, host="h", cache="c", mover=True)
OTHER = LeaseHolder(id="x", pid=1, host="h", cache="c")
LEFT = Left(url="lanes:///there", epoch=1, time_us=0)


class Time:
    """A clock that goes on when somebody waits, and what happens meanwhile."""

    def __init__(self, bucket: ScriptedBucket, later: dict[int, Manifest]) -> None:
        self.now_s = 0.0
        self.pauses = 0
        self._bucket = bucket
        self._later = later

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses += 1
        if self.pauses in self._later:
            self._bucket.objects[KEY] = msgspec.json.encode(self._later[self.pauses])


def manifest(
    revision: int = 1, *, owner: LeaseHolder | None = MOVER, lease_s: float = 5.0, left: Left | None = None
) -> Manifest:
    return Manifest(database="00", revision=revision, nonce="0", epoch=2, owner=owner, lease_s=lease_s, left=left)


def looked(
    first: Manifest | None, later: dict[int, Manifest], *, wait_s: float = 10.0, dead_after_s: float | None = None
) -> tuple[bool, float]:
    """What is_free says, and after how long."""
    bucket = ScriptedBucket()
    if first is not None:
        bucket.objects[KEY] = msgspec.json.encode(first)
    time = Time(bucket, later)
    world = dataclasses.replace(Environment(), clock=time, pause=time.pause)
    return is_free(bucket, wait_s=wait_s, world=world, dead_after_s=dead_after_s), round(time.now_s, 1)


@pytest.mark.parametrize("first", [None, manifest(owner=None), manifest(left=LEFT), manifest(owner=None, left=LEFT)])
def test_what_nobody_holds_is_opened_again_at_once(first: Manifest | None) -> None:
    assert looked(first, {}) == (True, 0.0)


def test_a_mover_is_waited_for_until_it_has_left() -> None:
    assert looked(manifest(1), {3: manifest(2), 7: manifest(3, owner=None, left=LEFT)}) == (True, round(7 * LOOK_S, 1))


def test_a_mover_that_died_is_over_when_its_lease_is() -> None:
    free, after_s = looked(manifest(1), {20: manifest(2)})
    assert free
    assert 5.0 <= after_s - 20 * LOOK_S <= 5.2


def test_a_mover_that_lives_for_too_long_is_not_waited_for_any_longer() -> None:
    renewed = {20 * number: manifest(number + 1) for number in range(1, 20)}
    free, after_s = looked(manifest(1), renewed)
    assert not free
    assert 10.0 <= after_s <= 10.2


@pytest.mark.parametrize("lease_s", [0.1, 5.0, 10.0])
def test_an_owner_that_is_no_mover_keeps_the_lane_however_short_its_lease_is(lease_s: float) -> None:
    """It may be idle, and an idle lane renews no lease."""
    assert looked(manifest(1, owner=OTHER, lease_s=lease_s), {}) == (False, 0.0)


@pytest.mark.parametrize(("lease_s", "after_s"), [(0.5, 3.0), (4.0, 4.0)])
def test_an_engine_that_shows_no_sign_of_life_is_taken_for_dead(lease_s: float, after_s: float) -> None:
    free, waited_s = looked(manifest(1, owner=OTHER, lease_s=lease_s), {}, dead_after_s=3.0)
    assert free
    assert after_s <= waited_s <= after_s + 0.2


def test_an_engine_that_renews_its_lease_keeps_the_lane() -> None:
    renewed = {20 * number: manifest(number + 1, owner=OTHER) for number in range(1, 20)}
    free, after_s = looked(manifest(1, owner=OTHER), renewed, dead_after_s=3.0)
    assert not free
    assert 10.0 <= after_s <= 10.2


def test_a_manifest_of_an_older_version_has_no_mover() -> None:
    """And one of this version is read by an older one, which knows no movers."""
    data = msgspec.json.decode(msgspec.json.encode(manifest(owner=OTHER)))
    del data["owner"]["mover"]
    assert decode(msgspec.json.encode(data)).owner == OTHER
