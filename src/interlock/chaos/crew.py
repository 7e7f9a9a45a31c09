"""The workers as processes: started, frozen, woken and ended, each by its own number.

They are forked by a process that has imported everything already (`interlock.testing.faults.processes`), so that a
scenario begins in a moment. Each ends by itself when nobody is at the other end of its socket any more. What it
complains of goes to a file, and is shown when a worker ends that nobody has ended.
"""

import os
import signal
from pathlib import Path

import msgspec

from interlock.chaos.messages import Life
from interlock.testing.faults.processes import Process, Processes

PROGRAM = "interlock.chaos.worker"
COMPLAINT_LINES_MAX = 12


class Crew:
    """The workers of one scenario."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self._living: dict[int, Process] = {}

    def start(self, life: Life) -> None:
        """Another worker."""
        complaints = str(self._complaints(life.worker))
        self._living[life.worker] = self._processes.start(
            f"{PROGRAM}:forked", msgspec.json.encode(life).decode(), complaints
        )

    def freeze(self, worker: int) -> None:
        """It stands still, in the middle of whatever it does."""
        os.kill(self._living[worker].number, signal.SIGSTOP)

    def wake(self, worker: int) -> None:
        """It goes on as if nothing had happened."""
        os.kill(self._living[worker].number, signal.SIGCONT)

    def complaints(self, worker: int) -> str:
        """The last lines of what it has complained of."""
        path = self._complaints(worker)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-COMPLAINT_LINES_MAX:])

    def close(self) -> None:
        """End all of them, kill -9. Whoever was asked to close has closed before, or never will."""
        for process in self._living.values():
            process.close()
        self._living.clear()

    def _complaints(self, worker: int) -> Path:
        return self._folder / f"worker-{worker}.log"
