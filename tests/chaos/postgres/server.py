"""A PostgreSQL that can be shut down, crashed and started again, on a socket and in a folder of its own.

Two users: the engines' own, which owns the database and has no privilege beyond it, and the administrator, for whom
PostgreSQL keeps a few connections back when everybody else has taken the rest. Its disk is not waited for: what is
lost here is processes, never the machine, so what was written is there.
"""

import os
import subprocess
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.postgres.wheel import get_server

DATABASE, USER, FOREIGNER = "chaos", "shop", "foreigner"
CONNECTIONS_MAX = 48
SETTINGS = f"""
listen_addresses = ''
max_connections = {CONNECTIONS_MAX}
shared_buffers = '32MB'
fsync = off
"""
CONTROL_S_MAX = 300
"""A server that has not stopped or started after this time never will."""


class Server:
    """A server that nobody else uses."""

    def __init__(self, data: Path, sockets: Path, control: Path) -> None:
        self._data = data
        self._sockets = sockets
        self._control = control
        self._log = data / "restarts.log"

    def url(self, user: str = USER) -> str:
        """The address of the database for one of its users."""
        return f"postgresql://{user}:@/{DATABASE}?host={self._sockets}"

    @property
    def administrator(self) -> str:
        """The address for whoever disturbs and audits."""
        return self.url("postgres")

    def stop(self, mode: str) -> None:
        """Shut it down; `fast` ends every session, `immediate` is a crash, of which the next start has to recover."""
        self._run("-m", mode, "stop")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._run("-l", str(self._log), "start")

    def refusals(self) -> int:
        """How often somebody was told that there is no connection left, ever."""
        said = self._log.read_text()
        return said.count("too many clients already") + said.count("remaining connection slots are reserved")

    def _run(self, *words: str) -> None:
        # PostgreSQL refuses to be started by root, for whom the wheel has made a user.
        owner = self._data.stat().st_uid if os.geteuid() == 0 else None
        command = [str(self._control), "-D", str(self._data), "-w", "-t", str(CONTROL_S_MAX), *words]
        # Not captured: the server would keep the pipe open for as long as it lives.
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner)
        assert done.returncode == 0, f"{words}: {self._log.read_text() if self._log.exists() else 'no log'}"


@contextmanager
def own_server() -> Generator[Server]:
    """A server with its database and users, gone at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The wheel asks for a runtime directory, which a bare machine does not have.
        with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
            data = Path(folder) / "data"
            made = get_server(data)
            try:
                made.psql(
                    f"CREATE ROLE {USER} LOGIN; CREATE ROLE {FOREIGNER} LOGIN;\n"
                    f"CREATE DATABASE {DATABASE} OWNER {USER} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
                )
                sockets = made.get_postmaster_info().socket_dir
                assert sockets is not None
                with (data / "postgresql.conf").open("a") as settings:
                    settings.write(f"{SETTINGS}unix_socket_directories = '{sockets}'\n")
                server = Server(data, sockets, Path(made.bin_path) / "pg_ctl")
                server.stop("fast")
                server.start()
                try:
                    yield server
                finally:
                    server.stop("immediate")
            finally:
                made.cleanup()
