"""A real PostgreSQL, started when the first test asks for one, and a schema of its own for each test."""

import uuid
from collections.abc import Generator

import pytest

from tests.conformance.engines import postgres_server


@pytest.fixture(scope="session")
def postgres() -> Generator[str]:
    """The address of a database."""
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """The address of a schema that nobody has used."""
    return f"{postgres}&schema=test_{uuid.uuid4().hex}"
