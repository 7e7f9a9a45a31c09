"""The places that every test of this folder runs at."""

import uuid
from pathlib import Path

import pytest

from interlock.lanes.objectlog import log as objectlog_log
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.conformance.engine.places import Place
from tests.integration.objects.servers import Server
from tests.integration.postgres.settime import set_by_the_test

OWNED = ("local", "bucket")
KEPT = (*OWNED, "postgres")
KINDS = ("memory", *KEPT)


def made(kind: str, request: pytest.FixtureRequest) -> Place:
    """A place of the kind, where nobody has been before."""
    folder: Path = request.getfixturevalue("tmp_path")
    if kind == "memory":
        return Place(folder, "memory:")
    if kind == "local":
        return Place(folder, f"lanes://{folder}/home")
    if kind == "bucket":
        patched: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        bucket = MemoryBucket()

        def in_memory(address: BucketAddress, **_options: object) -> MemoryBucket:
            return bucket.below(address.path)

        patched.setattr(objectlog_log, "open_proven", in_memory)
        patched.setattr(objectlog_log, "folder_of", lambda address: bucket.below(address.folder))
        return Place(folder, "s3://memory/home")
    if kind == "postgres":
        set_by_the_test(request.getfixturevalue("monkeypatch"))
        return Place(folder, request.getfixturevalue("postgres_url"))
    server = request.getfixturevalue(kind)
    assert isinstance(server, Server)
    return Place(folder, server.url(f"engine/{uuid.uuid4().hex}"))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """Every store."""
    return made(str(request.param), request)


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest) -> Place:
    """Every store that is still there after it was closed."""
    return made(str(request.param), request)


@pytest.fixture(params=OWNED)
def owned(request: pytest.FixtureRequest) -> Place:
    """Every store that has one owner at a time."""
    return made(str(request.param), request)


@pytest.fixture(params=["moto", "seaweedfs"])
def served(request: pytest.FixtureRequest) -> Place:
    """A bucket behind real HTTP."""
    return made(str(request.param), request)
