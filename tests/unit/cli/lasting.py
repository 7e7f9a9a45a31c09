"""A real command that runs until it is told to stop."""

import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.cli.running import plain_environment, program

END_S = 300


class Lasting:
    """A command that runs, and the first line that it said."""

    def __init__(self, process: "subprocess.Popen[str]", first: str) -> None:
        self.process = process
        self.first = first

    def line(self) -> str:
        """The next line that it says."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def tell(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what else it said."""
        _, said = self.process.communicate(timeout=END_S)
        return self.process.returncode, said

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to stop, and wait until it has."""
        self.tell(number)
        return self.ended()


@contextmanager
def lasting(*arguments: str, folder: Path, **settings: str) -> Generator[Lasting]:
    """Start a command, wait until it says something, and end it whatever happens."""
    process = subprocess.Popen(
        program(*arguments), cwd=folder, env=plain_environment(**settings), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        yield Lasting(process, process.stderr.readline())
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
