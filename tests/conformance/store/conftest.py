"""The places that every test of this folder runs at."""

import uuid
from pathlib import Path

import pytest

from interlock.clock import Clock
from interlock.lanes.objectlog import log as objectlog_log
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.conformance.store.places import KINDS, LEASE_S, Place
from tests.integration.objects.servers import Server


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of the kind."""
    kind = str(request.param)
    if kind == "memory":
        return _at("memory:", tmp_path)
    if kind == "local":
        return _at(f"lanes://{tmp_path}/home", tmp_path)
    if kind == "bucket":
        bucket = MemoryBucket()

        def in_memory(address: BucketAddress, **_options: object) -> MemoryBucket:
            return bucket.below(address.path)

        monkeypatch.setattr(objectlog_log, "open_proven", in_memory)
        return _at("s3://memory/home", tmp_path)
    if kind == "postgres":
        return _at(str(request.getfixturevalue("postgres_url")), tmp_path)
    server = request.getfixturevalue(kind)
    assert isinstance(server, Server)
    return _at(server.url(f"stores/{uuid.uuid4().hex}"), tmp_path)


def _at(url: str, cache: Path) -> Place:
    async def open_it(clock: Clock) -> Store:
        return await open_store(url, clock=clock, settings={"lease_s": LEASE_S}, cache=str(cache))

    return Place(open_it)
