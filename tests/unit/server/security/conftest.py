"""The homes that tests of keys and audit run at."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.lanes.objectlog import remote_bucket
from interlock.server.security.keys import CreatedKey
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.unit.server.security.homes import HomeForKeys, key_factory


@pytest.fixture(params=["memory", "local", "bucket", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HomeForKeys:
    """A home of each kind."""
    kind = str(request.param)
    if kind == "memory":
        return HomeForKeys(kind, "memory:")
    if kind == "local":
        return HomeForKeys(kind, f"lanes://{tmp_path}/home")
    if kind == "postgres":
        return HomeForKeys(kind, str(request.getfixturevalue("postgres_url")))
    bucket = MemoryBucket()

    def in_memory(address: BucketAddress, **_options: object) -> MemoryBucket:
        return bucket.below(address.path)

    monkeypatch.setattr(remote_bucket, "open_bucket", in_memory)
    return HomeForKeys(kind, "s3://memory/home")


@pytest.fixture
def create() -> Callable[..., CreatedKey]:
    """Makes keys."""
    return key_factory()
