"""Databases in a bucket in memory, opened by their address as those in a real one are, for tests."""

import pytest

from interlock.lanes.objects import door
from interlock.lanes.objects.addresses import Address
from interlock.lanes.objects.world import World
from interlock.testing.objects import MemoryBucket


def in_memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    """From now on every address of a bucket leads into this one."""
    bucket = MemoryBucket()

    def below(address: Address) -> MemoryBucket:
        return bucket.below(address.path)

    def proven(address: Address, *, request_timeout_s: float, world: World) -> MemoryBucket:
        assert request_timeout_s > 0
        assert world is not None
        return below(address)

    monkeypatch.setattr(door, "open_proven", proven)
    monkeypatch.setattr(door, "bucket_of", below)
    monkeypatch.setattr(door, "folder_of", lambda address: bucket.below(address.folder))
    return bucket
