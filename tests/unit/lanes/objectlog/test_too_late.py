"""An owner whose answers are lost, or that was replaced while it was slow, is told so; neither is corruption."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from interlock.errors import CorruptionError, Fenced
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import slots
from interlock.lanes.objectlog.bucket_protocol import ConditionFailed, Environment, Found, Unclear
from interlock.lanes.objectlog.format import NO_HASH, LogObject, encode_entry, hash_of, log_key
from interlock.lanes.objectlog.log import open_log
from interlock.lanes.objectlog.manifest import KEY, LaneSnapshot, Manifest, decode
from interlock.lanes.objectlog.slots import Position, read_slots

DATABASE = "d" * 32


class Memory:
    """A bucket that is a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.looks = 0

    def get(self, key: str) -> Found | None:
        data = self.objects.get(key)
        return None if data is None else Found(data, data)

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        self.looks += 1
        assert self.looks < 10, "it looks again and again"
        return [self.objects.get(key) for key in keys]

    def create(self, key: str, data: bytes) -> object:
        if key in self.objects:
            raise ConditionFailed(key)
        self.objects[key] = data
        return data

    def replace(self, key: str, data: bytes, tag: object) -> object:
        if self.objects.get(key) != tag:
            raise ConditionFailed(key)
        self.objects[key] = data
        return data

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))


class LosesAnswers(Memory):
    """Swaps the manifest, and says that nobody knows."""

    def replace(self, key: str, data: bytes, tag: object) -> object:
        super().replace(key, data, tag)
        raise Unclear("the answer was lost")


class TakenOver(Memory):
    """While the snapshot is read, a newer owner has already collected it."""

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        manifest = decode(self.objects[KEY])
        self.objects[KEY] = msgspec.json.encode(
            msgspec.structs.replace(manifest, epoch=manifest.epoch + 1, revision=manifest.revision + 1, snapshots=())
        )
        return super().get_many(keys, bytes_max)


def test_a_lease_that_was_given_up_is_given_up_though_the_answer_was_lost(tmp_path: Path) -> None:
    bucket = LosesAnswers()
    log = open_log(bucket, tmp_path / "x", settings=LaneSettings(), world=Environment())
    log.close(clean=True)
    assert decode(bucket.objects[KEY]).owner is None


def test_a_snapshot_that_a_newer_owner_has_collected_means_fenced(tmp_path: Path) -> None:
    bucket = TakenOver()
    snapshot = LaneSnapshot(
        seq=5, hash="0" * 64, nonce="1" * 32, parts=1, pages=1, page_bytes=512, bytes=512, time_us=0
    )
    manifest = Manifest(
        database=DATABASE, revision=1, nonce="", epoch=1, owner=None, lease_s=10.0, snapshots=(snapshot,)
    )
    bucket.objects[KEY] = msgspec.json.encode(manifest)
    with pytest.raises(Fenced):
        open_log(bucket, tmp_path / "x", settings=LaneSettings(), world=Environment())


def test_a_hole_is_never_taken_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer owner has collected slot 3, or the bucket has lost it. A fence in there would hide what is behind it."""
    monkeypatch.setattr(slots, "READ_AHEAD", 4)
    bucket = Memory()
    before = NO_HASH
    for seq in range(1, 7):
        entry = LogObject("fence", bytes.fromhex(DATABASE), seq, seq, before, bytes(16), 0, 0, 0, ())
        bucket.objects[log_key(seq)] = data = encode_entry(entry)
        before = hash_of(data)
    bucket.delete([log_key(3)])
    with pytest.raises(CorruptionError, match="objects after it"):
        list(read_slots(bucket, bytes.fromhex(DATABASE), Position()))
