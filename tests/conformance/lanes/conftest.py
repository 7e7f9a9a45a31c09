"""The places that every test of this folder runs at."""

import uuid
from pathlib import Path

import pytest

from interlock.lanes.objectlog import log as objectlog_log
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BucketAddress
from tests.conformance.lanes.places import KINDS, Place
from tests.integration.objects.servers import Server

ON_POSTGRES = ("test_awaiting", "test_calls", "test_database", "test_interactive", "test_transact")
"""What is about `Database` alone runs there too; the others look into a lane, or need its clock."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test runs at every place, unless it names its own."""
    own = [mark for mark in metafunc.definition.iter_markers("parametrize") if "place" in str(mark.args[0]).split(",")]
    if "place" in metafunc.fixturenames and not own:
        name = metafunc.module.__name__.rpartition(".")[2]
        metafunc.parametrize("place", (*KINDS, "postgres") if name in ON_POSTGRES else KINDS, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of the kind, where nobody has been before. "memory" is for the tests that ask for it by name."""
    kind = str(request.param)
    if kind == "memory":
        return Place(tmp_path, lambda _name: "memory:")
    if kind == "local":
        return Place(tmp_path, lambda name: f"lanes://{tmp_path}/{name}")
    if kind == "bucket":
        bucket = MemoryBucket()

        def in_memory(address: BucketAddress, **_options: object) -> MemoryBucket:
            return bucket.below(address.path)

        monkeypatch.setattr(objectlog_log, "open_proven", in_memory)
        return Place(tmp_path, lambda name: f"s3://memory/{name}")
    if kind == "postgres":
        address, mine = request.getfixturevalue("postgres"), uuid.uuid4().hex
        return Place(tmp_path, lambda name: f"{address}&schema=t{mine[:20]}_{name}")
    server = request.getfixturevalue(kind)
    assert isinstance(server, Server)
    mine = uuid.uuid4().hex
    return Place(tmp_path, lambda name: server.url(f"lanes/{mine}-{name}"))
