"""Base class of the experiment's servers: lifecycle, port, and the keeper process that ends them.

The keeper (`interlock.chaos.keeper`) receives commands through a pipe and answers through another. Every wait for an
answer is bounded; a server whose keeper does not answer in time is killed. Only processes that were started here are
ever signalled.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from interlock.chaos import keeper
from interlock.errors import UnavailableError
from interlock.seams import SystemSecrets

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
        self._keeper: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._frozen = False
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
        """Whether it runs, frozen or not."""
        return self._keeper is not None and self._keeper.poll() is None

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
        self._keeper = subprocess.Popen(  # noqa: S603 -- our own program, our own interpreter.
            [
                sys.executable,
                "-I",
                keeper.__file__,
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
        if self._frozen:
            self.thaw()
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

    def restart(self) -> None:
        """Shut it down in order, and start it again."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Stop all its processes with SIGSTOP: its connections stay open, and it does not answer."""
        self._request("freeze")
        self._frozen = True

    def thaw(self) -> None:
        """Resume all its processes."""
        self._request("thaw")
        self._frozen = False

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

    def _request(self, word: str) -> None:
        if not self.running:
            raise UnavailableError(f"{self.name} is not running: nothing to {word}.", fix="Start it first.")
        self._send(word)
        answer = self._read_line(STOP_S_MAX)
        if answer != "done":
            raise UnavailableError(f"{self.name}: {word} failed ({answer or 'no answer'}).", why=self.last_words())

    def _send(self, word: str) -> None:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It has ended by itself, which the next `_read_line` finds.
            self._keeper.stdin.write(f"{word}\n".encode())

    def _read_line(self, timeout_s: float) -> str:
        """Return the keeper's next line; an empty string after the timeout or at its end."""
        assert self._keeper is not None
        assert self._keeper.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._keeper.stdout], [], [], timeout_s)[0]:
                return ""
            data = os.read(self._keeper.stdout.fileno(), 4_096)
            if not data:
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def _give_up(self) -> None:
        """Close the keeper's input, upon which it kills its server."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            try:
                self._keeper.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._keeper.kill()  # On Linux the server dies with it.
        self._forget()

    def _forget(self) -> None:
        if self._keeper is not None:
            self._keeper.wait()
            for pipe in (self._keeper.stdin, self._keeper.stdout):
                assert pipe is not None
                pipe.close()
        self._keeper, self._unread, self._frozen, self.pid = None, b"", False, None


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
