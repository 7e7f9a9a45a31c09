"""Worker processes of a scenario: start, freeze, wake and kill each by its number.

They are forked by a process that has imported everything already (`interlock.testing.faults.processes`), so that a
scenario starts fast. A worker exits when the other end of its socket is closed. Its standard error goes to a file,
which is shown when a worker ends unexpectedly.
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
        """Start another worker."""
        complaints = str(self._complaints(life.worker))
        self._living[life.worker] = self._processes.start(
            f"{PROGRAM}:forked", msgspec.json.encode(life).decode(), complaints
        )

    def freeze(self, worker: int) -> None:
        """Freeze a worker with SIGSTOP, at any point of its work."""
        os.kill(self._living[worker].number, signal.SIGSTOP)

    def wake(self, worker: int) -> None:
        """Wake a frozen worker with SIGCONT."""
        os.kill(self._living[worker].number, signal.SIGCONT)

    def complaints(self, worker: int) -> str:
        """Return the last lines of a worker's standard error."""
        path = self._complaints(worker)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-COMPLAINT_LINES_MAX:])

    def close(self) -> None:
        """Kill all workers with SIGKILL. Workers that received Stop have closed before, or never will."""
        for process in self._living.values():
            process.close()
        self._living.clear()

    def _complaints(self, worker: int) -> Path:
        return self._folder / f"worker-{worker}.log"
