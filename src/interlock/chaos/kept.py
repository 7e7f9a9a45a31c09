"""A server of the experiment's own, whichever it is: its life, its port, and the keeper that ends it.

The keeper (`interlock.chaos.keeper`) is told what to do through a pipe and answers through another. Every wait here is
for an answer, with a bound; what does not answer in time is given up, which means killed. Nothing but processes that
were started here is ever signalled.
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
TOLD_CHARACTERS_MAX: Final = 1_500
PASSWORD_BYTES: Final = 16


class OwnServer(ABC):
    """A server that nobody else uses. Leaving the block ends it."""

    name: ClassVar[str]
    ready: ClassVar[str]
    """What it says when it takes connections."""
    stopping: ClassVar[signal.Signals]
    """What asks it to shut down in order."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = folder / f"{self.name.lower()}.log"
        self._password = SystemSecrets().token(PASSWORD_BYTES).hex()
        self._held, self.port = _reserved()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._frozen = False
        self._made = False
        self.pid: int | None = None
        """Of its first process, while it runs."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Its address for everybody, with the password."""

    @classmethod
    @abstractmethod
    def installed(cls) -> str | None:
        """Nothing when it can be started here, otherwise the reason and what to install."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: the target of a `Wire`."""
        return LOOPBACK, self.port

    @property
    def running(self) -> bool:
        """Whether it is there, frozen or not."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> None:
        """Start it, and wait until it takes connections. What it kept on its disk is there again."""
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
        started = self._hear(START_S_MAX)
        said = self._hear(START_S_MAX)
        if said != "ready":
            self._give_up()
            raise UnavailableError(
                f"{self.name} does not start: {said or f'nothing was heard within {START_S_MAX:.0f} s'}.",
                why=f"Its last words were: {self.last_words()}",
                fix="Look whether the folder is writable and the machine has memory and disk left.",
            )
        self.pid = int(started.split()[1])

    def stop(self) -> None:
        """Shut it down in order, and wait until all of it has ended. Nothing happens when it is not running."""
        if not self.running:
            return
        if self._frozen:
            self.thaw()
        self._tell(str(int(self.stopping)))
        if not self._hear(STOP_S_MAX).startswith("ended"):
            self._give_up()
            raise UnavailableError(f"{self.name} did not shut down within {STOP_S_MAX:.0f} s, and was killed.")
        self._forget()

    def kill(self) -> None:
        """Kill every process of it, kill -9, and wait until they have ended. Nothing happens when there is none."""
        if self.running:
            self._tell("kill")
            self._hear(STOP_S_MAX)
        self._give_up()

    def restart(self) -> None:
        """Shut it down in order, and start it again."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Stop every process of it where it is: it is there, its connections stay, and it does not answer."""
        self._ask("freeze")
        self._frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        self._ask("thaw")
        self._frozen = False

    def close(self) -> None:
        """End it, in order if it can, and give up its port. A second time does nothing."""
        try:
            self.stop()
        finally:
            self._give_up()
            self._held.close()

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-TOLD_CHARACTERS_MAX:] if self._log.exists() else "none"

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
        """What it needs before its first start."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _owner(self) -> tuple[int, int]:
        return os.geteuid(), os.getegid()

    def _ask(self, word: str) -> None:
        if not self.running:
            raise UnavailableError(f"{self.name} is not running: nothing to {word}.", fix="Start it first.")
        self._tell(word)
        said = self._hear(STOP_S_MAX)
        if said != "done":
            raise UnavailableError(f"{self.name}: {word} failed ({said or 'no answer'}).", why=self.last_words())

    def _tell(self, word: str) -> None:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It has ended by itself, which is heard next.
            self._keeper.stdin.write(f"{word}\n".encode())

    def _hear(self, timeout_s: float) -> str:
        """What the keeper says next; nothing when it says nothing in time, or never will."""
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
        """Whatever is still there goes: the keeper kills what it keeps when nobody can tell it anything any more."""
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


def _reserved() -> tuple[socket.socket, int]:
    """A free port of the loopback, and a socket that keeps it.

    The socket never listens. On Linux a server can listen beside it, and nobody is given the port by chance while the
    server is down; elsewhere the port is only found here.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.bind((LOOPBACK, 0))
    port: int = held.getsockname()[1]
    if sys.platform.startswith("linux"):
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    else:
        held.close()
    return held, port
