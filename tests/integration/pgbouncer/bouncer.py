"""A real PgBouncer in transaction mode, in a process and a folder of its own, in front of the PostgreSQL of the tests.

It listens on loopback alone, and is ready when its log says so. It refuses to run as root, and PostgreSQL's folder is
its owner's alone: there it runs as the user who owns that. It is ended by the number of the process that was started.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.integration.ports import HeldPorts

READY_S_MAX = 60
SERVER_CONNECTIONS = 4

CONFIGURATION = """
[databases]
{database} = host={folder} port={port} dbname={database} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
server_login_retry = 1
"""


def found() -> str | None:
    """The program: what the variable names, or the one of the distribution, which only root has in its path."""
    named = os.environ.get("INTERLOCK_PGBOUNCER")
    return named or shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def version() -> tuple[int, int]:
    """Of the program; (0, 0) when there is none."""
    program = found()
    if program is None:
        return (0, 0)
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    numbers = re.search(r"(\d+)\.(\d+)", told)
    assert numbers is not None, told
    return int(numbers[1]), int(numbers[2])


class Bouncer:
    """One PgBouncer: started on entry, gone on exit. Started again it listens on the same port."""

    def __init__(self, postgres: str, **settings: str | int) -> None:
        parts = urlsplit(postgres)
        [socket] = parse_qs(parts.query)["host"]
        self._owner = Path(socket).stat().st_uid if os.geteuid() == 0 else None
        self._database = parts.path.removeprefix("/")
        self._folder = Path(tempfile.mkdtemp(prefix="interlock-pgbouncer-"))
        self._held = HeldPorts()
        [self._port] = self._held.numbers
        text = CONFIGURATION.format(
            database=self._database, folder=socket, port=5432, listen=self._port, connections=SERVER_CONNECTIONS
        )
        self._file = self._folder / "pgbouncer.ini"
        self._file.write_text(text + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        if self._owner is not None:
            for each in (self._folder, self._file):
                os.chown(each, self._owner, -1)
        self._process: subprocess.Popen[str] | None = None
        self.log: list[str] = []

    @property
    def url(self) -> str:
        """The address of the database through it; further options follow with &."""
        return f"postgresql://postgres:@127.0.0.1:{self._port}/{self._database}?sslmode=disable"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = found()
        assert program is not None
        self._process = subprocess.Popen(
            [program, str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            user=self._owner,
        )
        up = threading.Event()
        threading.Thread(target=self._read, args=(self._process, up), daemon=True).start()
        assert up.wait(READY_S_MAX), self.log
        assert self._process.poll() is None, self.log

    def kill(self) -> None:
        """End it at once, with everything that is on its way."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._held.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, process: subprocess.Popen[str], up: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if "process up" in line:
                    up.set()
        up.set()  # It has ended; whoever waits finds that out.
