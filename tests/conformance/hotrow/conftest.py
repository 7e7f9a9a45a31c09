"""The places that every test of this folder runs at."""

import uuid
from pathlib import Path

import pytest

from interlock.lanes.objectlog import log as objectlog_log
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.conformance.hotrow.places import KEPT, KINDS, Place


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of the kind, where nobody has been before."""
    return _place(str(request.param), request, tmp_path, monkeypatch)


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place where everything is still there when it is opened again."""
    return _place(str(request.param), request, tmp_path, monkeypatch)


def _place(kind: str, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if kind == "memory":
        return Place(kind, folder, lambda _name: "memory:")
    if kind == "local":
        return Place(kind, folder, lambda name: f"lanes://{folder}/{name}")
    if kind == "postgres":
        server, mine = str(request.getfixturevalue("postgres")), uuid.uuid4().hex
        return Place(kind, folder, lambda name: f"{server}&schema={name}_{mine}")
    bucket = MemoryBucket()

    def in_memory(address: BucketAddress, **_options: object) -> MemoryBucket:
        return bucket.below(address.path)

    monkeypatch.setattr(objectlog_log, "open_proven", in_memory)
    return Place(kind, folder, lambda name: f"s3://memory/{name}")
