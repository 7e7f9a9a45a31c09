"""What every test of this folder has: PgBouncer in front of a PostgreSQL, and a schema of its own behind it."""

import os
import uuid
from collections.abc import Generator

import pytest

from tests.integration.pgbouncer.bouncer import Bouncer, found, version
from tests.integration.postgres.fixtures import postgres

__all__ = ["postgres"]

PREPARING = (1, 21)
"""Since this version PgBouncer can keep prepared statements for its clients, and later ones do by default."""

KINDS = ["plain", "preparing"] if version() >= PREPARING else ["plain"]


@pytest.fixture(scope="session", params=KINDS)
def pooler(request: pytest.FixtureRequest, postgres: str) -> Generator[Bouncer]:
    """A pooler with four connections to the server. Skipped, or failed where everything has to run, without one."""
    if found() is None:
        reason = "PgBouncer is not installed; `make pgbouncer` says how"
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    kept = {"preparing": 200, "plain": 0}[str(request.param)]
    settings = {"max_prepared_statements": kept} if version() >= PREPARING else {}
    with Bouncer(postgres, **settings) as bouncer:
        yield bouncer


@pytest.fixture
def schema() -> str:
    """A schema that nobody has used."""
    return f"test_{uuid.uuid4().hex}"


@pytest.fixture
def postgres_url(pooler: Bouncer, schema: str) -> str:
    """The address of the schema through the pooler, under the name by which the suites know it."""
    return f"{pooler.url}&schema={schema}&pgbouncer=true"


@pytest.fixture
def direct_url(postgres: str, schema: str) -> str:
    """The same past the pooler."""
    return f"{postgres}&schema={schema}"
