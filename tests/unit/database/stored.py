"""Databases in a bucket in memory, opened by their address as those in a real one are, for tests."""

import pytest

from interlock.lanes.objectlog import log as objectlog_log
from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress


def in_memory(monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    """From now on every address of a bucket leads into this one."""
    bucket = MemoryBucket()

    def below(address: BucketAddress) -> MemoryBucket:
        return bucket.below(address.path)

    def proven(address: BucketAddress, *, request_timeout_s: float, world: Environment) -> MemoryBucket:
        assert request_timeout_s > 0
        assert world is not None
        return below(address)

    monkeypatch.setattr(objectlog_log, "open_proven", proven)
    monkeypatch.setattr(objectlog_log, "bucket_of", below)
    monkeypatch.setattr(objectlog_log, "folder_of", lambda address: bucket.below(address.folder))
    return bucket
