"""The servers, started once per test process, when the first test asks for one. Loaded by the conftest of all tests."""

import os
import uuid
from collections.abc import Generator

import pytest

from tests.integration.objects.servers import NODE_PACKAGES, Azurite, Moto, S3rver, SeaweedFS, Server


@pytest.fixture(scope="session")
def moto() -> Generator[Moto]:
    with Moto() as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Generator[SeaweedFS]:
    with SeaweedFS() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Generator[Azurite]:
    needs("azurite")
    with Azurite() as server:
        yield server


@pytest.fixture(scope="session")
def s3rver() -> Generator[S3rver]:
    needs("s3rver")
    with S3rver() as server:
        yield server


@pytest.fixture
def folder() -> str:
    """A folder in the bucket that no other test uses."""
    return uuid.uuid4().hex


def needs(package: str) -> None:
    """Skip, or fail where everything has to run, when a package of Node is not installed."""
    if not (NODE_PACKAGES / package).is_dir():
        reason = f"{package} is not installed; `make servers` does it"
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(params=["moto", "seaweedfs", "azurite"])
def server(request: pytest.FixtureRequest) -> Server:
    """Every server that keeps the promises of a bucket."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found
